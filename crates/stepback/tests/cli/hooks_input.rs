//! Hooks that are given nonsense, too much, or a world that does not hold still: the agent goes on, soon, and a gap is seen.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::sandbox::{Ran, Sandbox};
use crate::talk::{Talk, files_below, items, of_kind, workspace_dir};

/// Longer than any hook may keep an agent waiting, on a slow machine that does other things too.
const SOON: Duration = Duration::from_secs(14);

fn started(session: &str) -> Sandbox {
    let world = Sandbox::new();
    world.write("file", "base\n");
    Talk::new(&world, session).begin();
    world
}

/// What strictness answers where the call is about to run.
#[track_caller]
fn expect_denied(ran: &Ran) {
    let answer: Value = ran.json();
    assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "deny", "{answer}");
}

#[test]
fn what_is_no_event_leaves_a_gap() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    let whole =
        agent.payload("PreToolUse", json!({ "tool_name": "Bash", "tool_use_id": "x", "tool_input": {} }));
    let cut = &whole.to_string()[..whole.to_string().len() - 3];
    let nameless =
        json!({ "hook_event_name": "PreToolUse", "cwd": world.work, "tool_name": "Bash" }).to_string();
    let deep = "[".repeat(100_000);
    let inputs: [(&str, &[u8]); 9] = [
        ("nothing", b""),
        ("words", b"hello"),
        ("cut off", cut.as_bytes()),
        ("a list", b"[1, 2]"),
        ("a number", b"17"),
        ("not UTF-8", b"{\"session_id\": \"\xff\xfe\", \"hook_event_name\": \"Stop\"}"),
        ("no session", nameless.as_bytes()),
        ("very deep", deep.as_bytes()),
        ("a zero byte", b"\0"),
    ];
    for (at, (what, bytes)) in inputs.iter().enumerate() {
        let (ran, took) = agent.give(bytes);
        assert!(ran.out.is_empty(), "{what}: {}", ran.out);
        assert!(!ran.err.is_empty(), "{what}: nothing is said");
        assert!(took < SOON, "{what}: {took:?}");
        assert_eq!(of_kind(&world, "gap").len(), at + 1, "{what}");
    }
    // The gaps are no session of the agent: what is for the agent still reaches it.
    world.ok(["inject", "hello there"]);
    let told = agent.pre("b1", "Bash", json!({ "command": "ls" }));
    assert!(told.out.contains("hello there"), "{}", told.out);
    assert_eq!(items(&world.json(["sessions"])).len(), 1);
}

#[test]
fn strictness_refuses_what_it_cannot_read() {
    let world = started("s1");
    let mut agent = Talk::new(&world, "s1");
    agent.options = vec!["--strict"];
    let whole =
        agent.payload("PreToolUse", json!({ "tool_name": "Bash", "tool_use_id": "x", "tool_input": {} }));
    let whole = whole.to_string();
    expect_denied(&agent.give(&whole.as_bytes()[..whole.len() - 3]).0);
    let nameless = json!({ "hook_event_name": "PreToolUse", "cwd": world.work, "tool_name": "Bash" });
    expect_denied(&agent.give(nameless.to_string().as_bytes()).0);
    // What has happened cannot be refused.
    let after = nameless.to_string().replace("PreToolUse", "PostToolUse");
    assert!(agent.give(after.as_bytes()).0.out.is_empty());
}

#[test]
fn words_on_the_command_line_that_nobody_knows_do_not_block() {
    let world = started("s1");
    // To some agents, an exit code of 2 is a refusal.
    let commands: [&[&str]; 5] = [
        &["hook", "claude", "--new-option"],
        &["hook", "some-agent"],
        &["hook", "claude", "more"],
        &["hook", "claude", "--json"],
        &["hook"],
    ];
    for arguments in commands {
        let ran = world.run(arguments);
        assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.err);
        assert!(!ran.err.is_empty(), "{arguments:?}");
    }
    assert!(world.ok(["hook", "--help"]).out.contains("stepback hook claude"));
}

#[test]
fn what_is_not_known_is_recorded_as_it_came() {
    let world = started("s1");
    for agent in ["claude", "codex", "gemini", "opencode"] {
        let mut agent = Talk::new(&world, agent);
        agent.agent = ["claude", "codex", "gemini", "opencode"]
            .into_iter()
            .find(|name| *name == agent.session)
            .unwrap();
        agent.event("SomethingNew", json!({ "odd": [1, { "deep": null }] }));
        agent.pre("x1", "mcp__unknown__tool", json!({ "anything": true }));
        world.write(agent.agent, "made\n");
        agent.post("x1", "mcp__unknown__tool", json!({ "anything": true }));
        let steps = agent.steps();
        assert_eq!(steps.first().unwrap()["summary"], "SomethingNew", "{steps:?}");
    }
    // Gemini's and opencode's own words.
    let mut agent = Talk::new(&world, "gem");
    agent.agent = "gemini";
    let call = json!({ "tool_name": "write_file", "tool_input": { "file_path": world.path("g") }, "timestamp": "2026-01-01T00:00:00Z" });
    agent.event("BeforeTool", call.clone());
    agent.event("BeforeTool", call);
    assert_eq!(agent.steps().len(), 1, "the same event twice");
}

