//! `stepback cost`: tokens and money of recorded model calls.

use std::fs;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::talk::Talk;

/// A world in which the built-in agent read a file and answered, with usage that the script tells.
fn played() -> Sandbox {
    let world = Sandbox::new();
    world.write("notes.txt", "a line\n".repeat(150));
    let script = r#"{"turns": [
        {"text": "I read.", "calls": [{"tool": "read", "input": {"path": "notes.txt"}}], "usage": {"input": 1000, "output": 20}},
        {"text": "Done.", "usage": {"input": 2000, "output": 10}}]}"#;
    let file = world.home.join("script.json");
    fs::write(&file, script).unwrap();
    world.ok(["agent", "--provider", "scripted", file.to_str().unwrap(), "read the notes"]);
    world
}

fn row<'a>(document: &'a Value, label: &str) -> &'a Value {
    let rows = document["rows"].as_array().unwrap();
    rows.iter().find(|row| row["label"] == label).unwrap_or_else(|| panic!("no {label} in {document:#}"))
}

#[test]
fn what_has_no_price_is_unknown_until_it_gets_one() {
    let world = played();
    let before = world.json(["cost"]);
    assert_eq!((&before["total"]["input"], &before["total"]["output"]), (&json!(3000), &json!(30)));
    assert_eq!((&before["total"]["cost_usd"], &before["total"]["unpriced_calls"]), (&json!(0.0), &json!(2)));
    let model = before["rows"][0]["key"].as_str().unwrap().to_owned();
    assert_eq!(before["unpriced"], json!([{ "model": model, "calls": 2, "tokens": 3030 }]));
    let shown = world.ok(["cost"]);
    assert!(shown.err.contains("have no price") && shown.err.contains("prices.json"), "{}", shown.err);
    assert!(shown.out.contains('?'), "{}", shown.out);

    let prices = json!({ model.as_str(): { "input": 10.0, "output": 100.0 } });
    fs::write(world.store.join("prices.json"), prices.to_string()).unwrap();
    let after = world.json(["cost"]);
    assert_eq!((&after["total"]["cost_usd"], &after["total"]["priced_usd"]), (&json!(0.033), &json!(0.033)));
    let tools = world.json(["cost", "--by", "tool"]);
    let read = row(&tools, "read");
    assert_eq!(
        (&read["basis"], &read["calls"], &read["output"]),
        (&json!("inferred"), &json!(1), &json!(20))
    );
    // The second request has 1000 tokens more: 20 are the answer, and the file has the rest.
    assert_eq!(read["input"], 980);
    let sum: f64 =
        tools["rows"].as_array().unwrap().iter().map(|row| row["cost_usd"].as_f64().unwrap()).sum();
    assert!((sum - 0.033).abs() < 1e-9, "{tools:#}");
    for by in ["agent", "session", "branch", "prompt", "day"] {
        let report = world.json(["cost", "--by", by]);
        assert_eq!(report["rows"][0]["cost_usd"], 0.033, "{by}: {report:#}");
    }
    let session = world.json(["sessions"])["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(world.json(["cost", &session[..8]])["total"]["calls"], 2);
    assert_eq!(world.json(["cost", "--all-workspaces"])["total"]["calls"], 2);

    fs::write(world.store.join("prices.json"), "{\"m\": 3}").unwrap();
    let refused = world.run(["cost"]).exits(2);
    assert!(refused.err.contains("prices.json"), "{}", refused.err);
}

#[test]
fn usage_that_only_the_conversation_has_is_counted() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    world.ok(["checkpoint", "create"]);
    assert!(world.ok(["cost"]).err.contains("No model calls are recorded"));
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("go");
    let usage = json!({ "input_tokens": 1000, "cache_read_input_tokens": 10_000, "output_tokens": 100 });
    let line = |block: Value| {
        json!({ "type": "assistant", "uuid": block["type"], "timestamp": "2026-01-02T03:04:05Z",
            "message": { "role": "assistant", "id": "m1", "model": "claude-sonnet-4-5", "content": [block], "usage": usage } })
    };
    // Both blocks of one answer repeat its usage.
    agent.say(&[
        line(json!({ "type": "text", "text": "I look." })),
        line(json!({ "type": "tool_use", "id": "b1", "name": "Bash", "input": { "command": "ls" } })),
    ]);
    agent.pre("b1", "Bash", json!({ "command": "ls" }));
    agent.post("b1", "Bash", json!({ "command": "ls" }));
    let report = world.json(["cost"]);
    assert_eq!(report["total"]["calls"], 1, "{report:#}");
    // 1000 at $3, 10,000 at $0.30 and 100 at $15, per million
    assert_eq!(report["total"]["cost_usd"], 0.0075);
    assert_eq!(row(&world.json(["cost", "--by", "tool"]), "Bash")["output"], 100);
}

#[test]
fn hostile_names_do_not_reach_the_terminal() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    world.ok(["checkpoint", "create"]);
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("go \u{1b}[31mred");
    agent.say(&[json!({ "type": "assistant", "uuid": "u", "timestamp": "2026-01-02T03:04:05Z",
        "message": { "role": "assistant", "id": "m1", "model": "\u{1b}]0;title\u{7}evil", "content": [],
            "usage": { "input_tokens": 5, "output_tokens": 5 } } })]);
    agent.pre("b1", "Ba\u{1b}[2Jsh", json!({}));
    for by in ["model", "tool", "prompt", "session"] {
        let shown = world.ok(["cost", "--by", by]);
        assert!(!shown.out.contains('\u{1b}') && !shown.err.contains('\u{1b}'), "{}{}", shown.out, shown.err);
    }
}
