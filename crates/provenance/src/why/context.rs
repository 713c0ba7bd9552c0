//! What a model had seen before a turn: the texts of its context that have words of a change.
//!
//! Only what is needed is read. The messages of the conversation are visited once, from the newest, and searched for the
//! words of the change before they are parsed; only the most promising ones are.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher};

use memchr::memmem;
use serde_json::Value;
use stepback_agents::transcript::{MessagePart, MessageRole, TranscriptMessage, parse_agent_messages};
use stepback_engine::Workspace;
use stepback_engine::read_cache::LastRead;
use stepback_llm_wire::recorded_call::parse_answer;
use stepback_llm_wire::semantics::{self, ContentPart};
use stepback_llm_wire::{ModelRequest, Wire};
use stepback_model::conversation::{self, ConversationMessage};
use stepback_model::json;
use stepback_model::object::{ObjectError, ObjectSource};
use stepback_model::record::{StepKind, StepRow};
use stepback_store::port::StepQuery;

use super::turn::Turn;
use super::words::{Query, Weights, WordId, for_each_string};
use crate::error::ProvenanceError;

/// The most messages that are visited.
const MAX_MESSAGES: u64 = 200_000;
/// The most bytes of messages with words of the change that are kept until it is known how rare the words are.
const MAX_KEPT_BYTES: usize = 128 << 20;
/// The most messages that are parsed.
const MAX_PARSED: usize = 256;
/// The most steps whose details are read where there is no conversation.
const MAX_STEPS: u64 = 2000;

/// Among how many of the newest messages the answer that made the call can be, where the conversation was not cut before it.
const OWN_ANSWER_MESSAGES: u64 = 64;

/// Who said a text that the model had seen, as far as its place tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Speaker {
    /// A message in the name of the user: a prompt, or a text that the agent added.
    User,
    /// The instructions.
    System,
    /// A text that the agent or a hook added.
    Injected,
    /// The summary of a compaction.
    Summary,
    /// An earlier answer or thought.
    Model,
    /// The input of an earlier call.
    ModelCall,
    /// The result of a call.
    Result,
}

/// A text that the model had seen.
#[derive(Clone, Debug)]
pub(crate) struct SeenText {
    /// Who said it.
    pub speaker: Speaker,
    /// The text.
    pub text: String,
    /// The number of the message, from 1; `None` if it is the input or output of a step.
    pub message: Option<u64>,
    /// The number of the part.
    pub part: u64,
    /// Its place in time: later texts have higher ones.
    pub order: (u64, u64),
    /// The id of the call that it is about.
    pub call: Option<String>,
    /// The step, if the text was found there.
    pub step: Option<StepRow>,
    /// Whether it was still in the context.
    pub in_context: bool,
}

/// Where the context of a turn was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum RecordedIn {
    /// In the request of the model call.
    Request,
    /// In the agent's conversation.
    Conversation,
    /// In the details of earlier steps.
    Steps,
    /// Nowhere.
    #[default]
    Nowhere,
}

impl RecordedIn {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Conversation => "conversation",
            Self::Steps => "steps",
            Self::Nowhere => "none",
        }
    }
}

/// The texts of a context that have words of a change.
#[derive(Default)]
pub(crate) struct SeenContext {
    /// Where they were recorded.
    pub recorded_in: RecordedIn,
    /// The texts, in no particular order.
    pub texts: Vec<SeenText>,
    /// In how many texts each word of the change stands.
    pub having: Vec<u32>,
    /// How many texts were searched.
    pub searched: u64,
    /// How many of them had left the context.
    pub left: u64,
    /// Whether older texts were not searched.
    pub truncated: bool,
    /// The texts with words of the change that were counted: what was said twice makes no word more common.
    counted: HashSet<u64>,
    /// How many texts said the same as another one.
    repeated: u64,
}

impl SeenContext {
    /// How many different texts were searched.
    pub(crate) fn distinct(&self) -> usize {
        usize::try_from(self.searched.saturating_sub(self.repeated)).unwrap_or(usize::MAX)
    }

