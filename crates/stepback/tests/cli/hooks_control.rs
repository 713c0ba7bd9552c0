//! Stopping agents: breakpoints, pauses, answers, and what happens when one of the two sides is gone.

use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::sandbox::{Ran, Sandbox};
use crate::talk::{Talk, items, of_kind, until_stopped, workspace_dir};

fn started(session: &str) -> Sandbox {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let agent = Talk::new(&world, session);
    agent.begin();
    agent.prompt("go");
    world
}

fn call(agent: &Talk<'_>, name: &str, id: &str, tool: &str, input: Value) -> Child {
    let rest = json!({ "tool_name": tool, "tool_use_id": id, "tool_input": input });
    agent.start(agent.payload(name, rest).to_string().as_bytes())
}

fn pre(agent: &Talk<'_>, id: &str, tool: &str, input: Value) -> Child {
    call(agent, "PreToolUse", id, tool, input)
}

#[track_caller]
fn answer(child: Child) -> Ran {
    let ran: Ran = child.wait_with_output().unwrap().into();
    let ran = ran.exits(0);
    assert!(!ran.out.contains("allow"), "{}", ran.out);
    ran
}

fn decision(ran: &Ran) -> Value {
    ran.json()["hookSpecificOutput"].clone()
}

/// Whether nothing is left that would make hooks look twice.
fn is_disarmed(world: &Sandbox) -> bool {
    !workspace_dir(world).join("control").exists()
}

#[test]
fn a_stopped_call_is_inspected_and_answered() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    world.ok(["breakpoint", "add", "tool", "bash", "--condition", "rm|push"]);
    answer(pre(&agent, "b0", "Bash", json!({ "command": "ls" })));
    agent.post("b0", "Bash", json!({ "command": "ls" }));
    let stopped = pre(&agent, "b1", "Bash", json!({ "command": "rm -r build" }));
    until_stopped(&world, 1);
    let shown = world.json(["inspect"]);
    assert_eq!(shown["stop"]["tool"], "Bash");
    assert_eq!(shown["stop"]["breakpoint"], 1);
    assert_eq!(world.json(["inspect", "input"]), json!({ "command": "rm -r build" }));
    assert_eq!(items(&world.json(["sessions"]))[0]["status"], "stopped");
    world.json(["deny", "not the build"]);
    let said = decision(&answer(stopped));
    assert_eq!(
        (&said["permissionDecision"], &said["permissionDecisionReason"]),
        (&json!("deny"), &json!("not the build"))
    );
    let stopped = pre(&agent, "b2", "Bash", json!({ "command": "git push" }));
    until_stopped(&world, 1);
    world.run(["edit-input", "[1]"]).exits(2);
    world.run(["edit-input", "{"]).exits(2);
    world.json(["edit-input", r#"{"command": "git status"}"#]);
    assert_eq!(decision(&answer(stopped))["updatedInput"], json!({ "command": "git status" }));
    agent.post("b2", "Bash", json!({ "command": "git status" }));
    let stopped = pre(&agent, "b3", "Bash", json!({ "command": "git push" }));
    until_stopped(&world, 1);
    world.json(["resume"]);
    assert!(answer(stopped).out.is_empty(), "going on says nothing");
    assert_eq!(of_kind(&world, "decision").len(), 3);
    assert_eq!(of_kind(&world, "breakpoint-hit").len(), 3);
    let refused = agent.steps().into_iter().find(|step| step["call"] == "b1" && step["kind"] == "tool-end");
    assert_eq!(refused.unwrap()["failed"], false, "a refused call is over, and no error of the agent");
    world.run(["resume"]).exits(4);
    assert_eq!(items(&world.json(["breakpoint", "list"]))[0]["hits"], 3);
    world.json(["breakpoint", "clear"]);
    assert!(is_disarmed(&world));
}

#[test]
fn what_is_waited_for() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    let log = ["--log"];
    let added: [&[&str]; 6] = [
        &["tool", "Write"],
        &["pattern", "DROP\\s+TABLE"],
        &["path", "src/**"],
        &["error"],
        &["iteration", "3"],
        &["tool", "*", "--hits", "3"],
    ];
    for words in added {
        world.ok(["breakpoint", "add"].iter().chain(words).chain(&log));
    }
    agent.write("w1", "other", "x\n"); // 1, 6 counted
    agent.bash("b1", "psql -c 'DROP  TABLE x'", || ()); // 2, 6 counted
    fs::create_dir(world.path("src")).unwrap();
    agent.write("w2", "src/deep", "x\n"); // 1, 3, 5 once, 6
    agent.pre("b2", "Bash", json!({ "command": "false" })); // 6
    let failed = json!({ "tool_name": "Bash", "tool_use_id": "b2", "tool_input": {}, "error": "exit 1" });
    agent.event("PostToolUseFailure", failed); // 4
    agent.pre("r1", "Read", json!({})); // 6
    let hits: Vec<(u64, u64, bool)> = items(&world.json(["breakpoint", "list"]))
        .iter()
        .rev()
        .map(|item| (item["id"].as_u64().unwrap(), item["hits"].as_u64().unwrap(), item["enabled"] == true))
        .collect();
    let expected = [(1, 2, true), (2, 1, true), (3, 1, true), (4, 1, true), (5, 1, false), (6, 5, true)];
    assert_eq!(hits, expected);
    let noted = of_kind(&world, "breakpoint-hit");
    assert_eq!(noted.len(), 2 + 1 + 1 + 1 + 1 + 3, "{noted:?}");
    assert!(noted.iter().all(|step| step["summary"].as_str().unwrap().starts_with("log point")));
}

