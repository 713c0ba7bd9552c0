//! Finding recorded answers: the same conversation of another run is found, another one is not.

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::{Value, json};
use stepback_llm_wire::matching::{MatchResult, Places, Recording, RequestDifference};
use stepback_llm_wire::{AnswerEnd, Chunks, Exchange, ModelRequest, Response, Wire};

fn request(method: &str, path: &str, body: Value) -> ModelRequest {
    let wire = Wire::of(method, path);
    ModelRequest { wire, method: method.into(), path: path.into(), headers: Vec::new(), body, bytes: 0 }
}

fn recording(requests: impl IntoIterator<Item = ModelRequest>) -> Recording {
    let response = Response {
        status: 200,
        headers: Vec::new(),
        body: String::new(),
        chunks: Chunks::default(),
        ended: AnswerEnd::Complete,
        first_byte: None,
        took: 0,
        left_out: 0,
    };
    let exchange = |(at, request)| Exchange { id: format!("x{at}"), request, response: response.clone() };
    let place = |path: &str, name| (PathBuf::from(path), name);
    let places = Places {
        recorded: vec![place(OLD.cwd, "<workspace>"), place(OLD.home, "<home>")],
        present: vec![place(NEW.cwd, "<workspace>"), place(NEW.home, "<home>")],
    };
    Recording::new(requests.into_iter().enumerate().map(exchange).collect(), places)
}

/// Everything that differs between two runs.
struct Run {
    cwd: &'static str,
    home: &'static str,
    day: &'static str,
    uuid: &'static str,
    number: u64,
}

const OLD: Run = Run {
    cwd: "/home/dev/project",
    home: "/home/dev",
    day: "2026-11-14",
    uuid: "01a1e070-fb9a-79d2-bd90-679942036a6e",
    number: 1_794_766_863_483,
};
const NEW: Run = Run {
    cwd: "/srv/again/files",
    home: "/srv/again/home",
    day: "2026-12-01",
    uuid: "77b2c11f-0000-4aaa-9bbb-0123456789ab",
    number: 1_795_000_000_000,
};

