//! What waits in the inbox is taken in at once and in order.
#![expect(clippy::unwrap_used, reason = "tests may fail loudly")]

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use stepback_agents::Agent;
use stepback_agents::hook::Hook;
use stepback_agents::inbox::InboxNote;
use stepback_agents::record;
use stepback_engine::workspace_index;
use stepback_model::env::FrozenEnv;
use stepback_model::record::{Session, StepKind};
use stepback_model::time::Timestamp;
use stepback_store::port::{StepQuery, StepRow};
use stepback_testkit::TestWorkspace;

/// A workspace whose agent reports through hooks.
struct HookedWorkspace(TestWorkspace);

impl Deref for HookedWorkspace {
    type Target = TestWorkspace;

    fn deref(&self) -> &TestWorkspace {
        &self.0
    }
}

impl HookedWorkspace {
    fn new() -> Self {
        let clock = FrozenEnv::new(Timestamp::from_micros(1_800_000_000_000_000), 7);
        let test = TestWorkspace::new().with_env(clock);
        test.write("a", "a");
        fs::write(test.top().join("talk.jsonl"), "").unwrap();
        Self(test)
    }

    fn hook(&self, session: &str, event: &str, tool: &str, call: &str) {
        let payload = json!({
            "session_id": session, "transcript_path": self.top().join("talk.jsonl"), "cwd": self.root,
            "hook_event_name": event, "tool_name": tool, "tool_input": { "n": call }, "tool_use_id": call,
        });
        let store = self.top().join("store");
        let hook = Hook {
            agent: Agent::Claude,
            store: &store,
            directory: &self.root,
            env: &*self.env,
            with_engine: &|work| work(&self.engine()),
            new_root: &|directory: &Path| Some(directory.to_path_buf()),
            transcript: None,
            answer_timeout: Duration::ZERO,
            strict: false,
            max_minutes_between_scans: None,
            max_turns_between_scans: None,
            scan_around_calls: true,
            undo_hints: stepback_agents::hook::UndoHints::Off,
            clear_changes_on_commit: false,
            has_proxy: false,
            policy: None,
            find_launch_command: &|| None,
            variable_names: &Vec::new,
        };
        let outcome = hook.handle(payload.to_string().as_bytes());
        assert_eq!(outcome.error, None);
    }

    fn say(&self, line: &Value) {
        let path = self.top().join("talk.jsonl");
        let text = fs::read_to_string(&path).unwrap() + &format!("{line}\n");
        // In place, as an agent does.
        fs::write(path, text).unwrap();
    }

    fn answer(&self, id: &str, calls: &[&str]) {
        let calls: Vec<_> = (calls.iter())
            .map(|call| json!({ "type": "tool_use", "id": call, "name": "Read", "input": {} }))
            .collect();
        let message = json!({ "id": id, "role": "assistant", "content": calls });
        self.say(&json!({ "type": "assistant", "uuid": id, "message": message }));
    }

    fn result(&self, call: &str) {
        let result = json!({ "type": "tool_result", "tool_use_id": call, "content": "ok" });
        self.say(
            &json!({ "type": "user", "uuid": call, "message": { "role": "user", "content": [result] } }),
        );
    }

    fn steps(&self) -> Vec<StepRow> {
        let workspace = self.store.workspaces().unwrap().pop().unwrap();
        self.store.steps(workspace.id, &StepQuery { oldest_first: true, ..StepQuery::default() }).unwrap()
    }

    fn inbox(&self) -> PathBuf {
        let (_, dir) = workspace_index::find(&self.top().join("store"), &self.root).unwrap();
        dir.join("inbox.jsonl")
    }
}

#[test]
fn many_reports_cost_one_commit_and_keep_their_order() {
    let desk = HookedWorkspace::new();
    desk.hook("one", "PreToolUse", "Bash", "first");
    desk.hook("one", "PostToolUse", "Bash", "first");
    let before = desk.steps().len();
    let mark = desk.store.commit_seq().unwrap().0;
    for (session, call) in [("one", "r1"), ("two", "r2"), ("one", "r3"), ("two", "r4")] {
        desk.answer(&format!("answer {call}"), &[call]);
        desk.hook(session, "PreToolUse", "Read", call);
        desk.result(call);
        desk.hook(session, "PostToolUse", "Read", call);
    }
    assert_eq!(desk.store.commit_seq().unwrap().0, mark, "the database was not touched");
    // As if the hooks were installed twice.
    let waiting = fs::read_to_string(desk.inbox()).unwrap();
    fs::write(desk.inbox(), waiting.lines().map(|line| format!("{line}\n{line}\n")).collect::<String>())
        .unwrap();
    desk.hook("one", "PreToolUse", "Bash", "second");
    // One commit for all that waited, one for the call, however many there were.
    assert_eq!(desk.store.commit_seq().unwrap().0, mark + 2);
    let steps: Vec<_> = desk.steps().into_iter().map(|stored| stored.step).collect();
    let calls: Vec<_> = steps[before..].iter().map(|step| step.meta.call.as_deref().unwrap()).collect();
    assert_eq!(calls, ["r1", "r1", "r2", "r2", "r3", "r3", "r4", "r4", "second"]);
    let numbers: Vec<_> = steps.iter().map(|step| step.number).collect();
    assert_eq!(numbers, (1..=steps.len() as u64).collect::<Vec<_>>());
    // Each answer is a turn of its own session.
    let turns: Vec<_> = steps[before..].iter().map(|step| step.meta.iteration).collect();
    assert_eq!(turns, [2, 2, 1, 1, 3, 3, 2, 2, 4]);
    let sessions = desk.store.sessions(desk.store.workspaces().unwrap()[0].id).unwrap();
    assert_eq!(sessions.iter().filter(|session| session.agent != Session::PERSON).count(), 2);
}

