//! Single parts of the state go back: memory, tasks, board, conversation, git and files, of the built-in agent and of others.

use std::fs;

use serde_json::{Value, json};

use crate::mcp_client::Client;
use crate::sandbox::Sandbox;
use crate::talk::{Talk, items};

fn file(world: &Sandbox) -> String {
    fs::read_to_string(world.path("file")).unwrap()
}

/// A line of the user in the transcript of an agent.
fn user_line(talk: &Talk<'_>, word: &str) -> Value {
    if talk.agent == "codex" {
        let content = json!([{ "type": "input_text", "text": word }]);
        let kinds = json!({ "content_item_kinds": ["user.text"] });
        let said = json!({ "type": "message", "id": word, "role": "user", "content": content, "internal_chat_message_metadata_passthrough": kinds });
        return json!({ "timestamp": "2026-01-02T03:04:05.000Z", "type": "response_item", "payload": said });
    }
    let said = json!({ "role": "user", "content": word });
    json!({ "type": "user", "uuid": format!("u-{word}"), "parentUuid": null, "sessionId": "s1", "cwd": talk.cwd, "message": said })
}

/// A session that plans, is told something and writes, before and after a checkpoint of the user.
fn hooked<'w>(world: &'w Sandbox, agent: &'static str, tool: &str) -> Talk<'w> {
    let mut talk = Talk::new(world, "s1");
    talk.agent = agent;
    talk.begin();
    for word in ["old", "new"] {
        talk.say(&[user_line(&talk, word)]);
        talk.prompt(word);
        let list = json!({ "todos": [{ "content": word, "status": "pending" }] });
        talk.pre(&format!("t-{word}"), tool, list.clone());
        talk.post(&format!("t-{word}"), tool, list);
        let input = json!({ "command": format!("echo {word}") });
        talk.pre(&format!("c-{word}"), "Bash", input.clone());
        world.write("file", word);
        talk.post(&format!("c-{word}"), "Bash", input);
        talk.stop();
        if word == "old" {
            world.ok(["checkpoint", "create", "before refactor"]);
        }
    }
    talk
}

fn todo(world: &Sandbox) -> Value {
    world.json(["inspect", "task"])["todos"][0]["content"].clone()
}

#[test]
fn the_memory_of_the_built_in_agent_goes_back_alone() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let work = |port: &str| {
        let remember = json!({ "tool": "remember", "input": { "key": "port", "value": port } });
        let bash = json!({ "tool": "bash", "input": { "command": format!("echo {port} > file") } });
        json!({ "calls": [remember, bash] })
    };
    let turns = json!([work("8080"), { "text": "done" }, work("9090"), { "text": "done" }]);
    let path = world.root().join("script.json");
    fs::write(&path, json!({ "turns": turns }).to_string()).unwrap();
    let path = path.display().to_string();
    world.ok(["agent", "--script", &path, "go"]);
    let id = items(&world.json(["sessions"]))[0]["id"].as_str().unwrap().to_owned();
    world.ok(["checkpoint", "create", "before refactor"]);
    world.ok(["agent", "--script", &path, "--session", &id, "go on"]);
    let port = || world.json(["inspect", "memory"])["port"].clone();
    assert_eq!((port(), file(&world)), (json!("9090"), "9090\n".into()));

    let plan = world.json(["rewind", "before refactor", "--memory", "--dry-run"]);
    assert_eq!(plan["parts"][0]["changes"], json!(["port becomes \"8080\" instead of \"9090\""]));
    assert_eq!(port(), "9090", "a plan changes nothing");
    let ran = world.ok(["rewind", "before refactor", "--memory"]);
    assert!(ran.err.contains("Rewind memory to #"), "{}", ran.err);
    assert!(!ran.err.contains("inject"), "it has ended: {}", ran.err);
    assert_eq!((port(), file(&world)), (json!("8080"), "9090\n".into()));
    // The session goes on with what it remembers now.
    world.ok(["agent", "--script", &path, "--session", &id, "anything else?"]);
    assert_eq!(port(), "8080");
    world.ok(["undo", "--yes"]);
    assert_eq!(port(), "9090");
    let done = world.json(["redo", "--yes"]);
    assert_eq!(done["parts"][0]["part"], "memory", "{done:#}");
    assert_eq!(port(), "8080");
    let ran = world.ok(["rewind", "before refactor", "--memory"]);
    assert!(ran.out.contains("Nothing to change"), "{}", ran.out);
}

