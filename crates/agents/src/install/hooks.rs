//! The hook settings that Claude Code, Codex and Gemini CLI share: `{"hooks": {EVENT: [{"hooks": [HANDLER, …]}, …]}}`.
//!
//! stepback's handler is always a group of its own at the end of an event's list, so no other group changes its index (Codex
//! stores the trust of a hook under it). A handler is recognised as stepback's by its command, not by its index, because
//! users move entries.

use std::path::Path;

use super::jsonc::{JsoncDocument, PathStep, Position, RemainingContent, SyntaxError};
use super::parse::SpannedNode;
use super::value::Value;
use crate::Agent;

/// An event name with the handler to install for it.
pub(super) type EventHandler = (&'static str, Value);

/// How many handlers were changed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct HandlerCounts {
    pub added: usize,
    pub updated: usize,
    pub removed: usize,
}

/// Why hooks cannot be added to a document.
#[derive(Debug, thiserror::Error)]
pub(super) enum HookConflict {
    #[error("{what} at {position}")]
    Shape { what: String, position: Position },
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
}

/// Recognises stepback's handlers of one agent.
#[derive(Clone, Copy)]
pub(super) struct OwnHandlers<'a> {
    pub agent: Agent,
    pub binary: &'a Path,
}

impl OwnHandlers<'_> {
    /// Whether `handler` runs `stepback hook AGENT`, with any path of stepback, in exec form or through a shell.
    pub fn matches(self, handler: &SpannedNode) -> bool {
        self.command_words(handler).is_some()
    }

    /// Returns the words of the command of `handler` if it runs `stepback hook AGENT`: the program first.
    pub fn command_words(self, handler: &SpannedNode) -> Option<Vec<String>> {
        let command = handler.member("command").and_then(SpannedNode::text)?;
        let words = match handler.member("args") {
            Some(args) => {
                let args = args.elements().unwrap_or_default().iter();
                let mut words = vec![command.to_owned()];
                words.extend(args.map(|word| word.text().unwrap_or_default().to_owned()));
                words
            }
            None => split_shell_words(command)?,
        };
        let [program, hook, agent, ..] = words.as_slice() else { return None };
        let program = Path::new(program).file_stem();
        let is_own = hook == "hook"
            && agent == self.agent.name()
            && program.is_some_and(|name| name == "stepback" || Some(name) == self.binary.file_stem());
        is_own.then_some(words)
    }

    /// Returns where stepback's handlers are: event, index of the group, index in the group.
    pub fn find_handlers(self, document: &JsoncDocument) -> Vec<(String, usize, usize)> {
        let events = document.root().member("hooks").and_then(SpannedNode::members).unwrap_or_default();
        let mut found = Vec::new();
        for event in events {
            for (group, node) in event.value.elements().unwrap_or_default().iter().enumerate() {
                let handlers = node.member("hooks").and_then(SpannedNode::elements).unwrap_or_default();
                let ours = handlers.iter().enumerate().filter(|(_, handler)| self.matches(handler));
                found.extend(ours.map(|(handler, _)| (event.name.clone(), group, handler)));
            }
        }
        found
    }
}

/// Returns the group that contains `handler`.
pub(super) fn build_group(handler: &Value) -> Value {
    Value::Object(vec![("hooks", Value::Array(vec![handler.clone()]))])
}

/// Returns all of `wanted` as the value of `hooks`.
pub(super) fn build_hooks_object(wanted: &[EventHandler]) -> Value {
    Value::Object(
        wanted.iter().map(|(event, handler)| (*event, Value::Array(vec![build_group(handler)]))).collect(),
    )
}

