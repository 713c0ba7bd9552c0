//! Stops a call at a breakpoint or pause, waits for the user's answer, and records it. Used both by hook processes and by the
//! built-in agent, which runs in stepback's own process.

use std::cell::OnceCell;
use std::io;
use std::time::Duration;

use serde_json::Value;
use stepback_engine::control::{
    BreakContext, BreakSide, Breakpoint, BudgetScope, BudgetSpending, Condition, Control, Stop, StopAnswer,
    render_message,
};
use stepback_engine::recorder::RecordedStep;
use stepback_engine::{EngineError, Workspace};
use stepback_model::anomaly::CallFinding;
use stepback_model::env::Env;
use stepback_model::event::AgentEvent;
use stepback_model::ids::SessionId;
use stepback_model::record::{DaySpending, Session};
use stepback_model::time::Timestamp;

use crate::call_window::{CallWindow, observe_call};
use crate::context_size::context_tokens;
use crate::record;

/// A call that is checked against the breakpoints.
pub struct GatedCall<'a> {
    /// The workspace the call belongs to.
    pub workspace: &'a Workspace,
    /// The start or the end of the call.
    pub event: &'a AgentEvent,
    /// Paths that the call names, relative to the workspace.
    pub paths: &'a [String],
    /// The step that recorded the event.
    pub recorded: &'a RecordedStep,
    /// How long to wait for an answer before the call is refused.
    pub answer_timeout: Duration,
    /// Source of time.
    pub env: &'a dyn Env,
    /// Returns whether to keep waiting: an agent that is asked to end no longer needs an answer.
    pub keep_waiting: &'a dyn Fn() -> bool,
}

/// The decision about a call that was stopped.
#[derive(Clone, PartialEq, Debug)]
pub enum StopDecision {
    /// The call runs unchanged.
    Proceed,
    /// The call does not run, for this reason.
    Refused(String),
    /// The call runs with this input.
    Edited(Value),
}

/// The refusal of a call that was stopped for `reason` and timed out without an answer from the user.
pub fn timeout_refusal(reason: &str) -> String {
    format!(
        "stopped at a breakpoint ({reason}) and the user did not answer in time; do not retry, ask the user"
    )
}

/// The finding that a breakpoint stopped for.
fn find_matching<'a>(hit: &Breakpoint, found: Option<&'a Vec<CallFinding>>) -> Option<&'a CallFinding> {
    let Condition::Anomaly { kind } = &hit.on else { return None };
    found?.iter().find(|finding| kind.is_none_or(|kind| kind == finding.kind))
}

