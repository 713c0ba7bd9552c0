//! Who may ask, and what is said to those who ask wrongly.

use serde_json::json;

use crate::support::TestServer;

#[test]
fn nobody_is_answered_without_the_token_or_under_a_foreign_name() {
    let place = TestServer::new();
    place.checkpoint("one");
    assert_eq!(place.send_bare("GET", "/healthz", "", b"").status, 200);
    place.send_bare("GET", "/api/v1/workspaces", "", b"").problem(401);
    place.send("GET", "/api/v1/workspaces", "origin: http://elsewhere.example\r\n", b"").problem(403);
    place.get("/workspaces").with(200);
}

#[test]
fn pages_are_open_and_may_run_nothing_of_others() {
    let place = TestServer::new();
    for path in ["/", "/sessions", "/sessions/4f2a?step=3", "/live"] {
        let page = place.send_bare("GET", path, "", b"");
        assert_eq!(page.status, 200, "{path}");
        let policy = page.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'") && !policy.contains("script-src 'unsafe"),
            "{policy}"
        );
    }
    place.send_bare("GET", "/assets/nothing.js", "", b"").problem(404);
    if let Some(first) = stepback_studio::first() {
        let text = std::str::from_utf8(first.plain).unwrap();
        let script = text.split("src=\"").nth(1).unwrap().split('"').next().unwrap();
        let packed = place.send_bare("GET", script, "accept-encoding: gzip, br\r\n", b"");
        assert_eq!((packed.status, packed.header("content-encoding")), (200, Some("br")));
        assert!(packed.header("cache-control").unwrap().contains("immutable"));
        assert_eq!(place.send_bare("GET", script, "", b"").header("content-encoding"), None);
        let first = place.send_bare("GET", "/", "", b"");
        assert_eq!(first.header("cache-control"), Some("no-cache"));
    }
}

#[test]
fn who_has_the_token_gets_another_address_for_a_browser() {
    let place = TestServer::new();
    place.send_bare("POST", "/sign-in/codes", "", b"").problem(401);
    let said = place.send("POST", "/sign-in/codes", "", b"").with(200);
    let path = said["path"].as_str().unwrap();
    let entered = place.send_bare("GET", path, "", b"");
    assert_eq!(entered.status, 303);
    assert!(entered.header("location").unwrap().starts_with("/#page="));
    place.send_bare("GET", path, "", b"").problem(403);
}

#[test]
fn what_does_not_fit_is_a_problem_and_never_a_bug() {
    let place = TestServer::new();
    place.call("s", "c1", "file", "x", false);
    place.get("/nothing/here").problem(404);
    place.ask("DELETE", "/workspaces", None).problem(405);
    place.get("/workspaces/zzzz").problem(404);
    place.get("/sessions/%ff").problem(400);
    place.get("/sessions?limit=-1").problem(400);
    place.get("/sessions?limit=99999999999999999999999").problem(400);
    place.get("/sessions?limit=0").problem(400);
    place.get("/sessions?after=1.x").problem(400);
    for number in ["x", "-1", "1.5", "99999999999999999999999999"] {
        place.get(&format!("/sessions/s/steps/{number}")).problem(400);
    }
    place.get("/sessions/s/steps/18446744073709551615").problem(404);
    place.get("/sessions/s/steps/18446744073709551615/next").problem(404);
    place.get("/sessions/nobody/steps").problem(404);
    place.get("/sessions/s/steps?kind=nonsense").problem(400);
    let page = place.get("/sessions/s/steps?limit=1").with(200);
    let cursor = page["next_cursor"].as_str().unwrap();
    place.get(&format!("/sessions/s/steps?limit=1&after={cursor}")).with(200);
    place.get(&format!("/sessions/s/steps?limit=1&failed=true&after={cursor}")).problem(400);
    assert_eq!(place.get("/sessions/s/steps?limit=1").json()["items"].as_array().unwrap().len(), 1);
    let checkpoints = format!("/workspaces/{}/checkpoints", place.workspace());
    let refused = place.post(&checkpoints, &serde_json::json!([null, null])).problem(400);
    assert!(refused["detail"].as_str().unwrap().contains("a list"), "{refused}");
    place.post(&checkpoints, &serde_json::json!({ "label": "a label" })).with(201);
}

#[test]
fn what_nothing_reads_is_refused_with_the_nearest_name() {
    let place = TestServer::new();
    place.write("file", "1");
    place.checkpoint("one");
    let workspace = place.workspace();
    for (path, named, meant) in [
        ("/sessions?limt=1".to_owned(), "limt", "limit"),
        ("/steps?sesion=x".to_owned(), "sesion", "session"),
        (format!("/workspaces/{workspace}/checkpoints?tags=x"), "tags", "tag"),
        ("/workspaces?limit=1".to_owned(), "limit", "at all"),
    ] {
        let problem = place.get(&path).problem(400);
        assert!(problem["detail"].as_str().unwrap().contains(&format!("\"{named}\"")), "{problem}");
        assert!(problem["hints"].to_string().contains(meant), "{problem}");
    }
    let problem =
        place.post(&format!("/workspaces/{workspace}/checkpoints"), &json!({ "lable": "two" })).problem(400);
    assert!(problem["detail"].as_str().unwrap().contains("lable"), "{problem}");
    assert!(problem["hints"].to_string().contains("label"), "{problem}");
    let listed = place.get(&format!("/workspaces/{workspace}/checkpoints")).with(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "nothing was created");
    place.call("s1", "c1", "file", "2", false);
    place.post("/sessions/s1/pause", &json!({ "reason": "lunch" })).problem(400);
    place.post("/sessions/s1/pause", &json!({})).with(200);
}
