//! Plans that were shown and may be confirmed later, by any process that uses the same store.
//!
//! The store keeps the request, not the changes: confirming plans again, so a plan never acts on what it saw long ago.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stepback_model::ids::{StepId, WorkspaceId};
use stepback_model::time::Timestamp;
use stepback_store::port::StoredPlan;

use super::plan::PlannedMove;
use super::request::{MoveAction, MoveRequest};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::workspace::Workspace;

/// How long a plan can be confirmed, in microseconds.
const PLAN_LIFETIME_MICROS: i64 = 24 * 60 * 60 * 1_000_000;
/// The largest document that is kept with a plan, in bytes. Without it, a reader has to plan again.
const MAX_DOCUMENT: usize = 4 << 20;

/// A plan that was shown.
#[derive(Clone, Debug)]
pub struct ShownPlan {
    /// The id of the plan.
    pub id: String,
    /// The workspace that it moves.
    pub workspace: WorkspaceId,
    /// The request that it answers.
    pub request: MoveRequest,
    /// The plan as the caller showed it; null if it was not kept.
    pub document: Value,
}

/// The answer to a confirmation.
pub enum Confirmation {
    /// The plan still holds; this is it.
    Same(PlannedMove),
    /// Something changed since the plan was shown; this is what would happen now.
    Changed(PlannedMove),
}

/// The form in which a plan is stored.
#[derive(Serialize, Deserialize)]
struct PlanBody {
    request: MoveRequest,
    /// The target of a rewind, which is read again from the store.
    target: Option<StepId>,
    document: Value,
}

fn rewind_target(request: &MoveRequest) -> Option<StepId> {
    match &request.action {
        MoveAction::Rewind(rewind) => rewind.target.as_ref().map(|target| target.step.id),
        _ => None,
    }
}

/// Everything that identifies a request.
pub(super) fn request_document(request: &MoveRequest) -> Value {
    json!({ "request": request, "target": rewind_target(request) })
}

impl Engine {
    /// Returns the plan with this id, if it was kept and is not too old.
    pub fn load_shown_plan(&self, id: &str) -> Result<Option<ShownPlan>, EngineError> {
        let Some(stored) = self.store.plan(id)? else { return Ok(None) };
        if stored.created_at < oldest_valid_time(self.env.now()) {
            return Ok(None);
        }
        // Written by another version of the program in a format that this one cannot read.
        let Ok(PlanBody { mut request, target, document }) = serde_json::from_slice(&stored.body) else {
            return Ok(None);
        };
        if let (MoveAction::Rewind(rewind), Some(target)) = (&mut request.action, target) {
            rewind.target = self.store.step(target)?;
        }
        Ok(Some(ShownPlan { id: stored.id, workspace: stored.workspace, request, document }))
    }

    /// Removes a plan that was applied.
    pub fn delete_plan(&self, id: &str) -> Result<(), EngineError> {
        self.store.remove_plan(id)?;
        Ok(())
    }
}

impl Workspace {
    /// Keeps a plan so that it can be confirmed by its id, together with the document that was shown. Drops old plans.
    pub fn save_plan(&self, planned: &PlannedMove, document: Value) -> Result<(), EngineError> {
        let (target, now) = (rewind_target(&planned.request), self.engine.env.now());
        let encode = |document: Value| {
            let body = PlanBody { request: planned.request.clone(), target, document };
            serde_json::to_vec(&body).map_err(|error| EngineError::Io {
                what: "cannot encode the plan".into(),
                error: error.into(),
            })
        };
        let mut body = encode(document)?;
        if body.len() > MAX_DOCUMENT {
            body = encode(Value::Null)?;
        }
        let workspace = self.record.id;
        self.store().put_plan(&StoredPlan { id: planned.id.clone(), workspace, created_at: now, body })?;
        Ok(self.store().prune_plans(workspace, oldest_valid_time(now))?)
    }

    /// Plans again what was shown, and says whether that is still what would happen.
    pub fn confirm_move(&self, shown: &ShownPlan) -> Result<Confirmation, EngineError> {
        let planned = self.plan_move(&shown.request)?;
        Ok(match planned.id == shown.id {
            true => Confirmation::Same(planned),
            false => Confirmation::Changed(planned),
        })
    }
}

/// The time before which plans are too old to be confirmed.
fn oldest_valid_time(now: Timestamp) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_sub(PLAN_LIFETIME_MICROS))
}
