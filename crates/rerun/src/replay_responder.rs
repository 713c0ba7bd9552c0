//! Answers an agent's model calls from a recording, with changes.
//!
//! A request is compared with the recorded ones, after everything was removed that differs between any two runs. As long as
//! the agent sends the recorded requests, it gets the recorded answers, with paths mapped to the directories of the rerun.
//! The first request that does not match a recorded one is where the rerun diverges.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::Value;
use stepback_agents::decisions::DecidedCalls;
use stepback_llm_wire::edit::{self, AnswerText};
use stepback_llm_wire::matching::{MatchResult, Places, Recording, RequestDifference, TextNormalizer};
use stepback_llm_wire::semantics::{self, ContentPart};
use stepback_llm_wire::{Exchange, ModelRequest, Response, Wire};
use stepback_proxy::{Decision, Responder, Timing};

use crate::change::RerunChange;
use crate::recorded_session::{RecordedSession, ToolCall};

/// What to do with a request that was not recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDifference {
    /// End the rerun there.
    Stop,
    /// Call the model, from there on.
    Live,
    /// Send the nearest recorded answer.
    Nearest,
}

/// Where a rerun diverged from the recording.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Divergence {
    /// The number of the model call in the rerun, counted from 1.
    pub call: u64,
    /// What differs.
    pub differences: Vec<RequestDifference>,
}

/// How the model calls so far were answered.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct ReplayCounts {
    /// How many were answered from the recording.
    pub recorded: u64,
    /// How many were sent to the model.
    pub live: u64,
    /// How many were refused.
    pub refused: u64,
    /// Where the rerun diverged from the recording; `None` if it did not.
    pub parted: Option<Divergence>,
}

impl ReplayCounts {
    /// Returns the sum of this tally and that of a later run.
    #[must_use]
    pub fn merge(self, then: Self) -> Self {
        let calls_before = self.recorded + self.live + self.refused;
        let later = then.parted.map(|parted| Divergence { call: calls_before + parted.call, ..parted });
        Self {
            recorded: self.recorded + then.recorded,
            live: self.live + then.live,
            refused: self.refused + then.refused,
            parted: self.parted.or(later),
        }
    }
}

/// Answers model calls from a recording.
#[derive(Debug)]
pub struct Replayer {
    on_difference: OnDifference,
    timing: Timing,
    changes: Vec<WireChange>,
    /// Recorded directories and those that replace them in the rerun.
    moved_paths: Vec<(String, String)>,
    /// The recorded results of calls that do not run in the rerun, by their ids.
    results: HashMap<String, Value>,
    /// Whether a change shows in the instructions. Otherwise they may differ, because they describe the machine.
    changes_instructions: bool,
    state: Mutex<ReplayState>,
}

#[derive(Debug)]
struct ReplayState {
    recording: Recording,
    request_count: u64,
    counts: ReplayCounts,
}

/// A change in terms of the wire format.
#[derive(Clone, PartialEq, Debug)]
enum WireChange {
    Model(String),
    System(String),
    Prompt { old: String, new: String },
    Message { index: usize, old: Value, new: Value },
    Result { call: CallMatcher, part: Option<String>, text: String },
    Input { call: CallMatcher, input: Value },
}

/// Identifies a call in requests and answers.
#[derive(Clone, PartialEq, Debug)]
struct CallMatcher {
    id: Option<String>,
    name: String,
    input: Value,
    /// How many calls the model had made before it in that conversation.
    nth: usize,
}

/// Directories of the recorded run and those that replace them in the rerun.
#[derive(Clone, Debug, Default)]
pub struct Directories {
    /// Placeholder name, recorded path, and path in the rerun.
    pub all: Vec<(&'static str, PathBuf, PathBuf)>,
}

impl Directories {
    /// Returns the directories whose path differs, the longest first.
    fn moved_paths(&self) -> Vec<(String, String)> {
        let text = |path: &PathBuf| path.display().to_string();
        let all = self.all.iter().map(|(_, recorded, present)| (text(recorded), text(present)));
        let mut moved: Vec<(String, String)> =
            all.filter(|(recorded, present)| recorded != present && recorded.len() > 1).collect();
        moved.sort_by_key(|(recorded, _)| std::cmp::Reverse(recorded.len()));
        moved
    }