/// Makes stepback's handlers exactly `wanted`: adds missing ones, updates old ones, removes the others.
pub(super) fn install(
    document: &mut JsoncDocument,
    wanted: &[EventHandler],
    ours: OwnHandlers<'_>,
) -> Result<HandlerCounts, HookConflict> {
    let mut counts = HandlerCounts::default();
    if document.root().members().is_none() {
        return Err(shape_conflict(document, document.root(), "the settings are not an object"));
    }
    let Some(hooks) = document.root().member("hooks") else {
        document.insert_member(&[], "hooks", &build_hooks_object(wanted))?;
        return Ok(HandlerCounts { added: wanted.len(), ..counts });
    };
    if hooks.members().is_none() {
        return Err(shape_conflict(document, hooks, "\"hooks\" is not an object"));
    }
    for (event, handler) in wanted {
        let path = [PathStep::from("hooks"), PathStep::from(*event)];
        let Some(node) = document.get(&path) else {
            let value = Value::Array(vec![build_group(handler)]);
            document.insert_member(&path[..1], event, &value)?;
            counts.added += 1;
            continue;
        };
        if node.elements().is_none() {
            return Err(shape_conflict(document, node, &format!("\"{event}\" is not a list")));
        }
        let there = ours.find_handlers(document).into_iter().find(|(found, ..)| found == event);
        let Some((_, group_at, at)) = there else {
            document.append(&path, &build_group(handler))?;
            counts.added += 1;
            continue;
        };
        let path = handler_path(event, group_at, at);
        if document.get(&path).is_some_and(|node| !handler.matches_node(node)) {
            document.replace(&path, handler)?;
            counts.updated += 1;
        }
    }
    let mut kept: Vec<&str> = Vec::new();
    let mut surplus = Vec::new();
    for place in ours.find_handlers(document) {
        match wanted.iter().find(|(event, _)| *event == place.0) {
            Some((event, _)) if !kept.contains(event) => kept.push(event),
            _ => surplus.push(place),
        }
    }
    for (event, group, handler) in surplus.iter().rev() {
        remove_handler(document, event, *group, *handler)?;
        counts.removed += 1;
    }
    Ok(counts)
}

/// Removes all of stepback's handlers. The second value says whether the rest is empty and looks like a document that
/// stepback made.
pub(super) fn uninstall(
    document: &mut JsoncDocument,
    ours: OwnHandlers<'_>,
) -> Result<(HandlerCounts, bool), SyntaxError> {
    let mut counts = HandlerCounts::default();
    let mut rest = RemainingContent::Entries;
    for (event, group, handler) in ours.find_handlers(document).iter().rev() {
        rest = remove_handler(document, event, *group, *handler)?;
        counts.removed += 1;
    }
    Ok((counts, rest == RemainingContent::EmptyAndOurs))
}

/// Removes one handler, and each container around it that was made for it. Returns what is left of the root.
fn remove_handler(
    document: &mut JsoncDocument,
    event: &str,
    group: usize,
    handler: usize,
) -> Result<RemainingContent, SyntaxError> {
    let path = handler_path(event, group, handler);
    let alone =
        document.get(&path[..4]).and_then(SpannedNode::elements).is_none_or(|handlers| handlers.len() == 1);
    if !alone {
        document.remove(&path)?;
        return Ok(RemainingContent::Entries);
    }
    for length in [3, 2, 1] {
        if document.remove(&path[..length])? != RemainingContent::EmptyAndOurs {
            return Ok(RemainingContent::Entries);
        }
    }
    Ok(RemainingContent::EmptyAndOurs)
}

fn handler_path(event: &str, group: usize, handler: usize) -> [PathStep; 5] {
    ["hooks".into(), event.into(), group.into(), "hooks".into(), handler.into()]
}

fn shape_conflict(document: &JsoncDocument, node: &SpannedNode, what: &str) -> HookConflict {
    HookConflict::Shape { what: what.to_owned(), position: document.position(node) }
}

/// Splits a simple shell command into words. `None` if it is more than a simple command.
fn split_shell_words(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = command.chars();
    while let Some(c) = characters.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '\'' => break,
                        c => word.push(c),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '"' => break,
                        '\\' => word.push(characters.next()?),
                        c => word.push(c),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(characters.next()?),
            ';' | '|' | '&' | '<' | '>' | '(' | ')' | '`' | '\n' => return None,
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use stepback_model::shell::quote_word;

    use super::*;

    #[test]
    fn a_path_with_blanks_and_quotes_survives_the_shell() {
        for path in ["/usr/bin/stepback", "/a b/stepback", "/it's/stepback", "/$HOME/stepback"] {
            let words = split_shell_words(&format!("{} hook codex", quote_word(path)));
            assert_eq!(words, Some(vec![path.to_owned(), "hook".to_owned(), "codex".to_owned()]));
        }
    }

    #[test]
    fn a_pipeline_is_not_ours() {
        assert_eq!(split_shell_words("stepback hook codex | tee log"), None);
    }
}
