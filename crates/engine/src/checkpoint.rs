//! Creates, lists, annotates and deletes checkpoints: recorded states of the workspace to which a rewind can go back.
//!
//! How a checkpoint is made, by request here and for an agent's report in [`crate::recorder`]:
//!
//! 1. The workspace lock is taken, shared: other processes may scan at the same time, none may write.
//! 2. `Store::begin` opens a batch, which locks a pack when it has more than 16 KiB.
//! 3. `Scan::run` asks the watcher, if one runs, which directories may have changed since the stat cache was written,
//!    and walks only those; otherwise it walks the tree on several threads. What does not match the stat cache is read,
//!    hashed and written to the batch; git's packs are copied into the vault.
//! 4. Trees are built from the bottom up, for directories where something changed; then the git slot, then the state.
//! 5. Finishing the batch makes the pack durable or, if it is small, starts the write.
//! 6. One transaction names the new objects, appends the step and the operation, moves the head if it is unchanged, and
//!    waits for the pack before it commits. If a collection ran or another process moved the head, the engine scans
//!    again.
//! 7. Only now is the stat cache written: a cached hash promises that its object is stored.

use stepback_model::hash::Hash;
use stepback_model::ids::{OpId, StepId};
use stepback_model::json::ValueRoot;
use stepback_model::list;
use stepback_model::path::RelPath;
use stepback_model::plan::SkippedPath;
use stepback_model::record::StepRow;
use stepback_model::record::{
    Annotation, OpStatus, Operation, OperationAction, Step, StepKind, StepMeta, Trigger,
};
use stepback_model::state::WorkspaceState;
use stepback_model::tree::{Content, Tree, TreeNode};
use stepback_store::Mutation;

use crate::error::EngineError;
use crate::retry::{is_race, retry};
use crate::workspace::{PresentState, ScanMode, StoreSource, Workspace, describe_checkpoint};

/// Longest label or tag, in bytes.
const MAX_LABEL: usize = 200;
/// Longest note, in bytes.
const MAX_NOTE: usize = 10_000;

/// Why a label, a note or a tag is not valid; the string is which of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnnotationError {
    /// It has no visible characters.
    #[error("the {0} is empty")]
    Empty(&'static str),
    /// It is too long.
    #[error("the {part} is longer than {most} bytes")]
    TooLong {
        /// `label`, `note` or `tag`.
        part: &'static str,
        /// The maximum length in bytes.
        most: usize,
    },
    /// A label or a tag has control characters.
    #[error("the {0} contains control characters")]
    ControlCharacters(&'static str),
}

/// Returns `annotation` if its label, note and tags are valid: not empty, not too long, no control characters except in a
/// note.
pub fn validate_annotation(annotation: Annotation) -> Result<Annotation, EngineError> {
    let check_length = |part: &'static str, text: &str, max_bytes: usize| {
        if text.trim().is_empty() {
            return Err(AnnotationError::Empty(part));
        }
        if text.len() > max_bytes {
            return Err(AnnotationError::TooLong { part, most: max_bytes });
        }
        if part != "note" && text.chars().any(char::is_control) {
            return Err(AnnotationError::ControlCharacters(part));
        }
        Ok(())
    };
    annotation.label.iter().try_for_each(|label| check_length("label", label, MAX_LABEL))?;
    annotation.note.iter().try_for_each(|note| check_length("note", note, MAX_NOTE))?;
    annotation.tags.iter().try_for_each(|tag| check_length("tag", tag, MAX_LABEL))?;
    Ok(annotation)
}

/// The result of creating a checkpoint.
#[derive(Debug)]
pub struct Created {
    /// The checkpoint as stored.
    pub stored: StepRow,
    /// Number of files that were read because they had changed.
    pub hashed: u64,
    /// Paths that the checkpoint could not cover, with reasons.
    pub skipped_paths: Vec<SkippedPath>,
}

impl Workspace {
    /// Creates a checkpoint of the workspace as it is now. A manual one is refused with [`EngineError::TooManyManual`] if the
    /// session at work has as many as it may have.
    pub fn create_checkpoint(
        &self,
        annotation: Annotation,
        trigger: Trigger,
    ) -> Result<Created, EngineError> {
        if trigger == Trigger::Manual {
            // Before the scan, which would be in vain.
            self.check_manual_limit()?;
        }
        let _lock = self.lock_shared()?;
        // Each attempt scans again, which is cheap because the processes share the stat cache.
        retry("create the checkpoint", is_race, || {
            let mut detail = None;
            let mut present = self.scan_present_with(ScanMode::Hinted, &mut |batch, state| {
                self.fill_session_slots(state)?;
                detail = self.store_authors(batch, state)?;
                Ok(())
            })?;
            let summary = match &annotation.label {
                Some(label) => format!("checkpoint \"{label}\""),
                None => "checkpoint".to_string(),
            };
            let stored = self.append_checkpoint(&mut present, &annotation, trigger, (&summary, detail))?;
            let PresentState { hashed, skipped_paths: mut troubles, state, .. } = present;
            troubles.extend(self.damaged_paths(&state));
            Ok(Created { stored, hashed, skipped_paths: troubles })
        })
    }

    /// Fails if the session at work has as many manual checkpoints as it may have. Deleted and pruned ones do not count, and
    /// those made before the first step of any agent are the user's own.
    fn check_manual_limit(&self) -> Result<(), EngineError> {
        let Some(limit) = self.engine.max_manual else { return Ok(()) };
        let mut manual = self.checkpoints()?;
        manual.retain(|stored| stored.trigger == Some(Trigger::Manual));
        if manual.len() < limit {
            return Ok(());
        }
        let at_work = self.last_active_session(None)?;
        let mut count = 0;
        for stored in &manual {
            let owner = match stored.step.session == self.session.id {
                true => self.last_active_session(Some(stored.step.number))?.map(|session| session.id),
                false => Some(stored.step.session),
            };
            count += usize::from(owner == at_work.as_ref().map(|session| session.id));
        }
        if count < limit {
            return Ok(());
        }
        let who = match &at_work {
            Some(session) => format!("session {} of {}", session.id.short(), session.agent),
            None => "this workspace".to_owned(),
        };
        Err(EngineError::TooManyManual { who, count, limit })
    }