    /// Returns the user's decisions about the recorded calls, with paths mapped to the directories of the rerun.
    pub(crate) fn decided_calls(&self, recorded: &RecordedSession) -> DecidedCalls {
        let moved = self.moved_paths();
        let mut calls = recorded.decided_calls();
        for call in &mut calls {
            replace_paths_in_value(&mut call.input, &moved);
            for reply in [&mut call.before, &mut call.after] {
                if let Some(decision) = &mut reply.decision {
                    replace_paths_in_value(&mut decision.input, &moved);
                }
            }
        }
        DecidedCalls::from_calls(calls)
    }

    fn to_places(&self) -> Places {
        let side = |pick: fn(&(&'static str, PathBuf, PathBuf)) -> PathBuf| {
            self.all.iter().map(|place| (pick(place), place.0)).collect()
        };
        Places { recorded: side(|place| place.1.clone()), present: side(|place| place.2.clone()) }
    }
}

impl Replayer {
    /// Creates a replayer for `tape`, with `changes`.
    pub fn new(
        recorded: &RecordedSession,
        changes: &[RerunChange],
        directories: &Directories,
        on_difference: OnDifference,
        timing: Timing,
    ) -> Self {
        let instructs = changes
            .iter()
            .any(|change| matches!(change, RerunChange::System(_) | RerunChange::Memory { .. }));
        let changes = changes.iter().filter_map(|change| to_wire_change(recorded, change)).collect();
        let moved = directories.moved_paths();
        let recording = Recording::new(recorded.exchanges.clone(), directories.to_places());
        let state = Mutex::new(ReplayState { recording, request_count: 0, counts: ReplayCounts::default() });
        // For a call that the user refused in the agent, the model gets the recorded text: a refusal by a hook has other words.
        let refused = recorded.calls.iter().filter(|call| call.before.refused.is_some());
        let refused: Vec<&String> = refused.filter_map(|call| call.id.as_ref()).collect();
        let mut results = HashMap::new();
        if !refused.is_empty() {
            results = recorded_results(&recorded.exchanges);
            results.retain(|id, _| refused.contains(&id));
        }
        Self {
            on_difference,
            timing,
            changes,
            moved_paths: moved,
            results,
            changes_instructions: instructs,
            state,
        }
    }

    /// Makes the model get the recorded results of calls, whatever their results in the rerun are.
    #[must_use]
    pub fn with_recorded_results(mut self, enabled: bool) -> Self {
        if enabled {
            let results = recorded_results(self.state().recording.exchanges());
            self.results = results;
        }
        self
    }

    /// Returns how the model calls so far were answered.
    pub fn counts(&self) -> ReplayCounts {
        self.state().counts.clone()
    }

    fn state(&self) -> MutexGuard<'_, ReplayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the changes that a request contains. Returns whether it made any.
    fn change_request(&self, wire: Wire, request: &mut ModelRequest) -> bool {
        let original = (request.path.clone(), request.body.clone());
        for change in &self.changes {
            match change {
                WireChange::Model(model) => {
                    edit::set_model(wire, &mut request.path, &mut request.body, model)
                }
                WireChange::System(text) => edit::set_system(wire, &mut request.body, text),
                WireChange::Prompt { old, new } => {
                    edit::set_prompt(wire, &mut request.body, old, new);
                }
                WireChange::Message { index, old, new } => {
                    self.change_message(wire, request, (*index, old, new));
                }
                WireChange::Result { call, part, text } => {
                    set_result(wire, request, call, part.as_deref(), text)
                }
                WireChange::Input { .. } => {}
            }
        }
        original != (request.path.clone(), request.body.clone())
    }

    /// Replaces a message of a request, if it is the recorded one.
    fn change_message(
        &self,
        wire: Wire,
        request: &mut ModelRequest,
        (index, old, new): (usize, &Value, &Value),
    ) {
        let messages = edit::messages(wire, &mut request.body);
        let Some(message) = messages.and_then(|messages| messages.get_mut(index)) else { return };
        if self.strip_message(message) == self.strip_message(old) {
            new.clone_into(message);
            replace_paths_in_value(message, &self.moved_paths);
        }
    }

