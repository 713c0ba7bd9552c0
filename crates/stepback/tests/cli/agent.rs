//! The built-in agent with a script: recorded, stopped, told, rewound and interrupted like any other.

use std::fs;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::sandbox::{Ran, Sandbox};
use crate::talk::{items, of_kind, until_stopped};

fn world() -> Sandbox {
    let world = Sandbox::new();
    world.write("file", "base\n");
    world
}

/// Writes a script beside the workspace.
fn script(world: &Sandbox, script: &Value) -> String {
    let path = world.root().join("script.json");
    fs::write(&path, script.to_string()).unwrap();
    path.display().to_string()
}

fn bash(command: &str) -> Value {
    json!({ "tool": "bash", "input": { "command": command } })
}

fn start(world: &Sandbox, path: &str) -> Child {
    world.spawn(&["agent", "--script", path, "go"])
}

#[track_caller]
fn end(child: Child, code: i32) -> Ran {
    let ran: Ran = child.wait_with_output().unwrap().into();
    ran.exits(code)
}

/// What the model was told with its last question.
#[track_caller]
fn last_question(world: &Sandbox) -> String {
    world.ok(["inspect", "conversation", "--json"]).out
}

#[test]
fn a_run_is_recorded_and_taken_back() {
    let world = world();
    let path = script(
        &world,
        &json!({
            "turns": [
                { "text": "I begin.", "calls": [
                    { "tool": "read", "input": { "path": "file" } },
                    { "tool": "edit", "input": { "path": "file", "old": "base", "new": "better" } },
                ] },
                { "calls": [{ "tool": "delegate", "input": { "worker": "tester", "task": "test it" } }] },
                { "calls": [bash("rm file; echo gone > note")] },
                { "text": "It is done.", "usage": { "input": 100, "output": 20 }, "cost_usd": 0.5 },
            ],
            "workers": { "tester": [{ "calls": [bash("cp file copy")] }, { "text": "tested" }] },
        }),
    );
    let ran = world.ok(["agent", "--provider", "scripted", &path, "improve the file"]);
    for part in ["I begin.", "edit: file", "tester:", "It is done."] {
        assert!(ran.out.contains(part), "{part} in {}", ran.out);
    }
    let session = &items(&world.json(["sessions"]))[0];
    assert_eq!((&session["agent"], &session["title"]), (&json!("stepback"), &json!("improve the file")));
    let steps = items(&world.json(["log", "--session", session["id"].as_str().unwrap()]));
    let count = |kind: &str| steps.iter().filter(|step| step["kind"] == kind).count();
    assert_eq!((count("model-start"), count("model-end")), (6, 6));
    assert_eq!((count("tool-start"), count("tool-end")), (5, 5));
    for kind in ["task-created", "task-assigned", "task-started", "task-completed", "user-input"] {
        assert_eq!(count(kind), 1, "{kind}");
    }
    let by_worker =
        steps.iter().find(|step| step["worker"] == "tester call_2_1" && step["kind"] == "tool-end");
    assert_eq!(by_worker.unwrap()["checkpoint"], true);
    let changed = items(&world.json(["changes"]));
    assert!(changed.iter().all(|change| change["authors"][0]["session"] == session["id"]), "{changed:?}");
    assert_eq!(world.json(["inspect", "task"])[0]["status"], "completed");
    assert!(!world.path("file").exists());
    world.ok(["rewind", "tool:bash:last", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("file")).unwrap(), "better\n");
    assert!(world.path("copy").exists() && !world.path("note").exists());
    world.ok(["rewind", "tool:edit:last", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("file")).unwrap(), "base\n");
    world.expect_sound("after the rewinds");
}

