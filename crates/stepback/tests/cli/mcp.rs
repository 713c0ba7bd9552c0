//! `stepback mcp`: the board, time travel, whose session it is, and what it tells.

use std::fs;

use serde_json::{Value, json};

use crate::mcp_client::Client;
use crate::sandbox::Sandbox;
use crate::talk::Talk;

/// A hunt for a bug, from the first suspicion to the page after a compaction.
#[test]
fn a_board_is_kept_by_tools() {
    let world = Sandbox::new();
    world.write("cache.txt", "on\n");
    let mut agent = Client::introduced(&world, "test", &[]);
    let proposed = agent.call("hypothesis", json!({ "do": "propose", "statement": "the cache is stale" }));
    assert_eq!(proposed["item"], "H1");
    agent.call("hypothesis", json!({ "do": "test", "hypothesis": "H1" }));
    agent.call(
        "gap",
        json!({ "do": "add", "text": "which version?", "criticality": "high", "blocks": ["H1"] }),
    );
    let next = agent.call("next", json!({}));
    assert_eq!(next["actions"][0]["item"], "G1", "{next:#}");
    agent.call(
        "verify_add",
        json!({ "title": "the cache is off", "file": "cache.txt", "text": "off", "hypothesis": "H1", "strength": 0.9 }),
    );
    let run = agent.call("verify_run", json!({}));
    assert_eq!((&run["passed"], &run["checks"][0]["outcome"]), (&json!(false), &json!("failed")), "{run:#}");
    agent.call(
        "evidence",
        json!({ "hypothesis": "H1", "text": "it is on", "strength": -0.5, "code": "cache.txt:1" }),
    );
    agent.call("hypothesis", json!({ "do": "reject", "hypothesis": "H1", "because": "the cache is on" }));
    agent.call("belief", json!({ "do": "add", "statement": "5 to 20 ms", "kind": "expectation", "subject": "ms", "range": [5, 20] }));
    let seen = agent.call(
        "belief",
        json!({ "do": "add", "statement": "120 ms", "kind": "observation", "subject": "ms", "value": 120 }),
    );
    assert!(seen["said"].to_string().contains("contradict"), "{seen:#}");
    agent.call("belief", json!({ "do": "depend", "belief": "B2", "on": "B1", "strength": 0.5 }));
    let impact = agent.call("belief_impact", json!({ "belief": "B1" }));
    assert_eq!(impact["shaken"][0]["belief"], "B2");
    agent.call("contradiction", json!({ "do": "resolve", "contradiction": "C1", "text": "a cold start" }));
    agent.call("gap", json!({ "do": "fill", "gap": "G1", "text": "2.4.1" }));
    let note = agent.call("note", json!({ "text": "staging is a copy", "about": ["H1"] }));
    agent.call("mind_undo", json!({}));
    let parts = agent.call("mind", json!({ "parts": ["gaps"], "all": true }));
    assert_eq!((&parts["parts"][0]["title"], parts["parts"].as_array().unwrap().len()), (&json!("Gaps"), 1));
    let board = agent.call("mind", json!({ "all": true }));
    let shown = board.to_string();
    assert!(
        shown.contains("H1") && shown.contains("rejected") && !shown.contains("staging is a copy"),
        "{board:#}"
    );
    let one = agent.call("mind", json!({ "item": "H1" }));
    assert_eq!(one["item"]["status"], "rejected");
    let changed = agent.call("mind", json!({ "since": format!("#{}", note["step"].as_u64().unwrap()) }));
    assert!(changed["changes"].to_string().contains("N1"), "{changed:#}");
    let page = agent.call("recover", json!({ "budget": 400 }))["page"].as_str().unwrap().to_owned();
    assert!(page.contains("the cache is on") && page.len() < 400 * 5, "{page}");
    let origin = agent.call("why", json!({ "item": "H1" }));
    assert!(origin["origin"].to_string().contains("cache.txt:1"), "{origin:#}");
    // The same board as at the command line.
    let same = world.json(["board", "hypothesis", "list"]);
    assert_eq!(same["items"][0]["status"], "rejected", "{same:#}");
    assert!(agent.end().is_empty());
}

