//! Two sessions of an agent and a person in one workspace: taking back what one did leaves the others' work alone.

use std::fs;

use stepback_testkit::model::{Script, ScriptedAgent, ScriptedTurn};

use crate::support::{AgentProject, items, turns};

const LINES: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n";

fn shares_a_workspace(agent: ScriptedAgent) {
    let world = AgentProject::new(&[("lines.txt", LINES), ("other.txt", "other\n")]);
    // Where the agent reads hooks of a project without being asked to trust it, they are the project's.
    let scope: &[&str] =
        if matches!(agent, ScriptedAgent::Claude | ScriptedAgent::Opencode) { &[] } else { &["--user"] };
    world.init(agent, scope);
    let gate = world.home.join("gate");
    let one = Script::new([
        ScriptedTurn::read("lines.txt"),
        ScriptedTurn::edit("lines.txt", "two\n", "TWO\n"),
        ScriptedTurn::write("mine.txt", "mine\n"),
        ScriptedTurn::shell("echo more >> mine.txt && rm other.txt").once_exists(&gate),
        ScriptedTurn::text("One is done."),
    ]);
    let two = Script::new([
        ScriptedTurn::write("theirs.txt", "theirs\n"),
        ScriptedTurn::shell("echo shell > by-shell.txt"),
        ScriptedTurn::text("Two is done."),
    ]);
    let mut running = world.hooked(agent).script(one).spawn("work on mine");
    running.until("its fourth turn", |run| turns(run) == 4);
    world.write("person.txt", "by hand\n");
    world.write("lines.txt", &world.read("lines.txt").unwrap().replace("eight", "EIGHT by hand"));
    let second = world.hooked(agent).script(two).run("work on theirs").succeeds();
    world.write("person.txt", "by hand, again\n");
    fs::write(&gate, "").unwrap();
    let first = running.wait().succeeds();
    assert_ne!(first.session(), second.session());
    assert_eq!(world.read("mine.txt").as_deref(), Some("mine\nmore\n"));
    let all = world.tree();

    world.has_no_gap();
    let id = world.session(&first.session())["id"].as_str().unwrap().to_owned();
    let prompts = world.json(&["log", "--session", &id, "--kind", "user-input"]);
    let prompt = format!("#{}", items(&prompts)[0]["number"]);
    world.stepback(&["rewind", &prompt, "--yes"]);
    assert_eq!(world.read("mine.txt"), None);
    assert_eq!(world.read("other.txt").as_deref(), Some("other\n"));
    assert_eq!(world.read("lines.txt"), Some(LINES.replace("eight", "EIGHT by hand")));
    assert_eq!(world.read("person.txt").as_deref(), Some("by hand, again\n"));
    assert_eq!(world.read("theirs.txt").as_deref(), Some("theirs\n"));
    assert_eq!(world.read("by-shell.txt").as_deref(), Some("shell\n"));
    world.stepback(&["undo", "--yes"]);
    world.is(&all);

    // The other one's work goes as well when it is asked for, and nothing else does.
    world.stepback(&["rewind", &prompt, "--session", &second.session(), "--yes"]);
    assert_eq!((world.read("theirs.txt"), world.read("by-shell.txt")), (None, None));
    assert_eq!(world.read("mine.txt").as_deref(), Some("mine\nmore\n"));
    assert_eq!(world.read("person.txt").as_deref(), Some("by hand, again\n"));
}

#[test]
fn claude_shares_a_workspace() {
    shares_a_workspace(ScriptedAgent::Claude);
}

#[test]
fn codex_shares_a_workspace() {
    shares_a_workspace(ScriptedAgent::Codex);
}

#[test]
fn gemini_shares_a_workspace() {
    shares_a_workspace(ScriptedAgent::Gemini);
}

#[test]
fn opencode_shares_a_workspace() {
    shares_a_workspace(ScriptedAgent::Opencode);
}
