//! What the conversation that an agent keeps adds to the steps: texts and thoughts of the model, and what no hook reported.
//!
//! An answer in the conversation is the one of a model call step if both request the same call, or say the same. It stands
//! before the first call that it requests; without one, where its time says, and never before the message it follows.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::Value;
use stepback_agents::transcript::{
    MessagePart, MessageRole, MessageUsage, TranscriptMessage, parse_agent_messages,
};
use stepback_engine::Workspace;
use stepback_llm_wire::semantics::TokenUsage;
use stepback_model::conversation;
use stepback_model::record::{Session, StepKind};

use super::from_steps::{plain_text, push_part};
use super::{
    AnswerPart, CallEnding, ExportedAnswer, ItemContent, RecordedItem, SessionEvent, ToolCallRecord,
};
use crate::error::ExportError;
use crate::redactor::Redactor;

/// How many answers with the same text are considered.
const MAX_CANDIDATES: usize = 8;

/// Adds the messages of a session to the items of its steps.
pub fn add(
    workspace: &Workspace,
    session: &Session,
    redactor: Redactor<'_>,
    items: &mut Vec<RecordedItem>,
) -> Result<(), ExportError> {
    let texts = conversation::texts(workspace.store(), session.info.tip)?;
    let messages = parse_agent_messages(&session.agent, &texts);
    let mut merger = Merger::new(items, redactor);
    for message in &messages {
        merger.add_message(message);
    }
    let Merger { inserted, answer_texts, .. } = merger;
    drop_repeated_texts(items, &answer_texts);
    *items = interleave(std::mem::take(items), inserted);
    Ok(())
}

struct Merger<'a> {
    items: &'a mut Vec<RecordedItem>,
    redactor: Redactor<'a>,
    /// The item of each call.
    calls: HashMap<String, usize>,
    /// Answers of steps that no message was matched with, by the calls that they request and by what they say.
    answers_by_call: HashMap<String, usize>,
    answers_by_text: HashMap<String, VecDeque<usize>>,
    /// Whether an item was matched with a message.
    is_matched: Vec<bool>,
    /// The prompts of steps that no message was matched with.
    prompts: HashMap<String, usize>,
    /// Whether steps have the usage of model calls.
    has_usage: bool,
    /// For each item, the latest time up to it, in microseconds.
    latest: Vec<i64>,
    /// The place of the message before.
    place: usize,
    /// New items, each with the index of the item that it stands before.
    inserted: Vec<(usize, RecordedItem)>,
    /// The places in `inserted` of calls that have not ended.
    inserted_calls: HashMap<String, usize>,
    /// What events say, by their kind.
    event_texts: HashSet<(StepKind, String)>,
    /// What the model said.
    answer_texts: HashSet<String>,
}

impl<'a> Merger<'a> {
    fn new(items: &'a mut Vec<RecordedItem>, redactor: Redactor<'a>) -> Self {
        let (mut calls, mut answers_by_call) = (HashMap::new(), HashMap::new());
        let mut answers_by_text: HashMap<String, VecDeque<usize>> = HashMap::new();
        let mut event_texts = HashSet::new();
        let (mut prompts, mut latest) = (HashMap::new(), Vec::with_capacity(items.len()));
        let (mut has_usage, mut answer_texts) = (false, HashSet::new());
        let mut now = i64::MIN;
        for (index, item) in items.iter().enumerate() {
            now = now.max(item.at.map_or(i64::MIN, |at| at.as_micros()));
            latest.push(now);
            match &item.content {
                ItemContent::Call(call) => {
                    if let Some(id) = &call.id {
                        calls.entry(id.clone()).or_insert(index);
                    }
                }
                ItemContent::Answer(answer) => {
                    has_usage |= answer.usage.is_some();
                    for call in &answer.calls {
                        answers_by_call.entry(call.clone()).or_insert(index);
                    }
                    let text = normalize(&answer.text());
                    if !text.is_empty() {
                        answer_texts.insert(text.clone());
                    }
                    answers_by_text.entry(text).or_default().push_back(index);
                }
                ItemContent::Prompt(text) => *prompts.entry(normalize(text)).or_insert(0) += 1,
                ItemContent::Event(event) => {
                    event_texts.extend(event.text.as_deref().map(|text| (event.kind, normalize(text))));
                    let summary = event.summary.strip_prefix("error: ").unwrap_or(&event.summary);
                    event_texts.insert((event.kind, normalize(summary)));
                }
            }
        }
        let is_matched = vec![false; items.len()];
        Self {
            items,
            redactor,
            calls,
            answers_by_call,
            answers_by_text,
            is_matched,
            event_texts,
            prompts,
            has_usage,
            latest,
            place: 0,
            inserted: Vec::new(),
            inserted_calls: HashMap::new(),
            answer_texts,
        }
    }

