//! Branches and reruns as documents.

use stepback_engine::branch::BranchInfo;
use stepback_engine::reruns::Rerun;
use stepback_engine::{EngineError, Workspace};
use stepback_model::record::BranchStatus;

use crate::branches::BranchDocument;
use crate::steps::StepDocument;
use crate::timeline::BranchLineDocument;

/// The status of a branch that has nothing that was not merged.
const MERGED: &str = "merged";

impl BranchDocument {
    /// The documents of all branches of a workspace by name, then of reruns that have no branch yet.
    pub fn list(workspace: &Workspace) -> Result<Vec<Self>, EngineError> {
        let (branches, reruns) = (workspace.branches()?, workspace.reruns()?);
        let rerun = |name: &str| reruns.iter().find(|rerun| rerun.branch == name);
        let lines = BranchLineDocument::from_lines(&workspace.branch_lines()?);
        let line = |name: &str| lines.iter().find(|line| line.name == name).cloned();
        let of = |branch: &BranchInfo| Self::from_branch(branch, line(&branch.name), rerun(&branch.name));
        let mut items: Vec<_> = branches.iter().map(of).collect();
        let (merged, statuses) = (workspace.merged_branches()?, workspace.branch_statuses()?);
        for (branch, item) in branches.iter().zip(&mut items) {
            // What was done on it since is not merged yet.
            if !branch.present && merged.get(&branch.name) == Some(&branch.tip.step.id) {
                MERGED.clone_into(&mut item.status);
            }
            // What the user says is newer than what stepback knows.
            if let Some(status) = statuses.get(&branch.name).filter(|_| !branch.present) {
                status.as_str().clone_into(&mut item.status);
            }
        }
        for item in &mut items {
            let directory = workspace.branch_directory(&item.name)?;
            item.directory = directory.map(|directory| directory.path.to_string_lossy().into_owned());
        }
        // A finished rerun without a branch is one whose branch was deleted, and is not listed.
        let is_there = |rerun: &&Rerun| branches.iter().any(|branch| branch.name == rerun.branch);
        let coming = reruns.iter().filter(|rerun| !is_there(rerun) && !rerun.has_result());
        items.extend(coming.map(Self::from_rerun));
        Ok(items)
    }

    /// Whether it is left out of lists unless it is asked for.
    pub fn is_archived(&self) -> bool {
        self.status == BranchStatus::Archived.as_str()
    }

    /// The document of a branch, with its line of steps and the rerun that created it.
    fn from_branch(branch: &BranchInfo, line: Option<BranchLineDocument>, rerun: Option<&Rerun>) -> Self {
        Self {
            first: line.as_ref().and_then(|line| line.first),
            own: line.as_ref().map_or(0, |line| line.own),
            from: line.and_then(|line| line.from),
            name: branch.name.clone(),
            tip: Some(StepDocument::from_row(&branch.tip)),
            present: branch.present,
            directory: None,
            status: rerun.map_or("active", Rerun::effective_status).to_owned(),
            rerun: rerun.and_then(|rerun| serde_json::to_value(rerun).ok()),
        }
    }

    /// The document of a rerun that has no branch yet.
    pub fn from_rerun(rerun: &Rerun) -> Self {
        Self {
            name: rerun.branch.clone(),
            status: rerun.effective_status().to_owned(),
            rerun: serde_json::to_value(rerun).ok(),
            ..Self::default()
        }
    }
}