#[test]
fn breakpoints_are_switched_and_taken_away() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    world.ok(["settings", "breakpoint.seconds", "0"]);
    world.ok(["breakpoint", "add", "tool", "Bash"]);
    let stops = |id: &str| {
        let ran = agent.pre(id, "Bash", json!({ "command": "x" }));
        let denied = ran.out.contains("deny");
        if !denied {
            agent.post(id, "Bash", json!({ "command": "x" }));
        }
        denied
    };
    assert!(stops("1"));
    world.json(["breakpoint", "disable", "1"]);
    assert!(!stops("2"));
    world.json(["breakpoint", "enable", "1"]);
    assert!(stops("3"));
    world.json(["breakpoint", "remove", "1"]);
    assert!(!stops("4"));
    for arguments in
        [["breakpoint", "remove", "1"], ["breakpoint", "enable", "9"], ["breakpoint", "disable", "9"]]
    {
        let ran = world.run(arguments).exits(4);
        assert!(ran.err.contains("Hint"), "{}", ran.err);
    }
    assert!(is_disarmed(&world));
    let wrong: [&[&str]; 7] = [
        &["pattern", "("],
        &["pattern", "(((a{100}){100}){100}){100}"],
        &["tool", "x", "--condition", "\\p{L}{1000}{1000}"],
        &["iteration", "soon"],
        &["cost", "NaN"],
        &["cost", "-1"],
        &["tool"],
    ];
    for words in wrong {
        let ran = world.run(["breakpoint", "add"].iter().chain(words));
        assert_eq!(ran.code, Some(2), "{words:?}: {}{}", ran.out, ran.err);
    }
    assert!(is_disarmed(&world), "a refused breakpoint leaves nothing behind");
}

#[test]
fn a_limit_of_zero_is_refused_with_what_to_give_instead() {
    let world = started("s1");
    for (kind, zero, why, such_as) in [
        ("iteration", "0", "the first model turn is iteration 1", "20"),
        ("tokens", "0", "every session has reached 0 tokens", "150000"),
        ("cost", "0", "every session has reached a cost of 0", "2.50"),
        ("cost", "-0.0", "every session has reached a cost of 0", "2.50"),
    ] {
        let ran = world.run(["breakpoint", "add", "--log", "--", kind, zero]).exits(2);
        let says = ["the breakpoint cannot be used", why, such_as, "breakpoint add --help"];
        assert!(says.iter().all(|part| ran.err.contains(part)), "{kind}: {}", ran.err);
    }
    assert!(items(&world.json(["breakpoint", "list"])).is_empty());
    for (kind, least) in [("iteration", "1"), ("tokens", "1"), ("cost", "0.01")] {
        world.ok(["breakpoint", "add", kind, least]);
    }
}

#[test]
fn nobody_answers() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    world.ok(["settings", "breakpoint.seconds", "1"]);
    world.ok(["pause"]);
    let begun = Instant::now();
    let said = decision(&answer(pre(&agent, "b1", "Bash", json!({ "command": "x" }))));
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(said["permissionDecision"], "deny");
    assert!(said["permissionDecisionReason"].as_str().unwrap().contains("did not answer in time"));
    let steps = agent.steps();
    assert!(steps.iter().any(|step| step["kind"] == "tool-end" && step["call"] == "b1"));
    world.ok(["resume"]);
    assert!(is_disarmed(&world));
}

#[test]
fn pausing_and_single_steps() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    world.json(["pause"]);
    let one = pre(&agent, "b1", "Bash", json!({ "command": "1" }));
    until_stopped(&world, 1);
    world.json(["step"]);
    assert!(answer(one).out.is_empty());
    agent.post("b1", "Bash", json!({ "command": "1" }));
    let two = pre(&agent, "b2", "Bash", json!({ "command": "2" }));
    until_stopped(&world, 1);
    world.json(["resume"]);
    answer(two);
    agent.post("b2", "Bash", json!({ "command": "2" }));
    answer(pre(&agent, "b3", "Bash", json!({ "command": "3" })));
    assert!(is_disarmed(&world));
}

