//! Calls that took much longer, or cost much more, than others of the same tool or model.
//!
//! Durations and costs are spread over orders of magnitude, so they are compared as logarithms, by median and median absolute
//! deviation (MAD), which a few outliers do not move. A call is one if it is at least [`MIN_DEVIATIONS`] robust standard deviations
//! above the median, the limit's times the median, twice the 95th percentile (so that what happens often is not unusual), and far
//! enough in absolute terms to matter.

use std::collections::HashMap;

use stepback_model::anomaly::{AnomalyKind, AnomalyLimits};
use stepback_model::record::StepKind;

use super::{Anomaly, Incident, evidence};
use crate::facts::{ModelCallFact, NameIndex, SessionFacts, StepFact};
use crate::marks::StepMark;

/// How many calls a history has at least.
const MIN_HISTORY: usize = 20;
/// How many robust standard deviations an outlier is above the median at least.
const MIN_DEVIATIONS: f64 = 5.0;
/// What makes the MAD of a normal distribution its standard deviation.
const MAD_SCALE: f64 = 1.4826;
/// The smallest MAD of logarithms that is assumed: calls that always take the same time may vary a little.
const MIN_MAD: f64 = 0.2;
/// How many times the 95th percentile an outlier is at least.
const OVER_P95: f64 = 2.0;
/// How much longer than the median a slow call of a tool and of a model takes at least, in microseconds.
const MIN_TOOL_EXCESS: f64 = 5e6;
const MIN_MODEL_EXCESS: f64 = 20e6;
/// How much more than the median a costly call costs at least, in millionths of a dollar.
const MIN_COST_EXCESS: f64 = 50_000.0;
/// Output tokens that every model call counts for besides its own, because it takes time to begin.
const BASE_TOKENS: f64 = 100.0;
/// Costs are compared for a context of so many tokens; to the tokens of each, as many are added as the second number says, because
/// an answer costs something without any.
const COMPARED_CONTEXT: f64 = 100_000.0;
const BASE_CONTEXT: f64 = 2_000.0;
/// After this pause, in microseconds, a provider has forgotten the context, and the next call pays for it again.
const CACHE_LIFETIME: i64 = 300_000_000;
/// How many calls later an outlier of the same tool or model belongs to the same incident.
const SAME_INCIDENT: u64 = 20;

/// What is compared with each other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum HistoryKey {
    /// Durations of a tool with a program or file.
    ToolSubject(String, String),
    /// Durations of a tool.
    Tool(String),
    /// Durations of a model, for each token of its answers.
    ModelTime(String),
    /// Costs of a model.
    ModelCost(String),
}

/// How values of one kind are distributed.
#[derive(Clone, Copy, Debug)]
struct Distribution {
    count: usize,
    median: f64,
    mad: f64,
    p95: f64,
}

/// The distributions of all durations and costs.
pub(super) struct CallHistory {
    distributions: HashMap<HistoryKey, Distribution>,
}

impl CallHistory {
    /// Reads all calls of sessions.
    pub fn of(sessions: &[SessionFacts]) -> Self {
        let mut values: HashMap<HistoryKey, Vec<f32>> = HashMap::new();
        for facts in sessions {
            let mut keys: HashMap<(NameIndex, Option<NameIndex>), [HistoryKey; 2]> = HashMap::new();
            for (step, micros) in facts.steps.iter().filter_map(|step| Some((step, tool_time(step)?))) {
                let Some(tool) = step.tool else { continue };
                let names = keys.entry((tool, step.subject)).or_insert_with(|| tool_keys(facts, step));
                for key in names.iter() {
                    push(&mut values, key, micros);
                }
            }
            let mut models: HashMap<NameIndex, [HistoryKey; 2]> = HashMap::new();
            let mut contexts = ContextStarts::default();
            for call in facts.model_calls.iter().filter(|call| !call.replayed) {
                let Some(model) = call.model else { continue };
                let [time, cost] = models.entry(model).or_insert_with(|| model_keys(facts, model));
                if let Some(value) = model_time(call) {
                    push(&mut values, time, value);
                }
                if let (false, Some(value)) = (contexts.begins_with(call), model_cost(call)) {
                    push(&mut values, cost, value);
                }
            }
        }
        let distributions = values
            .into_iter()
            .filter(|(_, values)| values.len() >= MIN_HISTORY)
            .map(|(key, values)| (key, Distribution::of(values)))
            .collect();
        Self { distributions }
    }

