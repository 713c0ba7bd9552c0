//! Claude Code and our MCP server: it proposes, tests and rejects a hypothesis, its conversation is compacted, and it finds its
//! board again.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use stepback_model::time::Timestamp;
use stepback_testkit::mcp::Counterparts;
use stepback_testkit::model::{Script, ScriptedAgent, ScriptedCall, ScriptedTurn};

use crate::support::{AgentProject, items};

fn tool(name: &str, input: Value) -> ScriptedTurn {
    ScriptedTurn::call(ScriptedCall::named(&format!("mcp__stepback__{name}"), input))
}

/// The transcript of the session.
fn transcript(world: &AgentProject, session: &str) -> PathBuf {
    let projects = fs::read_dir(world.home.join(".claude/projects")).unwrap();
    let mut found = projects.map(|project| project.unwrap().path().join(format!("{session}.jsonl")));
    found.find(|path| path.exists()).unwrap()
}

#[test]
fn claude_finds_its_board_after_a_compaction() {
    const REASON: &str = "the flag in cache.txt says on";
    let world = AgentProject::new(&[("cache.txt", "on\n")]);
    // The person lets the agent use the tools without being asked.
    fs::create_dir_all(world.home.join(".claude")).unwrap();
    fs::write(world.home.join(".claude/settings.json"), r#"{"permissions":{"allow":["mcp__stepback"]}}"#)
        .unwrap();
    world.init(ScriptedAgent::Claude, &["--user", "--mcp"]);
    let claude = || world.hooked(ScriptedAgent::Claude);

    let hunt = Script::new([]).when(
        "why is the page old",
        [
            tool("hypothesis", json!({ "do": "propose", "statement": "the cache is off" })),
            tool("hypothesis", json!({ "do": "test", "hypothesis": "H1" })),
            tool("verify_add", json!({ "title": "the cache is off", "run": "grep -q off cache.txt", "hypothesis": "H1" })),
            tool("verify_run", json!({})),
            ScriptedTurn::shell("cat cache.txt"),
            tool("evidence", json!({ "hypothesis": "H1", "text": "cache.txt says on", "strength": -0.9, "step": "tool:Bash:last" })),
            // A frozen clock goes a second further whenever somebody looks at it, and is looked at more than once.
            ScriptedTurn::shell("sleep 5"),
            tool("hypothesis", json!({ "do": "reject", "hypothesis": "H1", "because": REASON })),
            tool("gap", json!({ "do": "add", "text": "who writes the page?", "criticality": "high" })),
            ScriptedTurn::text("It is not the cache."),
        ],
    );
    let first = claude().script(hunt).run("why is the page old?").succeeds();
    let session = first.session();
    let results = first.turns()[9].body["messages"].to_string();
    assert!(!results.contains("\"is_error\":true"), "{results}");
    assert_eq!(items(&world.json(&["log", "--kind", "tool-end"])).len(), 9);
    let board = world.json(&["board", "--session", &session]);
    assert_eq!(board["hypotheses"][0]["status"], "rejected", "{board:#}");
    assert_eq!(world.session(&session)["id"], board["session"], "the board is that of the session");
    // Joined to the calls it came from.
    let during = |item: &Value| item["origin"]["during"].is_string();
    assert!(during(&board["hypotheses"][0]) && during(&board["gaps"][0]), "{board:#}");
    let before = fs::read_to_string(transcript(&world, &session)).unwrap();
    // Ten minutes after its last evidence: what it believed then, before it had concluded anything.
    let weighed = board["evidence"].as_array().unwrap().last().unwrap();
    let weighed: Timestamp = serde_json::from_value(weighed["origin"]["at"].clone()).unwrap();
    let later = Timestamp::from_micros(weighed.as_micros() + 600_000_000);
    let then = world.stepback_at(later, &["board", "10 minutes ago", "--session", &session]);
    assert!(then.contains("H1") && then.contains("cache.txt says on"), "{then}");
    assert!(!then.contains("rejected") && !then.contains("who writes the page?"), "{then}");

    // The model forgets everything but one sentence.
    let forget =
        Script::new([]).when("summary", [ScriptedTurn::text("<summary>Some page is old.</summary>")]);
    claude().resume(&session).script(forget).run("/compact").succeeds();
    let states = world.json(&["log", "--kind", "state-change"]);
    assert!(
        items(&states).iter().any(|step| step["summary"] == "the conversation was compacted"),
        "{states:#}"
    );

    let again = Script::new([]).when(
        "where did we stand",
        [tool("recover", json!({})), ScriptedTurn::text("I know where I stood.")],
    );
    let last = claude().resume(&session).script(again).run("where did we stand?").succeeds();
    let turns = last.turns();
    assert_eq!(turns.len(), 2);
    let said = |turn: usize| turns[turn].body["messages"].to_string();
    assert!(!said(0).contains(REASON), "what was compacted is gone from the conversation: {}", said(0));
    assert!(said(0).contains("Some page is old."), "{}", said(0));
    for known in [REASON, "H1", "rejected", "who writes the page?", "why is the page old?"] {
        assert!(said(1).contains(known), "{known} is not in {}", said(1));
    }
    assert_eq!(
        world.json(&["board", "--session", &session])["hypotheses"],
        board["hypotheses"],
        "nothing was lost"
    );
    world.has_no_gap();

    let counterparts = Counterparts::installed();
    let after = fs::read_to_string(transcript(&world, &session)).unwrap();
    counterparts.keep("claude-before-compaction.jsonl", &before);
    counterparts.keep("claude-after-compaction.jsonl", &after);
    counterparts.keep("claude-ten-minutes-ago.txt", &then);
    counterparts.keep("claude-board.txt", &world.stepback(&["board", "--all", "--session", &session]));
    counterparts.keep("claude-recovery.md", &world.stepback(&["board", "recover", "--session", &session]));
}

/// What the agent changes on the branch of its experiment is its own, so that nothing is in the way back.
#[test]
fn claude_tries_something_out_on_a_branch() {
    let world = AgentProject::new(&[("cache.txt", "on\n"), ("notes.txt", "mine\n")]);
    fs::create_dir_all(world.home.join(".claude")).unwrap();
    fs::write(world.home.join(".claude/settings.json"), r#"{"permissions":{"allow":["mcp__stepback"]}}"#)
        .unwrap();
    world.init(ScriptedAgent::Claude, &["--user", "--mcp"]);
    let script = Script::new([
        tool("hypothesis", json!({ "do": "propose", "statement": "it is the cache" })),
        tool(
            "experiment",
            json!({ "do": "start", "branch": "no-cache", "hypothesis": "H1", "success": "it is fast" }),
        ),
        ScriptedTurn::shell("echo off > cache.txt && echo fast > result.txt"),
        tool(
            "experiment",
            json!({ "do": "end", "experiment": "X1", "outcome": "succeeded", "result": "it is fast" }),
        ),
        tool("switch_plan", json!({ "branch": "main", "reasoning": true })),
        ScriptedTurn::text("It was the cache."),
    ]);
    let run = world.hooked(ScriptedAgent::Claude).script(script).run("make it fast").succeeds();
    let results = run.turns()[5].body["messages"].to_string();
    assert!(!results.contains("\"is_error\":true"), "{results}");
    assert!(results.contains("switch to branch main") && results.contains("restore cache.txt"), "{results}");
    assert!(results.contains("delete result.txt") && !results.contains("notes.txt"), "{results}");
    let board = world.json(&["board", "--session", &run.session()]);
    assert_eq!(board["experiments"][0]["status"], "succeeded", "{board:#}");
    world.stepback(&["branch", "switch", "main", "--yes"]);
    assert_eq!(fs::read_to_string(world.work.join("cache.txt")).unwrap(), "on\n");
    assert!(!world.work.join("result.txt").exists());
    world.has_no_gap();
}

/// The settings that `init --mcp` writes are those the agent reads: it starts the server, and its model can call a tool.
fn takes_a_note(agent: ScriptedAgent, tool: &str) {
    let world = AgentProject::new(&[("a.txt", "a\n")]);
    world.init(agent, &["--user", "--mcp"]);
    let note = ScriptedCall::named(tool, json!({ "text": "written by a tool" }));
    let script = Script::new([ScriptedTurn::call(note), ScriptedTurn::text("Noted.")]);
    let run = world.hooked(agent).script(script).run("take a note").succeeds();
    let board = world.json(&["board", "--session", &run.session()]);
    assert_eq!(board["notes"][0]["text"], "written by a tool", "{board:#}\n{}", run.stdout);
    world.has_no_gap();
}

#[test]
fn gemini_takes_a_note() {
    takes_a_note(ScriptedAgent::Gemini, "mcp_stepback_note");
}

#[test]
fn opencode_takes_a_note() {
    takes_a_note(ScriptedAgent::Opencode, "stepback_note");
}

/// Codex hands out tools of servers only to a model that searches for them, which ours does not; resources are there at once.
#[test]
fn codex_reads_its_board() {
    let world = AgentProject::new(&[("a.txt", "a\n")]);
    world.init(ScriptedAgent::Codex, &["--user", "--mcp"]);
    let board = json!({ "server": "stepback", "uri": "stepback://mind" });
    let script = Script::new([
        ScriptedTurn::call(ScriptedCall::named("read_mcp_resource", board)),
        ScriptedTurn::text("Empty."),
    ]);
    let run = world.hooked(ScriptedAgent::Codex).script(script).run("read your board").succeeds();
    let last = run.turns()[1].body["input"].to_string();
    assert!(last.contains("The board is empty"), "{last}");
    world.has_no_gap();
}
