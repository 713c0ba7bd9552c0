//! Builds requests in the form of the Messages API, and parses responses.

use serde_json::{Map, Value, json};
use stepback_llm_wire::semantics::TokenUsage;
use stepback_llm_wire::{AnswerEnd, ModelRequest, Response, Wire};
use stepback_model::event::ReportedError;

use crate::tools;

/// Request header with the name of the worker. Providers of real models do not send it.
pub const WORKER: &str = "x-stepback-worker";
/// Most tokens of one answer.
const MAX_ANSWER_TOKENS: u64 = 8192;

/// The built-in instructions, at the start of the system prompt.
const INSTRUCTIONS: &str = "You are a careful software engineer. You work in the directory of a project, with tools; paths are \
relative to it. Look before you change something, make the smallest change that does the task, and check it. When the task is \
done, say in a few sentences what you did.";

/// Returns the system prompt: the instructions, and the agent's memory.
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

/// Returns the system prompt of a worker.
pub fn system_for_worker(name: &str) -> String {
    format!(
        "{INSTRUCTIONS}\n\nYou are the worker \"{name}\" and were given one task. Your last message is the result for the agent that gave it."
    )
}

/// Builds a request.
pub fn request(model: &str, system: &str, messages: &[Value], worker: Option<&str>) -> ModelRequest {
    let body = json!({
        "model": model,
        "max_tokens": MAX_ANSWER_TOKENS,
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
    ModelRequest {
        wire: Some(Wire::Messages),
        method: "POST".into(),
        path: "/v1/messages".into(),
        headers,
        body,
        bytes,
    }
}

/// A call that the model requests.
#[derive(Clone, PartialEq, Debug)]
pub struct RequestedCall {
    /// The model's id of the call.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// Input of the call.
    pub input: Value,
}

/// A parsed answer of a model.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ModelAnswer {
    /// The model that the answer names.
    pub model: Option<String>,
    /// The answer's parts, as they are added to the conversation.
    pub content: Vec<Value>,
    /// Its text.
    pub text: String,
    /// The calls that it requests.
    pub calls: Vec<RequestedCall>,
    /// Why the model stopped, in the API's terms.
    pub stop: Option<String>,
    /// Token counts, if given.
    pub usage: Option<TokenUsage>,
    /// Cost in millionths of a dollar, if the answer itself has it.
    pub cost: Option<u64>,
}

/// Parses a response. Fails with the reported error if it is not an answer.
pub fn read(response: &Response) -> Result<ModelAnswer, ReportedError> {
    let trouble = |name: &str, message: String| ReportedError {
        name: Some(name.to_string()),
        message,
        ..ReportedError::default()
    };
    match &response.ended {
        AnswerEnd::Complete => {}
        AnswerEnd::Cancelled => return Err(trouble("cancelled", "the request was cancelled".into())),
        AnswerEnd::CutOff(why) => {
            return Err(trouble("cut-off", format!("the answer was interrupted: {why}")));
        }
        AnswerEnd::Failed(why) => return Err(trouble("unreachable", why.clone())),
    }
    let body: Value = serde_json::from_str(&response.body).map_err(|error| {
        let start: String = response.body.chars().take(200).collect();
        trouble("not-json", format!("the answer (status {}) is not JSON: {error}: {start}", response.status))
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
    let calls = content.iter().filter(|part| part["type"] == "tool_use").map(|part| RequestedCall {
        id: part["id"].as_str().unwrap_or_default().to_string(),
        tool: part["name"].as_str().unwrap_or_default().to_string(),
        input: part["input"].clone(),
    });
    let usage = &body["usage"];
    let tokens = |field: &str| usage[field].as_u64().unwrap_or_default();
    Ok(ModelAnswer {
        model: body["model"].as_str().map(str::to_string),
        text: texts.collect::<Vec<_>>().join("\n"),
        calls: calls.collect(),
        stop: body["stop_reason"].as_str().map(str::to_string),
        usage: usage.is_object().then(|| TokenUsage {
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

/// Returns the result of a call as a part of the next message.
pub fn result(call: &str, result: &tools::ToolResult) -> Value {
    let mut part = json!({ "type": "tool_result", "tool_use_id": call, "content": result.text });
    if result.failed {
        part["is_error"] = true.into();
    }
    part
}
