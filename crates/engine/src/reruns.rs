//! Reruns: a session repeated from a point with something changed, whose result becomes a branch that can be ignored.
//!
//! A rerun works in a directory of its own, which is a separate workspace with its own session. This workspace's log records
//! its progress: a step for every change of its status and, at the end, a branch with the files of its result. The newest of
//! those steps holds what is known about the rerun.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::json;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::{
    self, Annotation, Operation, OperationAction, Step, StepKind, StepMeta, Trigger,
};
use stepback_model::state::WorkspaceState;
use stepback_model::{ObjectKind, json as values};
use stepback_store::Mutation;
use stepback_store::port::{FinishedBatch, StepQuery, StepRow};

use crate::branch::BranchError;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::undo::UndoDirection;
use crate::workspace::Workspace;

/// The status of a rerun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RerunStatus {
    /// It has not started yet: it is being set up, or it was prepared for later.
    Pending,
    /// It is running.
    Running,
    /// The agent finished, or reached the step at which it was to stop.
    Completed,
    /// Something was changed, and the rerun ended at the first model call that differs from the recording because of it.
    Diverged,
    /// It ended with an error.
    Failed,
}

impl RerunStatus {
    /// Returns the stable name of the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Diverged => "diverged",
            Self::Failed => "failed",
        }
    }
}

/// A rerun, as the newest of its steps describes it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Rerun {
    /// The branch that holds its files once it has ended.
    pub branch: String,
    /// The session that is repeated.
    pub of: SessionId,
    /// The step from which it is repeated.
    pub from: StepId,
    /// The requested changes, as the user or agent wrote them.
    pub changes: Vec<String>,
    /// Its last recorded status; [`Rerun::effective_status`] also notices that the process has ended.
    pub status: RerunStatus,
    /// Why it failed, or where it diverged from the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The session of the rerun itself, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The id of the process that runs it.
    pub process: u32,
    /// The request of a rerun that was prepared and waits to be started; none once it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<serde_json::Value>,
    /// Whether its record was deleted; then no list has it, and its name is free.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

impl Rerun {
    /// Returns the stable name of its status. A pending or running rerun whose process has ended has failed.
    pub fn effective_status(&self) -> &'static str {
        if self.is_abandoned() { RerunStatus::Failed.as_str() } else { self.status.as_str() }
    }

    /// Whether it has files of its own, which are then those of its branch.
    pub fn has_result(&self) -> bool {
        self.session.is_some() || matches!(self.status, RerunStatus::Completed | RerunStatus::Diverged)
    }

    /// Whether its recorded status is pending or running although its process has ended.
    pub fn is_abandoned(&self) -> bool {
        self.has_begun() && !crate::control::is_process_running(self.process)
    }

    /// Whether it was prepared and has not been started yet.
    pub fn is_prepared(&self) -> bool {
        self.status == RerunStatus::Pending && self.plan.is_some()
    }

    /// Whether a branch is still to come of it: it waits to be started, or a process is at work on it.
    pub fn is_claiming_its_name(&self) -> bool {
        self.is_prepared() || (self.has_begun() && !self.is_abandoned())
    }

    /// Whether its recorded status says that a process is at work on it.
    fn has_begun(&self) -> bool {
        matches!(self.status, RerunStatus::Pending | RerunStatus::Running) && !self.is_prepared()
    }
}

/// How long the states of a rerun are kept after its last step, in microseconds: long enough to compare it with the original.
const RERUN_RETENTION_MICROS: i64 = 3_600_000_000;

impl Engine {
    /// Purges the states in the scratch workspaces of reruns that have ended; the next collection frees what only they needed.
    /// What a rerun did stays recorded, and its files are those of its branch. Reruns of the last hour are kept unless `now`
    /// is set. Returns how many workspaces were purged.
    pub fn discard_reruns(&self, now: bool) -> Result<usize, EngineError> {
        let discarded = self.discardable_reruns(now)?;
        for (workspace, steps) in &discarded {
            let operation = workspace.new_operation(
                "discard a rerun".to_owned(),
                OperationAction::Prune { steps: steps.clone(), freed: true },
            );
            let mutations = [
                Mutation::SetHidden { steps: steps.clone(), by: Some(operation.id) },
                Mutation::Purge { steps: steps.clone() },
                Mutation::AppendOp(operation),
            ];
            self.store.commit(None, &mutations)?;
            // Only hidden steps can be purged; shown again, what the rerun did can still be read and compared.
            self.store.commit(None, &[Mutation::SetHidden { steps: steps.clone(), by: None }])?;
        }
        Ok(discarded.len())
    }

