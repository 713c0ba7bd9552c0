//! Workspaces as a whole: listed, created inside others, moved, forgotten and brought back.

use std::fs;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;

fn listed(world: &Sandbox, forgotten: bool) -> Vec<Value> {
    let all: &[&str] = if forgotten { &["workspace", "list", "--forgotten"] } else { &["workspace", "list"] };
    world.json(all)["items"].as_array().unwrap().clone()
}

fn recorded() -> Sandbox {
    let world = Sandbox::new();
    world.write("file", "one\n");
    world.ok(["checkpoint", "create", "one"]);
    world.write("file", "two\n");
    world.ok(["checkpoint", "create", "two"]);
    world
}

/// Runs the hook of an agent that has just changed a file, as the agent calls it.
fn report(world: &Sandbox, session: &str) {
    let payload = json!({
        "session_id": session, "cwd": world.work, "hook_event_name": "PostToolUse", "tool_name": "Bash",
        "tool_input": { "command": "true" }, "tool_response": { "stdout": "" }, "tool_use_id": "t1",
    });
    let mut child = world.command(["hook", "claude"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    serde_json::to_writer(child.stdin.take().unwrap(), &payload).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_moved_directory_keeps_its_history_and_can_be_moved_back() {
    let mut world = recorded();
    let id = listed(&world, false)[0]["id"].as_str().unwrap().to_owned();
    let (old, new) = (world.work.clone(), world.root().join("renamed"));
    let refused = world.run(["workspace", "move", old.to_str().unwrap(), new.to_str().unwrap()]).exits(7);
    assert!(refused.err.contains("move the directory first"), "{}", refused.err);
    fs::rename(&old, &new).unwrap();
    world.work = new.clone();
    assert_eq!(listed(&world, false)[0]["exists"], false);
    let moved = world.ok(["workspace", "rename", old.to_str().unwrap(), "."]);
    assert!(moved.err.contains("workspace move") || moved.out.contains("workspace move"), "{}", moved.err);
    assert_eq!(listed(&world, false)[0]["id"], json!(id));
    world.ok(["rewind", "one", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("file")).unwrap(), "one\n");
    // A hook finds it too, without the database's help.
    report(&world, "s1");
    assert_eq!(listed(&world, false).len(), 1);
    // Another directory that exists is only taken if that is meant.
    let other = world.root().join("other");
    fs::create_dir(&other).unwrap();
    let refused = world.run(["workspace", "move", &id, other.to_str().unwrap()]).exits(9);
    assert!(refused.err.contains("still exists") && refused.err.contains("--yes"), "{}", refused.err);
    for wrong in ["nowhere", "ffffffff", ""] {
        world.run(["workspace", "move", wrong, "."]).exits(4);
    }
    fs::rename(&new, &old).unwrap();
    world.work = old;
    world.ok(["workspace", "move", &id[..8], "."]);
    world.ok(["status"]);
    world.expect_sound("moved twice");
}

#[test]
fn a_project_inside_a_workspace_becomes_one_of_its_own() {
    let mut world = recorded();
    world.write("service/main.rs", "fn main() {}\n");
    let created = world.json(["workspace", "create", "service"]);
    assert_eq!(created["inside"], json!(world.work));
    let again = world.run(["workspace", "create", "service"]).exits(9);
    assert!(again.err.contains("already"), "{}", again.err);
    world.ok(["checkpoint", "create", "outer"]);
    let outer = world.work.clone();
    world.work = outer.join("service");
    world.ok(["checkpoint", "create", "inner"]);
    let roots: Vec<String> =
        listed(&world, false).iter().map(|item| item["root"].as_str().unwrap().to_owned()).collect();
    assert_eq!(roots, [world.work.display().to_string(), outer.display().to_string()]);
    let inner = world.json(["log"])["items"].as_array().unwrap().len();
    assert_eq!(inner, 1, "its own history");
    fs::write(world.work.join("main.rs"), "broken").unwrap();
    world.ok(["rewind", "inner", "--yes"]);
    assert_eq!(fs::read_to_string(world.work.join("main.rs")).unwrap(), "fn main() {}\n");
    // The one around it still covers these files.
    world.work = outer;
    assert_eq!(world.ok(["cat", "outer", "service/main.rs"]).out, "fn main() {}\n");
}

#[test]
fn a_forgotten_workspace_comes_back_until_the_next_prune() {
    let world = recorded();
    let id = listed(&world, false)[0]["id"].as_str().unwrap().to_owned();
    let work = world.work.to_str().unwrap().to_owned();
    let refused = world.run(["workspace", "forget", &work]).exits(9);
    assert!(refused.err.contains("--yes") && refused.err.contains("final"), "{}", refused.err);
    assert_eq!(listed(&world, false).len(), 1, "nothing happens without a yes");
    let forgot = world.ok(["workspace", "forget", &work, "--yes"]);
    let said = forgot.out + &forgot.err;
    assert!(said.contains("workspace restore") && said.contains("hooks"), "{said}");
    assert!(listed(&world, false).is_empty());
    assert_eq!(listed(&world, true)[0]["id"], json!(id));
    assert_eq!(world.json(["stats"])["items"], json!([]));
    world.run(["log"]).exits(4);
    world.ok(["workspace", "restore", &id]);
    assert_eq!(world.ok(["cat", "one", "file"]).out, "one\n");
    // Forgotten again; a hook that is still installed begins a new workspace, which stays when the old one is freed.
    world.ok(["workspace", "forget", &id, "--yes"]);
    report(&world, "s2");
    let fresh = listed(&world, false);
    assert!(fresh.len() == 1 && fresh[0]["id"] != json!(id), "{fresh:?}");
    let taken = world.run(["workspace", "restore", &id]).exits(9);
    assert!(taken.err.contains("another workspace"), "{}", taken.err);
    world.ok(["prune"]);
    let freed = world.run(["workspace", "restore", &id]).exits(4);
    assert!(freed.err.contains("freed"), "{}", freed.err);
    assert_eq!(listed(&world, true)[0]["freed"], true);
    assert_eq!(fs::read_to_string(world.path("file")).unwrap(), "two\n", "no file was changed");
    world.expect_sound("after freeing a workspace");
    world.ok(["search", "two"]);
}

#[test]
fn a_prune_names_forgotten_workspaces_and_a_restore_asks_which_of_several_is_meant() {
    let world = recorded();
    let work = world.work.to_str().unwrap().to_owned();
    world.ok(["workspace", "forget", &work, "--yes"]);
    world.ok(["checkpoint", "create", "again"]);
    world.ok(["workspace", "forget", &work, "--yes"]);
    let ids: Vec<String> =
        listed(&world, true).iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect();
    let refused = world.run(["workspace", "restore", "."]).exits(2);
    assert!(ids.iter().all(|id| refused.err.contains(&id[..8])), "{}", refused.err);
    world.ok(["workspace", "restore", &ids[1]]);
    let planned = world.ok(["prune", "--dry-run"]);
    assert!(planned.out.contains(&format!("workspace restore {}", &ids[0][..8])), "{}", planned.out);
    let pruned = world.json(["prune"]);
    assert_eq!(pruned["forgotten"], json!([{ "id": ids[0], "root": work }]));
    world.ok(["workspace", "forget", &work, "--yes"]);
    // Only one of the two can come back.
    world.ok(["workspace", "restore", "."]);
}

#[test]
fn the_directory_of_a_branch_is_not_inside_a_workspace() {
    let world = recorded();
    let inside = world.path("sub/deeper");
    for dir in ["sub/deeper", "./x/../sub/deeper", inside.to_str().unwrap()] {
        let refused = world.run(["branch", "create", "aside", "--worktree", dir]).exits(2);
        assert!(refused.err.contains("inside") && refused.err.contains("../"), "{dir}: {}", refused.err);
    }
    assert!(!world.path("sub").exists() && !world.ok(["branch", "list"]).out.contains("aside"));
    world.ok(["branch", "create", "aside", "--worktree", "../aside"]);
}
