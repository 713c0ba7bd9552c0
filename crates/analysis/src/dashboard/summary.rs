//! What a dashboard needs of a session: per hour and per tool or model a few numbers, which can be added up.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use stepback_llm_wire::prices::Prices;
use stepback_llm_wire::semantics::TokenUsage;
use stepback_model::ids::SessionId;

use super::latency::LatencyHistogram;
use crate::cost::tool_shares::ToolShares;
use crate::cost::{CostKey, CostSum, has_failed};
use crate::facts::{SessionFacts, UsageSource};
use crate::profile::TimeCategory;
use crate::profile::statistics::{CallResult, measure_calls};

/// An hour in microseconds.
pub const HOUR: i64 = 3_600_000_000;

/// A session in numbers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SessionSummary {
    /// The session; `None` only in the empty value.
    pub session: Option<SessionId>,
    /// The agent's stable name.
    pub agent: String,
    /// What was done in each hour in which something was, by the hours since the epoch.
    pub hours: BTreeMap<i64, HourSummary>,
    /// The ids of its answers, so that they are not counted in another session too that continues its conversation.
    pub identities: Vec<u64>,
}

/// What was done in one hour.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct HourSummary {
    /// The calls of tools, by tool.
    #[serde(rename = "t")]
    pub tools: BTreeMap<String, ToolSummary>,
    /// The calls of models, by model.
    #[serde(rename = "m")]
    pub models: BTreeMap<String, ModelSummary>,
    /// The shares of tools in the costs.
    #[serde(rename = "s")]
    pub shares: BTreeMap<String, SpentNumbers>,
    /// The costs that belong to no tool, by the name of their kind.
    #[serde(rename = "o")]
    pub others: BTreeMap<String, SpentNumbers>,
}

/// The calls of a tool.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ToolSummary {
    /// Number of calls.
    #[serde(rename = "c")]
    pub calls: u64,
    /// How many failed.
    #[serde(rename = "f")]
    pub failed: u64,
    /// How many were refused and did not run.
    #[serde(rename = "r")]
    pub refused: u64,
    /// How many have no recorded end.
    #[serde(rename = "u")]
    pub unfinished: u64,
    /// How long those ran whose duration is known.
    #[serde(rename = "l")]
    pub latency: LatencyHistogram,
}

/// The calls of a model.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ModelSummary {
    /// What they used, without answers from a recording.
    #[serde(rename = "s")]
    pub spent: SpentNumbers,
    /// Number of answers from a recording, which cost nothing.
    #[serde(rename = "r")]
    pub replayed: u64,
    /// Number of calls that failed.
    #[serde(rename = "f")]
    pub failed: u64,
    /// How long the calls took whose duration is known.
    #[serde(rename = "l")]
    pub latency: LatencyHistogram,
}

/// A [`CostSum`] as numbers in the order of its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SpentNumbers([u64; 10]);

impl From<CostSum> for SpentNumbers {
    fn from(sum: CostSum) -> Self {
        let TokenUsage { input, output, cache_read, cache_write, reasoning } = sum.tokens;
        let CostSum { calls, micros, priced_micros, unpriced_calls, uncounted_calls, .. } = sum;
        Self([
            calls,
            input,
            output,
            cache_read,
            cache_write,
            reasoning,
            micros,
            priced_micros,
            unpriced_calls,
            uncounted_calls,
        ])
    }
}

impl From<SpentNumbers> for CostSum {
    fn from(numbers: SpentNumbers) -> Self {
        let [
            calls,
            input,
            output,
            cache_read,
            cache_write,
            reasoning,
            micros,
            priced_micros,
            unpriced_calls,
            uncounted_calls,
        ] = numbers.0;
        let tokens = TokenUsage { input, output, cache_read, cache_write, reasoning };
        Self { calls, tokens, micros, priced_micros, unpriced_calls, uncounted_calls }
    }
}

impl SpentNumbers {
    /// Adds other numbers.
    pub fn merge(&mut self, other: Self) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own = own.saturating_add(other);
        }
    }
}

