//! Each agent does what its script says: the ground that every other test of agents stands on.

use std::fs;
use std::path::Path;

use serde_json::json;
use stepback_testkit::model::{ItemRole, RequestOutcome, Script, ScriptedAgent, ScriptedCall, ScriptedTurn};

use crate::support::AgentProject;

fn plays_its_script(agent: ScriptedAgent) {
    let world = AgentProject::new(&[("edited.txt", "one\ntwo\nthree\n"), ("doomed.txt", "gone soon\n")]);
    let script = Script::new([
        ScriptedTurn::read("edited.txt").saying("I look first."),
        ScriptedTurn::edit("edited.txt", "two\n", "TWO\n"),
        ScriptedTurn::write("written.txt", "new\n"),
        ScriptedTurn::shell("rm doomed.txt && echo shell > made.txt"),
        ScriptedTurn::text("All is done."),
    ]);
    let run = world.agent(agent).script(script).run("do the work").succeeds();

    assert_eq!(world.read("edited.txt").as_deref(), Some("one\nTWO\nthree\n"), "{}", run.stdout);
    assert_eq!(world.read("written.txt").as_deref(), Some("new\n"));
    assert_eq!(world.read("made.txt").as_deref(), Some("shell\n"));
    assert_eq!(world.read("doomed.txt"), None);
    assert!(run.stdout.contains("All is done."), "{}", run.stdout);

    assert_eq!(run.turns().len(), 5);
    assert_eq!(run.history(0), [(ItemRole::User, "do the work".to_owned())]);
    let roles: Vec<ItemRole> = run.history(4).iter().map(|(role, _)| *role).collect();
    let step = [ItemRole::Call, ItemRole::Result];
    assert_eq!(roles, [&[ItemRole::User, ItemRole::Model][..], &step, &step, &step, &step].concat());

    let again = Script::new([]).when("go on", [ScriptedTurn::text("I went on.")]);
    let next = world.agent(agent).script(again).resume(&run.session()).run("go on").succeeds();
    let mut expected = run.history(4);
    expected.extend([(ItemRole::Model, "All is done.".to_owned()), (ItemRole::User, "go on".to_owned())]);
    assert_eq!(next.history(0), expected);
}

#[test]
fn claude_plays_its_script() {
    plays_its_script(ScriptedAgent::Claude);
}

#[test]
fn codex_plays_its_script() {
    plays_its_script(ScriptedAgent::Codex);
}

#[test]
fn gemini_plays_its_script() {
    plays_its_script(ScriptedAgent::Gemini);
}

#[test]
fn opencode_plays_its_script() {
    plays_its_script(ScriptedAgent::Opencode);
}

#[test]
fn hooks_run_and_calls_made_at_once_are_one_turn() {
    let world = AgentProject::new(&[]);
    let log = world.home.join("hooks.jsonl");
    let command = format!("{{ cat; echo; }} >> '{}'", log.display());
    let entry = json!([{ "matcher": "*", "hooks": [{ "type": "command", "command": command }] }]);
    let script = Script::new([
        ScriptedTurn::calls([ScriptedCall::write("a.txt", "a\n"), ScriptedCall::shell("echo b > b.txt")]),
        ScriptedTurn::text("Done.").failing(529, 1),
    ]);
    for agent in [ScriptedAgent::Claude, ScriptedAgent::Codex] {
        let hooks = json!({ "hooks": { "PreToolUse": entry, "PostToolUse": entry } });
        let run = world.agent(agent).hooks(&hooks).script(script.clone()).run("do both").succeeds();
        assert_eq!(run.turns().len(), 2);
        assert!(run.requests.iter().any(|request| request.answer == RequestOutcome::Failed(529)));
        let seen = fs::read_to_string(&log).unwrap();
        assert_eq!(seen.matches("\"PreToolUse\"").count(), 2, "{agent:?}: {seen}");
        assert_eq!(seen.matches("\"PostToolUse\"").count(), 2, "{agent:?}: {seen}");
        assert_eq!(world.read("a.txt").as_deref(), Some("a\n"));
        assert_eq!(world.read("b.txt").as_deref(), Some("b\n"));
        for name in [log.clone(), world.work.join("a.txt"), world.work.join("b.txt")] {
            fs::remove_file(name).unwrap();
        }
    }
}

#[test]
fn a_run_in_the_background_waits_for_its_file_and_leaves_no_process() {
    let world = AgentProject::new(&[]);
    let gate = world.home.join("gate");
    let script = Script::new([
        ScriptedTurn::shell("echo $$ > shell; (setsid sleep 600 & echo $! > sleeper)"),
        ScriptedTurn::text("Done.").once_exists(&gate),
    ]);
    let mut running = world.agent(ScriptedAgent::Claude).script(script).spawn("wait for me");
    running.until("its second turn", |run| {
        run.requests().iter().filter(|request| request.is_turn()).count() == 2
    });
    assert!(running.is_running());
    let sleeper = format!("/proc/{}", world.read("sleeper").unwrap().trim());
    assert!(Path::new(&sleeper).exists());
    fs::write(&gate, "").unwrap();
    running.wait().succeeds();
    assert!(!fs::read_to_string(format!("{sleeper}/stat")).is_ok_and(|stat| !stat.contains(") Z")));
}
