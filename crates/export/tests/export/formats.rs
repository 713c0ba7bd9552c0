//! Exports for other programs, read by other programs.

use std::process::Command;

use serde_json::{Value, json};
use stepback_engine::recorder::ScanPolicy;
use stepback_export::{ExportContext, SessionFileFormat, write_session};
use stepback_model::event::AgentEvent;
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;
use stepback_testkit::python::python;
use stepback_testkit::test_workspace::START;

use crate::sample::{self, SECRET, SampleSession};

const FORMATS: [SessionFileFormat; 4] =
    [SessionFileFormat::Atif, SessionFileFormat::AgentTrace, SessionFileFormat::Har, SessionFileFormat::Otlp];

fn export(session: &SampleSession, format: SessionFileFormat) -> String {
    let context = ExportContext { version: "0.0.0", now: Timestamp::from_micros(START) };
    let mut bytes = Vec::new();
    write_session(format, &session.workspace, &session.session(), context, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Reads an export with programs that others wrote, and returns what they found.
#[track_caller]
fn read(format: SessionFileFormat, text: &str) -> Value {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/export/check.py");
    let output = Command::new(python()).arg(script).arg(format.as_str()).arg(file.path()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", format.as_str());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Adds a model call as a proxy records it.
fn add_model_call(session: &SampleSession, id: &str) {
    let request = json!({
        "wire": "messages", "method": "POST", "path": format!("/v1/messages?beta=true&key={SECRET}"),
        "headers": [["content-type", "application/json"], ["x-api-key", SECRET]],
        "body": { "model": "claude-sonnet-4-5", "messages": [{ "role": "user", "content": format!("token={SECRET}") }] },
        "bytes": 120,
    });
    let answer = json!({ "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_reason": "end_turn",
        "content": [{ "type": "text", "text": "As the proxy saw it." }], "usage": { "input_tokens": 10, "output_tokens": 5 } });
    let response = json!({
        "status": 200, "headers": [["content-type", "application/json"], ["set-cookie", SECRET]],
        "body": answer.to_string(), "chunks": "", "ended": "complete", "first_byte": 400, "took": 1500,
    });
    let event = |kind, summary: &str| AgentEvent {
        key: Some(format!("model {id}")),
        call: Some(id.to_owned()),
        tool: Some("claude-sonnet-4-5".into()),
        ..SampleSession::event(kind, summary)
    };
    let start =
        AgentEvent { input: Some(request), ..event(StepKind::ModelStart, "claude-sonnet-4-5: 1 message") };
    session.record(start, ScanPolicy::None, &[]);
    let usage = json!({ "input": 10, "output": 5, "cache_read": 0, "cache_write": 0, "reasoning": 0 });
    let end = AgentEvent {
        output: Some(response),
        duration: Some(1500),
        metadata: Some(
            json!({ "model": "claude-sonnet-4-5", "usage": usage, "cost_usd": 0.000105, "stop": "end_turn" }),
        ),
        ..event(StepKind::ModelEnd, "As the proxy saw it.")
    };
    session.record(end, ScanPolicy::None, &[]);
}

#[test]
fn a_trajectory_has_every_prompt_answer_and_call_once() {
    let session = sample::ordinary();
    let text = export(&session, SessionFileFormat::Atif);
    let facts = read(SessionFileFormat::Atif, &text);
    let document: Value = serde_json::from_str(&text).unwrap();
    let steps = document["steps"].as_array().unwrap();
    let of =
        |source: &str| facts["sources"].as_array().unwrap().iter().filter(|each| **each == source).count();
    assert_eq!((of("user"), of("agent"), of("system")), (2, 7, 2), "{facts}");
    let calls: Vec<&str> = steps
        .iter()
        .flat_map(|step| step["tool_calls"].as_array().into_iter().flatten())
        .map(|call| call["tool_call_id"].as_str().unwrap())
        .collect();
    assert_eq!(calls, ["toolu_1", "toolu_2", "toolu_3", "toolu_4", "toolu_5"]);
    let first = steps.iter().find(|step| step["tool_calls"].is_array()).unwrap();
    assert_eq!(first["reasoning_content"], "The user says that **add** is wrong. I run the tests first.");
    assert_eq!(first["message"], "I'll run the tests to see what happens now.");
    assert_eq!(first["metrics"]["prompt_tokens"], 16_290);
    assert_eq!(first["metrics"]["cached_tokens"], 15_000);
    assert!(first["observation"]["results"][0]["content"].as_str().unwrap().contains("Exit code 101"));
    assert_eq!(document["final_metrics"]["total_completion_tokens"], 340 * 7);
}

#[test]
fn ranges_are_the_lines_that_the_session_wrote() {
    let session = sample::ordinary();
    let facts = read(SessionFileFormat::AgentTrace, &export(&session, SessionFileFormat::AgentTrace));
    // Line 2 was changed, the others were there before.
    assert_eq!(facts["ranges"], json!({ "src/lib.rs": [[2, 2]], ".ci/ci.yml": [[1, 4]] }));
}

#[test]
fn the_archive_has_the_calls_that_a_proxy_recorded_and_no_credential() {
    let session = sample::ordinary();
    let empty = read(SessionFileFormat::Har, &export(&session, SessionFileFormat::Har));
    assert_eq!(empty["urls"], json!([]));
    add_model_call(&session, "m1");
    let text = export(&session, SessionFileFormat::Har);
    let facts = read(SessionFileFormat::Har, &text);
    assert_eq!(
        facts["urls"][0].as_str().unwrap().split('?').next(),
        Some("https://model.invalid/v1/messages")
    );
    assert!(!text.contains(SECRET), "{text}");
    let document: Value = serde_json::from_str(&text).unwrap();
    let entry = &document["log"]["entries"][0];
    assert_eq!(entry["timings"], json!({ "send": 0, "wait": 0.4, "receive": 1.1 }));
    assert_eq!(entry["request"]["headers"], json!([{ "name": "content-type", "value": "application/json" }]));
    assert!(entry["response"]["content"]["text"].as_str().unwrap().contains("As the proxy saw it."));
    // Kept, to be opened in a browser.
    std::fs::write(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("session.har"), &text).unwrap();
}

#[test]
fn spans_are_those_of_the_conventions() {
    let session = sample::ordinary();
    add_model_call(&session, "m1");
    let text = export(&session, SessionFileFormat::Otlp);
    let facts = read(SessionFileFormat::Otlp, &text);
    let count = |operation: &str| {
        facts["operations"].as_array().unwrap().iter().filter(|each| **each == operation).count()
    };
    // The session and two prompts; five calls; one model call of the proxy, seven answers of the conversation.
    assert_eq!((count("invoke_agent"), count("execute_tool"), count("chat")), (3, 5, 8), "{facts}");
    assert!(!text.contains(SECRET));
}

#[test]
fn hostile_empty_and_pruned_sessions_are_valid_in_every_format() {
    let hostile = sample::hostile();
    add_model_call(&hostile, "\"}]<script>");
    let empty = SampleSession::new();
    empty.record(SampleSession::event(StepKind::AgentStep, "session started"), ScanPolicy::None, &[]);
    let backwards = SampleSession::new();
    backwards.begin();
    backwards.prompt("the clock goes back");
    backwards.wait(-90_000_000);
    backwards.call(
        &sample::SampleCall {
            id: "c",
            tool: "Bash",
            input: json!({ "command": "date" }),
            ..Default::default()
        },
        |_| {},
    );
    let pruned = sample::ordinary();
    prune(&pruned);
    for (name, session) in
        [("hostile", &hostile), ("empty", &empty), ("backwards", &backwards), ("pruned", &pruned)]
    {
        for format in FORMATS {
            let text = export(session, format);
            read(format, &text);
            assert!(!text.contains(SECRET), "{name} {}", format.as_str());
        }
        let page = export(session, SessionFileFormat::Html);
        assert!(page.ends_with("</html>\n"), "{name}");
        assert!(!page.contains(SECRET), "{name}");
    }
}

/// Frees the files of all but the newest checkpoint.
fn prune(session: &SampleSession) {
    use stepback_engine::prune::Rules;
    let plan =
        session.workspace.plan_prune(Rules { keep_last: Some(1), now: true, ..Rules::default() }).unwrap();
    let pruned = session.workspace.prune(plan).unwrap();
    assert!(pruned.hidden > 0);
}
