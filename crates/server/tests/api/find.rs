//! Steps that are found, by what is known of them and by their words.

use serde_json::{Value, json};

use crate::support::TestServer;

fn numbers(page: &Value) -> Vec<u64> {
    page["items"].as_array().unwrap().iter().map(|item| item["number"].as_u64().unwrap()).collect()
}

fn place() -> TestServer {
    let place = TestServer::new();
    place.write("file", "1");
    place.checkpoint("golden master");
    place.call("s", "c1", "file", "2", false);
    place.call("s", "c2", "other", "3", true);
    place.said("chatty", "t", &["{\"role\":\"assistant\",\"content\":\"the émigré (tokenizer) objects\"}"]);
    place
}

#[test]
fn steps_are_found_by_what_is_known_of_them() {
    let place = place();
    let all = place.get("/steps").with(200);
    let newest: Vec<u64> = numbers(&all);
    assert_eq!(all["total"], newest.len());
    assert_eq!(all["total_is_exact"], true);
    assert!(newest.is_sorted_by(|a, b| a > b), "newest first");
    let oldest = numbers(&place.get("/steps?order=oldest").with(200));
    assert!(oldest.iter().rev().eq(newest.iter()));
    let failed = place.get("/steps?failed=true&kind=tool-end&tool=edit&agent=test").with(200);
    assert_eq!((numbers(&failed).len(), failed["items"][0]["agent"].as_str()), (1, Some("test")));
    assert_eq!(failed["items"][0]["workspace"], place.workspace());
    let total =
        |question: &str| place.get(&format!("/steps?{question}")).with(200)["total"].as_u64().unwrap();
    assert_eq!(total("label=golden%20master&checkpoint=true"), 1);
    assert_eq!(total("session=s&call=c1"), 2);
    assert_eq!(total("agent=chatty"), 1);
    assert_eq!(total("agent=nobody"), 0);
    assert_eq!(total("since=2001-01-01"), newest.len() as u64);
    assert_eq!(total("until=2001-01-01"), 0);
    assert_eq!(total("min_duration=10h"), 0);
    // Page by page, in every order.
    for order in ["newest", "oldest", "latest", "earliest", "longest", "shortest"] {
        let whole = numbers(&place.get(&format!("/steps?order={order}")).with(200));
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let page = place.get(&format!("/steps?order={order}&limit=2{after}")).with(200);
            seen.extend(numbers(&page));
            let Some(next) = page["next_cursor"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(seen, whole, "{order}");
        if !after.is_empty() {
            place.get(&format!("/steps?order={order}&failed=true&limit=2{after}")).problem(400);
        }
    }
}

#[test]
fn words_are_found_and_marked() {
    let place = place();
    let found = place.get("/search?q=%C3%89MIGR%C3%89%20tokenizer").with(200);
    assert_eq!((&found["total"], &found["complete"]), (&1.into(), &true.into()));
    let snippet = &found["items"][0]["snippets"][0];
    assert_eq!(snippet["field"], "message");
    let text = snippet["text"].as_str().unwrap();
    let marked: Vec<&str> = snippet["marks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mark| &text[mark[0].as_u64().unwrap() as usize..mark[1].as_u64().unwrap() as usize])
        .collect();
    assert_eq!(marked, ["émigré", "tokenizer"]);
    assert!(found["items"][0]["score"].as_f64().unwrap() > 0.0);
    assert_eq!(place.get("/search?q=(token&substring=true").with(200)["total"], 1);
    assert_eq!(place.get("/search?q=golden&newest=true").with(200)["total"], 1);
    assert_eq!(place.get("/search?q=golden&agent=chatty").with(200)["total"], 0);
    assert_eq!(place.get("/search?q=wrong&failed=true&session=s").with(200)["total"], 1);
    let (mut seen, mut after) = (0, String::new());
    loop {
        let page = place.get(&format!("/search?q=c*&limit=1{after}")).with(200);
        seen += page["items"].as_array().unwrap().len();
        let Some(next) = page["next_cursor"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(place.get("/search?q=c*").with(200)["total"], seen);
}

#[test]
fn what_cannot_be_looked_for_is_a_problem_with_advice() {
    let place = place();
    for wrong in [
        "/search",
        "/search?q=",
        "/search?q=-only",
        "/search?q=%22open",
        "/search?q=x&limit=0",
        "/search?q=x&after=zzz",
        "/search?q=x&since=when",
        "/steps?order=sideways",
        "/steps?min_duration=soon",
        "/steps?state=abc",
        "/steps?kind=nonsense",
        "/steps?iteration=-1",
        "/steps?failed=perhaps",
        "/steps?after=1.2.3",
        "/sessions?status=happy",
    ] {
        place.get(wrong).problem(400);
    }
    place.get("/steps?session=nobody").problem(404);
    place.get("/steps?workspace=zzzz").problem(404);
    let long = "x".repeat(5000);
    place.get(&format!("/search?q={long}")).problem(400);
}

#[test]
fn sessions_of_every_workspace_are_listed_by_status_and_time() {
    let place = place();
    let count = |question: &str| {
        place.get(&format!("/sessions?{question}")).with(200)["items"].as_array().unwrap().len()
    };
    assert_eq!(count("agent=test"), 1);
    assert_eq!(count("agent=test&status=active"), 1);
    assert_eq!(count("agent=test&status=ended"), 0);
    assert_eq!(count("agent=test&since=2001-01-01"), 1);
    assert_eq!(count("until=2001-01-01"), 0);
    assert_eq!(place.get("/sessions/s").with(200)["status"], "active");
    let statistics = place.get("/statistics").with(200);
    assert_eq!(statistics["agents"]["test"]["failed"], 1);
    assert_eq!(statistics["agents"]["test"]["steps"]["tool-start"], 2);
    assert_eq!(statistics["steps"]["tool-start"], 2);
}

#[test]
fn what_was_spent_is_told_by_hour_and_by_model() {
    let place = TestServer::new();
    let call = |id: &str, at: &str, model: &str, input: u64, cost: f64| {
        json!({ "session": "s", "kind": "model-end", "id": id, "at": at, "tool": model, "summary": "said",
            "output": "a long answer", "metadata": { "model": model, "cost_usd": cost,
                "usage": { "input": input, "output": 10, "cache_read": 5 } } })
    };
    let events = [
        call("1", "2023-11-14T20:10:00Z", "large", 100, 0.5),
        call("2", "2023-11-14T20:50:00Z", "small", 7, 0.25),
        call("3", "2023-11-14T21:00:00Z", "large", 1000, 1.0),
        call("4", "2023-10-01T21:00:00Z", "large", 9999, 9.0),
        json!({ "session": "s", "kind": "tool-end", "id": "5", "at": "2023-11-14T21:00:01Z", "tool": "Bash" }),
    ];
    place.post("/ingest", &json!({ "workspace": "w", "agent": "a", "events": events })).with(200);
    let usage = place.get("/usage").with(200);
    assert_eq!(usage["total"]["calls"], 3, "two weeks are the usual: {usage}");
    assert_eq!((&usage["total"]["input"], &usage["total"]["cost_usd"]), (&json!(1107), &json!(1.75)));
    let hours: Vec<(&str, u64)> = (usage["hours"].as_array().unwrap().iter())
        .map(|hour| (hour["at"].as_str().unwrap(), hour["input"].as_u64().unwrap()))
        .collect();
    assert_eq!(hours, [("2023-11-14T20:00:00Z", 107), ("2023-11-14T21:00:00Z", 1000)]);
    assert_eq!(usage["models"]["small"]["cache_read"], 5);
    assert_eq!(usage["complete"], true);
    assert_eq!(place.get("/usage?since=2023-09-01").with(200)["total"]["calls"], 4);
    place.get("/usage?since=whenever").problem(400);
}

#[test]
fn what_it_cost_is_told_by_model_and_by_tool() {
    let place = TestServer::new();
    let event = |id: &str, kind: &str, rest: Value| {
        let mut event =
            json!({ "session": "s", "kind": kind, "id": id, "at": format!("2023-11-14T20:10:0{id}Z") });
        event.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        event
    };
    let answer = |id: &str, input: u64, model: &str| {
        event(
            id,
            "model-end",
            json!({ "tool": model, "metadata": { "model": model,
            "usage": { "input": input, "output": 10, "cache_read": 0, "cache_write": 0 } } }),
        )
    };
    let events = [
        answer("1", 1000, "claude-sonnet-4-5"),
        event("2", "tool-start", json!({ "tool": "Read", "call": "c", "input": { "file_path": "a" } })),
        event("3", "tool-end", json!({ "tool": "Read", "call": "c", "output": "x".repeat(3000) })),
        answer("4", 2000, "claude-sonnet-4-5"),
        answer("5", 7, "no-such-model"),
    ];
    place.post("/ingest", &json!({ "workspace": "w", "agent": "a", "events": events })).with(200);
    let cost = place.get("/cost").with(200);
    // 3000 at $3 and 20 at $15, per million
    assert_eq!(
        (&cost["total"]["cost_usd"], &cost["total"]["unpriced_calls"]),
        (&json!(0.0093), &json!(1)),
        "{cost}"
    );
    assert_eq!(cost["unpriced"], json!([{ "model": "no-such-model", "calls": 1, "tokens": 17 }]));
    assert_eq!(
        (&cost["rows"][0]["key"], &cost["rows"][0]["basis"]),
        (&json!("claude-sonnet-4-5"), &json!("recorded"))
    );
    let tools = place.get("/cost?by=tool&since=2023-09-01").with(200);
    let read = tools["rows"].as_array().unwrap().iter().find(|row| row["key"] == "Read").unwrap();
    assert_eq!(
        (&read["basis"], &read["input"], &read["calls"]),
        (&json!("inferred"), &json!(990), &json!(1)),
        "{tools}"
    );
    assert!(tools["rule"].as_str().is_some_and(|rule| rule.contains("later request")));
    let session =
        cost["rows"].as_array().map(|_| place.get("/sessions").with(200)["items"][0]["id"].clone()).unwrap();
    let one = place.get(&format!("/cost?by=session&session={}", session.as_str().unwrap())).with(200);
    assert_eq!((&one["rows"][0]["session"], &one["total"]), (&session, &cost["total"]));
    assert_eq!(place.get("/cost?by=prompt&limit=1").with(200)["rows"].as_array().unwrap().len(), 1);
    for wrong in ["by=nothing", "since=whenever", "days=3"] {
        place.get(&format!("/cost?{wrong}")).problem(400);
    }
    place.get("/cost?workspace=ffff").problem(404);
}
