//! Recorded agents run again with no model there: the same calls, the same files, and the first difference where something
//! was changed.

use serde_json::{Value, json};
use stepback_testkit::agent::PORT;
use stepback_testkit::model::{Script, ScriptedAgent, ScriptedCall, ScriptedTurn};
use stepback_testkit::tree;

use crate::support::{AgentProject, PROGRAM, items, shell};

const PROMPT: &str = "do the work";

/// A world in which an agent has worked, recorded by hooks and proxy.
fn recorded(agent: ScriptedAgent) -> (AgentProject, tree::Copy) {
    let world = AgentProject::new(&[("edited.txt", "one\ntwo\nthree\n"), ("doomed.txt", "gone soon\n")]);
    let script = Script::new([
        ScriptedTurn::read("edited.txt").saying("I look first."),
        ScriptedTurn::edit("edited.txt", "two\n", "TWO\n"),
        ScriptedTurn::shell("rm doomed.txt && mkdir made && echo shell > made/new.txt"),
        ScriptedTurn::write("made/written.txt", "written\n"),
        ScriptedTurn::shell("cat made/new.txt edited.txt > both.txt"),
        ScriptedTurn::text("All is done."),
    ]);
    world.agent(agent).through([PROGRAM, "run", "--"]).script(script).run(PROMPT).succeeds();
    let after = world.tree();
    (world, after)
}

/// What the agents call a tool that only looks is of no interest; all others are listed with what they are about.
fn calls(world: &AgentProject, session: &str) -> Vec<(Value, Value)> {
    let replay = world.stepback(&["replay", session, "--filter", "tool-start", "--json"]);
    let steps = replay.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    steps.map(|step| (step["tool"].clone(), step["summary"].clone())).collect()
}

/// Does the last session again, with no model there.
fn again(world: &AgentProject, agent: ScriptedAgent, more: &[&str]) -> (Option<i32>, Value) {
    let words = [&[PROGRAM, "rerun", "--json"], more].concat();
    let run = world.agent(agent).without_model().run_command(words);
    assert!(run.requests.is_empty());
    let done = serde_json::from_str(&run.stdout);
    (run.code, done.unwrap_or_else(|_| panic!("{}\n{}", run.stdout, run.stderr)))
}

/// Fails the test unless a branch holds exactly these files.
fn holds(world: &AgentProject, done: &Value, expected: &tree::Copy) {
    let branch = done["branch"].as_str().unwrap();
    let into = world.home.join(branch);
    world.stepback(&["restore", &format!("branch:{branch}"), "--into", into.to_str().unwrap()]);
    let differences = tree::differences(expected, &tree::copy_of(&into, |path| path == b".git"));
    assert!(differences.is_empty(), "{branch} is not what it should be:\n{differences}");
}

