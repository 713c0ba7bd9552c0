//! Model calls that a proxy forwarded, on their way into the record.
//!
//! The proxy handles a call while the agent waits for its bytes, so nothing here opens the database. Request and response are
//! each written to a file, a note in the inbox names the file, and the next process that records the inbox records both. The
//! note of a response is written before the agent gets the last bytes of it, so what the agent does next comes later in the
//! record.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stepback_engine::recorder::settings::{CapturedPart, RecorderSettings, RedactionPatterns};
use stepback_llm_wire::edit;
use stepback_llm_wire::prices::Prices;
use stepback_llm_wire::semantics::{self, ContentPart, ResponseSummary};
use stepback_llm_wire::{AnswerEnd, Exchange, ModelRequest, Response};
use stepback_model::event::{AgentEvent, ReportedError};
use stepback_model::quantity::count;
use stepback_model::record::{LaunchCommand, StepKind};
use stepback_model::time::Timestamp;

use crate::inbox::{self, InboxNote};
use crate::payload;

const DIR: &str = "carried";
/// Age after which a file that no note names is deleted: a process was killed before it wrote the note.
const ORPHAN_MAX_AGE: Duration = Duration::from_secs(3600);
/// The environment variable that tells hooks that a proxy records the model calls, so that they do not.
pub const VARIABLE: &str = "STEPBACK_MODEL_CALLS";
/// The agent name of a call whose caller is unknown.
pub const UNKNOWN: &str = "model-api";

/// The start or end of a model call, in a session that may not be known yet.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RecordedCall {
    /// The event. If its session is empty, it belongs to the agent's session whose hooks reported last.
    pub event: AgentEvent,
    /// When the run began that the call is part of. Sessions without an event since then are not candidates for its session.
    pub since: Timestamp,
    /// Cost, in millionths of a dollar.
    #[serde(default)]
    pub cost: u64,
    /// How the agent was started, if known.
    #[serde(default)]
    pub started: Option<LaunchCommand>,
}

/// The agent, session and sub-agent that made a call, as far as its headers name them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Caller {
    /// Name of the agent.
    pub agent: Option<String>,
    /// The agent's own id of the session.
    pub session: Option<String>,
    /// Id of the sub-agent; `None` for the main agent.
    pub worker: Option<String>,
}

/// Reads the caller from a request's headers, in which agents send their own ids.
pub fn parse_caller(headers: &[(String, String)]) -> Caller {
    let of = |names: &[&str]| {
        let found = names.iter().find_map(|name| headers.iter().find(|(header, _)| header == name));
        found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
    };
    let named = |agent: &str, session: Option<String>, worker: Option<String>| Caller {
        agent: Some(agent.to_owned()),
        session,
        worker,
    };
    if let Some(session) = of(&["x-claude-code-session-id"]) {
        return named("claude", Some(session), of(&["x-claude-code-agent-id"]));
    }
    let program = of(&["originator", "user-agent"]).unwrap_or_default().to_ascii_lowercase();
    let is = |name: &str| program.contains(name);
    if is("codex") {
        return named("codex", of(&["thread-id", "session-id", "session_id", "conversation_id"]), None);
    }
    if is("opencode") || of(&["x-opencode-session"]).is_some() {
        return named("opencode", of(&["x-opencode-session", "x-session-id", "x-session-affinity"]), None);
    }
    if is("geminicli") || is("gemini-cli") {
        return named("gemini", None, None);
    }
    if is("claude-cli") {
        return named("claude", None, None);
    }
    Caller { session: of(&["x-session-id", "x-session-affinity"]), ..Caller::default() }
}

