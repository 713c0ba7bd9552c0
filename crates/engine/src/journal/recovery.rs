//! Finishes operations of a process that died, from their journals.

use stepback_model::hash::ObjectKind;
use stepback_model::ids::StepId;
use stepback_model::path::RelPath;
use stepback_model::plan::{PlannedChange, RewindPlan};
use stepback_model::record::{Annotation, Operation, Step, StepKind, StepMeta, Trigger};
use stepback_model::state::{GitState, WorkspaceState};
use stepback_model::tree::TreeNode;
use stepback_store::{Mutation, StoreError};
use stepback_worktree::apply::{Applier, ChangeOutcome, TornFiles};
use stepback_worktree::scan::single::{Looker, Single};

use super::{exclude_removed_repositories, revert_mutations, touched_repositories};
use crate::error::EngineError;
use crate::git_lock::GitLocks;
use crate::retry::{is_race, retry};
use crate::workspace::{StoreSource, Workspace};

impl Workspace {
    /// Finishes the operations of a process that died. Does nothing while a live process works on them.
    pub(crate) fn recover(&self) -> Result<(), EngineError> {
        if self.store().unfinished(self.record.id)?.is_empty() {
            return Ok(());
        }
        let _lock = self.lock_exclusive()?;
        // The previous holder of the lock may have finished them meanwhile.
        for operation in self.store().unfinished(self.record.id)?.into_iter().rev() {
            self.finish_operation(&operation)?;
        }
        Ok(())
    }

    fn finish_operation(&self, operation: &Operation) -> Result<(), EngineError> {
        let (Some(journal), Some(moved)) = (operation.journal, operation.action.moved().cloned()) else {
            self.store().commit(None, &revert_mutations(operation))?;
            return Ok(());
        };
        let source = StoreSource(self.store());
        let plan = RewindPlan::load(&source, journal)?;
        let step_before = self.store().step(moved.before)?;
        let present = match &step_before {
            Some(stored) => self.load_state(stored)?,
            None => {
                return Err(StoreError::Corrupt { what: "a journal refers to a missing step".into() }.into());
            }
        };
        // The reached git state gets the description of the target's git state.
        let git_target = match (moved.git, self.store().step(moved.onto)?) {
            (true, Some(stored)) if !stored.purged => self.load_state(&stored)?.git,
            _ => None,
        };
        let git_target = git_target.map(|hash| GitState::load(&source, hash)).transpose()?;
        let git_paths = exclude_removed_repositories(touched_repositories(&plan), &plan);
        GitLocks::clean_up(&self.root, &git_paths, operation.id);
        let git_locks = GitLocks::acquire(&self.root, &git_paths, operation.id)?;
        let vault = self.vault()?;
        let applier =
            Applier::new(&self.root, &source, vault.as_ref(), &operation.id.short(), self.engine.threads)?;
        applier.clean_up(&plan.changes)?;
        // A revert that was interrupted leaves files under its own tag.
        let reverting =
            Applier::new(&self.root, &source, vault.as_ref(), &format!("{}r", operation.id.short()), 1)?;
        let inverse: Vec<PlannedChange> = plan.changes.iter().map(PlannedChange::inverted).collect();
        reverting.clean_up(&inverse)?;
        let torn = applier.find_torn_files(&plan.changes)?;
        let torn = self.save_torn_files(operation, &present, &plan, torn)?;
        let applier = applier.replacing(torn);
        let mut outcomes = match applier.apply(&plan.changes, None) {
            Ok(outcomes) => outcomes,
            Err(failure) => return Err(self.roll_back(operation, &plan, *failure)),
        };
        self.revert_partial_databases(operation, &plan, &mut outcomes)?;
        git_locks.release();
        let pairs: Vec<_> = plan.changes.into_iter().zip(outcomes).collect();
        self.close_journal(operation, &present, &pairs, &plan.left_alone, git_target)?;
        Ok(())
    }
    /// Saves files that a power failure left incomplete as a checkpoint, because a user may have emptied or shortened them.
    /// Returns those that were saved.
    fn save_torn_files(
        &self,
        operation: &Operation,
        present: &WorkspaceState,
        plan: &RewindPlan,
        torn: TornFiles,
    ) -> Result<TornFiles, EngineError> {
        let Some(moved) = operation.action.moved().filter(|_| !torn.is_empty()) else {
            return Ok(TornFiles::new());
        };
        retry("save incomplete files", is_race, || {
            let (source, batch) = (StoreSource(self.store()), self.store().begin()?);
            let mut looker = Looker::new(&self.root, &source, &*batch)?;
            let (mut saved, mut torn_paths) = (TornFiles::new(), Vec::new());
            for change in &plan.changes {
                let is_above = |path: &RelPath| path.starts_with(&change.path) && *path != change.path;
                if change.then.as_ref().is_some_and(TreeNode::is_dir) && torn.keys().any(is_above) {
                    torn_paths.push((change.clone(), ChangeOutcome::Done));
                }
                let Some(identity) = torn.get(&change.path) else { continue };
                if let Single::Node(node @ TreeNode::File { .. }) = looker.look(&change.path)? {
                    saved.insert(change.path.clone(), *identity);
                    torn_paths
                        .push((PlannedChange { then: Some(node), ..change.clone() }, ChangeOutcome::Done));
                }
            }
            let state = self.compute_reached_state(&*batch, present, &torn_paths, None)?;
            let step = Step {
                id: StepId::from_bytes(self.engine.env.fresh_id()),
                session: self.session.id,
                number: 0,
                parent: Some(moved.before),
                kind: StepKind::Checkpoint,
                at: self.engine.env.now(),
                state: batch.write(ObjectKind::State, &state.encode(), None)?,
                summary: format!("incomplete files, before completing {}", operation.summary),
                meta: StepMeta::default(),
            };
            let (annotation, trigger) = (Annotation::default(), Some(Trigger::Automatic));
            let append = Mutation::AppendStep { step, annotation, trigger };
            self.store().commit(Some(batch.finish()?), &[append])?;
            Ok(saved)
        })
    }
}
