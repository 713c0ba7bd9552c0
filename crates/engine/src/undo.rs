//! Undo and redo of operations: everything that stepback itself did to files, checkpoints, branches and the list of changes.

use stepback_model::hash::Hash;
use stepback_model::ids::{OpId, StepId};
use stepback_model::object::ObjectError;
use stepback_model::path::RelPath;
use stepback_model::plan::{How, PlannedChange, RewindPlan, SkippedPath};
use stepback_model::point::is_id_prefix;
use stepback_model::record::StepRow;
use stepback_model::record::{OpStatus, Operation, OperationAction, SessionInfo, StateTransition};
use stepback_model::state::GitState;
use stepback_model::tree::{SkipReason, TreeNode};
use stepback_store::Mutation;

use crate::databases::add_sidecar_files;
use crate::diff;
use crate::error::EngineError;
use crate::git_restore::{keep_filled_dirs, removes_newer_object};
use crate::journal::OperationPurpose;
use crate::moves::MoveReport;
use crate::revert::{Reverter, TreeLookup, is_same_node};
use crate::rewind::{PreparedRewind, RewindReport};
use crate::workspace::{PresentState, StoreSource, Workspace, describe_checkpoint};

/// A planned undo or redo.
pub enum Reversal {
    /// Files change: a plan to confirm first.
    Files {
        /// The plan to apply.
        prepared: Box<PreparedRewind>,
        /// The operation that is undone or redone.
        operation: Operation,
    },
    /// Only the log changes.
    Log {
        /// The operation that is undone or redone.
        operation: Operation,
        /// A one-line description.
        summary: String,
    },
}

/// The direction of a reversal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UndoDirection {
    /// Undo an operation.
    Undo,
    /// Redo an operation that was undone.
    Redo,
}

impl Workspace {
    /// Returns the operations of the workspace, newest first.
    pub fn operations(&self) -> Result<Vec<Operation>, EngineError> {
        Ok(self.store().operations(self.record.id)?)
    }

    /// Finds the operation with this number (`12`, `#12`), or the only one whose id starts with the text. As in points, digits
    /// alone are a number: an id needs a letter, or the prefix `id:`.
    pub fn find_operation(&self, text: &str) -> Result<OpId, EngineError> {
        let operations = self.operations()?;
        let unknown = |what: String| EngineError::Point(what);
        if let Ok(number) = text.strip_prefix('#').unwrap_or(text).parse::<u64>() {
            let newest = operations.first().map_or(0, |op| op.number);
            let id = operations.iter().find(|op| op.number == number).map(|op| op.id);
            return id
                .ok_or_else(|| unknown(format!("there is no operation {number} (the last is {newest})")));
        }
        let prefix = match text.strip_prefix("id:") {
            Some(prefix) if !prefix.is_empty() => prefix,
            None if is_id_prefix(text) => text,
            _ => return Err(unknown(format!("there is no operation {text}"))),
        };
        let prefix = prefix.to_ascii_lowercase();
        let mut id = operations.iter().filter(|op| op.id.to_string().starts_with(&prefix));
        match (id.next(), id.next()) {
            (Some(op), None) => Ok(op.id),
            (None, _) => Err(unknown(format!("there is no operation {text}"))),
            (Some(_), Some(_)) => Err(unknown(format!("several operations start with {prefix}"))),
        }
    }

    /// Plans the undo of `op`, or of the newest operation in force.
    pub fn prepare_undo(&self, op: Option<OpId>) -> Result<Reversal, EngineError> {
        let operations = self.operations()?;
        let operation = match op {
            None => operations
                .iter()
                .find(|op| is_in_force(op))
                .ok_or(EngineError::NothingToUndo("undo"))?
                .clone(),
            Some(id) => {
                let undoable =
                    operations.iter().find(|op| op.id == id).ok_or(EngineError::NothingToUndo("undo"))?;
                if let OperationAction::Prune { freed: true, .. } = undoable.action {
                    return Err(EngineError::CannotUndo(format!(
                        "operation {} ({}) cannot be undone: it freed the files of its checkpoints",
                        undoable.number, undoable.summary
                    )));
                }
                if !is_in_force(undoable) {
                    return Err(EngineError::CannotUndo(format!(
                        "operation {} ({}) cannot be undone: it was undone or reverted already, or is itself an undo",
                        undoable.number, undoable.summary
                    )));
                }
                undoable.clone()
            }
        };
        let summary = format!("undo of operation {} ({})", operation.number, operation.summary);
        match operation.action.moved().cloned() {
            Some(moved) => {
                // If the operation was redone since, the redo is the move that has to be reversed.
                let moved = find_latest_redo_move(&operations, operation.id).cloned().unwrap_or(moved);
                let conversation = moved
                    .conversation_from
                    .map(|_| self.conversation_before(&moved, &operations))
                    .transpose()?;
                self.prepare_reversal(moved, conversation, summary, &operations)
                    .map(|prepared| Reversal::Files { prepared: Box::new(prepared), operation })
            }
            None => {
                self.check_log_reversal(&operation, UndoDirection::Undo)?;
                Ok(Reversal::Log { operation, summary })
            }
        }
    }