impl Run {
    /// Claude Code, after so many tool calls.
    fn claude(&self, prompt: &str, results: &[&str]) -> ModelRequest {
        let Run { cwd, home, day, uuid, number } = self;
        let folder = cwd.replace('/', "-");
        let mut messages = vec![json!({"role": "user", "content": [
            {"type": "text", "text": format!("<system-reminder>Today's date is {day}.</system-reminder>")},
            {"type": "text", "text": format!("{prompt} in {cwd}"), "cache_control": {"type": "ephemeral"}},
        ]})];
        for (at, result) in results.iter().enumerate() {
            let id = format!("toolu_{prompt}_{at}");
            let input = json!({"command": "ls", "path": format!("{cwd}/src")});
            messages.push(json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "Bash", "input": input}]}));
            let text = format!("{result} {home}/.claude/projects/{folder} agentId: a{}", &uuid[24..]);
            let mut block = json!({"type": "tool_result", "tool_use_id": id, "content": text});
            if at + 1 == results.len() {
                block["cache_control"] = json!({"type": "ephemeral"});
            }
            messages.push(json!({"role": "user", "content": [block]}));
        }
        let user = json!({"device_id": uuid, "session_id": uuid}).to_string();
        let body = json!({
            "model": "claude-sonnet-4-5", "stream": true, "max_tokens": 32000, "messages": messages,
            "metadata": {"user_id": user}, "tools": [{"name": "Bash", "input_schema": {"type": "object"}}],
            "system": [
                {"type": "text", "text": format!("x-anthropic-billing-header: cc_version=2.1.197.{};", number % 1000)},
                {"type": "text", "text": format!("Primary working directory: {cwd}\nOS Version: Linux {number}\n\ngitStatus: {uuid}")},
            ],
        });
        request("POST", "/v1/messages?beta=true", body)
    }

    fn claude_title(&self, prompt: &str) -> ModelRequest {
        let body = json!({
            "model": "claude-haiku-4-5", "stream": true, "tools": [], "max_tokens": 32000, "metadata": {"user_id": self.uuid},
            "system": [{"type": "text", "text": "Write a title."}], "messages": [{"role": "user", "content": prompt}],
            "output_config": {"format": {"type": "json_schema", "schema": {}}},
        });
        request("POST", "/v1/messages?beta=true", body)
    }

    fn codex(&self, prompt: &str, output: Option<&str>) -> ModelRequest {
        let Run { cwd, day, uuid, number, .. } = self;
        let environment = format!(
            "<environment_context>\n<cwd>{cwd}</cwd>\n<current_date>{day}</current_date>\n<timezone>Zone/{number}</timezone>\n</environment_context>"
        );
        let said = |text: &str| {
            json!({
                "type": "message", "id": format!("msg_{uuid}"), "role": "user", "content": [{"type": "input_text", "text": text}],
                "internal_chat_message_metadata_passthrough": {"turn_id": uuid, "create_time": *number as f64 / 1000.0},
            })
        };
        let mut input = vec![
            json!({"type": "message", "role": "developer", "content": [{"type": "input_text", "text": format!("In {cwd} you may write.")}]}),
            said(&environment),
            said(prompt),
        ];
        if let Some(output) = output {
            input.push(json!({"type": "function_call", "call_id": "call_1", "name": "exec", "arguments": "{\"cmd\":\"ls\"}"}));
            let chunk =
                format!("Chunk ID: {}\nWall time: 0.{} seconds\nOutput:\n{output}", &uuid[..6], number % 997);
            input.push(json!({"type": "function_call_output", "id": format!("fco_{uuid}"), "call_id": "call_1", "output": chunk}));
        }
        let body = json!({
            "model": "gpt-5.5", "stream": true, "store": false, "instructions": "Help.", "input": input,
            "prompt_cache_key": uuid, "client_metadata": {"session": uuid}, "tools": [{"type": "function", "name": "exec"}],
        });
        request("POST", "/v1/responses", body)
    }

    fn gemini(&self, output: &str) -> ModelRequest {
        let Run { day, number, .. } = self;
        let id = format!("run_shell_{number}_0");
        let body = json!({
            "systemInstruction": {"parts": [{"text": format!("Today's date is {day}.")}]},
            "tools": [{"functionDeclarations": [{"name": "run_shell"}]}],
            "contents": [
                {"role": "user", "parts": [{"text": "go"}]},
                {"role": "model", "parts": [{"functionCall": {"id": id, "name": "run_shell", "args": {}}}]},
                {"role": "user", "parts": [{"functionResponse": {"id": id, "name": "run_shell", "response": {
                    "output": format!("{output}\nProcess Group PGID: {}", number % 30_000),
                }}}]},
            ],
        });
        request("POST", "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", body)
    }

    fn opencode(&self, prompt: &str) -> ModelRequest {
        let system = format!("Working directory: {}\nToday's date: {}", self.cwd, self.day);
        let body = json!({
            "model": "m", "stream": true, "tools": [{"type": "function", "function": {"name": "bash"}}],
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": prompt}],
        });
        request("POST", "/v1/chat/completions", body)
    }

    fn opencode_title(&self, prompt: &str) -> ModelRequest {
        let body = json!({"model": "m", "stream": true, "messages": [
            {"role": "system", "content": "You make titles."}, {"role": "user", "content": "Title:"},
            {"role": "user", "content": prompt},
        ]});
        request("POST", "/v1/chat/completions", body)
    }
}

fn differences(found: MatchResult) -> (Option<usize>, Vec<RequestDifference>) {
    match found {
        MatchResult::Different { nearest, differences } => (nearest, differences),
        other => panic!("{other:?}"),
    }
}

#[test]
fn another_run_of_the_same_is_found() {
    let all = |run: &Run| {
        [
            run.claude("fix", &[]),
            run.claude("fix", &["a"]),
            run.claude("fix", &["a", "b"]),
            run.codex("go", None),
            run.codex("go", Some("files")),
            run.gemini("files"),
            run.opencode("go"),
        ]
    };
    let mut recording = recording(all(&OLD));
    for (at, request) in all(&NEW).iter().enumerate() {
        assert_eq!(recording.find(request), MatchResult::Same(at));
    }
    assert_eq!(recording.given(), 7);
}

