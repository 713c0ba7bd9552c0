//! How many manual checkpoints a session may have, and what the refusal of one more says.

use serde_json::json;

use crate::mcp_client::Client;
use crate::sandbox::Sandbox;
use crate::talk::{Talk, items};

fn manual(world: &Sandbox) -> usize {
    let listed = items(&world.json(["checkpoint", "list", "--all"]));
    listed.iter().filter(|checkpoint| checkpoint["trigger"] == "manual").count()
}

#[test]
fn one_manual_checkpoint_too_many_is_refused_with_what_to_do() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let listed = items(&world.json(["settings", "checkpoint.max-manual"]));
    assert_eq!((&listed[0]["value"], &listed[0]["default"]), (&json!(50), &json!(50)), "{listed:?}");
    world.ok(["settings", "checkpoint.max-manual", "3"]);
    for label in ["one", "two", "three"] {
        world.ok(["checkpoint", "create", label]);
    }
    let (files, log) = (world.files(), world.json(["log"]));
    let refused = world.run(["checkpoint", "create", "four"]).exits(9);
    for part in ["3", "stepback checkpoint delete POINT", "stepback settings checkpoint.max-manual N"] {
        assert!(refused.err.contains(part), "{part} in {}", refused.err);
    }
    assert_eq!((manual(&world), world.json(["log"])), (3, log), "nothing was made");
    world.expect_files(&files, "after a refusal");
    // What the answer says helps: one less, or a higher limit.
    world.ok(["checkpoint", "delete", "one"]);
    world.ok(["checkpoint", "create", "four"]);
    world.run(["checkpoint", "create", "five"]).exits(9);
    world.ok(["settings", "checkpoint.max-manual", "4"]);
    world.ok(["checkpoint", "create", "five"]);
    world.run(["checkpoint", "create", "six"]).exits(9);
    // The limit is one of the session: another one begins with none.
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("go");
    world.ok(["checkpoint", "create", "six"]);
}

#[test]
fn an_agent_with_too_many_checkpoints_is_told_by_its_tool() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    world.ok(["settings", "checkpoint.max-manual", "2"]);
    let mut agent = Client::introduced(&world, "test", &[]);
    for label in ["one", "two"] {
        agent.call("checkpoint", json!({ "label": label }));
    }
    let said = agent.refused("checkpoint", json!({ "label": "three" }));
    assert!(said.contains('2') && said.contains("checkpoint.max-manual"), "{said}");
    assert_eq!(manual(&world), 2, "nothing was made");
    assert!(agent.end().is_empty());
    world.ok(["settings", "checkpoint.max-manual", "3"]);
    let mut agent = Client::introduced(&world, "test", &[]);
    agent.call("checkpoint", json!({ "label": "three" }));
    assert_eq!(manual(&world), 3);
    assert!(agent.end().is_empty());
}
