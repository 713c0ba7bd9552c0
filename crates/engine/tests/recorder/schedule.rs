//! Checkpoints that are made by themselves: after iterations, inside a turn as well, and after time.

use serde_json::json;
use stepback_engine::Workspace;
use stepback_engine::recorder::{
    CheckpointSchedule, RecordedStep, ReportedEvent, ScanPolicy, SessionMilestone,
};
use stepback_model::record::{Annotation, StepKind, Trigger};
use stepback_model::time::Timestamp;
use stepback_store::port::StepRow;

use crate::session::{START, TestWorkspace, event, report};

/// Records an event `seconds` after the start, and what is due after it.
fn record_on(
    workspace: &Workspace,
    schedule: CheckpointSchedule,
    report: &ReportedEvent,
) -> (u64, Option<RecordedStep>) {
    let lock = workspace.lock_recording().unwrap();
    workspace.record(&lock, report).unwrap();
    workspace.checkpoint_if_due(&lock, &schedule, report).unwrap()
}

/// A turn with one call that reads, and returns the checkpoint that was made at its start.
fn turn(workspace: &Workspace, schedule: CheckpointSchedule, number: i64, seconds: i64) -> Option<StepRow> {
    let id = format!("c{number}");
    let start = report(event("s", StepKind::ToolStart, &id), ScanPolicy::None, seconds);
    let made = record_on(workspace, schedule, &start).1;
    let end = report(event("s", StepKind::ToolEnd, &id), ScanPolicy::None, seconds);
    assert_eq!(record_on(workspace, schedule, &end).1, None, "the end of a call ends no iteration");
    made.map(|made| workspace.store().step(made.id).unwrap().unwrap())
}

/// A workspace with a session that has begun.
fn begun(place: &TestWorkspace) -> Workspace {
    place.write("file", "base");
    let workspace = place.engine().open_workspace_root(&place.root).unwrap();
    let start =
        report(event("s", StepKind::AgentStep, "start"), ScanPolicy::Checkpoint(Trigger::Automatic), 0);
    record_on(&workspace, CheckpointSchedule::default(), &start);
    workspace
}

const EVERY_FIVE: CheckpointSchedule =
    CheckpointSchedule { iterations: Some(5), minutes: None, turn_minutes: None };

#[test]
fn every_fifth_iteration_inside_a_turn_has_a_checkpoint() {
    let place = TestWorkspace::in_memory();
    let workspace = begun(&place);
    let mut made_at = Vec::new();
    for number in 1..=17 {
        if let Some(made) = turn(&workspace, EVERY_FIVE, number, number) {
            assert_eq!(made.trigger, Some(Trigger::Scheduled));
            assert_eq!(made.step.summary, "5 iterations since the last checkpoint");
            let detail = workspace.load_detail(&made.step).unwrap().unwrap();
            assert_eq!(detail["metadata"], json!({ "cause": "iterations", "iterations": 5 }));
            made_at.push(number);
        }
    }
    assert_eq!(made_at, [6, 11, 16], "as soon as five iterations have ended");
}

#[test]
fn a_checkpoint_for_another_reason_starts_the_count_again() {
    let place = TestWorkspace::in_memory();
    let workspace = begun(&place);
    for number in 1..=4 {
        assert!(turn(&workspace, EVERY_FIVE, number, number).is_none());
    }
    place.write("file", "changed by a call");
    let write = report(event("s", StepKind::ToolStart, "w"), ScanPolicy::Before, 5);
    record_on(&workspace, EVERY_FIVE, &write);
    let end = report(event("s", StepKind::ToolEnd, "w"), ScanPolicy::After, 5);
    assert_eq!(record_on(&workspace, EVERY_FIVE, &end).1, None);
    let made: Vec<i64> =
        (6..=11).filter(|number| turn(&workspace, EVERY_FIVE, *number, *number).is_some()).collect();
    assert_eq!(made, [10], "the iteration of that call is the first of the next five");
}