/// A recorded session, and a person who works beside it.
#[test]
fn an_agent_takes_back_its_own_changes() {
    let world = Sandbox::new();
    world.write("app.txt", "one\n");
    world.write("notes.txt", "mine\n");
    let talk = Talk::new(&world, "s1");
    talk.begin();
    talk.prompt("change the app");
    let mut agent = Client::introduced(&world, "claude-code", &[]);
    talk.pre("m1", "mcp__stepback__checkpoint", json!({ "label": "before" }));
    let kept = agent.call("checkpoint", json!({ "label": "before" }));
    talk.post("m1", "mcp__stepback__checkpoint", json!({ "label": "before" }));
    talk.write("w1", "app.txt", "two\n");
    talk.write("w2", "made.txt", "made\n");
    world.write("notes.txt", "mine, and more\n");
    talk.bash("b1", "cat app.txt", || {});

    let steps = agent.call("timeline", json!({ "kinds": ["tool-start"], "limit": 2 }));
    assert_eq!(steps["steps"][0]["tool"], "Bash", "{steps:#}");
    let cursor = steps["next_cursor"].clone();
    let older = agent.call("timeline", json!({ "kinds": ["tool-start"], "limit": 2, "cursor": cursor }));
    assert_eq!(older["steps"][0]["tool"], "Write", "{older:#}");
    let said = agent.refused("timeline", json!({ "kinds": ["tool-end"], "cursor": cursor }));
    assert!(said.contains("cursor"), "{said}");

    let shown = agent.call("show", json!({ "point": "tool:Write:last" }));
    assert_eq!(shown["input"]["content"], "made\n", "{shown:#}");
    let differs = agent.call("diff", json!({ "from": "before", "lines": true }));
    assert_eq!(differs["total"], 3, "{differs:#}");
    assert!(differs.to_string().contains("+two"), "{differs:#}");
    let found = agent.call("search", json!({ "query": "made.txt", "substring": true }));
    assert!(found["total"].as_u64().unwrap() > 0, "{found:#}");
    let why = agent.call("why", json!({ "path": "app.txt" }));
    assert_eq!(why["changes"][0]["prompt"], "change the app", "{why:#}");

    let plan = agent.call("rewind_plan", json!({ "to": "before" }));
    let planned = plan["changes"].to_string();
    assert!(
        planned.contains("app.txt") && planned.contains("made.txt") && !planned.contains("notes"),
        "{plan:#}"
    );
    assert_eq!(fs::read_to_string(world.path("app.txt")).unwrap(), "two\n", "a plan changes nothing");
    // What is not what was planned is not done.
    world.write("app.txt", "three\n");
    let said = agent.refused("rewind_apply", json!({ "plan": plan["plan"] }));
    assert!(said.contains("the workspace changed"), "{said}");
    world.write("app.txt", "two\n");
    let plan = agent.call("rewind_plan", json!({ "to": "before" }));
    let done = agent.call("rewind_apply", json!({ "plan": plan["plan"] }));
    assert_eq!(done["done"], 2, "{done:#}");
    assert_eq!(fs::read_to_string(world.path("app.txt")).unwrap(), "one\n");
    assert_eq!(fs::read_to_string(world.path("notes.txt")).unwrap(), "mine, and more\n", "not the agent's");
    assert!(!world.path("made.txt").exists());
    let said = agent.refused("rewind_apply", json!({ "plan": plan["plan"] }));
    assert!(said.contains("unknown plan"), "{said}");
    world.ok(["undo", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("app.txt")).unwrap(), "two\n");

    let branches = agent.call("branch", json!({ "name": "try", "at": format!("#{}", kept["step"]) }));
    assert_eq!(branches["branches"].as_array().unwrap().len(), 2, "{branches:#}");
    let compared = agent.call("compare", json!({ "a": "before", "b": "@" }));
    assert!(compared["files"].to_string().contains("app.txt"), "{compared:#}");
    assert!(agent.end().is_empty());
    world.expect_sound("after a rewind by tools");
}