impl GatedCall<'_> {
    /// Stops the call if a breakpoint or pause applies, and waits for the user's answer; `None` if neither applies. Errors of
    /// recording go to `missed`, because the user's answer must reach the agent even if it cannot be recorded.
    pub fn wait_for_decision(
        &self,
        control: &Control,
        side: BreakSide,
        on_record_error: &mut dyn FnMut(EngineError),
    ) -> io::Result<Option<StopDecision>> {
        let Some((stop, answer)) = self.stop_if_hit(control, side)? else { return Ok(None) };
        let recorded =
            record::record_decision(self.workspace, self.event, &stop, answer.as_ref(), self.env.now());
        if let Err(error) = recorded {
            on_record_error(error);
        }
        Ok(Some(match answer {
            Some(StopAnswer::Resume) => StopDecision::Proceed,
            Some(StopAnswer::Deny { reason }) => StopDecision::Refused(reason),
            Some(StopAnswer::Edit { input }) => StopDecision::Edited(input),
            None => StopDecision::Refused(timeout_refusal(&stop.reason)),
        }))
    }

    /// Returns what is unusual since this call. A directory that cannot be used does not stop the agent.
    fn find_anomalies(&self) -> Vec<CallFinding> {
        let Ok(Some(dir)) = self.workspace.cache_dir() else { return Vec::new() };
        let call = observe_call(self.workspace, self.event, self.recorded);
        CallWindow::new(&dir, self.event).add(call, &self.workspace.engine.anomaly_limits).unwrap_or_default()
    }

    fn stop_if_hit(
        &self,
        control: &Control,
        side: BreakSide,
    ) -> io::Result<Option<(Stop, Option<StopAnswer>)>> {
        let Self { workspace, event, recorded, .. } = self;
        let input = event.input.clone().unwrap_or(Value::Null);
        let text = input.to_string();
        let tool = event.tool.clone().unwrap_or_default();
        let cost = || {
            let session = workspace.store().session(recorded.session).ok().flatten();
            (recorded.iteration, session.map_or(0, |session| session.info.cost))
        };
        // A size that cannot be read does not stop the agent: it is asked for at every call.
        let tokens = || context_tokens(workspace, recorded.session).unwrap_or(0);
        let found = OnceCell::new();
        let find = || found.get_or_init(|| self.find_anomalies());
        let anomalies = || find().iter().map(|finding| finding.kind).collect();
        let day = DaySpending::day_of(self.env.now());
        let spent = |scope| budget_spending(workspace, recorded.session, scope, day);
        let moment = BreakContext {
            side,
            tool: &tool,
            input: &text,
            paths: self.paths,
            failed: event.error.is_some(),
            session: &cost,
            tokens: &tokens,
            anomalies: &anomalies,
            spent: &spent,
            day,
        };
        let hits = control.record_hits(&moment)?;
        let stopping = hits.iter().find(|hit| !hit.log);
        let paused = side == BreakSide::Start && control.is_paused(recorded.session);
        for hit in hits.iter().filter(|hit| hit.log) {
            let message = hit.message.as_ref().map(|message| {
                render_message(message, &event.input.clone().unwrap_or_default(), &|name| match name {
                    "tool" => moment.tool.to_owned(),
                    "iteration" => (moment.session)().0.to_string(),
                    "cost" => format!("{:.2}", (moment.session)().1 as f64 / 1e6),
                    "tokens" => (moment.tokens)().to_string(),
                    _ => hit.hits.to_string(),
                })
            });
            let _ = record::record_log_point(workspace, event, hit, message.as_deref(), self.env.now());
        }
        let reason = match stopping {
            Some(hit) => match (&hit.on, find_matching(hit, found.get())) {
                (Condition::Anomaly { .. }, Some(finding)) => format!(
                    "breakpoint {}: {}: {}, {} {}",
                    hit.id,
                    hit.describe(),
                    finding.rule.name(),
                    finding.measured,
                    finding.kind.unit()
                ),
                _ => format!("breakpoint {}: {}", hit.id, hit.describe()),
            },
            None if paused => "paused".to_string(),
            None => return Ok(None),
        };
        let at = self.env.now();
        let stop = Stop {
            id: format!("{}-{}", recorded.id.short(), std::process::id()),
            session: recorded.session,
            agent: event.agent.clone(),
            call: event.call.clone(),
            tool,
            input,
            output: event.output.clone(),
            reason,
            breakpoint: stopping.map(|hit| hit.id),
            step: recorded.number,
            iteration: recorded.iteration,
            at,
            until: Timestamp::from_micros(
                at.as_micros()
                    .saturating_add(i64::try_from(self.answer_timeout.as_micros()).unwrap_or(i64::MAX)),
            ),
            process: std::process::id(),
        };
        let _ = record::record_stop(workspace, event, &stop, at);
        control.publish_stop(&stop)?;
        let answer = control.wait_for_answer_while(&stop, self.answer_timeout, self.keep_waiting)?;
        Ok(Some((stop, answer)))
    }
}

/// Returns what was used of a budget, from the records of sessions: no step is read. What cannot be read does not stop the agent:
/// it is asked for at every call.
fn budget_spending(
    workspace: &Workspace,
    session: SessionId,
    scope: BudgetScope,
    day: i64,
) -> BudgetSpending {
    let store = workspace.store();
    let sessions = match scope {
        BudgetScope::Session => store.session(session).map(|session| session.into_iter().collect()),
        BudgetScope::Day | BudgetScope::Workspace => store.sessions(workspace.record.id),
    };
    let mut sum = BudgetSpending::default();
    for Session { info, .. } in sessions.unwrap_or_default() {
        let (cost, tokens) = match scope {
            BudgetScope::Day if info.last_day.day != day => (0, 0),
            BudgetScope::Day => (info.last_day.cost, info.last_day.tokens),
            BudgetScope::Session | BudgetScope::Workspace => (info.cost, info.tokens),
        };
        sum.cost = sum.cost.saturating_add(cost);
        sum.tokens = sum.tokens.saturating_add(tokens);
    }
    sum
}
