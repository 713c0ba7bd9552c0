//! Gathers the searchable texts of a step: its summary, input and output, what the model said, and the changed paths.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use stepback_llm_wire::recorded_call::parse_answer;
use stepback_llm_wire::semantics::ContentPart;
use stepback_model::conversation::ConversationMessage;
use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::{Annotation, StepKind};
use stepback_model::search::{TextField, Texts};
use stepback_model::state::WorkspaceState;
use stepback_store::Store;
use stepback_store::port::{StepQuery, StepRow};

use crate::diff;
use crate::read_cache::LastRead;

/// The maximum size of the texts of one step, in bytes. Of longer texts, the beginning and the end are kept.
const MAX_STEP_TEXT_BYTES: usize = 64 << 10;

/// How many messages are read from the end of a conversation of which nothing was indexed before.
const MAX_INDEXED_MESSAGES: usize = 200;

/// How many earlier steps of a session are checked for messages that are already indexed.
const MAX_EARLIER_STEPS: u64 = 8;

/// Gathers the texts of steps in the order of their commits.
pub(super) struct TextCollector<'a> {
    /// The store that holds the steps.
    pub store: &'a dyn Store,
    /// The cache through which their details are read.
    pub details: LastRead<'a>,
    /// The messages of each session that already belong to a step.
    pub indexed_messages: HashMap<SessionId, HashSet<Hash>>,
}

impl TextCollector<'_> {
    /// Returns the searchable texts of a step. Unreadable objects are skipped: one damaged object must not hide all others.
    pub fn collect_texts(&mut self, stored: &StepRow) -> Texts {
        let step = &stored.step;
        let mut texts = ClippedTexts { texts: Texts::new(), bytes_left: MAX_STEP_TEXT_BYTES };
        texts.insert(TextField::Summary, step.summary.clone());
        texts.insert(TextField::Id, step.meta.context.ids().flatten().collect::<Vec<_>>().join("\n"));
        // A request repeats the whole conversation; each message belongs to the step at which it was said.
        let hash = step.meta.detail.filter(|_| step.kind != StepKind::ModelStart);
        let detail = hash.and_then(|hash| stepback_model::json::load(&self.details, hash).ok());
        let detail = detail.unwrap_or_default();
        texts.insert(TextField::Error, flatten_json(detail.get("error")));
        if !stored.purged {
            texts.insert(TextField::Annotation, annotation_text(&stored.annotation));
            texts.insert(TextField::Path, self.changed_paths(stored).join("\n"));
        }
        texts.insert(TextField::Input, flatten_json(detail.get("message").or_else(|| detail.get("input"))));
        let answer = match step.kind {
            StepKind::ModelEnd => detail.get("output").and_then(|output| parse_answer(output, None)),
            _ => None,
        };
        match answer {
            Some(answer) => {
                let part = answer.content.iter().filter_map(|part| match part {
                    ContentPart::Model(text) | ContentPart::Thought(text) => Some(text.as_str()),
                    _ => None,
                });
                texts.insert(TextField::Message, part.collect::<Vec<_>>().join("\n"));
            }
            None => texts.insert(TextField::Output, flatten_json(detail.get("output"))),
        }
        if !texts.texts.contains_key(&TextField::Message) {
            texts.insert(TextField::Message, self.new_model_messages(stored).join("\n"));
        }
        texts.texts
    }

    /// Returns the paths that changed at a step. The first checkpoint has none: it recorded all files and changed none.
    fn changed_paths(&self, stored: &StepRow) -> Vec<String> {
        let step = &stored.step;
        let (Some(_), Some(parent)) = (stored.trigger, step.parent) else { return Vec::new() };
        let Some(state_before) = self.nearest_state_with_files(parent) else { return Vec::new() };
        let Ok(state_after) = WorkspaceState::load(self.store, step.state) else { return Vec::new() };
        let changes =
            diff::compare_visible_files(self.store, &state_before, &state_after).unwrap_or_default();
        let paths = changes.iter().flat_map(|change| change.from.iter().chain([&change.path]));
        paths.map(ToString::to_string).collect()
    }

    /// Returns the nearest state with files, from `step` on through its ancestors.
    fn nearest_state_with_files(&self, step: StepId) -> Option<WorkspaceState> {
        let mut next = Some(step);
        while let Some(id) = next {
            let stored = self.store.step(id).ok()??;
            if stored.purged {
                return None;
            }
            let state = WorkspaceState::load(self.store, stored.step.state).ok()?;
            if state.files.is_some() {
                return Some(state);
            }
            next = stored.step.parent;
        }
        None
    }

    /// Returns what the model said since the previous step, from the agent's own conversation.
    fn new_model_messages(&mut self, stored: &StepRow) -> Vec<String> {
        let step = &stored.step;
        // Steps of the user repeat the conversation of the session at work.
        if step.kind.is_own() && step.kind != StepKind::Reasoning {
            return Vec::new();
        }
        let Ok(Some(tip)) = WorkspaceState::load(self.store, step.state).map(|state| state.conversation)
        else {
            return Vec::new();
        };
        if !self.indexed_messages.contains_key(&step.session) {
            let heard = self.earlier_conversation_tips(stored);
            self.indexed_messages.insert(step.session, heard);
        }
        let heard = self.indexed_messages.entry(step.session).or_default();
        let mut messages = Vec::new();
        let mut next = Some(tip);
        while let Some(hash) =
            next.filter(|hash| messages.len() < MAX_INDEXED_MESSAGES && heard.insert(*hash))
        {
            let Ok(message) = ConversationMessage::load(self.store, hash) else { break };
            next = message.previous;
            messages.push(model_text(&message.text));
        }
        messages.reverse();
        messages.retain(|text| !text.is_empty());
        messages
    }

    fn earlier_conversation_tips(&self, stored: &StepRow) -> HashSet<Hash> {
        let step = &stored.step;
        let query = StepQuery {
            session: Some(step.session),
            before: Some(step.number),
            limit: Some(MAX_EARLIER_STEPS),
            ..StepQuery::default()
        };
        let workspace = self.store.session(step.session).ok().flatten().map(|session| session.workspace);
        let earlier = workspace.and_then(|workspace| self.store.steps(workspace, &query).ok());
        let tip = |stored: StepRow| WorkspaceState::load(self.store, stored.step.state).ok()?.conversation;
        earlier.unwrap_or_default().into_iter().filter_map(tip).collect()
    }
}