    /// Plans the redo of the operation that was undone last.
    pub fn prepare_redo(&self) -> Result<Reversal, EngineError> {
        let operations = self.operations()?;
        let undo = find_last_undo(&operations).ok_or(EngineError::NothingToUndo("redo"))?;
        let OperationAction::Undo { op: target, moved } = &undo.action else {
            return Err(EngineError::NothingToUndo("redo"));
        };
        let operation =
            operations.iter().find(|op| op.id == *target).ok_or(EngineError::NothingToUndo("redo"))?.clone();
        let summary = format!("redo of operation {} ({})", operation.number, operation.summary);
        match moved {
            Some(moved) => {
                // The conversation goes where the operation took it, whatever was recorded since.
                let conversation = operation.action.moved().and_then(|moved| moved.conversation_from);
                self.prepare_reversal(moved.clone(), conversation, summary, &operations)
                    .map(|prepared| Reversal::Files { prepared: Box::new(prepared), operation })
            }
            None => {
                self.check_log_reversal(&operation, UndoDirection::Redo)?;
                Ok(Reversal::Log { operation, summary })
            }
        }
    }

    /// Carries out the planned reversal.
    pub fn apply_reversal(
        &self,
        reversal: Reversal,
        direction: UndoDirection,
    ) -> Result<MoveReport, EngineError> {
        let undone = direction == UndoDirection::Undo;
        match reversal {
            Reversal::Files { mut prepared, operation } => {
                let extra_mutations = vec![Mutation::SetOpUndone { op: operation.id, undone }];
                let purpose = match direction {
                    UndoDirection::Undo => OperationPurpose::Undo(operation.id),
                    UndoDirection::Redo => OperationPurpose::Redo(operation.id),
                };
                let reversed = std::mem::take(&mut prepared.reversed_steps);
                let report = self.apply_with_parts(
                    *prepared,
                    |workspace| workspace.reverse_part_steps(&reversed),
                    |workspace, prepared| workspace.apply_with_purpose(prepared, purpose, extra_mutations),
                )?;
                let board = self.move_board_with_operation(&operation)?.or(report.board);
                Ok(MoveReport::Files(Box::new(RewindReport { board, ..report })))
            }
            Reversal::Log { operation, summary } => {
                // A concurrent prune must not free the checkpoints that are about to be shown again.
                let _lock = self.lock_exclusive()?;
                self.check_can_reverse(operation.id, direction)?;
                self.check_log_reversal(&operation, direction)?;
                let id = operation.id;
                let action = match direction {
                    UndoDirection::Undo => OperationAction::Undo { op: id, moved: None },
                    UndoDirection::Redo => OperationAction::Redo { op: id, moved: None },
                };
                let mut record = self.new_operation(summary, action);
                let mut mutations = match self.reverse_rerun_deletion(&operation, direction)? {
                    Some(mutations) => mutations,
                    None => log_reversal_mutations(self, &operation, &record, direction),
                };
                if let OperationAction::BranchRename { from, to, .. } = &operation.action {
                    let (now, then) = if direction == UndoDirection::Undo { (to, from) } else { (from, to) };
                    mutations.extend(self.rename_directory_mutations(now, then)?);
                }
                mutations.push(Mutation::SetOpUndone { op: id, undone });
                mutations.push(Mutation::AppendOp(record.clone()));
                let receipt = self.store().commit(None, &mutations)?;
                record.number = receipt.ops.first().copied().unwrap_or_default();
                Ok(MoveReport::Log(Box::new(record)))
            }
        }
    }

