//! The task that a step belongs to, where the agent says only when it begins and ends one.
//!
//! An agent that works on a task reports its beginning and its end; what the same worker does between the two belongs to it.
//! A step that is part of a trace says its task itself: spans of several tasks overlap, and arrive in any order.

use stepback_model::record::{SessionInfo, StepContext, StepKind};

use super::ReportedEvent;

/// Most workers of a session whose task is remembered.
const MAX_WORKERS: usize = 64;

/// Returns the ids of the event, with the task that its worker is working on, and remembers a task that begins or ends.
pub(super) fn context_of(info: &mut SessionInfo, report: &ReportedEvent) -> StepContext {
    let event = &report.event;
    let mut context = event.known_context();
    let worker = event.worker.clone().unwrap_or_default();
    if context.trace.is_none() && context.task.is_none() {
        context.task = info.working_on.get(&worker).cloned();
    }
    let (begun, ended) = match (&report.update.task, event.kind) {
        (Some(TaskChange::Started(task)), _) => (Some(task.clone()), None),
        (Some(TaskChange::Ended(task)), _) => (None, Some(task.clone())),
        (None, StepKind::TaskStarted) => (event.known_context().task, None),
        (None, StepKind::TaskCompleted | StepKind::TaskFailed) => (None, event.known_context().task),
        _ => (None, None),
    };
    if let Some(task) = begun.filter(|_| context.trace.is_none()) {
        if info.working_on.len() < MAX_WORKERS || info.working_on.contains_key(&worker) {
            info.working_on.insert(worker, task);
        }
    } else if let Some(task) = ended {
        info.working_on.retain(|_, at_work| *at_work != task);
    }
    context
}

/// What an event says about the task that its worker is working on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TaskChange {
    /// The worker began with the task of this id.
    Started(String),
    /// The task of this id is over, or was put aside.
    Ended(String),
}

#[cfg(test)]
mod tests {
    use stepback_model::event::AgentEvent;
    use stepback_model::time::Timestamp;

    use super::*;

    fn report(kind: StepKind, task: Option<&str>, worker: Option<&str>) -> ReportedEvent {
        let event = AgentEvent {
            context: StepContext { task: task.map(Into::into), ..StepContext::default() },
            worker: worker.map(Into::into),
            ..AgentEvent::new("a", "s", kind, "")
        };
        ReportedEvent::new(event, Timestamp::from_micros(1))
    }

    #[test]
    fn what_a_worker_does_during_a_task_belongs_to_it() {
        let mut info = SessionInfo::default();
        let mut task = |report: &ReportedEvent| context_of(&mut info, report).task;
        assert_eq!(task(&report(StepKind::ToolStart, None, None)), None);
        assert_eq!(task(&report(StepKind::TaskStarted, Some("t1"), None)).as_deref(), Some("t1"));
        assert_eq!(task(&report(StepKind::ToolStart, None, None)).as_deref(), Some("t1"));
        assert_eq!(task(&report(StepKind::ToolStart, None, Some("helper"))), None, "another worker");
        assert_eq!(task(&report(StepKind::ToolEnd, Some("t2"), None)).as_deref(), Some("t2"), "it says so");
        let mut traced = report(StepKind::ToolEnd, None, None);
        traced.event.context.trace = Some("4bf9".into());
        assert_eq!(task(&traced), None, "a trace says so itself");
        let mut aside = report(StepKind::ToolEnd, None, None);
        aside.update.task = Some(TaskChange::Ended("t1".into()));
        assert_eq!(task(&aside).as_deref(), Some("t1"));
        assert_eq!(task(&report(StepKind::ToolStart, None, None)), None);
    }

    #[test]
    fn only_so_many_workers_are_remembered() {
        let mut info = SessionInfo::default();
        for worker in 0..100 {
            context_of(&mut info, &report(StepKind::TaskStarted, Some("t"), Some(&worker.to_string())));
        }
        assert_eq!(info.working_on.len(), MAX_WORKERS);
        context_of(&mut info, &report(StepKind::TaskCompleted, Some("t"), None));
        assert!(info.working_on.is_empty());
    }
}
