//! The files that a checkpoint found changed, with their changed lines, redacted.
//!
//! Both versions are redacted before they are compared: in a difference, every line begins with a sign, and what spans several
//! lines, such as a private key, would not be found.

use std::collections::HashMap;

use stepback_engine::{Workspace, diff};
use stepback_model::change::{ChangeKind, PathChange};
use stepback_model::hash::Hash;
use stepback_model::ids::StepId;
use stepback_model::object::ObjectError;
use stepback_model::record::StepRow;
use stepback_model::state::WorkspaceState;
use stepback_model::tree::{Content, TreeNode};

use crate::error::ExportError;
use crate::line_diff::{self, DiffLine};
use crate::redactor::Redactor;

/// The largest file whose lines are compared, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The most files of one checkpoint whose lines are compared; the others are listed.
const MAX_COMPARED_FILES: usize = 50;

/// A file that changed.
#[derive(Clone, PartialEq, Debug)]
pub struct FileChange {
    /// The path, redacted, for display.
    pub path: String,
    /// The earlier path of a renamed file.
    pub from: Option<String>,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The changed lines.
    pub lines: ChangedLines,
}

/// The changed lines of a file.
#[derive(Clone, PartialEq, Debug)]
pub enum ChangedLines {
    /// These.
    Text(Vec<DiffLine>),
    /// They are not shown, for this reason.
    NotShown(&'static str),
}

/// Reads the changes of a session's checkpoints, one after the other.
pub struct ChangeReader<'w> {
    workspace: &'w Workspace,
    redactor: Redactor<'w>,
    /// The files of each step: its own, or those of its parent.
    files: HashMap<StepId, Option<Hash>>,
}

impl<'w> ChangeReader<'w> {
    /// Starts before the first step.
    pub fn new(workspace: &'w Workspace, redactor: Redactor<'w>) -> Self {
        Self { workspace, redactor, files: HashMap::new() }
    }

    /// Returns what a checkpoint found changed since the step that it grew from. Empty for a light step, and where either of
    /// the two has no files or lost them.
    pub fn read(&mut self, row: &StepRow) -> Result<Vec<FileChange>, ExportError> {
        let before = match row.step.parent {
            Some(parent) => self.files_of(parent)?,
            None => None,
        };
        let own = match row.purged {
            true => None,
            false => self.load_files(row)?,
        };
        self.files.insert(row.step.id, if row.purged { None } else { own.or(before) });
        let (Some(_), Some(before), Some(after)) = (row.trigger, before, own) else { return Ok(Vec::new()) };
        if before == after {
            return Ok(Vec::new());
        }
        let [before, after] =
            [before, after].map(|files| WorkspaceState { files: Some(files), ..WorkspaceState::default() });
        let changes = match diff::compare_visible_files(self.workspace.store(), &before, &after) {
            Ok(changes) => changes,
            // A prune freed one of them.
            Err(ObjectError::Missing { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        changes.iter().enumerate().map(|(index, change)| self.describe(index, change)).collect()
    }

    /// The files of a step that may belong to another session.
    fn files_of(&mut self, id: StepId) -> Result<Option<Hash>, ExportError> {
        if let Some(files) = self.files.get(&id) {
            return Ok(*files);
        }
        let mut passed = Vec::new();
        let mut next = Some(id);
        let mut found = None;
        while let Some(step) = next {
            if let Some(files) = self.files.get(&step) {
                found = *files;
                break;
            }
            let Some(row) = self.workspace.store().step(step)?.filter(|row| !row.purged) else { break };
            passed.push(step);
            if let Some(files) = self.load_files(&row)? {
                found = Some(files);
                break;
            }
            next = row.step.parent;
        }
        self.files.extend(passed.into_iter().map(|step| (step, found)));
        Ok(found)
    }

    fn load_files(&self, row: &StepRow) -> Result<Option<Hash>, ExportError> {
        match WorkspaceState::load(self.workspace.store(), row.step.state) {
            Ok(state) => Ok(state.files),
            Err(ObjectError::Missing { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn describe(&self, index: usize, change: &PathChange) -> Result<FileChange, ExportError> {
        let lines = match index < MAX_COMPARED_FILES {
            true => self.compare(change)?,
            false => ChangedLines::NotShown("too many files changed at once"),
        };
        Ok(FileChange {
            path: self.redactor.text(&change.path.display()),
            from: change.from.as_ref().map(|from| self.redactor.text(&from.display())),
            kind: change.kind(),
            lines,
        })
    }

    fn compare(&self, change: &PathChange) -> Result<ChangedLines, ExportError> {
        let (before, after) = (self.read_side(&change.before)?, self.read_side(&change.after)?);
        let (before, after) = match (before, after) {
            (Ok(before), Ok(after)) => (before, after),
            (Err(reason), _) | (_, Err(reason)) => return Ok(ChangedLines::NotShown(reason)),
        };
        let lines = line_diff::compare(&before, &after);
        if lines.is_empty() && change.kind() == ChangeKind::Modified {
            return Ok(ChangedLines::NotShown("only values that were redacted differ"));
        }
        Ok(ChangedLines::Text(lines))
    }

    /// The redacted text of one side; or why there is none.
    fn read_side(&self, node: &Option<TreeNode>) -> Result<Result<String, &'static str>, ExportError> {
        let bytes = match node {
            None => return Ok(Ok(String::new())),
            Some(TreeNode::File { size, .. }) if *size > MAX_FILE_BYTES => {
                return Ok(Err("the file is large"));
            }
            Some(node @ TreeNode::File { content: Content::Whole(_) | Content::Chunked(_), .. }) => {
                match self.workspace.read_node(node) {
                    Ok(bytes) => bytes,
                    Err(_) => return Ok(Err("the content was freed, or cannot be read")),
                }
            }
            Some(TreeNode::Symlink { target }) => target.clone(),
            Some(_) => return Ok(Err("it is not a regular file, or its content was not stored")),
        };
        Ok(self.redactor.file(&bytes).ok_or("it is not text"))
    }
}