#[test]
fn taken_in_at_once_or_one_by_one_the_record_is_the_same() {
    let record = |one_by_one: bool| {
        let desk = HookedWorkspace::new();
        desk.hook("one", "PreToolUse", "Bash", "first");
        desk.hook("one", "PostToolUse", "Bash", "first");
        // Ids that come again, calls that run at once, and calls that never end.
        let calls = ["a", "b", "a", "c", "b", "b", "d"];
        for (number, call) in calls.into_iter().enumerate() {
            let session = if number % 3 == 1 { "two" } else { "one" };
            let take_in = || {
                if one_by_one {
                    let engine = desk.engine();
                    record::record_inbox(&engine.open_workspace_root(&desk.root).unwrap()).unwrap();
                }
            };
            let beside = format!("{call} beside {number}");
            desk.answer(&format!("answer {number}"), &[call, &beside]);
            desk.hook(session, "PreToolUse", "Read", call);
            take_in();
            desk.hook(session, "PreToolUse", "Read", &beside);
            take_in();
            if number != 3 {
                desk.result(call);
                desk.hook(session, "PostToolUse", "Read", call);
                take_in();
            }
        }
        desk.hook("one", "PreToolUse", "Bash", "last");
        let steps: Vec<_> = (desk.steps().into_iter().map(|stored| stored.step))
            .map(|step| (step.number, step.kind, step.meta.call, step.meta.iteration, step.state))
            .collect();
        let sessions = desk.store.sessions(desk.store.workspaces().unwrap()[0].id).unwrap();
        let mut open: Vec<_> = (sessions.into_iter())
            .map(|session| {
                let open: Vec<_> =
                    session.info.open.into_iter().map(|open| (open.call, open.ended)).collect();
                (session.info.external, open, session.info.iteration, session.info.tip)
            })
            .collect();
        open.sort_by(|a, b| a.0.cmp(&b.0));
        (steps, open)
    };
    let (at_once, one_by_one) = (record(false), record(true));
    assert_eq!(at_once, one_by_one);
    assert_eq!(at_once.0.len(), 2 + 7 * 3 - 1 + 1);
}

#[test]
fn a_note_that_cannot_be_recorded_leaves_a_gap_and_blocks_nothing() {
    let desk = HookedWorkspace::new();
    desk.hook("one", "PreToolUse", "Bash", "first");
    let (engine, before) = (desk.engine(), desk.steps().len());
    let workspace = engine.open_workspace_root(&desk.root).unwrap();
    let note = |second: i64, call: &str, input: Value, gap: Option<&str>| InboxNote {
        payload: Some(json!({
            "session_id": "one", "cwd": desk.root, "hook_event_name": "PreToolUse",
            "tool_name": "Read", "tool_input": input, "tool_use_id": call,
        })),
        gap: gap.map(str::to_string),
        ..InboxNote::new(Timestamp::from_micros(1_800_000_000_000_000 + second * 1_000_000), "claude")
    };
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let notes = [
        note(1, "good", json!({}), None),
        note(2, "bad", json!({ "deep": deep }), None),
        // Its hook failed after it had been stored, so it says nothing new.
        note(3, "good", json!({}), Some("no space")),
        note(4, "failed", json!({}), Some("no time")),
        note(5, "also good", json!({}), None),
    ];
    let lock = workspace.lock_recording().unwrap();
    record::record_notes(&workspace, &lock, &notes).unwrap();
    let said = || {
        let steps = desk.steps().into_iter().skip(before).map(|stored| stored.step);
        steps.map(|step| step.meta.call.unwrap_or(step.summary)).collect::<Vec<_>>()
    };
    let steps = said();
    assert!(steps[1].starts_with("a report cannot be recorded"), "{steps:?}");
    assert_eq!([&steps[..1], &steps[2..]].concat(), ["good", "no space", "failed", "no time", "also good"]);
    // Without the bad one, all at once.
    let desk = HookedWorkspace::new();
    desk.hook("one", "PreToolUse", "Bash", "first");
    let engine = desk.engine();
    let workspace = engine.open_workspace_root(&desk.root).unwrap();
    let lock = workspace.lock_recording().unwrap();
    let mark = desk.store.commit_seq().unwrap().0;
    let notes: Vec<InboxNote> =
        notes.into_iter().filter(|note| note.payload.as_ref().unwrap()["tool_use_id"] != "bad").collect();
    record::record_notes(&workspace, &lock, &notes).unwrap();
    assert_eq!(desk.store.commit_seq().unwrap().0, mark + 1);
    let calls: Vec<_> = desk
        .steps()
        .into_iter()
        .skip(before)
        .map(|stored| stored.step)
        .map(|step| step.meta.call.unwrap_or(step.summary))
        .collect();
    assert_eq!(calls, ["good", "no space", "failed", "no time", "also good"]);
}

