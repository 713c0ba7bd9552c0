//! What the user says about a branch: that it is worked on, was abandoned, or is archived.
//!
//! It is not stored beside the branch: it follows from the operations in force, so that undo and redo need nothing of their own.
//! Switching to such a branch activates it.

use std::collections::HashMap;

use stepback_model::record::{BranchStatus, OpStatus, Operation, OperationAction};
use stepback_store::Mutation;

use crate::branch::BranchError;
use crate::error::EngineError;
use crate::workspace::Workspace;

impl Workspace {
    /// Returns the branches that were set aside, each with its status. All others are active.
    pub fn branch_statuses(&self) -> Result<HashMap<String, BranchStatus>, EngineError> {
        let mut operations = self.operations()?;
        operations.sort_by_key(|operation| operation.number);
        let mut statuses = HashMap::new();
        let in_force = |operation: &&Operation| operation.status == OpStatus::Done && !operation.undone;
        for operation in operations.iter().filter(in_force) {
            match &operation.action {
                OperationAction::BranchStatus { name, after: BranchStatus::Active, .. }
                | OperationAction::BranchCreate { name, .. } => {
                    statuses.remove(name);
                }
                OperationAction::BranchStatus { name, after, .. } => {
                    statuses.insert(name.clone(), *after);
                }
                OperationAction::BranchRename { from, to, .. } => {
                    if let Some(status) = statuses.remove(from) {
                        statuses.insert(to.clone(), status);
                    }
                }
                action => {
                    let moved = action.moved().and_then(|moved| moved.branches.as_ref());
                    moved.and_then(|(_, entered)| statuses.remove(entered));
                }
            }
        }
        Ok(statuses)
    }

    /// Sets the status of a branch. The current branch is always active.
    pub fn set_branch_status(&self, name: &str, after: BranchStatus) -> Result<Operation, EngineError> {
        let step = self.require_branch_tip(name)?.step.id;
        if self.present_branch()? == name && after != BranchStatus::Active {
            return Err(BranchError::Current(name.to_owned()).into());
        }
        let before = self.branch_statuses()?.get(name).copied().unwrap_or_default();
        if before == after {
            return Err(BranchError::HasStatus { name: name.to_owned(), status: after.as_str() }.into());
        }
        let summary = match after {
            BranchStatus::Active => format!("take up branch {name} again"),
            BranchStatus::Abandoned => format!("abandon branch {name}"),
            BranchStatus::Archived => format!("archive branch {name}"),
        };
        let action = OperationAction::BranchStatus { name: name.to_owned(), before, after, step };
        let operation = self.new_operation(summary, action);
        self.store().commit(None, &[Mutation::AppendOp(operation.clone())])?;
        Ok(operation)
    }
}