#[test]
fn parallel_calls_are_one_iteration() {
    let place = TestWorkspace::in_memory();
    let workspace = begun(&place);
    for turn in 0..4 {
        for call in 0..5 {
            let id = format!("c{turn} {call}");
            let start = report(event("s", StepKind::ToolStart, &id), ScanPolicy::None, turn);
            assert_eq!(record_on(&workspace, EVERY_FIVE, &start).1, None);
        }
        for call in 0..5 {
            let id = format!("c{turn} {call}");
            record_on(
                &workspace,
                EVERY_FIVE,
                &report(event("s", StepKind::ToolEnd, &id), ScanPolicy::None, turn),
            );
        }
    }
    let mut done = report(event("s", StepKind::AgentStep, "done"), ScanPolicy::None, 9);
    done.update.milestone = Some(SessionMilestone::Answered);
    let made = record_on(&workspace, EVERY_FIVE, &done).1;
    assert!(made.unwrap().is_checkpoint, "the answer is the fifth iteration");
}

#[test]
fn time_passes_for_every_event_and_earlier_between_turns() {
    let schedule = CheckpointSchedule { iterations: None, minutes: Some(10), turn_minutes: Some(5) };
    let place = TestWorkspace::in_memory();
    // The checkpoint at the beginning has the time of the event.
    let workspace = begun(&place);
    let at = |minutes: i64, kind: StepKind| {
        let id = format!("{minutes}");
        record_on(&workspace, schedule, &report(event("s", kind, &id), ScanPolicy::None, minutes * 60)).1
    };
    assert_eq!(at(4, StepKind::UserInput), None);
    assert_eq!(at(6, StepKind::AgentStep), None, "in the middle of something");
    let made = at(7, StepKind::UserInput).unwrap();
    let stored = workspace.store().step(made.id).unwrap().unwrap();
    assert_eq!(stored.step.summary, "7 minutes since the last checkpoint");
    assert_eq!(at(8, StepKind::UserInput), None, "it counts from the last one");
    assert_eq!(at(16, StepKind::AgentStep), None);
    assert!(at(17, StepKind::AgentStep).is_some());
    // A clock that was set back is no reason for a checkpoint, and none against later ones.
    let back = ReportedEvent {
        at: Timestamp::from_micros(START - 1),
        ..report(event("s", StepKind::UserInput, "x"), ScanPolicy::None, 0)
    };
    assert_eq!(record_on(&workspace, schedule, &back).1, None);
}

#[test]
fn turned_off_means_none_and_absurd_limits_do_no_harm() {
    let place = TestWorkspace::in_memory();
    let workspace = begun(&place);
    let far = CheckpointSchedule {
        iterations: Some(u64::MAX),
        minutes: Some(u64::MAX),
        turn_minutes: Some(1_000_000_000),
    };
    for number in 1..=20 {
        assert!(turn(&workspace, CheckpointSchedule::default(), number, number * 3600).is_none());
        assert!(turn(&workspace, far, 100 + number, number * 3600).is_none());
    }
}

#[test]
fn a_scheduled_checkpoint_is_a_whole_state_and_names_no_author() {
    let place = TestWorkspace::in_memory();
    let workspace = begun(&place);
    (1..=5).for_each(|number| drop(turn(&workspace, EVERY_FIVE, number, number)));
    place.write("file", "by the person");
    let made = turn(&workspace, EVERY_FIVE, 6, 6).unwrap();
    let state = workspace.load_state(&made).unwrap();
    assert!(state.files.is_some());
    assert_eq!(made.annotation, Annotation::default(), "pruning may take it");
    let detail = workspace.load_detail(&made.step).unwrap().unwrap();
    assert!(
        detail.get("authors").is_none_or(|authors| authors["calls"].as_array().unwrap().is_empty()),
        "{detail}"
    );
}
