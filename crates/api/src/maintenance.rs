//! A store in numbers, what models cost, and pruning.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

use crate::operations::OperationDocument;
use crate::steps::StepDocument;

/// The contents of a store in numbers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StatisticsDocument {
    /// Number of objects in the store.
    pub objects: u64,
    /// Their size in bytes before compression and deduplication.
    pub raw_bytes: u64,
    /// Their size in bytes as stored.
    pub stored_bytes: u64,
    /// Bytes the store occupies in all.
    pub total_bytes: u64,
    /// Bytes that it should stay within; none if it has no budget.
    pub budget_bytes: Option<u64>,
    /// How the budget is kept; none if the store has none.
    pub budget: Option<DiskBudgetDocument>,
    /// Number of workspaces.
    pub workspaces: u64,
    /// Checkpoints that are not hidden.
    pub checkpoints: u64,
    /// Steps in all.
    pub total_steps: u64,
    /// Sessions of agents in all.
    pub total_sessions: u64,
    /// When the oldest step was recorded; none if there is no step.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub oldest_step_at: Option<Timestamp>,
    /// When the newest step was recorded.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub newest_step_at: Option<Timestamp>,
    /// Operations of stepback itself, such as rewinds.
    pub operations: u64,
    /// Sessions that are reruns of another one. No other number here includes them, except the cost.
    pub reruns: u64,
    /// Sessions, by agent.
    pub sessions: BTreeMap<String, u64>,
    /// Steps, by kind.
    pub steps: BTreeMap<String, u64>,
    /// Numbers by agent; `person` is the user.
    pub agents: BTreeMap<String, AgentStatisticsDocument>,
    /// The cost of all sessions in dollars, as far as it is known.
    pub cost_usd: f64,
}

/// The disk budget of a store: how large it may become, and what goes next.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DiskBudgetDocument {
    /// The budget in bytes.
    pub bytes: u64,
    /// Bytes the store occupies now.
    pub used: u64,
    /// The size at which a pruning begins.
    pub starts_at: u64,
    /// Automatic checkpoints that may go, the oldest of all workspaces first.
    pub removable: u64,
    /// Checkpoints that stay: manual, marked and significant ones, and what heads, branches and undo need.
    pub kept: u64,
    /// The checkpoint that goes first.
    pub next: Option<String>,
    /// When that checkpoint was made.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub next_at: Option<Timestamp>,
    /// The last pruning; none if there was none.
    pub last: Option<LastPruningDocument>,
}

/// The last pruning for the disk budget.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct LastPruningDocument {
    /// When it ended.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// How many checkpoints it removed.
    pub checkpoints: u64,
    /// Bytes of the store before.
    pub size_before: u64,
    /// Bytes of the store after it.
    pub size_after: u64,
    /// Whether the store was within its budget then.
    pub fits: bool,
    /// Why it failed; none if it did not.
    pub failure: Option<String>,
}

/// The steps of one agent in numbers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct AgentStatisticsDocument {
    /// Its steps, by kind.
    pub steps: BTreeMap<String, u64>,
    /// How many of them failed.
    pub failed: u64,
}

/// Token counts and cost.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ModelUsageDocument {
    /// Number of model calls.
    pub calls: u64,
    /// Input tokens at the full price.
    pub input: u64,
    /// Output tokens, thinking included.
    pub output: u64,
    /// Input tokens read from a cache.
    pub cache_read: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// The cost in dollars, as far as it is known.
    pub cost_usd: f64,
}

/// The usage in one hour.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct HourlyUsageDocument {
    /// When the hour began.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The usage in this hour.
    #[serde(flatten)]
    pub spent: ModelUsageDocument,
}

/// The usage of models.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct UsageDocument {
    /// The hours with at least one call, oldest first.
    pub hours: Vec<HourlyUsageDocument>,
    /// The usage by model.
    pub models: BTreeMap<String, ModelUsageDocument>,
    /// The total usage.
    pub total: ModelUsageDocument,
    /// Whether all calls in the period are included.
    pub complete: bool,
}

/// The rules of a prune: what to keep.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewPrune {
    /// Keep the newest so many.
    pub keep_last: Option<usize>,
    /// Keep those younger than so many days.
    pub keep_days: Option<u64>,
    /// Keep the newest manual ones, whatever the other rules say.
    pub keep_manual: bool,
    /// Keep significant ones, whatever the other rules say: made because a hypothesis was concluded, because of a
    /// contradiction or a verification, or the result of a merge.
    pub keep_significant: bool,
    /// Delete the branches with the oldest tips until so many are left; the current one and `main` stay.
    pub max_branches: Option<usize>,
    /// Remove automatic checkpoints, the oldest first, until the store has at most so many bytes. Refused if that cannot be
    /// reached; without `now`, checkpoints of the last 24 hours stay.
    pub max_size: Option<u64>,
    /// Free the bytes at once, so that the prune cannot be undone.
    pub now: bool,
    /// Only report what would be removed. The default is `true`.
    #[schema(default = true)]
    pub dry_run: bool,
}

impl Default for NewPrune {
    fn default() -> Self {
        Self {
            keep_last: None,
            keep_days: None,
            keep_manual: false,
            keep_significant: false,
            max_branches: None,
            max_size: None,
            now: false,
            dry_run: true,
        }
    }
}

/// A workspace that was forgotten.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ForgottenWorkspaceDocument {
    /// Its id, by which `stepback workspace restore` brings it back as long as it is not freed.
    pub id: String,
    /// Its directory.
    pub root: String,
}

/// The result or the preview of a prune.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PruneReportDocument {
    /// Whether it was applied.
    pub applied: bool,
    /// Checkpoints that it hides, newest first.
    pub items: Vec<StepDocument>,
    /// Checkpoints that stay.
    pub kept: u64,
    /// Checkpoints whose bytes are freed: hidden more than 24 hours ago, or removed by `now` or `max_size`.
    pub freed_checkpoints: u64,
    /// Branches that it deletes.
    pub branches: Vec<String>,
    /// Forgotten workspaces that it frees, whatever the rules are: they cannot be restored then.
    pub forgotten: Vec<ForgottenWorkspaceDocument>,
    /// Reruns whose intermediate files were removed; their branches stay.
    pub reruns: u64,
    /// Objects that were freed.
    pub freed_objects: u64,
    /// Bytes by which the store shrank.
    pub freed_bytes: u64,
    /// Bytes of the store before the prune.
    pub size_before: u64,
    /// Bytes of the store after it: computed in a preview, measured in a result.
    pub size_after: u64,
    /// The operation, which undo takes; none if nothing was applied.
    pub operation: Option<OperationDocument>,
}
