//! Small conversations in the shape each agent writes them.

use std::path::Path;

use serde_json::{Value, json};

pub const SESSION: &str = "0c0ffee0-1111-4222-8333-444455556666";

fn time(n: usize) -> String {
    format!("2026-03-04T05:06:{n:02}.000Z")
}

/// A line of Claude Code, whose uuid is `uN` where N is the number of the line.
fn claude(n: usize, kind: &str, rest: Value) -> String {
    let mut line = json!({
        "type": kind, "uuid": format!("u{n}"), "parentUuid": format!("u{}", n.saturating_sub(1)), "isSidechain": false,
        "timestamp": time(n), "sessionId": SESSION, "cwd": "/home/dev/app",
    });
    line.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    line.to_string()
}

fn answer(n: usize, id: &str, block: Value) -> String {
    let usage = json!({"input_tokens": 7, "output_tokens": 3, "cache_read_input_tokens": 11, "cache_creation_input_tokens": 2});
    let message = json!({"id": id, "role": "assistant", "model": "opus", "content": [block], "usage": usage});
    claude(n, "assistant", json!({"message": message}))
}

fn call(id: &str, name: &str, input: Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

fn result(n: usize, id: &str, output: &str, failed: bool) -> String {
    let block = json!({"type": "tool_result", "tool_use_id": id, "content": output, "is_error": failed});
    claude(n, "user", json!({"message": {"role": "user", "content": [block]}}))
}

fn prompt(n: usize, text: &str) -> String {
    claude(n, "user", json!({"message": {"role": "user", "content": text}, "promptId": format!("p{n}")}))
}

/// Two turns: parallel calls with their results between them, tasks, a sub-agent inline, a compaction, an error.
pub fn claude_lines() -> Vec<String> {
    vec![
        json!({"type": "queue-operation", "operation": "enqueue", "timestamp": time(0), "sessionId": SESSION}).to_string(),
        prompt(1, "fix the parser"),
        claude(2, "attachment", json!({"attachment": {"type": "skill_listing"}})),
        answer(3, "m1", json!({"type": "thinking", "thinking": "hm"})),
        answer(4, "m1", json!({"type": "text", "text": "Looking."})),
        answer(5, "m1", call("c1", "Read", json!({"file_path": "/home/dev/app/a.rs"}))),
        result(6, "c1", "fn a() {}", false),
        answer(7, "m1", call("c2", "Bash", json!({"command": "cargo test"}))),
        result(8, "c2", "Exit code 1", true),
        answer(9, "m2", call("c3", "TaskCreate", json!({"subject": "A", "description": "do A"}))),
        result(10, "c3", "Task #1 created successfully: A", false),
        answer(11, "m3", call("c4", "TaskUpdate", json!({"taskId": "1", "status": "in_progress"}))),
        result(12, "c4", "Updated task #1 status", false),
        claude(13, "user", json!({"isSidechain": true, "agentId": "sub1", "message": {"role": "user", "content": "sub job"}})),
        claude(14, "assistant", json!({"isSidechain": true, "agentId": "sub1",
            "message": {"id": "m4", "content": [{"type": "text", "text": "sub done"}]}})),
        answer(15, "m5", json!({"type": "text", "text": "All done."})),
        json!({"type": "last-prompt", "leafUuid": "u15", "sessionId": SESSION}).to_string(),
        json!({"type": "queue-operation", "operation": "enqueue", "timestamp": time(17), "sessionId": SESSION}).to_string(),
        prompt(18, "now the lexer"),
        claude(19, "system", json!({"subtype": "compact_boundary", "content": "Conversation compacted"})),
        claude(20, "user", json!({"isCompactSummary": true, "message": {"role": "user", "content": "summary of it"}})),
        claude(21, "assistant", json!({"isApiErrorMessage": true,
            "message": {"id": "m6", "content": [{"type": "text", "text": "API Error: overloaded"}]}})),
        answer(22, "m7", call("c5", "TaskUpdate", json!({"taskId": "1", "status": "completed"}))),
    ]
}

fn codex(n: usize, kind: &str, payload: Value) -> String {
    json!({"timestamp": time(n), "ordinal": n, "type": kind, "payload": payload}).to_string()
}

/// Two turns with a failing command, parallel calls and a compaction.
pub fn codex_lines() -> Vec<String> {
    let user = |text: &str, kind: &str| {
        json!({"type": "message", "id": format!("msg_{text}"), "role": "user", "content": [{"type": "input_text", "text": text}],
            "internal_chat_message_metadata_passthrough": {"content_item_kinds": [kind]}})
    };
    let shown = |text: &str| json!({"type": "item_completed", "thread_id": SESSION, "item": {"type": "AgentMessage", "id": text}});
    let said = |text: &str| json!({"type": "message", "id": text, "role": "assistant", "content": [{"type": "output_text", "text": text}]});
    let exec = |id: &str, cmd: &str| {
        json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "exec_command",
            "arguments": json!({"cmd": cmd}).to_string()})
    };
    let tokens = json!({"usage": {"input_tokens": 100, "cached_input_tokens": 40, "output_tokens": 20}});
    let output =
        |id: &str, text: &str| json!({"type": "function_call_output", "call_id": id, "output": text});
    vec![
        codex(0, "session_meta", json!({"id": SESSION, "session_id": SESSION, "cwd": "/home/dev/app"})),
        codex(1, "event_msg", json!({"type": "task_started", "turn_id": "t1"})),
        codex(2, "response_item", user("<environment_context>", "environments.environment_context")),
        codex(3, "turn_context", json!({"cwd": "/home/dev/app", "model": "gpt"})),
        codex(4, "response_item", user("one", "user.text")),
        codex(5, "event_msg", json!({"type": "item_completed", "item": {"type": "UserMessage", "id": "x"}})),
        codex(6, "event_msg", shown("hello")),
        codex(7, "response_item", said("hello")),
        codex(8, "response_item", exec("a", "false")),
        codex(9, "response_item", exec("b", "true")),
        codex(10, "token_usage_record", tokens.clone()),
        codex(
            11,
            "event_msg",
            json!({"type": "item_completed", "item": {"type": "CommandExecution", "id": "a", "exit_code": 1}}),
        ),
        codex(12, "response_item", output("a", "Process exited with code 1\nOutput:\n")),
        codex(13, "response_item", output("b", "Process exited with code 0\nOutput:\n")),
        codex(14, "response_item", said("done")),
        codex(15, "token_usage_record", tokens),
        codex(16, "event_msg", json!({"type": "task_complete"})),
        codex(17, "compacted", json!({"message": "short"})),
        codex(18, "event_msg", json!({"type": "task_started", "turn_id": "t2"})),
        codex(19, "turn_context", json!({"cwd": "/home/dev/app", "model": "gpt"})),
        codex(20, "response_item", user("two", "user.text")),
        codex(21, "event_msg", json!({"type": "error", "message": "no quota"})),
    ]
}

