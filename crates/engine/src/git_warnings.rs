//! What a user should know about git before files go back: a HEAD that moved, and changes that git does not have.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use stepback_model::plan::{PlannedChange, RewindPlan};
use stepback_model::state::{GitState, WorkspaceState};
use stepback_model::tree::TreeNode;
use stepback_worktree::git_index::{GitIndex, TrackedState};

use crate::error::EngineError;
use crate::workspace::{StoreSource, Workspace};

/// How many files have changes that are not committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UncommittedCount {
    /// The files that certainly have.
    pub certain: usize,
    /// Whether there may be more, because the content of some could not be read.
    pub is_lower_bound: bool,
}

impl Workspace {
    /// Returns a warning for each repository whose HEAD or operation in progress differs between the present and the target.
    pub fn git_head_warnings(
        &self,
        present: &WorkspaceState,
        target: &WorkspaceState,
    ) -> Result<Vec<String>, EngineError> {
        if present.git == target.git {
            return Ok(Vec::new());
        }
        let source = StoreSource(self.store());
        let load = |hash| GitState::load(&source, hash);
        let present_git = present.git.map(load).transpose()?.unwrap_or_default();
        let target_git = target.git.map(load).transpose()?.unwrap_or_default();
        let mut warnings = Vec::new();
        for old in &target_git.repositories {
            let path = stepback_model::path::display_bytes(&old.path).into_owned();
            match present_git.get(&old.path) {
                None => warnings.push(format!("{path} is missing; add --git to restore it")),
                Some(new)
                    if new.summary.commit != old.summary.commit
                        || new.summary.branch != old.summary.branch =>
                {
                    warnings.push(format!(
                        "HEAD of {path} has moved since: it was {}, now it is {}; add --git to move it back",
                        describe_git_head(&old.summary),
                        describe_git_head(&new.summary)
                    ));
                }
                Some(new) if new.summary.in_progress != old.summary.in_progress => {
                    let operation =
                        new.summary.in_progress.clone().or_else(|| old.summary.in_progress.clone());
                    let operation = operation.unwrap_or_default();
                    warnings.push(format!(
                        "a {operation} was started or finished in {path} since; add --git to restore it"
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(warnings)
    }

    /// Returns how many of the files that a plan changes have changes that are not committed to git.
    pub fn count_uncommitted(&self, plan: &RewindPlan) -> UncommittedCount {
        let mut count = UncommittedCount::default();
        let Some(index) = GitIndex::read(&self.root) else { return count };
        let mut differs = |change: &&PlannedChange| {
            let now = change.now.as_ref().filter(|node| matches!(node, TreeNode::File { .. }));
            let file = std::fs::symlink_metadata(self.root.join(OsStr::from_bytes(change.path.as_bytes())));
            let (Some(now), Ok(file)) = (now, file) else { return false };
            match index.compare(change.path.as_bytes(), &file) {
                None | Some(TrackedState::Same) => false,
                Some(TrackedState::Changed) => true,
                Some(TrackedState::Unclear(oid)) => match self.read_node(now) {
                    Ok(bytes) => stepback_store::git_blob_id(&bytes) != oid,
                    Err(_) => {
                        count.is_lower_bound = true;
                        false
                    }
                },
            }
        };
        let certain = plan.changes.iter().filter(|change| differs(change)).count();
        UncommittedCount { certain, ..count }
    }
}

fn describe_git_head(summary: &stepback_model::state::RepositorySummary) -> String {
    let commit = summary.commit.as_deref().map_or("no commit", |commit| &commit[..commit.len().min(10)]);
    match &summary.branch {
        Some(branch) => format!("{commit} on {branch}"),
        None => format!("{commit} (detached)"),
    }
}
