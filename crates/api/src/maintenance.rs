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
    /// Bytes that it should stay within; none if no budget is set.
    pub budget_bytes: Option<u64>,
    /// Number of workspaces.
    pub workspaces: u64,
    /// Checkpoints that are not hidden.
    pub checkpoints: u64,
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
    /// Whether all calls in the period are included; otherwise only the newest 20,000.
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