    /// Searches what the model had seen before a turn.
    pub(crate) fn collect(
        workspace: &Workspace,
        turn: &Turn,
        query: &Query,
    ) -> Result<Self, ProvenanceError> {
        let mut context = Self { having: vec![0; query.word_count()], ..Self::default() };
        let request = turn.request.as_ref().and_then(|request| Some((request.wire?, request)));
        if let Some((wire, request)) = request {
            context.recorded_in = RecordedIn::Request;
            context.add_request(wire, request, query);
        }
        if turn.worker.is_none() && turn.conversation.is_some() {
            context.add_conversation(workspace, turn, query)?;
        }
        if context.recorded_in == RecordedIn::Nowhere {
            context.add_steps(workspace, turn, query)?;
        }
        Ok(context)
    }

    /// Counts the words of a text, unless an equal text was counted.
    fn count(&mut self, words: &[WordId], text: u64) {
        if words.is_empty() {
            return;
        }
        if !self.counted.insert(text) {
            self.repeated += 1;
            return;
        }
        for word in words {
            if let Some(having) = self.having.get_mut(*word as usize) {
                *having = having.saturating_add(1);
            }
        }
    }

    fn add(&mut self, query: &Query, text: SeenText) {
        let words = query.decisive_in(&text.text);
        self.searched += 1;
        if !words.is_empty() {
            self.count(&words, fingerprint(text.text.as_bytes()));
            self.texts.push(text);
        }
    }

    /// Adds what the request of the turn contains.
    fn add_request(&mut self, wire: Wire, request: &ModelRequest, query: &Query) {
        let asked = semantics::asked(wire, request);
        let instructions = SeenText {
            speaker: Speaker::System,
            text: asked.system,
            message: None,
            part: 0,
            order: (0, 0),
            call: None,
            step: None,
            in_context: true,
        };
        let template = SeenText { text: String::new(), ..instructions.clone() };
        if !instructions.text.is_empty() {
            self.add(query, instructions);
        }
        for (index, part) in asked.messages.into_iter().enumerate() {
            let message = index as u64 + 1;
            let (speaker, text, call) = match part {
                ContentPart::User(text) => (Speaker::User, text, None),
                ContentPart::System(text) => (Speaker::System, text, None),
                ContentPart::Model(text) | ContentPart::Thought(text) => (Speaker::Model, text, None),
                ContentPart::Call(call) => (Speaker::ModelCall, join_strings(&call.input), call.id),
                ContentPart::Result { id, text, .. } => (Speaker::Result, text, id),
            };
            let order = (message, 0);
            self.add(
                query,
                SeenText { speaker, text, call, message: Some(message), order, ..template.clone() },
            );
        }
    }

    /// Adds the agent's conversation; if the request is known, only what it no longer contains.
    fn add_conversation(
        &mut self,
        workspace: &Workspace,
        turn: &Turn,
        query: &Query,
    ) -> Result<(), ProvenanceError> {
        let only_left = self.recorded_in == RecordedIn::Request;
        if only_left && !turn.may_be_compacted {
            return Ok(());
        }
        let mut search = ConversationSearch::default();
        conversation::for_each_newest_first(workspace.store(), turn.conversation, &mut |message| {
            search.visit(turn, query, message)
        })?;
        if search.visited == 0 {
            return Ok(());
        }
        if !only_left {
            self.recorded_in = RecordedIn::Conversation;
        }
        self.truncated |= search.truncated;
        let is_new = |count: u64| !only_left || search.has_left(count);
        for found in search.found.iter().filter(|found| is_new(found.message.count)) {
            self.count(&found.words, found.content);
        }
        let left = search.boundary.map_or(0, |boundary| boundary.saturating_sub(1));
        self.searched += if only_left { left.min(search.visited) } else { search.visited };
        self.left += left.min(search.visited);
        let weights = Weights::new(query, self.distinct(), &self.having);
        let mut promising: Vec<(f64, &FoundMessage)> = search
            .found
            .iter()
            .filter(|found| is_new(found.message.count))
            .map(|found| (found.words.iter().map(|word| weights.of(*word)).sum(), found))
            .collect();
        // Of equal ones, the newest: they are in this order.
        promising.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        for (_, found) in promising.into_iter().take(MAX_PARSED) {
            let in_context = !search.has_left(found.message.count);
            self.texts.extend(parse_line(&turn.session.agent, &found.message, in_context));
        }
        Ok(())
    }