    fn add_message(&mut self, message: &TranscriptMessage) {
        match message.role {
            MessageRole::Assistant => self.add_answer(message),
            MessageRole::User if message.worker.is_none() => self.add_prompt(message),
            _ => self.add_notices(message),
        }
    }

    fn add_prompt(&mut self, message: &TranscriptMessage) {
        let text = self.redactor.text(&message.text());
        if text.trim().is_empty() {
            return self.add_notices(message);
        }
        if let Some(count) = self.prompts.get_mut(&normalize(&text)).filter(|count| **count > 0) {
            *count -= 1;
            return;
        }
        let place = self.place_of(message);
        self.insert(place, message, ItemContent::Prompt(text));
    }

    fn add_answer(&mut self, message: &TranscriptMessage) {
        let answer = self.read_answer(message);
        let text = normalize(&answer.text());
        if let Some(index) = self.matching_step(message, &answer, &text) {
            self.place = self.place.max(index);
            if let ItemContent::Answer(known) = &mut self.items[index].content {
                complete(known, answer);
            }
        } else if !answer.parts.is_empty() || answer.usage.is_some() {
            let usage = answer.usage.filter(|_| !self.has_usage);
            let place = self.place_of(message);
            self.insert(place, message, ItemContent::Answer(ExportedAnswer { usage, ..answer }));
        }
        if !text.is_empty() {
            self.answer_texts.insert(text);
        }
        self.add_unreported_calls(message);
        self.add_notices(message);
    }

    fn read_answer(&self, message: &TranscriptMessage) -> ExportedAnswer {
        let mut answer = ExportedAnswer {
            model: message.model.as_deref().map(|model| self.redactor.text(model)),
            usage: message.usage.filter(|usage| *usage != MessageUsage::default()).map(token_usage),
            ..ExportedAnswer::default()
        };
        for part in &message.parts {
            match part {
                MessagePart::Text { text } => {
                    push_part(&mut answer.parts, AnswerPart::Text(self.redactor.text(text)));
                }
                MessagePart::Thinking { text } => {
                    push_part(&mut answer.parts, AnswerPart::Thought(self.redactor.text(text)));
                }
                MessagePart::ToolCall { id, .. } => answer.calls.push(id.clone()),
                _ => {}
            }
        }
        answer
    }

    /// The answer of a step that this message is, if there is one.
    fn matching_step(
        &mut self,
        message: &TranscriptMessage,
        answer: &ExportedAnswer,
        text: &str,
    ) -> Option<usize> {
        let by_call = answer.calls.iter().find_map(|call| self.answers_by_call.get(call).copied());
        let by_call = by_call.filter(|index| !self.is_matched[*index]);
        let index = by_call.or_else(|| {
            let places = self.answers_by_text.get_mut(text)?;
            while places.front().is_some_and(|index| self.is_matched[*index]) {
                places.pop_front();
            }
            // Answers without a text are the same only if they are of the same time.
            let is_same = |index: &&usize| {
                let item = &self.items[**index];
                !self.is_matched[**index]
                    && item.worker == message.worker
                    && (!text.is_empty() || (item.at.is_some() && item.at == message.at))
            };
            places.iter().take(MAX_CANDIDATES).find(is_same).copied()
        })?;
        self.is_matched[index] = true;
        Some(index)
    }

    /// Adds the calls of a message that no step tells of.
    fn add_unreported_calls(&mut self, message: &TranscriptMessage) {
        for part in &message.parts {
            let MessagePart::ToolCall { id, name, input, at } = part else { continue };
            if let Some(index) = self.calls.get(id.as_str()) {
                self.place = self.place.max((*index + 1).min(self.items.len()));
                continue;
            }
            let call = ToolCallRecord {
                id: Some(id.clone()),
                tool: self.redactor.text(name),
                summary: self.redactor.text(&stepback_agents::import::describe_call(name, input)),
                input: self.redactor.value(input.clone()),
                ..ToolCallRecord::default()
            };
            let place = self.place_of(message);
            self.insert(place, message, ItemContent::Call(Box::new(call)));
            if let Some((_, item)) = self.inserted.last_mut() {
                item.at = at.or(item.at);
            }
            self.inserted_calls.insert(id.clone(), self.inserted.len() - 1);
        }
    }