    fn get(&self, key: &HistoryKey) -> Option<&Distribution> {
        self.distributions.get(key)
    }
}

/// Adds a value without copying the key of a history that exists.
fn push(values: &mut HashMap<HistoryKey, Vec<f32>>, key: &HistoryKey, value: f64) {
    // Six digits of a logarithm are enough, and half the memory.
    let value = value.max(1.0).ln() as f32;
    match values.get_mut(key) {
        Some(values) => values.push(value),
        None => drop(values.insert(key.clone(), vec![value])),
    }
}

impl Distribution {
    /// Of logarithms, at least one.
    fn of(mut values: Vec<f32>) -> Self {
        let count = values.len();
        let at = |values: &mut [f32], rank: usize| *values.select_nth_unstable_by(rank, f32::total_cmp).1;
        let median = at(&mut values, count / 2);
        let p95 = at(&mut values, (count - 1) * 95 / 100);
        values.iter_mut().for_each(|value| *value = (*value - median).abs());
        let mad = at(&mut values, count / 2);
        Self { count, median: median.into(), mad: mad.into(), p95: p95.into() }
    }

    fn median(&self) -> f64 {
        self.median.exp()
    }

    /// Whether a value is an outlier; `limit` is in times the median.
    fn is_outlier(&self, value: f64, limit: u64, min_excess: f64) -> bool {
        let log = value.max(1.0).ln();
        log - self.median >= MIN_DEVIATIONS * MAD_SCALE * self.mad.max(MIN_MAD)
            && value >= self.median() * limit as f64
            && log >= self.p95 + OVER_P95.ln()
            && value - self.median() >= min_excess
    }
}

/// How long a call of a tool ran, in microseconds, without waiting.
fn tool_time(step: &StepFact) -> Option<f64> {
    let is_end = step.kind == StepKind::ToolEnd && step.mark != StepMark::Refused;
    step.duration.filter(|micros| is_end && *micros > 0).map(|micros| micros as f64)
}

/// How long a model took for each token of its answer; only a duration if the tokens are unknown.
fn model_time(call: &ModelCallFact) -> Option<f64> {
    let micros = call.duration.filter(|micros| *micros > 0)? as f64;
    Some(micros * BASE_TOKENS / (BASE_TOKENS + call.tokens.map_or(0.0, |tokens| tokens.output as f64)))
}

/// What a call cost for a context of 100,000 tokens, in millionths of a dollar; all of its cost if its tokens are unknown.
fn model_cost(call: &ModelCallFact) -> Option<f64> {
    let cost = call.cost? as f64;
    Some(call.tokens.map_or(cost, |tokens| {
        let context = tokens.input as f64 + tokens.cache_read as f64 + tokens.cache_write as f64;
        cost * COMPARED_CONTEXT / (BASE_CONTEXT + context)
    }))
}

fn tool_keys(facts: &SessionFacts, step: &StepFact) -> [HistoryKey; 2] {
    let tool = facts.name(step.tool).to_owned();
    [HistoryKey::ToolSubject(tool.clone(), facts.name(step.subject).to_owned()), HistoryKey::Tool(tool)]
}

fn model_keys(facts: &SessionFacts, model: NameIndex) -> [HistoryKey; 2] {
    let name = facts.name(Some(model)).to_owned();
    [HistoryKey::ModelTime(name.clone()), HistoryKey::ModelCost(name)]
}

