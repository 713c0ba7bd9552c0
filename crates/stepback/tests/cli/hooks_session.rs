//! Whole sessions of agents: what is recorded, who is said to have changed what, and what a rewind takes back.

use std::fs;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::talk::{Talk, authors_of, items, of_kind, workspace_dir};

fn read(world: &Sandbox, name: &str) -> String {
    fs::read_to_string(world.path(name)).unwrap_or_default()
}

/// Paths that a document lists as left alone.
fn left_alone(document: &Value) -> Vec<String> {
    let left = document["left_alone"].as_array().unwrap();
    left.iter().map(|item| item["path"].as_str().unwrap().to_string()).collect()
}

/// Number of a session's first step of a kind.
fn number_of(steps: &[Value], kind: &str) -> String {
    let step = steps.iter().find(|step| step["kind"] == kind);
    format!("#{}", step.unwrap_or_else(|| panic!("no {kind} in {steps:?}"))["number"])
}

#[test]
fn a_session_from_its_first_prompt_to_a_rewind() {
    let world = Sandbox::new();
    world.write("app.txt", "one\ntwo\nthree\n");
    world.write("notes.txt", "mine\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("change the app");
    // Reading goes to the inbox and leaves the database alone.
    let database = world.store.join("log.sqlite");
    let touched = || {
        [&database, &world.store.join("log.sqlite-wal")]
            .map(|path| fs::metadata(path).and_then(|file| file.modified()).ok())
    };
    let before = touched();
    agent.pre("r1", "Read", json!({ "file_path": world.path("app.txt") }));
    agent.post("r1", "Read", json!({ "file_path": world.path("app.txt") }));
    assert_eq!(touched(), before, "reading a file must not open the database");
    let inbox = fs::read_to_string(workspace_dir(&world).join("inbox.jsonl")).unwrap();
    assert_eq!(inbox.lines().count(), 3, "{inbox}");
    agent.bash("b1", "sed -i s/two/TWO/ app.txt; touch made", || {
        world.write("app.txt", "one\nTWO\nthree\n");
        world.write("made", "by the agent\n");
    });
    // The person works at the same time.
    world.write("notes.txt", "mine\nand more\n");
    agent.write("w1", "new.txt", "new\n");
    let note = agent.stop();
    assert!(note.out.contains("stepback rewind"), "{}", note.out);

    for (path, author) in [("app.txt", "s1"), ("made", "s1"), ("new.txt", "s1")] {
        assert_eq!(authors_of(&world, path), [author], "{path}");
    }
    assert!(authors_of(&world, "notes.txt").is_empty(), "the person changed it");
    let steps = agent.steps();
    let kinds: Vec<&str> = steps.iter().map(|step| step["kind"].as_str().unwrap()).collect();
    let expected = [
        "agent-step",
        "user-input",
        "tool-start",
        "tool-end",
        "tool-start",
        "tool-end",
        "tool-start",
        "tool-end",
        "agent-step",
    ];
    assert_eq!(kinds, expected);
    assert!(steps.iter().all(|step| step["id"].is_string()));
    let sessions = items(&world.json(["sessions"]));
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0]["title"], "change the app");
    assert_eq!(sessions[0]["steps"], expected.len());

    let after = world.files();
    let prompt = number_of(&steps, "user-input");
    let rewound = world.json(["rewind", &prompt, "--yes"]);
    assert!(left_alone(&rewound).is_empty(), "{rewound}");
    assert_eq!(read(&world, "app.txt"), "one\ntwo\nthree\n");
    assert_eq!(read(&world, "notes.txt"), "mine\nand more\n", "what the person changed stays");
    assert!(!world.path("made").exists() && !world.path("new.txt").exists());
    let back = world.files();
    world.json(["undo", "--yes"]);
    world.expect_files(&after, "after the undo");
    world.json(["redo", "--yes"]);
    world.expect_files(&back, "after the redo");
    world.expect_no_leftovers("at the end");
    world.expect_sound("at the end");
}

#[test]
fn the_note_after_a_prompt_tells_a_command_that_works() {
    let world = Sandbox::new();
    world.write("file", "before\n");
    let agent = Talk::new(&world, "s1");
    // The very first thing that is heard is a prompt: nothing has looked at the files yet.
    agent.prompt("do it");
    agent.write("w1", "file", "after\n");
    let note = agent.stop().json()["systemMessage"].as_str().unwrap().to_string();
    // As a person would: typed into a shell, where an unquoted # begins a comment.
    let words = note.split_once("stepback ").unwrap().1.split(" undoes").next().unwrap();
    let typed = format!("{} {words} --yes", crate::sandbox::PROGRAM);
    let mut shell = world.command(["unused"]);
    let environment: Vec<_> =
        shell.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    shell = std::process::Command::new("sh");
    shell.args(["-c", &typed]).env_clear().envs(environment).current_dir(&world.work);
    let ran: crate::sandbox::Ran = shell.output().unwrap().into();
    ran.exits(0);
    assert_eq!(read(&world, "file"), "before\n");
}

