//! All sessions at a glance: what they cost, which tools are slow, and what fails.

use serde::{Deserialize, Serialize};
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

use crate::cost::CostSumDocument;

/// All sessions at a glance.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DashboardDocument {
    /// Since when things count: the full hour in which the time that was asked for is; none if everything counts.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// The workspace; none for all.
    pub workspace: Option<String>,
    /// Whether reruns count.
    pub reruns: bool,
    /// Number of sessions that were active.
    pub sessions: u64,
    /// The calls of models together.
    pub total: CostSumDocument,
    /// Answers that came from a recording. They cost nothing, and are not in the total.
    pub replayed_calls: u64,
    /// The models, the most expensive first.
    pub models: Vec<DashboardModelDocument>,
    /// The tools, those that took the most time together first.
    pub tools: Vec<DashboardToolDocument>,
    /// What belongs to no tool: `answers`, `prompts`, `context`, `uncounted`. With the costs of the tools it is the total.
    pub other_costs: Vec<OtherCostDocument>,
    /// The agents, the most expensive first.
    pub agents: Vec<DashboardGroupDocument>,
    /// The branches, the most expensive first. A session belongs to the branch of its last step.
    pub branches: Vec<DashboardGroupDocument>,
    /// The days on which something was done, in universal time, oldest first.
    pub days: Vec<DashboardGroupDocument>,
    /// The rule by which the costs of tools were inferred.
    pub tool_cost_rule: String,
    /// How far a percentile may be away from the exact one, as a part of it.
    pub latency_error: f64,
    /// The disk.
    pub disk: DashboardDiskDocument,
}

/// Which steps are behind a row: parameters of `GET /steps`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StepLinkDocument {
    /// The workspace.
    pub workspace: Option<String>,
    /// The agent.
    pub agent: Option<String>,
    /// The kind of step.
    pub kind: Option<String>,
    /// The tool or model.
    pub tool: Option<String>,
    /// Only those since this time.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// Only those until this time.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
}

/// How long calls took, without waiting, in microseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct LatencyDocument {
    /// Number of calls whose duration is known.
    pub count: u64,
    /// The sum of their durations.
    pub total_us: u64,
    /// The median; none if no duration is known.
    pub p50_us: Option<u64>,
    /// The 95th percentile.
    pub p95_us: Option<u64>,
    /// The longest; exact.
    pub max_us: Option<u64>,
}

/// The calls of a model.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DashboardModelDocument {
    /// The model; none if it is not recorded.
    pub name: Option<String>,
    /// How many of its calls failed.
    pub failed: u64,
    /// Answers that came from a recording; they are in no other number.
    pub replayed: u64,
    /// How long its answers took.
    pub latency: LatencyDocument,
    /// The steps behind it.
    pub steps: StepLinkDocument,
    /// Tokens and money.
    #[serde(flatten)]
    pub sum: CostSumDocument,
}

/// The calls of a tool.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DashboardToolDocument {
    /// The tool; none if it is not recorded.
    pub name: Option<String>,
    /// Number of calls.
    pub calls: u64,
    /// How many failed.
    pub failed: u64,
    /// How many were refused and did not run.
    pub refused: u64,
    /// How many have no recorded end.
    pub unfinished: u64,
    /// The part of the calls that ended which failed; none if none ended.
    pub error_rate: Option<f64>,
    /// How long its calls took.
    pub latency: LatencyDocument,
    /// Its share of tokens and money; inferred.
    pub cost: CostSumDocument,
    /// The steps behind it.
    pub steps: StepLinkDocument,
}

/// Costs that belong to no tool.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct OtherCostDocument {
    /// `answers`, `prompts`, `context` (system prompts, descriptions of tools and what agents add) or `uncounted`.
    pub kind: String,
    /// Tokens and money; inferred.
    #[serde(flatten)]
    pub sum: CostSumDocument,
}

/// The sessions of an agent, of a branch or of a day.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DashboardGroupDocument {
    /// The agent, the branch, or the day as `2026-01-23`.
    pub key: String,
    /// The workspace of a branch.
    pub workspace: Option<String>,
    /// Number of its sessions.
    pub sessions: u64,
    /// The ids of some of its sessions.
    pub session_ids: Vec<String>,
    /// Number of calls of tools.
    pub tool_calls: u64,
    /// How many of them failed.
    pub failed_tool_calls: u64,
    /// The steps behind it; those of a branch are not found by a query but by its sessions.
    pub steps: StepLinkDocument,
    /// Tokens and money.
    #[serde(flatten)]
    pub sum: CostSumDocument,
}

/// The disk.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DashboardDiskDocument {
    /// Bytes that the store occupies.
    pub used_bytes: u64,
    /// The disk budget in bytes; none if there is none.
    pub budget_bytes: Option<u64>,
}