#[test]
fn a_huge_payload_is_cut_visibly_and_soon() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    let content = "All work and no play makes a long file. ".repeat((50 << 20) / 40);
    let calls = [("Write", "w1", "content"), ("Read", "r1", "odd")];
    for (tool, call, field) in calls {
        let input = json!({ "file_path": world.path("big"), field: content });
        let payload = agent
            .payload("PreToolUse", json!({ "tool_name": tool, "tool_use_id": call, "tool_input": input }));
        let (_, took) = agent.give(payload.to_string().as_bytes());
        println!("a payload of 50 MB for {tool} takes {took:?} (debug build)");
        assert!(took < Duration::from_secs(300), "{tool}: {took:?}");
    }
    let steps = agent.steps();
    assert_eq!(steps.iter().filter(|step| step["kind"] == "tool-start").count(), 2, "{steps:?}");
    let size: u64 = files_below(&world.store).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(size < 4 << 20, "the store has {size} bytes");
    let shown = world.json(["inspect", "state"]);
    assert!(shown["session"]["id"].is_string());
}

#[test]
fn a_payload_beyond_all_measure_leaves_a_gap() {
    let world = started("s1");
    let mut agent = Talk::new(&world, "s1");
    let payload = agent
        .payload("PreToolUse", json!({ "tool_name": "Write", "tool_use_id": "w", "tool_input": { "content": "x".repeat(65 << 20) } }))
        .to_string();
    let (ran, took) = agent.give(payload.as_bytes());
    assert!(ran.out.is_empty() && took < Duration::from_secs(200), "{took:?}");
    let gaps = of_kind(&world, "gap");
    assert!(gaps[0]["summary"].as_str().unwrap().contains("64 MiB"), "{gaps:?}");
    agent.options = vec!["--strict"];
    expect_denied(&agent.give(payload.as_bytes()).0);
}

#[test]
fn directories_that_cannot_be_workspaces() {
    let world = Sandbox::new();
    for cwd in [Path::new("/"), &world.home] {
        let mut agent = Talk::new(&world, "s1");
        agent.cwd = cwd.to_path_buf();
        let ran = agent.pre("b1", "Bash", json!({ "command": "ls" }));
        assert!(ran.err.contains("too broad"), "{}", ran.err);
        assert!(ran.out.is_empty());
        agent.options = vec!["--strict"];
        expect_denied(&agent.pre("b1", "Bash", json!({ "command": "ls" })));
    }
    let mut agent = Talk::new(&world, "s1");
    agent.cwd = world.path("not/there");
    agent.pre("b1", "Bash", json!({ "command": "ls" }));
    assert!(!world.path("not").exists());
    world.write("file", "x\n");
    agent.cwd = world.work.clone();
    agent.begin();
    assert!(!agent.steps().is_empty());
}

#[test]
fn a_directory_that_was_removed_still_belongs_to_its_workspace() {
    let world = started("s1");
    let mut agent = Talk::new(&world, "s1");
    agent.cwd = world.path("gone/deeper");
    agent.bash("b1", "rm -r .", || ());
    let steps = agent.steps();
    assert!(steps.iter().any(|step| step["call"] == "b1"), "{steps:?}");
}

#[test]
fn a_transcript_that_is_anything_else() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    let path = agent.transcript();
    let line =
        |text: &str| json!({ "type": "user", "uuid": text, "message": { "role": "user", "content": text } });
    let said = || items(&world.json(["inspect", "conversation"])).len();
    agent.say(&[line("one"), line("two")]);
    agent.bash("b1", "a", || world.write("a", "a\n"));
    assert_eq!(said(), 2);
    fs::remove_file(&path).unwrap();
    agent.bash("b2", "b", || world.write("b", "b\n"));
    assert_eq!(said(), 2, "what was said is still known");
    agent.say(&[line("another")]);
    agent.bash("b3", "c", || world.write("c", "c\n"));
    assert_eq!(said(), 1, "another file");
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let (_, took) = agent.give(agent.payload("Stop", json!({})).to_string().as_bytes());
    assert!(took < SOON, "{took:?}");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    agent.bash("b4", "d", || world.write("d", "d\n"));
    fs::remove_dir(&path).unwrap();
    fs::write(&path, b"\xff\xfe not json\n{\"half\":").unwrap();
    agent.bash("b5", "e", || world.write("e", "e\n"));
    for name in ["a", "b", "c", "d", "e"] {
        assert_eq!(crate::talk::authors_of(&world, name), ["s1"], "{name}");
    }
    assert!(of_kind(&world, "gap").is_empty());
    world.expect_sound("at the end");
}

