//! Going back: the files of an agent's work, git and all, and then its conversation.
//!
//! One run edits with the agent's own tool, deletes, creates and commits by shell, and throws all of it away with
//! `git reset --hard`. The middle of it must come back to the byte, and the conversation must go on from there.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use stepback_testkit::agent::AgentRunOutcome;
use stepback_testkit::model::{ItemRole, Script, ScriptedAgent, ScriptedTurn};
use stepback_testkit::tree;

use crate::support::{AgentProject, PROGRAM, editor, items, shell, turns};

const PROMPT: &str = "do the work";

/// The prompt as it reaches the model: opencode puts one of several words into quotes.
fn said(agent: ScriptedAgent) -> String {
    if agent == ScriptedAgent::Opencode { format!("\"{PROMPT}\"") } else { PROMPT.to_owned() }
}

/// A run, and what the repository looked like before, in the middle of and after it.
struct Worked {
    world: AgentProject,
    run: AgentRunOutcome,
    before: tree::Copy,
    middle: tree::Copy,
    after: tree::Copy,
    /// What stepback says about the session at its end.
    session: Value,
    /// The commit that the run began and ended at, and the one it threw away.
    commits: [String; 2],
}

fn work(agent: ScriptedAgent) -> Worked {
    let world = AgentProject::new(&[
        ("edited.txt", "one\ntwo\nthree\n"),
        ("doomed.txt", "gone soon\n"),
        ("deep/down/kept.txt", "kept\n"),
    ]);
    world.init(agent, &["--user"]);
    let before = world.tree();
    let head = || world.git(&["rev-parse", "HEAD"]);
    let first = head();
    let gate = world.home.join("gate");
    let script = Script::new([
        ScriptedTurn::read("edited.txt").saying("I look first."),
        ScriptedTurn::edit("edited.txt", "two\n", "TWO\n"),
        ScriptedTurn::shell(
            "rm doomed.txt && mkdir made && echo shell > made/new.txt && chmod 755 made/new.txt && git add --all && \
             git -c user.name=A -c user.email=a@example.org commit --quiet -m second",
        ),
        ScriptedTurn::shell("git reset --hard --quiet HEAD~1").once_exists(&gate),
        ScriptedTurn::text("All is done."),
    ]);
    let mut running = world.hooked(agent).script(script).spawn(PROMPT);
    running.until("its fourth turn", |run| turns(run) == 4);
    let (middle, second) = (world.tree(), head());
    assert_ne!(first, second);
    fs::write(&gate, "").unwrap();
    let run = running.wait().succeeds();
    assert_eq!(head(), first);
    let after = world.tree();
    let session = world.session(&run.session());
    Worked { world, run, before, middle, after, session, commits: [first, second] }
}

fn files_come_back(agent: ScriptedAgent, worked: &Worked) {
    let Worked { world, before, middle, after, commits: [first, second], .. } = worked;
    let head = || world.git(&["rev-parse", "HEAD"]);
    world.is(after);
    assert!(tree::differences(before, after).is_empty());

    let point = format!("tool:{}:last", shell(agent));
    world.stepback(&["rewind", &point, "--yes"]);
    world.is(middle);
    assert_eq!(head(), *first, "no git directory changes unless asked for");
    world.stepback(&["undo", "--yes"]);
    world.is(after);
    world.stepback(&["redo", "--yes"]);
    world.is(middle);
    world.stepback(&["undo", "--yes"]);

    world.stepback(&["rewind", &point, "--files", "--git", "--yes"]);
    world.is(middle);
    assert_eq!(head(), *second);
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    world.git(&["fsck", "--strict"]);
    world.stepback(&["undo", "--yes"]);
    world.is(after);
    assert_eq!(head(), *first);

    // A point by its number: before the first call of the shell, after the edit.
    let log = world.json(&["log", "--kind", "tool-start"]);
    let calls: Vec<&Value> = items(&log).iter().filter(|step| step["tool"] == shell(agent)).collect();
    let earlier = calls[1];
    assert!(earlier["summary"].as_str().unwrap().contains("rm doomed.txt"), "{earlier:#}");
    world.stepback(&["rewind", &format!("#{}", earlier["number"]), "--yes"]);
    let mut edited = before.clone();
    let Some(tree::Thing::File(mode, _)) = before.get(b"edited.txt".as_slice()) else { panic!("no file") };
    edited.insert(b"edited.txt".into(), tree::Thing::File(*mode, b"one\nTWO\nthree\n".as_slice().into()));
    world.is(&edited);
    world.stepback(&["undo", "--yes"]);
    world.is(after);
}

