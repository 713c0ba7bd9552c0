//! `stepback serve`: how it begins, what it is like to ask it, and how it ends.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::sandbox::{Ran, Sandbox};
use crate::talk::Talk;
use crate::wire::{Carrying, body_of, until};

/// Starts a server at a free port.
#[track_caller]
fn start(world: &Sandbox, words: &[&str]) -> Carrying {
    try_start(world, words).unwrap_or_else(|ran| panic!("it does not listen: {ran:?}"))
}

fn try_start(world: &Sandbox, words: &[&str]) -> Result<Carrying, Ran> {
    let all = [&["serve", "--json", "--listen", "127.0.0.1:0"], words].concat();
    Carrying::program(world, &all, &[])
}

/// Asks with the token; the status and the document.
fn ask(server: &Carrying, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let token = fs::read_to_string(server.said["token_file"].as_str().unwrap()).unwrap();
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    write!(
        stream,
        "{method} /api/v1{path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body_of(&text)).unwrap_or_default())
}

/// What the guide shows: a session is found, looked at, and taken back.
#[test]
fn a_session_is_browsed_and_taken_back_over_http() {
    let world = Sandbox::new();
    world.write("kept.txt", "mine\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("make a file");
    agent.write("c1", "made.txt", "by the agent\n");
    agent.stop();
    let server = start(&world, &[]);
    let token_file = Path::new(server.said["token_file"].as_str().unwrap());
    assert_eq!(fs::metadata(token_file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(server.said.as_object().unwrap().len(), 2, "{}", server.said);

    let (status, sessions) = ask(&server, "GET", "/sessions", None);
    assert_eq!(status, 200);
    let id = sessions["items"][0]["id"].as_str().unwrap();
    let (_, timeline) = ask(&server, "GET", &format!("/sessions/{id}/timeline"), None);
    assert!(timeline.to_string().contains("make a file"), "{timeline:#}");
    let (_, workspaces) = ask(&server, "GET", "/workspaces", None);
    let workspace = workspaces["items"][0]["id"].as_str().unwrap();
    let (status, plan) = ask(
        &server,
        "POST",
        &format!("/workspaces/{workspace}/rewind-plans"),
        Some(serde_json::json!({ "all": true })),
    );
    assert_eq!((status, &plan["items"][0]["path"]), (201, &"made.txt".into()), "{plan:#}");
    assert!(world.path("made.txt").exists(), "a plan changes nothing");
    let apply = plan["apply"].as_str().unwrap().strip_prefix("/api/v1").unwrap();
    let (status, done) = ask(&server, "POST", apply, None);
    assert_eq!(status, 200, "{done:#}");
    assert!(!world.path("made.txt").exists() && world.path("kept.txt").exists());
    // The command line takes back what the server did.
    assert_eq!(server.end_with(Signal::TERM).code, Some(0));
    world.ok(["undo", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("made.txt")).unwrap(), "by the agent\n");
}

/// `studio` starts a server where none runs, and uses the one that does.
#[test]
fn the_studio_is_at_a_server_that_runs_or_is_started() {
    let world = Sandbox::new();
    let words = ["studio", "--no-open", "--json", "--listen", "127.0.0.1:0"];
    let first = Carrying::program(&world, &words, &[]).unwrap_or_else(|ran| panic!("{ran:?}"));
    assert_eq!(first.said["started"], true, "{}", first.said);
    let again = world.json(["studio", "--no-open"]);
    assert_eq!((&again["url"], &again["started"]), (&first.said["url"], &false.into()));
    assert_ne!(again["sign_in_url"], first.said["sign_in_url"], "each address is good once");
    let by_name = world.json(["studio", "--no-open", "--server", &first.url]);
    assert_eq!(by_name["url"], first.said["url"]);
    let refused = world.run(["studio", "--no-open", "--server", "http://127.0.0.1:1"]);
    assert_eq!(refused.code, Some(7), "{refused:?}");
    assert_eq!(first.end().code, Some(0));
    assert!(!world.store.join("server.json").exists(), "the note goes with the server");
}

/// What if: a recorded session is done again with one thing changed, and both are put side by side.
#[test]
fn a_session_is_done_again_over_http() {
    let world = Sandbox::new();
    let script = r#"{"turns": [
        {"text": "I write.", "calls": [{"tool": "write", "input": {"path": "made.txt", "content": "one\n"}}]},
        {"text": "I look.", "calls": [{"tool": "bash", "input": {"command": "cat made.txt > seen.txt; cat seen.txt"}}]},
        {"text": "All is done."}]}"#;
    let file = world.home.join("script.json");
    fs::write(&file, script).unwrap();
    world.ok(["agent", "--provider", "scripted", file.to_str().unwrap(), "do the work"]);
    let before = world.files();
    let server = start(&world, &[]);
    let (_, sessions) = ask(&server, "GET", "/sessions", None);
    let id = sessions["items"][0]["id"].as_str().unwrap().to_owned();
    let reruns = format!("/sessions/{id}/reruns");
    let begin = |body: Value| ask(&server, "POST", &reruns, Some(body));

    let (status, begun) = begin(serde_json::json!({ "branch": "same" }));
    assert_eq!((status, &begun["name"]), (202, &"same".into()), "{begun:#}");
    let workspace = sessions["items"][0]["workspace"].as_str().unwrap().to_owned();
    let branch =
        |name: &str| ask(&server, "GET", &format!("/workspaces/{workspace}/branches/{name}"), None).1;
    until("the rerun ends", || !["pending", "running"].contains(&branch("same")["status"].as_str().unwrap()));
    assert_eq!(branch("same")["status"], "completed", "{:#}", branch("same"));
    let session = branch("same")["rerun"]["session"].as_str().unwrap().to_owned();
    let (status, compared) = ask(&server, "GET", &format!("/compare?a={id}&b={session}"), None);
    assert_eq!(status, 200, "{compared:#}");
    world.expect_files(&before, "nothing of it happens in the workspace");

    // With one thing changed, it parts there.
    let (_, calls) =
        ask(&server, "GET", &format!("/sessions/{id}/steps?kind=tool-start&oldest_first=true"), None);
    let number = calls["items"][0]["number"].as_u64().unwrap();
    let (status, begun) =
        begin(serde_json::json!({ "branch": "other", "set": [format!("#{number}.output=nothing")] }));
    assert_eq!(status, 202, "{begun:#}");
    until("the other one ends", || branch("other")["status"] != "running");
    assert!(branch("other").to_string().contains("nothing"), "{:#}", branch("other"));
    until("the other one is at its end", || branch("other")["status"] == "diverged");
    // Where they ran is nobody's project; whoever knows the session finds it all the same.
    let count = |path: &str| ask(&server, "GET", path, None).1["items"].as_array().unwrap().len();
    assert_eq!((count("/workspaces"), count("/sessions?agent=stepback")), (1, 1));
    assert_eq!(ask(&server, "GET", &format!("/sessions/{session}"), None).0, 200);

    for (body, status, part) in [
        (serde_json::json!({ "set": ["nonsense=1"] }), 400, "nonsense"),
        (serde_json::json!({ "set": ["nonsense"] }), 400, "nonsense"),
        (serde_json::json!({ "branch": "same" }), 409, "same"),
        (serde_json::json!({ "until": "nonsense" }), 404, "nonsense"),
        (serde_json::json!({ "on_difference": "live" }), 400, "live"),
        (serde_json::json!({ "from": "#99" }), 404, "99"),
        (serde_json::json!({ "tools": "all" }), 400, "all"),
        (serde_json::json!({ "who": "me" }), 400, "who"),
    ] {
        let (found, problem) = begin(body.clone());
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(found == status && detail.contains(part), "{body}: {found} {problem:#}");
    }
    let (status, _) = ask(&server, "POST", &format!("/workspaces/{workspace}/branches/same/interrupt"), None);
    assert_eq!(status, 409, "it is over");
    assert_eq!(server.end().code, Some(0));
}

/// The rerun waits for a file that no checkpoint has, until it is interrupted.
#[test]
fn a_rerun_that_runs_says_so_until_it_is_interrupted() {
    let world = Sandbox::new();
    world.write(".stepbackignore", "go\n");
    world.write("go", "");
    let script = r#"{"turns": [
        {"calls": [{"tool": "bash", "input": {"command": "echo begun > made.txt"}}]},
        {"calls": [{"tool": "bash", "input": {"command": "while [ ! -e go ]; do sleep 0.05; done"}}]},
        {"text": "All is done."}]}"#;
    let file = world.home.join("script.json");
    fs::write(&file, script).unwrap();
    world.ok(["agent", "--provider", "scripted", file.to_str().unwrap(), "do the work"]);
    let server = start(&world, &[]);
    let session = ask(&server, "GET", "/sessions", None).1["items"][0].clone();
    let (id, workspace) = (session["id"].as_str().unwrap(), session["workspace"].as_str().unwrap());
    let body = serde_json::json!({ "branch": "again" });
    assert_eq!(ask(&server, "POST", &format!("/sessions/{id}/reruns"), Some(body)).0, 202);
    let own = format!("/workspaces/{workspace}/branches/again");
    let status = || ask(&server, "GET", &own, None).1["status"].as_str().unwrap().to_owned();
    until("it runs", || status() == "running");
    let branches = || world.json(["branch", "list"])["items"].as_array().unwrap().clone();
    let listed = || branches().into_iter().find(|branch| branch["name"] == "again").unwrap();
    assert_eq!(listed()["status"], "running", "{:#}", listed());
    assert!(world.ok(["branch", "list"]).out.contains("running"));
    assert_eq!(status(), "running", "it waits");
    assert_eq!(ask(&server, "POST", &format!("{own}/interrupt"), None).0, 204);
    until("it ends", || status() != "running");
    assert_eq!(listed()["status"], status().as_str());
    until("there is nothing to interrupt", || {
        ask(&server, "POST", &format!("{own}/interrupt"), None).0 == 409
    });
    assert_eq!(server.end().code, Some(0));
}