    /// Returns a message without what differs between any two runs.
    fn strip_message(&self, message: &Value) -> Value {
        let directories = self.moved_paths.iter().flat_map(|(recorded, present)| [recorded, present]);
        let mut message = TextNormalizer::new(directories.map(Path::new)).value(message);
        strip_volatile_fields(&mut message);
        message
    }

    /// Returns a recorded answer, with paths mapped to the directories of the rerun and with changed inputs.
    fn adapt_response(&self, wire: Wire, exchange: &Exchange) -> Response {
        let summary = semantics::answered(wire, &exchange.response);
        let calls_before = calls_in(&semantics::asked(wire, &exchange.request).messages).count();
        let mut call_number = calls_before;
        let changed = edit::answer(wire, &exchange.response, &mut |part, text| {
            let mut text_now = text.to_owned();
            if let AnswerText::Input { id, name } = &part {
                let own_call = calls_in(&summary.content).nth(call_number - calls_before);
                for change in &self.changes {
                    if let (WireChange::Input { call, input }, Some(own_call)) = (change, own_call)
                        && call.matches(*id, name, &own_call.input, call_number)
                    {
                        text_now = input.to_string();
                    }
                }
                call_number += 1;
            }
            let in_document = matches!(part, AnswerText::Input { .. });
            let text_now = self.map_paths(&text_now, in_document);
            (text_now != text).then_some(text_now)
        });
        changed.unwrap_or_else(|| exchange.response.clone())
    }

    /// Replaces directories, each occurrence in a text once: a new directory may be inside an old one.
    fn map_paths(&self, text: &str, in_document: bool) -> String {
        let escaped = |path: &str| match in_document {
            true => Value::from(path).to_string().trim_matches('"').to_owned(),
            false => path.to_owned(),
        };
        let moved: Vec<(String, String)> = self
            .moved_paths
            .iter()
            .map(|(recorded, present)| (escaped(recorded), escaped(present)))
            .collect();
        replace_paths(text, &moved)
    }

    fn answer_recorded(&self, state: &mut ReplayState, wire: Wire, index: usize) -> Decision {
        state.counts.recorded += 1;
        let response = self.adapt_response(wire, &state.recording.exchanges()[index]);
        Decision::Recorded { response, timing: self.timing }
    }

    /// A request that matches a recorded one except for changed instructions is a different request.
    fn check_instructions(
        &self,
        state: &ReplayState,
        wire: Wire,
        index: usize,
        request: &ModelRequest,
    ) -> MatchResult {
        let recorded = semantics::asked(wire, &state.recording.exchanges()[index].request).system;
        let instructions = semantics::asked(wire, request).system;
        if !self.changes_instructions || recorded == instructions {
            return MatchResult::Same(index);
        }
        let path = "system".to_owned();
        let difference = RequestDifference { path, recorded: Some(recorded), present: Some(instructions) };
        MatchResult::Different { nearest: Some(index), differences: vec![difference] }
    }

