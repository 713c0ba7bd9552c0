//! Recorded agents run again with no model there: the same calls, the same files, and the first difference where something
//! was changed.

use serde_json::Value;
use stepback_testkit::model::{Agent, Script, Turn};
use stepback_testkit::tree;

use crate::support::{PROGRAM, World, items, shell};

const PROMPT: &str = "do the work";

/// A world in which an agent has worked, recorded by hooks and proxy.
fn recorded(agent: Agent) -> (World, tree::Copy) {
    let world = World::new(&[("edited.txt", "one\ntwo\nthree\n"), ("doomed.txt", "gone soon\n")]);
    let script = Script::new([
        Turn::read("edited.txt").saying("I look first."),
        Turn::edit("edited.txt", "two\n", "TWO\n"),
        Turn::shell("rm doomed.txt && mkdir made && echo shell > made/new.txt"),
        Turn::write("made/written.txt", "written\n"),
        Turn::shell("cat made/new.txt edited.txt > both.txt"),
        Turn::text("All is done."),
    ]);
    world.agent(agent).through([PROGRAM, "run", "--"]).script(script).run(PROMPT).succeeds();
    let after = world.tree();
    (world, after)
}

/// The tool calls of a session: tool and input, in order.
fn calls(world: &World, session: &str) -> Vec<(Value, String)> {
    let replay = world.stepback(&["replay", session, "--filter", "tool-start", "--json"]);
    let steps: Vec<Value> = replay.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    steps.iter().map(|step| (step["tool"].clone(), step["summary"].to_string())).collect()
}

fn runs_again(agent: Agent) {
    let (world, after) = recorded(agent);
    world.has_no_gap();
    let sessions = world.json(&["sessions"]);
    let session = items(&sessions)[0].clone();
    let id = session["id"].as_str().unwrap().to_owned();
    let model = world.json(&["log", "--session", &id, "--kind", "model-end"]);
    assert!(items(&model).len() >= 6, "{model:#}");

    let again = world.agent(agent).without_model().run_command([PROGRAM, "rerun", "--json"]).succeeds();
    let done: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(done["status"], "completed", "{done:#}\n{}", again.stderr);
    assert_eq!(done["model_calls"]["live"], 0, "{done:#}");
    assert_eq!(done["model_calls"]["parted"], Value::Null, "{done:#}");
    assert!(again.requests.is_empty());
    world.is(&after);

    // The branch holds the very same files.
    let branch = format!("branch:{}", done["branch"].as_str().unwrap());
    let into = world.home.join("branch");
    world.stepback(&["restore", &branch, "--into", into.to_str().unwrap()]);
    let files = tree::copy_of(&into, |path| path == b".git");
    let differences = tree::differences(&after, &files);
    assert!(differences.is_empty(), "{differences}");
    let _ = (calls(&world, &id), shell(agent));
}

#[test]
fn claude_runs_again() {
    runs_again(Agent::Claude);
}

#[test]
fn codex_runs_again() {
    runs_again(Agent::Codex);
}

#[test]
fn gemini_runs_again() {
    runs_again(Agent::Gemini);
}

#[test]
fn opencode_runs_again() {
    runs_again(Agent::Opencode);
}