#[test]
fn the_same_event_from_two_hooks_at_once_is_one_step() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    let twice = |name: &str, rest: Value| {
        let payload = agent.payload(name, rest).to_string();
        let children = [agent.start(payload.as_bytes()), agent.start(payload.as_bytes())];
        for child in children {
            let ran: Ran = child.wait_with_output().unwrap().into();
            ran.exits(0);
        }
    };
    for round in 0..4 {
        let input = json!({ "tool_name": "Bash", "tool_use_id": format!("b{round}"), "tool_input": { "command": "x" } });
        twice("UserPromptSubmit", json!({ "prompt": "go", "prompt_id": format!("p{round}") }));
        twice("PreToolUse", input.clone());
        world.write("file", format!("{round}\n"));
        twice("PostToolUse", input);
        let look = json!({ "tool_name": "Read", "tool_use_id": format!("r{round}"), "tool_input": {} });
        twice("PreToolUse", look);
        twice("Stop", json!({ "prompt_id": format!("p{round}"), "last_assistant_message": "Done." }));
    }
    let steps = agent.steps();
    for (kind, count) in [("user-input", 4), ("tool-start", 8), ("tool-end", 4)] {
        assert_eq!(steps.iter().filter(|step| step["kind"] == kind).count(), count, "{kind}");
    }
    let done = steps.iter().filter(|step| step["summary"].as_str().unwrap().starts_with("done")).count();
    assert_eq!(done, 4, "the end of a turn");
    assert!(of_kind(&world, "gap").is_empty());
    assert_eq!(crate::talk::authors_of(&world, "file"), ["s1"]);
}

#[test]
fn one_session_in_two_workspaces() {
    let world = started("s1");
    let other = world.root().join("other");
    fs::create_dir(&other).unwrap();
    let here = Talk::new(&world, "s1");
    let mut there = Talk::new(&world, "s1");
    there.cwd = other.clone();
    here.write("w1", "a", "here\n");
    there.write("w1", "a", "there\n");
    assert_eq!(crate::talk::authors_of(&world, "a"), ["s1"]);
    world.ok(["rewind", "tool:Write:last", "--yes"]);
    assert!(!world.path("a").exists());
    assert_eq!(fs::read_to_string(other.join("a")).unwrap(), "there\n");
    let ran: Ran = world.command(["sessions", "--json"]).current_dir(&other).output().unwrap().into();
    assert_eq!(items(&ran.exits(0).json()).len(), 1);
}

#[test]
fn a_clock_that_goes_backwards() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    let at = |clock: &str, name: &str, call: &str| {
        let payload =
            agent.payload(name, json!({ "tool_name": "Bash", "tool_use_id": call, "tool_input": {} }));
        let mut child = world
            .command(["hook", "claude"])
            .env("STEPBACK_TEST_CLOCK", clock)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), payload.to_string().as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    };
    at("2027-05-01T00:00:00Z/1", "PreToolUse", "b1");
    world.write("file", "changed\n");
    at("2026-01-01T00:00:00Z/2", "PostToolUse", "b1");
    at("2025-01-01T00:00:00Z/3", "PreToolUse", "b2");
    world.write("file", "changed again\n");
    at("2024-01-01T00:00:00Z/4", "PostToolUse", "b2");
    assert_eq!(agent.steps().len(), 6, "these, and a checkpoint because months seem to have passed");
    assert_eq!(crate::talk::authors_of(&world, "file"), ["s1"]);
    world.ok(["rewind", "tool:Bash:first", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("file")).unwrap(), "base\n");
}

#[test]
fn a_locked_store_does_not_keep_the_agent_waiting() {
    let world = started("s1");
    let mut agent = Talk::new(&world, "s1");
    let holder = Connection::open(world.store.join("log.sqlite")).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let payload = |name: &str| {
        let rest = json!({ "tool_name": "Bash", "tool_use_id": "b1", "tool_input": { "command": "echo" } });
        agent.payload(name, rest).to_string()
    };
    let (before, after) = (payload("PreToolUse"), payload("PostToolUse"));
    let (ran, took) = agent.give(before.as_bytes());
    assert!(took < SOON, "{took:?}");
    assert!(ran.out.is_empty() && !ran.err.is_empty(), "{ran:?}");
    world.write("file", "changed\n");
    let (_, took) = agent.give(after.as_bytes());
    assert!(took < SOON, "{took:?}");
    agent.options = vec!["--strict"];
    expect_denied(&agent.give(before.as_bytes()).0);
    holder.execute_batch("ROLLBACK").unwrap();
    assert_eq!(of_kind(&world, "gap").len(), 3);
    // What the agent did is on record all the same.
    let steps = agent.steps();
    for kind in ["tool-start", "tool-end"] {
        assert!(steps.iter().any(|step| step["kind"] == kind && step["call"] == "b1"), "{kind}: {steps:?}");
    }
}