    fn refuse(state: &mut ReplayState, status: u16, message: String) -> Decision {
        state.counts.refused += 1;
        Decision::Refuse { status, message }
    }
}

impl Responder for Replayer {
    fn answer(&self, _id: &str, request: &mut ModelRequest) -> Decision {
        let Some(wire) = request.wire else {
            // Not a model call but a list of models or a quota: it was not recorded, and does not matter.
            return match self.on_difference {
                OnDifference::Live => Decision::Live,
                _ => Decision::Refuse {
                    status: 404,
                    message: "this is a rerun; only model calls are answered".into(),
                },
            };
        };
        if !self.results.is_empty() {
            restore_results(&mut request.body, &self.results);
        }
        let is_changed = self.change_request(wire, request);
        let mut normalized = request.clone();
        stepback_redact::redact_value(&mut normalized.body);
        let mut state = self.state();
        let state = &mut *state;
        state.request_count += 1;
        if state.counts.parted.is_some() {
            match self.on_difference {
                OnDifference::Stop => {
                    return Self::refuse(
                        state,
                        400,
                        "the rerun diverged from the recording and has ended".into(),
                    );
                }
                OnDifference::Live => {
                    state.counts.live += 1;
                    return if is_changed { Decision::LiveChanged } else { Decision::Live };
                }
                OnDifference::Nearest => {}
            }
        }
        let match_result = match state.recording.find(&normalized) {
            MatchResult::Same(at) => self.check_instructions(state, wire, at, &normalized),
            other => other,
        };
        match match_result {
            MatchResult::Same(at) | MatchResult::Background(Some(at)) => {
                self.answer_recorded(state, wire, at)
            }
            MatchResult::Background(None) => {
                Self::refuse(state, 404, "this call was not recorded, and nothing depends on it".into())
            }
            MatchResult::Different { nearest, differences } => {
                let call = state.request_count;
                state.counts.parted.get_or_insert(Divergence { call, differences });
                match (self.on_difference, nearest) {
                    (OnDifference::Live, _) => {
                        state.counts.live += 1;
                        if is_changed { Decision::LiveChanged } else { Decision::Live }
                    }
                    (OnDifference::Nearest, Some(at)) => {
                        state.recording.give(at);
                        self.answer_recorded(state, wire, at)
                    }
                    _ => Self::refuse(state, 400, "the recording contains no such request".into()),
                }
            }
        }
    }
}

fn calls_in(parts: &[ContentPart]) -> impl Iterator<Item = &semantics::WireCall> {
    parts.iter().filter_map(|parts| match parts {
        ContentPart::Call(call) => Some(call),
        _ => None,
    })
}

impl CallMatcher {
    fn matches(&self, id: Option<&str>, name: &str, input: &Value, nth: usize) -> bool {
        match (&self.id, id) {
            (Some(own_id), Some(id)) => own_id == id,
            _ => self.name == name && self.nth == nth && self.input == *input,
        }
    }
}

/// Returns a change in terms of the wire format; `None` if no model call shows it.
fn to_wire_change(recorded: &RecordedSession, change: &RerunChange) -> Option<WireChange> {
    match change {
        RerunChange::Model(model) => Some(WireChange::Model(model.clone())),
        RerunChange::System(text) => Some(WireChange::System(text.clone())),
        RerunChange::Prompt { old, new, .. } => {
            Some(WireChange::Prompt { old: old.clone(), new: new.clone() })
        }
        RerunChange::Memory { .. } => None,
        RerunChange::Message { index, old, new } => {
            Some(WireChange::Message { index: *index, old: old.clone(), new: new.clone() })
        }
        RerunChange::Input { call, input } => {
            let call = find_call(recorded, recorded.calls.get(*call)?)?;
            Some(WireChange::Input { call, input: input.clone() })
        }
        RerunChange::Output { call, part, text } => {
            let call = find_call(recorded, recorded.calls.get(*call)?)?;
            Some(WireChange::Result { call, part: part.clone(), text: text.clone() })
        }
    }
}

/// Returns the model's call that led to a recorded tool call.
fn find_call(recorded: &RecordedSession, recorded_call: &ToolCall) -> Option<CallMatcher> {
    let mut by_input = None;
    for exchange in &recorded.exchanges {
        let Some(wire) = exchange.request.wire else { continue };
        let calls_before = calls_in(&semantics::asked(wire, &exchange.request).messages).count();
        let answered = semantics::answered(wire, &exchange.response);
        for (index, call) in calls_in(&answered.content).enumerate() {
            let matcher = || CallMatcher {
                id: call.id.clone(),
                name: call.name.clone(),
                input: call.input.clone(),
                nth: calls_before + index,
            };
            if call.id.is_some() && call.id == recorded_call.id {
                return Some(matcher());
            }
            if by_input.is_none() && call.input == recorded_call.input {
                by_input = Some(matcher());
            }
        }
    }
    by_input
}

/// Replaces the result of a call in a request, if the request has one.
fn set_result(wire: Wire, request: &mut ModelRequest, call: &CallMatcher, part: Option<&str>, text: &str) {
    let messages = semantics::asked(wire, request).messages;
    let mut results = messages.iter().filter_map(|messages| match messages {
        ContentPart::Result { id, text, .. } => Some((id.clone(), text.clone())),
        _ => None,
    });
    let by_id = results.clone().find(|(id, _)| call.id.is_some() && *id == call.id);
    // An agent that generates its own ids generates others every time; the position in the conversation stays the same.
    let by_place = || {
        calls_in(&messages)
            .nth(call.nth)
            .filter(|own_call| own_call.name == call.name)
            .and_then(|_| results.nth(call.nth))
    };
    let Some((id, old)) = by_id.or_else(by_place) else { return };
    let new = match part {
        None => text.to_owned(),
        Some(part) => old.replacen(part, text, 1),
    };
    let id = id.unwrap_or_else(|| call.name.clone());
    edit::set_result(wire, &mut request.body, &id, &new);
}

/// Returns the id of the call whose result a part of a request is, in any wire format.
fn result_call_id(part: &Value) -> Option<&str> {
    let is_output = part["type"].as_str().is_some_and(|kind| kind.ends_with("_output"));
    let id = part.get("tool_use_id").or_else(|| part.get("tool_call_id"));
    let id = id.or_else(|| part.get("call_id").filter(|_| is_output));
    id.or_else(|| part.get("functionResponse")?.get("id"))?.as_str()
}

/// Returns the recorded results of calls, by their ids, as the model got them.
pub(crate) fn recorded_results(exchanges: &[Exchange]) -> HashMap<String, Value> {
    let mut results = HashMap::new();
    // If a result was shortened in later requests, the first one counts.
    for exchange in exchanges.iter().rev() {
        collect_results(&exchange.request.body, &mut results);
    }
    results
}

fn collect_results(value: &Value, results: &mut HashMap<String, Value>) {
    if let Some(id) = result_call_id(value) {
        results.insert(id.to_owned(), value.clone());
        return;
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_results(item, results)),
        Value::Object(fields) => fields.values().for_each(|field| collect_results(field, results)),
        _ => {}
    }
}

fn restore_results(value: &mut Value, results: &HashMap<String, Value>) {
    if let Some(recorded) = result_call_id(value).and_then(|id| results.get(id)) {
        *value = recorded.clone();
        return;
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| restore_results(item, results)),
        Value::Object(fields) => fields.values_mut().for_each(|field| restore_results(field, results)),
        _ => {}
    }
}