impl ToolSummary {
    /// Adds the calls of another summary.
    pub fn merge(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.failed = self.failed.saturating_add(other.failed);
        self.refused = self.refused.saturating_add(other.refused);
        self.unfinished = self.unfinished.saturating_add(other.unfinished);
        self.latency.merge(&other.latency);
    }
}

impl ModelSummary {
    /// Adds the calls of another summary.
    pub fn merge(&mut self, other: &Self) {
        self.spent.merge(other.spent);
        self.replayed = self.replayed.saturating_add(other.replayed);
        self.failed = self.failed.saturating_add(other.failed);
        self.latency.merge(&other.latency);
    }
}

impl SessionSummary {
    /// Summarises a session. `known` has the ids of answers that other sessions count; those of this one are added.
    pub fn of(facts: &SessionFacts, prices: &Prices, known: &mut HashSet<u64>) -> Self {
        let mut summary = Self { session: facts.session, agent: facts.agent.clone(), ..Self::default() };
        summary.add_calls(facts);
        summary.add_costs(facts, prices, known);
        summary
    }

    fn add_calls(&mut self, facts: &SessionFacts) {
        let replayed: HashSet<u32> =
            facts.model_calls.iter().filter(|call| call.replayed).map(|call| call.step).collect();
        for call in measure_calls(facts) {
            let Some(step) = facts.steps.get(call.step as usize) else { continue };
            let hour = self.hours.entry(step.at.as_micros().div_euclid(HOUR)).or_default();
            let name = facts.name(call.name).to_owned();
            if call.category == TimeCategory::Model {
                if replayed.contains(&call.step) {
                    continue;
                }
                let model = hour.models.entry(name).or_default();
                model.failed += u64::from(call.result == CallResult::Failed);
                if let Some(duration) = call.duration {
                    model.latency.add(duration);
                }
                continue;
            }
            let tool = hour.tools.entry(name).or_default();
            tool.calls += 1;
            tool.failed += u64::from(call.result == CallResult::Failed);
            tool.refused += u64::from(call.result == CallResult::Refused);
            tool.unfinished += u64::from(call.result == CallResult::Unfinished);
            if let Some(duration) = call.duration {
                tool.latency.add(duration);
            }
        }
    }

    fn add_costs(&mut self, facts: &SessionFacts, prices: &Prices, known: &mut HashSet<u64>) {
        let mut counted: BTreeMap<i64, Vec<bool>> = BTreeMap::new();
        for (index, call) in facts.model_calls.iter().enumerate() {
            let is_shared = call.source == UsageSource::Conversation && known.contains(&call.identity);
            if is_shared {
                continue;
            }
            // A rerun repeats answers of the session that it reruns.
            if call.identity != 0 && !facts.is_rerun {
                self.identities.push(call.identity);
            }
            let hour = call.at.as_micros().div_euclid(HOUR);
            let model = facts.name(call.model).to_owned();
            let model = self.hours.entry(hour).or_default().models.entry(model).or_default();
            if call.replayed {
                model.replayed += 1;
                continue;
            }
            model.spent.merge(CostSum::of(call, has_failed(facts, call)).into());
            let calls = counted.entry(hour).or_insert_with(|| vec![false; facts.model_calls.len()]);
            calls[index] = true;
        }
        // One session has an answer once, so ids count only between sessions.
        known.extend(&self.identities);
        for (hour, counted) in counted {
            let mut rows: BTreeMap<CostKey, CostSum> = BTreeMap::new();
            ToolShares::new(facts, prices).add_to(&mut rows, &counted);
            let hour = self.hours.entry(hour).or_default();
            for (key, sum) in rows {
                let (rows, name) = match key {
                    CostKey::Name(name) => (&mut hour.shares, name.unwrap_or_default()),
                    CostKey::Answers => (&mut hour.others, "answers".to_owned()),
                    CostKey::Prompts => (&mut hour.others, "prompts".to_owned()),
                    CostKey::Uncounted => (&mut hour.others, "uncounted".to_owned()),
                    CostKey::Context | CostKey::Session(..) | CostKey::Prompt(..) => {
                        (&mut hour.others, "context".to_owned())
                    }
                };
                rows.entry(name).or_default().merge(sum.into());
            }
        }
    }
}