/// The board and files go back together when that is asked for.
#[test]
fn the_board_goes_back_with_the_files() {
    let world = Sandbox::new();
    world.write("a", "1\n");
    let talk = Talk::new(&world, "s1");
    talk.begin();
    talk.prompt("go");
    let mut agent = Client::introduced(&world, "claude-code", &[]);
    agent.call("hypothesis", json!({ "do": "propose", "statement": "it is a" }));
    let kept = agent.call("checkpoint", json!({}));
    agent.call("hypothesis", json!({ "do": "reject", "hypothesis": "H1" }));
    talk.write("w1", "a", "2\n");
    let plan = agent.call("rewind_plan", json!({ "to": format!("#{}", kept["step"]), "reasoning": true }));
    let done = agent.call("rewind_apply", json!({ "plan": plan["plan"] }));
    assert!(done["board"].to_string().contains("H1"), "{done:#}");
    assert_eq!(agent.call("mind", json!({ "item": "H1" }))["item"]["status"], "active");
}

#[test]
fn nobody_changes_a_session_of_others() {
    let world = Sandbox::new();
    world.write("a", "1\n");
    let (ours, mut theirs) = (Talk::new(&world, "ours-1"), Talk::new(&world, "theirs-1"));
    theirs.agent = "codex";
    for talk in [&ours, &theirs] {
        talk.begin();
        talk.prompt("go");
    }
    ours.write("w0", "a", "0\n");
    theirs.bash("b1", "echo 2 > b", || world.write("b", "2\n"));

    // Two are at work, and the name of the client tells which one asks.
    let mut agent = Client::introduced(&world, "claude-code", &[]);
    agent.call("hypothesis", json!({ "do": "propose", "statement": "mine" }));
    let said = agent.refused("note", json!({ "text": "x", "session": "theirs-1" }));
    assert!(said.contains("is not yours") && said.contains("--allow-others"), "{said}");
    let said =
        agent.refused("hypothesis", json!({ "do": "reject", "hypothesis": "H1", "session": "theirs-1" }));
    assert!(said.contains("is not yours"), "{said}");
    let said = agent.refused("rewind_plan", json!({ "last": 1, "session": "theirs-1" }));
    assert!(said.contains("is not yours"), "{said}");
    let said = agent.refused("checkpoint", json!({ "label": "x", "session": "theirs-1" }));
    assert!(said.contains("is not yours"), "{said}");
    // To look is allowed, and to name oneself.
    agent.call("mind", json!({ "session": "theirs-1" }));
    agent.call("note", json!({ "text": "mine too", "session": "ours-1" }));
    // What others changed stays, wherever one goes back to.
    let first = ours.steps()[0]["number"].as_u64().unwrap();
    let plan = agent.call("rewind_plan", json!({ "to": format!("#{first}") }));
    assert!(!plan["changes"].to_string().contains(" b"), "{plan:#}");
    agent.call("rewind_apply", json!({ "plan": plan["plan"] }));
    assert_eq!(fs::read_to_string(world.path("a")).unwrap(), "1\n");
    assert_eq!(fs::read_to_string(world.path("b")).unwrap(), "2\n");

    // Somebody unknown is not told apart, except by the call that is open.
    let mut unknown = Client::introduced(&world, "somebody", &[]);
    let said = unknown.refused("mind", json!({}));
    assert!(said.contains("2 agents are running") && said.contains("--session"), "{said}");
    theirs.pre("m1", "mcp__stepback__mind", json!({}));
    unknown.call("note", json!({ "text": "theirs" }));
    theirs.post("m1", "mcp__stepback__mind", json!({}));
    assert!(world.ok(["board", "--session", "theirs-1"]).out.contains("theirs"));

    // Of an agent that is not recorded, nobody takes the session of another one for its own.
    let mut gemini = Client::introduced(&world, "gemini-cli-mcp-client", &[]);
    gemini.call("note", json!({ "text": "on the person's board" }));
    for session in ["ours-1", "theirs-1"] {
        assert!(!world.ok(["board", "--session", session]).out.contains("the person's board"));
    }
    let mut named = Client::introduced(&world, "somebody", &["--session", "theirs-1"]);
    assert!(named.call("mind", json!({})).to_string().contains("theirs"));
    let mut by_env = Client::started(&world, &[], &[("CLAUDE_CODE_SESSION_ID", "ours-1")]);
    by_env.introduce("somebody");
    assert!(by_env.call("mind", json!({})).to_string().contains("mine"));
    let mut trusted = Client::introduced(&world, "claude-code", &["--allow-others"]);
    trusted.call("note", json!({ "text": "from the other", "session": "theirs-1" }));
    assert!(world.ok(["board", "--session", "theirs-1"]).out.contains("from the other"));
}

