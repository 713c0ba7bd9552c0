//! The texts of a step: what it says, what went in and came out, what the model said, what was changed.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use stepback_exchange::semantics::ContentPart;
use stepback_model::conversation::Message;
use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::{Annotation, StepKind};
use stepback_model::search::{Field, Texts};
use stepback_model::state::State;
use stepback_store::Store;
use stepback_store::port::{Query, StoredCheckpoint};

use crate::diff;
use crate::read_cache::LastRead;
use crate::timeline::answer_of;

/// Bytes of the texts of one step. Of what is longer, the beginning and the end count.
const MOST: usize = 64 << 10;

/// Messages that are read back from the end of a conversation, if nothing of it was seen before.
const MOST_MESSAGES: usize = 200;

/// How many earlier steps of a session are asked for what was heard of its conversation.
const EARLIER: u64 = 8;

/// Gathers texts of steps in the order of their commits.
pub(super) struct Gatherer<'a> {
    /// Where steps come from.
    pub store: &'a dyn Store,
    /// Where their details are read.
    pub details: LastRead<'a>,
    /// The messages of each session that belong to a step already.
    pub heard: HashMap<SessionId, HashSet<Hash>>,
}

impl Gatherer<'_> {
    /// What can be found of a step. What cannot be read is left out: a damaged object must not hide all others.
    pub fn texts(&mut self, stored: &StoredCheckpoint) -> Texts {
        let step = &stored.checkpoint.step;
        let mut texts = Clipped { texts: Texts::new(), left: MOST };
        texts.put(Field::Summary, step.summary.clone());
        // A request repeats the whole conversation; what was said in it belongs to the steps at which it was said.
        let hash = step.facts.detail.filter(|_| step.kind != StepKind::ModelStart);
        let detail = hash.and_then(|hash| stepback_model::json::load(&self.details, hash).ok());
        let detail = detail.unwrap_or_default();
        texts.put(Field::Error, flat(detail.get("error")));
        if !stored.purged {
            texts.put(Field::Annotation, said_about(&stored.checkpoint.annotation));
            texts.put(Field::Path, self.changed(stored).join("\n"));
        }
        texts.put(Field::Input, flat(detail.get("input")));
        let answer = match step.kind {
            StepKind::ModelEnd => detail.get("output").and_then(|output| answer_of(output, None)),
            _ => None,
        };
        match answer {
            Some(answer) => {
                let said = answer.said.iter().filter_map(|said| match said {
                    ContentPart::Model(text) | ContentPart::Thought(text) => Some(text.as_str()),
                    _ => None,
                });
                texts.put(Field::Message, said.collect::<Vec<_>>().join("\n"));
            }
            None => texts.put(Field::Output, flat(detail.get("output"))),
        }
        if !texts.texts.contains_key(&Field::Message) {
            texts.put(Field::Message, self.messages(stored).join("\n"));
        }
        texts.texts
    }

    /// Paths of the files that changed at a step; the first checkpoint found everything and changed nothing.
    fn changed(&self, stored: &StoredCheckpoint) -> Vec<String> {
        let step = &stored.checkpoint.step;
        let (Some(_), Some(parent)) = (stored.checkpoint.trigger, step.parent) else { return Vec::new() };
        let Some(before) = self.files_at(parent) else { return Vec::new() };
        let Ok(after) = State::load(self.store, step.state) else { return Vec::new() };
        let changes = diff::visible(self.store, &before, &after).unwrap_or_default();
        let paths = changes.iter().flat_map(|change| change.from.iter().chain([&change.path]));
        paths.map(ToString::to_string).collect()
    }

    /// The nearest state with files, from a step back.
    fn files_at(&self, step: StepId) -> Option<State> {
        let mut next = Some(step);
        while let Some(id) = next {
            let stored = self.store.step(id).ok()??;
            if stored.purged {
                return None;
            }
            let state = State::load(self.store, stored.checkpoint.step.state).ok()?;
            if state.files.is_some() {
                return Some(state);
            }
            next = stored.checkpoint.step.parent;
        }
        None
    }

    /// What the model said since the step before, as the agent wrote it down.
    fn messages(&mut self, stored: &StoredCheckpoint) -> Vec<String> {
        let step = &stored.checkpoint.step;
        // Steps of the person repeat the conversation of the session at work.
        if step.kind.is_own() && step.kind != StepKind::Reasoning {
            return Vec::new();
        }
        let Ok(Some(tip)) = State::load(self.store, step.state).map(|state| state.conversation) else {
            return Vec::new();
        };
        if !self.heard.contains_key(&step.session) {
            let heard = self.heard_before(stored);
            self.heard.insert(step.session, heard);
        }
        let heard = self.heard.entry(step.session).or_default();
        let mut said = Vec::new();
        let mut next = Some(tip);
        while let Some(hash) = next.filter(|hash| said.len() < MOST_MESSAGES && heard.insert(*hash)) {
            let Ok(message) = Message::load(self.store, hash) else { break };
            next = message.previous;
            said.push(spoken(&message.text));
        }
        said.reverse();
        said.retain(|text| !text.is_empty());
        said
    }

    fn heard_before(&self, stored: &StoredCheckpoint) -> HashSet<Hash> {
        let step = &stored.checkpoint.step;
        let query = Query {
            session: Some(step.session),
            before: Some(step.number),
            limit: Some(EARLIER),
            ..Query::default()
        };
        let workspace = self.store.session(step.session).ok().flatten().map(|session| session.workspace);
        let earlier = workspace.and_then(|workspace| self.store.steps(workspace, &query).ok());
        let tip = |stored: StoredCheckpoint| {
            State::load(self.store, stored.checkpoint.step.state).ok()?.conversation
        };
        earlier.unwrap_or_default().into_iter().filter_map(tip).collect()
    }
}

