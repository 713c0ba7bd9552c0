//! Applies a prepared rewind so that after a crash at any instant the next command either undoes or finishes it.
//!
//! One commit saves the present state and stores the plan (the journal); then files change; a second commit records the
//! result and closes the journal. An open journal while no process holds the workspace lock belongs to a process that died:
//! its plan is applied again, which is harmless for changes that were already made.

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{OpId, StepId};
use stepback_model::json::ValueRoot;
use stepback_model::path::RelPath;
use stepback_model::plan::{PlannedChange, RewindPlan, SkippedPath};
use stepback_model::record::StepRow;
use stepback_model::record::{
    Annotation, OpStatus, Operation, OperationAction, StateTransition, Step, StepKind, StepMeta, Trigger,
};
use stepback_model::state::{GitState, WorkspaceState};
use stepback_model::tree::{SkipReason, TreeNode};
use stepback_store::{Mutation, ObjectBatch};
use stepback_worktree::apply::{Applier, ApplyFailure, ChangeOutcome};

use crate::error::EngineError;
use crate::git_lock::GitLocks;
use crate::retry::{is_race, retry};
use crate::rewind::{PreparedRewind, RewindReport};
use crate::tree_edit;
use crate::undo::UndoDirection;
use crate::workspace::{PresentState, StoreSource, Workspace};

mod recovery;

/// Kinds of operation that change files.
pub(crate) enum OperationPurpose {
    Rewind,
    Undo(OpId),
    Redo(OpId),
}

impl Workspace {
    /// Applies a prepared rewind.
    pub fn apply_rewind(&self, prepared: PreparedRewind) -> Result<RewindReport, EngineError> {
        self.apply_with_purpose(prepared, OperationPurpose::Rewind, Vec::new())
    }

    pub(crate) fn apply_with_purpose(
        &self,
        mut prepared: PreparedRewind,
        purpose: OperationPurpose,
        extra_mutations: Vec<Mutation>,
    ) -> Result<RewindReport, EngineError> {
        let _lock = match prepared.lock.take() {
            Some(lock) => lock,
            None => self.lock_exclusive()?,
        };
        if self.store().gc_generation()? != prepared.gc_generation {
            return Err(EngineError::PlanOutdated);
        }
        match purpose {
            OperationPurpose::Undo(operation) => self.check_can_reverse(operation, UndoDirection::Undo)?,
            OperationPurpose::Redo(operation) => self.check_can_reverse(operation, UndoDirection::Redo)?,
            OperationPurpose::Rewind => {}
        }
        let planned_skips = prepared.plan.left_alone.clone();
        let held_changes = self.recheck_open_files(&mut prepared)?;
        let git_paths = touched_repositories(&prepared.plan);
        GitLocks::check_free(&self.root, &git_paths)?;
        let git_paths = exclude_removed_repositories(git_paths, &prepared.plan);

        let vault = self.vault()?;
        let opened = self.open_journal(&prepared, &purpose, extra_mutations)?;
        // Taken only after the journal is written: the locks of a process that dies are found through its journal.
        let git_locks = match GitLocks::acquire(&self.root, &git_paths, opened.operation.id) {
            Ok(locks) => locks,
            Err(error) => {
                self.store().commit(None, &revert_mutations(&opened.operation))?;
                return Err(error);
            }
        };
        let source = StoreSource(self.store());
        let applier = Applier::new(
            &self.root,
            &source,
            vault.as_ref(),
            &opened.operation.id.short(),
            self.engine.threads,
        )?;
        let mut outcomes = match applier.apply(&prepared.plan.changes, self.engine.progress.as_deref()) {
            Ok(outcomes) => outcomes,
            Err(failure) => return Err(self.roll_back(&opened.operation, &prepared.plan, *failure)),
        };
        self.revert_partial_databases(&opened.operation, &prepared.plan, &mut outcomes)?;
        git_locks.release();
        let mut pairs: Vec<_> = prepared.plan.changes.iter().cloned().zip(outcomes).collect();
        pairs.extend(held_changes);
        let left_alone = &prepared.plan.left_alone;
        let after = self
            .close_journal(
                &opened.operation,
                &prepared.present.state,
                &pairs,
                left_alone,
                prepared.git_target,
            )
            .map_err(|cause| EngineError::Unrecorded { cause: Box::new(cause) })?;
        Ok(RewindReport {
            operation: Operation { status: OpStatus::Done, number: opened.op_number, ..opened.operation },
            before: opened.before_number,
            after,
            outcomes: pairs,
            left_alone: planned_skips,
            kept: prepared.kept,
            board: None,
            parts: Vec::new(),
        })
    }

