//! The calls of a session that have begun: which are still going on, which model turn they belong to, and which of them may
//! have changed something since the last look at the workspace.
//!
//! A call is remembered until a look has seen what it did. Most end before that look or with it. One that never ends, because
//! the agent was killed or the person refused it in the agent's own dialog, is over when the session goes on without it.

use stepback_model::ids::StepId;
use stepback_model::record::{OpenCall, Session, SessionInfo, StepKind};
use stepback_model::time::Timestamp;

use crate::authorship::{Author, Authors};
use crate::recorder::{Effect, Report};

/// A call that has not ended after so long will not: the agent was killed. In microseconds.
const FORGOTTEN: i64 = 2 * 3_600_000_000;
/// Calls of agents that give turns no ids belong to one turn if they overlap and began within this time. In microseconds.
const OVERLAP: i64 = 600_000_000;
/// Calls that run at once begin within this time of each other. In microseconds.
const AT_ONCE: i64 = 10_000_000;

/// A call that may have changed something.
#[derive(Clone, Debug)]
pub(crate) struct AtWork {
    author: Author,
    /// Paths it named.
    paths: Vec<String>,
    /// Whether its session went on without its end, so that somebody else may have been at work since.
    cut_short: bool,
}

/// Calls of `session` that may have changed something since the last look.
pub(crate) fn at_work(session: &Session, now: Timestamp) -> Vec<AtWork> {
    let open = session.info.open.iter();
    open.filter(|open| open.changes && now.as_micros() - open.at.as_micros() < FORGOTTEN)
        .map(|open| AtWork {
            author: Author {
                session: session.id,
                step: open.step,
                tool: open.tool.clone(),
                prompt: session.info.prompt,
            },
            paths: open.paths.clone(),
            cut_short: open.cut_short,
        })
        .collect()
}

/// All that is known about who changed what.
pub(crate) fn gathered(calls: Vec<AtWork>) -> Authors {
    let mut authors = Authors::default();
    let mut contested: Vec<String> = Vec::new();
    for call in calls {
        let at = authors.calls.len();
        for path in call.paths.into_iter().filter(|_| !call.cut_short) {
            let other = authors.named.insert(path.clone(), at);
            let other = other.and_then(|other| authors.calls.get(other));
            if other.is_some_and(|other| other.session != call.author.session) {
                contested.push(path);
            }
        }
        authors.unsure |= call.cut_short;
        authors.calls.push(call.author);
    }
    authors.named.retain(|path, _| !contested.contains(path));
    authors
}

/// Whether an event needs a look at the workspace.
pub(crate) fn needs_look(info: &SessionInfo, report: &Report<'_>) -> bool {
    let call = report.event.call.as_deref();
    let ends = ending(&info.open, report);
    let others = (info.open.iter().enumerate())
        .filter(|(at, open)| {
            open.changes && !open.ended && Some(*at) != ends && Some(open.call.as_str()) != call
        })
        .map(|(_, open)| open)
        .collect::<Vec<_>>();
    let began_with_this = |open: &&OpenCall| (report.at.as_micros() - open.at.as_micros()).abs() < AT_ONCE;
    match report.effect {
        Effect::None => false,
        Effect::Keep(_) => true,
        // Calls that run at once: one look before the first, one after the last. One that began long ago may never end, and
        // must not keep others from having a checkpoint.
        Effect::Before => !others.iter().any(began_with_this),
        Effect::After => others.is_empty(),
    }
}

/// Whether a call belongs to a model turn that is not the present one.
pub(crate) fn begins_turn(info: &SessionInfo, report: &Report<'_>, turn: Option<&str>) -> bool {
    if report.event.kind != StepKind::ToolStart {
        return false;
    }
    match (turn, &info.turn) {
        (Some(turn), Some(known)) => turn != known,
        // Without ids, calls that overlap belong to one turn.
        _ => {
            !info.open.iter().any(|open| !open.ended && report.at.as_micros() - open.at.as_micros() < OVERLAP)
        }
    }
}

