//! Named lines of steps.

use serde::Serialize;
use serde_json::Value;
use stepback_engine::branch::Branch;
use stepback_engine::reruns::Rerun;
use utoipa::ToSchema;

use super::StepDocument;
use super::timeline::{PartingDocument, TipDocument};

/// A named line of steps, or a rerun that has not come to one yet.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct BranchDocument {
    /// Its name.
    pub name: String,
    /// Its newest step; none while a rerun has not come to an end.
    pub tip: Option<StepDocument>,
    /// Whether the workspace stands on it.
    pub present: bool,
    /// `active`, or how far the rerun got that makes it: `pending`, `running`, `completed`,
    /// `diverged` (something was changed, and it ended at the first difference from the recording), `failed`.
    pub status: String,
    /// Where it left another branch; none for the first, and for a rerun that has not come to a branch.
    pub from: Option<PartingDocument>,
    /// The number of the first kept step that is its own; none if it has none yet.
    pub first: Option<u64>,
    /// How many kept steps are its own.
    pub own: u64,
    /// What is known about that rerun.
    #[schema(value_type = Option<Object>)]
    pub rerun: Option<Value>,
}

impl BranchDocument {
    /// Of a branch, the line it is, and the rerun that made it.
    pub fn of(branch: &Branch, line: Option<TipDocument>, rerun: Option<&Rerun>) -> Self {
        Self {
            first: line.as_ref().and_then(|line| line.first),
            own: line.as_ref().map_or(0, |line| line.own),
            from: line.and_then(|line| line.from),
            name: branch.name.clone(),
            tip: Some(StepDocument::of(&branch.tip)),
            present: branch.present,
            status: rerun.map_or("active", Rerun::status).to_owned(),
            rerun: rerun.and_then(|rerun| serde_json::to_value(rerun).ok()),
        }
    }

    /// Of a rerun without a branch.
    pub fn coming(rerun: &Rerun) -> Self {
        Self {
            name: rerun.branch.clone(),
            tip: None,
            present: false,
            from: None,
            first: None,
            own: 0,
            status: rerun.status().to_owned(),
            rerun: serde_json::to_value(rerun).ok(),
        }
    }
}