    /// The scratch workspaces of reruns that have ended, with the checkpoints whose states can be freed.
    pub(crate) fn discardable_reruns(&self, now: bool) -> Result<Vec<(Workspace, Vec<StepId>)>, EngineError> {
        let mut scratch = Vec::new();
        for record in self.store.workspaces()?.into_iter().filter(record::WorkspaceRecord::is_rerun) {
            let root = PathBuf::from(OsString::from_vec(record.root.clone()));
            let newest =
                self.store.steps(record.id, &StepQuery { limit: Some(1), ..StepQuery::default() })?;
            let last = newest.first().map_or(record.created_at, |stored| stored.step.at);
            let age = self.env.now().as_micros().saturating_sub(last.as_micros());
            // A rerun that is running, or whose directory was kept, is still in use.
            if root.exists() || !(now || age > RERUN_RETENTION_MICROS) {
                continue;
            }
            let Some(workspace) = self.find_workspace(&root)? else { continue };
            let checkpoints = self.store.checkpoints(record.id)?;
            let steps: Vec<StepId> =
                checkpoints.iter().filter(|stored| !stored.purged).map(|stored| stored.step.id).collect();
            if !steps.is_empty() {
                scratch.push((workspace, steps));
            }
        }
        Ok(scratch)
    }
}

impl Workspace {
    /// Records what is known about a rerun now.
    pub fn record_rerun(&self, rerun: &Rerun) -> Result<(), EngineError> {
        let (append, batch) = self.append_rerun(rerun)?;
        self.store().commit(Some(batch), &[append])?;
        Ok(())
    }

    fn append_rerun(&self, rerun: &Rerun) -> Result<(Mutation, FinishedBatch), EngineError> {
        let word = if rerun.deleted { "deleted" } else { rerun.status.as_str() };
        let summary = format!("rerun {}: {word}", rerun.branch);
        let (step, batch) = self.build_rerun_step(StepKind::StateChange, rerun, summary, None)?;
        Ok((Mutation::AppendStep { step, annotation: Annotation::default(), trigger: None }, batch))
    }

    /// Deletes the record of a rerun that has no branch: one that was prepared and never started, or that failed before it
    /// had files. Returns `None` if there is none with this name. Undo brings it back.
    pub(crate) fn delete_rerun(&self, name: &str) -> Result<Option<Operation>, EngineError> {
        // It must not be started meanwhile.
        let _lock = self.lock_recording()?;
        let found = self.rerun_records()?.into_iter().find(|(_, rerun)| rerun.branch == name);
        let Some((step, rerun)) = found.filter(|(_, rerun)| !rerun.has_result() && !rerun.deleted) else {
            return Ok(None);
        };
        if rerun.is_claiming_its_name() && !rerun.is_prepared() {
            return Err(BranchError::NoFiles { name: name.to_owned(), status: rerun.status.as_str() }.into());
        }
        let action = OperationAction::BranchDelete { name: name.to_owned(), step };
        let operation = self.new_operation(format!("delete branch {name}, which has no files"), action);
        let (append, batch) = self.append_rerun(&Rerun { deleted: true, ..rerun })?;
        self.store().commit(Some(batch), &[append, Mutation::AppendOp(operation.clone())])?;
        Ok(Some(operation))
    }

    /// Returns the changes to the log that undo or redo the deletion of a rerun without a branch; `None` for any other
    /// operation. The caller keeps the collector out.
    pub(crate) fn reverse_rerun_deletion(
        &self,
        operation: &Operation,
        direction: UndoDirection,
    ) -> Result<Option<Vec<Mutation>>, EngineError> {
        let OperationAction::BranchDelete { name, step } = &operation.action else { return Ok(None) };
        // A branch that has files ends at a checkpoint.
        let stored = self.store().step(*step)?.filter(|stored| stored.step.kind == StepKind::StateChange);
        let Some(rerun) = stored.map(|stored| self.read_rerun(&stored)).transpose()?.flatten() else {
            return Ok(None);
        };
        let deleted = direction == UndoDirection::Redo;
        if !deleted {
            self.check_new_rerun_branch(name)?;
        }
        let (append, batch) = self.append_rerun(&Rerun { deleted, ..rerun })?;
        self.store().commit(Some(batch), &[])?;
        Ok(Some(vec![append]))
    }

    /// Returns the reruns of this workspace, newest first.
    pub fn reruns(&self) -> Result<Vec<Rerun>, EngineError> {
        let records = self.rerun_records()?.into_iter().map(|(_, rerun)| rerun);
        Ok(records.filter(|rerun| !rerun.deleted).collect())
    }

