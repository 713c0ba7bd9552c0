//! Branches: named lines of steps. The workspace is on one of them; the others stay where they were left.
//!
//! The head is the step that the workspace is at; it moves with every checkpoint and is the tip of the present branch. Every
//! other branch is a reference to its newest step. The name of the present branch is stored as a reference as well.

use std::borrow::Cow;
use std::path::PathBuf;

use serde_json::json;
use stepback_model::ids::StepId;
use stepback_model::record::StepRow;
use stepback_model::record::{Annotation, Operation, OperationAction, Step, StepKind, StepMeta};
use stepback_model::state::WorkspaceState;
use stepback_store::Mutation;
use stepback_store::port::FinishedBatch;

use crate::error::EngineError;
use crate::retry::{is_race, retry};
use crate::rewind::{PreparedRewind, RewindReport, RewindRequest};
use crate::workspace::Workspace;

/// Why something cannot be done with a branch.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BranchError {
    /// The name is not allowed.
    #[error("\"{0}\" is not a valid branch name: use letters, digits, - _ . / + and single spaces inside")]
    InvalidName(String),
    /// The name is too long.
    #[error("a branch name has at most {MAX_NAME_BYTES} bytes, and this one has {0}")]
    NameTooLong(usize),
    /// Another branch has this name.
    #[error("branch {0} already exists")]
    Exists(String),
    /// No branch has this name.
    #[error("branch {name} not found; branches are {}", known.join(", "))]
    NotFound {
        /// The name.
        name: String,
        /// The branches there are.
        known: Vec<String>,
    },
    /// The branch is that of a rerun that has no files yet.
    #[error("branch {name} has no files: its rerun is {status}")]
    NoFiles {
        /// The name.
        name: String,
        /// The status of the rerun.
        status: &'static str,
    },
    /// The current branch cannot be deleted or renamed.
    #[error("{0} is the current branch; switch to another one first")]
    Current(String),
    /// The workspace is on this branch already.
    #[error("{0} is already the current branch")]
    AlreadyCurrent(String),
    /// A branch cannot be merged into itself.
    #[error("{0} is the current branch; switch to the branch to merge into first")]
    MergeIntoItself(String),
    /// The files of the branch are in a directory of its own.
    #[error("the files of branch {name} are in {}: work there, or merge it", directory.display())]
    HasDirectory {
        /// The branch.
        name: String,
        /// Its directory.
        directory: PathBuf,
    },
    /// The branch has this status already.
    #[error("branch {name} is already {status}")]
    HasStatus {
        /// The branch.
        name: String,
        /// Its status.
        status: &'static str,
    },
    /// Two branches have no checkpoint in common.
    #[error("branch {name} and {current} have no step in common, so it is not known what changed on it")]
    Unrelated {
        /// The branch to merge.
        name: String,
        /// The present branch.
        current: String,
    },
    /// The checkpoints that say who made the changes are gone.
    #[error("the authors of changes since branch {0} and the current branch diverged are not known any more")]
    UnknownAuthors(String),
}

/// Longest branch name, in bytes.
const MAX_NAME_BYTES: usize = 100;

/// Name of the branch that every workspace starts on.
pub const MAIN: &str = "main";

/// A branch in the list of branches.
#[derive(Clone, Debug)]
pub struct BranchInfo {
    /// Name of the branch.
    pub name: String,
    /// Newest step of the branch.
    pub tip: StepRow,
    /// Whether the workspace is on it.
    pub present: bool,
}

/// Whether `name` is valid for a branch.
pub fn is_valid_branch_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !name.starts_with(['-', '@', '#'])
        && name.trim() == name
        && !name.contains("  ")
        && name.chars().all(|c| c.is_alphanumeric() || "-_./+ ".contains(c))
}

/// Returns a branch name as it is written on a command line: in quotes if it has a space.
pub fn quote_branch_name(name: &str) -> Cow<'_, str> {
    if name.contains(' ') { Cow::Owned(format!("'{name}'")) } else { Cow::Borrowed(name) }
}

