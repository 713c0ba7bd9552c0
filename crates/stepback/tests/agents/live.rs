//! A live agent: stopped, looked at, its input changed, refused, told something, paused; and all that by `stepback run`,
//! which changes no settings.

use std::ffi::OsString;
use std::fs;

use serde_json::json;
use stepback_testkit::model::{Script, ScriptedAgent, ScriptedTurn};

use crate::support::{AgentProject, PROGRAM, items, shell};

/// The settings of an agent in the home.
fn settings(agent: ScriptedAgent) -> &'static [&'static str] {
    match agent {
        ScriptedAgent::Claude => &[".claude/settings.json", ".claude/settings.local.json"],
        ScriptedAgent::Codex => &[".codex/config.toml", ".codex/hooks.json"],
        ScriptedAgent::Gemini => &[".gemini/settings.json"],
        ScriptedAgent::Opencode => &[".config/opencode/opencode.json", ".config/opencode/plugin/stepback.js"],
    }
}

fn is_stopped_and_told(agent: ScriptedAgent) {
    let world = AgentProject::new(&[("a.txt", "a\n")]);
    let real = world.agent(agent).through([PROGRAM, "run", "--"]);
    real.prepare();
    if agent == ScriptedAgent::Claude {
        fs::create_dir_all(world.home.join(".claude")).unwrap();
        fs::write(world.home.join(".claude/settings.json"), "{ \"env\": {\"A\": \"b\"} }").unwrap();
    }
    if agent == ScriptedAgent::Codex {
        // Otherwise Codex itself notes in its settings that it may work here.
        let file = world.home.join(".codex/config.toml");
        let trust = format!("\n[projects.\"{}\"]\ntrust_level = \"trusted\"\n", world.work.display());
        fs::write(&file, fs::read_to_string(&file).unwrap() + &trust).unwrap();
    }
    let read = |name: &&str| -> Option<Vec<u8>> { fs::read(world.home.join(name)).ok() };
    let before: Vec<Option<Vec<u8>>> = settings(agent).iter().map(read).collect();

    // Codex takes a new input only together with an "allow"; it is told what to call instead.
    let calls_again = agent == ScriptedAgent::Codex;
    let mut script = vec![ScriptedTurn::shell("echo old > out.txt")];
    script.extend(calls_again.then(|| ScriptedTurn::shell("echo new > out.txt")));
    script.extend([
        ScriptedTurn::shell("touch denied.txt"),
        ScriptedTurn::shell("echo three > three.txt"),
        ScriptedTurn::text("All is done."),
    ]);
    let denied = script.len() - 2;
    world.stepback(&["breakpoint", "add", "tool", shell(agent)]);
    let mut running = real.script(Script::new(script)).spawn("do the work");

    let stop = world.stopped(&mut running, "echo old");
    assert_eq!(stop["tool"], shell(agent));
    assert_eq!(stop["agent"], agent.program());
    assert_eq!(stop["breakpoint"], 1);
    assert_eq!(items(&world.json(&["sessions"]))[0]["status"], "stopped");
    let shown = world.stepback(&["inspect", "input"]);
    assert!(shown.contains("echo old > out.txt"), "{shown}");
    let mut input = stop["input"].clone();
    input["command"] = json!("echo new > out.txt");
    world.stepback(&["inject", "Mind the gap."]);
    world.stepback(&["edit-input", &input.to_string()]);
    if calls_again {
        world.stopped(&mut running, "echo new");
        world.stepback(&["resume"]);
    }

    world.stopped(&mut running, "touch denied.txt");
    world.stepback(&["breakpoint", "clear"]);
    world.stepback(&["pause"]);
    world.stepback(&["deny", "Not on my watch."]);

    let stop = world.stopped(&mut running, "echo three");
    assert_eq!(stop["reason"], "paused");
    world.stepback(&["resume"]);
    let run = running.wait().succeeds();

    assert_eq!(world.read("out.txt").as_deref(), Some("new\n"));
    assert_eq!(world.read("denied.txt"), None);
    assert_eq!(world.read("three.txt").as_deref(), Some("three\n"));
    let turns = run.turns();
    assert_eq!(turns.len(), if calls_again { 5 } else { 4 });
    let carries = |turn: usize, text: &str| turns[turn].body.to_string().contains(text);
    assert!(!carries(0, "Mind the gap.") && carries(1, "Mind the gap."), "{:#}", turns[1].body);
    assert!(!carries(denied - 1, "Not on my watch.") && carries(denied, "Not on my watch."));
    if calls_again {
        assert!(carries(1, "The user changed the input of this call"), "{:#}", turns[1].body);
    }

    let log = world.json(&["log", "--kind", "decision"]);
    let decisions: Vec<&str> = items(&log).iter().filter_map(|step| step["summary"].as_str()).collect();
    let begins = |at: usize, word: &str| decisions[decisions.len() - 1 - at].starts_with(word);
    let edited = if calls_again { "input edited, to be called again: " } else { "input edited: " };
    assert!(begins(0, edited), "{decisions:?}");
    assert!(begins(denied - 1, "denied: Not on my watch."), "{decisions:?}");
    assert!(begins(denied, "resumed: "), "{decisions:?}");
    // A change is the doing of the command that ran, not of the one that was asked for.
    let changes = world.json(&["changes"]);
    let made = items(&changes).iter().find(|change| change["path"] == "out.txt").unwrap();
    assert!(made["authors"][0]["call"].as_str().unwrap().contains("echo new"), "{made:#}");
    // What was refused did not run, and every call has an end.
    let count = |kind: &str| items(&world.json(&["log", "--kind", kind])).len();
    assert_eq!(count("tool-start"), count("tool-end"));

    world.has_no_gap();
    let after: Vec<Option<Vec<u8>>> = settings(agent).iter().map(read).collect();
    assert_eq!(before, after, "`stepback run` leaves settings as they were");
    assert_eq!(world.git(&["status", "--porcelain"]), "?? out.txt\n?? three.txt\n");
    let left = fs::read_dir(world.home.join("tmp")).unwrap().map(|entry| entry.unwrap().file_name());
    let ours: Vec<OsString> = left.filter(|name| name.to_string_lossy().contains("stepback")).collect();
    assert!(ours.is_empty(), "{ours:?}");
}

#[test]
fn claude_is_stopped_and_told() {
    is_stopped_and_told(ScriptedAgent::Claude);
}

#[test]
fn codex_is_stopped_and_told() {
    is_stopped_and_told(ScriptedAgent::Codex);
}

#[test]
fn gemini_is_stopped_and_told() {
    is_stopped_and_told(ScriptedAgent::Gemini);
}

#[test]
fn opencode_is_stopped_and_told() {
    is_stopped_and_told(ScriptedAgent::Opencode);
}
