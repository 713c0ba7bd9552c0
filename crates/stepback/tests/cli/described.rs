//! The API's own description, held against the real server by schemathesis: every operation with data that fits it and with
//! data that does not.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;
use stepback_testkit::python::python;

use crate::sandbox::Sandbox;
use crate::serving::Serving;

/// Statuses by which a request that fits the description may be refused: what it names is not there, is in the way, or makes
/// no sense after all.
const REFUSALS: &str = r#"["2xx", 400, 404, 409, 410, 412, 413, 415, 422, 426, 429]"#;

/// What a model says that changes two files.
const SCRIPT: &str = r#"{"model": "scripted-1", "turns": [
    {"calls": [{"tool": "write", "input": {"path": "b.txt", "content": "b\n"}}]},
    {"calls": [{"tool": "bash", "input": {"command": "echo hi > c.txt"}}]},
    {"text": "done"}]}"#;

fn id(document: &Value) -> &str {
    document["items"][0]["id"].as_str().unwrap()
}

#[test]
fn the_server_is_as_it_is_described() {
    let world = Sandbox::new();
    world.write("a.txt", "a\n");
    world.ok(["checkpoint", "create", "first"]);
    fs::write(world.home.join("script.json"), SCRIPT).unwrap();
    let script = world.home.join("script.json");
    world.ok(["agent", "--provider", "scripted", script.to_str().unwrap(), "do it"]);
    let server = Serving::start(&world, &[]);
    let workspaces = server.get("/workspaces");
    let sessions = server.get("/sessions?agent=stepback");
    let checkpoints = server.get(&format!("/workspaces/{}/checkpoints", id(&workspaces)));
    let number = &checkpoints["items"][0]["number"];
    // Ids that exist, so that most requests get behind the question whether they do.
    let settings = format!(
        "[checks]\npositive_data_acceptance.expected-statuses = {REFUSALS}\n\
         [parameters]\n\"path.workspace\" = \"{}\"\n\"path.session\" = \"{}\"\n\"path.checkpoint\" = \"{checkpoint}\"\n\
         \"path.other\" = \"{checkpoint}\"\n\"path.number\" = {number}\n\
         # A batch is taken in part: what is wrong with one event is said beside what became of the others.\n\
         [[operations]]\ninclude-path = \"/api/v1/ingest\"\nchecks.negative_data_rejection.enabled = false\n\
         # Events have no end.\n\
         [[operations]]\ninclude-path = \"/api/v1/events\"\nrequest-timeout = 1\n",
        id(&workspaces),
        id(&sessions),
        checkpoint = id(&checkpoints),
    );
    fs::write(world.home.join("schemathesis.toml"), settings).unwrap();
    let mut schemathesis = Command::new(python().with_file_name("st"));
    schemathesis
        .args(["run", &format!("{}/api/v1/openapi.json", server.url)])
        .args(["--header", &format!("Authorization: Bearer {}", server.token)])
        .args(["--phases", "coverage,fuzzing,stateful", "--max-examples", "10", "--seed", "1"])
        .args([
            "--continue-on-failure",
            "--request-timeout",
            "60",
            "--suppress-health-check",
            "all",
            "--no-color",
        ])
        .current_dir(&world.home)
        .env_clear()
        .env("HOME", &world.home)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("PYTHONUTF8", "1")
        .stdin(Stdio::null());
    let ran = schemathesis.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let failures = said.find("= FAILURES").or_else(|| said.find("= ERRORS")).unwrap_or(0);
    assert!(ran.status.success(), "{}\n{}", &said[failures..], String::from_utf8_lossy(&ran.stderr));
    let operations =
        server.get("/openapi.json")["paths"].as_object().unwrap().values().map(count).sum::<usize>();
    assert!(said.contains(&format!("Tested: {operations}")), "{said}");
    drop(server);
    world.expect_sound("after all that");
}

fn count(path: &Value) -> usize {
    let methods = ["get", "post", "put", "patch", "delete"];
    methods.iter().filter(|method| path.get(method).is_some()).count()
}