#[test]
fn what_the_model_said_about_the_old_directories_still_fits() {
    let mut recording = recording([OLD.claude("fix", &["a"])]);
    let mut now = NEW.claude("fix", &["a"]);
    now.body["messages"][1]["content"][0]["input"]["path"] = json!("/home/dev/project/src");
    assert_eq!(recording.find(&now), MatchResult::Same(0));
}

#[test]
fn another_result_is_a_difference_exactly_there() {
    let mut recording =
        recording([OLD.claude("fix", &[]), OLD.claude("fix", &["a"]), OLD.claude("fix", &["a", "b"])]);
    let (nearest, parts) = differences(recording.find(&NEW.claude("fix", &["a", "another"])));
    assert_eq!(nearest, Some(2));
    let paths: Vec<&str> = parts.iter().map(|part| part.path.as_str()).collect();
    assert_eq!(paths, ["messages[4].content[0].content"]);
    assert!(parts[0].recorded.as_deref().is_some_and(|text| text.starts_with("b <home>")));
    assert!(parts[0].present.as_deref().is_some_and(|text| text.starts_with("another <home>")));

    let mut recording = self::recording([OLD.codex("go", Some("files"))]);
    let (_, parts) = differences(recording.find(&NEW.codex("go", Some("no files"))));
    assert_eq!(parts[0].path, "input[4].output");
    let (_, parts) = differences(recording.find(&NEW.codex("stop", Some("files"))));
    assert_eq!(parts[0].path, "input[2].content");
    assert_eq!((parts[0].recorded.as_deref(), parts[0].present.as_deref()), (Some("go"), Some("stop")));

    let mut recording = self::recording([OLD.gemini("files")]);
    let (_, parts) = differences(recording.find(&NEW.gemini("none")));
    assert_eq!(parts[0].path, "contents[2].parts[0].functionResponse.response.output");
}

#[test]
fn a_conversation_that_goes_on_further_than_recorded() {
    let mut recording = recording([OLD.claude("fix", &[]), OLD.claude("fix", &["a"])]);
    let (nearest, parts) = differences(recording.find(&NEW.claude("fix", &["a", "b"])));
    assert_eq!(nearest, Some(1));
    assert_eq!(parts[0].path, "messages[3]");
    assert_eq!(parts[0].recorded, None);
    assert!(parts[0].present.as_deref().is_some_and(|text| text.contains("tool_use")));
    let (_, parts) = differences(self::recording([]).find(&NEW.claude("fix", &[])));
    assert!(parts.is_empty());
}

#[test]
fn long_texts_are_shown_around_the_difference() {
    let long = "x".repeat(5000);
    let mut recording = recording([OLD.codex(&format!("{long}old{long}"), None)]);
    let (_, parts) = differences(recording.find(&NEW.codex(&format!("{long}new{long}"), None)));
    let present = parts[0].present.as_deref().unwrap_or_default();
    assert!(present.contains("xnewx") && present.starts_with('…') && present.ends_with('…'));
    assert!(present.chars().count() <= 300);
}

#[test]
fn a_request_that_is_made_again_gets_the_next_answer_and_then_the_last() {
    let mut recording = recording([OLD.opencode("go"), OLD.opencode("go"), OLD.opencode("on")]);
    let found: Vec<MatchResult> = (0..4).map(|_| recording.find(&NEW.opencode("go"))).collect();
    assert_eq!(
        found,
        [MatchResult::Same(0), MatchResult::Same(1), MatchResult::Same(1), MatchResult::Same(1)]
    );
    assert_eq!(recording.find(&NEW.opencode("on")), MatchResult::Same(2));
}

#[test]
fn agents_side_by_side_may_ask_in_any_order() {
    let recorded = [
        OLD.claude("one", &[]),
        OLD.claude("two", &[]),
        OLD.claude("one", &["a"]),
        OLD.claude("two", &["a"]),
        OLD.claude("two", &["a", "b"]),
    ];
    let mut recording = recording(recorded);
    let asked = [
        (NEW.claude("two", &[]), 1),
        (NEW.claude("two", &["a"]), 3),
        (NEW.claude("one", &[]), 0),
        (NEW.claude("two", &["a", "b"]), 4),
        (NEW.claude("one", &["a"]), 2),
    ];
    for (request, at) in asked {
        assert_eq!(recording.find(&request), MatchResult::Same(at));
    }
}

