//! Stopping live agents, and what is in the store.

use std::time::Duration;

use serde_json::{Value, json};
use stepback_engine::control::StopAnswer;
use stepback_model::record::SessionInfo;
use stepback_store::Mutation;

use crate::support::{TestServer, stop};

fn items(page: &Value) -> &Vec<Value> {
    page["items"].as_array().unwrap()
}

#[test]
fn breakpoints_are_added_switched_and_removed() {
    let place = TestServer::new();
    place.checkpoint("one");
    let all = format!("/workspaces/{}/breakpoints", place.workspace());
    let first = place.post(&all, &json!({ "on": "tool", "name": "Bash", "condition": "rm .*" })).with(201);
    assert_eq!((&first["id"], &first["on"], &first["value"]), (&json!(1), &json!("tool"), &json!("Bash")));
    for on in [
        json!({ "on": "iteration", "number": 3 }),
        json!({ "on": "pattern", "pattern": "a+", "log": true }),
        json!({ "on": "error", "from_hit": 2 }),
        json!({ "on": "path", "glob": "src/**" }),
        json!({ "on": "cost", "usd": 2.5 }),
        json!({ "on": "tokens", "number": 100_000, "hit_condition": "=1" }),
        json!({ "on": "tool", "name": "*", "hit_condition": "%2", "log": true, "message": "{tool} {hits}" }),
    ] {
        place.post(&all, &on).with(201);
    }
    let page = place.get(&all).with(200);
    assert_eq!(items(&page).len(), 8);
    let (newest, error) = (&items(&page)[0], &items(&page)[4]);
    assert_eq!((&newest["hit_condition"], &newest["from_hit"]), (&json!("%2"), &Value::Null));
    assert_eq!(newest["message"], "{tool} {hits}");
    assert_eq!((&error["hit_condition"], &error["from_hit"]), (&json!(">=2"), &json!(2)));
    for wrong in [
        json!({}),
        json!({ "on": "moon" }),
        json!({ "on": "tool" }),
        json!({ "on": 0, "name": "Bash" }),
        json!({ "on": "tool", "name": " " }),
        json!({ "on": "tool", "name": "Bash", "glob": "*" }),
        json!({ "on": "path", "glob": "" }),
        json!({ "on": "pattern", "pattern": "(" }),
        json!({ "on": "pattern", "pattern": "(a{1000}){1000}" }),
        json!({ "on": "pattern", "pattern": "a".repeat(20_000) }),
        json!({ "on": "path", "glob": "[" }),
        json!({ "on": "cost", "usd": -1 }),
        json!({ "on": "iteration", "number": -1 }),
        json!({ "on": "error", "condition": "(" }),
        json!({ "on": "tokens" }),
        json!({ "on": "error", "from_hit": 0 }),
        json!({ "on": "error", "hit_condition": "<2" }),
        json!({ "on": "error", "hit_condition": "=2", "from_hit": 2 }),
        json!({ "on": "error", "message": "{tool}" }),
        json!({ "on": "error", "log": true, "message": "{moon}" }),
        json!([]),
    ] {
        place.post(&all, &wrong).problem(400);
    }
    for (zero, why, such_as) in [
        (json!({ "on": "iteration", "number": 0 }), "the first model turn is iteration 1", "20"),
        (json!({ "on": "tokens", "number": 0 }), "has reached 0 tokens", "150000"),
        (json!({ "on": "cost", "usd": 0 }), "has reached a cost of 0", "2.50"),
    ] {
        let problem = place.post(&all, &zero).problem(400);
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(why) && detail.contains(such_as), "{detail}");
    }
    let own = format!("{all}/1");
    assert_eq!(place.ask("PATCH", &own, Some(&json!({ "enabled": false }))).with(200)["enabled"], false);
    place.ask("PATCH", &own, Some(&json!({ "enabled": 1 }))).problem(400);
    place.ask("PATCH", &format!("{all}/99"), Some(&json!({ "enabled": false }))).problem(404);
    place.ask("PATCH", &format!("{all}/x"), Some(&json!({ "enabled": false }))).problem(400);
    assert_eq!(place.ask("DELETE", &own, None).with(200)["removed"], 1);
    place.ask("DELETE", &own, None).problem(404);
    assert_eq!(place.ask("DELETE", &all, None).with(200)["removed"], 7);
    assert_eq!(items(&place.get(&all).with(200)).len(), 0);
}