#[test]
fn the_turn_of_a_call_is_found_however_long_the_conversation_is() {
    let desk = HookedWorkspace::new();
    for number in 0..400 {
        desk.answer(&format!("early {number}"), &[&format!("e{number}")]);
        desk.result(&format!("e{number}"));
    }
    desk.hook("one", "PreToolUse", "Bash", "none of them");
    // An answer whose calls are answered one after the other, each of them with a look of its own.
    let calls: Vec<String> = (0..40).map(|number| format!("c{number}")).collect();
    desk.answer("the answer", &calls.iter().map(String::as_str).collect::<Vec<_>>());
    for call in &calls {
        desk.hook("one", "PreToolUse", "Read", call);
        desk.result(call);
        desk.hook("one", "PostToolUse", "Read", call);
    }
    desk.hook("one", "PreToolUse", "Bash", "last");
    let steps = desk.steps();
    let starts: Vec<_> = (steps.iter().map(|stored| &stored.step))
        .filter(|step| {
            step.kind == StepKind::ToolStart && step.meta.call.as_deref().unwrap().starts_with('c')
        })
        .collect();
    assert_eq!(starts.len(), 40);
    assert!(starts.iter().all(|step| step.meta.iteration == starts[0].meta.iteration), "one turn");
    for step in starts {
        let state = stepback_model::state::WorkspaceState::load(&*desk.store, step.state).unwrap();
        let kept = stepback_model::conversation::len(&*desk.store, state.conversation).unwrap();
        assert_eq!(kept, 800, "{:?} was asked for by the answer after those", step.meta.call);
    }
}

#[test]
fn notes_that_are_taken_in_once_more_after_a_crash_are_recorded_once() {
    let desk = HookedWorkspace::new();
    desk.hook("one", "PreToolUse", "Bash", "first");
    desk.hook("one", "PostToolUse", "Bash", "first");
    let before = desk.steps().len();
    for call in ["r1", "r2", "r1"] {
        desk.hook("one", "PreToolUse", "Read", call);
        desk.hook("one", "PostToolUse", "Read", call);
        desk.hook("one", "Notification", "Read", call);
    }
    let waiting = fs::read_to_string(desk.inbox()).unwrap();
    desk.hook("one", "PreToolUse", "Bash", "second");
    let recorded = desk.steps().len();
    assert_eq!(recorded, before + 9 + 1, "a call id that is used again is another call");
    // As if the process had died before it cleared the notes away.
    fs::write(desk.inbox().with_file_name("inbox-taken.jsonl"), waiting).unwrap();
    desk.hook("one", "PostToolUse", "Bash", "second");
    assert_eq!(desk.steps().len(), recorded + 1);
}

#[test]
fn an_event_that_is_reported_twice_takes_no_lines_from_the_next_one() {
    let desk = HookedWorkspace::new();
    desk.hook("one", "PreToolUse", "Bash", "first");
    desk.answer("answer", &["r1"]);
    desk.hook("one", "PreToolUse", "Read", "r1");
    // The hooks are installed twice, and the transcript grew between the two reports.
    desk.result("r1");
    desk.hook("one", "PreToolUse", "Read", "r1");
    desk.hook("one", "PostToolUse", "Read", "r1");
    desk.hook("one", "PreToolUse", "Bash", "last");
    let steps = desk.steps();
    let lengths: Vec<_> = (steps.iter().map(|stored| &stored.step))
        .map(|step| {
            let state = stepback_model::state::WorkspaceState::load(&*desk.store, step.state).unwrap();
            let length = stepback_model::conversation::len(&*desk.store, state.conversation).unwrap();
            (step.kind, step.meta.call.as_deref().unwrap(), length)
        })
        .collect();
    let (start, end) = (StepKind::ToolStart, StepKind::ToolEnd);
    assert_eq!(lengths, [(start, "first", 0), (start, "r1", 0), (end, "r1", 2), (start, "last", 2)]);
}
