//! The words of a change: what a call added to files or passed to its tool, and what was there before.

use serde_json::Value;
use stepback_engine::Workspace;
use stepback_engine::diff::compare_visible_files;
use stepback_model::change::PathChange;
use stepback_model::path::RelPath;
use stepback_model::record::StepRow;
use stepback_model::tree::TreeNode;

use super::context::StoreObjects;
use crate::error::ProvenanceError;

/// The most files of one checkpoint whose lines are read.
const MAX_FILES: usize = 50;
/// The most bytes of added or removed text that are read.
const MAX_TEXT_BYTES: usize = 2 << 20;
/// The fields of a call's input that hold what was there before.
const OLD_FIELDS: [&str; 6] = ["old_string", "oldString", "old_str", "old_text", "oldText", "old"];
/// The fields of a call's input that say where and how, not what.
const PLACE_FIELDS: [&str; 14] = [
    "file_path",
    "filePath",
    "notebook_path",
    "absolute_path",
    "path",
    "file",
    "cwd",
    "workdir",
    "description",
    "dir_path",
    "timeout",
    "run_in_background",
    "cell_id",
    "subagent_type",
];

/// What was added, and what stood around it or in its place.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ChangedText {
    /// The added text.
    pub new: String,
    /// The text that was there before.
    pub old: String,
}

impl ChangedText {
    /// Adds what a call passes to its tool.
    pub(crate) fn add_input(&mut self, input: &Value) {
        match input {
            Value::String(text) => self.add_text(text),
            Value::Array(items) => items.iter().for_each(|item| self.add_input(item)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    if PLACE_FIELDS.contains(&name.as_str()) {
                        continue;
                    }
                    match value {
                        Value::String(text) if OLD_FIELDS.contains(&name.as_str()) => {
                            push_line(&mut self.old, text);
                        }
                        value => self.add_input(value),
                    }
                }
            }
            Value::Number(number) => push_line(&mut self.new, &number.to_string()),
            Value::Bool(_) | Value::Null => {}
        }
    }

    /// Adds a text: of a patch only what it adds.
    fn add_text(&mut self, text: &str) {
        let is_patch = text.contains("*** Begin Patch") || (text.contains("\n@@ ") && text.contains("\n+"));
        match is_patch {
            true => self.add_diff(text),
            false => push_line(&mut self.new, text),
        }
    }

    /// Adds the lines of a diff.
    pub(crate) fn add_diff(&mut self, diff: &str) {
        for line in diff.lines() {
            if ["+++ ", "--- ", "@@", "***", "\\ "].iter().any(|mark| line.starts_with(mark)) {
                continue;
            }
            match line.as_bytes().first() {
                Some(b'+') => push_line(&mut self.new, &line[1..]),
                Some(b'-' | b' ') => push_line(&mut self.old, &line[1..]),
                _ => {}
            }
        }
    }

    /// Adds what a change of a file added and removed.
    pub(crate) fn add_change(
        &mut self,
        workspace: &Workspace,
        change: &PathChange,
    ) -> Result<(), ProvenanceError> {
        if let Some(diff) = workspace.unified_diff(change)? {
            self.add_diff(&diff);
        }
        Ok(())
    }
}

fn push_line(text: &mut String, line: &str) {
    let room = MAX_TEXT_BYTES.saturating_sub(text.len());
    text.push_str(&line[..line.floor_char_boundary(room)]);
    text.push('\n');
}

/// What changed at a checkpoint, compared with the one that it follows; `None` if one of the two was freed.
pub(crate) fn changes_at(
    workspace: &Workspace,
    checkpoint: &StepRow,
) -> Result<Option<Vec<PathChange>>, ProvenanceError> {
    let parent = match checkpoint.step.parent {
        Some(parent) if checkpoint.is_checkpoint() => workspace.store().step(parent)?,
        _ => return Ok(Some(Vec::new())),
    };
    let Some(parent) = parent else { return Ok(None) };
    let before = workspace.nearest_checkpoint(&parent)?;
    if checkpoint.purged || before.purged {
        return Ok(None);
    }
    let (before, after) = (workspace.load_state(&before)?, workspace.load_state(checkpoint)?);
    let mut changes = compare_visible_files(&StoreObjects(workspace.store()), &before, &after)?;
    changes.retain(|change| !is_directory(change));
    Ok(Some(changes))
}

fn is_directory(change: &PathChange) -> bool {
    let is_dir = |node: &Option<TreeNode>| matches!(node, None | Some(TreeNode::Dir { .. }));
    is_dir(&change.before) && is_dir(&change.after)
}

/// Those of some changes whose lines are read.
pub(crate) fn readable(changes: &[PathChange]) -> impl Iterator<Item = &PathChange> {
    changes.iter().take(MAX_FILES)
}

/// The change of one path at a checkpoint.
pub(crate) fn change_of_path(
    workspace: &Workspace,
    checkpoint: &StepRow,
    path: &RelPath,
) -> Result<Option<PathChange>, ProvenanceError> {
    let changes = changes_at(workspace, checkpoint)?.unwrap_or_default();
    Ok(changes.into_iter().find(|change| change.path == *path))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_words_of_a_call_are_those_that_it_adds() {
        let text = |input: Value| {
            let mut text = ChangedText::default();
            text.add_input(&input);
            (text.new, text.old)
        };
        let edit = json!({ "file_path": "/w/a", "old_string": "a = 1", "new_string": "a = 2" });
        assert_eq!(text(edit), ("a = 2\n".into(), "a = 1\n".into()));
        let patch = "*** Begin Patch\n*** Update File: a\n@@ fn x\n old\n-gone\n+new\n*** End Patch";
        assert_eq!(text(json!({ "input": patch })), ("new\n".into(), "old\ngone\n".into()));
        assert_eq!(
            text(json!({ "command": "make -j8", "timeout": 5 })),
            ("make -j8\n".into(), String::new())
        );
        assert_eq!(text(json!({ "port": 8472, "deep": [{ "content": "x" }] })).0.lines().count(), 2);
        assert_eq!(text(Value::Null), (String::new(), String::new()));
    }
}