    /// Saves the present state as a step if it differs from the head, and writes the journal.
    fn open_journal(
        &self,
        prepared: &PreparedRewind,
        purpose: &OperationPurpose,
        extra_mutations: Vec<Mutation>,
    ) -> Result<OpenedJournal, EngineError> {
        retry("begin the journal", is_race, || {
            let batch = self.store().begin()?;
            let journal = batch.write(ObjectKind::Plan, &prepared.plan.encode(), None)?;
            let head = match self.head_id()? {
                Some(id) => self.store().step(id)?,
                None => None,
            };
            let at = self.engine.env.now();
            let mut mutations = extra_mutations.clone();
            let new_step = StepId::from_bytes(self.engine.env.fresh_id());
            let (step_before, known_number) = match &head {
                Some(head)
                    if self.has_same_files(head, &prepared.present)?
                        && self.keeps_conversation(head, prepared)? =>
                {
                    (head.step.id, Some(head.step.number))
                }
                _ => {
                    let id = StepId::from_bytes(self.engine.env.fresh_id());
                    let parent = head.as_ref().map(|head| head.step.id);
                    let authors = self.store_authors(&*batch, &prepared.present.state)?;
                    let step = Step {
                        id,
                        session: self.session.id,
                        number: 0,
                        parent,
                        kind: StepKind::Checkpoint,
                        at,
                        state: prepared.present.hash,
                        summary: format!("before {}", prepared.summary),
                        meta: StepMeta { detail: authors.map(ValueRoot::from), ..StepMeta::default() },
                    };
                    mutations.push(Mutation::SetRef { name: self.head_ref(), expected: parent, value: id });
                    mutations.push(Mutation::AppendStep {
                        step,
                        annotation: Annotation::default(),
                        trigger: Some(Trigger::Automatic),
                    });
                    (id, None)
                }
            };
            let moved = StateTransition {
                before: step_before,
                after: new_step,
                onto: prepared.new_parent.unwrap_or(step_before),
                git: prepared.git,
                detail: prepared.detail,
                branches: prepared.branches.clone(),
                by: prepared.requested_by,
                conversation_from: prepared.conversation_from,
                parts: prepared.part_steps.clone(),
            };
            let action = match purpose {
                OperationPurpose::Rewind => OperationAction::Rewind { moved },
                OperationPurpose::Undo(op) => OperationAction::Undo { op: *op, moved: Some(moved) },
                OperationPurpose::Redo(op) => OperationAction::Redo { op: *op, moved: Some(moved) },
            };
            let operation = Operation {
                status: OpStatus::Applying,
                journal: Some(journal),
                ..self.new_operation(prepared.summary.clone(), action)
            };
            mutations.push(Mutation::AppendOp(operation.clone()));
            let receipt = self.store().commit(Some(batch.finish()?), &mutations)?;
            let before_number = known_number.or(receipt.steps.first().copied()).unwrap_or_default();
            let op_number = receipt.ops.first().copied().unwrap_or_default();
            Ok(OpenedJournal { operation, before_number, op_number })
        })
    }

    /// Whether the head has the same files and git state as the present.
    fn has_same_files(&self, head: &StepRow, present: &PresentState) -> Result<bool, EngineError> {
        if head.step.state == present.hash {
            return Ok(true);
        }
        if head.purged {
            return Ok(false);
        }
        let state = self.load_state(head)?;
        Ok(state.files == present.state.files && state.git == present.state.git)
    }