/// Writes the model calls that a proxy sees into the inbox of one workspace.
#[derive(Debug)]
pub struct ModelCallWriter {
    /// The workspace's own directory in the store.
    pub dir: PathBuf,
    /// The agent that was started, if known. Takes precedence over the headers.
    pub agent: Option<String>,
    /// The session of calls that do not send an id, if known.
    pub session: Option<String>,
    /// How the agent was started, if known.
    pub started: Option<LaunchCommand>,
    /// When the proxy was started.
    pub since: Timestamp,
    /// Prices of models.
    pub prices: Prices,
    /// What is recorded of the calls.
    pub recorder: Arc<RecorderSettings>,
}

impl ModelCallWriter {
    /// Writes the start of a call.
    pub fn write_start(
        &self,
        id: &str,
        at: Timestamp,
        request: &ModelRequest,
        caller: &Caller,
    ) -> io::Result<()> {
        let asked = request.wire.map(|wire| semantics::asked(wire, request)).unwrap_or_default();
        let model = asked.model.clone().unwrap_or_else(|| "a model".to_owned());
        let mut summary = format!("{model}: {}", count(asked.messages.len() as u64, "message"));
        if !asked.tools.is_empty() {
            summary.push_str(&format!(", {}", count(asked.tools.len() as u64, "tool")));
        }
        let mut input = json!(request);
        stepback_redact::redact_value(&mut input);
        self.recorder.redact.redact_value(&mut input);
        let event = AgentEvent {
            input: Some(input),
            ..self.new_event(id, at, StepKind::ModelStart, caller, &summary)
        };
        self.write_call(AgentEvent { tool: asked.model.as_deref().map(redact_text), ..event }, 0, at)
    }

    /// Writes the end of a call, whether it succeeded or not.
    pub fn write_end(&self, exchange: &Exchange, at: Timestamp, caller: &Caller) -> io::Result<()> {
        let Exchange { id, request, response } = exchange;
        let asked = request.wire.map(|wire| semantics::asked(wire, request)).unwrap_or_default();
        let answer = request.wire.map(|wire| semantics::answered(wire, response)).unwrap_or_default();
        let model = answer.model.clone().or(asked.model);
        let priced = model.as_ref().zip(answer.usage).filter(|_| !response.is_replayed());
        let cost = priced.and_then(|(model, usage)| self.prices.cost(model, &usage));
        let error = call_error(response, &answer);
        let summary = match &error {
            Some(error) => error.message.clone(),
            None => summarize_response(&answer),
        };
        let model = model.as_deref().map(redact_text);
        let mut metadata = json!({
            "model": model,
            "usage": answer.usage,
            "cost_usd": cost.map(|micros| micros as f64 / 1e6),
            "stop": answer.stop.as_deref().map(redact_text),
            "first_byte_us": response.first_byte,
        });
        if response.is_replayed() {
            metadata["replayed"] = json!(true);
        }
        let output = json!(redact_response(exchange, &self.recorder.redact));
        let event = AgentEvent {
            output: Some(output),
            error,
            duration: Some(response.took),
            metadata: Some(metadata),
            tool: model,
            ..self.new_event(id, at, StepKind::ModelEnd, caller, &summary)
        };
        self.write_call(event, cost.unwrap_or_default(), at)
    }

    fn new_event(
        &self,
        id: &str,
        at: Timestamp,
        kind: StepKind,
        caller: &Caller,
        summary: &str,
    ) -> AgentEvent {
        let agent = self.agent.clone().or_else(|| caller.agent.clone());
        let agent = agent.unwrap_or_else(|| UNKNOWN.to_owned());
        let session = caller.session.clone().or_else(|| self.session.clone()).unwrap_or_default();
        let summary = payload::summary_line(&stepback_redact::redact(summary));
        AgentEvent {
            at: Some(at),
            key: Some(format!("model {id}")),
            call: Some(id.to_owned()),
            worker: caller.worker.clone(),
            ..AgentEvent::new(&agent, &session, kind, summary)
        }
    }