#[test]
fn calls_at_once_share_a_checkpoint_and_belong_to_the_session() {
    let world = Sandbox::new();
    world.write("base", "base\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("two at once");
    let (a, b) = (json!({ "command": "a" }), json!({ "command": "b" }));
    agent.pre("c1", "Bash", a.clone());
    agent.pre("c2", "Bash", b.clone());
    world.write("a", "a\n");
    world.write("b", "b\n");
    agent.post("c1", "Bash", a);
    agent.post("c2", "Bash", b);
    let steps = agent.steps();
    let iterations: Vec<&Value> =
        steps.iter().filter(|step| step["tool"] == "Bash").map(|step| &step["iteration"]).collect();
    assert_eq!(iterations, [1, 1, 1, 1]);
    let kept: Vec<&Value> = steps.iter().filter(|step| step["checkpoint"] == true).collect();
    assert_eq!(kept.len(), 2, "one at the start, one after both: {kept:?}");
    assert_eq!(authors_of(&world, "a"), ["s1"]);
    assert_eq!(authors_of(&world, "b"), ["s1"]);
    world.ok(["rewind", "tool:Bash:first", "--yes"]);
    assert!(!world.path("a").exists() && !world.path("b").exists());
    assert_eq!(read(&world, "base"), "base\n");
}

#[test]
fn a_sub_agent_works_for_its_session() {
    let world = Sandbox::new();
    world.write("base", "base\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("delegate");
    agent.pre("t1", "Agent", json!({ "prompt": "sub job" }));
    let sub = |name: &str| {
        let rest = json!({
            "agent_id": "a1", "agent_type": "general-purpose", "tool_name": "Bash", "tool_use_id": "sub1",
            "tool_input": { "command": "echo x > sub.txt" },
        });
        agent.event(name, rest);
    };
    sub("PreToolUse");
    world.write("sub.txt", "x\n");
    sub("PostToolUse");
    agent.post("t1", "Agent", json!({ "prompt": "sub job" }));
    agent.stop();
    assert_eq!(authors_of(&world, "sub.txt"), ["s1"]);
    let steps = agent.steps();
    let workers: Vec<&Value> =
        steps.iter().filter(|step| step["call"] == "sub1").map(|step| &step["worker"]).collect();
    assert_eq!(workers, ["a1", "a1"]);
    world.ok(["rewind", "tool:Agent:last", "--yes"]);
    assert!(!world.path("sub.txt").exists());
}

#[test]
fn two_sessions_at_once_are_told_apart_where_they_can_be() {
    let world = Sandbox::new();
    world.write("shared", "base\n");
    let (one, two) = (Talk::new(&world, "one"), Talk::new(&world, "two"));
    one.begin();
    two.begin();
    one.prompt("first");
    two.prompt("second");
    let shell = json!({ "command": "make" });
    let edit = json!({ "file_path": world.path("two.txt"), "content": "two\n" });
    one.pre("o1", "Bash", shell.clone());
    two.pre("t1", "Write", edit.clone());
    world.write("two.txt", "two\n");
    world.write("made", "by the only shell that runs\n");
    two.post("t1", "Write", edit);
    two.pre("t2", "Bash", shell.clone());
    world.write("built", "by one shell, or the other?\n");
    two.post("t2", "Bash", shell.clone());
    one.post("o1", "Bash", shell);
    // Alone again.
    one.write("o2", "one.txt", "one\n");
    assert_eq!(authors_of(&world, "two.txt"), ["two"], "an edit tool names its path");
    assert_eq!(authors_of(&world, "made"), ["one"], "an edit tool writes nothing else");
    let mut several = authors_of(&world, "built");
    several.sort();
    assert_eq!(several, ["one", "two"]);
    assert_eq!(authors_of(&world, "one.txt"), ["one"]);
    let point = number_of(&one.steps(), "user-input");
    let ran = world.run(["rewind", &point, "--yes", "--json"]).exits(5);
    assert_eq!(left_alone(&ran.json()), ["built"]);
    assert!(!world.path("one.txt").exists());
    assert_eq!(read(&world, "two.txt"), "two\n", "the other session's file stays");
    assert!(world.path("built").exists());
}

#[test]
fn a_file_that_two_sessions_named_at_once_is_nobodys() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let (one, two) = (Talk::new(&world, "one"), Talk::new(&world, "two"));
    one.begin();
    two.begin();
    let edit = json!({ "file_path": world.path("file"), "content": "?" });
    one.pre("o1", "Write", edit.clone());
    two.pre("t1", "Write", edit.clone());
    world.write("file", "by one of them\n");
    one.post("o1", "Write", edit.clone());
    two.post("t1", "Write", edit);
    let mut several = authors_of(&world, "file");
    several.sort();
    assert_eq!(several, ["one", "two"]);
}

#[test]
fn paths_are_understood_from_where_the_agent_runs() {
    let world = Sandbox::new();
    world.write("sub/deep/file", "base\n");
    world.ok(["checkpoint", "create", "start"]);
    let mut one = Talk::new(&world, "one");
    one.agent = "codex";
    one.cwd = world.path("sub/deep");
    let two = Talk::new(&world, "two");
    let patch = json!({ "command": "*** Begin Patch\n*** Update File: file\n+x\n*** End Patch" });
    let shell = json!({ "command": "make" });
    two.pre("t1", "Bash", shell.clone());
    one.pre("o1", "apply_patch", patch.clone());
    world.write("sub/deep/file", "patched\n");
    one.post("o1", "apply_patch", patch);
    two.post("t1", "Bash", shell);
    assert_eq!(authors_of(&world, "sub/deep/file"), ["one"]);
}

#[test]
fn paths_through_a_link_to_the_workspace_are_the_workspaces() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let link = world.root().join("link");
    std::os::unix::fs::symlink(&world.work, &link).unwrap();
    let (mut one, two) = (Talk::new(&world, "one"), Talk::new(&world, "two"));
    one.cwd = link;
    one.begin();
    two.pre("t1", "Bash", json!({ "command": "make" }));
    one.write("o1", "file", "written\n");
    two.post("t1", "Bash", json!({ "command": "make" }));
    assert_eq!(authors_of(&world, "file"), ["one"]);
}

