//! What model calls used and cost, by model, tool, agent, session, branch, prompt or day.
//!
//! Costs and tokens are those of the facts, so they are recorded, or computed from recorded tokens with the price table. Only
//! the share of a tool is inferred: see [`tool_shares`]. Sums are exact, in millionths of a dollar: the rows of every report add
//! up to its total.

mod document;
mod groups;
pub mod tool_shares;

use std::collections::{BTreeMap, HashSet};

use stepback_llm_wire::prices::Prices;
use stepback_llm_wire::semantics::TokenUsage;
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::time::Timestamp;

use self::groups::CallGroups;
use self::tool_shares::ToolShares;
use crate::facts::{ModelCallFact, SessionFacts, UsageSource};

pub(crate) use self::document::sum_document;
pub use self::document::{CostRequest, cost_document};

/// What the rows of a report are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CostGrouping {
    /// The model that answered.
    #[default]
    Model,
    /// The tool whose results were read, and whose calls were written.
    Tool,
    /// The agent.
    Agent,
    /// The session.
    Session,
    /// The branch that the step of the call is on.
    Branch,
    /// The prompt that the agent was working on.
    Prompt,
    /// The day, in universal time.
    Day,
}

impl CostGrouping {
    /// Every grouping.
    pub const ALL: [Self; 7] =
        [Self::Model, Self::Tool, Self::Agent, Self::Session, Self::Branch, Self::Prompt, Self::Day];

    /// The name that users write.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Agent => "agent",
            Self::Session => "session",
            Self::Branch => "branch",
            Self::Prompt => "prompt",
            Self::Day => "day",
        }
    }

    /// Reads a name; `None` if it is not one.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|grouping| grouping.as_str() == name)
    }
}

/// Tokens and money of some model calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CostSum {
    /// The number of calls.
    pub calls: u64,
    /// Their tokens.
    pub tokens: TokenUsage,
    /// Their cost in millionths of a dollar, as far as it is known.
    pub micros: u64,
    /// The part of it that was computed with the price table.
    pub priced_micros: u64,
    /// Calls whose cost is unknown.
    pub unpriced_calls: u64,
    /// Calls whose tokens are unknown.
    pub uncounted_calls: u64,
}

impl CostSum {
    /// The sum of one call.
    pub fn of(call: &ModelCallFact, has_failed: bool) -> Self {
        let tokens = call.tokens.unwrap_or_default();
        let micros = call.cost.unwrap_or(0);
        let is_unpriced = call.cost.is_none() && tokens.total() > 0;
        // A call that failed without an answer used nothing that is known of.
        let is_uncounted = call.tokens.is_none() && call.cost.is_none() && !has_failed;
        Self {
            calls: 1,
            tokens,
            micros,
            priced_micros: if call.priced { micros } else { 0 },
            unpriced_calls: u64::from(is_unpriced),
            uncounted_calls: u64::from(is_uncounted),
        }
    }

    /// Adds another sum.
    pub fn add(&mut self, other: Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.tokens = [self.tokens, other.tokens].into_iter().sum();
        self.micros = self.micros.saturating_add(other.micros);
        self.priced_micros = self.priced_micros.saturating_add(other.priced_micros);
        self.unpriced_calls = self.unpriced_calls.saturating_add(other.unpriced_calls);
        self.uncounted_calls = self.uncounted_calls.saturating_add(other.uncounted_calls);
    }
}

/// What a row is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CostKey {
    /// A name: of a model, tool, agent, branch or day; `None` if it was not recorded.
    Name(Option<String>),
    /// A session.
    Session(WorkspaceId, SessionId),
    /// A prompt of a session, by the number of its step; `None` before the first one.
    Prompt(WorkspaceId, SessionId, Option<u64>),
    /// Answers that request no call, and all answers as later requests repeat them.
    Answers,
    /// Prompts of the user.
    Prompts,
    /// What requests contain besides: system prompts, descriptions of tools, texts that agents add, summaries.
    Context,
    /// Calls whose tokens are unknown.
    Uncounted,
}

/// What some sessions cost.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CostReport {
    /// All rows together.
    pub total: CostSum,
    /// The rows.
    pub rows: BTreeMap<CostKey, CostSum>,
    /// Answers from a recording.
    pub replayed: CostSum,
    /// What reruns asked models for.
    pub reruns: CostSum,
    /// Calls without a price, and their tokens, by model.
    pub unpriced: BTreeMap<Option<String>, (u64, u64)>,
    /// Answers that another session has too.
    pub shared_answers: u64,
    /// Calls with impossible usage.
    pub impossible_usage: u64,
}

