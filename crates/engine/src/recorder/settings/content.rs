//! Leaves parts of an event out of the record, cuts inputs and outputs that are too large, and applies the user's patterns.
//!
//! What is left out or cut is named in the step. Three things are never cut, because something else needs them whole: the
//! conversation (a rewind restores it), prompts, and the requests and answers of model calls (a rerun replays both).
//! Files do not pass through here.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use stepback_model::clip;
use stepback_model::event::{AgentEvent, ReportedError};
use stepback_model::record::{SessionInfo, StepKind};
use stepback_model::shell::command_line;

use super::{CapturedPart, RecorderSettings};
use crate::recorder::{NewMessages, ReportedEvent};

/// Fields of an agent's original report that say nothing about the work itself.
const PLAIN_FIELDS: [&str; 5] = ["hook_event_name", "cwd", "agent_type", "source", "trigger"];

/// What is not recorded of an event.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftOut {
    /// The size of the whole input in bytes, if it was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// The size of the whole output in bytes, if it was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// How many bytes were cut.
    #[serde(skip)]
    pub bytes: u64,
    /// The parts of the event that the settings leave out.
    #[serde(skip)]
    pub parts: BTreeSet<CapturedPart>,
}

impl LeftOut {
    /// Whether nothing was left out.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Which of input and output were cut, with the size of the whole, for the step's detail.
    pub(in crate::recorder) fn truncated(&self) -> Option<Value> {
        let size = |name: &str, bytes: Option<u64>| Some((name.to_owned(), json!({ "bytes": bytes? })));
        let fields: Map<String, Value> =
            [size("input", self.input), size("output", self.output)].into_iter().flatten().collect();
        (!fields.is_empty()).then_some(Value::Object(fields))
    }

    /// The names of the parts that are not recorded, for the step's detail.
    pub(in crate::recorder) fn not_recorded(&self) -> Option<Value> {
        (!self.parts.is_empty()).then(|| self.parts.iter().map(|part| part.as_str()).collect())
    }
}

impl RecorderSettings {
    /// Cuts the input and the output of an event to the limits. `is_exchange` says that they are the bodies of a model
    /// call.
    pub fn limit(&self, event: &mut AgentEvent, is_exchange: bool) -> LeftOut {
        if is_exchange || !has_limits(event.kind) {
            return LeftOut::default();
        }
        let mut bytes = 0;
        let mut cut = |value: &mut Option<Value>, limit: Option<u64>| {
            let value = value.as_mut()?;
            let whole = cut_value(value, limit?)?;
            bytes += whole.saturating_sub(text_size(value));
            Some(whole)
        };
        let input = cut(&mut event.input, self.max_input);
        let output = cut(&mut event.output, self.max_output);
        LeftOut { input, output, bytes, parts: BTreeSet::new() }
    }