#[test]
fn other_instructions_are_still_the_same_question_but_equal_ones_go_first() {
    let with = |rules: &str, run: &Run| {
        let mut request = run.claude("go", &[]);
        request.body["system"] = json!(rules);
        request
    };
    let mut recording = recording([with("You explore.", &OLD), with("You plan.", &OLD)]);
    assert_eq!(recording.find(&with("You plan.", &NEW)), MatchResult::Same(1));
    assert_eq!(recording.find(&with("You do something else.", &NEW)), MatchResult::Same(0));
    let mut other = with("You plan.", &NEW);
    other.body["tools"] = json!([{"name": "Other"}]);
    assert!(matches!(recording.find(&other), MatchResult::Same(_)));
}

#[test]
fn another_model_or_form_is_a_difference() {
    let mut recording = recording([OLD.claude("go", &[]), OLD.gemini("x")]);
    let mut other = NEW.claude("go", &[]);
    other.body["model"] = json!("claude-opus-4-5");
    let (nearest, parts) = differences(recording.find(&other));
    assert_eq!((nearest, parts.len(), parts[0].path.as_str()), (Some(0), 1, "model"));
    let mut other = NEW.claude("go", &[]);
    other.body["stream"] = json!(false);
    let (_, parts) = differences(recording.find(&other));
    assert_eq!((parts.len(), parts[0].path.as_str()), (1, "stream"));
    let mut other = NEW.gemini("x");
    other.path = other.path.replace("2.5-pro", "2.5-flash");
    assert_eq!(differences(recording.find(&other)).1[0].path, "model");
}

#[test]
fn cache_marks_in_a_call_are_content() {
    let made = |run: &Run, mark: &str| {
        let mut request = run.claude("go", &["a"]);
        request.body["messages"][1]["content"][0]["input"] = json!({"cache_control": mark});
        request
    };
    let mut recording = recording([made(&OLD, "x")]);
    let (_, parts) = differences(recording.find(&made(&NEW, "y")));
    assert_eq!(parts[0].path, "messages[1].content[0].input.cache_control");
}