    /// Whether an undo finds the conversation that there is now in the state of the head. Only a rewind of the conversation
    /// needs that; a switch stores the conversation of the branch that is left.
    fn keeps_conversation(&self, head: &StepRow, prepared: &PreparedRewind) -> Result<bool, EngineError> {
        if prepared.conversation_from.is_none() || prepared.branches.is_some() || head.purged {
            return Ok(true);
        }
        Ok(self.load_state(head)?.conversation == prepared.present.state.conversation)
    }

    /// Records the reached state and closes the journal. Returns the number of the new step.
    fn close_journal(
        &self,
        operation: &Operation,
        present: &WorkspaceState,
        outcomes: &[(PlannedChange, ChangeOutcome)],
        left_alone: &[SkippedPath],
        git_target: Option<GitState>,
    ) -> Result<u64, EngineError> {
        let Some(moved) = operation.action.moved().cloned() else { return Ok(0) };
        retry("record what was done", is_race, || {
            let batch = self.store().begin()?;
            let mut state = self.compute_reached_state(&*batch, present, outcomes, git_target.as_ref())?;
            if !moved.parts.is_empty() {
                self.fill_session_slots(&mut state)?;
            }
            if let Some(source) =
                moved.conversation_from.map(|id| self.store().step(id)).transpose()?.flatten()
            {
                let source_state = WorkspaceState::load(self.store(), source.step.state)?;
                state = WorkspaceState { files: state.files, git: state.git, ..source_state };
            }
            self.fill_moved_slots(&mut state, &moved.parts)?;
            let hash = batch.write(ObjectKind::State, &state.encode(), None)?;
            let head = self.head_id()?;
            let step = Step {
                id: moved.after,
                session: self.session.id,
                number: 0,
                parent: Some(moved.onto),
                kind: StepKind::Rewind,
                at: self.engine.env.now(),
                state: hash,
                summary: operation.summary.clone(),
                meta: StepMeta {
                    detail: self
                        .store_reached_detail(&*batch, &moved, outcomes, left_alone)?
                        .map(ValueRoot::from),
                    ..StepMeta::default()
                },
            };
            let mut mutations = vec![
                Mutation::SetRef { name: self.head_ref(), expected: head, value: moved.after },
                Mutation::AppendStep {
                    step,
                    annotation: Annotation::default(),
                    trigger: Some(Trigger::Automatic),
                },
                Mutation::SetOpStatus { op: operation.id, status: OpStatus::Done },
            ];
            if let Some((source, entered_branch)) = &moved.branches {
                mutations.extend(self.branch_switch_mutations(
                    source,
                    entered_branch,
                    moved.before,
                    moved.after,
                )?);
                mutations.extend(self.conversation_ref_mutation(source)?);
            }
            let receipt = self.store().commit(Some(batch.finish()?), &mutations)?;
            Ok(receipt.steps.first().copied().unwrap_or_default())
        })
    }

    /// Returns the detail record of the reached step: the changes it took back, without those that were left alone after all,
    /// and the step its conversation comes from.
    fn store_reached_detail(
        &self,
        batch: &dyn ObjectBatch,
        moved: &StateTransition,
        outcomes: &[(PlannedChange, ChangeOutcome)],
        left_alone: &[SkippedPath],
    ) -> Result<Option<Hash>, EngineError> {
        let skipped_paths: Vec<&RelPath> = outcomes
            .iter()
            .filter(|(_, outcome)| *outcome != ChangeOutcome::Done)
            .map(|(change, _)| &change.path)
            .chain(left_alone.iter().map(|skipped_paths| &skipped_paths.path))
            .collect();
        if skipped_paths.is_empty() && moved.conversation_from.is_none() {
            return Ok(moved.detail);
        }
        let recorded_detail =
            moved.detail.map(|hash| stepback_model::json::load(self.store(), hash)).transpose()?;
        let Some(mut value) =
            recorded_detail.or_else(|| moved.conversation_from.map(|_| serde_json::json!({})))
        else {
            return Ok(None);
        };
        crate::changes::remove_taken_back_marks(&mut value, |path| {
            skipped_paths.iter().any(|skipped_paths| skipped_paths.as_bytes() == path)
        });
        if let Some(from) = moved.conversation_from {
            value["conversation_from"] = serde_json::json!(from);
        }
        Ok(Some(stepback_model::json::store(batch, &value, None)?))
    }

