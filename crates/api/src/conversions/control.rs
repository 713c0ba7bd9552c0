//! Breakpoints and waiting agents as documents.

use stepback_engine::control::{Breakpoint, Condition, HitCondition, Stop};

use crate::control::{BreakpointDocument, StopDocument};

impl BreakpointDocument {
    /// The document of a breakpoint.
    pub fn from_breakpoint(breakpoint: &Breakpoint) -> Self {
        let (on, value) = match &breakpoint.on {
            Condition::Tool { name } => ("tool", Some(name.clone())),
            Condition::Iteration { number } => ("iteration", Some(number.to_string())),
            Condition::Pattern { pattern } => ("pattern", Some(pattern.clone())),
            Condition::Error => ("error", None),
            Condition::Path { glob } => ("path", Some(glob.clone())),
            Condition::Cost { usd, .. } => ("cost", Some(usd.to_string())),
            Condition::Tokens { number, .. } => ("tokens", Some(number.to_string())),
            Condition::Anomaly { kind } => ("anomaly", kind.map(|kind| kind.name().to_owned())),
        };
        Self {
            id: breakpoint.id,
            on: on.to_owned(),
            value,
            description: breakpoint.describe(),
            condition: breakpoint.condition.clone(),
            enabled: breakpoint.enabled,
            hits: breakpoint.hits,
            from_hit: match breakpoint.hit_condition {
                Some(HitCondition::From(number)) => Some(number),
                _ => None,
            },
            hit_condition: breakpoint.hit_condition.map(|condition| condition.to_string()),
            log: breakpoint.log,
            message: breakpoint.message.clone(),
        }
    }
}

impl StopDocument {
    /// The document of a stop in a workspace. `can_edit_input` depends on the agent.
    pub fn from_stop(workspace: &str, stop: &Stop, can_edit_input: bool) -> Self {
        Self {
            id: stop.id.clone(),
            workspace: workspace.to_owned(),
            session: stop.session.to_string(),
            agent: stop.agent.clone(),
            call: stop.call.clone(),
            tool: stop.tool.clone(),
            input: stop.input.clone(),
            output: stop.output.clone(),
            can_edit_input,
            reason: stop.reason.clone(),
            breakpoint: stop.breakpoint,
            step: stop.step,
            iteration: stop.iteration,
            at: stop.at,
            until: stop.until,
        }
    }
}
