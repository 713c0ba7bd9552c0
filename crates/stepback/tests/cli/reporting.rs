//! What is said about what happened: in the order in which it happened, with the right numbers, on the right stream.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use stepback_testkit::sample::noise;

use crate::sandbox::{Ran, Sandbox};
use crate::talk::{Talk, items, until_stopped};

fn of_agent<'w>(world: &'w Sandbox, agent: &'static str, session: &str) -> Talk<'w> {
    let mut talk = Talk::new(world, session);
    talk.agent = agent;
    talk
}

#[test]
fn what_a_hook_left_comes_before_what_a_later_command_records() {
    let world = Sandbox::new();
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("go");
    agent.write("w1", "a.txt", "a\n");
    agent.stop();
    agent.event("SessionEnd", json!({ "reason": "exit" }));
    world.ok(["checkpoint", "create", "later"]);
    let log = items(&world.json(["log"]));
    let number = |what: &str| {
        let found = log.iter().find(|step| step["summary"].as_str().is_some_and(|text| text.contains(what)));
        found.unwrap_or_else(|| panic!("no {what} in {log:?}"))["number"].as_u64().unwrap()
    };
    assert!(number("session ended") < number("checkpoint \"later\""), "{log:?}");
}

#[test]
fn the_plan_of_a_dry_run_is_data() {
    let world = Sandbox::new();
    world.write("a.txt", "1\n");
    world.ok(["checkpoint", "create", "one"]);
    world.write("a.txt", "2\n");
    world.write("b.txt", "2\n");
    let plan = world.ok(["rewind", "one", "--everything", "--dry-run"]);
    assert!(plan.out.contains("a.txt") && plan.out.contains("b.txt"), "{} {}", plan.out, plan.err);
    assert!(!plan.err.contains("a.txt") && plan.err.contains("dry run"), "{}", plan.err);
    world.ok(["rewind", "one", "--everything", "--yes"]);
    let plan = world.ok(["undo", "--dry-run"]);
    assert!(plan.out.contains("b.txt") && !plan.err.contains("b.txt"), "{} {}", plan.out, plan.err);
}

#[test]
fn every_file_that_git_does_not_have_is_counted() {
    let world = Sandbox::new();
    for at in 0..700 {
        world.write(format!("f{at}"), format!("{at}\n"));
    }
    world.init_git();
    world.ok(["checkpoint", "create", "one"]);
    for at in 0..700 {
        // Some keep their size, so that only their content tells.
        let text =
            if at % 2 == 0 { format!("{at}x\n") } else { format!("{}\n", "y".repeat(at.to_string().len())) };
        world.write(format!("f{at}"), text);
    }
    world.write("g", "not tracked\n");
    let plan = world.ok(["rewind", "one", "--everything", "--dry-run"]);
    assert!(plan.out.contains("700 of these files have changes that git does not have"), "{}", plan.out);
    // What git has is not counted.
    world.git(&["add", "--all"]);
    let plan = world.ok(["rewind", "one", "--everything", "--dry-run"]);
    assert!(!plan.out.contains("changes that git does not have"), "{}", plan.out);
}

#[test]
fn what_cannot_be_read_makes_the_count_a_lower_bound() {
    let world = Sandbox::new();
    world.write("large", noise(1, 60_000));
    world.write("small", "one\n");
    world.init_git();
    world.ok(["checkpoint", "create", "one"]);
    world.write("large", noise(2, 60_000));
    world.write("small", "changed\n");
    world.ok(["checkpoint", "create", "two"]);
    let plan = world.ok(["rewind", "one", "--everything", "--dry-run"]).out;
    assert!(plan.contains("Warning: 2 of these files have changes that git does not have"), "{plan}");
    // The large file has the size that git knows, so that only its content tells, and the store's copy is damaged.
    let packs = fs::read_dir(world.store.join("packs")).unwrap();
    let pack = packs.map(|entry| entry.unwrap().path()).max().unwrap();
    let mut bytes = fs::read(&pack).unwrap();
    let inside = bytes.len() - 30_000;
    bytes[inside] ^= 4;
    fs::write(&pack, bytes).unwrap();
    let plan = world.ok(["rewind", "one", "--everything", "--dry-run"]).out;
    assert!(plan.contains("at least 1 of these files has changes that git does not have"), "{plan}");
}