/// An agent that waits, and what it hears in the end.
fn told(place: &TestServer, answer: &Value) -> StopAnswer {
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let control = workspace.control().unwrap();
    let session = workspace.find_session("s").unwrap();
    let stop = stop(session.id, "stop1");
    control.publish_stop(&stop).unwrap();
    let waiting = place.get("/stops").with(200);
    assert_eq!((&waiting["items"][0]["id"], &waiting["items"][0]["tool"]), (&json!("stop1"), &json!("Bash")));
    place.post("/stops/nobody/answer", answer).problem(404);
    let heard = place.post("/stops/stop1/answer", answer).with(200);
    assert_eq!(heard["input"], json!({ "command": "rm" }));
    control.wait_for_answer(&stop, Duration::from_secs(30)).unwrap().unwrap()
}

#[test]
fn an_agent_that_waits_is_answered() {
    let place = TestServer::new();
    place.call("s", "c1", "file", "1", false);
    for wrong in [
        json!({}),
        json!({ "answer": "perhaps" }),
        json!({ "answer": "edit" }),
        json!({ "answer": "edit", "input": [] }),
        json!({ "answer": "deny", "reason": " " }),
        json!({ "answer": "deny", "reason": "x".repeat(100_000) }),
    ] {
        place.post("/stops/nobody/answer", &wrong).problem(400);
    }
    assert_eq!(told(&place, &json!({ "answer": "resume" })), StopAnswer::Resume);
    assert_eq!(
        told(&place, &json!({ "answer": "deny", "reason": "no" })),
        StopAnswer::Deny { reason: "no".into() }
    );
    let input = json!({ "command": "ls" });
    assert_eq!(told(&place, &json!({ "answer": "edit", "input": input })), StopAnswer::Edit { input });
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let (control, session) = (workspace.control().unwrap(), workspace.find_session("s").unwrap().id);
    assert!(!control.is_paused(session));
    assert_eq!(told(&place, &json!({ "answer": "step" })), StopAnswer::Resume);
    assert!(control.is_paused(session), "it stops again at the next call");
    assert_eq!(place.ask("POST", "/sessions/s/resume", None).with(200)["paused"], false);
    assert!(!control.is_paused(session));
    place.ask("POST", "/sessions/s/resume", None).problem(404);
    assert_eq!(place.ask("POST", "/sessions/s/pause", None).with(200)["paused"], true);
    assert!(control.is_paused(session));
    place.post("/sessions/s/inject", &json!({ "text": "use the other file" })).with(200);
    assert_eq!(control.take_messages(session).unwrap(), ["use the other file"]);
    place.post("/sessions/s/inject", &json!({ "text": "" })).problem(400);
    place.post("/sessions/s/inject", &json!({ "text": 1 })).problem(400);
    place.post("/sessions/nobody/pause", &json!({})).problem(404);
}

#[test]
fn a_session_that_has_ended_is_neither_paused_nor_told_anything() {
    let place = TestServer::new();
    place.call("s", "c1", "file", "1", false);
    let engine = place.engine();
    let session = engine.open_workspace_root(&place.root).unwrap().find_session("s").unwrap();
    let info = SessionInfo { ended_at: Some(engine.env.now()), ..session.info };
    let ended = Mutation::SetSessionInfo { session: session.id, info: Box::new(info) };
    engine.store.commit(None, &[ended]).unwrap();
    for (way, body) in [("pause", json!({})), ("inject", json!({ "text": "hello" }))] {
        let problem = place.post(&format!("/sessions/s/{way}"), &body).problem(409);
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("ended") && detail.contains("no agent is running here"), "{detail}");
    }
}