    /// Returns the state after a plan was applied as far as `outcomes` say.
    fn compute_reached_state(
        &self,
        batch: &dyn ObjectBatch,
        present: &WorkspaceState,
        outcomes: &[(PlannedChange, ChangeOutcome)],
        git_target: Option<&GitState>,
    ) -> Result<WorkspaceState, EngineError> {
        let source = StoreSource(self.store());
        let applied_edits = |in_git: bool| {
            outcomes.iter().filter_map(move |(change, outcome)| {
                let inside = git_dir_of_change(change).is_some();
                (*outcome == ChangeOutcome::Done && inside == in_git)
                    .then(|| (change.path.clone(), change.then.clone()))
            })
        };
        // A git directory itself is recorded among the files as skipped, as a scan records it.
        let marks = outcomes.iter().filter_map(|(change, outcome)| {
            let root = git_dir_of_change(change).filter(|root| *root == change.path)?;
            let mark = change.then.as_ref().map(|_| TreeNode::Skipped { reason: SkipReason::GitDir });
            (*outcome == ChangeOutcome::Done).then_some((root, mark))
        });
        let mut state = *present;
        let mut edits = applied_edits(false).chain(marks).peekable();
        if edits.peek().is_some() {
            state.files = Some(tree_edit::apply_edits(&source, batch, present.files, edits)?);
        }
        if applied_edits(true).next().is_some() {
            state.git = self.store_reached_git(batch, present, applied_edits(true).collect(), git_target)?;
        }
        Ok(state)
    }

