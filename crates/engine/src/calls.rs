//! The open calls of a session: which are still running, which model turn they belong to, and which of them may have changed
//! files since the last scan of the workspace.
//!
//! A call is kept until a scan has seen its changes. Most calls end before that scan or with it. Some never end: the user
//! refused the call in the agent's own dialog, a rule denied it, or the agent was interrupted, killed, or timed out. No agent
//! reports that, so such a call is *abandoned* at the first event that shows it cannot be running any more. An abandoned call
//! does not delay the scan of another call, and changes after the next scan are not attributed to it. If its end is reported
//! later after all, it counts again.

use stepback_model::event::AgentEvent;
use stepback_model::ids::StepId;
use stepback_model::record::{OpenCall, Session, SessionInfo, StepKind};
use stepback_model::time::Timestamp;

use crate::authorship::{Author, Authors};
use crate::recorder::{CallStatus, ChangeScope, FinishedCalls, ReportedEvent, ScanPolicy, SessionMilestone};

/// A call that has not ended after this time never will: the agent was killed. In microseconds.
const ABANDONED_AFTER_MICROS: i64 = 2 * 3_600_000_000;
/// Calls of agents without turn ids belong to one turn if they overlap and began within this time. In microseconds.
const OVERLAP: i64 = 600_000_000;
/// Maximum number of abandoned calls kept per session, and of calls whose end was reported after they were abandoned.
const MAX_ABANDONED_CALLS: usize = 128;

/// A call that may have changed files since the last scan.
#[derive(Clone, Debug)]
pub(crate) struct ActiveCall {
    author: Author,
    /// Paths the call named.
    paths: Vec<String>,
    /// Whether it changes nothing but those paths.
    only_named: bool,
    /// Whether it may not have run, or not to its end.
    uncertain: bool,
}

/// Returns the calls of `session` that may have changed files since the last scan.
pub(crate) fn active_calls(session: &Session, now: Timestamp) -> Vec<ActiveCall> {
    let open = session.info.open.iter();
    open.filter(|open| open.changes && now.as_micros() - open.at.as_micros() < ABANDONED_AFTER_MICROS)
        .map(|open| ActiveCall {
            author: build_author(session, open.step, open.tool.clone()),
            paths: open.paths.clone(),
            only_named: open.only_named,
            uncertain: open.cut_short,
        })
        .collect()
}

/// Returns the call that ends with `report` although its start is not recorded as open: the start was missed, or the call was
/// abandoned too early. It ran at some time since the last scan, and other calls may have changed files before it.
pub(crate) fn find_unexpected_end(
    session: &Session,
    report: &ReportedEvent,
    start: Option<StepId>,
    step: StepId,
) -> Option<ActiveCall> {
    let ends = report.event.kind == StepKind::ToolEnd && can_change_files(report);
    if !ends
        || report.call.status == CallStatus::NeverRan
        || find_ending_call(&session.info.open, report).is_some()
    {
        return None;
    }
    let only_named = report.call.scope == ChangeScope::NamedPaths;
    Some(ActiveCall {
        author: build_author(session, start.unwrap_or(step), report.event.tool.clone()),
        paths: report.call.paths.clone(),
        only_named,
        // An editing tool has written the paths it names, whenever it ran.
        uncertain: start.is_none() && !only_named,
    })
}

fn build_author(session: &Session, step: StepId, tool: Option<String>) -> Author {
    Author { session: session.id, step, tool, prompt: session.info.prompt }
}

/// Whether the end of a call was reported after it had been closed without one: `Some(true)` if so, `Some(false)` if it was
/// closed and never ended, `None` if neither is recorded.
pub(crate) fn late_end_status(info: &SessionInfo, start: StepId) -> Option<bool> {
    match (info.ended_late.contains(&start), info.abandoned.contains(&start)) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}

/// Records that the end of a call was reported after it had been closed.
pub(crate) fn record_late_end(info: &mut SessionInfo, start: StepId) {
    info.abandoned.retain(|abandoned| *abandoned != start);
    info.ended_late.push(start);
    drop_oldest(&mut info.ended_late);
}

fn drop_oldest(steps: &mut Vec<StepId>) {
    let excess = steps.len().saturating_sub(MAX_ABANDONED_CALLS);
    steps.drain(..excess);
}