/// A plan is in the store: it outlives the server that showed it.
#[test]
fn a_plan_of_an_agent_is_applied_by_the_user_and_by_another_server() {
    let world = Sandbox::new();
    world.write("app.txt", "one\n");
    world.ok(["checkpoint", "create", "before"]);
    let talk = Talk::new(&world, "s1");
    talk.begin();
    talk.prompt("change the app");
    talk.write("w1", "app.txt", "two\n");
    let app = || fs::read_to_string(world.path("app.txt")).unwrap();
    let plan = |question: Value| {
        let mut agent = Client::introduced(&world, "claude-code", &[]);
        let plan = agent.call("rewind_plan", question)["plan"].as_str().unwrap().to_owned();
        assert!(agent.end().is_empty());
        plan
    };
    let id = plan(json!({ "to": "before" }));
    let shown = world.ok(["rewind", "--plan", &id, "--dry-run"]);
    assert!(shown.out.contains("restore app.txt"), "{shown:?}");
    world.write("app.txt", "three\n");
    let refused = world.run(["rewind", "--plan", &id]).exits(9);
    assert!(refused.err.contains("the workspace changed since the plan was made"), "{refused:?}");
    assert_eq!(app(), "three\n");
    world.write("app.txt", "two\n");
    world.ok(["rewind", "--plan", &id]);
    assert_eq!(app(), "one\n");
    world.run(["rewind", "--plan", &id]).exits(4);
    world.ok(["undo"]);
    assert_eq!(app(), "two\n");
    let id = plan(json!({ "last": 1 }));
    let mut other = Client::introduced(&world, "claude-code", &[]);
    other.call("rewind_apply", json!({ "plan": id }));
    assert_eq!(app(), "one\n");
}

#[test]
fn who_is_not_recorded_takes_nothing_back() {
    let world = Sandbox::new();
    world.write("a", "1\n");
    world.ok(["checkpoint", "create", "begin"]);
    world.write("a", "2\n");
    let mut agent = Client::introduced(&world, "somebody", &[]);
    let said = agent.refused("rewind_plan", json!({ "to": "begin" }));
    assert!(said.contains("no recorded session of yours"), "{said}");
    let mut trusted = Client::introduced(&world, "somebody", &["--allow-others"]);
    let plan = trusted.call("rewind_plan", json!({ "to": "begin" }));
    trusted.call("rewind_apply", json!({ "plan": plan["plan"] }));
    assert_eq!(fs::read_to_string(world.path("a")).unwrap(), "1\n");
}

