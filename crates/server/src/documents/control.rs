//! Documents of breakpoints and of agents that wait.

use serde::Serialize;
use serde_json::Value;
use stepback_agents::Agent;
use stepback_agents::answer::HookAnswer;
use stepback_engine::control::{Breakpoint, Condition, Stop};
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

/// A condition that stops a live agent.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct BreakpointDocument {
    /// The number of the breakpoint, from 1.
    pub id: u64,
    /// `tool`, `iteration`, `pattern`, `error`, `path` or `cost`.
    pub on: String,
    /// The tool, turn, expression, glob or cost; none for an error.
    pub value: Option<String>,
    /// The condition in words.
    pub description: String,
    /// A regular expression that the input must match as well.
    pub condition: Option<String>,
    /// Whether it is enabled.
    pub enabled: bool,
    /// Number of times its condition was met.
    pub hits: u64,
    /// It stops from this hit on; none for the first.
    pub from_hit: Option<u64>,
    /// Whether it only records hits and does not stop the agent.
    pub log: bool,
}

impl BreakpointDocument {
    /// The document of a breakpoint.
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
    /// The id of the stop.
    pub id: String,
    /// The id of the workspace.
    pub workspace: String,
    /// The id of the session.
    pub session: String,
    /// The name of the agent.
    pub agent: String,
    /// The agent's own id of the call.
    pub call: Option<String>,
    /// The tool that it is about to run, or has run.
    pub tool: String,
    /// The input of the call.
    #[schema(value_type = Object)]
    pub input: Value,
    /// The output of the call, if it has run.
    #[schema(value_type = Option<Object>)]
    pub output: Option<Value>,
    /// Whether the call can run with another input. If not, `edit` denies it and asks the model to call again.
    pub can_edit_input: bool,
    /// Why it stopped.
    pub reason: String,
    /// The number of the breakpoint; none if the session was paused.
    pub breakpoint: Option<u64>,
    /// The number of the step it stopped at.
    pub step: u64,
    /// The number of the model turn.
    pub iteration: u64,
    /// When it stopped.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// When the wait times out, which denies the call.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
}

impl StopDocument {
    /// The document of a stop in a workspace.
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

/// Whether a waiting call can run with another input: it has not run, and its agent supports that.
fn can_edit_input(stop: &Stop) -> bool {
    stop.output.is_none() && Agent::parse(&stop.agent).is_none_or(HookAnswer::can_change_input)
}
