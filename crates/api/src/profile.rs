//! Where the time of a session went.

use serde::{Deserialize, Serialize};
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

/// Where the time of a session went. All times are in microseconds; the offsets of spans are from the start of the session.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ProfileDocument {
    /// The id of the session.
    pub session: String,
    /// The agent.
    pub agent: String,
    /// When the session began.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When the last thing in it ended.
    #[schema(value_type = String, format = DateTime)]
    pub ended_at: Timestamp,
    /// The time between the two.
    pub wall_us: u64,
    /// The time per category: `model`, `tool`, `hook`, `breakpoint`, `user`, `idle`. Together it is `wall_us`.
    pub categories: Vec<CategoryTimeDocument>,
    /// The rules by which times were inferred.
    pub rules: Vec<TimeRuleDocument>,
    /// The calls of tools, those that took the most time first.
    pub tools: Vec<CallStatisticsDocument>,
    /// The calls of models, those that took the most time first.
    pub models: Vec<CallStatisticsDocument>,
    /// What the end of the session depended on.
    pub critical_path: CriticalPathDocument,
    /// The time that was saved because calls of tools ran in parallel.
    pub parallel_saved_us: u64,
    /// The agents: the main agent first, then its sub-agents.
    pub lanes: Vec<AgentLaneDocument>,
    /// What happened when, by start; in a long session the longest.
    pub spans: Vec<ProfileSpanDocument>,
    /// Number of spans in the time that was asked for.
    pub spans_total: u64,
    /// How many of them are not in `spans`, because they are shorter than those that are.
    pub spans_left_out: u64,
    /// How large the requests to the models were.
    pub context: Vec<ContextSampleDocument>,
    /// How many requests are not in `context`, which has the largest of each stretch of time.
    pub context_left_out: u64,
    /// What was found in the recording that makes numbers less certain, in words.
    pub caveats: Vec<String>,
}

/// The time that belongs to a category.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CategoryTimeDocument {
    /// The category: `model`, `tool`, `hook` (hooks, and the agent's own work around its calls), `breakpoint`, `user` (the agent waited for
    /// its user), or `idle`.
    pub category: String,
    /// How much time, in microseconds.
    pub us: u64,
    /// How much of it is inferred by a rule, not recorded.
    pub inferred_us: u64,
}

/// A rule by which times were inferred.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TimeRuleDocument {
    /// The rule, in words.
    pub rule: String,
    /// How much time is known only by it, in microseconds.
    pub us: u64,
}

/// The calls of a tool or model in numbers. Durations are without waiting, in microseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CallStatisticsDocument {
    /// The tool or model; none if it is not recorded.
    pub name: Option<String>,
    /// Number of calls.
    pub calls: u64,
    /// How many failed.
    pub failed: u64,
    /// How many were refused and did not run.
    pub refused: u64,
    /// How many have no recorded end.
    pub unfinished: u64,
    /// How many ended without a known duration.
    pub unknown: u64,
    /// How long they ran; none if that is known of no call.
    pub durations: Option<DurationSummaryDocument>,
    /// How long they waited together: at breakpoints, for permissions and answers.
    pub waited_us: u64,
    /// How much of the critical path they are.
    pub critical_us: u64,
    /// The number of the step of the longest call.
    pub longest: Option<u64>,
}

/// Durations in numbers, in microseconds. A percentile is the smallest duration that at least so many percent did not exceed.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DurationSummaryDocument {
    /// Number of durations.
    pub count: u64,
    /// Their sum.
    pub total_us: u64,
    /// Their mean.
    pub mean_us: u64,
    /// The median.
    pub p50_us: u64,
    /// The 90th percentile.
    pub p90_us: u64,
    /// The 95th percentile.
    pub p95_us: u64,
    /// The 99th percentile.
    pub p99_us: u64,
    /// The longest.
    pub max_us: u64,
}

/// What the end of the session depended on: followed backwards from the last thing that ended to what had ended last before it began.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CriticalPathDocument {
    /// Its length without gaps, in microseconds.
    pub us: u64,
    /// Number of its segments.
    pub count: u64,
    /// Its longest segments, in time order.
    pub segments: Vec<PathSegmentDocument>,
}

/// A part of the critical path.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PathSegmentDocument {
    /// The category.
    pub category: String,
    /// The tool or model.
    pub name: Option<String>,
    /// The path or program that the call was about.
    pub subject: Option<String>,
    /// When it begins, from the start of the session, in microseconds.
    pub start_us: u64,
    /// How long it is, in microseconds.
    pub us: u64,
    /// The number of the step that it is known from.
    pub step: u64,
}

/// The main agent, or a sub-agent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct AgentLaneDocument {
    /// The name of the sub-agent; none for the main agent.
    pub worker: Option<String>,
    /// The number of the step at which the call began that probably started it (inferred: the last such call before its first step).
    pub started_by: Option<u64>,
}

/// An interval in which one thing happened.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ProfileSpanDocument {
    /// The category.
    pub category: String,
    /// The tool or model.
    pub name: Option<String>,
    /// The path or program that the call was about.
    pub subject: Option<String>,
    /// The agent, as an index into `lanes`.
    pub lane: u64,
    /// The row of this agent, counted from 0: spans of one row do not overlap.
    pub row: u64,
    /// When it began, from the start of the session, in microseconds.
    pub start_us: u64,
    /// How long it took, in microseconds.
    pub us: u64,
    /// The number of the step that it is known from: for a call, the one that ended it.
    pub step: u64,
    /// The number of the step that began the call.
    pub first_step: Option<u64>,
    /// Whether the call failed.
    pub failed: bool,
    /// The rule by which its times were inferred; none if they were recorded.
    pub rule: Option<String>,
    /// Whether it is on the critical path.
    pub critical: bool,
}

/// The size of a request to a model.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ContextSampleDocument {
    /// When the answer was complete, from the start of the session, in microseconds.
    pub at_us: u64,
    /// The agent, as an index into `lanes`.
    pub lane: u64,
    /// The number of the step that has the answer.
    pub step: u64,
    /// The model.
    pub model: Option<String>,
    /// Tokens that the model read, with those from its cache; none if they were not recorded.
    pub tokens: Option<u64>,
    /// How many of them came from the cache.
    pub cached: Option<u64>,
    /// `recorded` if the request is recorded, `inferred` if only the results of tools were added up since the conversation was compacted.
    pub basis: String,
    /// What the request was made of. If it is inferred, only the results of tools.
    pub parts: Vec<ContextPartDocument>,
    /// Whether the conversation was compacted or begun anew since the last request of this agent.
    pub compacted: bool,
}

/// A part of a request to a model.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ContextPartDocument {
    /// `system`, `tools`, `user`, `assistant`, `result` or `other`.
    pub kind: String,
    /// The tool of a result.
    pub tool: Option<String>,
    /// Its size in bytes of text.
    pub bytes: u64,
}
