//! What model calls used and cost.

use serde::{Deserialize, Serialize};
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

/// Tokens and money of some model calls.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CostSumDocument {
    /// The number of model calls; of a tool, of its calls.
    pub calls: u64,
    /// Input tokens at the full price.
    pub input: u64,
    /// Input tokens read from a cache.
    pub cache_read: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
    /// The output tokens that were reasoning, as far as they were counted.
    pub reasoning: u64,
    /// The cost in dollars, as far as it is known.
    pub cost_usd: f64,
    /// The part of it that was not recorded, but computed from recorded tokens with the price table.
    pub priced_usd: f64,
    /// Model calls whose cost is unknown, because their model has no price. They are not in `cost_usd`.
    pub unpriced_calls: u64,
    /// Model calls whose tokens were not recorded.
    pub uncounted_calls: u64,
}

/// A row of a cost report.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CostRowDocument {
    /// What the row is about: the model, tool, agent, session, branch, prompt or day; `null` for the rest.
    pub key: Option<String>,
    /// The same for people.
    pub label: String,
    /// `group`; or what belongs to no tool: `answers`, `prompts`, `context` (system prompts, descriptions of tools and what agents
    /// add), `uncounted`; or `others` (the rows that are left out).
    pub kind: String,
    /// `recorded`, or `inferred` by the rule of the report.
    pub basis: String,
    /// The workspace, if the row is about one.
    pub workspace: Option<String>,
    /// The session, if the row is about one.
    pub session: Option<String>,
    /// The number of the step of a prompt.
    pub step: Option<u64>,
    /// Its tokens and money.
    #[serde(flatten)]
    pub sum: CostSumDocument,
}

/// A model without a price.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct UnpricedModelDocument {
    /// The model; `null` if it was not recorded.
    pub model: Option<String>,
    /// Its calls whose cost is unknown.
    pub calls: u64,
    /// Their tokens, in and out.
    pub tokens: u64,
}

/// What recorded sessions cost.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CostDocument {
    /// How the rows are grouped: `model`, `tool`, `agent`, `session`, `branch`, `prompt` or `day`.
    pub by: String,
    /// Only calls since this time.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// All rows together.
    pub total: CostSumDocument,
    /// The rows, the most expensive first; days in their order.
    pub rows: Vec<CostRowDocument>,
    /// The rule by which the numbers of rows with the basis `inferred` were computed.
    pub rule: Option<String>,
    /// Answers that came from a recording. No model was called and nothing was spent; they are not in the total.
    pub replayed: CostSumDocument,
    /// What reruns asked models for. It is in the total and the rows only if reruns were asked for.
    pub reruns: CostSumDocument,
    /// Models without a price.
    pub unpriced: Vec<UnpricedModelDocument>,
    /// The date of the built-in price table.
    pub prices_of: String,
    /// Calls with impossible usage, which was left out: negative, or larger than any model allows.
    pub impossible_usage: u64,
    /// Answers that several sessions have, because a conversation was continued in another one. Each is counted once.
    pub shared_answers: u64,
}
