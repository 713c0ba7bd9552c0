//! Selects the records that belong to a session.
//!
//! These are its steps; the steps of other sessions that they descend from, back to one that has files; the operations on any
//! of these, with the steps they moved between; and the branches that end at one of them. A step whose own parent is not
//! needed becomes a root: a session is exported without the history before it.
//!
//! Steps of other sessions are exported as steps of the user. Those of another agent get a new id, because the session they
//! belong to may be exported later and must then be consistent.

use std::collections::{BTreeMap, HashMap, HashSet};

use stepback_engine::Engine;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{OpId, SessionId, StepId};
use stepback_model::record::{OpStatus, Operation, OperationAction, Session, WorkspaceRecord};
use stepback_model::state::WorkspaceState;
use stepback_store::port::{StepQuery, StepRow};

use crate::error::BundleError;
use crate::records::{
    ExportedStep, ExportedWorkspace, Reference, ReferenceKind, WorkspaceLog, portable_info,
};

/// Returns the logs of `sessions`, one for each workspace.
pub fn collect_logs(engine: &Engine, sessions: &[Session]) -> Result<Vec<WorkspaceLog>, BundleError> {
    let mut logs = Vec::new();
    for workspace in engine.store.workspaces()? {
        let mut workspace_sessions: Vec<&Session> = Vec::new();
        for session in sessions.iter().filter(|session| session.workspace == workspace.id) {
            if workspace_sessions.iter().all(|session_here| session_here.id != session.id) {
                workspace_sessions.push(session);
            }
        }
        if !workspace_sessions.is_empty() {
            logs.push(collect_log(engine, &workspace, &workspace_sessions)?);
        }
    }
    Ok(logs)
}

fn collect_log(
    engine: &Engine,
    workspace: &WorkspaceRecord,
    sessions: &[&Session],
) -> Result<WorkspaceLog, BundleError> {
    if sessions.iter().any(|session| session.agent == Session::PERSON) {
        return Err(BundleError::UserSession);
    }
    let person = Session::id_of(workspace.id, Session::PERSON, "");
    let mut steps = StepCollector { engine, workspace, user_session: person, by_id: HashMap::new() };
    for session in sessions {
        let query = StepQuery { session: Some(session.id), oldest_first: true, ..StepQuery::default() };
        for stored in engine.store.steps(workspace.id, &query)? {
            steps.by_id.insert(stored.step.id, stored);
        }
    }
    let own_steps: HashSet<StepId> = steps.by_id.keys().copied().collect();
    for id in &own_steps {
        steps.add_origin(*id)?;
    }
    let operations = steps.collect_operations(&own_steps)?;
    let by_id = steps.by_id;
    // The id of each step in the bundle.
    let names: HashMap<StepId, StepId> = by_id
        .values()
        .map(|stored| {
            let step = &stored.step;
            let stays = own_steps.contains(&step.id) || step.session == person;
            (step.id, if stays { step.id } else { origin_id(step.id) })
        })
        .collect();
    let mut moments: Vec<ExportedStep> = by_id.values().map(ExportedStep::from_row).collect();
    moments.sort_by_key(|moment| moment.step.number);
    for ExportedStep { step, .. } in &mut moments {
        if !own_steps.contains(&step.id) {
            step.session = person;
        }
        step.id = names.get(&step.id).copied().unwrap_or(step.id);
        step.parent = step.parent.and_then(|parent| names.get(&parent).copied());
    }
    let portable = |session: &&Session| Session { info: portable_info(&session.info), ..(**session).clone() };
    Ok(WorkspaceLog {
        workspace: ExportedWorkspace::from_record(workspace),
        sessions: sessions.iter().map(portable).collect(),
        references: collect_references(engine, workspace, &names, &moments)?,
        steps: moments,
        operations,
    })
}

/// Returns the id under which a step of another session is exported.
pub fn origin_id(step: StepId) -> StepId {
    let name = format!("origin {step}");
    let mut id = [0; 16];
    id.copy_from_slice(&Hash::of(ObjectKind::Blob, name.as_bytes()).as_bytes()[..16]);
    StepId::from_bytes(id)
}

struct StepCollector<'e> {
    engine: &'e Engine,
    workspace: &'e WorkspaceRecord,
    user_session: SessionId,
    by_id: HashMap<StepId, StepRow>,
}