impl Workspace {
    /// Returns the newest step of a branch; `None` if the branch does not exist.
    pub fn branch_tip(&self, name: &str) -> Result<Option<StepRow>, EngineError> {
        let step = match self.present_branch()? == name {
            true => self.head_id()?,
            false => self.store().reference(&self.branch_ref(name))?,
        };
        match step {
            Some(step) => Ok(self.store().step(step)?),
            None => Ok(None),
        }
    }

    /// Returns the names of all branches, sorted.
    pub fn branch_names(&self) -> Result<Vec<String>, EngineError> {
        let mut names = self.list_ref_names(&self.branch_ref(""))?;
        names.push(self.present_branch()?);
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn list_ref_names(&self, prefix: &str) -> Result<Vec<String>, EngineError> {
        let references = self.store().references(prefix)?;
        Ok(references
            .into_iter()
            .filter_map(|(full, _)| Some(full.strip_prefix(prefix)?.to_string()))
            .collect())
    }

    /// Returns all branches, sorted by name.
    pub fn branches(&self) -> Result<Vec<BranchInfo>, EngineError> {
        let present = self.present_branch()?;
        let mut branches = Vec::new();
        for name in self.branch_names()? {
            if let Some(tip) = self.branch_tip(&name)? {
                branches.push(BranchInfo { present: name == present, name, tip });
            }
        }
        Ok(branches)
    }

    /// Returns the name of the branch that the workspace is on.
    pub fn present_branch(&self) -> Result<String, EngineError> {
        let marked = self.list_ref_names(&self.present_ref(""))?;
        Ok(marked.into_iter().next().unwrap_or_else(|| MAIN.to_string()))
    }

    pub(crate) fn branch_ref(&self, name: &str) -> String {
        format!("branch/{}/{name}", self.record.id)
    }

    fn present_ref(&self, name: &str) -> String {
        format!("present/{}/{name}", self.record.id)
    }

    /// Returns the mutations that leave branch `old_branch` at step `old_tip` and move the workspace to `new_branch`, whose tip is the head
    /// from then on.
    pub(crate) fn branch_switch_mutations(
        &self,
        old_branch: &str,
        new_branch: &str,
        old_tip: StepId,
        reached: StepId,
    ) -> Result<Vec<Mutation>, EngineError> {
        let branch = self.branch_ref(old_branch);
        let present = self.present_ref(new_branch);
        Ok(vec![
            Mutation::SetRef { expected: self.store().reference(&branch)?, name: branch, value: old_tip },
            Mutation::DropRef { name: self.branch_ref(new_branch) },
            Mutation::DropRef { name: self.present_ref(old_branch) },
            Mutation::SetRef { expected: self.store().reference(&present)?, name: present, value: reached },
        ])
    }

    /// Checks that `name` is valid for a branch.
    fn check_branch_name(&self, name: &str) -> Result<(), EngineError> {
        match is_valid_branch_name(name) {
            true => Ok(()),
            false if name.len() > MAX_NAME_BYTES => Err(BranchError::NameTooLong(name.len()).into()),
            false => Err(BranchError::InvalidName(name.to_owned()).into()),
        }
    }

    /// Checks that `name` is valid and that no branch has it yet.
    pub fn check_new_branch(&self, name: &str) -> Result<(), EngineError> {
        self.check_branch_name(name)?;
        match self.branch_tip(name)? {
            Some(_) => Err(BranchError::Exists(name.to_owned()).into()),
            None => Ok(()),
        }
    }

    /// Creates a branch that begins at `start`, without switching to it.
    pub fn create_branch(&self, name: &str, start: &StepRow) -> Result<Operation, EngineError> {
        retry("create the branch", is_race, || self.try_create_branch(name, start))
    }

    fn try_create_branch(&self, name: &str, start: &StepRow) -> Result<Operation, EngineError> {
        self.check_new_rerun_branch(name)?;
        let base = self.nearest_checkpoint(start)?;
        // A branch from the head includes all steps so far.
        let upto = match start.trigger {
            None => Some(start.step.number),
            Some(_) if self.head_id()? == Some(start.step.id) => Some(self.newest_step_number()?),
            Some(_) => None,
        };
        let (step, batch) = self.build_branch_step(StepKind::BranchCreated, name, base.step.id)?;
        let operation = self.new_operation(
            format!("create branch {name} at {}", crate::workspace::describe_checkpoint(start)),
            OperationAction::BranchCreate { name: name.to_string(), step: base.step.id, upto },
        );
        let mutations = [
            // Of an earlier branch of this name.
            Mutation::DropRef { name: self.branch_directory_ref(name) },
            Mutation::SetRef { name: self.branch_ref(name), expected: None, value: base.step.id },
            Mutation::AppendStep { step, annotation: Annotation::default(), trigger: None },
            Mutation::AppendOp(operation.clone()),
        ];
        self.store().commit(Some(batch), &mutations)?;
        Ok(operation)
    }

    /// Deletes a branch. Its steps stay. One that was prepared and never executed goes as a whole, and undo brings it back.
    pub fn delete_branch(&self, name: &str) -> Result<Operation, EngineError> {
        if self.branch_tip(name)?.is_none()
            && let Some(operation) = self.delete_rerun(name)?
        {
            return Ok(operation);
        }
        let tip = self.require_branch_tip(name)?;
        if self.present_branch()? == name {
            return Err(BranchError::Current(name.to_owned()).into());
        }
        let step = tip.step.id;
        let operation = self.new_operation(
            format!("delete branch {name}"),
            OperationAction::BranchDelete { name: name.to_string(), step },
        );
        let mutations =
            [Mutation::DropRef { name: self.branch_ref(name) }, Mutation::AppendOp(operation.clone())];
        self.store().commit(None, &mutations)?;
        Ok(operation)
    }

    /// Renames a branch.
    pub fn rename_branch(&self, name: &str, new_name: &str) -> Result<Operation, EngineError> {
        self.check_branch_name(new_name)?;
        let step = self.require_branch_tip(name)?.step.id;
        self.check_new_rerun_branch(new_name)?;
        if self.present_branch()? == name {
            return Err(BranchError::Current(name.to_owned()).into());
        }
        let action = OperationAction::BranchRename { from: name.to_string(), to: new_name.to_string(), step };
        let operation = self.new_operation(format!("rename branch {name} to {new_name}"), action);
        let mut mutations = vec![
            Mutation::DropRef { name: self.branch_ref(name) },
            Mutation::SetRef { name: self.branch_ref(new_name), expected: None, value: step },
            Mutation::AppendOp(operation.clone()),
        ];
        mutations.extend(self.rename_directory_mutations(name, new_name)?);
        self.store().commit(None, &mutations)?;
        Ok(operation)
    }

    /// Returns the newest step of a branch, or an error that says why there is none.
    pub fn require_branch_tip(&self, name: &str) -> Result<StepRow, EngineError> {
        if let Some(tip) = self.branch_tip(name)? {
            return Ok(tip);
        }
        let name = name.to_owned();
        let rerun = self.reruns()?.into_iter().find(|rerun| rerun.branch == name && !rerun.has_result());
        Err(match rerun {
            Some(rerun) => BranchError::NoFiles { name, status: rerun.effective_status() },
            None => BranchError::NotFound { name, known: self.branch_names()? },
        }
        .into())
    }

    /// Plans a switch to another branch: the whole workspace becomes what it was there.
    pub fn prepare_switch(&self, name: &str) -> Result<PreparedRewind, EngineError> {
        let tip = self.require_branch_tip(name)?;
        if self.present_branch()? == name {
            return Err(BranchError::AlreadyCurrent(name.to_owned()).into());
        }
        self.check_has_no_directory(name)?;
        let conversation_from = self.branch_conversation_step(name, &tip)?;
        self.prepare_switch_to_step(name, tip, conversation_from)
    }

    /// Plans a switch to a branch that is yet to be created at `start`.
    pub fn prepare_switch_to_new(&self, name: &str, start: &StepRow) -> Result<PreparedRewind, EngineError> {
        self.check_new_rerun_branch(name)?;
        self.prepare_switch_to_step(name, self.nearest_checkpoint(start)?, start.step.id)
    }

    fn prepare_switch_to_step(
        &self,
        name: &str,
        tip: StepRow,
        conversation_from: StepId,
    ) -> Result<PreparedRewind, EngineError> {
        let mut prepared = self.prepare_rewind(&RewindRequest {
            target: Some(tip),
            everything: true,
            git: false,
            ..RewindRequest::default()
        })?;
        prepared.summary = format!("switch to branch {name}");
        prepared.conversation_from = Some(conversation_from);
        prepared.branches = Some((self.present_branch()?, name.to_string()));
        Ok(prepared)
    }

    /// Switches to another branch, as planned. The state of the present branch is saved on it first.
    pub fn switch(&self, name: &str, prepared: PreparedRewind) -> Result<RewindReport, EngineError> {
        let report = self.apply_rewind(prepared)?;
        if let Some(moved) = report.operation.action.moved() {
            retry("record the switch", is_race, || {
                let (step, batch) = self.build_branch_step(StepKind::BranchSwitched, name, moved.after)?;
                let append = Mutation::AppendStep { step, annotation: Annotation::default(), trigger: None };
                Ok(self.store().commit(Some(batch), &[append])?)
            })?;
        }
        Ok(report)
    }

    /// Returns the nearest step at or before `step` that has files of its own.
    pub fn nearest_checkpoint(&self, step: &StepRow) -> Result<StepRow, EngineError> {
        let mut base = step.clone();
        while !base.is_checkpoint() {
            let nothing = || EngineError::NoFiles { what: crate::workspace::describe_checkpoint(step) };
            let parent = base.step.parent.ok_or_else(nothing)?;
            base = self.store().step(parent)?.ok_or_else(nothing)?;
        }
        Ok(base)
    }

    /// Builds a step without files that records the creation of a branch or a switch, and the objects that it needs. Both belong
    /// into one commit: until a step refers to them, a collection may free them.
    fn build_branch_step(
        &self,
        kind: StepKind,
        name: &str,
        parent: StepId,
    ) -> Result<(Step, FinishedBatch), EngineError> {
        let batch = self.store().begin()?;
        let mut state = WorkspaceState::default();
        match (kind, self.store().step(parent)?) {
            (StepKind::BranchSwitched, Some(reached)) => {
                let reached = WorkspaceState::load(self.store(), reached.step.state)?;
                state = WorkspaceState { files: None, git: None, ..reached };
            }
            _ => self.fill_session_slots(&mut state)?,
        }
        let state = batch.write(stepback_model::ObjectKind::State, &state.encode(), None)?;
        let detail = stepback_model::json::store(&*batch, &json!({ "branch": name, "at": parent }), None)?;
        let summary = match kind {
            StepKind::BranchCreated => format!("created branch {name}"),
            _ => format!("switched to branch {name}"),
        };
        let step = Step {
            id: StepId::from_bytes(self.engine.env.fresh_id()),
            session: self.session.id,
            number: 0,
            parent: Some(parent),
            kind,
            at: self.engine.env.now(),
            state,
            summary,
            meta: StepMeta { detail: Some(detail.into()), ..StepMeta::default() },
        };
        Ok((step, batch.finish()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_single_spaces_inside() {
        for right in ["main", "alternative approach", "a b c", "v1.2/x_y+z-0", "größe 2"] {
            assert!(is_valid_branch_name(right), "{right}");
        }
        for wrong in
            ["", " ", " a", "a ", "a  b", "a\tb", "a\nb", "-a", "@a", "#1", "a:b", "a'b", "a\"b", "a\u{a0}b"]
        {
            assert!(!is_valid_branch_name(wrong), "{wrong:?}");
        }
        assert!(!is_valid_branch_name(&"a".repeat(101)));
        assert_eq!(quote_branch_name("main"), "main");
        assert_eq!(quote_branch_name("a b"), "'a b'");
    }
}