#[test]
fn changes_are_listed_with_who_made_them() {
    let place = TestServer::new();
    place.write("mine", "1");
    place.checkpoint("good");
    place.call("s", "c1", "theirs", "2", false);
    place.write("mine", "2");
    let all = format!("/workspaces/{}/changes", place.workspace());
    let changes = place.get(&all).with(200);
    assert_eq!(items(&changes).len(), 2);
    assert_eq!((&changes["items"][0]["path"], &changes["items"][0]["step"]), (&json!("mine"), &Value::Null));
    assert_eq!((&changes["items"][1]["path"], &changes["items"][1]["number"]), (&json!("theirs"), &json!(1)));
    assert_eq!(changes["items"][1]["authors"][0]["tool"], "Edit");
    assert_eq!(items(&place.get(&format!("{all}?session=s")).with(200)).len(), 1);
    assert_eq!(items(&place.get(&format!("{all}?path=mine")).with(200)).len(), 1);
    let page = place.get(&format!("{all}?limit=1")).with(200);
    let cursor = page["next_cursor"].as_str().unwrap();
    assert_eq!(place.get(&format!("{all}?limit=1&after={cursor}")).with(200)["items"][0]["number"], 1);
    place.get(&format!("{all}?since=nowhere")).problem(404);
    place.get(&format!("{all}?session=nobody")).problem(404);
    place.get(&format!("{all}?path=../x")).problem(400);
    place.get(&format!("{all}?all=perhaps")).problem(400);
}

#[test]
fn a_store_without_steps_has_no_oldest_and_no_newest() {
    let place = TestServer::new();
    let found = place.get("/statistics").with(200);
    assert_eq!((&found["total_steps"], &found["total_sessions"]), (&json!(0), &json!(0)));
    assert_eq!((&found["oldest_step_at"], &found["newest_step_at"]), (&Value::Null, &Value::Null));
}

#[test]
fn the_store_is_counted_and_pruned_only_when_somebody_means_it() {
    let place = TestServer::new();
    for number in 0..5 {
        place.write("file", &number.to_string());
        place.checkpoint(&format!("c{number}"));
    }
    place.call("s", "c1", "file", "x", false);
    let found = place.get("/statistics").with(200);
    assert_eq!((&found["workspaces"], &found["sessions"]), (&json!(1), &json!({ "test": 1 })));
    assert_eq!(found["steps"], json!({ "checkpoint": 5, "tool-start": 1, "tool-end": 1 }));
    assert!(found["total_bytes"].as_u64().unwrap() > 0);
    assert_eq!((&found["total_steps"], &found["total_sessions"]), (&json!(7), &json!(1)));
    let all = place.get("/steps?limit=100").with(200);
    let times = || items(&all).iter().map(|step| step["at"].as_str().unwrap());
    assert_eq!(found["oldest_step_at"].as_str(), times().min());
    assert_eq!(found["newest_step_at"].as_str(), times().max());
    assert_ne!(found["oldest_step_at"], found["newest_step_at"]);
    let prune = format!("/workspaces/{}/prune", place.workspace());
    let would = place.post(&prune, &json!({ "keep_last": 2 })).with(200);
    assert_eq!(would["applied"], false);
    assert_eq!(place.get("/statistics").with(200)["checkpoints"], found["checkpoints"]);
    let did = place.post(&prune, &json!({ "keep_last": 2, "dry_run": false })).with(200);
    assert_eq!((&did["applied"], &did["items"]), (&json!(true), &would["items"]));
    assert_eq!(did["operation"]["kind"], "prune");
    assert_eq!((&did["size_before"], &did["size_after"]), (&would["size_before"], &would["size_after"]));
    let after = place.get("/statistics").with(200);
    assert_eq!((&after["checkpoints"], &after["total_bytes"]), (&did["kept"], &did["size_after"]));
    place.post(&prune, &json!({ "max_size": 1 })).problem(409);
    for wrong in [
        json!({ "keep_last": -1 }),
        json!({ "keep_days": "x" }),
        json!({ "max_size": 1.5 }),
        json!({ "other": 1 }),
    ] {
        place.post(&prune, &wrong).problem(400);
    }
    place.post(&prune, &json!({ "keep_last": u64::MAX, "keep_days": u64::MAX })).with(200);
}
