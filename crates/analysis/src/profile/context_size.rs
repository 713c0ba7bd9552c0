//! How large the requests to the models were over time, and what they were made of.
//!
//! The number of tokens is what the model reported. What a request was made of is known in bytes: recorded, if the request itself was,
//! or else only for the results of tools, inferred by adding up those of the same agent since its conversation was last compacted.

use std::collections::HashMap;

use stepback_model::record::StepKind;

use super::AgentLane;
use crate::facts::{ContextParts, NameIndex, SessionFacts};
use crate::marks::StepMark;

/// A conversation of at least [`MIN_SHRUNK_TOKENS`] that shrinks to less than this part of its size was compacted or begun anew.
const SHRUNK_TO: f64 = 0.6;
/// Small requests beside the conversation, for a title or a summary, vary as they like.
const MIN_SHRUNK_TOKENS: u64 = 10_000;

/// The size of one request to a model.
#[derive(Clone, PartialEq, Debug)]
pub struct ContextSample {
    /// When the answer was complete, in microseconds since the epoch.
    pub at: i64,
    /// The agent, as an index into the lanes of the profile.
    pub lane: usize,
    /// The step that has the answer, as an index.
    pub step: u32,
    /// The model.
    pub model: Option<NameIndex>,
    /// Tokens that the model read, with those from its cache; `None` if they were not recorded.
    pub tokens: Option<u64>,
    /// How many of them came from the cache.
    pub cached: Option<u64>,
    /// What the request was made of, in bytes, if it was recorded.
    pub parts: Option<ContextParts>,
    /// Bytes of the results of tools that the conversation holds, by tool, if the request was not recorded. Inferred.
    pub results: Vec<(NameIndex, u64)>,
    /// Whether the conversation was compacted or begun anew since the last request of this agent.
    pub compacted: bool,
}

/// Returns a sample for each model call whose usage or request is recorded.
pub fn context_samples(facts: &SessionFacts, lanes: &[AgentLane]) -> Vec<ContextSample> {
    let lane_of: HashMap<Option<NameIndex>, usize> =
        lanes.iter().enumerate().map(|(index, lane)| (lane.worker, index)).collect();
    let mut order: Vec<usize> = (0..facts.model_calls.len()).collect();
    order.sort_by_key(|index| facts.model_calls[*index].step);
    let mut held: HashMap<Option<NameIndex>, ResultTotals> = HashMap::new();
    let mut next_step = 0;
    let mut samples = Vec::with_capacity(order.len());
    for index in order {
        let call = &facts.model_calls[index];
        let limit = (call.step as usize).min(facts.steps.len());
        for step in &facts.steps[next_step.min(limit)..limit] {
            let results = held.entry(step.worker).or_default();
            if step.mark == StepMark::Compacted {
                results.clear();
            } else if step.kind == StepKind::ToolEnd
                && let Some(tool) = step.tool
            {
                results.add(tool, step.output_bytes);
            }
        }
        next_step = next_step.max(limit);
        if call.tokens.is_none() && call.context.is_none() {
            continue;
        }
        let tokens = call
            .tokens
            .map(|tokens| tokens.input.saturating_add(tokens.cache_read).saturating_add(tokens.cache_write));
        let results = held.entry(call.worker).or_default();
        let shrank = tokens.is_some_and(|tokens| results.shrank_to(call.model, tokens));
        let compacted = std::mem::take(&mut results.cleared) || shrank;
        if shrank {
            results.by_tool.clear();
        }
        if let Some(tokens) = tokens {
            results.last_tokens.insert(call.model, tokens);
        }
        let results = if call.context.is_none() { results.list() } else { Vec::new() };
        samples.push(ContextSample {
            at: call.at.as_micros(),
            lane: lane_of.get(&call.worker).copied().unwrap_or_default(),
            step: call.step,
            model: call.model,
            tokens,
            cached: call.tokens.map(|tokens| tokens.cache_read),
            parts: call.context.clone(),
            results,
            compacted,
        });
    }
    samples.sort_by_key(|sample| sample.at);
    samples
}

/// The results of tools that a conversation holds.
#[derive(Default)]
struct ResultTotals {
    by_tool: HashMap<NameIndex, u64>,
    /// The size of the last request to each model: an agent asks a smaller one beside its conversation.
    last_tokens: HashMap<Option<NameIndex>, u64>,
    cleared: bool,
}

impl ResultTotals {
    fn add(&mut self, tool: NameIndex, bytes: u64) {
        let total = self.by_tool.entry(tool).or_default();
        *total = total.saturating_add(bytes);
    }

    fn clear(&mut self) {
        self.by_tool.clear();
        self.cleared = true;
    }

    fn shrank_to(&self, model: Option<NameIndex>, tokens: u64) -> bool {
        self.last_tokens
            .get(&model)
            .is_some_and(|last| *last >= MIN_SHRUNK_TOKENS && (tokens as f64) < *last as f64 * SHRUNK_TO)
    }

    /// The tools with the largest results first.
    fn list(&self) -> Vec<(NameIndex, u64)> {
        let mut results: Vec<(NameIndex, u64)> = self
            .by_tool
            .iter()
            .filter(|(_, bytes)| **bytes > 0)
            .map(|(tool, bytes)| (*tool, *bytes))
            .collect();
        results.sort_unstable_by_key(|(tool, bytes)| (std::cmp::Reverse(*bytes), *tool));
        results
    }
}
