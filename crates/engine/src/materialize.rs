//! Writes a past state into a directory of its own.

use std::path::Path;

use stepback_model::hash::ObjectKind;
use stepback_model::object::ObjectError;
use stepback_model::path::RelPath;
use stepback_model::plan::PlannedChange;
use stepback_model::state::{GitState, WorkspaceState};
use stepback_model::tree::TreeNode;
use stepback_worktree::WorktreeError;
use stepback_worktree::apply::{Applier, ChangeOutcome};
/// Where to write it: a directory away from everything around it.
pub use stepback_worktree::dir_placement::{apart, make_apart};
pub use stepback_worktree::materialize::Materialized;
use stepback_worktree::materialize::{ContentSource, IfDamaged, TreeWriter};
use stepback_worktree::restore;

use crate::diff;
use crate::error::EngineError;
use crate::restore_plan::plan_restore;
use crate::revert::TreeLookup;
use crate::workspace::{StoreSource, Workspace};

impl Workspace {
    /// Writes the files of `state` into `into`, which must not exist or be empty. With `git`, git directories too.
    pub fn materialize(
        &self,
        state: &WorkspaceState,
        into: &Path,
        git: bool,
    ) -> Result<Materialized, EngineError> {
        self.materialize_into(state, into, git, IfDamaged::Fail)
    }

    /// Like [`Self::materialize`], but writes everything that is intact, and lists what is damaged in
    /// [`Materialized::damaged`]. When it returns, the directory is durable.
    pub fn materialize_intact(
        &self,
        state: &WorkspaceState,
        into: &Path,
        git: bool,
    ) -> Result<Materialized, EngineError> {
        self.materialize_into(state, into, git, IfDamaged::List)
    }

    fn materialize_into(
        &self,
        state: &WorkspaceState,
        into: &Path,
        git: bool,
        if_damaged: IfDamaged,
    ) -> Result<Materialized, EngineError> {
        self.engine.check_outside_store(into)?;
        let (objects, vault) = (StoreSource(self.store()), self.vault()?);
        let source = ContentSource {
            objects: &objects,
            vault: vault.as_ref(),
            workspace: Some(&self.root),
            threads: self.engine.threads,
            progress: self.engine.progress.as_deref(),
            if_damaged,
        };
        let Some(mut writer) = TreeWriter::open(into, source)? else {
            return Err(EngineError::NotEmpty { path: into.to_path_buf() });
        };
        if let Some(files) = state.files {
            writer.write_files(files)?;
        }
        if git && let Some(git) = state.git {
            let loaded = match GitState::load(&objects, git) {
                Err(error) if if_damaged.tolerates(&error) => {
                    writer.list_damaged(RelPath::root(), format!("its git directories are damaged: {error}"));
                    GitState::default()
                }
                loaded => loaded?,
            };
            for repository in loaded.repositories {
                let path = RelPath::parse(repository.path)
                    .map_err(|reason| ObjectError::corrupt(ObjectKind::Git, git, reason))?;
                writer.write_git_dir(repository.tree, &path)?;
            }
        }
        let durable = if_damaged == IfDamaged::List;
        Ok(writer.finish(durable)?)
    }

    /// Turns a directory that holds the files of `from` into one that holds those of `to` by writing the differences, and
    /// returns them; `None` if a path there is not as expected. Nothing is synced to disk.
    pub fn update_materialized_dir(
        &self,
        from: &WorkspaceState,
        to: &WorkspaceState,
        dir: &Path,
    ) -> Result<Option<Vec<PlannedChange>>, EngineError> {
        let source = StoreSource(self.store());
        let plan = plan_restore(diff::compare_trees(&source, from.files, to.files)?);
        if !plan.left_alone.is_empty() {
            return Ok(None);
        }
        let vault = self.vault()?;
        let threads = self.engine.threads;
        let dir = &dir.canonicalize().map_err(WorktreeError::aside("open", dir))?;
        let applier = Applier::new(dir, &source, vault.as_ref(), "carry-over", threads)?.without_sync();
        let result = applier.apply(&plan.changes, None);
        let is_complete =
            result.is_ok_and(|outcomes| outcomes.iter().all(|outcome| *outcome == ChangeOutcome::Done));
        Ok(is_complete.then_some(plan.changes))
    }

    /// Returns the node at `path` in `state` with its bytes: the content of a file or the target of a link. `None` if the path
    /// does not exist there.
    pub fn read_path(
        &self,
        state: &WorkspaceState,
        path: &RelPath,
    ) -> Result<Option<(TreeNode, Vec<u8>)>, EngineError> {
        let source = StoreSource(self.store());
        let node = TreeLookup::new(&source, state.files).get(path)?;
        Ok(match node {
            None => None,
            Some(node) => {
                let bytes = self.read_node(&node)?;
                Some((node, bytes))
            }
        })
    }

    /// Returns the content of a file or the target of a link; empty for any other node.
    pub fn read_node(&self, node: &TreeNode) -> Result<Vec<u8>, EngineError> {
        let source = StoreSource(self.store());
        match node {
            TreeNode::File { content, .. } => Ok(restore::read_content(content, &source)?),
            TreeNode::Symlink { target } => Ok(target.clone()),
            TreeNode::Dir { .. } | TreeNode::Skipped { .. } => Ok(Vec::new()),
        }
    }
}