    fn store_reached_git(
        &self,
        batch: &dyn ObjectBatch,
        present: &WorkspaceState,
        edits: Vec<(RelPath, Option<TreeNode>)>,
        target: Option<&GitState>,
    ) -> Result<Option<Hash>, EngineError> {
        let source = StoreSource(self.store());
        let mut git = match present.git {
            Some(hash) => GitState::load(&source, hash)?,
            None => GitState::default(),
        };
        let mut paths: Vec<RelPath> = edits.iter().filter_map(|(path, _)| git_dir_prefix(path)).collect();
        paths.dedup();
        for root in paths {
            if edits.iter().any(|(path, node)| *path == root && node.is_none()) {
                git.repositories.retain(|repository| repository.path != root.as_bytes());
                continue;
            }
            let inner_edits = edits.iter().filter(|(path, _)| path.starts_with(&root) && *path != root);
            let relative = inner_edits.filter_map(|(path, node)| {
                let rest = path.as_bytes().get(root.as_bytes().len() + 1..)?;
                Some((RelPath::parse(rest).ok()?, node.clone()))
            });
            let old = git.get(root.as_bytes()).cloned();
            let tree = tree_edit::apply_edits(
                &source,
                batch,
                old.as_ref().map(|repository| repository.tree),
                relative,
            )?;
            let summary = target.and_then(|target| target.get(root.as_bytes())).or(old.as_ref());
            let summary = summary.map(|repository| repository.summary.clone()).unwrap_or_default();
            git.repositories.retain(|repository| repository.path != root.as_bytes());
            git.repositories.push(stepback_model::state::GitSummary {
                path: root.as_bytes().to_vec(),
                tree,
                summary,
            });
        }
        if git.repositories.is_empty() {
            return Ok(None);
        }
        git.repositories.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Some(batch.write(ObjectKind::Git, &git.encode(), None)?))
    }

    /// Reverts databases that were restored only in part because another process wrote to them meanwhile.
    fn revert_partial_databases(
        &self,
        operation: &Operation,
        plan: &RewindPlan,
        outcomes: &mut [ChangeOutcome],
    ) -> Result<(), EngineError> {
        self.keep_databases_whole(&plan.changes, outcomes, |inverse| {
            let source = StoreSource(self.store());
            let tag = format!("{}d", operation.id.short());
            let applier = Applier::new(&self.root, &source, None, &tag, 1)?;
            applier.clean_up(inverse)?;
            applier.apply(inverse, None).map_err(|failure| EngineError::from(failure.error))
        })
    }

    /// Takes back the changes that a failed application made.
    fn roll_back(&self, operation: &Operation, plan: &RewindPlan, failure: ApplyFailure) -> EngineError {
        let cause = Box::new(EngineError::from(failure.error));
        match self.revert_plan(operation, plan) {
            Ok(()) => EngineError::RolledBack { cause },
            Err(revert) => EngineError::Unfinished { cause, revert: Box::new(revert) },
        }
    }

    fn revert_plan(&self, operation: &Operation, plan: &RewindPlan) -> Result<(), EngineError> {
        let source = StoreSource(self.store());
        let vault = self.vault()?;
        let tag = operation.id.short();
        Applier::new(&self.root, &source, vault.as_ref(), &tag, 1)?.clean_up(&plan.changes)?;
        let inverse: Vec<PlannedChange> = plan.changes.iter().map(PlannedChange::inverted).collect();
        let applier = Applier::new(&self.root, &source, vault.as_ref(), &format!("{tag}r"), 1)?;
        applier.apply(&inverse, None).map_err(|failure| EngineError::from(failure.error))?;
        self.store().commit(None, &revert_mutations(operation))?;
        Ok(())
    }
}

struct OpenedJournal {
    operation: Operation,
    before_number: u64,
    op_number: u64,
}

/// Returns the mutations that mark an operation as reverted, and that restore the undone flag of the operation it undid or
/// redid.
fn revert_mutations(operation: &Operation) -> Vec<Mutation> {
    let mut mutations = vec![Mutation::SetOpStatus { op: operation.id, status: OpStatus::Reverted }];
    match &operation.action {
        OperationAction::Undo { op, .. } => mutations.push(Mutation::SetOpUndone { op: *op, undone: false }),
        OperationAction::Redo { op, .. } => mutations.push(Mutation::SetOpUndone { op: *op, undone: true }),
        _ => {}
    }
    mutations
}

/// Returns the git directory that a change is in. A `.git` file, as in submodules and linked worktrees, is an ordinary file.
fn git_dir_of_change(change: &PlannedChange) -> Option<RelPath> {
    let is_dir = [&change.now, &change.then].into_iter().flatten().any(TreeNode::is_dir);
    git_dir_prefix(&change.path).filter(|root| *root != change.path || is_dir)
}

/// Returns the part of `path` up to the first `.git`.
fn git_dir_prefix(path: &RelPath) -> Option<RelPath> {
    let mut root = RelPath::root();
    for name in path.components() {
        root = root.join(name);
        if name == b".git" {
            return Some(root);
        }
    }
    None
}

/// Returns the repositories that the plan does not remove. A lock file inside would keep the directory from being removed.
fn exclude_removed_repositories(mut paths: Vec<RelPath>, plan: &RewindPlan) -> Vec<RelPath> {
    let goes =
        |path: &RelPath| plan.changes.iter().any(|change| change.path == *path && change.then.is_none());
    paths.retain(|path| !goes(path));
    paths
}

fn touched_repositories(plan: &RewindPlan) -> Vec<RelPath> {
    let mut paths: Vec<RelPath> = plan.changes.iter().filter_map(git_dir_of_change).collect();
    paths.sort();
    paths.dedup();
    paths
}
