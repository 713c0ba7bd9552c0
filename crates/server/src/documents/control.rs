//! Stopping live agents.

use serde::Serialize;
use serde_json::Value;
use stepback_agents::Agent;
use stepback_agents::answer::Answer;
use stepback_engine::control::{Breakpoint, Condition, Stop};
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

/// A condition that stops a live agent.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct BreakpointDocument {
    /// Counts from 1.
    pub id: u64,
    /// `tool`, `iteration`, `pattern`, `error`, `path` or `cost`.
    pub on: String,
    /// The tool, turn, expression, glob or sum; none for an error.
    pub value: Option<String>,
    /// What it waits for, in words.
    pub description: String,
    /// The input must match this regular expression as well.
    pub condition: Option<String>,
    /// Whether it is in force.
    pub enabled: bool,
    /// How often its condition held.
    pub hits: u64,
    /// It stops from this hit on.
    pub from_hit: Option<u64>,
    /// Whether it only records and stops nobody.
    pub log: bool,
}

impl BreakpointDocument {
    /// Of a breakpoint.
    pub fn of(breakpoint: &Breakpoint) -> Self {
        let (on, value) = match &breakpoint.on {
            Condition::Tool { name } => ("tool", Some(name.clone())),
            Condition::Iteration { number } => ("iteration", Some(number.to_string())),
            Condition::Pattern { pattern } => ("pattern", Some(pattern.clone())),
            Condition::Error => ("error", None),
            Condition::Path { glob } => ("path", Some(glob.clone())),
            Condition::Cost { usd } => ("cost", Some(usd.to_string())),
        };
        Self {
            id: breakpoint.id,
            on: on.to_owned(),
            value,
            description: breakpoint.describe(),
            condition: breakpoint.condition.clone(),
            enabled: breakpoint.enabled,
            hits: breakpoint.hits,
            from_hit: breakpoint.from_hit,
            log: breakpoint.log,
        }
    }
}

/// An agent that waits for an answer.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct StopDocument {
    /// Its id.
    pub id: String,
    /// Where.
    pub workspace: String,
    /// The session.
    pub session: String,
    /// The agent.
    pub agent: String,
    /// The agent's id of the call.
    pub call: Option<String>,
    /// What it wants to run, or has run.
    pub tool: String,
    /// With this input.
    #[schema(value_type = Object)]
    pub input: Value,
    /// What came out, if it has run.
    #[schema(value_type = Option<Object>)]
    pub output: Option<Value>,
    /// Whether the call can run with another input. If not, `edit` refuses it and asks the model to call again.
    pub can_edit_input: bool,
    /// Why it stopped.
    pub reason: String,
    /// The breakpoint, unless it was paused.
    pub breakpoint: Option<u64>,
    /// Number of the step it stopped at.
    pub step: u64,
    /// The model turn.
    pub iteration: u64,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// When it will answer by itself, with a refusal.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
}

impl StopDocument {
    /// Of a stop in a workspace.
    pub fn of(workspace: &str, stop: &Stop) -> Self {
        Self {
            id: stop.id.clone(),
            workspace: workspace.to_owned(),
            session: stop.session.to_string(),
            agent: stop.agent.clone(),
            call: stop.call.clone(),
            tool: stop.tool.clone(),
            input: stop.input.clone(),
            output: stop.output.clone(),
            can_edit_input: can_edit_input(stop),
            reason: stop.reason.clone(),
            breakpoint: stop.breakpoint,
            step: stop.step,
            iteration: stop.iteration,
            at: stop.at,
            until: stop.until,
        }
    }
}

/// Whether a call that waits can run with another input: it has not run, and its agent takes one.
fn can_edit_input(stop: &Stop) -> bool {
    stop.output.is_none() && Agent::parse(&stop.agent).is_none_or(Answer::can_change_input)
}
