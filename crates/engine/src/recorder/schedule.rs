//! Checkpoints that are due although no call has changed anything: after so many iterations, and after so much time.
//!
//! Recorded after the event that shows it, while its hook still waits, so that a checkpoint inside a turn comes before the
//! call that the event is about has run. It is made even if no file has changed: the conversation has gone on. What counts
//! as the last checkpoint is any checkpoint, of any origin.

use serde_json::json;
use stepback_model::event::AgentEvent;
use stepback_model::quantity::count;
use stepback_model::record::{Session, StepKind, Trigger};

use super::{RecordLock, RecordedStep, ReportedEvent, ScanPolicy, SessionMilestone};
use crate::error::EngineError;
use crate::workspace::Workspace;

const MICROS_PER_MINUTE: i64 = 60_000_000;

/// When checkpoints are made by themselves; `None` for never.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CheckpointSchedule {
    /// After so many iterations of a session without one, inside a turn as well.
    pub iterations: Option<u64>,
    /// At any event, after so many minutes without one.
    pub minutes: Option<u64>,
    /// At a prompt, a call or the end of a prompt, after so many minutes without one.
    pub turn_minutes: Option<u64>,
}

/// Why a checkpoint is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DueReason {
    Iterations(u64),
    Minutes(u64),
}

impl DueReason {
    /// The description of the checkpoint.
    fn describe(self) -> String {
        match self {
            Self::Iterations(number) => format!("{} since the last checkpoint", count(number, "iteration")),
            Self::Minutes(number) => format!("{} since the last checkpoint", count(number, "minute")),
        }
    }

    /// The stable name of the trigger, and its number.
    fn document(self) -> serde_json::Value {
        match self {
            Self::Iterations(number) => json!({ "cause": "iterations", "iterations": number }),
            Self::Minutes(number) => json!({ "cause": "time-passed", "minutes": number }),
        }
    }
}

impl CheckpointSchedule {
    /// Whether a checkpoint can be due at an event, with so many iterations and minutes since the last one at most. A
    /// caller that knows only these need not open the store as long as the answer is no.
    pub fn may_be_due(&self, report_kind: StepKind, iterations: u64, minutes: u64) -> bool {
        let is_reached = |limit: Option<u64>, number: u64| limit.is_some_and(|limit| number >= limit);
        is_reached(self.iterations.filter(|_| report_kind == StepKind::ToolStart), iterations)
            || is_reached(self.minutes, minutes)
            || is_reached(self.turn_minutes.filter(|_| is_boundary(report_kind)), minutes)
    }

    /// Returns why a checkpoint is due after an event of a session.
    fn reason(&self, session: &Session, report: &ReportedEvent, minutes: u64) -> Option<DueReason> {
        let info = &session.info;
        let is_answered = report.update.milestone == Some(SessionMilestone::Answered);
        let completed = match report.event.kind {
            // The iteration that this call belongs to goes on.
            StepKind::ToolStart => Some(info.iteration.saturating_sub(1)),
            _ => is_answered.then_some(info.iteration),
        };
        let iterations = completed.map(|completed| completed.saturating_sub(info.looked));
        let is_reached = |limit: Option<u64>, number: u64| limit.is_some_and(|limit| number >= limit);
        if let Some(number) = iterations.filter(|number| is_reached(self.iterations, *number)) {
            return Some(DueReason::Iterations(number));
        }
        let at_boundary = is_answered || is_boundary(report.event.kind);
        let is_due =
            is_reached(self.minutes, minutes) || (at_boundary && is_reached(self.turn_minutes, minutes));
        is_due.then_some(DueReason::Minutes(minutes))
    }
}

/// Whether an event of this kind is one at which the agent's work can be divided.
fn is_boundary(kind: StepKind) -> bool {
    matches!(kind, StepKind::ToolStart | StepKind::UserInput)
}

impl Workspace {
    /// Makes a checkpoint if the schedule says that one is due after an event, which was just recorded. Returns the
    /// iterations that have begun since the last checkpoint of the session, and the checkpoint.
    pub fn checkpoint_if_due(
        &self,
        lock: &RecordLock,
        schedule: &CheckpointSchedule,
        report: &ReportedEvent,
    ) -> Result<(u64, Option<RecordedStep>), EngineError> {
        // The files of a remote workspace are not here.
        if self.record.remote_name().is_some() {
            return Ok((0, None));
        }
        let Some(session) = self.store().session(self.session_id_for(report))? else { return Ok((0, None)) };
        let begun = session.info.iteration.saturating_sub(session.info.looked);
        let head = self.head_id()?.map(|head| self.store().step(head)).transpose()?.flatten();
        // The first checkpoint of a workspace is made by the first event that finds none.
        let Some(head) = head else { return Ok((begun, None)) };
        let elapsed = report.at.as_micros().saturating_sub(head.step.at.as_micros());
        let minutes = u64::try_from(elapsed / MICROS_PER_MINUTE).unwrap_or_default();
        let Some(reason) = schedule.reason(&session, report, minutes) else { return Ok((begun, None)) };
        let event = AgentEvent {
            metadata: Some(reason.document()),
            worker: report.event.worker.clone(),
            ..AgentEvent::new(
                &session.agent,
                session.info.external.as_deref().unwrap_or_default(),
                StepKind::Checkpoint,
                reason.describe(),
            )
        };
        let checkpoint = ReportedEvent {
            scan_policy: ScanPolicy::Save(Trigger::Scheduled),
            ..ReportedEvent::new(event, report.at)
        };
        let made = self.record(lock, &checkpoint)?;
        let session = self.store().session(session.id)?.unwrap_or(session);
        Ok((session.info.iteration.saturating_sub(session.info.looked), Some(made)))
    }
}
