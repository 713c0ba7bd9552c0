//! Secrets that pass through hooks: nowhere in the store, in no form in which it keeps things.

use std::fs;

use serde_json::{Value, json};
use stepback_model::object::ObjectSource;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::prelude::*;

use crate::sandbox::Sandbox;
use crate::talk::{Talk, files_below, workspace_dir};

/// In two parts, so that this file holds none.
fn secrets() -> Vec<String> {
    let github = format!("{}{}", "ghp_", "x7Qm2Vb9Lr4Tz8Wn1Kd6Ys3Hj5Pc0Af2Ge4b");
    let openai = format!("{}{}", "sk-proj-", "Zt4Rk8Vn2Qx7Wm1Ls5Yb9Hd3Jf6Pg0Tc4Ua8Ie2Ok7Xr1");
    let amazon = format!("{}{}", "AKIA", "Q7ZM3XK9WV2LT5RB");
    let word = format!("{}{}", "hunter-", "Vq8Zx2Kw5");
    vec![github, openai, amazon, word]
}

/// Fails the test if a secret is anywhere in the store: in its files as they are, or in any object once it is unpacked.
#[track_caller]
fn expect_clean(world: &Sandbox, secrets: &[String], when: &str) {
    let finds = |bytes: &[u8], what: &str| {
        for secret in secrets {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{when}: {secret} is in {what}");
        }
    };
    for path in files_below(&world.store) {
        finds(&fs::read(&path).unwrap(), &path.display().to_string());
    }
    let store = EmbeddedStore::open(&world.store).unwrap();
    let mut objects = Vec::new();
    store.for_each_object(&mut |object| objects.push((object.kind, object.hash))).unwrap();
    assert!(!objects.is_empty());
    for (kind, hash) in objects {
        finds(&store.read(kind, hash).unwrap(), &format!("object {hash} ({kind:?})"));
    }
}

#[test]
fn no_secret_reaches_the_store() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let secrets = secrets();
    let [github, openai, amazon, word] = secrets.as_slice() else { unreachable!() };
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.say(&[
        json!({ "type": "user", "uuid": "u1", "message": { "role": "user", "content": format!("my token is {github}") } }),
        json!({ "type": "assistant", "uuid": "u2", "message": { "id": "m1", "role": "assistant", "content": [
            { "type": "tool_use", "id": "b1", "name": "Bash", "input": { "command": format!("curl -H 'Authorization: Bearer {openai}' x") } }
        ] } }),
    ]);
    agent.prompt(&format!("use {github} and password={word}"));
    let read = json!({ "file_path": world.path(".env"), "note": openai });
    agent.pre("r1", "Read", read.clone());
    let response = json!({ "content": format!("AWS_ACCESS_KEY_ID={amazon}\nDB_PASSWORD={word}\n") });
    agent.event(
        "PostToolUse",
        json!({ "tool_name": "Read", "tool_use_id": "r1", "tool_input": read, "tool_response": response }),
    );
    let inbox = fs::read_to_string(workspace_dir(&world).join("inbox.jsonl")).unwrap();
    assert_eq!(inbox.lines().count(), 3);
    expect_clean(&world, &secrets, "in the inbox");
    let command =
        json!({ "command": format!("curl -H 'Authorization: Bearer {openai}' x; export GH_TOKEN={github}") });
    agent.pre("b1", "Bash", command.clone());
    world.write("made", "x\n");
    let response = json!({ "stdout": format!("DB_PASSWORD={word}"), "stderr": amazon });
    agent.event(
        "PostToolUseFailure",
        json!({ "tool_name": "Bash", "tool_use_id": "b1", "tool_input": command, "tool_response": response,
            "error": format!("401 for {github}") }),
    );
    agent.event("Stop", json!({ "last_assistant_message": format!("I used {openai}") }));
    expect_clean(&world, &secrets, "after a turn");
    // A stop shows the call to a person, and writes down what the person says.
    world.ok(["pause"]);
    let rest = json!({ "tool_name": "Bash", "tool_use_id": "b2", "tool_input": { "command": format!("echo {github}") } });
    let child = agent.start(agent.payload("PreToolUse", rest).to_string().as_bytes());
    while items_stopped(&world) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    expect_clean(&world, &secrets, "while it is stopped");
    world.ok(["deny", &format!("not with {openai}")]);
    assert!(child.wait_with_output().unwrap().status.success());
    world.ok(["resume"]);
    expect_clean(&world, &secrets, "after an answer");
    // What is no event may hold one too.
    agent.give(format!("{{\"session_id\": 1, \"prompt\": \"{github}\"").as_bytes());
    agent.give(format!("{{\"hook_event_name\": \"PreToolUse\", \"prompt\": \"{github}\"}}").as_bytes());
    expect_clean(&world, &secrets, "with gaps");
    world.ok(["log"]);
    expect_clean(&world, &secrets, "at the end");
}

fn items_stopped(world: &Sandbox) -> usize {
    let sessions = world.json(["sessions"]);
    sessions["items"].as_array().unwrap().iter().filter(|session| session["status"] == "stopped").count()
}

#[test]
fn ids_are_no_secrets() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    // As agents make them: random, and meant to be told from each other.
    let ids = [
        "toolu_01A7xQ9mKz3RwVbT5nYcJhLd",
        "toolu_bdrk_01Hq8ZtW2xNvRm4KpLs7YcBf",
        "call_Zx8Kw2Vq5Mn9Rt3Lb7Hd1Jf6",
        "fc_0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f6071",
        "3f0c2a9e-7b1d-4c55-9e0a-1f2b3c4d5e6f",
    ];
    let sessions = [
        "b595a406-c576-4f5b-be2d-879d3422d3df",
        "ses_e1f8adfe0ffeck2vjAUhitL4xW",
        "01a1e06e-eee7-71f0-a251-78af06267709",
    ];
    for session in sessions {
        let agent = Talk::new(&world, session);
        for id in ids {
            agent.bash(id, "true", || ());
        }
        let steps = agent.steps();
        let calls: Vec<&Value> =
            steps.iter().filter(|step| step["kind"] == "tool-end").map(|step| &step["call"]).collect();
        assert_eq!(calls, ids, "{session}");
    }
}