#[test]
fn points_in_the_words_of_a_session() {
    let world = Sandbox::new();
    world.write("file", "0\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("count");
    for turn in 1..=3 {
        agent.write(&format!("w{turn}"), "file", &format!("{turn}\n"));
    }
    agent.pre("bad", "Bash", json!({ "command": "false" }));
    world.write("file", "broken\n");
    agent.event(
        "PostToolUseFailure",
        json!({ "tool_name": "Bash", "tool_use_id": "bad", "tool_input": { "command": "false" }, "error": "exit 1" }),
    );
    agent.pre("r1", "Read", json!({ "file_path": world.path("file") }));
    agent.stop();
    let at = |point: &str| {
        let ran = world.run(["cat", point, "file"]);
        ran.exits(0).out
    };
    assert_eq!(at("tool:Write:last"), "2\n");
    assert_eq!(at("tool:write:2"), "1\n");
    assert_eq!(at("tool:Bash:last"), "3\n");
    assert_eq!(at("iteration:1"), "0\n");
    assert_eq!(at("iteration:3"), "2\n");
    assert_eq!(at("error:last"), "broken\n");
    assert_eq!(at("s1#@"), "broken\n");
    let light = agent.steps().into_iter().find(|step| step["tool"] == "Read").unwrap();
    assert_eq!(light["checkpoint"], false);
    world.ok(["rewind", &format!("#{}", light["number"]), "--yes"]);
    assert_eq!(read(&world, "file"), "broken\n", "a light step has the files of the step it grew from");
    // Whatever the log shows can be named by what the log calls it.
    assert_eq!(at(light["id"].as_str().unwrap()), "broken\n");
    world.ok(["rewind", "iteration:2", "--yes"]);
    assert_eq!(read(&world, "file"), "1\n");
}

#[test]
fn a_point_before_the_first_look_deletes_nothing() {
    let world = Sandbox::new();
    world.write("precious", "mine\n");
    let agent = Talk::new(&world, "s1");
    // What an agent wrote down by itself has steps, and nobody looked at files when it did.
    let line = |at: u32, kind: &str| {
        json!({ "type": kind, "uuid": format!("u{at}"), "sessionId": "old", "cwd": world.work, "version": "2.1.0",
            "timestamp": format!("2026-01-01T00:00:{at:02}Z"), "message": { "role": kind, "content": "hello" } })
    };
    let file = world.home.join("old.jsonl");
    fs::write(&file, format!("{}\n{}\n", line(1, "user"), line(2, "assistant"))).unwrap();
    world.json(["import", file.to_str().unwrap(), "--agent", "claude"]);
    let refused = |when: &str| {
        for more in [&[][..], &["--everything"], &["--path", "precious"], &["--session", "old"]] {
            let arguments = ["rewind", "#1", "--yes"].iter().chain(more);
            let ran = world.run(arguments);
            assert!(matches!(ran.code, Some(3 | 4)), "{when}, {more:?}: {ran:?}");
            assert!(!ran.err.is_empty());
            assert_eq!(read(&world, "precious"), "mine\n", "{more:?}");
        }
    };
    refused("before any look");
    agent.begin();
    agent.write("w1", "made", "made\n");
    refused("with later checkpoints");
}

#[test]
fn what_a_call_did_that_was_cut_short_is_its_sessions() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("start");
    agent.pre("b1", "Bash", json!({ "command": "sleep 100; …" }));
    world.write("half", "done\n");
    // Killed here: no end is ever reported. The person asks for something else.
    agent.prompt("again");
    agent.write("w1", "next", "next\n");
    agent.stop();
    assert_eq!(authors_of(&world, "half"), ["s1"]);
    assert_eq!(authors_of(&world, "next"), ["s1"]);
    // Or was it the person, before the new prompt? Nobody can tell, so it is listed and stays.
    let ran = world.run(["rewind", "tool:Bash:last", "--yes", "--json"]).exits(5);
    assert_eq!(left_alone(&ran.json()), ["half"]);
    assert!(world.path("half").exists() && !world.path("next").exists());
    world.ok(["rewind", "tool:Bash:last", "--everything", "--yes"]);
    assert!(!world.path("half").exists());
}