/// A branch is created with a modification, kept, and executed later, once.
#[test]
fn a_branch_is_prepared_over_http_and_executed_later() {
    let world = Sandbox::new();
    let script = r#"{"turns": [
        {"text": "I write.", "calls": [{"tool": "write", "input": {"path": "made.txt", "content": "one\n"}}]},
        {"text": "I look.", "calls": [{"tool": "bash", "input": {"command": "cat made.txt"}}]},
        {"text": "All is done."}]}"#;
    let file = world.home.join("script.json");
    fs::write(&file, script).unwrap();
    world.ok(["agent", "--provider", "scripted", file.to_str().unwrap(), "do the work"]);
    let before = world.files();
    let server = start(&world, &[]);
    let (_, sessions) = ask(&server, "GET", "/sessions", None);
    let id = sessions["items"][0]["id"].as_str().unwrap().to_owned();
    let (_, calls) =
        ask(&server, "GET", &format!("/sessions/{id}/steps?kind=tool-start&oldest_first=true"), None);
    let number = calls["items"][0]["number"].as_u64().unwrap();
    let prepare = |body: Value| ask(&server, "POST", "/branches", Some(body));
    let set = format!("#{number}.input.content=two\n");
    let (status, made) = prepare(
        serde_json::json!({ "session": id, "name": "with two", "from": format!("#{number}"), "set": [set] }),
    );
    assert_eq!((status, &made["status"]), (201, &"pending".into()), "{made:#}");
    assert_eq!(made["rerun"]["changes"], serde_json::json!([set]));
    let (_, made) = prepare(serde_json::json!({ "session": id }));
    assert_eq!(made["name"], "rerun-1", "{made:#}");
    // It waits, even if the server ends, and no other branch can have its name.
    assert_eq!(server.end().code, Some(0));
    let server = start(&world, &[]);
    let branch = || ask(&server, "GET", "/branches/with%20two", None).1;
    assert_eq!((&branch()["status"], &branch()["tip"]), (&"pending".into(), &Value::Null));
    let listed = world.ok(["branch", "list"]).out;
    assert!(listed.contains("with two") && listed.contains("pending"), "{listed}");
    let prepare = |body: Value| ask(&server, "POST", "/branches", Some(body));
    for (body, status, part) in [
        (serde_json::json!({ "session": id, "name": "with two" }), 409, "with two"),
        (serde_json::json!({ "session": id, "timeout_s": 0 }), 400, "timeout_s"),
        (serde_json::json!({ "session": id, "max_steps": 0 }), 400, "max_steps"),
        (serde_json::json!({ "session": id, "set": ["nonsense=1"] }), 400, "nonsense"),
        (serde_json::json!({ "session": id, "from": "#99" }), 404, "99"),
        (serde_json::json!({ "session": "nobody" }), 404, "nobody"),
        (serde_json::json!({ "name": "x" }), 400, "session"),
        (serde_json::json!({ "session": id, "brnch": "x" }), 400, "brnch"),
        (
            serde_json::json!({ "session": id, "set": [concat!("prompt=use gh", "p_", "0123456789abcdefghijABCDEFGHIJ012345")] }),
            400,
            "secret",
        ),
    ] {
        let (found, problem) = prepare(body.clone());
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(found == status && detail.contains(part), "{body}: {found} {problem:#}");
    }

    // The other one is deleted, and brought back.
    let workspace = sessions["items"][0]["workspace"].as_str().unwrap();
    let other = format!("/workspaces/{workspace}/branches/rerun-1");
    let (status, problem) =
        ask(&server, "POST", &format!("{other}/switch-plans"), Some(serde_json::json!({})));
    assert_eq!(status, 409, "{problem:#}");
    let (status, deleted) = ask(&server, "DELETE", &other, None);
    assert_eq!((status, &deleted["kind"]), (200, &"branch-delete".into()), "{deleted:#}");
    assert_eq!(ask(&server, "GET", &other, None).0, 404);
    world.ok(["undo", "--yes"]);
    assert_eq!(ask(&server, "GET", &other, None).1["status"], "pending");
    world.ok(["branch", "delete", "rerun-1"]);

    let (status, begun) = ask(&server, "POST", "/branches/with%20two/execute", None);
    assert_eq!((status, &begun["name"]), (202, &"with two".into()), "{begun:#}");
    until("it ends", || !["pending", "running"].contains(&branch()["status"].as_str().unwrap()));
    assert_eq!(branch()["status"], "diverged", "{:#}", branch());
    world.expect_files(&before, "nothing of it happens in the workspace");
    let into = world.root().join("result");
    world.ok(["restore", "branch:with two", "--into", into.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(into.join("made.txt")).unwrap(), "two\n");
    for (name, status) in [("with%20two", 409), ("main", 409), ("nothing", 404)] {
        let (found, problem) = ask(&server, "POST", &format!("/branches/{name}/execute"), None);
        assert_eq!(found, status, "{problem:#}");
    }
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn two_servers_share_a_store_and_a_token() {
    let world = Sandbox::new();
    world.write("a", "a");
    world.ok(["checkpoint", "create", "one"]);
    let (first, second) = (start(&world, &[]), start(&world, &[]));
    assert_eq!(first.said["token_file"], second.said["token_file"]);
    let (_, workspaces) = ask(&first, "GET", "/workspaces", None);
    let workspace = workspaces["items"][0]["id"].as_str().unwrap().to_owned();
    world.write("a", "b");
    let checkpoints = format!("/workspaces/{workspace}/checkpoints");
    assert_eq!(ask(&first, "POST", &checkpoints, Some(serde_json::json!({ "label": "two" }))).0, 201);
    let (_, listed) = ask(&second, "GET", &checkpoints, None);
    assert_eq!(listed["items"][0]["label"], "two");
    // One that is killed takes nothing with it.
    first.end_with(Signal::KILL);
    assert_eq!(ask(&second, "GET", &checkpoints, None).1["items"].as_array().unwrap().len(), 2);
    assert_eq!(second.end().code, Some(0));
    world.expect_sound("after a server was killed");
}

#[test]
fn what_cannot_be_served_says_why() {
    let world = Sandbox::new();
    world.write("a", "a");
    world.ok(["checkpoint", "create", "one"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let says = |words: &[&str], code: i32, parts: &[&str]| {
        let ran = world.run([&["serve"], words].concat()).exits(code);
        for part in parts {
            assert!(ran.err.contains(part), "{words:?}: {}", ran.err);
        }
    };
    says(&["--listen", &address], 7, &["cannot serve at", "in use", "--listen"]);
    says(&["--listen", "here"], 2, &["\"here\" is not a valid address", "127.0.0.1:7171"]);
    says(&["--listen", "127.0.0.1:0", "--tls-cert", "c.pem"], 2, &["--tls-key"]);
    let pair = ["--listen", "127.0.0.1:0", "--tls-cert", "no.pem", "--tls-key", "no.pem"];
    says(&pair, 7, &["no.pem", "cannot be used"]);
    says(&["--listen", "127.0.0.1:0", "--log", "/no/such/place/log"], 7, &["cannot write the log"]);
    fs::write(world.store.join("server.token"), "short").unwrap();
    says(&["--listen", "127.0.0.1:0"], 7, &["server.token contains no token", "remove it"]);
}

#[test]
fn requests_are_written_down_without_the_token() {
    let world = Sandbox::new();
    world.write("a", "a");
    world.ok(["checkpoint", "create", "one"]);
    let log = world.home.join("requests.log");
    let server = start(&world, &["--log", log.to_str().unwrap()]);
    ask(&server, "GET", "/sessions?agent=x", None);
    let token = fs::read_to_string(server.said["token_file"].as_str().unwrap()).unwrap();
    server.end();
    let text = fs::read_to_string(&log).unwrap();
    let line: Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!((&line["route"], &line["status"]), (&"/api/v1/sessions".into(), &200.into()));
    assert!(!text.contains(token.trim()));
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
}
