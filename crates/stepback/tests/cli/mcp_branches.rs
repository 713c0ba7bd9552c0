//! `stepback mcp`: experiments, other branches, and taking back what an agent did by itself.

use std::fs;

use serde_json::{Value, json};

use crate::mcp_client::Client;
use crate::sandbox::Sandbox;
use crate::talk::Talk;

fn read(world: &Sandbox, name: &str) -> String {
    fs::read_to_string(world.path(name)).unwrap()
}

/// Plans, and agrees.
#[track_caller]
fn moved(agent: &mut Client, tool: &str, arguments: Value) -> Value {
    let plan = agent.call(tool, arguments);
    agent.call("rewind_apply", json!({ "plan": plan["plan"] }))
}

fn present(agent: &mut Client) -> String {
    let listed = agent.call("branch", json!({}));
    let branches = listed["branches"].as_array().unwrap().clone();
    let present = branches.iter().find(|branch| branch["present"] == true).unwrap();
    present["name"].as_str().unwrap().to_owned()
}

#[test]
fn an_agent_tries_something_out_on_a_branch_and_comes_back_with_what_it_found() {
    let world = Sandbox::new();
    world.write("cache.txt", "on\n");
    world.write("notes.txt", "mine\n");
    let talk = Talk::new(&world, "s1");
    talk.begin();
    talk.prompt("make it fast");
    let mut agent = Client::introduced(&world, "claude-code", &[]);
    assert_eq!(agent.call("experiment", json!({ "do": "list" }))["experiments"], json!([]));
    agent.call("hypothesis", json!({ "do": "propose", "statement": "it is the cache" }));
    world.write("notes.txt", "mine, and not kept yet\n");
    let begun = agent.call(
        "experiment",
        json!({ "do": "start", "branch": "no-cache", "hypothesis": "H1", "success": "ten fast runs" }),
    );
    assert_eq!(
        (&begun["item"], &begun["branch"], &begun["left"]),
        (&json!("X1"), &json!("no-cache"), &json!("main")),
        "{begun:#}"
    );
    assert_eq!(read(&world, "notes.txt"), "mine, and not kept yet\n", "files stay as they are");
    talk.write("w1", "cache.txt", "off\n");
    talk.write("w2", "made.txt", "made\n");
    agent.call(
        "evidence",
        json!({ "hypothesis": "H1", "text": "fast without it", "strength": 0.9, "doc": "d" }),
    );
    agent.call("hypothesis", json!({ "do": "confirm", "hypothesis": "H1" }));
    let ended = json!({ "do": "end", "experiment": "X1", "outcome": "succeeded", "result": "ten fast runs" });
    agent.call("experiment", ended.clone());
    let said = agent.refused("experiment", ended);
    assert!(said.contains("only a running experiment can end"), "{said}");

    let plan = agent.call("switch_plan", json!({ "branch": "main", "reasoning": true }));
    assert_eq!(plan["changes"].as_array().unwrap().len(), 2, "{plan:#}");
    assert_eq!((read(&world, "cache.txt").as_str(), present(&mut agent).as_str()), ("off\n", "no-cache"));
    let done = agent.call("rewind_apply", json!({ "plan": plan["plan"] }));
    assert!(done["board"].to_string().contains("X1"), "{done:#}");
    assert_eq!((read(&world, "cache.txt").as_str(), present(&mut agent).as_str()), ("on\n", "main"));
    assert!(!world.path("made.txt").exists());
    assert_eq!(read(&world, "notes.txt"), "mine, and not kept yet\n");
    assert_eq!(agent.call("mind", json!({ "item": "H1" }))["item"]["status"], "active");
    let planned = agent.call("merge_plan", json!({ "branch": "no-cache" }));
    assert!(planned["board"].to_string().contains("H1"), "{planned:#}");
    assert_eq!(planned["changes"].as_array().unwrap().len(), 2, "{planned:#}");
    let joined = agent.call("rewind_apply", json!({ "plan": planned["plan"] }));
    assert_eq!((read(&world, "cache.txt").as_str(), read(&world, "made.txt").as_str()), ("off\n", "made\n"));
    assert_eq!(agent.call("mind", json!({ "item": "H1" }))["item"]["status"], "confirmed");
    moved(&mut agent, "undo_plan", json!({ "operation": joined["operation"] }));
    assert_eq!((read(&world, "cache.txt").as_str(), world.path("made.txt").exists()), ("on\n", false));
    assert_eq!(agent.call("mind", json!({ "item": "H1" }))["item"]["status"], "active");
    let planned = agent.call("mind_merge", json!({ "from": "no-cache", "dry_run": true }));
    assert!(planned.get("step").is_none() && planned["conflicts"] == json!([]), "{planned:#}");
    let merged = agent.call("mind_merge", json!({ "from": "no-cache" }));
    assert!(merged["step"].is_u64(), "{merged:#}");
    assert_eq!(agent.call("mind", json!({ "item": "H1" }))["item"]["status"], "confirmed");
    let listed = agent.call("experiment", json!({ "do": "list" }));
    assert!(listed["experiments"].to_string().contains("ten fast runs"), "{listed:#}");

    let log = world.ok(["op", "log"]).out;
    let switch = log.lines().find(|line| line.contains("switch to branch main")).unwrap();
    assert!(switch.contains("(by claude "), "people see who did it: {log}");

    // Undone, redone, and undone by the person, who has the last word.
    moved(&mut agent, "undo_plan", json!({ "operation": done["operation"] }));
    assert_eq!((read(&world, "cache.txt").as_str(), present(&mut agent).as_str()), ("off\n", "no-cache"));
    moved(&mut agent, "undo_plan", json!({ "redo": true }));
    assert_eq!((read(&world, "cache.txt").as_str(), present(&mut agent).as_str()), ("on\n", "main"));
    world.ok(["undo", "--yes"]);
    let said = agent.refused("undo_plan", json!({ "redo": true }));
    assert!(said.contains("is not one of session"), "{said}");
    assert_eq!((read(&world, "cache.txt").as_str(), present(&mut agent).as_str()), ("off\n", "no-cache"));
    assert!(agent.end().is_empty());
    world.expect_sound("after experiments by tools");
}