#[test]
fn stats_count_every_step() {
    let world = Sandbox::new();
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("go");
    agent.write("w1", "a.txt", "a\n");
    agent.event("PreToolUse", json!({ "tool_name": "Read", "tool_use_id": "r1", "tool_input": {} }));
    agent.event("SessionEnd", json!({ "reason": "exit" }));
    let stats = world.json(["stats"]);
    let steps = items(&world.json(["log", "--limit", "1000"])).len();
    assert_eq!(stats["items"][0]["steps"], steps, "{stats}");
    assert!(steps > 5);
    assert_eq!((&stats["total_steps"], &stats["total_sessions"]), (&json!(steps), &json!(1)), "{stats}");
    let log = items(&world.json(["log", "--limit", "1000"]));
    let times = || log.iter().map(|step| step["at"].as_str().unwrap());
    assert_eq!(stats["oldest_step_at"].as_str(), times().min());
    assert_eq!(stats["newest_step_at"].as_str(), times().max());
    let empty = Sandbox::new();
    empty.ok(["settings", "notes", "0"]);
    let stats = empty.json(["stats"]);
    assert_eq!((&stats["oldest_step_at"], &stats["total_steps"]), (&json!(null), &json!(0)), "{stats}");
}

#[test]
fn a_store_of_an_unknown_kind_is_refused_and_makes_no_directory() {
    let world = Sandbox::new();
    for wrong in ["s3://bucket/x", "memory:", "postgre://ann:secret@db/x"] {
        let refused = world.run(["--store", wrong, "checkpoint", "create", "one"]).exits(2);
        assert!(refused.err.contains("postgres://") && !refused.err.contains("secret"), "{}", refused.err);
        let mut command = world.command(["checkpoint", "create", "one"]);
        let by_variable: Ran = command.env("STEPBACK_HOME", wrong).output().unwrap().into();
        by_variable.exits(2);
    }
    assert_eq!(std::fs::read_dir(&world.work).unwrap().count(), 0);
}

fn call(agent: &Talk<'_>, names: [&str; 2], call: &str, input: &Value, response: &Value) {
    let tool = if agent.agent == "gemini" { "run_shell_command" } else { "Bash" };
    let mut rest = json!({ "tool_name": tool, "tool_input": input });
    // Gemini CLI gives calls no ids.
    if agent.agent != "gemini" {
        rest["tool_use_id"] = json!(call);
    }
    agent.event(names[0], rest.clone());
    rest["tool_response"] = response.clone();
    agent.event(names[1], rest);
}

fn commands(world: &Sandbox, session: &str) -> Vec<Value> {
    items(&world.json(["board", "commands", "--session", session]))
}

#[test]
fn commands_have_exit_code_output_and_directory_for_every_agent() {
    let world = Sandbox::new();
    let talk = |agent: &'static str| of_agent(&world, agent, agent);
    let input = json!({ "command": "ls" });
    let (tool, before) = (["PreToolUse", "PostToolUse"], ["BeforeTool", "AfterTool"]);
    let claude = talk("claude");
    claude.begin();
    let stdout = json!({ "stdout": "a.txt", "stderr": "", "interrupted": false, "isImage": false });
    call(&claude, tool, "c1", &input, &stdout);
    claude.pre("c2", "Bash", json!({ "command": "false" }));
    let failed = json!({ "tool_name": "Bash", "tool_use_id": "c2", "tool_input": { "command": "false" }, "error": "Exit code 1\nno" });
    claude.event("PostToolUseFailure", failed);
    let gemini = talk("gemini");
    let shown = json!({ "llmContent": "Output: a.txt\nProcess Group PGID: 7", "returnDisplay": "a.txt" });
    call(&gemini, before, "", &input, &shown);
    let opencode = talk("opencode");
    let response = json!({ "title": "ls", "output": "a.txt\n", "metadata": { "exit": 2 } });
    call(
        &opencode,
        ["tool.execute.before", "tool.execute.after"],
        "o1",
        &json!({ "command": "ls", "workdir": "sub" }),
        &response,
    );
    let codex = talk("codex");
    call(&codex, tool, "x1", &input, &json!("a.txt\n"));
    // Codex tells the exit code only in its own record, and only afterwards.
    codex.say(&[
        json!({ "type": "response_item", "payload": { "type": "function_call_output", "call_id": "x1",
        "output": "Wall time: 0 seconds\nProcess exited with code 3\nOutput:\na.txt\n" } }),
    ]);
    codex.stop();

    let root = world.work.display().to_string();
    for (session, exit, output, directory) in [
        ("claude", 1, "no", root.clone()),
        ("gemini", 0, "a.txt", root.clone()),
        ("opencode", 2, "a.txt\n", format!("{root}/sub")),
        ("codex", 3, "a.txt\n", root.clone()),
    ] {
        let last = commands(&world, session).remove(0);
        assert_eq!((&last["exit"], &last["output"]), (&json!(exit), &json!(output)), "{session}: {last}");
        assert_eq!(last["directory"], directory, "{session}");
    }
    let first = commands(&world, "claude").remove(1);
    assert_eq!(
        (&first["exit"], &first["output"], &first["failed"]),
        (&json!(0), &json!("a.txt"), &json!(false))
    );
}