    /// Returns the event as it is to be recorded.
    pub(in crate::recorder) fn shape<'r>(&self, report: &'r ReportedEvent) -> Cow<'r, ReportedEvent> {
        if !self.affects(report) {
            return Cow::Borrowed(report);
        }
        let mut shaped = report.clone();
        self.leave_out_parts(&mut shaped);
        self.redact_report(&mut shaped);
        let cut = self.limit(&mut shaped.event, shaped.is_exchange);
        // The reporter may have cut it already, and knows how large it was.
        let left_out = &mut shaped.left_out;
        left_out.input = left_out.input.or(cut.input);
        left_out.output = left_out.output.or(cut.output);
        Cow::Owned(shaped)
    }

    fn affects(&self, report: &ReportedEvent) -> bool {
        let is_over = |value: &Option<Value>, limit: Option<u64>| {
            value.as_ref().zip(limit).is_some_and(|(value, limit)| text_size(value) > limit)
        };
        let event = &report.event;
        self.capture.len() < CapturedPart::ALL.len()
            || !self.redact.is_empty()
            || (!report.is_exchange
                && has_limits(event.kind)
                && (is_over(&event.input, self.max_input) || is_over(&event.output, self.max_output)))
    }

    fn redact_report(&self, report: &mut ReportedEvent) {
        if self.redact.is_empty() {
            return;
        }
        // The body of an answer is a stream of documents; who recorded it has redacted the texts in these.
        let body = match report.is_exchange {
            true => report.event.output.as_mut().and_then(|output| output.get_mut("body")).map(Value::take),
            false => None,
        };
        self.redact.redact_event(&mut report.event);
        if let (Some(body), Some(output)) = (body, report.event.output.as_mut()) {
            output["body"] = body;
        }
        for line in report.messages.iter_mut().flat_map(|messages| &mut messages.lines) {
            if let Cow::Owned(redacted) = self.redact.redact_line(line) {
                *line = redacted;
            }
        }
        let update = &mut report.update;
        for slot in [&mut update.tasks, &mut update.memory, &mut update.environment].into_iter().flatten() {
            self.redact.redact_value(slot);
        }
    }

    /// Removes what is not recorded from an event, and notes which parts these are.
    fn leave_out_parts(&self, report: &mut ReportedEvent) {
        use CapturedPart::{
            Commands, Conversation, Environment, Inputs, Memory, ModelBodies, Outputs, Tasks,
        };
        let event = &mut report.event;
        if event.kind.is_own() {
            return;
        }
        let parts = &mut report.left_out.parts;
        match event.kind {
            StepKind::ToolStart | StepKind::ToolEnd => {
                let is_hidden_command = !self.captures(Commands) && is_command(event);
                let why = |part| if is_hidden_command { Commands } else { part };
                if is_hidden_command || !self.captures(Inputs) {
                    if event.input.take().is_some() {
                        parts.insert(why(Inputs));
                    }
                    event.summary = event.tool.clone().unwrap_or_else(|| "a call".to_owned());
                }
                if is_hidden_command || !self.captures(Outputs) {
                    let is_told = event.output.take().is_some() | event.error.is_some();
                    parts.extend(is_told.then(|| why(Outputs)));
                    if let Some(error) = &mut event.error {
                        let message = "it failed; what it reported is not recorded".to_owned();
                        *error =
                            ReportedError { name: error.name.take(), message, ..ReportedError::default() };
                    }
                }
            }
            StepKind::ModelStart | StepKind::ModelEnd if !self.captures(ModelBodies) => {
                let is_told = event.input.take().is_some() | event.output.take().is_some();
                parts.extend(is_told.then_some(ModelBodies));
                event.summary = event.tool.clone().unwrap_or_else(|| "a model".to_owned());
            }
            StepKind::TaskCreated
            | StepKind::TaskAssigned
            | StepKind::TaskStarted
            | StepKind::TaskCompleted
            | StepKind::TaskFailed
                if !self.captures(Tasks) =>
            {
                (event.input, event.output) = (None, None);
                parts.insert(Tasks);
                event.summary = event.kind.as_str().replace('-', " ");
            }
            StepKind::UserInput | StepKind::AgentStep | StepKind::StateChange | StepKind::Message
                if !self.captures(Conversation) =>
            {
                leave_out_speech(event);
                parts.insert(Conversation);
            }
            // What an agent asked permission for; the user's own answers are needed by a rerun.
            StepKind::Decision if !self.captures(Inputs) || !self.captures(Commands) => {
                let is_answer = event.input.as_ref().is_some_and(|input| input.get("answer").is_some());
                if !is_answer && event.input.take().is_some() {
                    parts.insert(Inputs);
                    event.summary = event.summary.split(" for ").next().unwrap_or("a decision").to_owned();
                }
            }
            _ => {}
        }
        let is_whole = [Inputs, Outputs, Commands, Conversation].into_iter().all(|part| self.captures(part));
        if let (false, Some(Value::Object(fields))) = (is_whole, event.raw.as_mut()) {
            fields.retain(|name, _| PLAIN_FIELDS.contains(&name.as_str()));
        }
        if !self.captures(Conversation) {
            report.messages = report.messages.take().and_then(NewMessages::without_lines);
        }
        let update = &mut report.update;
        let slots = [
            (&mut update.memory, Memory),
            (&mut update.tasks, Tasks),
            (&mut update.environment, Environment),
        ];
        for (slot, part) in slots {
            if !self.captures(part) && slot.take().is_some() {
                parts.insert(part);
            }
        }
    }

    /// Removes from a session what is not recorded any more, so that later states do not show it as if it were current. The
    /// board stays: with `reasoning` left out, it cannot change.
    pub(in crate::recorder) fn forget_left_out(&self, info: &mut SessionInfo) {
        let slots = &mut info.slots;
        for (slot, part) in [
            (&mut info.tip, CapturedPart::Conversation),
            (&mut slots.memory, CapturedPart::Memory),
            (&mut slots.task, CapturedPart::Tasks),
            (&mut slots.env, CapturedPart::Environment),
        ] {
            if !self.captures(part) {
                *slot = None;
            }
        }
    }
}

