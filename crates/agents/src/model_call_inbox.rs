//! Model calls that a proxy carried, on their way into the record.
//!
//! The proxy sees a call while the agent waits for its bytes, so nothing here opens the database. What was asked and what came
//! back is written to a file of its own, a note in the inbox names the file, and whoever takes the inbox in next records both.
//! The note of an answer is there before the agent has the last piece of it: whatever the agent does next comes after
//! it in the record.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stepback_exchange::edit;
use stepback_exchange::prices::Prices;
use stepback_exchange::semantics::{self, Answered, ContentPart};
use stepback_exchange::{Ended, Exchange, Request, Response};
use stepback_model::event::{Event, ReportedError};
use stepback_model::record::{LaunchCommand, StepKind};
use stepback_model::time::Timestamp;

use crate::inbox::{self, Note};
use crate::payload;

const DIR: &str = "carried";
/// A file that no note names any more after so long was left by a process that was killed.
const FORGOTTEN: Duration = Duration::from_secs(3600);
/// The variable that tells hooks that the proxy records model calls, so that they need not.
pub const VARIABLE: &str = "STEPBACK_MODEL_CALLS";
/// What a call is ascribed to if nothing says who made it.
pub const UNKNOWN: &str = "model-api";

/// A step of a session that may not be known yet.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RecordedCall {
    /// What happened. Without a session, it is of the session of that agent which was at work last.
    pub event: Event,
    /// When the run began that it is part of: it is of no session that has been silent since.
    pub since: Timestamp,
    /// What it cost, in millionths of a dollar.
    #[serde(default)]
    pub cost: u64,
    /// How the agent was started.
    #[serde(default)]
    pub started: Option<LaunchCommand>,
}

/// Who made a call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Caller {
    /// The agent.
    pub agent: Option<String>,
    /// Its id of the session.
    pub session: Option<String>,
    /// The sub-agent.
    pub worker: Option<String>,
}

