//! What is unusual in sessions.

use serde::{Deserialize, Serialize};
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

/// Anomalies, the newest first, and the limits that they were found with.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct AnomaliesDocument {
    /// The anomalies.
    pub items: Vec<AnomalyDocument>,
    /// How many there are, with those that are not listed.
    pub total: u64,
    /// The kinds, with their limits.
    pub kinds: Vec<AnomalyKindDocument>,
}

/// Something unusual in a session: one incident, however many steps it has.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct AnomalyDocument {
    /// Its id, which stays the same while the incident goes on.
    pub id: String,
    /// `loop`, `alternating-edits`, `growing-retries`, `error-burst`, `no-progress`, `undone-edits`, `slow-call`, `costly-call` or
    /// `context-growth`.
    pub kind: String,
    /// `low`, `medium` (twice the limit or more) or `high` (four times).
    pub severity: String,
    /// Always `inferred`: nothing says of itself that it is unusual.
    pub basis: String,
    /// The rule by which it was found.
    pub rule: String,
    /// What happened, in a sentence with the numbers.
    pub evidence: String,
    /// What was measured, in `unit`.
    pub measured: f64,
    /// From where on that is an anomaly, in `unit`.
    pub limit: f64,
    /// What both count.
    pub unit: String,
    /// The id of the workspace.
    pub workspace: String,
    /// The id of the session.
    pub session: String,
    /// The agent.
    pub agent: String,
    /// The sub-agent; none for the main agent.
    pub worker: Option<String>,
    /// The tool or model of the first call.
    pub tool: Option<String>,
    /// The path or program of the first call.
    pub subject: Option<String>,
    /// The numbers of its first steps, at most eight.
    pub steps: Vec<u64>,
    /// The number of its last step.
    pub last: u64,
    /// How many calls belong to it.
    pub count: u64,
    /// When its first call ended.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// When its last call ended.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    /// The command that shows it.
    pub command: String,
}

/// A kind of anomaly.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct AnomalyKindDocument {
    /// Its name.
    pub kind: String,
    /// From where on something is an anomaly of this kind, in `unit`; none if the kind is off.
    pub limit: Option<u64>,
    /// What the limit counts.
    pub unit: String,
    /// Whether a breakpoint can stop an agent for it.
    pub live: bool,
}
