//! What brings a session back after a crash, as steps that are listed and applied.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::sandbox::{Ran, Sandbox};
use crate::talk::{Talk, items};

/// A session whose last command failed, and files that were damaged since.
fn crashed() -> Sandbox {
    let world = Sandbox::new();
    world.write("file", "base\n");
    world.init_git();
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("fix the tests");
    agent.write("w1", "file", "fixed\n");
    let input = json!({ "command": "echo again >> log.txt; exit 3" });
    agent.pre("b1", "Bash", input.clone());
    agent.event(
        "PostToolUseFailure",
        json!({ "tool_name": "Bash", "tool_use_id": "b1", "tool_input": input, "error": "Exit code 3" }),
    );
    agent.bash("b2", "true", || ());
    world.write("file", "damaged\n");
    fs::write(world.path("extra"), "left by the crash\n").unwrap();
    world
}

fn steps(world: &Sandbox) -> Vec<Value> {
    world.json(["board", "recover"])["steps"].as_array().unwrap().clone()
}

#[test]
fn recovery_steps_are_listed_and_applied() {
    let world = crashed();
    let listed = steps(&world);
    let kinds: Vec<_> = listed.iter().map(|step| step["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["restore-code", "restore-environment", "replay-command", "manual-instruction"]);
    assert_eq!(listed[0]["patches"], json!(["extra", "file"]));
    assert_eq!(listed[0]["branch"], "main");
    assert_eq!(listed[0]["commit"].as_str().unwrap(), world.git(&["rev-parse", "HEAD"]).trim());
    assert_eq!(listed[2]["command"], "echo again >> log.txt; exit 3", "the last one that failed");
    let page = world.ok(["board", "recover"]).out;
    assert!(
        page.contains("fix the tests") && !page.contains("restore code"),
        "the page stays as it is: {page}"
    );
    let text = world.ok(["board", "recover", "--steps"]).out;
    assert!(text.contains("1  restore code") && text.contains("3  replay command"), "{text}");

    let before = world.files();
    world.ok(["board", "recover", "--apply", "1", "3", "--dry-run"]);
    world.expect_files(&before, "after a dry run");
    world.run(["board", "recover", "--apply", "1"]).exits(9);
    world.run(["board", "recover", "--apply", "3"]).exits(9);
    world.run(["board", "recover", "--apply", "5"]).exits(2);
    world.run(["board", "recover", "--apply", "0", "--yes"]).exits(2);
    world.run(["board", "recover", "--apply", "1", "5", "--yes"]).exits(2);
    world.expect_files(&before, "nothing was confirmed");
    let ran = world.run(["board", "recover", "--apply", "1", "3", "--yes"]).exits(5);
    assert!(ran.err.contains("command failed"), "{ran:?}");
    assert_eq!(fs::read_to_string(world.path("file")).unwrap(), "fixed\n");
    assert!(!world.path("extra").exists());
    assert_eq!(fs::read_to_string(world.path("log.txt")).unwrap(), "again\n", "the command ran");
    fs::remove_file(world.path("log.txt")).unwrap();
    world.ok(["undo", "--yes"]);
    world.expect_files(&before, "after the undo");
    let done = world.run(["board", "recover", "--apply", "3", "--yes", "--json"]).exits(5).json();
    assert_eq!(done["exit"], 3);
    world.run(["board", "recover", "--apply", "1", "3", "--yes", "--json"]).exits(2);
}

#[test]
fn a_past_point_is_recovered() {
    let world = crashed();
    let plan = world.json(["board", "recover", "--at", "tool:Write:first"]);
    assert_eq!(plan["steps"][0]["kind"], "restore-code");
    world.ok(["board", "recover", "--at", "tool:Write:first", "--apply", "1", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("file")).unwrap(), "base\n");
    let empty = Sandbox::new();
    let page = empty.json(["board", "recover"]);
    assert_eq!(items(&json!({ "items": page["steps"] })).len(), 0, "nothing is recorded: {page}");
}

#[test]
fn the_variables_that_are_missing_are_named_and_no_value_is() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let start = json!({ "session_id": "s1", "cwd": world.work, "hook_event_name": "SessionStart", "source": "startup" });
    let mut hook = world.command(["hook", "claude"]);
    hook.env("BUILD_PROFILE", "secret-value-1").env("REGION", "secret-value-2").stdin(Stdio::piped());
    let mut hook = hook.spawn().unwrap();
    serde_json::to_writer(hook.stdin.take().unwrap(), &start).unwrap();
    assert!(hook.wait().unwrap().success());
    let listed = steps(&world);
    let at = listed.iter().position(|step| step["kind"] == "restore-environment").unwrap();
    let names: Vec<_> =
        listed[at]["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(names.contains(&"BUILD_PROFILE") && names.contains(&"REGION"), "{names:?}");
    let number = (at + 1).to_string();
    let files = world.files();
    let apply = |with: Option<&str>, more: &[&str]| -> Ran {
        let mut command = world.command([&["board", "recover", "--apply", number.as_str()], more].concat());
        command.envs(with.map(|name| (name, "x")));
        Ran::from(command.output().unwrap()).exits(0)
    };
    let ran = apply(Some("REGION"), &[]);
    assert!(
        ran.out.contains("Set these variables; stepback stores no values: ")
            && ran.out.contains("BUILD_PROFILE"),
        "{ran:?}"
    );
    let missing = apply(Some("REGION"), &["--json"]).json()["missing"].clone();
    let missing: Vec<_> = missing.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(missing.contains(&"BUILD_PROFILE") && !missing.contains(&"REGION"), "{missing:?}");
    assert!(!missing.contains(&"PATH"), "it is set: {missing:?}");
    for shown in [world.ok(["board", "recover", "--steps"]).out, ran.out, world.ok(["at", "@", "--json"]).out]
    {
        assert!(!shown.contains("secret-value"), "{shown}");
    }
    world.expect_files(&files, "no file is changed for it");
}