/// Reads who made a call from its headers, which agents mark with ids of their own.
pub fn caller(headers: &[(String, String)]) -> Caller {
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

/// Turns what a proxy saw into notes for one workspace.
#[derive(Debug)]
pub struct ModelCallWriter {
    /// The workspace's own directory in the store.
    pub dir: PathBuf,
    /// The agent that was started, if it is known.
    pub agent: Option<String>,
    /// The session that calls without an id belong to, if it is known.
    pub session: Option<String>,
    /// How it was started.
    pub started: Option<LaunchCommand>,
    /// When the proxy was started.
    pub since: Timestamp,
    /// What models cost.
    pub prices: Prices,
}

impl ModelCallWriter {
    /// A call began.
    pub fn begun(&self, id: &str, at: Timestamp, request: &Request, caller: &Caller) -> io::Result<()> {
        let asked = request.wire.map(|wire| semantics::asked(wire, request)).unwrap_or_default();
        let model = asked.model.clone().unwrap_or_else(|| "a model".to_owned());
        let count =
            |number: usize, unit: &str| format!("{number} {unit}{}", if number == 1 { "" } else { "s" });
        let mut summary = format!("{model}: {}", count(asked.messages.len(), "message"));
        if !asked.tools.is_empty() {
            summary.push_str(&format!(", {}", count(asked.tools.len(), "tool")));
        }
        let mut input = json!(request);
        stepback_redact::redact_value(&mut input);
        let event =
            Event { input: Some(input), ..self.event(id, at, StepKind::ModelStart, caller, &summary) };
        self.leave(Event { tool: asked.model.as_deref().map(redacted), ..event }, 0, at)
    }

    /// It ended, one way or another.
    pub fn ended(&self, exchange: &Exchange, at: Timestamp, caller: &Caller) -> io::Result<()> {
        let Exchange { id, request, response } = exchange;
        let asked = request.wire.map(|wire| semantics::asked(wire, request)).unwrap_or_default();
        let said = request.wire.map(|wire| semantics::answered(wire, response)).unwrap_or_default();
        let model = said.model.clone().or(asked.model);
        let priced = model.as_ref().zip(said.usage).filter(|_| !response.is_replayed());
        let cost = priced.and_then(|(model, usage)| self.prices.cost(model, &usage));
        let trouble = trouble(response, &said);
        let summary = match &trouble {
            Some(trouble) => trouble.message.clone(),
            None => in_short(&said),
        };
        let model = model.as_deref().map(redacted);
        let mut metadata = json!({
            "model": model,
            "usage": said.usage,
            "cost_usd": cost.map(|micros| micros as f64 / 1e6),
            "stop": said.stop.as_deref().map(redacted),
            "first_byte_us": response.first_byte,
        });
        if response.is_replayed() {
            metadata["replayed"] = json!(true);
        }
        let output = json!(without_secrets(exchange));
        let event = Event {
            output: Some(output),
            error: trouble,
            duration: Some(response.took),
            metadata: Some(metadata),
            tool: model,
            ..self.event(id, at, StepKind::ModelEnd, caller, &summary)
        };
        self.leave(event, cost.unwrap_or_default(), at)
    }

    fn event(&self, id: &str, at: Timestamp, kind: StepKind, caller: &Caller, summary: &str) -> Event {
        let agent = self.agent.clone().or_else(|| caller.agent.clone());
        let agent = agent.unwrap_or_else(|| UNKNOWN.to_owned());
        let session = caller.session.clone().or_else(|| self.session.clone()).unwrap_or_default();
        let summary = payload::one_line(&stepback_redact::redact(summary));
        Event {
            at: Some(at),
            key: Some(format!("model {id}")),
            call: Some(id.to_owned()),
            worker: caller.worker.clone(),
            ..Event::new(&agent, &session, kind, summary)
        }
    }

    fn leave(&self, event: Event, cost: u64, at: Timestamp) -> io::Result<()> {
        let side = if event.kind == StepKind::ModelStart { "asked" } else { "answered" };
        let name = format!("{}-{side}.json", event.call.as_deref().unwrap_or_default());
        let agent = event.agent.clone();
        let carried = RecordedCall { event, since: self.since, cost, started: self.started.clone() };
        let bytes = serde_json::to_vec(&carried).map_err(io::Error::other)?;
        let dir = self.dir.join(DIR);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        stepback_faults::point()?;
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(dir.join(&name))?;
        file.write_all(&bytes)?;
        inbox::leave(&self.dir, &Note { carried: Some(name), ..Note::new(at, &agent) })
    }

    /// Notes that a call could not be recorded.
    pub fn lost(&self, what: &str, at: Timestamp) -> io::Result<()> {
        let agent = self.agent.as_deref().unwrap_or(UNKNOWN);
        let gap = Some(format!("a model call: {what}"));
        inbox::leave(&self.dir, &Note { gap, ..Note::new(at, agent) })
    }
}

/// Fields whose values look like secrets and are none: what a model signed or sealed has to come back to it as it was.
const SEALED: [&str; 6] =
    ["signature", "thoughtSignature", "thought_signature", "encrypted_content", "data", "obfuscation"];

/// The answer with secrets taken out, also those that arrived in pieces.
fn without_secrets(exchange: &Exchange) -> Response {
    let Exchange { request, response, .. } = exchange;
    let clean = |text: &str| -> Option<String> {
        let clean = stepback_redact::redact(text);
        (*clean != *text).then(|| clean.into_owned())
    };
    let told = request.wire.and_then(|wire| edit::answer(wire, response, &mut |_, text| clean(text)));
    let told = told.unwrap_or_else(|| response.clone());
    // Names of things are no secrets, however random they are; what is said about an error can hold one.
    let is_sealed =
        |name: &str| SEALED.contains(&name) || name == "id" || name.ends_with("_id") || name.ends_with("Id");
    let rest = edit::elsewhere(request.wire, &told, &mut |name, text| match is_sealed(name) {
        true => None,
        false => clean(text),
    });
    let mut kept = rest.unwrap_or(told);
    for (_, value) in &mut kept.headers {
        if let Some(clean) = clean(value) {
            *value = clean;
        }
    }
    kept
}

/// What went wrong with a call, if anything did.
fn trouble(response: &Response, said: &Answered) -> Option<ReportedError> {
    let named = |name: &str, message: String| {
        let message = stepback_redact::redact(&message).into_owned();
        Some(ReportedError { name: Some(name.to_owned()), message, ..ReportedError::default() })
    };
    match &response.ended {
        Ended::Failed(why) => named("failed", format!("no answer: {why}")),
        Ended::CutOff(why) => named("cut-off", format!("the answer broke off: {why}")),
        Ended::Cancelled => named("cancelled", "the agent went away before the end of the answer".to_owned()),
        Ended::Complete if response.status >= 400 => {
            let what = said.error.as_deref().unwrap_or("no reason given");
            named("refused", format!("{}: {what}", response.status))
        }
        Ended::Complete => said.error.as_ref().and_then(|error| named("model", error.clone())),
    }
}

fn redacted(text: &str) -> String {
    stepback_redact::redact(text).into_owned()
}

/// What an answer says, in one line: the calls it makes, else its first words.
fn in_short(said: &Answered) -> String {
    let mut calls: Vec<&str> = Vec::new();
    let mut text = None;
    for part in &said.said {
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

/// What a note names; `None` if the file is gone or cannot be read.
pub(crate) fn read(workspace_dir: &Path, name: &str) -> Option<RecordedCall> {
    // The name comes from a file that anybody could have written to.
    let plain = !name.contains(['/', '\0']) && name != "..";
    let bytes = fs::read(workspace_dir.join(DIR).join(name)).ok().filter(|_| plain)?;
    serde_json::from_slice(&bytes).ok()
}

/// Forgets what notes named that are recorded now, and what was left behind long ago.
pub(crate) fn forget(workspace_dir: &Path, notes: &[Note]) {
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
        if age.is_some_and(|age| age > FORGOTTEN) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The exchange that a recorded call and its answer tell of; `None` if they do not hold one.
pub fn exchange(id: &str, asked: &Value, answered: &Value) -> Option<Exchange> {
    let request = serde_json::from_value(asked.clone()).ok()?;
    let response = serde_json::from_value(answered.clone()).ok()?;
    Some(Exchange { id: id.to_owned(), request, response })
}

#[cfg(test)]
mod tests {
    use stepback_exchange::{Chunks, Wire};

    use super::*;

    #[test]
    fn an_answer_from_a_recording_costs_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let carrier = ModelCallWriter {
            dir: dir.path().to_path_buf(),
            agent: Some("claude".into()),
            session: Some("s".into()),
            started: None,
            since: Timestamp::from_micros(0),
            prices: Prices::built_in(),
        };
        let usage = json!({ "input_tokens": 1_000_000, "output_tokens": 1_000_000 });
        let body = json!({ "type": "message", "model": "claude-sonnet-4-5", "content": [], "usage": usage });
        let cost = |id: &str, headers: Vec<(String, String)>| {
            let request = Request {
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
                ended: Ended::Complete,
                first_byte: None,
                took: 1,
                left_out: 0,
            };
            let exchange = Exchange { id: id.into(), request, response };
            carrier.ended(&exchange, Timestamp::from_micros(1), &Caller::default()).unwrap();
            let carried = read(dir.path(), &format!("{id}-answered.json")).unwrap();
            (carried.cost, carried.event.metadata.unwrap()["replayed"].clone())
        };
        assert!(cost("live", Vec::new()).0 > 0);
        assert_eq!(cost("again", vec![(Response::REPLAYED.into(), "1".into())]), (0, json!(true)));
    }
}