fn runs_again(agent: ScriptedAgent) {
    let (world, after) = recorded(agent);
    world.has_no_gap();
    let sessions = world.json(&["sessions"]);
    let id = items(&sessions)[0]["id"].as_str().unwrap().to_owned();
    let steps = world.stepback(&["replay", &id, "--json"]);
    let steps: Vec<Value> = steps.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = steps.iter().map(|step| step["kind"].as_str().unwrap()).collect();
    let count = |kind: &str| kinds.iter().filter(|known| **known == kind).count();
    assert!(count("model-end") >= 6 && count("model-start") == count("model-end"), "{kinds:?}");
    // What a call came of is on record before the call itself.
    for (at, _) in kinds.iter().enumerate().filter(|(_, kind)| **kind == "tool-start") {
        let model = kinds[..at].iter().rev().find(|kind| kind.starts_with("model-"));
        assert_eq!(model, Some(&"model-end"), "{kinds:?}");
    }

    // As it was: the same calls, the same files, and nobody was asked.
    let (code, done) = again(&world, agent, &[]);
    assert_eq!((code, &done["status"]), (Some(0), &json!("completed")), "{done:#}");
    assert_eq!(done["model_calls"]["live"], 0, "{done:#}");
    assert_eq!(done["model_calls"]["parted"], Value::Null, "{done:#}");
    assert_eq!(done["fence"]["fence"], "namespaces");
    world.is(&after);
    holds(&world, &done, &after);
    assert_eq!(calls(&world, done["session"].as_str().unwrap()), calls(&world, &id));

    // With one result changed, it goes another way at the very call after it, and nowhere before.
    let shells: Vec<&Value> =
        steps.iter().filter(|step| step["kind"] == "tool-start" && step["tool"] == shell(agent)).collect();
    let wanted = shells.iter().find(|step| step["summary"].as_str().unwrap().contains("rm doomed")).unwrap();
    let change = format!("#{}.output=nothing of the kind", wanted["number"]);
    let (code, done) = again(&world, agent, &["--set", &change]);
    assert_eq!((code, &done["status"]), (Some(0), &json!("diverged")), "{done:#}");
    assert_eq!(done["ended"], "parted", "{done:#}");
    let difference = &done["model_calls"]["parted"]["differences"][0];
    assert_eq!(difference["present"], "nothing of the kind", "{done:#}");
    let ran = calls(&world, done["session"].as_str().unwrap());
    let until = calls(&world, &id).iter().position(|(_, what)| what == &wanted["summary"]).unwrap();
    assert_eq!(ran, calls(&world, &id)[..=until], "what came before was done, and nothing after");
    let mut files = after.clone();
    for name in ["made/written.txt", "both.txt"] {
        files.remove(name.as_bytes());
    }
    holds(&world, &done, &files);
    world.is(&after);
}

#[test]
fn claude_runs_again() {
    runs_again(ScriptedAgent::Claude);
}

#[test]
fn codex_runs_again() {
    runs_again(ScriptedAgent::Codex);
}

#[test]
fn gemini_runs_again() {
    runs_again(ScriptedAgent::Gemini);
}

#[test]
fn opencode_runs_again() {
    runs_again(ScriptedAgent::Opencode);
}

/// Calls that do not run: what they did is put in place, to the byte, although they would do something else today.
#[test]
fn calls_that_do_not_run_leave_what_they_left() {
    let world = AgentProject::new(&[("a.txt", "a\n")]);
    let script = Script::new([
        ScriptedTurn::shell("date +%s%N > stamp.txt; cat stamp.txt"),
        ScriptedTurn::write("b.txt", "b\n"),
        ScriptedTurn::shell("rm a.txt"),
        ScriptedTurn::text("All is done."),
    ]);
    world.agent(ScriptedAgent::Claude).through([PROGRAM, "run", "--"]).script(script).run(PROMPT).succeeds();
    let after = world.tree();
    let (code, done) = again(&world, ScriptedAgent::Claude, &["--tools", "recorded"]);
    assert_eq!((code, &done["model_calls"]["parted"]), (Some(0), &Value::Null), "{done:#}");
    holds(&world, &done, &after);
    // For real, the clock goes on: the first thing the model hears is something else.
    let (code, done) = again(&world, ScriptedAgent::Claude, &[]);
    assert_eq!((code, &done["status"]), (Some(5), &json!("failed")), "{done:#}");
    assert_eq!(done["model_calls"]["parted"]["call"], 2, "{done:#}");
    // And where nothing may change anything, nothing does.
    let (_, done) = again(&world, ScriptedAgent::Claude, &["--tools", "deny", "--on-difference", "nearest"]);
    let mut files = after.clone();
    for name in ["stamp.txt", "b.txt"] {
        files.remove(name.as_bytes());
    }
    files.insert(b"a.txt".into(), tree::copy_of(&world.work, |_| false).remove(b"b.txt".as_slice()).unwrap());
    let branch = done["branch"].as_str().unwrap();
    assert_eq!(world.stepback(&["cat", &format!("branch:{branch}"), "a.txt"]), "a\n");
}