    /// Adds compactions and failures, and the results of calls that no step tells of.
    fn add_notices(&mut self, message: &TranscriptMessage) {
        for part in &message.parts {
            let (kind, summary, text) = match part {
                MessagePart::Compaction { text } => {
                    (StepKind::StateChange, "the conversation was compacted", text)
                }
                MessagePart::Failure { text } => (StepKind::Error, "the model did not answer", text),
                MessagePart::ToolResult { id, output, failed, at } => {
                    self.end_unreported_call(id, output, *failed, at.or(message.at));
                    continue;
                }
                _ => continue,
            };
            let text = self.redactor.text(text);
            let is_error = kind == StepKind::Error;
            // A hook may have reported it too.
            if !text.trim().is_empty() && self.event_texts.contains(&(kind, normalize(&text))) {
                continue;
            }
            let text = Some(text).filter(|text| !text.trim().is_empty());
            let event = SessionEvent { kind, summary: summary.to_owned(), text, is_error };
            let place = self.place_of(message);
            self.insert(place, message, ItemContent::Event(event));
        }
    }

    fn end_unreported_call(
        &mut self,
        id: &str,
        output: &Value,
        failed: bool,
        at: Option<stepback_model::time::Timestamp>,
    ) {
        let Some(index) = self.inserted_calls.remove(id) else { return };
        let Some((_, item)) = self.inserted.get_mut(index) else { return };
        let began = item.at;
        if let ItemContent::Call(call) = &mut item.content {
            call.status = if failed { CallEnding::Failed } else { CallEnding::Done };
            call.output = self.redactor.value(output.clone());
            call.error = failed.then(|| plain_text(&call.output)).flatten();
            call.ended_at = at;
            let took = at.zip(began).map(|(end, start)| end.as_micros().saturating_sub(start.as_micros()));
            call.duration = took.and_then(|took| u64::try_from(took).ok());
        }
    }

    /// The index of the item that a message stands before.
    fn place_of(&self, message: &TranscriptMessage) -> usize {
        let by_call = message.call_ids().filter_map(|id| self.calls.get(id)).min();
        let by_time = || {
            let at = message.at?.as_micros();
            Some(self.latest.partition_point(|time| *time < at))
        };
        let place = by_call.copied().or_else(by_time).unwrap_or(self.place);
        place.max(self.place)
    }

    fn insert(&mut self, place: usize, message: &TranscriptMessage, content: ItemContent) {
        self.place = place;
        let iteration = self.items.get(place).map_or(0, |item| item.iteration);
        let worker = message.worker.clone();
        self.inserted
            .push((place, RecordedItem { iteration, worker, ..RecordedItem::new(content, message.at) }));
    }
}

/// Adds what the conversation knows of an answer and the step does not.
fn complete(known: &mut ExportedAnswer, answer: ExportedAnswer) {
    let has_thoughts =
        |answer: &ExportedAnswer| answer.parts.iter().any(|part| matches!(part, AnswerPart::Thought(_)));
    if known.parts.is_empty() || (has_thoughts(&answer) && !has_thoughts(known)) {
        known.parts = answer.parts;
    }
    known.usage = known.usage.or(answer.usage);
    known.model = known.model.take().or(answer.model);
    if known.calls.is_empty() {
        known.calls = answer.calls;
    }
}

/// Removes the texts of events that repeat what the model said: the hook at the end of a turn does.
fn drop_repeated_texts(items: &mut [RecordedItem], answers: &HashSet<String>) {
    for item in items {
        if let ItemContent::Event(event) = &mut item.content
            && event.text.as_ref().is_some_and(|text| answers.contains(&normalize(text)))
        {
            event.text = None;
            // The summary is the beginning of it.
            if event.summary.starts_with("done: ") {
                event.summary = "done".to_owned();
            }
        }
    }
}

fn interleave(items: Vec<RecordedItem>, inserted: Vec<(usize, RecordedItem)>) -> Vec<RecordedItem> {
    let mut out = Vec::with_capacity(items.len() + inserted.len());
    let mut inserted = inserted.into_iter().peekable();
    for (index, item) in items.into_iter().enumerate() {
        while let Some((_, new)) = inserted.next_if(|(place, _)| *place <= index) {
            out.push(new);
        }
        out.push(item);
    }
    out.extend(inserted.map(|(_, new)| new));
    out
}

/// A text without what differs between two records of it.
fn normalize(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn token_usage(usage: MessageUsage) -> TokenUsage {
    let MessageUsage { input, output, cache_read, cache_write, reasoning } = usage;
    TokenUsage { input, output, cache_read, cache_write, reasoning }
}
