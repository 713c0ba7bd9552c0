//! A model that answers from a script file, for demonstrations and tests, without a network.
//!
//! The next turn depends only on the content of the request: a conversation that continues in another process, or is rerun,
//! gets the same answers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};
use stepback_llm_wire::{AnswerEnd, Chunks, ModelRequest, Response};
use stepback_model::event::ReportedError;

use super::Provider;
use crate::request::WORKER;
use crate::tools;

/// The answer after the end of a script.
const END_OF_SCRIPT_ANSWER: &str = "The script has no more turns.";
/// How often a simulated delay checks whether the answer is still wanted.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("cannot read the script {path}: {error}")]
    Read {
        /// Path of the script.
        path: String,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The file does not parse as a script.
    #[error("the script is not valid: {0}")]
    NotAScript(#[from] serde_json::Error),
    /// The script refers to something that does not exist.
    #[error("the script is not valid: {0}")]
    Impossible(String),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    #[serde(default = "default_model")]
    model: String,
    turns: Vec<Turn>,
    #[serde(default)]
    workers: BTreeMap<String, Vec<Turn>>,
    #[serde(default)]
    when: Vec<When>,
}

fn default_model() -> String {
    "scripted-1".into()
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Turn {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    calls: Vec<Call>,
    #[serde(default)]
    thinks_ms: u64,
    #[serde(default)]
    usage: Option<Tokens>,
    #[serde(default)]
    cost_usd: Option<f64>,
    #[serde(default)]
    fails: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    tool: String,
    #[serde(default)]
    input: Value,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tokens {
    #[serde(default)]
    input: u64,
    #[serde(default)]
    output: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct When {
    says: String,
    turns: Vec<Turn>,
}

/// Provider that answers from a script.
#[derive(Debug)]
pub struct Scripted {
    script: Script,
    /// For each branch, the pattern of a message that enters it.
    says: Vec<Regex>,
    stop: Arc<AtomicBool>,
}

impl Scripted {
    /// Reads a script from a file. A simulated delay ends when `stop` is set.
    pub fn open(path: &Path, stop: Arc<AtomicBool>) -> Result<Self, ScriptError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ScriptError::Read { path: path.display().to_string(), error })?;
        Self::parse(&text, stop)
    }

    /// Parses a script.
    pub fn parse(text: &str, stop: Arc<AtomicBool>) -> Result<Self, ScriptError> {
        let script: Script = serde_json::from_str(text)?;
        let named = |place: String, turns: &[Turn], for_worker: bool| {
            turns.iter().enumerate().try_for_each(|(at, turn)| {
                turn.calls.iter().try_for_each(|call| {
                    script
                        .check_call(call, for_worker)
                        .map_err(|what| ScriptError::Impossible(format!("{place} {}: {what}", at + 1)))
                })
            })
        };
        named("turn".into(), &script.turns, false)?;
        for (name, turns) in &script.workers {
            named(format!("worker \"{name}\", turn"), turns, true)?;
        }
        let mut says = Vec::new();
        for (at, when) in script.when.iter().enumerate() {
            named(format!("branch {}, turn", at + 1), &when.turns, false)?;
            says.push(Regex::new(&when.says).map_err(|error| {
                ScriptError::Impossible(format!("branch {}: \"says\" cannot be used: {error}", at + 1))
            })?);
        }
        Ok(Self { script, says, stop })
    }

    /// Returns the name of the model it simulates.
    pub fn model(&self) -> &str {
        &self.script.model
    }

    /// Returns the turn that answers these messages.
    fn turn(&self, messages: &[Value], worker: Option<&str>) -> Option<&Turn> {
        if let Some(worker) = worker {
            let answers = messages.iter().filter(|message| message["role"] == "assistant").count();
            return self.script.workers.get(worker)?.get(answers);
        }
        let (mut branch, mut at) = (None, 0);
        for message in messages {
            if message["role"] == "assistant" {
                at += 1;
                continue;
            }
            let said = text_of(message);
            let entered = self.says.iter().position(|says| says.is_match(&said));
            // The results of a branch's own calls do not start the same branch again.
            if let Some(entered) = entered.filter(|entered| branch != Some(*entered)) {
                (branch, at) = (Some(entered), 0);
            }
        }
        let turns = branch.map_or(&self.script.turns, |branch| &self.script.when[branch].turns);
        turns.get(at)
    }

    /// Simulates the delay of a model. Returns whether the answer is still wanted.
    fn simulate_delay(&self, time: Duration) -> bool {
        let begun = Instant::now();
        while let Some(left) = time.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::sleep(left.min(CANCEL_POLL_INTERVAL));
        }
        true
    }
}

impl Script {
    fn check_call(&self, call: &Call, for_worker: bool) -> Result<(), String> {
        if !tools::ALL.contains(&call.tool.as_str()) {
            let known = tools::ALL.join(", ");
            return Err(format!("unknown tool \"{}\"; tools are {known}", call.tool));
        }
        if for_worker && matches!(call.tool.as_str(), "delegate" | "remember") {
            return Err(format!("a worker does not have the tool \"{}\"", call.tool));
        }
        if let ("delegate", Some(worker)) = (call.tool.as_str(), call.input["worker"].as_str())
            && !self.workers.contains_key(worker)
        {
            return Err(format!("it delegates to \"{worker}\", which is not among the \"workers\""));
        }
        Ok(())
    }
}

impl Provider for Scripted {
    fn ask(&mut self, request: &ModelRequest) -> Result<Response, ReportedError> {
        let messages = request.body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let worker = request.headers.iter().find(|(name, _)| name == WORKER).map(|(_, worker)| worker);
        // "tester call_2_1": the name, and the call that gave it its task.
        let (name, task) = match worker.map(|worker| worker.rsplit_once(' ').unwrap_or((worker, ""))) {
            Some((name, task)) => (Some(name), format!("{task}-")),
            None => (None, "call_".to_string()),
        };
        let turn = self.turn(messages, name).cloned();
        let turn =
            turn.unwrap_or_else(|| Turn { text: Some(END_OF_SCRIPT_ANSWER.into()), ..Turn::default() });
        let thinks = Duration::from_millis(turn.thinks_ms);
        if !self.simulate_delay(thinks) {
            return Err(ReportedError {
                name: Some("interrupted".into()),
                message: "interrupted".into(),
                ..ReportedError::default()
            });
        }
        let took = u64::try_from(thinks.as_micros()).unwrap_or(u64::MAX);
        if let Some(what) = turn.fails {
            let body = json!({ "type": "error", "error": { "type": "scripted_error", "message": what } });
            return Ok(build_response(400, &body, took));
        }
        let number = messages.iter().filter(|message| message["role"] == "assistant").count() + 1;
        let text = turn.text.filter(|text| !text.is_empty());
        let mut content: Vec<Value> =
            text.map(|text| json!({ "type": "text", "text": text })).into_iter().collect();
        for (at, call) in turn.calls.iter().enumerate() {
            let id = format!("{task}{number}_{}", at + 1);
            let input = if call.input.is_null() { json!({}) } else { call.input.clone() };
            content.push(json!({ "type": "tool_use", "id": id, "name": call.tool, "input": input }));
        }
        let tokens = turn.usage.unwrap_or_default();
        let mut usage = json!({ "input_tokens": tokens.input, "output_tokens": tokens.output });
        if let Some(cost) = turn.cost_usd {
            usage["cost"] = cost.into();
        }
        let stop = if turn.calls.is_empty() { "end_turn" } else { "tool_use" };
        let body = json!({
            "id": format!("msg_{task}{number}"),
            "type": "message",
            "role": "assistant",
            "model": request.body["model"],
            "content": content,
            "stop_reason": stop,
            "stop_sequence": null,
            "usage": usage,
        });
        Ok(build_response(200, &body, took))
    }
}

fn build_response(status: u16, body: &Value, took: u64) -> Response {
    let body = body.to_string();
    let mut chunks = Chunks::default();
    chunks.push(took, body.len() as u64);
    Response {
        status,
        headers: vec![("content-type".into(), "application/json".into())],
        body,
        chunks,
        ended: AnswerEnd::Complete,
        first_byte: Some(took),
        took,
        left_out: 0,
    }
}

/// Returns all text in a message, including results of calls.
fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts =
                parts.iter().filter_map(|part| part["text"].as_str().or_else(|| part["content"].as_str()));
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request;

    fn script(text: &str) -> Result<Scripted, ScriptError> {
        Scripted::parse(text, Arc::default())
    }

    fn said(provider: &mut Scripted, messages: &[Value], worker: Option<&str>) -> String {
        let request = request::request("m", "", messages, worker);
        request::read(&provider.ask(&request).unwrap()).unwrap().text
    }

    fn user(text: &str) -> Value {
        json!({ "role": "user", "content": text })
    }

    fn model(text: &str) -> Value {
        json!({ "role": "assistant", "content": [{ "type": "text", "text": text }] })
    }

    #[test]
    fn what_is_said_follows_from_the_conversation_alone() {
        let mut provider = script(
            r#"{"turns": [{"text": "one"}, {"text": "two"}], "workers": {"w": [{"text": "work"}]},
                "when": [{"says": "redis", "turns": [{"text": "r1"}, {"text": "r2"}]}]}"#,
        )
        .unwrap();
        let mut talk = vec![user("go")];
        for _ in 0..2 {
            assert_eq!(said(&mut provider, &talk, None), "one", "asked again, it says the same");
        }
        talk.extend([model("one"), user("on")]);
        assert_eq!(said(&mut provider, &talk, None), "two");
        assert_eq!(said(&mut provider, &[user("do it")], Some("w call_1_1")), "work");
        talk.extend([model("two"), user("on")]);
        assert_eq!(said(&mut provider, &talk, None), END_OF_SCRIPT_ANSWER);
        let mut other = vec![user("go"), model("one"), user("use redis instead")];
        assert_eq!(said(&mut provider, &other, None), "r1");
        other.extend([model("r1"), user("redis answered")]);
        assert_eq!(said(&mut provider, &other, None), "r2");
        other.extend([model("r2"), user("on")]);
        assert_eq!(said(&mut provider, &other, None), END_OF_SCRIPT_ANSWER);
    }

    #[test]
    fn a_script_that_cannot_be_played_says_why() {
        for (text, why) in [
            ("{", "not valid"),
            ("{}", "turns"),
            (r#"{"turns": [], "trun": 1}"#, "trun"),
            (r#"{"turns": [{"calls": [{"tool": "fly"}]}]}"#, "turn 1: unknown tool \"fly\""),
            (r#"{"turns": [{"calls": [{"tool": "delegate", "input": {"worker": "x"}}]}]}"#, "\"workers\""),
            (
                r#"{"turns": [], "workers": {"w": [{"calls": [{"tool": "delegate"}]}]}}"#,
                "worker \"w\", turn 1",
            ),
            (r#"{"turns": [], "when": [{"says": "(", "turns": []}]}"#, "branch 1"),
        ] {
            let error = script(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