/// Combines the calls into the [`Authors`] record of a step.
pub(crate) fn collect_authors(calls: Vec<ActiveCall>) -> Authors {
    let mut authors = Authors::default();
    for (index, call) in calls.into_iter().enumerate() {
        for path in call.paths {
            authors.named.entry(path).or_default().push(index);
        }
        if call.only_named {
            authors.only_named.insert(index);
        }
        if call.uncertain {
            authors.uncertain.insert(index);
        }
        authors.calls.push(call.author);
    }
    authors
}

/// Whether an event belongs to a call that can change files.
fn can_change_files(report: &ReportedEvent) -> bool {
    matches!(report.scan_policy, ScanPolicy::Before | ScanPolicy::After)
        || report.call.scope != ChangeScope::Nothing
}

/// Abandons the calls that cannot be running any more, given this event. Returns whether a model turn begins.
pub(crate) fn abandon_finished_calls(
    info: &mut SessionInfo,
    report: &ReportedEvent,
    turn: Option<&str>,
) -> bool {
    let starts = report.event.kind == StepKind::ToolStart;
    let (same_turn, other_turn) = match (turn, &info.turn) {
        (Some(turn), Some(current_turn)) if starts => (turn == current_turn, turn != current_turn),
        _ => (false, false),
    };
    if let CallStatus::Waited { call, edited: true, .. } = &report.call.status {
        info.open.iter_mut().filter(|open| open.call == *call).for_each(|open| open.edited = true);
    }
    let finished = report.update.finished_calls;
    let everything = finished == FinishedCalls::All || report.event.kind == StepKind::UserInput;
    // A worker queries its model again only when all calls of its last turn have ended.
    let whole_turn =
        report.event.kind == StepKind::ModelStart || finished == FinishedCalls::OfWorker || other_turn;
    for open in info.open.iter_mut().filter(|open| !open.ended) {
        let is_next = starts && open.overtaken && !same_turn;
        if everything || (open.worker == report.event.worker && (whole_turn || is_next)) {
            (open.ended, open.cut_short) = (true, true);
            if open.changes {
                info.abandoned.push(open.step);
            }
        }
    }
    drop_oldest(&mut info.abandoned);
    // Without turn ids, overlapping calls belong to one turn.
    let overlaps = |open: &OpenCall| !open.ended && report.at.as_micros() - open.at.as_micros() < OVERLAP;
    starts && (other_turn || (!same_turn && !info.open.iter().any(overlaps)))
}

/// Updates the session's counters and open calls. `is_over` says that the end of a call that begins now is already recorded.
pub(crate) fn advance_session(
    info: &mut SessionInfo,
    report: &ReportedEvent,
    step: StepId,
    (begins_turn, turn): (bool, Option<String>),
    is_over: bool,
) {
    let event = &report.event;
    match event.kind {
        StepKind::UserInput => {
            info.prompt = Some(step);
            info.turn = None;
        }
        StepKind::ToolStart => {
            if begins_turn {
                info.iteration += 1;
            }
            if turn.is_some() {
                info.turn = turn;
            }
            if let Some(call) = event.call.as_ref().filter(|_| !is_over) {
                info.open.retain(|open| open.call != *call);
                info.open.push(OpenCall {
                    call: call.clone(),
                    step,
                    tool: event.tool.clone(),
                    at: report.at,
                    worker: event.worker.clone(),
                    changes: can_change_files(report),
                    paths: report.call.paths.clone(),
                    only_named: report.call.scope == ChangeScope::NamedPaths,
                    overtaken: false,
                    edited: false,
                    ended: false,
                    cut_short: false,
                    unrecorded: false,
                    waited: 0,
                });
            }
        }
        _ if report.update.milestone == Some(SessionMilestone::Answered) => {
            info.iteration += 1;
            info.turn = None;
        }
        _ => {}
    }
}

/// Ends the call whose end `report` brings, and drops calls whose changes have been scanned. A call that has ended is kept
/// until the next scan, because it may be the author of what that scan finds.
pub(crate) fn close_call(info: &mut SessionInfo, report: &ReportedEvent, scanned: bool) {
    if report.call.status == CallStatus::NeverRan {
        let refused = |open: &OpenCall| Some(&open.call) == report.event.call.as_ref();
        info.abandoned
            .extend(info.open.iter().filter(|open| refused(open) && open.changes).map(|open| open.step));
        drop_oldest(&mut info.abandoned);
        info.open.retain(|open| !refused(open));
    } else if let Some(index) = find_ending_call(&info.open, report) {
        let OpenCall { step, cut_short, .. } = info.open[index];
        (info.open[index].ended, info.open[index].cut_short) = (true, false);
        if cut_short {
            record_late_end(info, step);
        }
    }
    if report.event.kind == StepKind::ToolEnd {
        let others = info.open.iter_mut().filter(|open| open.worker == report.event.worker);
        others.for_each(|open| open.overtaken = true);
    }
    info.open.retain(|open| !open.ended || (open.changes && !scanned));
}

