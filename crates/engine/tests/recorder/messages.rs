//! What a caller reads of a conversation before it records an event.

use serde_json::{Value, json};
use stepback_engine::Workspace;
use stepback_engine::recorder::{NewMessages, RecordedConversation, ReportedEvent, ScanPolicy};
use stepback_model::conversation;
use stepback_model::ids::StepId;
use stepback_model::record::StepKind;
use stepback_model::state::WorkspaceState;

use crate::session::{TestWorkspace, event, record, report};

fn texts(workspace: &Workspace, step: StepId) -> Vec<String> {
    let stored = workspace.store().step(step).unwrap().unwrap();
    let state = WorkspaceState::load(workspace.store(), stored.step.state).unwrap();
    conversation::texts(workspace.store(), state.conversation).unwrap()
}

fn numbered(number: u64) -> ReportedEvent {
    report(event("s", StepKind::AgentStep, &number.to_string()), ScanPolicy::None, number as i64)
}

fn read(since: Option<Value>, line: &str, cursor: u64) -> Option<NewMessages> {
    let (lines, cursor) = (vec![line.to_owned()], Some(json!(cursor)));
    Some(NewMessages { keep: Some(u64::MAX), lines, start_cursor: since, cursor, turn: None })
}

#[test]
fn messages_that_do_not_follow_the_recorded_ones_are_left_to_the_next_event() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    record(&workspace, &ReportedEvent { messages: read(None, "one", 1), ..numbered(1) });
    // Read before another process recorded the first message.
    let late = record(&workspace, &ReportedEvent { messages: read(None, "one", 1), ..numbered(2) });
    assert_eq!(texts(&workspace, late.id), ["one"]);
    let next = record(&workspace, &ReportedEvent { messages: read(Some(json!(1)), "two", 2), ..numbered(3) });
    assert_eq!(texts(&workspace, next.id), ["one", "two"]);
}

#[test]
fn in_a_batch_each_event_continues_where_the_one_before_it_ended() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let lock = workspace.lock_recording().unwrap();
    let record_batch = |numbers: &[u64]| {
        let reports: Vec<ReportedEvent> = numbers.iter().copied().map(numbered).collect();
        let mut batch = workspace.open_batch(&lock, &reports).unwrap();
        let mut cursors = Vec::new();
        for (mut report, number) in reports.into_iter().zip(numbers) {
            let recorded = batch.conversation(&report).unwrap();
            let cursor = |recorded: RecordedConversation<'_>| recorded.cursor().cloned();
            let known = recorded.map(cursor);
            cursors.push(known.clone());
            report.messages = known.and_then(|since| read(since, &number.to_string(), *number));
            batch.add(report).unwrap();
        }
        (cursors, batch.commit().unwrap())
    };
    let (cursors, steps) = record_batch(&[1, 2, 1, 3]);
    assert_eq!(cursors, [Some(None), Some(Some(json!(1))), None, Some(Some(json!(2)))]);
    assert_eq!(steps[2].id, steps[0].id, "delivered again");
    assert_eq!(texts(&workspace, steps[1].id), ["1", "2"]);
    assert_eq!(texts(&workspace, steps[3].id), ["1", "2", "3"]);
    let (cursors, again) = record_batch(&[1, 2, 3]);
    assert_eq!((cursors, again[2].number), (vec![None; 3], 3), "nothing is read or recorded twice");
}