fn changes_name_tool_and_prompt(agent: ScriptedAgent, worked: &Worked) {
    let changes = worked.world.json(&["changes"]);
    let call = |path: &str, kind: &str, tool: &str| -> String {
        let is = |change: &&Value| {
            let author = &change["authors"][0];
            change["path"] == path
                && change["kind"] == kind
                && author["tool"] == tool
                && author["prompt"] == said(agent)
        };
        let made = items(&changes).iter().find(is);
        let made = made.unwrap_or_else(|| panic!("{path} was not {kind} by {tool}: {changes:#}"));
        made["authors"][0]["call"].as_str().unwrap().to_owned()
    };
    assert!(call("edited.txt", "modified", editor(agent)).contains("edited.txt"));
    assert!(call("doomed.txt", "deleted", shell(agent)).contains("rm doomed.txt"));
    assert!(call("made/new.txt", "created", shell(agent)).contains("rm doomed.txt"));
    assert!(call("made/new.txt", "deleted", shell(agent)).contains("git reset --hard"));
}

fn the_session_is_listed_and_can_be_imported(agent: ScriptedAgent, worked: &Worked) {
    let Worked { world, run, session, .. } = worked;
    assert_eq!(session["agent"], agent.program());
    assert_eq!(session["title"], said(agent));
    assert_eq!(session["iterations"], 5, "{session:#}");
    let prompts =
        |log: &Value| -> Vec<Value> { items(log).iter().map(|step| step["summary"].clone()).collect() };
    let recorded = prompts(&world.json(&["log", "--kind", "user-input"]));
    assert_eq!(recorded, [said(agent)]);
    world.has_no_gap();

    let transcript = PathBuf::from(session["transcript"].as_str().unwrap());
    let other = world.home.join("other-store");
    let ask = |arguments: &[&str]| -> Value {
        serde_json::from_str(&world.try_stepback(&other, &[arguments, &["--json"]].concat()).unwrap())
            .unwrap()
    };
    let imported = ask(&["import", transcript.to_str().unwrap(), "--agent", agent.program()]);
    assert_eq!(items(&imported)[0]["agent_session"], run.session());
    assert_eq!(prompts(&ask(&["log", "--kind", "user-input"])), recorded);
    assert_eq!(items(&ask(&["log", "--kind", "tool-start"])).len(), 4);
}

fn the_conversation_goes_on_from_the_middle(agent: ScriptedAgent, worked: &Worked) {
    let Worked { world, run, .. } = worked;
    let script = Script::new([]).when("go on", [ScriptedTurn::text("I went on.")]);
    let point = format!("tool:{}:last", shell(agent));
    // Gemini CLI refuses to work unattended in a directory that nobody said to trust.
    let fork = world.agent(agent).env("GEMINI_CLI_TRUST_WORKSPACE", "true").script(script);
    let next =
        fork.run_command([PROGRAM, "rewind", &point, "--conversation", "--resume", "go on"]).succeeds();
    let mut expected = run.history(3);
    expected.push((ItemRole::User, "go on".to_owned()));
    assert_eq!(next.history(0), expected);
    assert_eq!(next.turns().len(), 1);
    world.is(&worked.after);
    let sessions = world.json(&["sessions"]);
    let forked: Vec<&Value> =
        items(&sessions).iter().filter(|session| !session["forked_from"].is_null()).collect();
    assert_eq!(forked.len(), 1, "{sessions:#}");
    // To be forked is not to go on: it is as it was.
    let status = |session: &Value| session["status"].clone();
    assert_eq!(status(&world.session(&run.session())), status(&worked.session));
    world.has_no_gap();
}

fn goes_back(agent: ScriptedAgent) {
    let worked = work(agent);
    files_come_back(agent, &worked);
    changes_name_tool_and_prompt(agent, &worked);
    the_session_is_listed_and_can_be_imported(agent, &worked);
    the_conversation_goes_on_from_the_middle(agent, &worked);
}

#[test]
fn claude_goes_back() {
    goes_back(ScriptedAgent::Claude);
}

#[test]
fn codex_goes_back() {
    goes_back(ScriptedAgent::Codex);
}

#[test]
fn gemini_goes_back() {
    goes_back(ScriptedAgent::Gemini);
}

#[test]
fn opencode_goes_back() {
    goes_back(ScriptedAgent::Opencode);
}
