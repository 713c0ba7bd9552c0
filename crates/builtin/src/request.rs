//! Asking a model in the form of the Messages API, and reading what it answers.

use serde_json::{Map, Value, json};
use stepback_exchange::semantics::Usage;
use stepback_exchange::{Ended, Request, Response, Wire};
use stepback_model::event::ReportedError;

use crate::tools;

/// Says in a request which worker asks. Providers of real models do not send it.
pub const WORKER: &str = "x-stepback-worker";
/// Most tokens of one answer.
const TOKENS: u64 = 8192;

/// What the model is told before everything else.
const INSTRUCTIONS: &str = "You are a careful software engineer. You work in the directory of a project, with tools; paths are \
relative to it. Look before you change something, make the smallest change that does the task, and check it. When the task is \
done, say in a few sentences what you did.";

/// The instructions, with what the agent remembers.
pub fn system(own: Option<&str>, memory: &Map<String, Value>) -> String {
    let mut text = own.unwrap_or(INSTRUCTIONS).to_string();
    if !memory.is_empty() {
        text.push_str("\n\nWhat you remember:");
        for (key, value) in memory {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_string);
            text.push_str(&format!("\n- {key}: {value}"));
        }
    }
    text
}

/// The instructions of a worker.
pub fn system_for_worker(name: &str) -> String {
    format!(
        "{INSTRUCTIONS}\n\nYou are the worker \"{name}\" and were given one task. Your last words go to whoever gave it."
    )
}

/// A request.
pub fn request(model: &str, system: &str, messages: &[Value], worker: Option<&str>) -> Request {
    let body = json!({
        "model": model,
        "max_tokens": TOKENS,
        "system": system,
        "messages": messages,
        "tools": tools::described(worker.is_some()),
        "stream": false,
    });
    let mut headers = vec![
        ("content-type".to_string(), "application/json".to_string()),
        ("anthropic-version".to_string(), "2023-06-01".to_string()),
    ];
    headers.extend(worker.map(|worker| (WORKER.to_string(), worker.to_string())));
    let bytes = body.to_string().len() as u64;
    Request {
        wire: Some(Wire::Messages),
        method: "POST".into(),
        path: "/v1/messages".into(),
        headers,
        body,
        bytes,
    }
}

/// A call that the model asks for.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// Its id.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// Its input.
    pub input: Value,
}

/// What a model answered.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Answer {
    /// The model that says it answered.
    pub model: Option<String>,
    /// The answer as it goes into the conversation.
    pub content: Vec<Value>,
    /// What it said.
    pub text: String,
    /// What it wants to run.
    pub calls: Vec<Call>,
    /// Why it stopped.
    pub stop: Option<String>,
    /// Tokens.
    pub usage: Option<Usage>,
    /// What it cost in millionths of a dollar, if the answer says so itself.
    pub cost: Option<u64>,
}

/// Reads an answer. One that is none says why.
pub fn read(response: &Response) -> Result<Answer, ReportedError> {
    let trouble = |name: &str, message: String| ReportedError {
        name: Some(name.to_string()),
        message,
        ..ReportedError::default()
    };
    match &response.ended {
        Ended::Complete => {}
        Ended::Cancelled => return Err(trouble("cancelled", "the request was given up".into())),
        Ended::CutOff(why) => return Err(trouble("cut-off", format!("the answer broke off: {why}"))),
        Ended::Failed(why) => return Err(trouble("unreachable", why.clone())),
    }
    let body: Value = serde_json::from_str(&response.body).map_err(|error| {
        let start: String = response.body.chars().take(200).collect();
        trouble("not-json", format!("the answer (status {}) is no JSON: {error}: {start}", response.status))
    })?;
    if response.status >= 400 || body["type"] == "error" {
        let said = body["error"]["message"].as_str().unwrap_or("no reason was given");
        let name = body["error"]["type"].as_str().unwrap_or("error");
        return Err(trouble(name, format!("the model refused (status {}): {said}", response.status)));
    }
    let Some(content) = body["content"].as_array() else {
        return Err(trouble("not-an-answer", "the answer has no content".into()));
    };
    let texts = content.iter().filter(|part| part["type"] == "text").filter_map(|part| part["text"].as_str());
    let calls = content.iter().filter(|part| part["type"] == "tool_use").map(|part| Call {
        id: part["id"].as_str().unwrap_or_default().to_string(),
        tool: part["name"].as_str().unwrap_or_default().to_string(),
        input: part["input"].clone(),
    });
    let usage = &body["usage"];
    let tokens = |field: &str| usage[field].as_u64().unwrap_or_default();
    Ok(Answer {
        model: body["model"].as_str().map(str::to_string),
        text: texts.collect::<Vec<_>>().join("\n"),
        calls: calls.collect(),
        stop: body["stop_reason"].as_str().map(str::to_string),
        usage: usage.is_object().then(|| Usage {
            input: tokens("input_tokens"),
            output: tokens("output_tokens"),
            cache_read: tokens("cache_read_input_tokens"),
            cache_write: tokens("cache_creation_input_tokens"),
            reasoning: 0,
        }),
        cost: usage["cost"].as_f64().map(|usd| (usd.max(0.0) * 1e6).round() as u64),
        content: content.clone(),
    })
}

/// What a call gave back, as a part of the next message.
pub fn result(call: &str, result: &tools::ToolResult) -> Value {
    let mut part = json!({ "type": "tool_result", "tool_use_id": call, "content": result.text });
    if result.failed {
        part["is_error"] = true.into();
    }
    part
}