#[test]
fn the_document_says_what_came_of_it() {
    let world = world();
    let path = script(&world, &json!({ "turns": [{ "text": "Nothing to do.", "cost_usd": 0.25 }] }));
    let said = world.json(["agent", "--script", &path, "go"]);
    assert_eq!((&said["ended"], &said["text"]), (&json!("done"), &json!("Nothing to do.")));
    assert_eq!((&said["turns"], &said["steps"], &said["cost_usd"]), (&json!(1), &json!(6), &json!(0.25)));
    assert_eq!(items(&world.json(["sessions"]))[0]["id"], said["session"]);
    let path = script(&world, &json!({ "turns": [{ "calls": [bash("true")] }, { "text": "late" }] }));
    let ran = world.run(["agent", "--script", &path, "--max-turns", "1", "go", "--json"]).exits(5);
    assert_eq!(ran.json()["ended"], "max-turns");
    let path = script(&world, &json!({ "turns": [{ "fails": "no such model" }] }));
    let ran = world.run(["agent", "--script", &path, "go", "--json"]).exits(7);
    assert_eq!(ran.json()["ended"], "failed");
    assert!(ran.json()["error"]["message"].as_str().unwrap().contains("no such model"));
    assert!(ran.err.contains("no such model"), "{}", ran.err);
}