    fn write_call(&self, mut event: AgentEvent, cost: u64, at: Timestamp) -> io::Result<()> {
        if !self.recorder.captures(CapturedPart::ModelBodies) {
            // The engine would leave them out too; there is no reason to write them at all.
            (event.input, event.output) = (event.input.map(|_| json!({})), event.output.map(|_| json!({})));
        }
        let side = if event.kind == StepKind::ModelStart { "asked" } else { "answered" };
        let name = format!("{}-{side}.json", event.call.as_deref().unwrap_or_default());
        let agent = event.agent.clone();
        let call = RecordedCall { event, since: self.since, cost, started: self.started.clone() };
        let bytes = serde_json::to_vec(&call).map_err(io::Error::other)?;
        let dir = self.dir.join(DIR);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        stepback_faults::point()?;
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(dir.join(&name))?;
        file.write_all(&bytes)?;
        inbox::append_note(&self.dir, &InboxNote { carried: Some(name), ..InboxNote::new(at, &agent) })
    }

    /// Writes a gap for a call that could not be recorded.
    pub fn write_gap(&self, what: &str, at: Timestamp) -> io::Result<()> {
        let agent = self.agent.as_deref().unwrap_or(UNKNOWN);
        let gap = Some(format!("a model call: {what}"));
        inbox::append_note(&self.dir, &InboxNote { gap, ..InboxNote::new(at, agent) })
    }
}

/// Fields that look like secrets and are not: the model needs what it signed or encrypted back unchanged.
const UNREDACTED_FIELDS: [&str; 6] =
    ["signature", "thoughtSignature", "thought_signature", "encrypted_content", "data", "obfuscation"];

/// Returns the response with secrets and the user's own patterns redacted, including those split over several chunks.
pub fn redact_response(exchange: &Exchange, patterns: &RedactionPatterns) -> Response {
    let Exchange { request, response, .. } = exchange;
    let clean = |text: &str| -> Option<String> {
        let clean = stepback_redact::redact(text);
        let clean = patterns.redact(&clean);
        (*clean != *text).then(|| clean.into_owned())
    };
    let redacted = request.wire.and_then(|wire| edit::answer(wire, response, &mut |_, text| clean(text)));
    let redacted = redacted.unwrap_or_else(|| response.clone());
    // Ids are not secrets, however random they look; an error message can hold one.
    let is_sealed = |name: &str| {
        UNREDACTED_FIELDS.contains(&name) || name == "id" || name.ends_with("_id") || name.ends_with("Id")
    };
    let rest = edit::elsewhere(request.wire, &redacted, &mut |name, text| match is_sealed(name) {
        true => None,
        false => clean(text),
    });
    let mut kept = rest.unwrap_or(redacted);
    for (_, value) in &mut kept.headers {
        if let Some(clean) = clean(value) {
            *value = clean;
        }
    }
    kept
}

/// Returns the error of a call, if it failed.
fn call_error(response: &Response, answer: &ResponseSummary) -> Option<ReportedError> {
    let named = |name: &str, message: String| {
        let message = stepback_redact::redact(&message).into_owned();
        Some(ReportedError { name: Some(name.to_owned()), message, ..ReportedError::default() })
    };
    match &response.ended {
        AnswerEnd::Failed(why) => named("failed", format!("no answer: {why}")),
        AnswerEnd::CutOff(why) => named("cut-off", format!("the answer was interrupted: {why}")),
        AnswerEnd::Cancelled => {
            named("cancelled", "the agent disconnected before the end of the answer".to_owned())
        }
        AnswerEnd::Complete if response.status >= 400 => {
            let what = answer.error.as_deref().unwrap_or("no reason given");
            named("refused", format!("{}: {what}", response.status))
        }
        AnswerEnd::Complete => answer.error.as_ref().and_then(|error| named("model", error.clone())),
    }
}

fn redact_text(text: &str) -> String {
    stepback_redact::redact(text).into_owned()
}

