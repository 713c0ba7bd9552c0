//! `stepback proxy --replay`: a recording answers, and nobody else is asked unless that is wanted.

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::wire::{Carrying, Upstream, body_of, document, events, post, steps};

fn asking(prompts: &[&str]) -> String {
    let said: Vec<Value> = prompts.iter().map(|text| json!({ "role": "user", "content": text })).collect();
    json!({ "model": "m", "messages": said }).to_string()
}

/// A model that repeats how many messages it was given; streamed if the request wants that.
fn counting() -> Upstream {
    Upstream::start(|request, stream| {
        use std::io::Write;
        let body: Value = serde_json::from_str(body_of(request)).unwrap();
        let text = format!("{} messages", body["messages"].as_array().unwrap().len());
        let bytes = match body["stream"] == true {
            true => events(&[
                json!({ "type": "message_start", "message": { "model": "m", "usage": { "input_tokens": 3 } } }),
                json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
                json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } }),
                json!({ "type": "content_block_stop", "index": 0 }),
                json!({ "type": "message_stop" }),
            ]),
            false => document(
                200,
                &json!({ "type": "message", "model": "m", "content": [{ "type": "text", "text": text }] }),
            ),
        };
        let _ = stream.write_all(&bytes);
    })
}

/// Three calls on record: "one"; "one", "two"; and one that is streamed.
fn recorded() -> (Sandbox, Upstream, Vec<String>) {
    let (world, upstream) = (Sandbox::new(), counting());
    let proxy = Carrying::start(&world, &["--upstream", &upstream.url(), "--session", "first"]);
    let answers = requests().iter().map(|body| post(&proxy.url, "/v1/messages", &[], body)).collect();
    proxy.end().exits(0);
    (world, upstream, answers)
}

fn requests() -> Vec<String> {
    let mut streamed: Value = serde_json::from_str(&asking(&["one", "two", "three"])).unwrap();
    streamed["stream"] = json!(true);
    vec![asking(&["one"]), asking(&["one", "two"]), streamed.to_string()]
}

#[test]
fn a_recording_answers_as_the_model_did() {
    let (world, upstream, answers) = recorded();
    let nobody = "http://127.0.0.1:1";
    let proxy = Carrying::start(&world, &["--replay", "first", "--upstream", nobody, "--session", "again"]);
    for (body, before) in requests().iter().zip(&answers) {
        let got = post(&proxy.url, "/v1/messages", &[], body);
        assert_eq!(body_of(&got), body_of(before));
        assert!(got.starts_with("HTTP/1.1 200"), "{got}");
    }
    proxy.end().exits(0);
    assert_eq!(upstream.asked().len(), 3, "nobody was asked again");
    let (first, again) = (steps(&world, Some("first")), steps(&world, Some("again")));
    let said = |steps: &[Value]| steps.iter().map(|step| step["summary"].clone()).collect::<Vec<_>>();
    assert_eq!(said(&first), said(&again), "what is played is recorded like anything else");
}

#[test]
fn what_was_never_asked_is_refused_asked_or_guessed_as_wanted() {
    let (world, upstream, answers) = recorded();
    let new = asking(&["one", "something else"]);
    let with = |how: &str, requests: &[&str]| {
        let words =
            ["--replay", "first", "--upstream", &upstream.url(), "--on-difference", how, "--session", how];
        let proxy = Carrying::start(&world, &words);
        let got: Vec<String> =
            requests.iter().map(|body| post(&proxy.url, "/v1/messages", &[], body)).collect();
        (got, proxy.end().exits(0))
    };
    let (got, ran) = with("stop", &[&requests()[0], &new, &requests()[1]]);
    assert_eq!(body_of(&got[0]), body_of(&answers[0]));
    for refused in &got[1..] {
        assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
        assert_eq!(serde_json::from_str::<Value>(body_of(refused)).unwrap()["type"], "error");
    }
    assert_eq!(upstream.asked().len(), 3);
    let tally: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(tally["model_calls"]["parted"]["call"], 2, "{tally}");
    assert_eq!((&tally["model_calls"]["recorded"], &tally["model_calls"]["refused"]), (&json!(1), &json!(2)));

    let (got, _) = with("live", &[&requests()[0], &new]);
    assert!(got[1].contains("2 messages"), "{}", got[1]);
    assert_eq!(upstream.asked().len(), 4);

    let (got, _) = with("nearest", &[&requests()[0], &new]);
    assert_eq!(body_of(&got[1]), body_of(&answers[1]));
    assert_eq!(upstream.asked().len(), 4);
}

#[test]
fn a_session_that_cannot_answer_is_an_error() {
    let world = Sandbox::new();
    world.ok(["checkpoint", "create", "one"]);
    world.run(["proxy", "--replay", "nobody"]).exits(3);
    let talk = crate::talk::Talk::new(&world, "s-silent");
    talk.begin();
    talk.prompt("hello");
    let ran = world.run(["proxy", "--replay", "s-silent"]).exits(4);
    assert!(ran.err.contains("were not recorded") && ran.err.contains("stepback run"), "{}", ran.err);
}