#[test]
fn a_refused_command_did_not_run_and_waiting_is_not_running() {
    let world = Sandbox::new();
    let agent = of_agent(&world, "codex", "s1");
    agent.begin();
    agent.prompt("go");
    world.ok(["breakpoint", "add", "tool", "Bash"]);
    let begin = |call: &str, command: &str| {
        let rest = json!({ "tool_name": "Bash", "tool_use_id": call, "tool_input": { "command": command } });
        let child = agent.start(agent.payload("PreToolUse", rest).to_string().as_bytes());
        until_stopped(&world, 1);
        child
    };
    let child = begin("b1", "rm -r /");
    world.ok(["deny", "no"]);
    Ran::from(child.wait_with_output().unwrap()).exits(0);
    let child = begin("b2", "sleep 0");
    std::thread::sleep(Duration::from_millis(1500));
    world.ok(["resume"]);
    Ran::from(child.wait_with_output().unwrap()).exits(0);
    agent.post("b2", "Bash", json!({ "command": "sleep 0" }));
    let ran: Vec<Value> = commands(&world, "s1").iter().map(|ran| ran["command"].clone()).collect();
    assert_eq!(ran, ["sleep 0"]);
    let end =
        agent.steps().into_iter().find(|step| step["call"] == "b2" && step["kind"] == "tool-end").unwrap();
    let took = end["duration_us"].as_u64().unwrap();
    assert!(took < 1_400_000, "{took}");
    // The input of a call of Codex cannot be changed, and that is what is said.
    let child = begin("b3", "ls");
    let said = world.ok(["edit-input", r#"{"command": "ls -l"}"#]);
    assert!(said.out.contains("refused") && !said.out.contains("goes on"), "{}", said.out);
    let answer = Ran::from(child.wait_with_output().unwrap()).exits(0);
    assert!(answer.out.contains("\"deny\""), "{}", answer.out);
}

#[test]
fn gemini_compacts_when_its_transcript_says_so_and_ends_with_its_last_words() {
    let world = Sandbox::new();
    let agent = of_agent(&world, "gemini", "s1");
    let at = |second: u32| format!("2026-11-15T18:28:{second:02}.000Z");
    let said = |id: &str, kind: &str, text: &str| json!({ "id": id, "type": kind, "content": text, "timestamp": at(1) });
    agent.event("SessionStart", json!({ "source": "startup", "timestamp": at(0) }));
    agent.event("BeforeAgent", json!({ "prompt": "go", "timestamp": at(1) }));
    agent.say(&[said("1", "user", "go"), said("2", "gemini", "Writing.")]);
    for second in [2, 3, 4] {
        agent.event("PreCompress", json!({ "trigger": "auto", "timestamp": at(second) }));
    }
    let compactions = |agent: &Talk<'_>| {
        let is_one = |step: &&Value| step["summary"].as_str().is_some_and(|text| text.contains("compacted"));
        agent.steps().iter().filter(is_one).count()
    };
    agent.say(&[said("3", "gemini", "All finished.\nSee f.txt.")]);
    agent.event(
        "AfterAgent",
        json!({ "prompt": "go", "prompt_response": "Writing.\nAll finished.\nSee f.txt.", "timestamp": at(5) }),
    );
    assert_eq!(compactions(&agent), 0);
    let last = agent.steps().pop().unwrap();
    assert_eq!(last["summary"], "done: All finished.");
    // Now it does.
    agent.say(&[json!({ "$set": { "messages": [said("9", "user", "a summary")] } })]);
    agent.event("BeforeAgent", json!({ "prompt": "and now", "timestamp": at(6) }));
    agent.event("AfterAgent", json!({ "prompt": "and now", "prompt_response": "Yes.", "timestamp": at(7) }));
    assert_eq!(compactions(&agent), 1);
}