/// Tells the calls that fill a provider's cache, which cost more and are not compared: the first of each context, and those after
/// a pause.
#[derive(Default)]
struct ContextStarts {
    last: HashMap<(Option<NameIndex>, Option<NameIndex>), (i64, u64)>,
}

impl ContextStarts {
    fn begins_with(&mut self, call: &ModelCallFact) -> bool {
        let at = call.at.as_micros();
        let size = call.tokens.map_or(0, |tokens| {
            tokens.input.saturating_add(tokens.cache_read).saturating_add(tokens.cache_write)
        });
        let before = self.last.insert((call.worker, call.model), (at, size));
        before.is_none_or(|(before, was)| {
            // A context that is half of what it was is another one.
            at.saturating_sub(before) > CACHE_LIFETIME || size < was / 2
        })
    }
}

/// Incidents of one kind that may go on, by what they are compared with.
type OpenIncidents = HashMap<(AnomalyKind, NameIndex, Option<NameIndex>), OpenIncident>;

/// Outliers of one tool or model that are close to each other.
struct OpenIncident {
    rule: &'static str,
    worker: Option<NameIndex>,
    steps: Vec<usize>,
    last: usize,
    count: u64,
    position: u64,
    worst: f64,
    typical: Distribution,
    limit: u64,
}

/// Finds the outliers of one session.
pub(super) fn find_outliers(
    facts: &SessionFacts,
    limits: &AnomalyLimits,
    history: &CallHistory,
) -> Vec<Anomaly> {
    let mut done = Vec::new();
    let mut open = OpenIncidents::new();
    if let Some(limit) = limits.get(AnomalyKind::SlowCall) {
        let mut position = 0;
        let mut known: HashMap<(NameIndex, Option<NameIndex>), Option<Distribution>> = HashMap::new();
        for (index, step) in facts.steps.iter().enumerate() {
            let (Some(micros), Some(tool)) = (tool_time(step), step.tool) else { continue };
            position += 1;
            let found = known
                .entry((tool, step.subject))
                .or_insert_with(|| tool_keys(facts, step).iter().find_map(|key| history.get(key).copied()));
            let Some(typical) = *found else { continue };
            if typical.is_outlier(micros, limit, MIN_TOOL_EXCESS) {
                let key = (AnomalyKind::SlowCall, tool, step.subject);
                let outlier = (index, step.worker, micros);
                note_outlier(
                    facts,
                    (&mut open, &mut done),
                    key,
                    "slower-than-history",
                    position,
                    outlier,
                    (typical, limit),
                );
            }
        }
    }
    find_model_outliers(facts, limits, history, (&mut open, &mut done));
    done.extend(open.into_iter().map(|((kind, ..), incident)| incident.into_anomaly(facts, kind)));
    done
}

fn find_model_outliers(
    facts: &SessionFacts,
    limits: &AnomalyLimits,
    history: &CallHistory,
    (open, done): (&mut OpenIncidents, &mut Vec<Anomaly>),
) {
    let mut contexts = ContextStarts::default();
    let mut known: HashMap<NameIndex, [Option<Distribution>; 2]> = HashMap::new();
    for (position, call) in facts.model_calls.iter().filter(|call| !call.replayed).enumerate() {
        let Some(model) = call.model else { continue };
        let [time, cost] = *known
            .entry(model)
            .or_insert_with(|| model_keys(facts, model).map(|key| history.get(&key).copied()));
        let begins = contexts.begins_with(call);
        let index = call.step as usize;
        let position = position as u64;
        if let (Some(limit), Some(typical), Some(value)) =
            (limits.get(AnomalyKind::SlowCall), time, model_time(call))
            && typical.is_outlier(value, limit, 0.0)
            && call.duration.is_some_and(|micros| micros as f64 >= MIN_MODEL_EXCESS)
        {
            let key = (AnomalyKind::SlowCall, model, None);
            let outlier = (index, call.worker, value);
            note_outlier(facts, (open, done), key, "slower-than-model", position, outlier, (typical, limit));
        }
        if let (Some(limit), Some(typical), Some(value), false) =
            (limits.get(AnomalyKind::CostlyCall), cost, model_cost(call), begins)
            && typical.is_outlier(value, limit, 0.0)
            // What it cost more than it would have at the median.
            && call.cost.is_some_and(|cost| {
                cost as f64 * (1.0 - typical.median() / value.max(1.0)) >= MIN_COST_EXCESS
            })
        {
            let key = (AnomalyKind::CostlyCall, model, None);
            let outlier = (index, call.worker, value);
            note_outlier(
                facts,
                (open, done),
                key,
                "costlier-than-model",
                position,
                outlier,
                (typical, limit),
            );
        }
    }
}

