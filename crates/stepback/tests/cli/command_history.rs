//! The shell commands that agents called: of every agent, with how they ended, and those that did not run.

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::talk::{Talk, items};

/// What became of each command, newest first.
#[track_caller]
fn endings(world: &Sandbox, words: &[&str]) -> Vec<(String, String, Option<i64>)> {
    let listed = items(&world.json(["commands"].into_iter().chain(words.iter().copied())));
    let text = |item: &Value, name: &str| item[name].as_str().unwrap().to_owned();
    listed.iter().map(|item| (text(item, "command"), text(item, "status"), item["exit"].as_i64())).collect()
}

fn ending(command: &str, status: &str, exit: Option<i64>) -> (String, String, Option<i64>) {
    (command.to_owned(), status.to_owned(), exit)
}

fn claude_call(agent: &Talk<'_>, id: &str, command: &str, event: &str, end: Value) {
    let input = json!({ "command": command });
    agent.pre(id, "Bash", input.clone());
    let mut payload = json!({ "tool_name": "Bash", "tool_input": input, "tool_use_id": id });
    payload.as_object_mut().unwrap().extend(end.as_object().unwrap().clone());
    agent.event(event, payload);
}

#[test]
fn commands_have_their_ending_and_refused_ones_did_not_run() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("go");
    let printed = json!({ "stdout": "file\n", "stderr": "a warning", "interrupted": false });
    let ended = json!({ "tool_response": printed, "duration_ms": 12 });
    claude_call(&agent, "c1", "ls", "PostToolUse", ended);
    claude_call(&agent, "c2", "make test", "PostToolUseFailure", json!({ "error": "Exit code 2\nno rule" }));
    claude_call(&agent, "c3", "git push", "PermissionDenied", json!({ "reason": "pushing is not allowed" }));
    agent.pre("c4", "Bash", json!({ "command": "rm -rf /" }));
    agent.say(&[json!({ "type": "user", "uuid": "u1", "message": { "role": "user", "content": [
        { "type": "tool_result", "tool_use_id": "c4", "is_error": true,
          "content": "The user doesn't want to proceed with this tool use. The tool use was rejected." }] } })]);
    agent.event("UserPromptSubmit", json!({ "prompt": "not that", "prompt_id": "p9" }));
    agent.write("c5", "other", "no command");
    agent.pre("c6", "Bash", json!({ "command": "sleep 100" }));
    let all = [
        ending("sleep 100", "running", None),
        ending("rm -rf /", "not-run", None),
        ending("git push", "not-run", None),
        ending("make test", "ran", Some(2)),
        ending("ls", "ran", Some(0)),
    ];
    assert_eq!(endings(&world, &[]), all);
    assert_eq!(endings(&world, &["--failed"]), all[3..4]);
    assert_eq!(endings(&world, &["--session", "s1", "--limit", "2"]), all[..2]);
    let listed = items(&world.json(["commands"]));
    assert_eq!(listed[2]["output"], "pushing is not allowed");
    assert_eq!((&listed[4]["stdout"], &listed[4]["stderr"]), (&json!("file\n"), &json!("a warning")));
    assert_eq!((&listed[4]["duration_us"], &listed[4]["output"]), (&json!(12000), &json!("file\na warning")));
    assert_eq!(listed[4]["directory"], world.work.display().to_string());
    // As it was while "make test" ran: its end is not known yet.
    let began = listed[3]["start"].as_u64().unwrap();
    let then = [ending("make test", "running", None), all[4].clone()];
    assert_eq!(endings(&world, &["--at", &format!("#{began}")]), then);
    // Page by page.
    let mut pages = Vec::new();
    let mut words = vec!["commands".to_owned(), "--limit".into(), "2".into()];
    loop {
        let page = world.json(words.iter().map(String::as_str));
        pages.extend(items(&page));
        let Some(next) = page["next"].as_u64() else { break };
        words.truncate(3);
        words.extend(["--before".into(), next.to_string()]);
    }
    assert_eq!(pages, listed);
    let shown = world.ok(["commands"]).out;
    assert!(shown.contains("exit 2") && shown.contains("make test"), "{shown}");
    assert!(shown.contains("not run") && shown.contains("pushing is not allowed"), "{shown}");
}

#[test]
fn every_agents_commands_are_listed() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let talk = |agent: &'static str, session: &str| {
        let mut talk = Talk::new(&world, session);
        talk.agent = agent;
        talk
    };
    let codex = talk("codex", "codex-1");
    let input = json!({ "command": "cargo test" });
    codex.pre("x1", "Bash", input.clone());
    let told = "Wall time: 0.1 seconds\nProcess exited with code 101\nOutput:\n1 failed";
    let end = json!({ "tool_name": "Bash", "tool_input": input, "tool_use_id": "x1", "tool_response": told });
    codex.event("PostToolUse", end);
    let gemini = talk("gemini", "gemini-1");
    let input = json!({ "command": "npm ci", "dir_path": "web" });
    let call = json!({ "tool_name": "run_shell_command", "tool_input": input });
    gemini.event("BeforeTool", call.clone());
    let mut end = call;
    end["tool_response"] = json!({ "llmContent": "Output: (empty)\nExit Code: 1\nProcess Group PGID: 7" });
    gemini.event("AfterTool", end);
    let opencode = talk("opencode", "opencode-1");
    let call = json!({ "tool_name": "bash", "tool_input": { "command": "ls" }, "tool_use_id": "o1" });
    opencode.event("tool.execute.before", call.clone());
    let mut end = call;
    end["tool_response"] = json!({ "title": "ls", "output": "file\n", "metadata": { "exit": 0 } });
    opencode.event("tool.execute.after", end);
    let turns = json!([{ "calls": [{ "tool": "bash", "input": { "command": "echo hi; exit 3" } }] }, { "text": "end" }]);
    let script = world.root().join("script.json");
    std::fs::write(&script, json!({ "turns": turns }).to_string()).unwrap();
    world.ok(["agent", "--script", script.to_str().unwrap(), "go"]);
    let expected = [
        ending("echo hi; exit 3", "ran", Some(3)),
        ending("ls", "ran", Some(0)),
        ending("npm ci", "ran", Some(1)),
        ending("cargo test", "ran", Some(101)),
    ];
    assert_eq!(endings(&world, &[]), expected);
    let failed = endings(&world, &["--failed"]);
    assert_eq!(failed, [expected[0].clone(), expected[2].clone(), expected[3].clone()]);
    let listed = items(&world.json(["commands"]));
    assert_eq!(listed[0]["output"], "hi");
    assert!(listed[0]["duration_us"].as_u64().is_some());
    assert_eq!(listed[2]["directory"], world.work.join("web").display().to_string());
    assert_eq!(listed[3]["output"], "1 failed");
}
