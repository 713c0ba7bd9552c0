//! Named lines of steps.

use serde::Serialize;
use serde_json::Value;
use stepback_engine::branch::Branch;
use stepback_engine::reruns::{Fate, Rerun};
use utoipa::ToSchema;

use super::StepDocument;

/// A named line of steps, or a rerun that has not come to one yet.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct BranchDocument {
    /// Its name.
    pub name: String,
    /// Its newest step; none while a rerun has not come to an end.
    pub tip: Option<StepDocument>,
    /// Whether the workspace stands on it.
    pub present: bool,
    /// `active`, or how far the rerun got that makes it: `pending`, `running`, `completed`, `failed`.
    pub status: String,
    /// What is known about that rerun.
    #[schema(value_type = Option<Object>)]
    pub rerun: Option<Value>,
}

impl BranchDocument {
    /// Of a branch, and the rerun that made it.
    pub fn of(branch: &Branch, rerun: Option<&Rerun>) -> Self {
        Self {
            name: branch.name.clone(),
            tip: Some(StepDocument::of(&branch.tip)),
            present: branch.present,
            status: rerun.map_or("active", fate).to_owned(),
            rerun: rerun.and_then(|rerun| serde_json::to_value(rerun).ok()),
        }
    }

    /// Of a rerun without a branch.
    pub fn coming(rerun: &Rerun) -> Self {
        Self {
            name: rerun.branch.clone(),
            tip: None,
            present: false,
            status: fate(rerun).to_owned(),
            rerun: serde_json::to_value(rerun).ok(),
        }
    }
}

/// How far a rerun got.
fn fate(rerun: &Rerun) -> &'static str {
    match rerun.status {
        _ if rerun.is_abandoned() => "failed",
        Fate::Pending => "pending",
        Fate::Running => "running",
        Fate::Completed => "completed",
        Fate::Failed => "failed",
    }
}