/// A model that was busy is busy again, and a person who said two things says both again, or only the second.
#[test]
fn trouble_and_several_prompts_come_again() {
    let world = AgentProject::new(&[("a.txt", "a\n")]);
    let one = Script::new([
        ScriptedTurn::write("one.txt", "one\n").failing(529, 1),
        ScriptedTurn::text("One is done."),
    ])
    .when("say two", [ScriptedTurn::shell("cat one.txt > two.txt"), ScriptedTurn::text("Two is done.")]);
    let agent = world.agent(ScriptedAgent::Claude).through([PROGRAM, "run", "--"]).script(one);
    let first = agent.run("say one").succeeds();
    agent.resume(&first.session()).run("say two").succeeds();
    let after = world.tree();
    let sessions = world.json(&["sessions"]);
    assert_eq!(items(&sessions).len(), 1, "{sessions:#}");
    let ends = world.json(&["log", "--kind", "model-end"]);
    let failed = items(&ends).iter().filter(|step| step["failed"] == true).count();
    assert_eq!(failed, 1, "{ends:#}");

    let (code, done) = again(&world, ScriptedAgent::Claude, &[]);
    assert_eq!((code, &done["model_calls"]["parted"]), (Some(0), &Value::Null), "{done:#}");
    assert_eq!(done["model_calls"]["recorded"], 5, "{done:#}");
    holds(&world, &done, &after);

    let prompts = world.json(&["log", "--kind", "user-input"]);
    let second = format!("#{}", items(&prompts)[0]["number"]);
    let (code, done) = again(&world, ScriptedAgent::Claude, &["--from", &second]);
    assert_eq!((code, &done["model_calls"]["parted"]), (Some(0), &Value::Null), "{done:#}");
    assert_eq!(done["model_calls"]["recorded"], 2, "{done:#}");
    holds(&world, &done, &after);
}

/// A sub-agent asks the model as well, about something else and maybe at the same time.
#[test]
fn a_sub_agent_comes_again() {
    let world = AgentProject::new(&[("a.txt", "a\n")]);
    let task = json!({
        "description": "Write a file", "prompt": "sub-agent: write the file", "subagent_type": "general-purpose",
    });
    let script = Script::new([
        ScriptedTurn::call(ScriptedCall::named("Agent", task)),
        ScriptedTurn::shell("cat sub.txt > main.txt"),
        ScriptedTurn::text("All is done."),
    ])
    .when(
        "sub-agent: write",
        [ScriptedTurn::shell("echo by the sub-agent > sub.txt"), ScriptedTurn::text("Written.")],
    );
    world
        .agent(ScriptedAgent::Claude)
        .through([PROGRAM, "run", "--"])
        .args(["--allowedTools", "Agent,Bash"])
        .script(script)
        .run(PROMPT)
        .succeeds();
    assert_eq!(world.read("main.txt").as_deref(), Some("by the sub-agent\n"));
    let after = world.tree();
    let log = world.json(&["log", "--kind", "model-end"]);
    assert!(items(&log).iter().any(|step| !step["worker"].is_null()), "{log:#}");
    let (code, done) = again(&world, ScriptedAgent::Claude, &[]);
    assert_eq!((code, &done["model_calls"]["parted"]), (Some(0), &Value::Null), "{done:#}");
    holds(&world, &done, &after);
}

/// Codex with its own provider and a key, which is how most people have it.
#[test]
fn codex_runs_again_with_its_own_provider() {
    let world = AgentProject::new(&[("a.txt", "a\n")]);
    let script = Script::new([ScriptedTurn::shell("echo b > b.txt"), ScriptedTurn::text("All is done.")]);
    let config = format!("model = \"gpt-5.5\"\nopenai_base_url = \"http://127.0.0.1:{PORT}/v1\"\n");
    let codex = world
        .agent(ScriptedAgent::Codex)
        .file(".codex/config.toml", &config)
        .file(".codex/auth.json", "{\"OPENAI_API_KEY\": \"sk-scripted\"}");
    codex.clone().through([PROGRAM, "run", "--"]).script(script).run(PROMPT).succeeds();
    let after = world.tree();
    assert_eq!(world.read("b.txt").as_deref(), Some("b\n"));
    let ends = world.json(&["log", "--kind", "model-end"]);
    assert_eq!(items(&ends).len(), 2, "{ends:#}");
    let (code, done) = again(&world, ScriptedAgent::Codex, &[]);
    assert_eq!((code, &done["model_calls"]["parted"]), (Some(0), &Value::Null), "{done:#}");
    holds(&world, &done, &after);
}