#[test]
fn a_stopped_call_is_inspected_refused_edited_and_resumed() {
    let world = world();
    let turns = [
        json!({ "calls": [bash("echo 1 > one")] }),
        json!({ "calls": [bash("echo 2 > two")] }),
        json!({ "calls": [bash("echo 3 > three")] }),
        json!({ "text": "end" }),
    ];
    let path = script(&world, &json!({ "turns": turns }));
    world.ok(["breakpoint", "add", "tool", "bash"]);
    let agent = start(&world, &path);
    until_stopped(&world, 1);
    assert_eq!(world.json(["inspect"])["stop"]["agent"], "stepback");
    assert_eq!(world.json(["inspect", "input"]), json!({ "command": "echo 1 > one" }));
    assert!(!world.path("one").exists());
    world.ok(["deny", "not the first"]);
    until(&world, "echo 2");
    world.ok(["edit-input", r#"{"command": "echo 22 > two"}"#]);
    until(&world, "echo 3");
    world.ok(["resume"]);
    let ran = end(agent, 0);
    assert!(ran.out.contains("stopped"), "{}", ran.out);
    assert!(!world.path("one").exists());
    assert_eq!(fs::read_to_string(world.path("two")).unwrap(), "22\n");
    assert!(world.path("three").exists());
    let told = last_question(&world);
    assert!(told.contains("not the first") && told.contains("changed the input"), "{told}");
    assert_eq!(of_kind(&world, "decision").len(), 3);
    assert_eq!(of_kind(&world, "breakpoint-hit").len(), 3);
    let commands = items(&world.json(["commands"]));
    let refused = (&commands[2]["command"], &commands[2]["status"], &commands[2]["output"]);
    assert_eq!(refused, (&json!("echo 1 > one"), &json!("not-run"), &json!("not the first")));
    assert_eq!((&commands[1]["status"], &commands[1]["exit"]), (&json!("ran"), &json!(0)));
}

/// Waits until an agent is stopped whose input holds `text`.
#[track_caller]
fn until(world: &Sandbox, text: &str) {
    let begun = Instant::now();
    while !world.run(["inspect", "input"]).out.contains(text) {
        assert!(begun.elapsed() < Duration::from_secs(120), "nobody stopped at {text}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn it_is_paused_stepped_and_told_something() {
    let world = world();
    let turns = [
        json!({ "calls": [bash("echo 1 > one")] }),
        json!({ "calls": [bash("echo 2 > two")] }),
        json!({ "text": "end" }),
    ];
    let when = json!([{ "says": "use redis", "turns": [{ "calls": [bash("echo r > redis")] }, { "text": "with redis" }] }]);
    let path = script(&world, &json!({ "turns": turns, "when": when }));
    world.ok(["checkpoint", "create", "before"]);
    world.ok(["pause"]);
    let agent = start(&world, &path);
    until(&world, "echo 1");
    world.ok(["step"]);
    until(&world, "echo 2");
    assert!(world.path("one").exists());
    world.ok(["inject", "use redis"]);
    world.ok(["resume"]);
    let ran = end(agent, 0);
    assert!(ran.out.contains("message: use redis") && ran.out.contains("with redis"), "{}", ran.out);
    assert!(world.path("redis").exists());
    assert!(last_question(&world).contains("use redis"));
}

#[test]
fn breakpoints_on_everything_else() {
    let world = world();
    let turns = [
        json!({ "calls": [{ "tool": "write", "input": { "path": "src/a", "content": "DROP TABLE" } }], "cost_usd": 3 }),
        json!({ "calls": [bash("exit 1")] }),
        json!({ "text": "end" }),
    ];
    let path = script(&world, &json!({ "turns": turns }));
    for words in [
        &["path", "src/**"][..],
        &["pattern", "DROP"],
        &["iteration", "2"],
        &["cost", "2"],
        &["error"],
        &["tool", "write"],
    ] {
        world.ok(["breakpoint", "add", "--log"].iter().chain(words));
    }
    end(start(&world, &path), 0);
    for breakpoint in items(&world.json(["breakpoint", "list"])) {
        assert_eq!(breakpoint["hits"], 1, "{breakpoint}");
    }
}

#[test]
fn a_rewind_by_somebody_else_does_not_confuse_it() {
    let world = world();
    let turns = [
        json!({ "calls": [bash("echo 1 > one")] }),
        json!({ "calls": [bash("echo 2 > two")] }),
        json!({ "calls": [{ "tool": "read", "input": { "path": "one" } }] }),
        json!({ "text": "end" }),
    ];
    let path = script(&world, &json!({ "turns": turns }));
    world.ok(["breakpoint", "add", "pattern", "echo 2"]);
    let agent = start(&world, &path);
    until(&world, "echo 2");
    world.ok(["rewind", "tool:bash:1", "--yes"]);
    assert!(!world.path("one").exists());
    world.ok(["resume"]);
    end(agent, 0);
    assert!(world.path("two").exists() && !world.path("one").exists());
    assert!(last_question(&world).contains("cannot read one"));
    world.ok(["rewind", "tool:bash:last", "--yes"]);
    assert!(!world.path("two").exists());
}

#[test]
fn an_interruption_ends_it_in_order() {
    let world = world();
    let path = script(&world, &json!({ "turns": [{ "calls": [bash("touch begun; sleep 300")] }] }));
    let agent = start(&world, &path);
    let begun = Instant::now();
    while !world.path("begun").exists() {
        assert!(begun.elapsed() < Duration::from_secs(120));
        thread::sleep(Duration::from_millis(20));
    }
    interrupt(&agent);
    let ran = end(agent, 130);
    assert!(ran.err.contains("Interrupted"), "{}", ran.err);
    let last = &items(&world.json(["log"]))[0];
    assert_eq!(last["summary"], "session ended: interrupted");
    assert_eq!(items(&world.json(["sessions"]))[0]["status"], "ended");
    world.ok(["rewind", "tool:bash:last", "--yes"]);
    assert!(!world.path("begun").exists(), "what the call did until then can be taken back");
}

#[test]
fn an_interruption_at_a_breakpoint_ends_it_too() {
    let world = world();
    let path = script(&world, &json!({ "turns": [{ "calls": [bash("touch ran")] }] }));
    world.ok(["breakpoint", "add", "tool", "bash"]);
    let agent = start(&world, &path);
    until_stopped(&world, 1);
    interrupt(&agent);
    end(agent, 130);
    until_stopped(&world, 0);
    assert!(!world.path("ran").exists());
}

pub fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

#[test]
fn a_conversation_goes_on_from_an_earlier_point() {
    let world = world();
    let turns = [
        json!({ "calls": [bash("echo 1 > one")] }),
        json!({ "calls": [bash("echo 2 > two")] }),
        json!({ "text": "end" }),
    ];
    let when = json!([{ "says": "differently", "turns": [{ "calls": [bash("echo d > other")] }, { "text": "other end" }] }]);
    let path = script(&world, &json!({ "turns": turns, "when": when }));
    end(start(&world, &path), 0);
    world.ok(["rewind", "tool:bash:last", "--yes"]);
    let said = world.json(["agent", "--script", &path, "--from", "tool:bash:last", "do it differently"]);
    assert_eq!(said["text"], "other end");
    assert!(world.path("one").exists() && world.path("other").exists() && !world.path("two").exists());
    let told = last_question(&world);
    assert!(told.contains("echo 1") && !told.contains("echo 2"), "{told}");
    world.run(["agent", "--script", &path, "--from", "@-100", "x"]).exits(3);
}

#[test]
fn files_and_conversation_go_back_together_and_on_from_there() {
    let world = world();
    let turns = [
        json!({ "calls": [{ "tool": "remember", "input": { "key": "port", "value": "8080" } }] }),
        json!({ "calls": [bash("echo 1 > one")] }),
        json!({ "calls": [bash("echo 2 > two")] }),
        json!({ "text": "end" }),
    ];
    let when = json!([{ "says": "-differently", "turns": [{ "calls": [bash("echo d > other")] }, { "text": "other end" }] }]);
    let path = script(&world, &json!({ "turns": turns, "when": when }));
    end(start(&world, &path), 0);
    let first = items(&world.json(["sessions"]))[0]["id"].clone();
    let ran = world.ok(["rewind", "tool:bash:last", "--both", "--resume=-differently", "--yes"]);
    assert!(ran.out.contains("other end"), "{}", ran.out);
    assert!(world.path("one").exists() && world.path("other").exists() && !world.path("two").exists());
    let sessions = items(&world.json(["sessions"]));
    assert_eq!((sessions.len(), &sessions[0]["forked_from"][0]), (2, &first), "{sessions:?}");
    assert_eq!(world.json(["inspect", "memory"]), json!({ "port": "8080" }));
    let told = last_question(&world);
    assert!(told.contains("echo 1") && !told.contains("echo 2"), "{told}");
    // And once more in the same session.
    let id = sessions[0]["id"].as_str().unwrap();
    let said = world.json(["agent", "--script", &path, "--session", id, "anything else?"]);
    assert_eq!(
        (&said["session"], &said["text"]),
        (&sessions[0]["id"], &json!("The script has no more turns."))
    );
}

#[test]
fn checkpoints_and_branches_of_the_user_have_the_conversation_of_the_agent() {
    let world = world();
    let turns = [json!({ "calls": [bash("echo 1 > one")] }), json!({ "text": "first done" })];
    let path = script(&world, &json!({ "turns": turns }));
    world.ok(["agent", "--script", &path, "the first task"]);
    world.ok(["checkpoint", "create", "mid"]);
    let later = script(&world, &json!({ "turns": [{ "text": "second done" }] }));
    world.ok(["agent", "--script", &later, "the second task"]);
    let kept =
        |point: &str| world.json(["rewind", point, "--conversation"])["conversation"]["messages"].clone();
    assert_eq!(kept("mid"), 4, "the prompt, the call, its result and the answer");
    assert_eq!(kept("mid"), 4, "the fork that was made by the first try has nothing to go on from");
    world.ok(["branch", "create", "alt", "--from", "mid"]);
    world.ok(["branch", "switch", "alt", "--yes"]);
    assert_eq!(kept("@"), 4, "the branch has the conversation of the point it was made from");
    world.ok(["branch", "switch", "main", "--yes"]);
    assert_eq!(kept("@"), 4, "and the other branch has that to which it was taken back");
    let switch = |to: &str| world.json(["branch", "switch", to, "--conversation", "--yes"]);
    let there = switch("alt");
    assert_eq!((&there["conversation"]["messages"], &there["applied"]), (&json!(4), &json!(true)), "{there}");
    assert_eq!(switch("main")["conversation"]["messages"], 4);
    world.run(["branch", "switch", "alt", "--resume", "x", "--yes"]).exits(2);
}

#[test]
fn a_branch_goes_on_in_a_directory_of_its_own() {
    let world = world();
    let turns = [json!({ "calls": [bash("echo 1 > one")] }), json!({ "text": "end" })];
    let when = json!([{ "says": "differently", "turns": [{ "calls": [bash("echo d > other")] }, { "text": "other end" }] }]);
    let path = script(&world, &json!({ "turns": turns, "when": when }));
    end(start(&world, &path), 0);
    let tree = world.root().join("tree");
    let words =
        ["branch", "create", "other", "--from", "tool:bash:last", "--worktree", tree.to_str().unwrap()];
    let ran = world.ok(words.iter().chain(&["--resume", "differently"]));
    assert!(ran.out.contains("other end"), "{}", ran.out);
    assert!(tree.join("other").exists() && !tree.join("one").exists());
    assert!(world.path("one").exists() && !world.path("other").exists());
}

#[test]
fn a_branch_without_a_directory_is_gone_to_before_the_agent_goes_on() {
    let world = world();
    let turns = [
        json!({ "calls": [bash("echo 1 > one")] }),
        json!({ "calls": [bash("echo 2 > two")] }),
        json!({ "text": "end" }),
    ];
    let seen = bash("ls > seen");
    let when = json!([{ "says": "differently", "turns": [{ "calls": [seen] }, { "text": "other end" }] }]);
    let path = script(&world, &json!({ "turns": turns, "when": when }));
    end(start(&world, &path), 0);
    let words = ["branch", "create", "other", "--from", "tool:bash:last", "--resume", "differently"];
    // The plan can be seen first, and nothing is made for it.
    let shown = world.ok(words.iter().chain(&["--dry-run"]));
    assert!(
        shown.err.contains("delete two") || shown.out.contains("delete two"),
        "{} {}",
        shown.out,
        shown.err
    );
    assert_eq!(items(&world.json(["branch", "list"])).len(), 1);
    assert_eq!(items(&world.json(["sessions"])).len(), 1);
    let ran = world.ok(words.iter().chain(&["--yes"]));
    assert!(ran.out.contains("other end"), "{}", ran.out);
    let seen = std::fs::read_to_string(world.path("seen")).unwrap();
    assert!(seen.contains("one") && !seen.contains("two"), "it worked on the files of the branch: {seen}");
    let branches = items(&world.json(["branch", "list"]));
    let present: Vec<_> = branches.iter().filter(|branch| branch["present"] == true).collect();
    assert_eq!(present[0]["id"], "other");
    world.ok(["branch", "switch", "main", "--yes"]);
    assert!(world.path("two").exists() && !world.path("seen").exists());
}

#[test]
fn a_model_without_a_key_cannot_be_asked() {
    let world = world();
    for (words, missing) in [
        (&["agent", "go"][..], "ANTHROPIC_API_KEY"),
        (&["agent", "--provider", "openai-compatible", "--model", "m", "go"], "OPENAI_API_KEY"),
        (
            &["agent", "--provider", "openai-compatible", "--base-url", "http://127.0.0.1:1/v1", "go"],
            "requires a model",
        ),
    ] {
        let ran = world.run(words).exits(2);
        assert!(ran.err.contains(missing) && ran.err.contains("Hint:"), "{}", ran.err);
    }
}

#[test]
fn what_cannot_run_says_why_and_records_nothing() {
    let world = world();
    let missing = world.root().join("missing.json").display().to_string();
    let ran = world.run(["agent", "--provider", "scripted", &missing, "go"]).exits(7);
    assert!(ran.err.contains("cannot read the script") && ran.err.contains("missing.json"), "{}", ran.err);
    let bad = script(&world, &json!({ "turns": [{ "calls": [{ "tool": "fly" }] }] }));
    let ran = world.run(["agent", "--script", &bad, "go"]).exits(2);
    assert!(ran.err.contains("turn 1") && ran.err.contains("fly"), "{}", ran.err);
    for words in [
        &["agent"][..],
        &["agent", "--provider", "scripted", "go"],
        &["agent", "--provider", "nobody", "go"],
        &["agent", "--script", &bad, "  "],
        &["agent", "--provider", "anthropic", "--script", &bad, "go"],
    ] {
        let ran = world.run(words).exits(2);
        assert!(ran.err.contains("Hint:"), "{words:?}: {}", ran.err);
    }
    world.run(["log"]).exits(4);
}

#[test]
fn a_reader_that_goes_away_does_not_end_it() {
    let world = world();
    let path = script(
        &world,
        &json!({ "turns": [{ "text": "a", "calls": [bash("sleep 0.2; touch ran")] }, { "text": "b" }] }),
    );
    let mut command = world.command(["agent", "--script", &path, "go"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    assert!(world.path("ran").exists());
    assert_eq!(items(&world.json(["log"]))[0]["summary"], "session ended");
}