#[test]
fn two_stops_at_once_get_their_own_answers() {
    let world = started("one");
    let (one, two) = (Talk::new(&world, "one"), Talk::new(&world, "two"));
    two.begin();
    world.ok(["breakpoint", "add", "tool", "Bash"]);
    let first = pre(&one, "b1", "Bash", json!({ "command": "one" }));
    until_stopped(&world, 1);
    let second = pre(&two, "b1", "Bash", json!({ "command": "two" }));
    until_stopped(&world, 2);
    assert_eq!(world.json(["inspect", "input", "--session", "two"]), json!({ "command": "two" }));
    world.json(["deny", "for two", "--session", "two"]);
    assert_eq!(decision(&answer(second))["permissionDecisionReason"], "for two");
    until_stopped(&world, 1);
    world.run(["deny", "again", "--session", "two"]).exits(4);
    world.json(["deny", "for one"]);
    assert_eq!(decision(&answer(first))["permissionDecisionReason"], "for one");
    for session in ["one", "two"] {
        let shown = world.json(["inspect", "--session", session]);
        assert_eq!(shown["session"]["info"]["external"], session, "the one that was asked for");
    }
    // A message goes to the session it is for.
    world.json(["breakpoint", "clear"]);
    world.json(["inject", "only for one", "--session", "one"]);
    assert!(two.pre("b2", "Bash", json!({ "command": "x" })).out.is_empty());
    two.post("b2", "Bash", json!({ "command": "x" }));
    let told = one.pre("b2", "Bash", json!({ "command": "x" }));
    assert_eq!(decision(&told)["additionalContext"], "only for one");
    assert!(one.post("b2", "Bash", json!({ "command": "x" })).out.is_empty(), "it is said once");
    assert!(is_disarmed(&world));
}

#[test]
fn a_hook_that_is_killed_while_it_waits() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    world.ok(["pause"]);
    let mut child = pre(&agent, "b1", "Bash", json!({ "command": "x" }));
    until_stopped(&world, 1);
    child.kill().unwrap();
    child.wait().unwrap();
    world.run(["deny"]).exits(4);
    assert_eq!(items(&world.json(["sessions"]))[0]["status"], "active");
    world.ok(["resume"]);
    assert!(is_disarmed(&world), "what a dead process left is cleared away");
    agent.prompt("again");
    agent.write("w1", "file", "changed\n");
    assert_eq!(crate::talk::authors_of(&world, "file"), ["s1"]);
}

#[test]
fn an_answer_reaches_the_agent_whatever_becomes_of_the_record() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    world.ok(["pause"]);
    let child = pre(&agent, "b1", "Bash", json!({ "command": "rm -rf ." }));
    until_stopped(&world, 1);
    // Somebody keeps the store from the hook from now on; the answer is put where the command would put it.
    let control = workspace_dir(&world).join("control");
    let holder = rusqlite::Connection::open(world.store.join("log.sqlite")).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let stop = fs::read_dir(&control)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("stop-"));
    let stop: Value = serde_json::from_slice(&fs::read(stop.unwrap()).unwrap()).unwrap();
    let aside = world.root().join("answer");
    fs::write(&aside, json!({ "answer": "deny", "reason": "no" }).to_string()).unwrap();
    fs::rename(&aside, control.join(format!("answer-{}.json", stop["id"].as_str().unwrap()))).unwrap();
    let said = decision(&answer(child));
    holder.execute_batch("ROLLBACK").unwrap();
    assert_eq!(said["permissionDecisionReason"], "no");
    assert!(!of_kind(&world, "gap").is_empty(), "what could not be recorded is a gap");
}

#[test]
fn many_hooks_count_together() {
    let world = started("s1");
    world.ok(["breakpoint", "add", "tool", "Bash", "--log"]);
    let agents: Vec<Talk<'_>> = (0..4).map(|at| Talk::new(&world, &format!("many{at}"))).collect();
    for round in 0..3 {
        let children: Vec<Child> =
            agents.iter().map(|agent| pre(agent, &format!("b{round}"), "Bash", json!({}))).collect();
        children.into_iter().for_each(|child| drop(answer(child)));
    }
    assert_eq!(items(&world.json(["breakpoint", "list"]))[0]["hits"], 12);
    assert!(of_kind(&world, "gap").is_empty());
}

#[test]
fn hooks_that_are_installed_twice_are_answered_once() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    world.ok(["pause"]);
    let both = [(); 2].map(|()| pre(&agent, "b1", "Bash", json!({ "command": "x" })));
    until_stopped(&world, 2);
    world.ok(["deny", "no"]);
    for child in both {
        assert_eq!(decision(&answer(child))["permissionDecisionReason"], "no");
    }
    world.ok(["resume"]);
    assert!(is_disarmed(&world));
}