/// Summarizes a response in one line: the calls it makes, else its text.
fn summarize_response(answer: &ResponseSummary) -> String {
    let mut calls: Vec<&str> = Vec::new();
    let mut text = None;
    for part in &answer.content {
        match part {
            ContentPart::Call(call) => calls.push(&call.name),
            ContentPart::Model(words) => {
                text = text.or_else(|| Some(words.trim()).filter(|words| !words.is_empty()))
            }
            _ => {}
        }
    }
    match (calls.as_slice(), text) {
        ([], None) => "an empty answer".to_owned(),
        ([], Some(text)) => text.to_owned(),
        (calls, _) => format!("calls {}", calls.join(", ")),
    }
}

/// Reads the file that a note names; `None` if the file is missing or does not parse.
pub(crate) fn read_call(workspace_dir: &Path, name: &str) -> Option<RecordedCall> {
    // The name comes from a file that another process could have written to.
    let plain = !name.contains(['/', '\0']) && name != "..";
    let bytes = fs::read(workspace_dir.join(DIR).join(name)).ok().filter(|_| plain)?;
    serde_json::from_slice(&bytes).ok()
}

/// Deletes the files of notes that are recorded now, and files that were left behind long ago.
pub(crate) fn delete_recorded_calls(workspace_dir: &Path, notes: &[InboxNote]) {
    let dir = workspace_dir.join(DIR);
    let mut any = false;
    for name in notes.iter().filter_map(|note| note.carried.as_deref()) {
        any = true;
        if !name.contains('/') {
            let _ = fs::remove_file(dir.join(name));
        }
    }
    let entries = if any { fs::read_dir(&dir).ok() } else { None };
    for entry in entries.into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|file| file.modified());
        let age = modified.ok().and_then(|modified| SystemTime::now().duration_since(modified).ok());
        if age.is_some_and(|age| age > ORPHAN_MAX_AGE) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Returns the exchange of a recorded call and its answer; `None` if they do not parse as one.
pub fn parse_exchange(id: &str, request: &Value, response: &Value) -> Option<Exchange> {
    let request = serde_json::from_value(request.clone()).ok()?;
    let response = serde_json::from_value(response.clone()).ok()?;
    Some(Exchange { id: id.to_owned(), request, response })
}

#[cfg(test)]
mod tests {
    use stepback_llm_wire::{Chunks, Wire};

    use super::*;

    #[test]
    fn an_answer_from_a_recording_costs_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let writer = ModelCallWriter {
            dir: dir.path().to_path_buf(),
            agent: Some("claude".into()),
            session: Some("s".into()),
            started: None,
            since: Timestamp::from_micros(0),
            prices: Prices::built_in(),
            recorder: Arc::default(),
        };
        let usage = json!({ "input_tokens": 1_000_000, "output_tokens": 1_000_000 });
        let body = json!({ "type": "message", "model": "claude-sonnet-4-5", "content": [], "usage": usage });
        let cost = |id: &str, headers: Vec<(String, String)>| {
            let request = ModelRequest {
                wire: Some(Wire::Messages),
                method: "POST".into(),
                path: "/v1/messages".into(),
                headers: Vec::new(),
                body: json!({}),
                bytes: 2,
            };
            let response = Response {
                status: 200,
                headers,
                body: body.to_string(),
                chunks: Chunks::default(),
                ended: AnswerEnd::Complete,
                first_byte: None,
                took: 1,
                left_out: 0,
            };
            let exchange = Exchange { id: id.into(), request, response };
            writer.write_end(&exchange, Timestamp::from_micros(1), &Caller::default()).unwrap();
            let call = read_call(dir.path(), &format!("{id}-answered.json")).unwrap();
            (call.cost, call.event.metadata.unwrap()["replayed"].clone())
        };
        assert!(cost("live", Vec::new()).0 > 0);
        assert_eq!(cost("again", vec![(Response::REPLAYED.into(), "1".into())]), (0, json!(true)));
    }
}