    /// Fails if another process undid or redid the operation since the plan was made. Called under the lock of the workspace.
    pub(crate) fn check_can_reverse(
        &self,
        operation: OpId,
        direction: UndoDirection,
    ) -> Result<(), EngineError> {
        let operations = self.operations()?;
        let Some(operation) = operations.iter().find(|known| known.id == operation) else { return Ok(()) };
        let (is_ready, done) = match direction {
            UndoDirection::Undo => (is_in_force(operation), "undone"),
            UndoDirection::Redo => (operation.undone, "redone"),
        };
        match is_ready {
            true => Ok(()),
            false => Err(EngineError::CannotUndo(format!(
                "operation {} ({}) was {done} by another process meanwhile",
                operation.number, operation.summary
            ))),
        }
    }

    /// Fails if checkpoints whose files were freed would be shown again.
    fn check_log_reversal(&self, operation: &Operation, direction: UndoDirection) -> Result<(), EngineError> {
        let steps = match (&operation.action, direction) {
            (
                OperationAction::CheckpointDelete { steps } | OperationAction::Prune { steps, .. },
                UndoDirection::Undo,
            ) => steps.as_slice(),
            (OperationAction::CheckpointCreate { step }, UndoDirection::Redo) => std::slice::from_ref(step),
            _ => return Ok(()),
        };
        for step in steps {
            if let Some(stored) = self.store().step(*step)?
                && stored.purged
            {
                return Err(EngineError::CannotUndo(format!(
                    "{} cannot be restored: its files were freed by a later prune",
                    describe_checkpoint(&stored)
                )));
            }
        }
        Ok(())
    }

    /// Plans to take back a move: paths that it changed and that were not changed since go back; later edits are merged or
    /// kept. The conversation becomes that of `conversation_from`.
    fn prepare_reversal(
        &self,
        moved: StateTransition,
        conversation_from: Option<StepId>,
        summary: String,
        operations: &[Operation],
    ) -> Result<PreparedRewind, EngineError> {
        let lock = self.lock_exclusive()?;
        let resumed = self.find_resumed_step(&moved, operations)?;
        let find = |id| -> Result<StepRow, EngineError> {
            self.store().step(id)?.ok_or_else(|| EngineError::CannotUndo("its steps no longer exist".into()))
        };
        let (earlier, later) =
            (self.load_state(&find(moved.before)?)?, self.load_state(&find(moved.after)?)?);
        let source = StoreSource(self.store());
        let mut effect = diff::compare_trees(&source, earlier.files, later.files)?;
        // The git slot of the state, not the tree, says whether a git directory exists.
        let marks_git =
            |node: &Option<TreeNode>| matches!(node, Some(TreeNode::Skipped { reason: SkipReason::GitDir }));
        effect.retain(|change| !marks_git(&change.before) && !marks_git(&change.after));
        let present = self.scan_for_reversal(&effect, &earlier, moved.git)?;
        let batch = self.store().begin()?;
        let mut reverter = Reverter::new(&source, &*batch, present.state.files);
        for change in &effect {
            reverter.take_back(change)?;
        }
        let mut plan = reverter.finish(&mut TreeLookup::new(&source, earlier.files))?;
        // Paths that the move did not change and that differ from the earlier state were changed later.
        self.complete_databases(&mut plan, present.state.files, &|_| earlier.files, &|_| true)?;
        let finished = batch.finish()?;
        self.store().commit(Some(finished), &[])?;
        let mut warnings = Vec::new();
        let mut git_target = None;
        if moved.git {
            git_target = earlier.git.map(|hash| GitState::load(&source, hash)).transpose()?;
            self.plan_git_reversal(&earlier, &later, &present, &mut plan, &mut warnings)?;
        }
        plan.changes.sort_by(|a, b| a.path.cmp_by_components(&b.path));
        let unchanged_because = plan.is_empty().then(|| match plan.left_alone.is_empty() {
            true => "the files are already as they were before it".to_string(),
            false => "what it changed is skipped for the reasons listed".to_string(),
        });
        // If the move was made on another branch, its steps are not ancestors of this head.
        let line = self.ancestry(&self.head()?)?;
        let is_here = line.iter().any(|stored| stored.step.id == moved.after);
        self.check_open_files(PreparedRewind {
            plan,
            warnings,
            summary,
            kept: Vec::new(),
            everything_changes: Vec::new(),
            conflicts: Vec::new(),
            unchanged_because,
            git: moved.git,
            parts: Vec::new(),
            requested_by: None,
            new_parent: (is_here || moved.branches.is_some()).then_some(resumed),
            present,
            git_target,
            detail: None,
            branches: moved.branches.clone().map(|(from, to)| (to, from)),
            conversation_from,
            part_steps: Vec::new(),
            reversed_steps: moved.parts,
            lock: Some(lock),
            gc_generation: self.store().gc_generation()?,
            held: Vec::new(),
            forced: false,
        })
    }