#[test]
fn resources_and_prompts_tell_what_happened() {
    let world = Sandbox::new();
    world.write("dir/é.txt", "then\n");
    world.write("bin", b"\0\x01");
    let talk = Talk::new(&world, "s1");
    talk.begin();
    talk.prompt("do it");
    talk.write("w1", "dir/é.txt", "now\n");
    talk.event(
        "PostToolUseFailure",
        json!({ "tool_name": "Bash", "tool_input": { "command": "make" }, "tool_use_id": "b1", "error": "no rule to make it" }),
    );
    let mut agent = Client::introduced(&world, "claude-code", &[]);
    agent.call("hypothesis", json!({ "do": "propose", "statement": "no Makefile" }));
    let read = |agent: &mut Client, uri: &str| -> String {
        let answer = agent.ask("resources/read", json!({ "uri": uri }));
        let text = answer["result"]["contents"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{uri}: {answer:#}")).to_owned()
    };
    let listed = agent.ask("resources/list", json!({}));
    let uris: Vec<&str> = listed["result"]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["uri"].as_str().unwrap())
        .collect();
    assert_eq!(uris[..3], ["stepback://mind", "stepback://recovery", "stepback://sessions"]);
    assert!(uris[3].starts_with("stepback://session/"), "{uris:?}");
    assert!(read(&mut agent, uris[3]).contains("do it"));
    for uri in &uris {
        read(&mut agent, uri);
    }
    assert!(read(&mut agent, "stepback://mind").contains("no Makefile"));
    assert!(read(&mut agent, "stepback://mind/1%20hour%20ago").contains("The board is empty"));
    assert_eq!(read(&mut agent, "stepback://file/tool:Write:last/dir/%C3%A9.txt"), "then\n");
    assert_eq!(read(&mut agent, "stepback://file/@/dir/é.txt"), "now\n");
    assert!(read(&mut agent, "stepback://file/@/bin").contains("binary: 2 bytes"));
    assert!(read(&mut agent, "stepback://step/error:last").contains("no rule to make it"));
    for uri in [
        "stepback://file/@/../../etc/passwd",
        "stepback://file/@/nothing",
        "stepback://step/x",
        "stepback://",
    ] {
        assert_eq!(agent.ask("resources/read", json!({ "uri": uri }))["error"]["code"], -32002, "{uri}");
    }
    let prompt = |agent: &mut Client, name: &str| -> String {
        let answer = agent.ask("prompts/get", json!({ "name": name }));
        answer["result"]["messages"][0]["content"]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer:#}"))
            .to_owned()
    };
    assert!(prompt(&mut agent, "explain-failure").contains("no rule to make it"));
    assert!(prompt(&mut agent, "post-mortem").contains("no Makefile"));
    assert!(prompt(&mut agent, "recover-after-compaction").contains("do it"));
    let begun = agent.ask(
        "completion/complete",
        json!({ "ref": { "type": "ref/prompt", "name": "explain-failure" }, "argument": { "name": "point", "value": "err" } }),
    );
    assert_eq!(begun["result"]["completion"]["values"], json!(["error:last"]), "{begun:#}");
}

/// Answers stay small, whatever there is to tell.
#[test]
fn answers_are_small_unless_asked_for() {
    let world = Sandbox::new();
    let talk = Talk::new(&world, "s1");
    talk.begin();
    talk.prompt(&"a very long prompt ".repeat(2000));
    for number in 0..60 {
        talk.write(&format!("w{number}"), &format!("file-{number}.txt"), &"line\n".repeat(2000));
    }
    let mut agent = Client::introduced(&world, "claude-code", &[]);
    for number in 0..80 {
        agent.call("note", json!({ "text": format!("note {number}: {}", "word ".repeat(300)) }));
    }
    let cases = [
        ("timeline", json!({})),
        ("show", json!({ "point": "tool:Write:last" })),
        ("search", json!({ "query": "line" })),
        ("diff", json!({ "from": "tool:Write:1", "lines": true })),
        ("mind", json!({})),
        ("recover", json!({})),
        ("why", json!({ "path": "*.txt" })),
        ("rewind_plan", json!({ "to": "tool:Write:1" })),
    ];
    for (tool, arguments) in cases {
        let size = agent.call(tool, arguments).to_string().len();
        assert!(size < 12_000, "{tool}: {size} bytes");
    }
    let tools = json!(agent.tools).to_string().len();
    assert!(tools < 52_000, "the list of tools takes {tools} bytes");
    let mut seen = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let mut arguments = json!({ "from": "tool:Write:1", "limit": 7 });
        if cursor.is_string() {
            arguments["cursor"] = cursor;
        }
        let page = agent.call("diff", arguments);
        seen.extend(page["files"].as_array().unwrap().iter().map(|file| file["path"].to_string()));
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    let all = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((all, seen.len()), (60, 60));
}

#[test]
fn the_settings_of_every_agent_take_the_server_and_give_it_back() {
    let world = Sandbox::new();
    world.write("a", "1\n");
    world.init_git();
    let files = |world: &Sandbox| (stepback_testkit::tree::copy_of(&world.home, |_| false), world.files());
    fs::create_dir_all(world.home.join(".codex")).unwrap();
    fs::write(world.home.join(".codex/config.toml"), "model = \"m\" # mine\n\n[tui]\nx = 1\n").unwrap();
    fs::write(
        world.home.join(".claude.json"),
        "{\"numStartups\":3,\"mcpServers\":{\"other\":{\"command\":\"x\"}}}",
    )
    .unwrap();
    let before = files(&world);
    for scope in [&[][..], &["--user"]] {
        for agent in ["claude", "codex", "gemini", "opencode"] {
            let words = [&["init", "--agent", agent, "--mcp"], scope].concat();
            let done = world.json(&words);
            assert_eq!(done["items"].as_array().unwrap().len(), 2, "{done:#}");
            let installed = files(&world);
            let again = world.json(&words);
            assert_eq!(again["items"][1]["changed"], false, "{again:#}");
            assert_eq!(files(&world), installed, "to install twice changes nothing");
            world.ok([&["init", "--agent", agent, "--uninstall"], scope].concat());
            assert_eq!(files(&world), before, "{agent} {scope:?}");
        }
    }
    world.ok(["init", "--user", "--mcp", "--agent", "claude", "--agent", "codex"]);
    let claude: Value = serde_json::from_slice(&fs::read(world.home.join(".claude.json")).unwrap()).unwrap();
    assert_eq!(claude["mcpServers"]["stepback"]["args"], json!(["mcp"]), "{claude:#}");
    assert_eq!(claude["mcpServers"]["other"]["command"], "x");
    let codex = fs::read_to_string(world.home.join(".codex/config.toml")).unwrap();
    assert!(
        codex.starts_with("model = \"m\" # mine\n\n[tui]\nx = 1\n\n[mcp_servers.stepback]\ncommand = "),
        "{codex}"
    );
    // Somebody else's server of that name, and settings that are broken.
    fs::write(world.home.join(".claude.json"), "{\"mcpServers\":{\"stepback\":{\"command\":\"other\"}}}")
        .unwrap();
    let ran = world.run(["init", "--user", "--mcp", "--agent", "claude"]).exits(9);
    assert!(ran.err.contains("another server is named"), "{}", ran.err);
    fs::write(world.home.join(".codex/config.toml"), "model = \n").unwrap();
    let ran = world.run(["init", "--user", "--mcp", "--agent", "codex"]).exits(9);
    assert!(ran.err.contains("is invalid"), "{}", ran.err);
}

/// What hooks know of our tools is what the tools say of themselves.
#[test]
fn tools_that_only_look_are_known_to_the_hooks() {
    let world = Sandbox::new();
    let agent = Client::introduced(&world, "test", &[]);
    assert_eq!(agent.tools.len(), 32);
    for tool in &agent.tools {
        let name = format!("mcp__stepback__{}", tool["name"].as_str().unwrap());
        let changes = stepback_agents::tools::can_change(stepback_agents::Agent::Claude, &name);
        assert_eq!(tool["annotations"]["readOnlyHint"], !changes, "{name}");
    }
    let dangerous = agent.tools.iter().filter(|tool| tool["annotations"]["destructiveHint"] == true);
    let names: Vec<&Value> = dangerous.map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["verify_run", "rewind_apply"]);
}
