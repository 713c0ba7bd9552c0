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

#[test]
fn a_session_is_a_file_for_other_programs_in_every_format() {
    let place = TestServer::new();
    place.write("file", "1\n");
    place.checkpoint("one");
    place.call("s", "c1", "file", "1\n<script>2</script>\n", true);
    for (format, media_type, ending) in [
        ("html", "text/html; charset=utf-8", "html"),
        ("atif", "application/json", "atif.json"),
        ("agent-trace", "application/vnd.agent-trace.record+json", "agent-trace.json"),
        ("har", "application/json", "har"),
        ("otlp", "application/json", "otlp.json"),
    ] {
        let file = place.get(&format!("/sessions/s/export?format={format}"));
        assert_eq!(file.status, 200, "{file:?}");
        assert_eq!(file.header("content-type"), Some(media_type));
        let disposition = file.header("content-disposition").unwrap();
        assert!(
            disposition.starts_with("attachment; filename=\"")
                && disposition.ends_with(&format!(".{ending}\"")),
            "{disposition}"
        );
        // Where a browser shows it anyway, it is no page of this server.
        let policy = file.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("sandbox")
                && policy.contains("default-src 'none'")
                && !policy.contains("allow-same-origin"),
            "{policy}"
        );
        assert_eq!(file.header("x-content-type-options"), Some("nosniff"));
        match format {
            "html" => {
                let page = String::from_utf8(file.body).unwrap();
                assert!(
                    page.contains("&lt;script&gt;2&lt;/script&gt;") && page.contains("it went wrong"),
                    "{page}"
                );
            }
            _ => drop(file.json()),
        }
    }
    place.get("/sessions/nobody/export?format=html").problem(404);
}

/// What is the same after a round trip: everything but what another store numbers anew.
fn told(place: &TestServer, session: &str) -> Vec<Value> {
    let steps = place.get(&format!("/sessions/{session}/steps?limit=1000")).with(200);
    let mut steps = steps["items"].as_array().unwrap().clone();
    steps.sort_by_key(|step| step["number"].as_u64());
    let tell = |step: &Value| {
        let number = &step["number"];
        let step = place.get(&format!("/sessions/{session}/steps/{number}")).with(200);
        let fields =
            ["kind", "at", "summary", "call", "tool", "worker", "failed", "duration_us", "input", "output"];
        let mut told: serde_json::Map<String, Value> =
            fields.iter().map(|field| ((*field).to_owned(), step[*field].clone())).collect();
        told.insert("error".into(), step["error"]["message"].clone());
        Value::Object(told)
    };
    steps.iter().map(tell).collect()
}

#[test]
fn spans_become_the_same_session_and_steps_in_another_store() {
    let (here, there) = (TestServer::new(), TestServer::new());
    here.write("file", "1\n");
    here.call("s", "c1", "file", "2\n", false);
    here.said("test", "s", &[r#"{"role":"user","content":"hello"}"#]);
    here.call("s", "c2", "file", "3\n", true);
    let spans = here.get("/sessions/s/export?format=otlp");
    let post = || there.send("POST", "/v1/traces", "content-type: application/json\r\n", &spans.body);
    let reply = post();
    assert_eq!((reply.status, reply.json()["partialSuccess"].clone()), (200, Value::Null), "{reply:?}");
    assert_eq!(told(&there, "s"), told(&here, "s"));
    let sessions = there.get("/sessions").with(200);
    assert_eq!(sessions["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&sessions["items"][0]["agent"], &sessions["items"][0]["agent_session"]),
        (&"test".into(), &"s".into())
    );
    // Sent again, they are the same steps.
    post();
    assert_eq!(told(&there, "s").len(), told(&here, "s").len());
}
