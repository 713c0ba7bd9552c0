//! Branches with a directory of their own. The directory is a workspace; what its agents do there is recorded there, and taken over
//! into the branch, so that the branch moves with the work and is compared and merged like any other.
//!
//! A reference holds the step of the other workspace that was taken over last. Taking over appends one checkpoint with the same
//! state to this workspace; no file is read, and objects are in the same store. While this workspace is itself on the branch, nothing
//! is taken over, because the files here are others.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use stepback_model::ids::{StepId, WorkspaceId};
use stepback_model::record::{Annotation, Step, StepKind, StepMeta, StepRow, Trigger};
use stepback_store::{Mutation, StoreError};

use crate::branch::BranchError;
use crate::error::EngineError;
use crate::workspace::Workspace;

/// The directory of a branch.
#[derive(Clone, Debug)]
pub struct BranchDirectory {
    /// The workspace that it is.
    pub workspace: WorkspaceId,
    /// Its path.
    pub path: PathBuf,
    /// The step of that workspace that was taken over last.
    taken: StepId,
}

impl Workspace {
    /// Makes another workspace the directory of a branch. What is recorded there so far is what the branch begins with.
    pub fn set_branch_directory(&self, name: &str, directory: &Workspace) -> Result<(), EngineError> {
        let reference = self.branch_directory_ref(name);
        let expected = self.store().reference(&reference)?;
        let value = directory.head()?.step.id;
        self.store().commit(None, &[Mutation::SetRef { name: reference, expected, value }])?;
        Ok(())
    }

    /// Returns the directory of a branch, if it has one that still exists.
    pub fn branch_directory(&self, name: &str) -> Result<Option<BranchDirectory>, EngineError> {
        let Some(taken) = self.store().reference(&self.branch_directory_ref(name))? else { return Ok(None) };
        let Some(step) = self.store().step(taken)? else { return Ok(None) };
        let Some(session) = self.store().session(step.step.session)? else { return Ok(None) };
        let workspaces = self.store().workspaces()?;
        let record = workspaces.into_iter().find(|record| record.id == session.workspace);
        let directory = record.map(|record| BranchDirectory {
            workspace: record.id,
            path: Path::new(OsStr::from_bytes(&record.root)).to_path_buf(),
            taken,
        });
        Ok(directory.filter(|directory| directory.path.is_dir()))
    }

    /// Fails if a branch has a directory of its own: its files are there.
    pub(crate) fn check_has_no_directory(&self, name: &str) -> Result<(), EngineError> {
        match self.branch_directory(name)? {
            Some(directory) => {
                Err(BranchError::HasDirectory { name: name.to_owned(), directory: directory.path }.into())
            }
            None => Ok(()),
        }
    }

    /// Takes over into branches what was recorded in their directories since.
    pub fn update_branches_with_directories(&self) -> Result<(), EngineError> {
        let prefix = self.branch_directory_ref("");
        let references = self.store().references(&prefix)?;
        if references.is_empty() {
            return Ok(());
        }
        let present = self.present_branch()?;
        for (reference, _) in references {
            if let Some(name) = reference.strip_prefix(&prefix).filter(|name| *name != present) {
                self.update_branch_with_directory(name)?;
            }
        }
        Ok(())
    }

    fn update_branch_with_directory(&self, name: &str) -> Result<(), EngineError> {
        let (Some(tip), Some(directory)) = (self.branch_tip(name)?, self.branch_directory(name)?) else {
            return Ok(());
        };
        let head = self.store().reference(&format!("head/{}", directory.workspace))?;
        let Some(head) = head.filter(|head| *head != directory.taken) else { return Ok(()) };
        let Some(head) = self.store().step(head)?.filter(|head| !head.purged) else { return Ok(()) };
        self.append_taken_step(name, &tip, &directory, &head)
    }

    fn append_taken_step(
        &self,
        name: &str,
        tip: &StepRow,
        directory: &BranchDirectory,
        head: &StepRow,
    ) -> Result<(), EngineError> {
        let detail = json!({
            "branch": name,
            "taken_over": { "workspace": directory.workspace, "step": head.step.id, "number": head.step.number },
        });
        let step = Step {
            id: StepId::from_bytes(self.engine.env.fresh_id()),
            session: self.session.id,
            number: 0,
            parent: Some(tip.step.id),
            kind: StepKind::Checkpoint,
            at: head.step.at,
            state: head.step.state,
            summary: format!("branch {name} as in its directory at #{}", head.step.number),
            meta: StepMeta { detail: Some(self.store_detail(&detail)?.into()), ..StepMeta::default() },
        };
        let id = step.id;
        let mutations = [
            Mutation::AppendStep {
                step,
                annotation: Annotation::default(),
                trigger: Some(Trigger::Automatic),
            },
            Mutation::SetRef { name: self.branch_ref(name), expected: Some(tip.step.id), value: id },
            Mutation::SetRef {
                name: self.branch_directory_ref(name),
                expected: Some(directory.taken),
                value: head.step.id,
            },
        ];
        match self.store().commit(None, &mutations) {
            // Another process has done it.
            Err(StoreError::Moved { .. }) => Ok(()),
            committed => Ok(committed.map(drop)?),
        }
    }

    /// Records the files in the directory of a branch as they are now, if they changed, and takes them over.
    pub fn save_branch_directory(&self, name: &str) -> Result<(), EngineError> {
        let Some(directory) = self.branch_directory(name)? else { return Ok(()) };
        if self.present_branch()? == name {
            return Ok(());
        }
        let workspace = self.engine.open_known_workspace(&directory.path)?;
        let present = workspace.scan_for_display()?.state;
        let recorded = workspace.load_state(&workspace.head()?)?;
        if (present.files, present.git) != (recorded.files, recorded.git) {
            workspace.create_checkpoint(Annotation::default(), Trigger::Automatic)?;
        }
        self.update_branch_with_directory(name)
    }

    pub(crate) fn branch_directory_ref(&self, name: &str) -> String {
        format!("worktree/{}/{name}", self.record.id)
    }

    /// Returns the mutations by which the directory of a branch follows a new name; none if it has no directory.
    pub(crate) fn rename_directory_mutations(
        &self,
        from: &str,
        to: &str,
    ) -> Result<Vec<Mutation>, EngineError> {
        let (old_name, new_name) = (self.branch_directory_ref(from), self.branch_directory_ref(to));
        let Some(value) = self.store().reference(&old_name)? else { return Ok(Vec::new()) };
        let expected = self.store().reference(&new_name)?;
        let set = Mutation::SetRef { name: new_name, expected, value };
        Ok(vec![Mutation::DropRef { name: old_name }, set])
    }
}