/// Which calls a report is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CostOptions {
    /// What the rows are about.
    pub by: CostGrouping,
    /// Only calls that ended at this time or later.
    pub since: Option<Timestamp>,
    /// Whether what reruns asked models for is part of the total.
    pub reruns: bool,
}

/// Adds up what sessions cost. An answer that several sessions have is counted in the one that comes first.
pub fn report_cost(
    sessions: &[SessionFacts],
    prices: &Prices,
    options: CostOptions,
    branch_of: &dyn Fn(&SessionFacts, &ModelCallFact) -> Option<String>,
) -> CostReport {
    let mut report = CostReport::default();
    for (facts, counted) in select_calls(sessions, options, &mut report) {
        match options.by {
            CostGrouping::Tool => ToolShares::new(facts, prices).add_to(&mut report.rows, &counted),
            by => CallGroups { facts, by, branch_of }.add_to(&mut report.rows, &counted),
        }
    }
    report
}

/// Returns the calls that are part of the total, each with its session.
pub fn counted_calls(
    sessions: &[SessionFacts],
    options: CostOptions,
) -> Vec<(&SessionFacts, &ModelCallFact)> {
    let selected = select_calls(sessions, options, &mut CostReport::default()).into_iter();
    let calls = selected.flat_map(|(facts, counted)| {
        let calls = facts.model_calls.iter().zip(counted);
        calls.filter(|(_, counts)| *counts).map(move |(call, _)| (facts, call))
    });
    calls.collect()
}

/// Decides for each call whether it is part of the total, and adds it to the sums of the report.
fn select_calls<'a>(
    sessions: &'a [SessionFacts],
    options: CostOptions,
    report: &mut CostReport,
) -> Vec<(&'a SessionFacts, Vec<bool>)> {
    let mut known = HashSet::new();
    // A rerun repeats answers of the session that it reruns.
    let mut in_order: Vec<&SessionFacts> = sessions.iter().collect();
    in_order.sort_by_key(|facts| (facts.is_rerun, facts.started_at));
    let mut selected = Vec::with_capacity(in_order.len());
    for facts in in_order {
        report.impossible_usage = report.impossible_usage.saturating_add(facts.defects.impossible_usage);
        let mut counted: Vec<bool> = Vec::with_capacity(facts.model_calls.len());
        for call in &facts.model_calls {
            let is_shared = call.identity != 0
                && call.source == UsageSource::Conversation
                && known.contains(&call.identity);
            let is_recent = options.since.is_none_or(|since| call.at >= since);
            report.shared_answers += u64::from(is_shared && is_recent);
            counted.push(!is_shared && is_recent && report.count(facts, call, options));
        }
        // One session has an answer once, so ids count only between sessions.
        let seen = facts.model_calls.iter().zip(&counted).filter(|(_, counts)| **counts);
        known.extend(seen.map(|(call, _)| call.identity).filter(|identity| *identity != 0));
        selected.push((facts, counted));
    }
    selected
}

impl CostReport {
    /// Adds a call to the sums, and returns whether it is part of the total.
    fn count(&mut self, facts: &SessionFacts, call: &ModelCallFact, options: CostOptions) -> bool {
        let sum = CostSum::of(call, has_failed(facts, call));
        if call.replayed {
            self.replayed.add(sum);
            return false;
        }
        if facts.is_rerun {
            self.reruns.add(sum);
            if !options.reruns {
                return false;
            }
        }
        if sum.unpriced_calls > 0 {
            let model = call.model.map(|model| facts.name(Some(model)).to_owned());
            let (calls, tokens) = self.unpriced.entry(model).or_default();
            *calls += 1;
            *tokens = tokens.saturating_add(sum.tokens.total());
        }
        self.total.add(sum);
        true
    }
}

/// Whether the step of a call failed. For an answer of the conversation, the step is another one.
pub(crate) fn has_failed(facts: &SessionFacts, call: &ModelCallFact) -> bool {
    call.source != UsageSource::Conversation
        && facts.steps.get(call.step as usize).is_some_and(|step| step.failed)
}