/// Removes what was said from an event, and leaves the beginning of its summary that says what it is.
fn leave_out_speech(event: &mut AgentEvent) {
    (event.input, event.output) = (None, None);
    if let Some(message) = &mut event.message {
        message.content = Value::Null;
    }
    event.summary = match event.kind {
        StepKind::UserInput => "a prompt".to_owned(),
        StepKind::Message => "a message".to_owned(),
        _ => event.summary.split(':').next().unwrap_or_default().to_owned(),
    };
}

/// Whether the input and output of events of this kind are limited. Prompts and decisions are needed whole to run a session
/// again, and what stepback writes itself is small.
fn has_limits(kind: StepKind) -> bool {
    !kind.is_own() && !matches!(kind, StepKind::UserInput | StepKind::Decision | StepKind::BreakpointHit)
}

/// Whether an event is about a shell command.
fn is_command(event: &AgentEvent) -> bool {
    const NAMES: [&str; 5] = ["bash", "shell", "terminal", "exec", "command"];
    let tool = event.tool.as_deref().unwrap_or_default().to_lowercase();
    event.input.as_ref().is_some_and(|input| command_line(input).is_some())
        || NAMES.iter().any(|name| tool.contains(name))
}

/// The bytes of the texts and numbers in a value.
fn text_size(value: &Value) -> u64 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 4,
        // Writing a number out only to measure it is not worth it.
        Value::Number(_) => 8,
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(|item| text_size(item) + 1).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| name.len() as u64 + text_size(field) + 1).sum()
        }
    }
}

/// Cuts a value to `limit` bytes: its longest texts first, and if that is not enough, the whole as text. Returns the size of
/// the whole; `None` if it fits.
fn cut_value(value: &mut Value, limit: u64) -> Option<u64> {
    let whole = text_size(value);
    if whole <= limit {
        return None;
    }
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    // What is around a single long text stays whole.
    let around = whole - longest_text(value);
    let mut texts = if around < limit / 2 { most - around as usize } else { most / 2 };
    loop {
        clip::value(value, texts);
        if text_size(value) <= limit {
            return Some(whole);
        }
        if texts <= clip::LEAST {
            break;
        }
        texts /= 2;
    }
    let mut text = value.to_string();
    clip::text(&mut text, most);
    *value = Value::String(text);
    Some(whole)
}

fn longest_text(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(longest_text).max().unwrap_or_default(),
        Value::Object(fields) => fields.values().map(longest_text).max().unwrap_or_default(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_cut_to_the_limit_whatever_its_form() {
        let long = "añ→".repeat(20_000);
        for (value, limit) in [
            (json!(long), 1000),
            (json!({ "command": "ls", "stdout": long }), 1000),
            (json!([long, long, { "deep": [long, 1, null] }]), 5000),
            (json!(vec![1; 5000]), 300),
            (json!(vec!["short"; 5000]), 256),
        ] {
            let mut cut = value.clone();
            assert_eq!(cut_value(&mut cut, limit), Some(text_size(&value)));
            assert!(text_size(&cut) <= limit, "{} > {limit}", text_size(&cut));
            assert!(cut.to_string().contains("bytes left out"), "{cut}");
            let again = cut.clone();
            assert_eq!(cut_value(&mut cut, limit), None, "a second time changes nothing");
            assert_eq!(cut, again);
        }
        let mut fits = json!({ "a": "x".repeat(255) });
        assert_eq!(cut_value(&mut fits, 257), None);
        let mut one = json!({ "command": "make test", "stdout": "x".repeat(70_000) });
        cut_value(&mut one, 65_536);
        assert_eq!(one["command"], "make test", "what is around one long text stays");
        assert!(text_size(&one) > 65_000, "and no more than necessary is cut");
    }
}