#[test]
fn the_tasks_of_the_built_in_agent_go_back_alone() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let script = json!({
        "turns": [
            { "calls": [{ "tool": "delegate", "input": { "worker": "tester", "task": "test it" } }] },
            { "calls": [{ "tool": "bash", "input": { "command": "echo later > file" } }] },
            { "text": "done" },
        ],
        "workers": { "tester": [{ "text": "tested" }] },
    });
    let path = world.root().join("script.json");
    fs::write(&path, script.to_string()).unwrap();
    world.ok(["agent", "--script", path.to_str().unwrap(), "go"]);
    let status = || world.json(["inspect", "task"])[0]["status"].clone();
    assert_eq!((status(), file(&world)), (json!("completed"), "later\n".into()));
    let started = items(&world.json(["log", "--kind", "task-started"]))[0]["number"].clone();
    let point = format!("#{started}");
    let plan = world.json(["rewind", &point, "--task", "--dry-run"]);
    assert_eq!(plan["parts"][0]["part"], "task", "{plan:#}");
    assert_eq!(status(), "completed", "a plan changes nothing");
    world.ok(["rewind", &point, "--task"]);
    assert_eq!((status(), file(&world)), (json!("started"), "later\n".into()), "the files stay");
    world.ok(["undo", "--yes"]);
    assert_eq!(status(), "completed");
}

#[test]
fn the_tasks_of_claude_code_and_codex_go_back_and_the_answer_says_how_to_tell_them() {
    for (agent, tool) in [("claude", "TodoWrite"), ("codex", "update_plan")] {
        let world = Sandbox::new();
        hooked(&world, agent, tool);
        let ran = world.ok(["rewind", "before refactor", "--task"]);
        assert!(ran.err.contains("stepback inject 'The user took your task list back"), "{}", ran.err);
        assert_eq!((todo(&world), file(&world)), (json!("old"), "new".into()), "{agent}");
        world.ok(["undo"]);
        assert_eq!(todo(&world), "new");
        // Together with the files, as one operation.
        world.ok(["rewind", "before refactor", "--files", "--task", "--yes"]);
        assert_eq!((todo(&world), file(&world)), (json!("old"), "old".into()), "{agent}");
        world.ok(["undo", "--yes"]);
        assert_eq!((todo(&world), file(&world)), (json!("new"), "new".into()), "{agent}");
        let steps = items(&world.json(["log", "--kind", "state-change"]));
        assert!(steps.len() >= 4 && steps[0]["tool"] == "rewind", "{steps:?}");
    }
}

#[test]
fn the_conversation_goes_back_alone_with_the_command_to_run() {
    for (agent, tool, command) in
        [("claude", "TodoWrite", "claude --resume "), ("codex", "update_plan", "codex resume ")]
    {
        let world = Sandbox::new();
        hooked(&world, agent, tool);
        let before = world.json(["op", "log"]);
        let plan = world.ok(["rewind", "before refactor", "--conversation", "--dry-run"]);
        assert!(plan.out.contains("1 of 2 recorded messages"), "{}", plan.out);
        assert_eq!(world.json(["op", "log"]), before);
        let ran = world.ok(["rewind", "before refactor", "--conversation"]);
        assert!(ran.out.contains(command), "{}", ran.out);
        assert_eq!((todo(&world), file(&world)), (json!("new"), "new".into()));
        let at = |point: &str| world.json(["at", point])["slots"]["conversation"].clone();
        assert_eq!(at("@"), at("before refactor"));
        world.ok(["undo"]);
        assert_ne!(at("@"), at("before refactor"));
        // Both, with words that name the point, and from the step before a call.
        let ran = world.ok(["rewind", "before refactor", "--both", "--yes"]);
        assert!(ran.out.contains(command), "{}", ran.out);
        assert_eq!(file(&world), "old");
        world.ok(["undo", "--yes"]);
        world.ok(["rewind", "tool:Bash:last", "--conversation", "--task", "--files", "--yes"]);
        assert_eq!(file(&world), "old", "before the last call");
    }
}