impl StepCollector<'_> {
    /// Adds the parent of `id`, and the steps before it until one has files.
    fn add_origin(&mut self, id: StepId) -> Result<(), BundleError> {
        let mut next = self.by_id.get(&id).and_then(|stored| stored.step.parent);
        while let Some(id) = next {
            if self.by_id.contains_key(&id) {
                return Ok(());
            }
            let Some(stored) = self.engine.store.step(id)? else { return Ok(()) };
            let is_end = stored.is_checkpoint()
                || stored.purged
                || WorkspaceState::load(self.engine.store(), stored.step.state)?.files.is_some();
            next = stored.step.parent.filter(|_| !is_end);
            self.by_id.insert(id, stored);
        }
        Ok(())
    }

    /// Returns the operations on these steps, oldest first, and adds the steps they moved between.
    fn collect_operations(&mut self, own_steps: &HashSet<StepId>) -> Result<Vec<Operation>, BundleError> {
        let mut all = self.engine.store.operations(self.workspace.id)?;
        all.reverse();
        let mut included: HashSet<OpId> = HashSet::new();
        let mut operations = Vec::new();
        for operation in all {
            if operation.status == OpStatus::Applying {
                continue;
            }
            let step_ids = referenced_steps(&operation.action);
            let reapplied = match &operation.action {
                OperationAction::Undo { op, .. } | OperationAction::Redo { op, .. } => included.contains(op),
                _ => false,
            };
            if !reapplied && !step_ids.iter().any(|step| own_steps.contains(step)) {
                continue;
            }
            if let Some(moved) = operation.action.moved() {
                for step in [moved.before, moved.after, moved.onto] {
                    let step_row = self.engine.store.step(step)?;
                    if let Some(stored) =
                        step_row.filter(|step_row| step_row.step.session == self.user_session)
                    {
                        self.by_id.insert(step, stored);
                        self.add_origin(step)?;
                    }
                }
            }
            included.insert(operation.id);
            operations.push(operation);
        }
        Ok(operations)
    }
}

/// Returns the steps that an operation refers to.
fn referenced_steps(action: &OperationAction) -> Vec<StepId> {
    match action {
        OperationAction::CheckpointCreate { step }
        | OperationAction::CheckpointAnnotate { step, .. }
        | OperationAction::BranchCreate { step, .. }
        | OperationAction::BranchDelete { step, .. }
        | OperationAction::BranchRename { step, .. } => vec![*step],
        OperationAction::CheckpointDelete { steps } | OperationAction::Prune { steps, .. } => steps.clone(),
        OperationAction::ChangesClear { .. } => Vec::new(),
        OperationAction::Rewind { .. } | OperationAction::Undo { .. } | OperationAction::Redo { .. } => {
            action.moved().map_or_else(Vec::new, |moved| vec![moved.before, moved.after, moved.onto])
        }
    }
}

fn collect_references(
    engine: &Engine,
    workspace: &WorkspaceRecord,
    names: &HashMap<StepId, StepId>,
    moments: &[ExportedStep],
) -> Result<Vec<Reference>, BundleError> {
    let mut references: BTreeMap<(u8, String), Reference> = BTreeMap::new();
    let head = engine.store.reference(&format!("head/{}", workspace.id))?;
    // The workspace may have moved on since the session; then the head is the newest exported checkpoint.
    let newest = || moments.iter().rfind(|moment| moment.trigger.is_some()).map(|moment| moment.step.id);
    let present_head = head.and_then(|head| names.get(&head).copied());
    if let Some(step) = present_head.or_else(newest) {
        references
            .insert((0, String::new()), Reference { what: ReferenceKind::Head, name: String::new(), step });
    }
    for (at, kind, prefix) in [(1, ReferenceKind::Branch, "branch"), (2, ReferenceKind::Present, "present")] {
        let prefix = format!("{prefix}/{}/", workspace.id);
        for (name, step) in engine.store.references(&prefix)? {
            let name = name.strip_prefix(&prefix).unwrap_or_default().to_owned();
            let is_exported = kind == ReferenceKind::Branch || present_head.is_some();
            if let (true, Some(step)) = (is_exported && !name.is_empty(), names.get(&step).copied()) {
                references.insert((at, name.clone()), Reference { what: kind, name, step });
            }
        }
    }
    Ok(references.into_values().collect())
}