    /// The newest record of every rerun, also of deleted ones, with its step; newest first.
    fn rerun_records(&self) -> Result<Vec<(StepId, Rerun)>, EngineError> {
        let query = StepQuery {
            session: Some(self.session.id),
            kinds: vec![StepKind::StateChange],
            ..StepQuery::default()
        };
        let mut reruns: Vec<(StepId, Rerun)> = Vec::new();
        for stored in self.store().steps(self.record.id, &query)? {
            let Some(rerun) = self.read_rerun(&stored)? else { continue };
            if !reruns.iter().any(|(_, newer)| newer.branch == rerun.branch) {
                reruns.push((stored.step.id, rerun));
            }
        }
        Ok(reruns)
    }

    /// Reads the rerun that a step describes, if it describes one.
    fn read_rerun(&self, stored: &StepRow) -> Result<Option<Rerun>, EngineError> {
        let Some(detail) = stored.step.meta.detail else { return Ok(None) };
        let detail = values::load(&crate::workspace::StoreSource(self.store()), detail)?;
        Ok(serde_json::from_value(detail["rerun"].clone()).ok())
    }

    /// Fails if a branch with this name cannot be created, or if a rerun that has not ended will create it.
    pub fn check_new_rerun_branch(&self, name: &str) -> Result<(), EngineError> {
        self.check_new_branch(name)?;
        match self.reruns()?.iter().find(|rerun| rerun.branch == name) {
            Some(rerun) if rerun.is_claiming_its_name() => Err(BranchError::Exists(name.to_owned()).into()),
            _ => Ok(()),
        }
    }

    /// Returns a branch name that is not in use: `rerun-1`, `rerun-2`, …
    pub fn next_rerun_name(&self) -> Result<String, EngineError> {
        let reruns = self.reruns()?;
        for number in 1.. {
            let name = format!("rerun-{number}");
            let is_taken = reruns.iter().any(|rerun| rerun.branch == name);
            if !is_taken && self.check_new_branch(&name).is_ok() {
                return Ok(name);
            }
        }
        unreachable!("there are more numbers than branches")
    }

    /// Creates the branch of a rerun: one step with the files of `state`, which is a state of another workspace of this store.
    pub fn create_rerun_branch(&self, rerun: &Rerun, state: &WorkspaceState) -> Result<StepRow, EngineError> {
        self.check_new_branch(&rerun.branch)?;
        let origin =
            self.store().step(rerun.from)?.ok_or(EngineError::NoFiles { what: "the point".into() })?;
        let base = self.nearest_checkpoint(&origin)?;
        let summary = format!("files of {}", rerun.branch);
        let (mut step, batch) = self.build_rerun_step(StepKind::Checkpoint, rerun, summary, Some(state))?;
        step.parent = Some(base.step.id);
        let id = step.id;
        let operation = self.new_operation(
            format!("keep {} as a branch", rerun.branch),
            OperationAction::BranchCreate { name: rerun.branch.clone(), step: id, upto: None },
        );
        let mutations = [
            Mutation::AppendStep {
                step,
                annotation: Annotation::default(),
                trigger: Some(Trigger::Automatic),
            },
            Mutation::SetRef { name: self.branch_ref(&rerun.branch), expected: None, value: id },
            Mutation::AppendOp(operation),
        ];
        self.store().commit(Some(batch), &mutations)?;
        self.store().step(id)?.ok_or(EngineError::NoFiles { what: rerun.branch.clone() })
    }

    fn build_rerun_step(
        &self,
        kind: StepKind,
        rerun: &Rerun,
        summary: String,
        state: Option<&WorkspaceState>,
    ) -> Result<(Step, FinishedBatch), EngineError> {
        let batch = self.store().begin()?;
        let state = state.cloned().unwrap_or_default();
        let state = batch.write(ObjectKind::State, &state.encode(), None)?;
        let detail = values::store(&*batch, &json!({ "rerun": rerun }), None)?;
        let step = Step {
            id: StepId::from_bytes(self.engine.env.fresh_id()),
            session: self.session.id,
            number: 0,
            parent: self.head_id()?,
            kind,
            at: self.engine.env.now(),
            state,
            summary,
            meta: StepMeta {
                detail: Some(detail.into()),
                failed: rerun.status == RerunStatus::Failed && kind == StepKind::StateChange,
                ..StepMeta::default()
            },
        };
        Ok((step, batch.finish()?))
    }
}
