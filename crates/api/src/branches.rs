//! Branches, and the reruns that create some of them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::steps::StepDocument;
use crate::timeline::BranchForkDocument;

/// A branch to create.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBranch {
    /// The name: letters, digits, `-_./+` and single spaces inside.
    pub name: String,
    /// The point it begins at; the current step of the workspace if none is given.
    pub from: Option<String>,
}

/// What changes about a branch; at least one of the two.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchUpdate {
    /// The new name: letters, digits, `-_./+` and single spaces inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The new status: `active`, `abandoned` or `archived`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// A branch, or a rerun that has no branch yet.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BranchDocument {
    /// The name of the branch.
    pub name: String,
    /// Its newest step; none while a rerun is not finished.
    pub tip: Option<StepDocument>,
    /// Whether it is the current branch of the workspace.
    pub present: bool,
    /// `active`, `merged` (its newest step was merged into another branch), `abandoned` or `archived` (the user said so), or the status of the rerun that creates it: `pending`, `running`, `completed`, `diverged` (something was
    /// changed, and it ended at the first difference from the recording), `failed`.
    pub status: String,
    /// Where it forked from another branch; none for the first branch, and for a rerun that has no branch yet.
    pub from: Option<BranchForkDocument>,
    /// The directory of its own, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The number of its first own checkpoint; none if it has none yet.
    pub first: Option<u64>,
    /// Number of its own checkpoints.
    pub own: u64,
    /// The record of the rerun that created it, if one did.
    #[schema(value_type = Option<Object>)]
    pub rerun: Option<Value>,
}

/// How a session is to be run again.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewRerun {
    /// The point to start from; the beginning of the session if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The changes, each as `PATH=VALUE`: `prompt`, `system`, `model`, `messages[3].content`, `memory.KEY`, `#14.input.x`, `#14.output`.
    pub set: Vec<String>,
    /// End after the first step of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// End after so many steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u64>,
    /// End after so many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u32>,
    /// How tool calls are handled: `real` (the default), `recorded`, `deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// How a model call without a matching recording is handled: `stop` (the default) or `nearest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_difference: Option<String>,
    /// The name of the new branch; generated if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
}

/// A rerun to prepare: what is to be run again and with which changes, for later.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPreparedBranch {
    /// The session to run again.
    pub session: String,
    /// The name of the new branch; generated if none is given.
    pub name: Option<String>,
    /// The point to start from; the beginning of the session if none is given.
    pub from: Option<String>,
    /// The changes, each as `PATH=VALUE`, as for a rerun.
    #[serde(default)]
    pub set: Vec<String>,
    /// End after the first step of this kind.
    pub until: Option<String>,
    /// End after so many steps.
    pub max_steps: Option<u64>,
    /// End after so many seconds.
    pub timeout_s: Option<u32>,
    /// How tool calls are handled: `real` (the default), `recorded`, `deny`.
    pub tools: Option<String>,
    /// How a model call without a matching recording is handled: `stop` (the default) or `nearest`.
    pub on_difference: Option<String>,
}

impl NewPreparedBranch {
    /// The session, and the rerun of it that is prepared.
    pub fn into_rerun(self) -> (String, NewRerun) {
        let Self { session, name, from, set, until, max_steps, timeout_s, tools, on_difference } = self;
        (session, NewRerun { from, set, until, max_steps, timeout_s, tools, on_difference, branch: name })
    }
}