/// Returns the index in `open` of the call that ends now. Where an agent gives calls no ids, the id is derived from the input
/// and changes with it: then it is the oldest open call of the same tool whose input was edited at a breakpoint.
pub(crate) fn find_ending_call(open: &[OpenCall], report: &ReportedEvent) -> Option<usize> {
    let event = &report.event;
    if event.kind != StepKind::ToolEnd {
        return None;
    }
    let by_id = open.iter().position(|open| Some(&open.call) == event.call.as_ref());
    let by_tool = || {
        let fits = |open: &OpenCall| open.edited && open.tool == event.tool && open.worker == event.worker;
        open.iter().position(|open| !open.ended && fits(open))
    };
    by_id.or_else(|| if AgentEvent::is_derived_call(event.call.as_deref()) { by_tool() } else { None })
}

/// Returns how long the call that ends now took, without the time it waited at a breakpoint: the reported duration, or else
/// the time since it began. In microseconds.
pub(crate) fn call_duration(info: &SessionInfo, report: &ReportedEvent) -> Option<u64> {
    let reported = report.event.duration;
    let Some(index) = find_ending_call(&info.open, report) else { return reported };
    let open = &info.open[index];
    let elapsed = u64::try_from(report.at.as_micros() - open.at.as_micros()).ok();
    let running_time = elapsed.map(|elapsed| elapsed.saturating_sub(open.waited));
    match (reported, running_time) {
        // The agent may have counted the time that it waited for its hook.
        (Some(reported), Some(running_time)) if open.waited > 0 => Some(reported.min(running_time)),
        _ => reported.or(running_time),
    }
}

/// Adds the time that a call waited at a breakpoint.
pub(crate) fn add_wait_time(info: &mut SessionInfo, report: &ReportedEvent) {
    let CallStatus::Waited { call, micros, .. } = &report.call.status else { return };
    for open in info.open.iter_mut().filter(|open| open.call == *call && !open.ended) {
        open.waited += micros;
    }
}

/// Whether an event belongs to another call that happens to have the id of an earlier one: it begins although none is open,
/// or ends although one is. If hooks are installed twice, an event arrives twice at once and neither condition holds.
pub(crate) fn is_reused_call_id(open: Option<&[OpenCall]>, report: &ReportedEvent) -> bool {
    let is_open = open.is_some_and(|open| {
        open.iter().any(|open| !open.ended && Some(&open.call) == report.event.call.as_ref())
    });
    match report.event.kind {
        StepKind::ToolStart => !is_open,
        StepKind::ToolEnd => is_open,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn report(kind: StepKind, call: &str, effect: ScanPolicy) -> ReportedEvent {
        let event = AgentEvent {
            call: Some(call.into()),
            tool: Some("run_shell_command".into()),
            ..AgentEvent::new("gemini", "s", kind, "")
        };
        ReportedEvent { scan_policy: effect, ..ReportedEvent::new(event, Timestamp::from_micros(1)) }
    }

    #[test]
    fn a_call_whose_input_was_edited_ends_though_its_id_follows_from_its_input() {
        let mut info = SessionInfo::default();
        let call = |input: &str| AgentEvent::derived_call("run_shell_command", &input.into());
        let start = report(StepKind::ToolStart, &call("old"), ScanPolicy::Before);
        advance_session(&mut info, &start, StepId::from_bytes([1; 16]), (true, None), false);
        let mut edit = report(StepKind::Decision, &call("old"), ScanPolicy::None);
        edit.call.status = CallStatus::Waited { call: call("old"), micros: 0, edited: true };
        abandon_finished_calls(&mut info, &edit, None);
        let end = report(StepKind::ToolEnd, &call("new"), ScanPolicy::After);
        assert_eq!(find_ending_call(&info.open, &start), None);
        assert_eq!(call_duration(&info, &end), Some(0));
        close_call(&mut info, &end, true);
        assert!(info.open.is_empty());
    }
}
