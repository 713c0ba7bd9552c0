//! The built-in agent with a model behind an address, on both wires it speaks.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use stepback_testkit::model::server::ServerParts;
use stepback_testkit::model::{ModelServer, Script, ScriptedAgent, ScriptedCall, ScriptedTurn};

use crate::sandbox::{Ran, Sandbox};
use crate::talk::{items, of_kind};

const KEY: &str = "a-key-of-somebody";

fn model(world: &Sandbox, wire: ScriptedAgent, script: Script) -> ModelServer {
    ModelServer::start(ServerParts { agent: wire, workspace: world.work.clone(), script })
}

/// A run against a server, with a key.
fn run(world: &Sandbox, wire: ScriptedAgent, server: &ModelServer) -> Ran {
    let base = format!("http://{}/v1", server.address());
    let provider = if wire == ScriptedAgent::Claude { "anthropic" } else { "openai-compatible" };
    let words = ["agent", "--provider", provider, "--model", "m-1", "--base-url", &base, "go", "--json"];
    let mut command = world.command(words);
    command.env("ANTHROPIC_API_KEY", KEY).env("OPENAI_API_KEY", KEY).output().unwrap().into()
}

fn bash(command: &str) -> ScriptedTurn {
    ScriptedTurn::call(ScriptedCall::named("bash", json!({ "command": command })))
}

#[test]
fn both_wires_say_the_same_and_the_key_is_in_no_record() {
    for wire in [ScriptedAgent::Claude, ScriptedAgent::Opencode] {
        let world = Sandbox::new();
        world.write("file", "base\n");
        let script = Script::new([
            bash("echo 1 > one").saying("I begin."),
            ScriptedTurn::calls([
                ScriptedCall::named("read", json!({ "path": "one" })),
                ScriptedCall::named("read", json!({ "path": "none" })),
            ]),
            ScriptedTurn::text("It is done."),
        ]);
        let server = model(&world, wire, script);
        let said = run(&world, wire, &server).exits(0).json();
        assert_eq!((&said["ended"], &said["text"]), (&json!("done"), &json!("It is done.")), "{wire:?}");
        assert_eq!(fs::read_to_string(world.path("one")).unwrap(), "1\n");
        let asked = server.requests();
        assert_eq!(asked.len(), 3, "{wire:?}");
        let header = if wire == ScriptedAgent::Claude { "x-api-key" } else { "authorization" };
        assert!(asked[0].header(header).unwrap().contains(KEY));
        assert!(asked[2].body.to_string().contains("cannot read none"), "the model is told what went wrong");
        for step in of_kind(&world, "model-start").iter().chain(&of_kind(&world, "model-end")) {
            assert_eq!((&step["tool"], &step["failed"]), (&json!("m-1"), &json!(false)));
        }
        world.ok(["rewind", "tool:bash:last", "--yes"]);
        assert!(!world.path("one").exists());
        let kept: Vec<PathBuf> = crate::talk::files_below(&world.store);
        let holds =
            |path: &PathBuf| fs::read(path).unwrap().windows(KEY.len()).any(|part| part == KEY.as_bytes());
        assert!(!kept.iter().any(holds), "{wire:?}: the key is in the store");
    }
}

#[test]
fn a_busy_model_is_asked_again_and_one_that_refuses_ends_the_run() {
    let world = Sandbox::new();
    let server =
        model(&world, ScriptedAgent::Claude, Script::new([ScriptedTurn::text("now").failing(529, 1)]));
    assert_eq!(run(&world, ScriptedAgent::Claude, &server).exits(0).json()["text"], "now");
    assert_eq!(of_kind(&world, "model-end").iter().filter(|step| step["failed"] == true).count(), 1);
    let server =
        model(&world, ScriptedAgent::Claude, Script::new([ScriptedTurn::text("never").failing(400, 9)]));
    let ran = run(&world, ScriptedAgent::Claude, &server).exits(7);
    assert!(ran.json()["error"]["message"].as_str().unwrap().contains("400"), "{}", ran.out);
}

#[test]
fn a_server_that_is_not_there_is_an_error_that_says_so() {
    let world = Sandbox::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let base = format!("http://{free}");
    let ran = world.run(["agent", "--base-url", &base, "go"]).exits(7);
    assert!(ran.err.contains(&free.to_string()), "{}", ran.err);
    assert_eq!(of_kind(&world, "error").len(), 1);
    assert_eq!(items(&world.json(["sessions"]))[0]["status"], "ended");
}

#[test]
fn nobody_has_to_wait_for_a_model_that_thinks() {
    let world = Sandbox::new();
    let never = world.root().join("never");
    let server =
        model(&world, ScriptedAgent::Claude, Script::new([ScriptedTurn::text("late").once_exists(&never)]));
    let base = format!("http://{}", server.address());
    let child = world.spawn(&["agent", "--base-url", &base, "go"]);
    let begun = Instant::now();
    while world.run(["log", "--kind", "model-start", "--json"]).out.matches("model-start").count() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(120));
        thread::sleep(Duration::from_millis(20));
    }
    crate::agent::interrupt(&child);
    let ran: Ran = child.wait_with_output().unwrap().into();
    ran.exits(130);
    assert_eq!(items(&world.json(["log"]))[0]["summary"], "session ended: interrupted");
}
