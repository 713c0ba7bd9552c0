//! Sessions, branches and points side by side.

use std::fs;

use serde_json::json;

use crate::sandbox::Sandbox;
use crate::talk::{Talk, items};
use crate::transcripts::{Transcript, assert_transcript};

/// A session that lists, works and tests, with one call more and another result if it is `careful`.
fn session(world: &Sandbox, name: &str, careful: bool) {
    let agent = Talk::new(world, name);
    agent.begin();
    agent.prompt("make the tests pass");
    for at in 0..5 {
        agent.bash(&format!("{name}-l{at}"), &format!("ls dir{at}"), || {});
    }
    if careful {
        agent.bash(&format!("{name}-p"), "git stash", || {});
    }
    let text = if careful { "fixed\n" } else { "hacked\n" };
    let command = format!("echo {} > app.txt", text.trim());
    agent.bash(&format!("{name}-w"), &command, || world.write("app.txt", text));
    if !careful {
        world.write("left-over.txt", "x\n");
    }
    let input = json!({ "command": "make test" });
    agent.pre(&format!("{name}-t"), "Bash", input.clone());
    let result = json!({ "tool_name": "Bash", "tool_input": input, "tool_use_id": format!("{name}-t") });
    let mut result = result.as_object().unwrap().clone();
    match careful {
        true => result.insert("tool_response".into(), json!({ "stdout": "ok" })),
        false => result.insert("error".into(), json!("2 tests failed")),
    };
    agent.event(if careful { "PostToolUse" } else { "PostToolUseFailure" }, json!(result));
    let last = if careful { "All tests pass." } else { "I could not fix it." };
    agent.event("Stop", json!({ "stop_hook_active": false, "last_assistant_message": last }));
}

#[test]
fn compare_two_sessions() {
    let mut t = Transcript::new();
    t.world.write("app.txt", "broken\n");
    session(&t.world, "first-try", false);
    t.run("rewind #1 --everything --yes");
    session(&t.world, "second-try", true);
    t.run("compare first-try second-try")
        .run("compare second first-try --all")
        .run("compare first-try first-try")
        .run("compare #1 @")
        .run("compare first-try nothing")
        .run("compare session:nobody @");
    assert_transcript!(t.text());
}

#[test]
fn a_comparison_as_a_document() {
    let world = Sandbox::new();
    world.write("app.txt", "broken\n");
    session(&world, "first-try", false);
    session(&world, "second-try", true);
    let document = world.json(["compare", "first-try", "second-try"]);
    assert_eq!(document["a"]["failed"], 1);
    assert_eq!(document["b"]["tool_calls"], 8);
    assert_eq!(document["b"]["tools"]["Bash"], 8);
    assert_eq!(document["b"]["last_words"], "All tests pass.");
    let first = &document["first_difference"];
    assert_eq!(first["differs"], json!(["only-b"]), "{first}");
    let rows = items(&document);
    assert_eq!(rows[first["row"].as_u64().unwrap() as usize]["b"]["summary"], "Bash: git stash");
    assert!(rows[0]["differs"].as_array().unwrap().is_empty());
    let changed = rows.iter().find(|row| row["differs"] == json!(["input"])).unwrap();
    assert_eq!(changed["a"]["summary"], "Bash: echo hacked > app.txt");
    let paths: Vec<&str> =
        document["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["app.txt"], "what was left over is still there");
    assert!(!document["summary"].as_array().unwrap().is_empty());
}

/// A rerun has a workspace of its own; its directory makes no difference.
#[test]
fn a_session_of_another_workspace_is_found_by_its_id() {
    let world = Sandbox::new();
    world.write("app.txt", "same\n");
    let other = world.root().join("elsewhere");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("app.txt"), "same\n").unwrap();
    for (name, cwd) in [("here-1", &world.work), ("there-1", &other)] {
        let mut agent = Talk::new(&world, name);
        agent.cwd.clone_from(cwd);
        agent.begin();
        agent.prompt("write it");
        agent.write(&format!("{name}-w"), "new.txt", "new\n");
        agent.stop();
    }
    let document = world.json(["compare", "here-1", "there-1"]);
    assert_eq!(document["first_difference"], json!(null), "{document:#}");
    assert_eq!(document["files"], json!([]));
    assert_eq!(document["counts"]["same"], 5);
}

/// By chance, some ids have digits only.
#[test]
fn eight_digits_are_a_session_if_there_is_one_and_otherwise_a_step() {
    let world = Sandbox::new();
    session(&world, "12345678", true);
    let document = world.json(["compare", "12345678", "#1"]);
    assert_eq!(document["a"]["session"], world.json(["sessions"])["items"][0]["id"], "{document}");
    let refused = world.run(["compare", "87654321", "#1"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.err.contains("there is no step 87654321"), "{refused:?}");
}

#[test]
fn branches_are_compared_step_by_step() {
    let world = Sandbox::new();
    world.write("app.txt", "one\n");
    world.ok(["checkpoint", "create", "base"]);
    world.ok(["branch", "create", "try"]);
    world.write("app.txt", "main\n");
    world.ok(["checkpoint", "create", "on main"]);
    world.ok(["branch", "switch", "try", "--yes"]);
    world.write("more.txt", "try\n");
    world.ok(["checkpoint", "create", "on try"]);
    let document = world.json(["compare", "main", "branch:try"]);
    let short = world.json(["branch", "compare", "main", "try"]);
    assert_eq!(document["files"], short["items"], "one mechanism");
    assert_eq!(items(&short).len(), 2);
    let rows = items(&document);
    assert!(rows[0]["differs"].as_array().unwrap().is_empty(), "they begin alike: {rows:?}");
    assert_ne!(document["first_difference"], json!(null));
    assert_eq!((&document["a"]["name"], &document["b"]["name"]), (&json!("main"), &json!("try")));
}