#[test]
fn what_changed_during_a_call_that_never_ended_may_be_the_users() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("start");
    agent.pre("b1", "Bash", json!({ "command": "…" }));
    world.write("half", "done\n");
    agent.stop();
    world.write("mine", "after the agent was done\n");
    agent.prompt("again");
    agent.write("w1", "next", "next\n");
    assert_eq!(authors_of(&world, "half"), ["s1"]);
    assert!(authors_of(&world, "mine").is_empty());
    let ran = world.run(["rewind", "tool:Bash:last", "--yes", "--json"]).exits(5);
    assert_eq!(left_alone(&ran.json()), ["half"], "it is listed, and --everything takes it back");
    assert!(world.path("half").exists() && !world.path("next").exists() && world.path("mine").exists());
}

#[test]
fn a_call_that_was_refused_by_the_agent_does_not_stop_checkpoints() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("start");
    // The person says no in the agent's own dialog: no end is reported, and the model goes on.
    agent.pre("b1", "Bash", json!({ "command": "rm -rf /" }));
    agent.event(
        "PermissionDenied",
        json!({ "tool_name": "Bash", "tool_use_id": "b1", "tool_input": { "command": "rm -rf /" } }),
    );
    agent.write("w1", "file", "1\n");
    agent.write("w2", "file", "2\n");
    let kept = agent.steps().into_iter().filter(|step| step["checkpoint"] == true).count();
    assert_eq!(kept, 3, "{:?}", of_kind(&world, "tool-end"));
    world.ok(["rewind", "tool:Write:last", "--yes"]);
    assert_eq!(read(&world, "file"), "1\n");
}

#[test]
fn what_an_agent_says_does_not_steer_the_terminal() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let agent = Talk::new(&world, "s1");
    let evil = "\u{1b}]0;title\u{7}\u{1b}[2J\r\u{202e}evil";
    agent.begin();
    agent.say(&[json!({ "type": "user", "uuid": "u1", "message": { "role": "user", "content": evil } })]);
    agent.prompt(evil);
    agent.bash("b1", evil, || world.write("file", "changed\n"));
    agent.pre("x1", &format!("mcp{evil}"), json!({ "command": evil }));
    agent.stop();
    world.ok(["pause"]);
    let commands: [&[&str]; 7] = [
        &["log"],
        &["sessions"],
        &["timeline"],
        &["changes"],
        &["inspect"],
        &["inspect", "conversation"],
        &["op", "log"],
    ];
    for arguments in commands {
        let ran = world.ok(arguments);
        let steers = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!ran.out.contains(steers) && !ran.err.contains(steers), "{arguments:?}: {:?}", ran.out);
    }
    assert!(world.ok(["log"]).out.contains("evil"));
}

#[test]
fn a_checkpoint_that_is_overdue_is_made_once() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    let cache = fs::File::options().write(true).open(workspace_dir(&world).join("statcache")).unwrap();
    cache.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(3600)).unwrap();
    let inbox = workspace_dir(&world).join("inbox.jsonl");
    agent.pre("r1", "Read", json!({}));
    assert!(!inbox.exists(), "it was time to look");
    // Nothing had changed. The next one goes to the inbox again.
    agent.post("r1", "Read", json!({}));
    assert!(inbox.exists());
}

#[test]
fn turns_without_a_checkpoint_end_in_one() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    let scheduled = || {
        let steps = agent.steps();
        steps.into_iter().filter(|step| step["trigger"] == "scheduled").collect::<Vec<_>>()
    };
    for turn in 0..5 {
        assert!(scheduled().is_empty(), "turn {turn}");
        world.write("file", format!("by the person, {turn}\n"));
        agent.prompt("think");
        agent.stop();
    }
    assert_eq!(scheduled().len(), 1);
    assert!(authors_of(&world, "file").is_empty(), "the person changed it");
}
