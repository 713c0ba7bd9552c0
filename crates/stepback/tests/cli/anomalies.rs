//! What is unusual in a session: reports, marks, settings, and breakpoints that stop the agent.

use serde_json::json;

use crate::sandbox::Sandbox;
use crate::talk::{Talk, items};

fn started(world: &Sandbox, session: &str) {
    world.write("file", "base\n");
    world.ok(["checkpoint", "create"]);
    world.ok(["settings", "breakpoint.seconds", "0"]);
    let agent = Talk::new(world, session);
    agent.begin();
    agent.prompt("go");
}

/// A search that always has the same result.
fn search(agent: &Talk<'_>, id: &str) -> String {
    let input = json!({ "pattern": "nowhere" });
    agent.pre(id, "Grep", input.clone());
    agent.post(id, "Grep", input).out
}

#[test]
fn a_loop_is_reported_once_with_its_evidence() {
    let world = Sandbox::new();
    started(&world, "s1");
    let agent = Talk::new(&world, "s1");
    (0..7).for_each(|round| drop(search(&agent, &format!("g{round}"))));
    let found = world.json(["anomalies"]);
    let listed = items(&found);
    assert_eq!(listed.len(), 1, "{found}");
    let one = &listed[0];
    assert_eq!(
        (&one["kind"], &one["severity"], &one["basis"]),
        (&json!("loop"), &json!("low"), &json!("inferred"))
    );
    assert_eq!((&one["measured"], &one["limit"], &one["count"]), (&json!(7.0), &json!(5.0), &json!(7)));
    assert_eq!(one["steps"].as_array().map(Vec::len), Some(7));
    assert_eq!(one["tool"], "Grep");
    let text = world.ok(["anomalies"]).out;
    assert!(text.contains("was called 7 times with the same input and the same result"), "{text}");
    let timeline = world.ok(["timeline"]).out;
    assert!(timeline.contains("! loop #"), "{timeline}");
    search(&agent, "more");
    let later = items(&world.json(["anomalies", "--kind", "loop"]));
    assert_eq!((later.len(), &later[0]["id"], &later[0]["count"]), (1, &one["id"], &json!(8)));

    assert_eq!(items(&world.json(["anomalies", "--kind", "error-burst"])).len(), 0);
    world.ok(["settings", "anomalies.loop", "9"]);
    assert_eq!(items(&world.json(["anomalies"])).len(), 0);
    world.ok(["settings", "anomalies.loop", "0"]);
    let text = world.ok(["anomalies"]).out;
    assert!(text.contains("Nothing unusual was found.") && text.contains("by your settings: loop"), "{text}");
    let wrong = world.run(["anomalies", "--kind", "lop"]).exits(2);
    assert!(wrong.err.contains("did you mean \"loop\"?"), "{}", wrong.err);
}

#[test]
fn an_agent_that_loops_is_stopped() {
    let world = Sandbox::new();
    started(&world, "s1");
    let agent = Talk::new(&world, "s1");
    world.ok(["breakpoint", "add", "anomaly", "loop"]);
    let stopped: Vec<usize> =
        (1..=12).filter(|round| search(&agent, &format!("g{round}")).contains("block")).collect();
    assert_eq!(stopped, [5, 10], "at the fifth call, and when it has doubled");
    let log = world.ok(["log", "--kind", "breakpoint-hit"]).out;
    assert!(log.contains("anomaly loop: repeated-cycle, 5 times"), "{log}");
    let listed = items(&world.json(["breakpoint", "list"]));
    assert_eq!(
        (&listed[0]["on"], &listed[0]["kind"], &listed[0]["hits"]),
        (&json!("anomaly"), &json!("loop"), &json!(2))
    );
    // Another session has calls of its own.
    let other = Talk::new(&world, "s2");
    other.begin();
    assert!(!search(&other, "o1").contains("block"));
}

#[test]
fn a_breakpoint_needs_a_kind_that_can_be_seen_live() {
    let world = Sandbox::new();
    started(&world, "s1");
    let refused = world.run(["breakpoint", "add", "anomaly", "slow-call"]).exits(2);
    assert!(refused.err.contains("history of other sessions"), "{}", refused.err);
    world.run(["breakpoint", "add", "anomaly", "lop"]).exits(2);
    world.ok(["breakpoint", "add", "anomaly"]);
    assert!(world.ok(["breakpoint", "list"]).out.contains("anomaly"));
}
