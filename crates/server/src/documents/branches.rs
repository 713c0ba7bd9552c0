//! Documents of branches.

use serde::Serialize;
use serde_json::Value;
use stepback_engine::branch::BranchInfo;
use stepback_engine::reruns::Rerun;
use utoipa::ToSchema;

use super::StepDocument;
use super::timeline::{PartingDocument, TipDocument};

/// A branch, or a rerun that has no branch yet.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct BranchDocument {
    /// The name of the branch.
    pub name: String,
    /// Its newest step; none while a rerun is not finished.
    pub tip: Option<StepDocument>,
    /// Whether it is the current branch of the workspace.
    pub present: bool,
    /// `active`, or the status of the rerun that creates it: `pending`, `running`, `completed`, `diverged` (something was
    /// changed, and it ended at the first difference from the recording), `failed`.
    pub status: String,
    /// Where it forked from another branch; none for the first branch, and for a rerun that has no branch yet.
    pub from: Option<PartingDocument>,
    /// The number of its first own checkpoint; none if it has none yet.
    pub first: Option<u64>,
    /// Number of its own checkpoints.
    pub own: u64,
    /// The record of the rerun that created it, if one did.
    #[schema(value_type = Option<Object>)]
    pub rerun: Option<Value>,
}

impl BranchDocument {
    /// The document of a branch, with its line of steps and the rerun that created it.
    pub fn of(branch: &BranchInfo, line: Option<TipDocument>, rerun: Option<&Rerun>) -> Self {
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

    /// The document of a rerun that has no branch yet.
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