/// Texts limited to a total size; `left` is the number of bytes still free.
struct ClippedTexts {
    texts: Texts,
    bytes_left: usize,
}

impl ClippedTexts {
    fn insert(&mut self, field: TextField, text: String) {
        if text.is_empty() || self.bytes_left < 16 {
            return;
        }
        let text = clip_text(text, self.bytes_left);
        self.bytes_left -= text.len().min(self.bytes_left);
        self.texts.insert(field, text);
    }
}

/// Shortens a text to at most `max_bytes` bytes: three quarters from its beginning, the rest from its end.
fn clip_text(text: String, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text;
    }
    let (mut head, mut tail) = (max_bytes / 4 * 3, text.len() - max_bytes / 4 + 8);
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    format!("{}\n…\n{}", &text[..head], &text[tail..])
}

fn annotation_text(annotation: &Annotation) -> String {
    let parts = annotation.label.iter().chain(&annotation.note).chain(&annotation.tags);
    parts.map(String::as_str).collect::<Vec<_>>().join("\n")
}

/// Returns the strings and numbers in a JSON value, one per line.
fn flatten_json(value: Option<&Value>) -> String {
    fn add(value: &Value, out: &mut String) {
        match value {
            Value::String(text) => push_line(text, out),
            Value::Number(number) => push_line(&number.to_string(), out),
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

fn push_line(text: &str, out: &mut String) {
    if !out.is_empty() && !text.is_empty() {
        out.push('\n');
    }
    out.push_str(text);
}

/// Returns what the model said in a line of an agent's own record: its texts and thoughts. What the user said and what calls
/// returned belong to steps of their own. Every agent has its own format; this reads what they have in common.
fn model_text(line: &str) -> String {
    fn has_role_or_type(value: &Value, names: &[&str]) -> bool {
        let word = |name: &str| value.get(name).and_then(Value::as_str);
        [word("role"), word("type")].into_iter().flatten().any(|word| names.contains(&word))
    }
    fn add(value: &Value, out: &mut String) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| add(item, out)),
            Value::Object(fields) => {
                let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
                if has_role_or_type(value, &["user", "tool", "system", "developer"])
                    || kind.contains("tool")
                    || kind.contains("function")
                {
                    return;
                }
                for (name, field) in fields {
                    match (name.as_str(), field) {
                        ("text" | "thinking" | "content" | "reasoning" | "thought", Value::String(text)) => {
                            push_line(text, out);
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
            assert_eq!(model_text(line), said, "{line}");
        }
    }

    #[test]
    fn long_texts_keep_their_ends() {
        let text = format!("begin{}end", "ä".repeat(100_000));
        let short = clip_text(text, MAX_STEP_TEXT_BYTES);
        assert!(short.len() <= MAX_STEP_TEXT_BYTES && short.starts_with("begin") && short.ends_with("end"));
    }
}