#[test]
fn git_goes_back_alone_or_with_the_files() {
    let world = Sandbox::new();
    world.write("file", "one\n");
    world.init_git();
    world.ok(["checkpoint", "create", "before refactor"]);
    let first = world.git(&["rev-parse", "HEAD"]);
    world.write("file", "two, and longer\n");
    world.git(&["commit", "--quiet", "--all", "-m", "two"]);
    let second = world.git(&["rev-parse", "HEAD"]);
    let ran = world.ok(["rewind", "before refactor", "--git", "--yes"]);
    assert!(ran.err.contains("Rewind git to #1"), "{}", ran.err);
    assert_eq!(
        (world.git(&["rev-parse", "HEAD"]), file(&world)),
        (first.clone(), "two, and longer\n".into())
    );
    assert_eq!(world.git(&["status", "--short"]), " M file\n");
    world.ok(["undo", "--yes"]);
    assert_eq!((world.git(&["rev-parse", "HEAD"]), file(&world)), (second, "two, and longer\n".into()));
    world.ok(["rewind", "before refactor", "--files", "--git", "--yes"]);
    assert_eq!((world.git(&["rev-parse", "HEAD"]), file(&world)), (first, "one\n".into()));
    assert_eq!(world.git(&["status", "--short"]), "");
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let world = Sandbox::new();
    world.write("file", "1");
    world.ok(["checkpoint", "create", "first"]);
    world.run(["rewind", "first", "--memory"]).exits(4);
    hooked(&world, "claude", "TodoWrite");
    let refused = world.run(["rewind", "before refactor", "--memory"]).exits(4);
    assert!(refused.err.contains("has no recorded memory, neither at"), "{}", refused.err);
    assert!(refused.err.contains("Hint: "), "{}", refused.err);
    for words in [
        &["rewind", "--all", "--task"][..],
        &["rewind", "--last", "1", "--git"],
        &["rewind", "before refactor", "--all", "--task"],
        &["rewind", "before refactor", "--task", "--path", "file"],
        &["rewind", "before refactor", "--task", "--everything"],
        &["rewind", "before refactor", "--task", "--resume"],
        &["rewind", "--between", "first", "before refactor", "--memory"],
    ] {
        world.run(words).exits(2);
    }
    assert_eq!(todo(&world), "new");
    // A point of another workspace is no point here.
    let other = Sandbox::new();
    other.write("x", "1");
    other.ok(["checkpoint", "create", "elsewhere"]);
    let point = other.json(["at", "elsewhere"])["id"].as_str().unwrap().to_owned();
    world.run(["rewind", &format!("id:{point}"), "--task"]).exits(3);
    // Without a question, because files do not change.
    world.ok(["rewind", "before refactor", "--task", "--force"]);
    assert_eq!(todo(&world), "old");
}

#[test]
fn an_agent_takes_its_own_parts_back_with_tools() {
    let world = Sandbox::new();
    hooked(&world, "claude", "TodoWrite");
    let mut agent = Client::introduced(&world, "claude-code", &[]);
    let shown = agent.call("show", json!({ "point": "before refactor" }));
    assert_eq!(shown["sessions"][0]["task"]["todos"][0]["content"], "old", "{shown:#}");
    agent.call("hypothesis", json!({ "do": "propose", "statement": "it is the file" }));
    let plan =
        agent.call("rewind_plan", json!({ "to": "before refactor", "parts": ["task", "conversation"] }));
    let listed = plan["changes"].to_string();
    assert!(listed.contains("task list: todos becomes"), "{plan:#}");
    assert!(plan["warnings"].to_string().contains("--conversation"), "{plan:#}");
    let done = agent.call("rewind_apply", json!({ "plan": plan["plan"] }));
    assert!(done["parts"][0].as_str().unwrap().starts_with("task list: "), "{done:#}");
    assert_eq!((todo(&world), file(&world)), (json!("old"), "new".into()));
    let plan = agent.call("rewind_plan", json!({ "to": "before refactor", "parts": ["reasoning"] }));
    assert!(plan["changes"].to_string().contains("reasoning board: "), "{plan:#}");
    agent.call("rewind_apply", json!({ "plan": plan["plan"] }));
    assert_eq!(world.json(["board"])["hypotheses"], json!([]));
    for _ in 0..2 {
        let plan = agent.call("undo_plan", json!({}));
        agent.call("rewind_apply", json!({ "plan": plan["plan"] }));
    }
    assert_eq!(todo(&world), "new");
    assert_eq!(world.json(["board"])["hypotheses"][0]["statement"], "it is the file");
    let said = agent.refused("rewind_plan", json!({ "to": "before refactor", "parts": ["memory"] }));
    assert!(said.contains("has no recorded memory"), "{said}");
    agent.refused("rewind_plan", json!({ "last": 1, "parts": ["task"] }));
    let said = agent.refused("rewind_plan", json!({ "to": "before refactor", "parts": ["git"] }));
    assert!(said.contains("belongs to the whole workspace"), "{said}");
}
