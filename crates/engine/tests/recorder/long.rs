//! What a long session costs.

use std::time::Instant;

use serde_json::json;
use stepback_engine::recorder::{FinishedCalls, ReportedEvent, ScanPolicy, SessionMilestone, SessionUpdate};
use stepback_model::conversation;
use stepback_model::hash::ObjectKind;
use stepback_model::record::StepKind;
use stepback_model::state::WorkspaceState;
use stepback_store::port::StepQuery;

use crate::session::{TestWorkspace, TranscriptFile, event, record, record_reading, report};

const TURNS: usize = 1000;

/// Counted are the raw bytes of all messages, states and list nodes against the bytes of the messages' own text. What a step
/// says about itself (input, output, authors: JSON nodes) and files (trees, blobs) are printed and not counted.
#[test]
fn a_thousand_turns_store_little_more_than_was_said() {
    let place = TestWorkspace::new();
    place.write("file", "x");
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let transcript = TranscriptFile::new(&place);
    let mut said = 0;
    let say = |line: serde_json::Value| -> usize {
        transcript.say(&line);
        line.to_string().len()
    };
    // Words that differ, as words do.
    let text = |turn: usize, seed: usize| -> String {
        (0..85).map(|at| format!("{:05x} ", (turn * 7919 + at * 104_729 + seed) % 0xf_ffff)).collect()
    };
    let begun = Instant::now();
    let mut slowest = 0.0_f64;
    record(
        &workspace,
        &report(
            event("s", StepKind::UserInput, "prompt"),
            ScanPolicy::Checkpoint(stepback_model::record::Trigger::Automatic),
            0,
        ),
    );
    for turn in 0..TURNS {
        let call = format!("call-{turn}");
        let at = turn as i64;
        let moment = Instant::now();
        said += say(json!({ "turn": format!("t{turn}"), "calls": [call], "text": text(turn, 1) }));
        let effect = if turn % 10 == 0 {
            (ScanPolicy::Before, ScanPolicy::After)
        } else {
            (ScanPolicy::None, ScanPolicy::None)
        };
        let read = |report| record_reading(&workspace, &transcript, report);
        read(report(event("s", StepKind::ToolStart, &call), effect.0, at));
        if turn % 10 == 0 {
            place.write("file", &format!("turn {turn}"));
        }
        said += say(json!({ "result": call, "text": text(turn, 2) }));
        read(report(event("s", StepKind::ToolEnd, &call), effect.1, at));
        slowest = slowest.max(moment.elapsed().as_secs_f64());
    }
    let update = SessionUpdate {
        milestone: Some(SessionMilestone::Answered),
        finished_calls: FinishedCalls::All,
        ..SessionUpdate::default()
    };
    let done = report(event("s", StepKind::AgentStep, "done"), ScanPolicy::None, TURNS as i64);
    let last = record_reading(&workspace, &transcript, ReportedEvent { update, ..done });
    println!("{TURNS} turns recorded in {:?}, the slowest in {:.1} ms", begun.elapsed(), slowest * 1e3);

    let mut bytes = [0_u64; 9];
    let mut count = [0_u64; 9];
    workspace
        .store()
        .for_each_object(&mut |object| {
            bytes[object.kind as usize] += object.raw_len;
            count[object.kind as usize] += 1;
        })
        .unwrap();
    for kind in ObjectKind::ALL {
        println!("{kind:?}: {} objects, {} bytes", count[kind as usize], bytes[kind as usize]);
    }
    let counted = [ObjectKind::Message, ObjectKind::State, ObjectKind::List].map(|kind| bytes[kind as usize]);
    let ratio = counted.iter().sum::<u64>() as f64 / said as f64;
    println!("{said} bytes were said; messages, states and lists have {ratio:.3} times as many");
    assert!(ratio <= 1.2, "{ratio}");
    assert_eq!(count[ObjectKind::Message as usize], 2 * TURNS as u64);
    assert_eq!(last.iteration, TURNS as u64 + 1);

    // Any past conversation, from the shortest to the longest.
    let steps = workspace
        .store()
        .steps(workspace.record.id, &StepQuery { oldest_first: true, ..StepQuery::default() })
        .unwrap();
    let mut longest = 0.0_f64;
    for stored in steps.iter().step_by(97).chain(steps.last()) {
        let moment = Instant::now();
        let state = WorkspaceState::load(workspace.store(), stored.step.state).unwrap();
        let texts = conversation::texts(workspace.store(), state.conversation).unwrap();
        longest = longest.max(moment.elapsed().as_secs_f64());
        let number = stored.step.number as usize;
        assert!(texts.len().abs_diff(number) <= 2, "step {number} has {} messages", texts.len());
    }
    println!("loading any past conversation took at most {:.1} ms", longest * 1e3);
}