/// Texts that have room for so many bytes more.
struct Clipped {
    texts: Texts,
    left: usize,
}

impl Clipped {
    fn put(&mut self, field: Field, text: String) {
        if text.is_empty() || self.left < 16 {
            return;
        }
        let text = clip(text, self.left);
        self.left -= text.len().min(self.left);
        self.texts.insert(field, text);
    }
}

/// A text of at most `most` bytes: three quarters from its beginning, the rest from its end.
fn clip(text: String, most: usize) -> String {
    if text.len() <= most {
        return text;
    }
    let (mut head, mut tail) = (most / 4 * 3, text.len() - most / 4 + 8);
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    format!("{}\n…\n{}", &text[..head], &text[tail..])
}

fn said_about(annotation: &Annotation) -> String {
    let parts = annotation.label.iter().chain(&annotation.note).chain(&annotation.tags);
    parts.map(String::as_str).collect::<Vec<_>>().join("\n")
}

/// The texts and numbers in a JSON value, a line for each.
fn flat(value: Option<&Value>) -> String {
    fn add(value: &Value, out: &mut String) {
        match value {
            Value::String(text) => push(text, out),
            Value::Number(number) => push(&number.to_string(), out),
            Value::Array(items) => items.iter().for_each(|item| add(item, out)),
            Value::Object(fields) => fields.values().for_each(|field| add(field, out)),
            Value::Null | Value::Bool(_) => {}
        }
    }
    let mut out = String::new();
    if let Some(value) = value {
        add(value, &mut out);
    }
    out
}

fn push(text: &str, out: &mut String) {
    if !out.is_empty() && !text.is_empty() {
        out.push('\n');
    }
    out.push_str(text);
}

/// What a model says in a line of an agent's own record: its texts and thoughts. What the person said and what calls brought
/// belongs to steps of their own. Every agent has its own words; these are those they share.
fn spoken(line: &str) -> String {
    fn is(value: &Value, names: &[&str]) -> bool {
        let word = |name: &str| value.get(name).and_then(Value::as_str);
        [word("role"), word("type")].into_iter().flatten().any(|word| names.contains(&word))
    }
    fn add(value: &Value, out: &mut String) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| add(item, out)),
            Value::Object(fields) => {
                let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
                if is(value, &["user", "tool", "system", "developer"])
                    || kind.contains("tool")
                    || kind.contains("function")
                {
                    return;
                }
                for (name, field) in fields {
                    match (name.as_str(), field) {
                        ("text" | "thinking" | "content" | "reasoning" | "thought", Value::String(text)) => {
                            push(text, out);
                        }
                        ("toolUseResult" | "toolCalls" | "tool_calls", _) => {}
                        _ => add(field, out),
                    }
                }
            }
            _ => {}
        }
    }
    let mut out = String::new();
    if let Ok(value) = serde_json::from_str::<Value>(line) {
        add(&value, &mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_model_says_is_spoken() {
        for (line, said) in [
            (
                r#"{"type":"assistant","message":{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"Done."},{"type":"tool_use","input":{"content":"x"}}]}}"#,
                "hm\nDone.",
            ),
            (r#"{"type":"user","message":{"role":"user","content":"fix it"}}"#, ""),
            (
                r#"{"type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Yes"}]}}"#,
                "Yes",
            ),
            (
                r#"{"type":"response_item","payload":{"type":"function_call_output","output":"x","content":"y"}}"#,
                "",
            ),
            (r#"{"type":"gemini","content":"Hello","toolCalls":[{"content":"x"}]}"#, "Hello"),
            ("no json", ""),
        ] {
            assert_eq!(spoken(line), said, "{line}");
        }
    }

    #[test]
    fn long_texts_keep_their_ends() {
        let text = format!("begin{}end", "ä".repeat(100_000));
        let short = clip(text, MOST);
        assert!(short.len() <= MOST && short.starts_with("begin") && short.ends_with("end"));
    }
}
