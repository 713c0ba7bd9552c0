//! Totals of a run.

use std::collections::BTreeMap;

use serde::Serialize;
use stepback_llm_wire::semantics::TokenUsage;
use stepback_model::clip;
use stepback_model::ids::SessionId;
use stepback_model::record::StepKind;

use super::reading::SideSummary;
use super::side::ComparedRun;

/// Maximum length of the last answer, in characters.
const MAX_ANSWER_CHARS: usize = 400;

/// Totals of a run: counts, tokens, cost and duration.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Totals {
    /// Name of the side.
    pub name: String,
    /// The session, if the side is one.
    pub session: Option<SessionId>,
    /// Number of steps.
    pub steps: u64,
    /// Number of prompts of the user.
    pub prompts: u64,
    /// Number of model turns.
    pub iterations: u64,
    /// Number of tool calls.
    pub tool_calls: u64,
    /// Number of calls of each tool.
    pub tools: BTreeMap<String, u64>,
    /// Number of model answers.
    pub model_calls: u64,
    /// Tokens of all model calls that reported them.
    pub tokens: TokenUsage,
    /// Cost in dollars; `None` if unknown.
    pub cost_usd: Option<f64>,
    /// Time from the first step to the last, in microseconds.
    pub duration_us: u64,
    /// Number of failed steps.
    pub failed: u64,
    /// Number of messages in the conversation.
    pub messages: u64,
    /// How the session ended; `None` if the side is not a session.
    pub ended: Option<Ending>,
    /// The last text that the model answered, shortened; `None` if there is none.
    pub last_words: Option<String>,
}

/// How a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The agent reported the end.
    Ended,
    /// No end was reported, and a call is still open.
    InCall,
    /// No end was reported.
    Open,
}

impl Totals {
    /// Computes the totals of a side.
    pub(super) fn compute(side: &ComparedRun, reading: &SideSummary, messages: u64) -> Self {
        let mut totals = Self {
            name: side.name.clone(),
            session: side.session.as_ref().map(|session| session.id),
            steps: side.steps.len() as u64,
            messages,
            ..Self::default()
        };
        for step in &side.steps {
            totals.iterations = totals.iterations.max(step.meta.iteration);
            totals.failed += u64::from(step.is_error());
            match step.kind {
                StepKind::UserInput => totals.prompts += 1,
                StepKind::ModelEnd => totals.model_calls += 1,
                StepKind::ToolStart => {
                    totals.tool_calls += 1;
                    let tool = step.meta.tool.clone().unwrap_or_default();
                    *totals.tools.entry(tool).or_default() += 1;
                }
                _ => {}
            }
        }
        if let (Some(first), Some(last)) = (side.steps.first(), side.steps.last()) {
            let duration_us = last.at.as_micros().saturating_sub(first.at.as_micros());
            totals.duration_us = u64::try_from(duration_us).unwrap_or(0);
        }
        totals.tokens = reading.usage.iter().filter_map(|spent| spent.tokens).sum();
        for spent in &reading.usage {
            if let Some(cost) = spent.cost_usd {
                totals.cost_usd = Some(totals.cost_usd.unwrap_or(0.0) + cost);
            }
        }
        if let Some(session) = &side.session {
            // Some agents report the cost of the session and not of each call.
            let session_cost = (session.info.cost > 0).then_some(session.info.cost as f64 / 1e6);
            totals.cost_usd = totals.cost_usd.or(session_cost);
            totals.ended = Some(match session.info.ended_at {
                Some(_) => Ending::Ended,
                None if session.info.open.iter().any(|call| !call.ended) => Ending::InCall,
                None => Ending::Open,
            });
        }
        totals.last_words =
            reading.last_answer.as_ref().map(|words| clip::first(words.trim(), MAX_ANSWER_CHARS));
        totals
    }
}