/// Adds an outlier to the incident that is open, or begins another one.
fn note_outlier(
    facts: &SessionFacts,
    (open, done): (&mut OpenIncidents, &mut Vec<Anomaly>),
    key: (AnomalyKind, NameIndex, Option<NameIndex>),
    rule: &'static str,
    position: u64,
    (index, worker, value): (usize, Option<NameIndex>, f64),
    (typical, limit): (Distribution, u64),
) {
    /// How many steps of an incident are listed.
    const LISTED: usize = 8;
    if let Some(incident) = open.get_mut(&key) {
        if position.saturating_sub(incident.position) <= SAME_INCIDENT {
            incident.count += 1;
            incident.position = position;
            incident.last = index;
            incident.worst = incident.worst.max(value);
            if incident.steps.len() < LISTED {
                incident.steps.push(index);
            }
            return;
        }
        if let Some(incident) = open.remove(&key) {
            done.push(incident.into_anomaly(facts, key.0));
        }
    }
    let steps = vec![index];
    let incident =
        OpenIncident { rule, worker, steps, last: index, count: 1, position, worst: value, typical, limit };
    open.insert(key, incident);
}

impl OpenIncident {
    fn into_anomaly(self, facts: &SessionFacts, kind: AnomalyKind) -> Anomaly {
        let median = self.typical.median().max(1.0);
        let evidence = evidence::describe_outlier(
            facts,
            (kind, self.rule),
            self.steps.first().copied(),
            self.count,
            (self.worst, median, self.typical.p95.exp(), self.typical.count),
        );
        Incident {
            kind,
            rule: self.rule,
            worker: self.worker,
            steps: &self.steps,
            last: self.last,
            count: self.count,
            measured: (self.worst / median * 10.0).round() / 10.0,
            limit: self.limit as f64,
            evidence,
        }
        .into_anomaly(facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outliers_do_not_hide_themselves_and_frequent_values_are_none() {
        let distribution =
            |values: &[f64]| Distribution::of(values.iter().map(|value| value.ln() as f32).collect());
        let mut values: Vec<f64> = (0..30).map(|index| 1e6 + f64::from(index) * 1e4).collect();
        values.push(60e6);
        let steady = distribution(&values);
        assert!(steady.is_outlier(60e6, 6, MIN_TOOL_EXCESS));
        assert!(!steady.is_outlier(5e6, 6, MIN_TOOL_EXCESS), "not six times the median");
        // A tool that compiles every third time.
        let twofold: Vec<f64> = (0..30).map(|index| if index % 3 == 0 { 60e6 } else { 1e6 }).collect();
        assert!(!distribution(&twofold).is_outlier(60e6, 6, MIN_TOOL_EXCESS));
        // Fast tools vary by factors and no one minds.
        let fast: Vec<f64> = (0..30).map(|index| 1e3 + f64::from(index)).collect();
        assert!(!distribution(&fast).is_outlier(1e6, 6, MIN_TOOL_EXCESS));
    }
}