#[test]
fn a_workspace_that_somebody_holds_does_not_keep_the_agent_waiting() {
    let world = started("s1");
    let mut agent = Talk::new(&world, "s1");
    for name in ["record.lock", "lock"] {
        let path = workspace_dir(&world).join(name);
        let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
        file.lock().unwrap();
        agent.options = Vec::new();
        let payload = agent
            .payload("PreToolUse", json!({ "tool_name": "Bash", "tool_use_id": name, "tool_input": {} }));
        let (_, took) = agent.give(payload.to_string().as_bytes());
        assert!(took < SOON, "{name}: {took:?}");
        agent.options = vec!["--strict"];
        expect_denied(&agent.give(payload.to_string().as_bytes()).0);
    }
    assert_eq!(of_kind(&world, "gap").len(), 4);
}

#[test]
fn a_store_of_another_time_or_without_room() {
    let world = started("s1");
    let mut agent = Talk::new(&world, "s1");
    let call =
        |name: &str| json!({ "tool_name": "Bash", "tool_use_id": name, "tool_input": { "command": "x" } });
    let database = Connection::open(world.store.join("log.sqlite")).unwrap();
    let version: i64 = database.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    database.pragma_update(None, "user_version", 99).unwrap();
    let ran = agent.event("PreToolUse", call("newer"));
    assert!(ran.err.contains("format 99"), "{}", ran.err);
    agent.options = vec!["--strict"];
    expect_denied(&agent.event("PreToolUse", call("newer")));
    database.pragma_update(None, "user_version", version).unwrap();
    drop(database);
    assert_eq!(of_kind(&world, "gap").len(), 2);
    // Every write and sync of a hook that fails, one after the other.
    let mut failed = 0;
    for nth in 1..60 {
        world.write("file", format!("{nth}\n"));
        let payload = agent.payload("PreToolUse", call(&format!("full{nth}"))).to_string();
        let mut command = world.command(["hook", "claude", "--strict"]);
        command.env("STEPBACK_FAULT", format!("enospc:{nth}"));
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), payload.as_bytes()).unwrap();
        let ran: Ran = child.wait_with_output().unwrap().into();
        let ran = ran.exits(0);
        if ran.out.is_empty() {
            break;
        }
        expect_denied(&ran);
        failed += 1;
    }
    assert!((1..59).contains(&failed), "{failed} failed");
    world.expect_sound("after a full disk");
    world.ok(["status"]);
}

#[test]
fn a_store_that_may_not_be_written() {
    let world = started("s1");
    let mut agent = Talk::new(&world, "s1");
    // Even root cannot write below a file.
    let aside = world.root().join("aside");
    fs::rename(&world.store, &aside).unwrap();
    fs::write(&world.store, "a file in the way").unwrap();
    let ran = agent.pre("b1", "Bash", json!({ "command": "x" }));
    assert!(!ran.err.is_empty());
    agent.options = vec!["--strict"];
    expect_denied(&agent.pre("b1", "Bash", json!({ "command": "x" })));
    expect_denied(&agent.pre("r1", "Read", json!({})));
}

#[test]
fn everything_in_the_store_is_for_its_owner_alone() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    agent.prompt("hello");
    agent.bash("b1", "x", || world.write("a", "a\n"));
    agent.pre("r1", "Read", json!({ "file_path": "a" }));
    world.ok(["settings", "notes", "0"]);
    world.ok(["breakpoint", "add", "tool", "Nothing"]);
    world.ok(["pause"]);
    world.ok(["inject", "psst"]);
    for path in files_below(&world.store) {
        for path in path.ancestors().take_while(|path| path.starts_with(&world.store)) {
            let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode & 0o077, 0, "{} has {mode:o}", path.display());
        }
    }
    // Somebody opened it by mistake; the next hook need not, but the next command closes it again.
    fs::set_permissions(&world.store, Permissions::from_mode(0o755)).unwrap();
    world.ok(["checkpoint", "create"]);
    assert_eq!(fs::metadata(&world.store).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_hook_reads_all_of_a_slow_agents_payload() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    let payload = agent.payload("UserPromptSubmit", json!({ "prompt": "slow" })).to_string();
    let mut child = world.command(["hook", "claude"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for part in payload.as_bytes().chunks(40) {
        std::io::Write::write_all(&mut input, part).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(input);
    assert!(child.wait().unwrap().success());
    let mut text = String::new();
    fs::File::open(workspace_dir(&world).join("inbox.jsonl")).unwrap().read_to_string(&mut text).unwrap();
    assert!(text.contains("\"slow\""), "{text}");
}