    /// Adds the inputs and outputs of earlier steps of the same agent or sub-agent.
    fn add_steps(
        &mut self,
        workspace: &Workspace,
        turn: &Turn,
        query: &Query,
    ) -> Result<(), ProvenanceError> {
        let store = workspace.store();
        let steps = StepQuery {
            session: Some(turn.session.id),
            kinds: vec![StepKind::UserInput, StepKind::ToolEnd, StepKind::ModelEnd, StepKind::Message],
            before: Some(turn.before),
            limit: Some(MAX_STEPS + 1),
            ..StepQuery::default()
        };
        let mut steps = store.steps(workspace.record.id, &steps)?;
        self.truncated |= steps.len() as u64 > MAX_STEPS;
        steps.truncate(usize::try_from(MAX_STEPS).unwrap_or(usize::MAX));
        steps.retain(|stored| stored.step.meta.worker == turn.worker);
        steps.extend(starts_of_worker(workspace, turn)?);
        let source = StoreObjects(store);
        let details = LastRead::new(&source);
        for stored in steps {
            let Some(hash) = stored.step.meta.detail else { continue };
            // One damaged detail does not hide the others.
            let Ok(detail) = json::load(&details, hash) else { continue };
            self.recorded_in = RecordedIn::Steps;
            let (speaker, text) = match stored.step.kind {
                StepKind::UserInput => (Speaker::User, join_strings(&detail["input"])),
                StepKind::ToolStart => (Speaker::ModelCall, join_strings(&detail["input"])),
                StepKind::ModelEnd => (Speaker::Model, answer_text(&detail["output"])),
                StepKind::Message => (Speaker::Result, join_strings(&detail["message"]["content"])),
                _ => (Speaker::Result, join_strings(&detail["output"])),
            };
            let text = SeenText {
                speaker,
                text,
                message: None,
                part: 0,
                order: (stored.step.number, 0),
                call: stored.step.meta.call.clone(),
                step: Some(stored),
                in_context: true,
            };
            self.add(query, text);
        }
        Ok(())
    }
}

/// The calls of the main agent that may have started the sub-agent of a turn: their input is its prompt.
fn starts_of_worker(workspace: &Workspace, turn: &Turn) -> Result<Vec<StepRow>, ProvenanceError> {
    const STARTERS: [&str; 4] = ["Task", "Agent", "delegate", "spawn_agent"];
    let mut starts = Vec::new();
    if turn.worker.is_none() {
        return Ok(starts);
    }
    for tool in STARTERS {
        let query = StepQuery {
            session: Some(turn.session.id),
            kinds: vec![StepKind::ToolStart],
            tool: Some(tool.to_owned()),
            before: Some(turn.before),
            limit: Some(8),
            ..StepQuery::default()
        };
        starts.extend(workspace.store().steps(workspace.record.id, &query)?);
    }
    Ok(starts)
}

/// The reading side of a store, as a sized value.
pub(crate) struct StoreObjects<'a>(pub &'a dyn stepback_store::Store);

impl ObjectSource for StoreObjects<'_> {
    fn read(
        &self,
        kind: stepback_model::hash::ObjectKind,
        hash: stepback_model::hash::Hash,
    ) -> Result<Vec<u8>, ObjectError> {
        self.0.read(kind, hash)
    }
}

