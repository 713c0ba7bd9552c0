//! Settings that others write, and what agents give their hooks: read or refused, and edits leave no trace.

use serde_json::json;
use stepback_agents::agent::Agent;
use stepback_agents::install::jsonc::{JsoncDocument, PathStep, Value};
use stepback_agents::payload;
use stepback_agents::transcript;
use stepback_testkit::fuzz::{FuzzTarget, MeteredAllocator};

#[global_allocator]
static ALLOCATOR: MeteredAllocator = MeteredAllocator;

#[test]
fn settings() {
    let corpus = [
        "{}",
        "{\n\t\"a\": 1\n}\n",
        "{\r\n  \"a\": [1, -2.5e3, null, true],\r\n}\r\n",
        "// top\n{\n  \"a\": 1 // about a\n  /* the end */\n}\n// bottom",
        "\u{feff}{\"hooks\": {\"PreToolUse\": [{\"matcher\": \"*\", \"hooks\": [{\"type\": \"command\", \"command\": \"x\"}]}]}}",
        "{\"mcp\": {\"x\": {\"command\": [\"a\\u00e9\\ud83d\\ude00\", \"b\\n\"]}}, \"plugin\": []}",
        "[1, [2, [3]]]",
    ];
    let words = [
        "{", "}", "[", "]", ",", ":", "\"", "//", "/*", "*/", "\n", "\r\n", "\\u", "\\ud800", "null", "-",
        "1e9",
    ];
    let path = |key: &str| [PathStep::from(key)];
    FuzzTarget::new("JSONC settings", corpus).words(&words).run(25_000, |input| {
        let text = String::from_utf8_lossy(input).into_owned();
        let Ok(mut document) = JsoncDocument::parse(text.clone()) else { return };
        assert_eq!(document.text(), text);
        let is_new = document.root().members().is_some() && document.get(&path("a new member")).is_none();
        let value = Value::Object(vec![("hooks", Value::Array(vec![Value::Text("h".to_owned())]))]);
        if is_new && document.insert_member(&[], "a new member", &value).is_ok() {
            assert!(JsoncDocument::parse(document.text().to_owned()).is_ok(), "{}", document.text());
            document.remove(&path("a new member")).unwrap();
            assert_eq!(document.text(), text);
        }
    });
}

#[test]
fn hook_payloads() {
    let call = json!({ "session_id": "s", "cwd": "/w", "transcript_path": "/t.jsonl", "hook_event_name": "PreToolUse",
        "tool_name": "Bash", "tool_input": { "command": "rm -rf build", "description": "clean" }, "tool_use_id": "t1",
        "agent_id": "a0", "agent_type": "Explore", "model": "m" });
    let after = json!({ "session_id": "s", "hook_event_name": "PostToolUse", "tool_name": "Edit",
        "tool_input": { "file_path": "/w/a", "old_string": "a", "new_string": "b" },
        "tool_response": { "content": [{ "type": "text", "text": "done" }], "duration_ms": 12 } });
    let gemini = json!({ "session_id": "s", "hook_event_name": "AfterModel", "timestamp": "2026-01-02T03:04:05Z",
        "llm_request": { "model": "m", "messages": [{ "role": "user", "content": "hi" }] },
        "llm_response": { "candidates": [{ "content": { "parts": ["x"] } }] } });
    let opencode = json!({ "session_id": "s", "hook_event_name": "tool.execute.after", "tool_name": "patch",
        "tool_input": { "patchText": "*** Update File: a\n" }, "tool_response": "ok", "error": "it failed" });
    let corpus = [call, after, gemini, opencode].map(|payload| payload.to_string());
    let words = [
        "\"prompt\": \"x\",",
        "null",
        "[",
        "{",
        "]",
        "}",
        "\"error\":",
        "\\u0000",
        "SessionEnd",
        "UserPromptSubmit",
    ];
    FuzzTarget::new("hook payloads", corpus).words(&words).run(30_000, |input| {
        let Ok(value) = serde_json::from_slice(input) else { return };
        for agent in Agent::ALL {
            if let Ok(seen) = payload::read(agent, &value) {
                assert!(seen.event.summary.chars().count() < 300, "{}", seen.event.summary);
            }
        }
    });
}

#[test]
fn transcripts() {
    let corpus = [
        "{\"type\":\"user\",\"uuid\":\"1\",\"message\":{\"role\":\"user\",\"content\":\"hi\"}}\n{\"type\":\"assistant\",\"uuid\":\"2\",\"parentUuid\":\"1\",\"message\":{\"id\":\"m\",\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"Bash\",\"input\":{}}]}}",
        "{\"timestamp\":\"2026-01-02T03:04:05Z\",\"type\":\"response_item\",\"payload\":{\"type\":\"function_call\",\"call_id\":\"t1\",\"name\":\"shell\",\"arguments\":\"{}\"}}",
        "{\"type\":\"gemini\",\"id\":\"1\",\"content\":\"x\",\"toolCalls\":[{\"id\":\"t1\",\"name\":\"x\",\"args\":{}}]}",
    ];
    let words = ["\n", "null", "[", "{", "]", "}", "\"tool_result\"", "\"t1\"", "\"thinking\""];
    FuzzTarget::new("transcripts", corpus).words(&words).run(8_000, |input| {
        let text = String::from_utf8_lossy(input);
        let lines: Vec<&str> = text.lines().collect();
        for agent in Agent::ALL {
            let messages = transcript::parse_messages(agent, &lines);
            for message in &messages {
                let _ = (
                    message.text(),
                    message.display_text(),
                    message.call_ids().count(),
                    message.result_ids().count(),
                );
            }
            assert!(transcript::align_cut(agent, &lines, lines.len()) <= lines.len());
            assert!(transcript::cut_before_call(agent, &lines, "t1").is_none_or(|keep| keep <= lines.len()));
            assert!(transcript::cut_before_prompt(agent, &lines, 1).is_none_or(|keep| keep <= lines.len()));
        }
    });
}