    /// The paths of a state whose content the store has, but damaged, and could not store again.
    fn damaged_paths(&self, state: &WorkspaceState) -> Vec<SkippedPath> {
        let damaged = self.store().damaged_objects();
        let mut paths = Vec::new();
        let mut stack: Vec<_> = state.files.map(|files| (files, RelPath::root())).into_iter().collect();
        if damaged.is_empty() {
            stack.clear();
        }
        let source = StoreSource(self.store());
        while let Some((tree, path)) = stack.pop() {
            let Ok(tree) = Tree::load(&source, tree) else {
                paths.push(SkippedPath::uncovered(path, "it cannot be restored: the store is damaged"));
                continue;
            };
            for entry in tree.into_entries() {
                let child = path.join(&entry.name);
                let is_damaged = match entry.node {
                    TreeNode::Dir { tree, .. } => {
                        stack.push((tree, child.clone()));
                        false
                    }
                    TreeNode::File { content: Content::Whole(hash), .. } => damaged.contains(&hash),
                    TreeNode::File { content: Content::Chunked(hash), .. } => list::iter(&source, hash)
                        .any(|item| item.map_or(true, |item| damaged.contains(&item.hash))),
                    _ => false,
                };
                if is_damaged {
                    paths.push(SkippedPath::uncovered(child, "it cannot be restored: the store is damaged"));
                }
            }
        }
        paths
    }

    fn append_checkpoint(
        &self,
        present: &mut PresentState,
        annotation: &Annotation,
        trigger: Trigger,
        (summary, detail): (&str, Option<Hash>),
    ) -> Result<StepRow, EngineError> {
        let head = self.head_id()?;
        if trigger == Trigger::Manual {
            // Only now is the count that of this head: another checkpoint since then moves it, and the commit is refused.
            self.check_manual_limit()?;
        }
        let step = Step {
            id: StepId::from_bytes(self.engine.env.fresh_id()),
            session: self.session.id,
            number: 0,
            parent: head,
            kind: StepKind::Checkpoint,
            at: self.engine.env.now(),
            state: present.hash,
            summary: summary.to_string(),
            meta: StepMeta { detail: detail.map(ValueRoot::from), ..StepMeta::default() },
        };
        let operation = self
            .new_operation(format!("create {summary}"), OperationAction::CheckpointCreate { step: step.id });
        let mutations = [
            Mutation::SetRef { name: self.head_ref(), expected: head, value: step.id },
            Mutation::AppendStep {
                step: step.clone(),
                annotation: annotation.clone(),
                trigger: Some(trigger),
            },
            Mutation::AppendOp(operation),
        ];
        let receipt = self.store().commit(present.batch.take(), &mutations)?;
        present.save_stat_cache();
        let number = receipt.steps.first().copied().unwrap_or_default();
        Ok(StepRow {
            step: Step { number, ..step },
            annotation: annotation.clone(),
            trigger: Some(trigger),
            hidden_by: None,
            purged: false,
        })
    }

    /// Returns the checkpoints, newest first, without deleted and pruned ones.
    pub fn checkpoints(&self) -> Result<Vec<StepRow>, EngineError> {
        let mut checkpoints = self.store().checkpoints(self.record.id)?;
        checkpoints.retain(|stored| stored.hidden_by.is_none());
        Ok(checkpoints)
    }

    /// Replaces the label, note and tags of a checkpoint.
    pub fn annotate(&self, stored: &StepRow, new_annotation: Annotation) -> Result<Operation, EngineError> {
        let step = stored.step.id;
        let old_annotation = stored.annotation.clone();
        let operation = self.new_operation(
            format!("annotate checkpoint {}", describe_checkpoint(stored)),
            OperationAction::CheckpointAnnotate {
                step,
                before: old_annotation,
                after: new_annotation.clone(),
            },
        );
        let mutations =
            [Mutation::Annotate { step, annotation: new_annotation }, Mutation::AppendOp(operation.clone())];
        self.store().commit(None, &mutations)?;
        Ok(operation)
    }

    /// Hides a checkpoint. Its content stays stored until a prune frees it.
    pub fn delete_checkpoint(&self, stored: &StepRow) -> Result<Operation, EngineError> {
        if !stored.is_checkpoint() {
            return Err(EngineError::NotACheckpoint { what: describe_checkpoint(stored) });
        }
        let steps = vec![stored.step.id];
        let operation = self.new_operation(
            format!("delete checkpoint {}", describe_checkpoint(stored)),
            OperationAction::CheckpointDelete { steps: steps.clone() },
        );
        let mutations =
            [Mutation::SetHidden { steps, by: Some(operation.id) }, Mutation::AppendOp(operation.clone())];
        self.store().commit(None, &mutations)?;
        Ok(operation)
    }

    /// Builds a finished operation, ready to be appended to the log.
    pub(crate) fn new_operation(&self, summary: String, action: OperationAction) -> Operation {
        Operation {
            id: OpId::from_bytes(self.engine.env.fresh_id()),
            workspace: self.record.id,
            number: 0,
            at: self.engine.env.now(),
            summary,
            action,
            status: OpStatus::Done,
            undone: false,
            journal: None,
        }
    }
}