/// A message with words of the change.
struct FoundMessage {
    message: ConversationMessage,
    words: Vec<WordId>,
    /// A fingerprint of its longest string: the text that it is about, without ids and times.
    content: u64,
}

/// The messages of a conversation, while they are visited from the newest.
#[derive(Default)]
struct ConversationSearch {
    found: Vec<FoundMessage>,
    visited: u64,
    kept_bytes: usize,
    /// The number of the message in which the conversation was compacted last.
    boundary: Option<u64>,
    truncated: bool,
}

impl ConversationSearch {
    /// Visits a message; returns whether older ones are wanted.
    fn visit(&mut self, turn: &Turn, query: &Query, message: ConversationMessage) -> bool {
        if self.visited < OWN_ANSWER_MESSAGES && turn.is_own_answer(&message) {
            return true;
        }
        self.visited += 1;
        if self.boundary.is_none()
            && may_compact(&message.text)
            && is_compaction(&turn.session.agent, &message)
        {
            self.boundary = Some(message.count);
        }
        let words = query.decisive_in_json(&message.text);
        if !words.is_empty() {
            self.kept_bytes += message.text.len();
            let content = fingerprint(longest_string(message.text.as_bytes()));
            self.found.push(FoundMessage { message, words, content });
        }
        self.truncated = self.visited >= MAX_MESSAGES || self.kept_bytes > MAX_KEPT_BYTES;
        !self.truncated
    }

    /// Whether a message had left the context.
    fn has_left(&self, count: u64) -> bool {
        self.boundary.is_some_and(|boundary| count < boundary)
    }
}

fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// The longest string of a JSON text, as it is written there.
fn longest_string(json: &[u8]) -> &[u8] {
    let (mut longest, mut start) = (&json[..0], 0);
    for at in memchr::memchr_iter(b'"', json) {
        // A quote behind an odd number of backslashes is part of the string.
        let escapes = json[start..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        if escapes % 2 == 0 {
            if at - start > longest.len() {
                longest = &json[start..at];
            }
            start = at + 1;
        }
    }
    longest
}

/// Whether a line may say that the conversation was compacted.
pub(crate) fn may_compact(line: &str) -> bool {
    memmem::find(line.as_bytes(), b"ompact").is_some()
}

fn is_compaction(agent: &str, message: &ConversationMessage) -> bool {
    // This only shortens some results.
    if message.text.contains("\"microcompact_boundary\"") {
        return false;
    }
    let parsed = parse_agent_messages(agent, std::slice::from_ref(&message.text));
    let parts = parsed.iter().filter(|message| message.worker.is_none()).flat_map(|message| &message.parts);
    parts.into_iter().any(|part| matches!(part, MessagePart::Compaction { .. }))
}

/// The texts of one line of an agent's conversation, without those of sub-agents.
fn parse_line(agent: &str, message: &ConversationMessage, in_context: bool) -> Vec<SeenText> {
    let template = SeenText {
        speaker: Speaker::Injected,
        text: String::new(),
        message: Some(message.count),
        part: 0,
        order: (message.count, 0),
        call: None,
        step: None,
        in_context,
    };
    let mut found = Vec::new();
    for parsed in parse_agent_messages(agent, std::slice::from_ref(&message.text)) {
        if parsed.worker.is_some() {
            continue;
        }
        for part in &parsed.parts {
            let index = found.len() as u64;
            let Some((speaker, text, call)) = read_part(&parsed, part, &message.text) else { continue };
            found.push(SeenText {
                speaker,
                text,
                call,
                part: index,
                order: (message.count, index),
                ..template.clone()
            });
        }
    }
    if found.is_empty()
        && let Some(text) = attached_text(&message.text)
    {
        found.push(SeenText { text, ..template });
    }
    found
}

/// Who said a part of a message, its text, and the id of its call.
fn read_part(
    message: &TranscriptMessage,
    part: &MessagePart,
    line: &str,
) -> Option<(Speaker, String, Option<String>)> {
    Some(match part {
        MessagePart::Text { text } | MessagePart::Thinking { text } => {
            let speaker = match message.role {
                MessageRole::User => Speaker::User,
                MessageRole::Assistant => Speaker::Model,
                MessageRole::Tool => Speaker::Injected,
                MessageRole::System | MessageRole::Unknown => match line.contains("\"isCompactSummary\"") {
                    true => Speaker::Summary,
                    false => Speaker::Injected,
                },
            };
            (speaker, text.clone(), None)
        }
        MessagePart::ToolCall { id, input, .. } => {
            (Speaker::ModelCall, join_strings(input), Some(id.clone()))
        }
        MessagePart::ToolResult { id, output, .. } => {
            (Speaker::Result, join_strings(output), Some(id.clone()))
        }
        MessagePart::Compaction { text } => (Speaker::Summary, text.clone(), None),
        MessagePart::Failure { .. } => return None,
        MessagePart::Other { value } => (Speaker::Injected, join_strings(value), None),
    })
}

/// The text of a line that is no message but that the agent shows its model: what it attached, and what hooks said.
fn attached_text(line: &str) -> Option<String> {
    let value: Value = serde_json::from_str(line).ok()?;
    let attached = value.get("attachment").filter(|_| value["type"] == "attachment")?;
    Some(join_strings(attached)).filter(|text| !text.is_empty())
}

/// All strings of a value, one per line.
pub(crate) fn join_strings(value: &Value) -> String {
    if let Value::String(text) = value {
        return text.clone();
    }
    let mut joined = String::new();
    for_each_string(value, &mut |text| {
        if !joined.is_empty() {
            joined.push('\n');
        }
        joined.push_str(text);
    });
    joined
}

/// What a recorded answer says: its texts and thoughts.
pub(crate) fn answer_text(output: &Value) -> String {
    let Some(answer) = parse_answer(output, None) else { return join_strings(output) };
    let texts = answer.content.iter().filter_map(|part| match part {
        ContentPart::Model(text) | ContentPart::Thought(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The steps at which calls began and ended, by the id of the call. A conversation that was forked contains calls of another
/// session.
#[derive(Default)]
pub(crate) struct CallSteps {
    known: HashMap<String, Option<(StepRow, Option<StepRow>)>>,
}

impl CallSteps {
    /// The start and the end of a call before the turn.
    pub(crate) fn find(
        &mut self,
        workspace: &Workspace,
        turn: &Turn,
        call: &str,
    ) -> Result<Option<(StepRow, Option<StepRow>)>, ProvenanceError> {
        if let Some(known) = self.known.get(call) {
            return Ok(known.clone());
        }
        let mut query = StepQuery {
            session: Some(turn.session.id),
            kinds: vec![StepKind::ToolStart, StepKind::ToolEnd],
            call: Some(call.to_owned()),
            before: Some(turn.before),
            limit: Some(4),
            ..StepQuery::default()
        };
        let mut rows = workspace.store().steps(workspace.record.id, &query)?;
        if rows.is_empty() {
            query.session = None;
            rows = workspace.store().steps(workspace.record.id, &query)?;
        }
        let of_kind = |kind: StepKind| rows.iter().find(|stored| stored.step.kind == kind).cloned();
        let (start, end) = (of_kind(StepKind::ToolStart), of_kind(StepKind::ToolEnd));
        let found = start.clone().or(end.clone()).map(|first| (first, end));
        self.known.insert(call.to_owned(), found.clone());
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_string_of_a_line_is_what_it_is_about() {
        let of = |line: &str| String::from_utf8_lossy(longest_string(line.as_bytes())).into_owned();
        assert_eq!(of(r#"{"id":"1","text":"say \"hello\" to all"}"#), r#"say \"hello\" to all"#);
        assert_eq!(of(r#"{"a":"ends in \\","b":"c"}"#), r"ends in \\");
        assert_eq!(of("no string"), "");
        assert_eq!(of("\""), "");
    }
}