#[test]
fn one_text_in_a_list_is_the_same_as_one_alone() {
    let with = |content: Value| {
        let mut request = NEW.claude("go", &[]);
        request.body["messages"] = json!([{"role": "user", "content": content}]);
        request
    };
    let mut recording = recording([with(json!("go"))]);
    let listed = with(json!([{"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}]));
    assert_eq!(recording.find(&listed), MatchResult::Same(0));
    assert!(matches!(
        recording.find(&with(json!([{"type": "text", "text": "no"}]))),
        MatchResult::Different { .. }
    ));
}

#[test]
fn requests_on_the_side() {
    let head = || request("HEAD", "/", Value::Null);
    let mut recording = recording([
        head(),
        OLD.claude_title("fix this"),
        OLD.claude("fix", &[]),
        OLD.opencode_title("fix"),
        OLD.opencode("fix"),
        OLD.gemini("x"),
    ]);
    assert_eq!(recording.find(&head()), MatchResult::Same(0));
    assert_eq!(recording.find(&NEW.claude_title("fix this")), MatchResult::Same(1));
    assert_eq!(recording.find(&NEW.claude_title("fix that")), MatchResult::Background(Some(1)));
    assert_eq!(recording.find(&NEW.opencode_title("another")), MatchResult::Background(Some(3)));
    assert_eq!(recording.find(&request("GET", "/v1/models", Value::Null)), MatchResult::Background(None));
    let quota = json!({"model": "claude-haiku-4-5", "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}]});
    assert_eq!(recording.find(&request("POST", "/v1/messages", quota)), MatchResult::Background(None));
    let router = json!({
        "contents": [{"role": "user", "parts": [{"text": "which?"}]}, {"role": "model", "parts": [{"text": "x"}]}],
        "generationConfig": {"responseMimeType": "application/json", "responseSchema": {"type": "OBJECT"}},
    });
    let router = request("POST", "/v1beta/models/gemini-2.5-flash-lite:generateContent", router);
    assert_eq!(recording.find(&router), MatchResult::Background(None));
    // A question with tools is never on the side, and neither is a summary of what was said.
    assert!(matches!(recording.find(&NEW.claude("other", &[])), MatchResult::Different { .. }));
    let mut summary = NEW.claude("fix", &["a"]);
    summary.body["tools"] = json!([]);
    assert!(matches!(recording.find(&summary), MatchResult::Different { nearest: Some(2), .. }));
}

#[test]
fn without_tools_anywhere_nothing_is_on_the_side() {
    let plain = |text: &str| {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": text}]});
        request("POST", "/v1/chat/completions", body)
    };
    let mut recording = recording([plain("one")]);
    assert_eq!(recording.find(&plain("one")), MatchResult::Same(0));
    let (nearest, parts) = differences(recording.find(&plain("two")));
    assert_eq!((nearest, parts[0].path.as_str()), (Some(0), "messages[0].content"));
}

#[test]
fn the_nearest_goes_the_same_way_longest_and_was_not_given() {
    let mut recording = recording([
        OLD.claude("fix", &["a"]),
        OLD.claude("fix", &["a", "b"]),
        OLD.claude("fix", &["a", "c"]),
        OLD.claude("else", &["a", "b"]),
    ]);
    assert_eq!(recording.find(&NEW.claude("fix", &["a", "b"])), MatchResult::Same(1));
    let (nearest, _) = differences(recording.find(&NEW.claude("fix", &["a", "d"])));
    assert_eq!(nearest, Some(2));
}

#[test]
fn any_body_can_be_looked_for() {
    let bodies = [
        Value::Null,
        json!("text"),
        json!([1]),
        json!({"messages": 3}),
        json!({"messages": [null, 1, "x", []]}),
    ];
    for path in
        ["/v1/messages", "/v1/chat/completions", "/v1/responses", "/models/m:generateContent", "/other"]
    {
        let all = || bodies.iter().map(|body| request("POST", path, body.clone()));
        let mut recording = recording(all());
        for request in all() {
            assert!(matches!(recording.find(&request), MatchResult::Same(_)));
        }
        let other = request("POST", path, json!({"messages": [{"role": 1}], "input": [2], "contents": "x"}));
        assert!(!matches!(recording.find(&other), MatchResult::Same(_)));
    }
}

/// A long session: every request carries all of the conversation before it.
#[test]
fn a_long_session_is_found_from_its_beginning_to_its_end() {
    let results: Vec<String> =
        (0..100).map(|at| format!("{at}: {}", "some line of output\n".repeat(20))).collect();
    let results: Vec<&str> = results.iter().map(String::as_str).collect();
    let mut recording = recording((0..100).map(|count| OLD.claude("go", &results[..count])));
    for count in 0..100 {
        assert_eq!(recording.find(&NEW.claude("go", &results[..count])), MatchResult::Same(count));
    }
}

proptest! {
    #[test]
    fn words_that_differ_are_never_the_same(old in "[a-z0-9 ./:-]{1,40}", new in "[a-z0-9 ./:-]{1,40}") {
        prop_assume!(old != new);
        let mut recording = recording([OLD.claude("go", &[&old])]);
        prop_assert_eq!(recording.find(&NEW.claude("go", &[&old])), MatchResult::Same(0));
        let (_, parts) = differences(recording.find(&NEW.claude("go", &[&new])));
        prop_assert_eq!(parts[0].path.as_str(), "messages[2].content[0].content");
    }

    #[test]
    fn any_text_can_be_looked_for(text in "(/home/dev|/tmp/|Today's date is |Chunk ID: |[0-9a-f]{8}-|[0-9]{13}|session_id|é|.){0,12}") {
        let mut recording = recording([OLD.opencode(&text)]);
        prop_assert_eq!(recording.find(&OLD.opencode(&text)), MatchResult::Same(0));
        recording.find(&NEW.gemini(&text));
    }
}