/// One turn whose call is written again with its outcome, and one that was taken back.
pub fn gemini_lines() -> Vec<String> {
    let user = |id: &str, content: Value| json!({"id": id, "timestamp": time(1), "type": "user", "content": content});
    let tokens = json!({"input": 100, "output": 20, "cached": 30, "thoughts": 5});
    let model = json!({"id": "g1", "timestamp": time(2), "type": "gemini", "content": "Writing.", "thoughts": [],
        "tokens": tokens, "model": "pro"});
    let mut again = model.clone();
    again["toolCalls"] = json!([
        {"id": "w1", "name": "write_file", "args": {"file_path": "f"}, "status": "success", "timestamp": time(3)},
        {"id": "w2", "name": "run_shell_command", "args": {"command": "x"}, "status": "cancelled", "timestamp": time(4)},
    ]);
    let answer =
        json!([{"functionResponse": {"id": "w1", "name": "write_file", "response": {"output": "ok"}}}]);
    let lines = [
        json!({"sessionId": SESSION, "projectHash": "ab", "startTime": time(0), "kind": "main"}),
        json!({"$set": {"messages": [user("s0", json!([{"text": "<session_context>\nhi"}]))]}}),
        user("p1", json!([{"text": "do the job"}])),
        json!({"$set": {"lastUpdated": time(2)}}),
        model,
        again,
        user("r1", answer),
        user("p2", json!([{"text": "wrong"}])),
        json!({"$rewindTo": "p2"}),
        user("p3", json!("right")),
    ];
    lines.iter().map(Value::to_string).collect()
}

/// A database of opencode with one session.
pub fn opencode_db(path: &Path, session: &str) -> rusqlite::Connection {
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute_batch(
        "CREATE TABLE session (id text PRIMARY KEY, parent_id text, slug text, directory text, title text, version text,
                               revert text, time_created integer);
         CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer, data text);
         CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text, data text);",
    )
    .unwrap();
    db.execute(
        "INSERT INTO session VALUES (?1, NULL, 'slug', '/home/dev/app', 'Title', '1.2.3', NULL, 1000)",
        [session],
    )
    .unwrap();
    say(&db, session, "msg_000000000001aaaaaaaaaaaaaa", json!({"role": "user", "time": {"created": 1000}}));
    part(&db, session, "msg_000000000001aaaaaaaaaaaaaa", "prt_1", json!({"type": "text", "text": "go"}));
    let parent = "msg_000000000001aaaaaaaaaaaaaa";
    let info = json!({"role": "assistant", "parentID": parent, "modelID": "m", "time": {"created": 2000},
        "tokens": {"input": 5, "output": 6, "reasoning": 1, "cache": {"read": 2, "write": 3}}});
    say(&db, session, "msg_000000000002bbbbbbbbbbbbbb", info);
    part(&db, session, "msg_000000000002bbbbbbbbbbbbbb", "prt_2", tool("running"));
    db
}

pub fn tool(status: &str) -> Value {
    json!({"type": "tool", "tool": "bash", "callID": "k1",
        "state": {"status": status, "input": {"command": "ls"}, "output": "f", "time": {"start": 2000, "end": 2500}}})
}

pub fn say(db: &rusqlite::Connection, session: &str, id: &str, data: Value) {
    let time = data["time"]["created"].as_i64().unwrap_or(0);
    db.execute("INSERT INTO message VALUES (?1, ?2, ?3, ?4)", (id, session, time, data.to_string())).unwrap();
}

pub fn part(db: &rusqlite::Connection, session: &str, message: &str, id: &str, data: Value) {
    db.execute(
        "INSERT OR REPLACE INTO part VALUES (?1, ?2, ?3, ?4)",
        (id, message, session, data.to_string()),
    )
    .unwrap();
}