/// Ends what must be over because of what happens now, even if nobody said so.
pub(crate) fn settle(info: &mut SessionInfo, report: &Report<'_>, begins_turn: bool) {
    let over = report.learned.quiet || report.event.kind == StepKind::UserInput;
    for open in info.open.iter_mut().filter(|open| !open.ended) {
        if over {
            // Nobody knows how long ago, unless the agent says itself that it is done now.
            open.cut_short = !report.learned.answered || report.effect == Effect::None;
        }
        open.ended = over || (begins_turn && open.worker == report.event.worker);
    }
}

/// Moves the session's counters along.
pub(crate) fn advance(
    info: &mut SessionInfo,
    report: &Report<'_>,
    step: StepId,
    turns: bool,
    turn: Option<String>,
) {
    let event = &report.event;
    match event.kind {
        StepKind::UserInput => {
            info.prompt = Some(step);
            info.turn = None;
        }
        StepKind::ToolStart => {
            if turns {
                info.iteration += 1;
            }
            if turn.is_some() {
                info.turn = turn;
            }
            if let Some(call) = &event.call {
                info.open.retain(|open| open.call != *call);
                info.open.push(OpenCall {
                    call: call.clone(),
                    step,
                    tool: event.tool.clone(),
                    at: report.at,
                    worker: event.worker.clone(),
                    changes: report.effect == Effect::Before,
                    paths: report.paths.clone(),
                    ended: false,
                    cut_short: false,
                });
            }
        }
        _ if report.learned.answered => {
            info.iteration += 1;
            info.turn = None;
        }
        _ => {}
    }
}

/// Ends the call that is reported to have ended, and forgets those whose doings have been seen. Until a look, a call that has
/// ended is remembered: it may be the one that changed something.
pub(crate) fn close(info: &mut SessionInfo, report: &Report<'_>, looked: bool) {
    if report.learned.never_ran {
        info.open.retain(|open| Some(&open.call) != report.event.call.as_ref());
    } else if let Some(at) = ending(&info.open, report) {
        info.open[at].ended = true;
    }
    info.open.retain(|open| !open.ended || (open.changes && !looked));
}

/// The call that ends now: its place among `open`. Where an agent gives calls no ids, the oldest open call of the same tool is
/// meant.
pub(crate) fn ending(open: &[OpenCall], report: &Report<'_>) -> Option<usize> {
    let event = &report.event;
    if event.kind != StepKind::ToolEnd {
        return None;
    }
    let by_id = open.iter().position(|open| Some(&open.call) == event.call.as_ref());
    by_id.or_else(|| open.iter().position(|open| !open.ended && open.tool == event.tool))
}

/// How long the call took that ends now.
pub(crate) fn duration(info: &SessionInfo, report: &Report<'_>) -> Option<u64> {
    let open = &info.open[ending(&info.open, report)?];
    u64::try_from(report.at.as_micros() - open.at.as_micros()).ok()
}

/// Whether an event is about another call that happens to have the id of an earlier one: it begins although none is open, or
/// ends although one is. Hooks that are installed twice deliver an event twice at once, when neither is so.
pub(crate) fn is_another(open: Option<&[OpenCall]>, report: &Report<'_>) -> bool {
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
    use stepback_model::event::Event;

    use super::*;
    use crate::recorder::Learned;

    fn report(kind: StepKind, call: &str, effect: Effect) -> Report<'static> {
        let event = Event {
            call: Some(call.into()),
            tool: Some("run_shell_command".into()),
            ..Event::new("gemini", "s", kind, "")
        };
        let (at, learned) = (Timestamp::from_micros(1), Learned::default());
        Report { event, effect, at, conversation: None, paths: Vec::new(), learned }
    }

    #[test]
    fn a_call_whose_input_was_edited_ends_though_its_id_follows_from_its_input() {
        let mut info = SessionInfo::default();
        let start = report(StepKind::ToolStart, "of the old input", Effect::Before);
        advance(&mut info, &start, StepId::from_bytes([1; 16]), true, None);
        let end = report(StepKind::ToolEnd, "of the new input", Effect::After);
        assert_eq!(ending(&info.open, &start), None);
        assert!(needs_look(&info, &end));
        assert_eq!(duration(&info, &end), Some(0));
        close(&mut info, &end, true);
        assert!(info.open.is_empty());
    }
}