    /// Returns the present state. Scans only the changed paths if they are few.
    fn scan_for_reversal(
        &self,
        effect: &[stepback_model::change::PathChange],
        earlier: &stepback_model::state::WorkspaceState,
        git: bool,
    ) -> Result<PresentState, EngineError> {
        const MAX_PARTIAL_SCAN_PATHS: usize = 100;
        if !git && effect.len() <= MAX_PARTIAL_SCAN_PATHS {
            let paths: Vec<_> = effect.iter().map(|change| change.path.clone()).collect();
            if let Some(present) = self.scan_paths(&add_sidecar_files(paths), earlier)? {
                return Ok(present);
            }
        }
        self.scan_and_commit(git)
    }

    /// Adds the changes of git directories to the plan. Each directory goes back whole or not at all: a moved branch with an
    /// old index would be worse than either.
    fn plan_git_reversal(
        &self,
        earlier: &stepback_model::state::WorkspaceState,
        later: &stepback_model::state::WorkspaceState,
        present: &PresentState,
        plan: &mut RewindPlan,
        warnings: &mut Vec<String>,
    ) -> Result<(), EngineError> {
        let source = StoreSource(self.store());
        let load =
            |hash: Option<_>| hash.map_or(Ok(GitState::default()), |hash| GitState::load(&source, hash));
        let now = load(present.state.git).map_err(|error: ObjectError| EngineError::from(error))?;
        let changes_back = diff::compare_git(&source, later, earlier)?;
        let since = diff::compare_git(&source, later, &present.state)?;
        let wanted_git = load(earlier.git)?;
        let repositories =
            load(later.git)?.repositories.into_iter().chain(wanted_git.repositories.iter().cloned());
        let mut paths: Vec<Vec<u8>> = repositories.map(|repository| repository.path).collect();
        paths.sort();
        paths.dedup();
        for path in paths {
            let Ok(root) = stepback_model::path::RelPath::parse(path.clone()) else { continue };
            let decides = |path: &stepback_model::path::RelPath| {
                let rest = path.as_bytes().get(root.as_bytes().len() + 1..).unwrap_or_default();
                rest == b"HEAD" || rest == b"packed-refs" || rest.starts_with(b"refs/")
            };
            let moved_since = since.iter().any(|change| {
                change.path.starts_with(&root)
                    && decides(&change.path)
                    && !is_dir_change(&change.before, &change.after)
            });
            if moved_since && now.get(&path).is_some() {
                plan.left_alone
                    .push(SkippedPath::conflict(root, "its branches moved since; it is not changed"));
                continue;
            }
            if let (Some(current_git), None) = (now.get(&path), wanted_git.get(&path)) {
                plan_repository_removal(&source, &root, current_git.tree, plan)?;
                continue;
            }
            let mut tree = TreeLookup::new(&source, now.get(&path).map(|repository| repository.tree));
            for change in changes_back.iter().filter(|change| change.path.starts_with(&root)) {
                let rest = change.path.as_bytes().get(root.as_bytes().len() + 1..);
                let current = match rest.and_then(|rest| stepback_model::path::RelPath::parse(rest).ok()) {
                    Some(relative) => tree.get(&relative)?,
                    None => {
                        now.get(&path).map(|repository| TreeNode::Dir { mode: 0o755, tree: repository.tree })
                    }
                };
                let removes_object =
                    removes_newer_object(&change.path, current.as_ref(), change.after.as_ref());
                if is_same_node(&current, &change.after) || removes_object {
                    continue;
                }
                if !is_same_node(&current, &change.before) {
                    warnings
                        .push(format!("{} changed since; the current version is saved first", change.path));
                }
                plan.changes.push(stepback_model::plan::PlannedChange {
                    path: change.path.clone(),
                    now: current,
                    then: change.after.clone(),
                    how: stepback_model::plan::How::Restored,
                });
            }
            keep_filled_dirs(&source, &root, plan)?;
        }
        self.check_git_objects(plan, warnings)
    }
}

