//! Sessions as files, out of one store and into another.

use serde_json::Value;

use crate::support::TestServer;

#[test]
fn a_session_goes_from_one_server_to_another() {
    let (here, there) = (TestServer::new(), TestServer::new());
    here.write("file", "1");
    here.checkpoint("one");
    here.call("s", "c1", "file", "2", false);
    let file = here.get("/sessions/s/export");
    assert_eq!(file.status, 200);
    assert_eq!(file.header("content-type"), Some("application/octet-stream"));
    assert_eq!(file.header("content-length").unwrap(), file.body.len().to_string());
    let post = |bytes: &[u8]| {
        there.send("POST", "/api/v1/imports", "content-type: application/octet-stream\r\n", bytes)
    };

    for at in [0, 10, 40, file.body.len() / 2, file.body.len() - 1] {
        let status = if at < 16 { 400 } else { 422 };
        let problem = post(&file.body[..at]).problem(status);
        assert!(!problem["hints"][0].as_str().unwrap().is_empty());
        assert_eq!(there.get("/workspaces").with(200)["items"].as_array().unwrap().len(), 0);
    }
    let imported = post(&file.body).with(201);
    assert_eq!(imported["new_steps"], imported["steps"]);
    let id = imported["sessions"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(post(&file.body).with(200)["new_steps"], 0);

    let steps = there.get(&format!("/sessions/{id}/steps?kind=tool-end")).with(200);
    let number = &steps["items"][0]["number"];
    let text = there.get(&format!("/sessions/{id}/steps/{number}/state/files/file"));
    assert_eq!((text.status, text.body.as_slice()), (200, &b"2"[..]));
    assert!(there.get("/search?q=c1").with(200)["total"].as_u64().unwrap() > 0);
    assert_eq!(there.get(&format!("/sessions/{id}")).with(200)["imported"], true);
}

#[test]
fn lines_can_be_read_and_taken_in() {
    let place = TestServer::new();
    place.call("s", "c1", "file", "2", false);
    let lines = place.get("/sessions/s/export?format=jsonl");
    assert_eq!(lines.header("content-type"), Some("application/x-ndjson"));
    let text = String::from_utf8(lines.body.clone()).unwrap();
    let lines_read: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines_read.last().unwrap()["record"], "end");
    assert!(lines_read.iter().any(|line| line["detail"]["input"]["call"] == "c1"));
    let reply = place.send("POST", "/api/v1/imports", "", &lines.body);
    assert_eq!(reply.status, 200, "all of it is here already");
    let other = TestServer::new();
    let reply = other.send("POST", "/api/v1/imports", "", &lines.body);
    assert_eq!((reply.status, reply.json()["new_steps"].as_u64()), (201, reply.json()["steps"].as_u64()));
    let cut = &lines.body[..lines.body.len() - 10];
    assert!(other.send("POST", "/api/v1/imports", "", cut).status >= 400);
    place.get("/sessions/s/export?format=zip").problem(400);
    place.get("/sessions/nobody/export").problem(404);
}

#[test]
fn what_says_that_it_is_huge_is_refused_at_once() {
    let place = TestServer::new();
    // The length is a claim; nothing follows it.
    let head = "content-length: 99999999999\r\n";
    let reply = place.send_head("POST", "/api/v1/imports", head);
    reply.problem(413);
}