/// Removes the fields of a message that an agent generates anew in every run.
fn strip_volatile_fields(value: &mut Value) {
    const VOLATILE: [&str; 9] = [
        "id",
        "tool_use_id",
        "tool_call_id",
        "call_id",
        "cache_control",
        "signature",
        "thoughtSignature",
        "status",
        "internal_chat_message_metadata_passthrough",
    ];
    match value {
        Value::Array(items) => items.iter_mut().for_each(strip_volatile_fields),
        Value::Object(fields) => {
            fields.retain(|name, _| !VOLATILE.contains(&name.as_str()));
            fields.values_mut().for_each(strip_volatile_fields);
        }
        _ => {}
    }
}

/// Replaces paths that stand alone or at the start of longer ones. If several match, the first is used.
fn replace_paths(text: &str, moved: &[(String, String)]) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut previous_char) = (text, None);
    while let Some(next) = rest.chars().next() {
        let may_begin = !previous_char.is_some_and(|c: char| c.is_alphanumeric() || "_-.~".contains(c));
        let replacement = moved.iter().filter(|_| may_begin).find(|(recorded, _)| {
            let following = rest.strip_prefix(recorded.as_str());
            following.is_some_and(|following| {
                !following.starts_with(|c: char| c.is_alphanumeric() || "_-".contains(c))
            })
        });
        let length = match replacement {
            Some((recorded, present)) => {
                out.push_str(present);
                recorded.len()
            }
            None => {
                out.push(next);
                next.len_utf8()
            }
        };
        previous_char = rest[..length].chars().next_back();
        rest = &rest[length..];
    }
    out
}

/// Replaces paths in every text of a value.
fn replace_paths_in_value(value: &mut Value, moved: &[(String, String)]) {
    match value {
        Value::String(text) => *text = replace_paths(text, moved),
        Value::Array(items) => items.iter_mut().for_each(|item| replace_paths_in_value(item, moved)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace_paths_in_value(field, moved)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_replaced_only_where_it_is_meant_and_only_once() {
        let moved = [("/w/x".to_owned(), "/h/tmp/w".to_owned()), ("/h".to_owned(), "/new".to_owned())];
        let told = replace_paths("cd /w/x && ls /w/x/a /w/xy /w/x-2 /w/x. /a/w/x /h/b", &moved);
        assert_eq!(told, "cd /h/tmp/w && ls /h/tmp/w/a /w/xy /w/x-2 /h/tmp/w. /a/w/x /new/b");
    }
}