#[test]
fn an_agent_takes_nobody_along_to_another_branch() {
    let world = Sandbox::new();
    world.write("ours", "1\n");
    world.write("theirs", "1\n");
    let talk = Talk::new(&world, "s1");
    talk.begin();
    talk.prompt("go");
    let mut agent = Client::introduced(&world, "claude-code", &[]);
    let start = |branch: &str| json!({ "do": "start", "branch": branch, "success": "it works" });
    agent.call("experiment", start("x"));
    talk.write("w1", "ours", "2\n");
    world.write("theirs", "2\n");
    talk.bash("b1", "true", || {});
    let said = agent.refused("switch_plan", json!({ "branch": "main" }));
    assert!(said.contains("that others changed since: theirs"), "{said}");
    // A plan that was good is not, once somebody else changed something.
    world.write("theirs", "1\n");
    let plan = agent.call("switch_plan", json!({ "branch": "main" }));
    assert_eq!(plan["changes"], json!(["restore ours"]), "{plan:#}");
    world.write("theirs", "3\n");
    let said = agent.refused("rewind_apply", json!({ "plan": plan["plan"] }));
    assert!(said.contains("that others changed since: theirs"), "{said}");
    assert_eq!((read(&world, "ours").as_str(), present(&mut agent).as_str()), ("2\n", "x"));
    // The person can.
    world.ok(["branch", "switch", "main", "--yes"]);
    assert_eq!((read(&world, "ours").as_str(), read(&world, "theirs").as_str()), ("1\n", "1\n"));
    let said = agent.refused("undo_plan", json!({}));
    assert!(said.contains("is now on main"), "{said}");
    let operations = world.json(["op", "log"]);
    let said = agent.refused("undo_plan", json!({ "operation": operations["items"][0]["number"] }));
    assert!(said.contains("is not one of session"), "{said}");
    let said = agent.refused("switch_plan", json!({ "branch": "nowhere" }));
    assert!(said.contains("branch nowhere not found; branches are main, x"), "{said}");
    for (wrong, expected) in [
        (json!({ "do": "start", "branch": "y" }), "needs \"success\""),
        (json!({ "do": "start", "branch": "main", "success": "s" }), "branch main already exists"),
        (json!({ "do": "start", "branch": "a  b", "success": "s" }), "a  b"),
        (json!({ "do": "start", "branch": "y", "success": "s", "hypothesis": "H9" }), "H9"),
        (json!({ "do": "end", "experiment": "X9", "outcome": "failed", "result": "r" }), "X9"),
        (
            json!({ "do": "end", "experiment": "X1", "outcome": "running", "result": "r" }),
            "outcome must be one of",
        ),
    ] {
        let said = agent.refused("experiment", wrong);
        assert!(said.contains(expected), "{said}");
    }
    assert_eq!(world.json(["branch", "list"])["items"].as_array().unwrap().len(), 2);

    // Another agent is at work.
    let mut other = Talk::new(&world, "s2");
    other.agent = "codex";
    other.begin();
    other.prompt("go");
    for (tool, arguments) in [
        ("experiment", start("y")),
        ("switch_plan", json!({ "branch": "x" })),
        ("merge_plan", json!({ "branch": "x" })),
    ] {
        let said = agent.refused(tool, arguments);
        assert!(said.contains("codex") && said.contains("switched to another branch"), "{said}");
    }
    let mut trusted = Client::introduced(&world, "claude-code", &["--allow-others"]);
    moved(&mut trusted, "switch_plan", json!({ "branch": "x" }));
    assert_eq!((read(&world, "ours").as_str(), read(&world, "theirs").as_str()), ("2\n", "3\n"));
    // To undo a switch is one, too.
    let said = agent.refused("undo_plan", json!({}));
    assert!(said.contains("codex") && said.contains("switched to another branch"), "{said}");
    moved(&mut trusted, "undo_plan", json!({}));
    assert_eq!(read(&world, "ours"), "1\n");
    // Also what changes no file.
    trusted.call("branch", json!({ "name": "spare" }));
    let undone = moved(&mut trusted, "undo_plan", json!({}));
    assert_eq!((&undone["done"], undone.get("before")), (&json!(0), None), "{undone:#}");
    assert_eq!(world.json(["branch", "list"])["items"].as_array().unwrap().len(), 2);
}

#[test]
fn who_is_not_recorded_moves_nothing() {
    let world = Sandbox::new();
    world.write("a", "1\n");
    world.ok(["checkpoint", "create", "begin"]);
    let mut agent = Client::introduced(&world, "somebody", &[]);
    agent.call("branch", json!({ "name": "x" }));
    for (tool, arguments) in [
        ("experiment", json!({ "do": "start", "branch": "y", "success": "s" })),
        ("switch_plan", json!({ "branch": "x" })),
        ("undo_plan", json!({})),
    ] {
        let said = agent.refused(tool, arguments);
        assert!(said.contains("no recorded session of yours"), "{said}");
    }
    assert_eq!(present(&mut agent), "main");
}
