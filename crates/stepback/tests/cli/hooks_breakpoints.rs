//! Breakpoints on the size of the context, hit conditions, and the messages of log points.

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::talk::{Talk, items, of_kind};

fn started(session: &str) -> Sandbox {
    let world = Sandbox::new();
    world.write("file", "base\n");
    world.ok(["checkpoint", "create"]);
    world.ok(["settings", "breakpoint.seconds", "0"]);
    let agent = Talk::new(&world, session);
    agent.begin();
    agent.prompt("go");
    world
}

/// Whether a call of Bash is refused, because it stopped and the user did not answer.
fn is_stopped(agent: &Talk<'_>, id: &str, command: &str) -> bool {
    let input = json!({ "command": command });
    let stopped = agent.pre(id, "Bash", input.clone()).out.contains("deny");
    if !stopped {
        agent.post(id, "Bash", input);
    }
    stopped
}

/// The model's answer that requests a call, with what it counted.
fn answer(id: &str, usage: Value) -> Value {
    let call = json!({ "type": "tool_use", "id": id, "name": "Bash", "input": { "command": "x" } });
    json!({ "type": "assistant", "uuid": format!("u-{id}"), "timestamp": "2026-01-01T00:00:00Z",
        "message": { "role": "assistant", "id": format!("m-{id}"), "model": "a-model", "content": [call], "usage": usage } })
}

#[test]
fn an_agent_stops_when_its_context_is_large() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    world.ok(["breakpoint", "add", "tokens", "1000"]);
    assert!(!is_stopped(&agent, "b0", "x"), "no answer, no tokens");
    agent.say(&[answer(
        "b1",
        json!({ "input_tokens": 10, "cache_read_input_tokens": 900, "output_tokens": 89 }),
    )]);
    assert!(!is_stopped(&agent, "b1", "x"), "999 tokens");
    agent.say(&[answer(
        "b2",
        json!({ "input_tokens": 1, "cache_creation_input_tokens": 900, "output_tokens": 99 }),
    )]);
    assert!(is_stopped(&agent, "b2", "x"), "1000 tokens");
    assert!(!is_stopped(&agent, "b3", "x"), "a size is reached once");
    let listed = items(&world.json(["breakpoint", "list"]));
    assert_eq!(
        (&listed[0]["on"], &listed[0]["number"], &listed[0]["enabled"]),
        (&json!("tokens"), &json!(1000), &json!(false))
    );
    world.run(["breakpoint", "add", "tokens", "many"]).exits(2);
    world.run(["breakpoint", "add", "tokens"]).exits(2);
}

/// Reports what an answer of opencode used, in another session of the workspace.
fn spend(world: &Sandbox, id: &str, tokens: u64, cost: f64) {
    let agent = Talk { agent: "opencode", ..Talk::new(world, "other") };
    let info = json!({ "id": id, "role": "assistant", "modelID": "m", "cost": cost,
        "tokens": { "input": tokens, "output": 0, "reasoning": 0, "cache": { "read": 0, "write": 0 } } });
    agent.event("message.updated", json!({ "properties": { "info": info } }));
}

#[test]
fn budgets_add_up_all_sessions_of_the_workspace() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    for (kind, amount, per) in [
        ("cost", "2", "session"),
        ("cost", "2", "workspace"),
        ("tokens", "5000", "day"),
        ("tokens", "9000", "session"),
    ] {
        world.ok(["breakpoint", "add", kind, amount, "--per", per]);
    }
    assert!(!is_stopped(&agent, "b0", "x"), "nothing was used");
    spend(&world, "a", 1000, 1.5);
    assert!(!is_stopped(&agent, "b1", "x"), "$1.50 and 1000 tokens");
    spend(&world, "b", 3999, 0.5);
    let stops = || {
        let listed = items(&world.json(["breakpoint", "list"]));
        listed
            .iter()
            .filter(|one| one["hits"] != 0)
            .map(|one| one["id"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert!(is_stopped(&agent, "b2", "x"), "$2 of the workspace");
    assert_eq!(stops(), [2], "the session itself has used nothing");
    assert!(!is_stopped(&agent, "b3", "x"), "a budget is used up once");
    spend(&world, "c", 1, 0.0);
    assert!(is_stopped(&agent, "b4", "x"), "5000 tokens today");
    assert!(!is_stopped(&agent, "b5", "x"), "once a day");
    let listed = items(&world.json(["breakpoint", "list"]));
    let day = listed.iter().find(|one| one["per"] == "day").unwrap();
    assert_eq!((&day["enabled"], &day["hits"]), (&json!(true), &json!(1)), "tomorrow is another day");
    assert!(day["reached_on"].as_i64().unwrap() > 0);
    for wrong in
        [["tool", "Bash", "--per", "day"], ["cost", "1", "--per", "month"], ["tokens", "0", "--per", "day"]]
    {
        world.run(["breakpoint", "add"].into_iter().chain(wrong)).exits(2);
    }
}

#[test]
fn hit_conditions_choose_hits() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    for (pattern, hits) in [("exactly", "=2"), ("from", ">=3"), ("later", "3"), ("every", "%2")] {
        world.ok(["breakpoint", "add", "tool", "Bash", "--condition", pattern, "--hits", hits]);
    }
    for (command, expected) in [
        ("exactly", [false, true, false, false]),
        ("from", [false, false, true, true]),
        ("LATER", [false, false, true, true]),
        ("every", [false, true, false, true]),
    ] {
        let stopped = [1, 2, 3, 4].map(|n| is_stopped(&agent, &format!("{command}{n}"), command));
        assert_eq!(stopped, expected, "{command}");
    }
    let mut listed = items(&world.json(["breakpoint", "list"]));
    listed.reverse();
    let conditions: Vec<_> = listed.iter().map(|one| one["hit_condition"].as_str().unwrap()).collect();
    assert_eq!(conditions, ["=2", ">=3", ">=3", "%2"]);
    assert!(listed.iter().all(|one| one["hits"] == 4), "every hit is counted");
    let text = world.ok(["breakpoint", "list"]).out;
    for words in ["only hit 2", "from hit 3 on", "every 2 hits"] {
        assert!(text.contains(words), "{text}");
    }
    for wrong in ["0", "=0", "<2", "x", ""] {
        let ran = world.run(["breakpoint", "add", "error", "--hits", wrong]).exits(2);
        assert!(ran.err.contains("every Nth"), "{}", ran.err);
    }
}

#[test]
fn log_points_record_a_message() {
    let world = started("s1");
    let agent = Talk::new(&world, "s1");
    let message = "{tool} {hits}: {input.command} with {tokens} tokens {{{iteration}}}";
    world.ok(["breakpoint", "add", "tool", "bash", "--log-message", message]);
    agent.say(&[answer("b1", json!({ "input_tokens": 40, "output_tokens": 2 }))]);
    assert!(!is_stopped(&agent, "b1", "make test"), "a log point does not stop");
    let hit = &of_kind(&world, "breakpoint-hit")[0];
    assert_eq!(hit["summary"], "log point 1: Bash 1: make test with 42 tokens {1}");
    let wrong = world.run(["breakpoint", "add", "error", "--log-message", "{moon}"]).exits(2);
    assert!(wrong.err.contains("{moon}") && wrong.err.contains("{input.FIELD}"), "{}", wrong.err);
}