/// Plans to remove the git directory `root`, which a rewind had brought back. All of it is saved with the present, and a part
/// of it would be useless; if any file in it is not saved, the whole directory stays.
fn plan_repository_removal(
    source: &StoreSource<'_>,
    root: &RelPath,
    tree: Hash,
    plan: &mut RewindPlan,
) -> Result<(), ObjectError> {
    let inside = diff::compare_trees(source, Some(tree), None)?;
    if inside.iter().any(|change| !change.before.as_ref().is_none_or(TreeNode::is_stored)) {
        plan.left_alone.push(SkippedPath::uncovered(root.clone(), "it contains files that are not covered"));
        return Ok(());
    }
    let removed =
        |path: RelPath, now: TreeNode| PlannedChange { path, now: Some(now), then: None, how: How::Restored };
    plan.changes.push(removed(root.clone(), TreeNode::Dir { mode: 0o755, tree }));
    for change in inside {
        let mut path = root.clone();
        change.path.components().for_each(|name| path = path.join(name));
        plan.changes.extend(change.before.map(|now| removed(path, now)));
    }
    Ok(())
}

fn is_dir_change(before: &Option<TreeNode>, after: &Option<TreeNode>) -> bool {
    before.as_ref().or(after.as_ref()).is_some_and(TreeNode::is_dir)
}

/// Whether an operation can be undone: it took effect, was not undone, is not an undo or redo itself, and did not free what it
/// took away.
pub(crate) fn is_in_force(op: &Operation) -> bool {
    !op.undone
        && op.status == OpStatus::Done
        && !matches!(
            op.action,
            OperationAction::Undo { .. }
                | OperationAction::Redo { .. }
                | OperationAction::Prune { freed: true, .. }
        )
}

/// Returns the newest undo that was not redone.
pub(crate) fn find_last_undo(operations: &[Operation]) -> Option<&Operation> {
    let undone = |id: &OpId| operations.iter().any(|op| op.id == *id && op.undone);
    operations.iter().find(|op| {
        op.status == OpStatus::Done && matches!(&op.action, OperationAction::Undo { op, .. } if undone(op))
    })
}

/// Returns the move of the newest redo of an operation, which an undo of it must reverse.
pub(crate) fn find_latest_redo_move(operations: &[Operation], id: OpId) -> Option<&StateTransition> {
    operations.iter().find_map(|op| match &op.action {
        OperationAction::Redo { op: target, moved } if *target == id && op.status == OpStatus::Done => {
            moved.as_ref()
        }
        _ => None,
    })
}

/// Returns the changes to the log that undo or redo an operation that changed no files.
fn log_reversal_mutations(
    workspace: &Workspace,
    operation: &Operation,
    record: &Operation,
    direction: UndoDirection,
) -> Vec<Mutation> {
    let undo = direction == UndoDirection::Undo;
    let drop = |name: &str| Mutation::DropRef { name: workspace.branch_ref(name) };
    let set = |name: &str, step: &StepId| Mutation::SetRef {
        name: workspace.branch_ref(name),
        expected: None,
        value: *step,
    };
    vec![match &operation.action {
        OperationAction::BranchCreate { name, .. } if undo => drop(name),
        OperationAction::BranchDelete { name, .. } if !undo => drop(name),
        OperationAction::BranchCreate { name, step, .. } | OperationAction::BranchDelete { name, step } => {
            set(name, step)
        }
        OperationAction::BranchRename { from: old_name, to: new_name, step } => {
            let (removed_name, restored_name) =
                if undo { (new_name, old_name) } else { (old_name, new_name) };
            return vec![drop(removed_name), set(restored_name, step)];
        }
        OperationAction::ChangesClear { before, after } => {
            let cleared = if undo { *before } else { Some(*after) };
            let info = SessionInfo { cleared, ..workspace.session.info.clone() };
            Mutation::SetSessionInfo { session: workspace.session.id, info: Box::new(info) }
        }
        OperationAction::CheckpointCreate { step } => {
            Mutation::SetHidden { steps: vec![*step], by: undo.then_some(record.id) }
        }
        OperationAction::CheckpointAnnotate { step, before, after } => {
            Mutation::Annotate { step: *step, annotation: if undo { before.clone() } else { after.clone() } }
        }
        OperationAction::CheckpointDelete { steps } | OperationAction::Prune { steps, .. } => {
            Mutation::SetHidden { steps: steps.clone(), by: (!undo).then_some(operation.id) }
        }
        // The status of a branch follows from the operations that are in force. The others change files or are reversals
        // themselves, so they are not passed here.
        OperationAction::BranchStatus { .. }
        | OperationAction::Rewind { .. }
        | OperationAction::Undo { .. }
        | OperationAction::Redo { .. } => Mutation::SetOpUndone { op: operation.id, undone: undo },
    }]
}
