//! The facts of sessions, as they are read from a store and kept beside it.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use stepback_analysis::facts::{SessionFacts, UsageSource};
use stepback_analysis::load::{FactsQuery, load_facts};
use stepback_engine::Workspace;
use stepback_engine::recorder::{CallStatus, NewMessages, ReportedEvent};
use stepback_llm_wire::prices::Prices;
use stepback_model::event::AgentEvent;
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;
use stepback_testkit::TestWorkspace;
use stepback_testkit::test_workspace::START;

/// A workspace in which sessions are recorded event by event.
struct Recording {
    place: TestWorkspace,
    workspace: Workspace,
    seconds: i64,
    lines: usize,
}

impl Recording {
    fn new() -> Self {
        Self::over(TestWorkspace::new())
    }

    fn over(place: TestWorkspace) -> Self {
        let workspace = place.engine().open_workspace_root(&place.root).unwrap();
        Self { place, workspace, seconds: 0, lines: 0 }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(START + self.seconds * 1_000_000)
    }

    fn record_report(&mut self, report: &ReportedEvent) {
        let lock = self.workspace.lock_recording().unwrap();
        self.workspace.record(&lock, report).unwrap();
        self.seconds += 1;
    }

    fn record(&mut self, session: &str, kind: StepKind, change: impl FnOnce(&mut AgentEvent)) {
        let mut event = AgentEvent::new("claude", session, kind, kind.as_str());
        change(&mut event);
        let at = self.now();
        self.record_report(&ReportedEvent::new(event, at));
    }

    fn prompt(&mut self, session: &str) {
        self.record(session, StepKind::UserInput, |event| event.input = Some(json!("do it")));
    }

    fn call(&mut self, session: &str, id: &str, tool: &str, input: Value, output: Value) {
        self.record(session, StepKind::ToolStart, |event| {
            (event.call, event.tool) = (Some(id.into()), Some(tool.into()));
            event.input = Some(input.clone());
        });
        self.record(session, StepKind::ToolEnd, |event| {
            (event.call, event.tool) = (Some(id.into()), Some(tool.into()));
            (event.input, event.output) = (Some(input), Some(output));
        });
    }

    fn model_call(&mut self, session: &str, id: &str, metadata: Value) {
        self.record(session, StepKind::ModelStart, |event| event.call = Some(id.into()));
        self.record(session, StepKind::ModelEnd, |event| {
            (event.call, event.metadata) = (Some(id.into()), Some(metadata));
        });
    }

    /// Adds lines to the conversation of a session, `keep` of which stay.
    fn say(&mut self, session: &str, keep: Option<u64>, lines: &[Value]) {
        let kept = keep.unwrap_or(self.lines as u64);
        self.lines = kept as usize + lines.len();
        let event = AgentEvent::new("claude", session, StepKind::UserInput, "prompt");
        let messages = NewMessages {
            keep: Some(kept),
            lines: lines.iter().map(Value::to_string).collect(),
            start_cursor: None,
            cursor: None,
            turn: None,
        };
        let at = self.now();
        self.record_report(&ReportedEvent { messages: Some(messages), ..ReportedEvent::new(event, at) });
    }

    /// The line of an answer as Claude Code writes it.
    fn answer(&self, id: &str, tokens: (u64, u64, u64, u64)) -> Value {
        let (input, output, read, write) = tokens;
        let usage = json!({ "input_tokens": input, "output_tokens": output,
            "cache_read_input_tokens": read, "cache_creation_input_tokens": write });
        json!({ "type": "assistant", "uuid": format!("u-{id}"), "timestamp": self.now().to_string(),
            "message": { "id": id, "model": "claude-sonnet-4-5", "role": "assistant", "usage": usage,
                "content": [{ "type": "text", "text": "fine" }] } })
    }

    fn facts(&self) -> Vec<SessionFacts> {
        load_facts(&self.place.engine(), &Prices::built_in(), &FactsQuery::default()).unwrap()
    }

    fn only(&self) -> SessionFacts {
        let mut all = self.facts();
        assert_eq!(all.len(), 1);
        all.pop().unwrap()
    }

    fn kept_files(&self) -> Vec<PathBuf> {
        let dir = self.place.store.local_dir().unwrap().join("workspaces");
        let dir = dir.join(self.workspace.record.id.to_string()).join("facts");
        let mut files: Vec<_> =
            fs::read_dir(dir).into_iter().flatten().map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    }
}

fn usage(input: u64, output: u64) -> Value {
    json!({ "model": "claude-sonnet-4-5", "usage": { "input": input, "output": output, "cache_read": 0, "cache_write": 0 } })
}

#[test]
fn steps_become_facts() {
    let mut recording = Recording::new();
    recording.prompt("a");
    recording.model_call("a", "m1", usage(1000, 100));
    recording.call("a", "c1", "Bash", json!({ "command": "cargo test -p x" }), json!("ok"));
    recording.call("a", "c2", "Bash", json!({ "command": "cargo test -p x" }), json!("ok"));
    recording.call("a", "c3", "Read", json!({ "file_path": "/w/a.rs" }), json!("fn main() {}"));
    let facts = recording.only();
    assert_eq!(facts.agent, "claude");
    let ends: Vec<_> = facts.steps.iter().filter(|step| step.kind == StepKind::ToolEnd).collect();
    assert_eq!((ends[0].input, ends[0].output), (ends[1].input, ends[1].output));
    assert_ne!(ends[0].output, ends[2].output);
    assert_eq!((facts.name(ends[0].tool), facts.name(ends[0].subject)), ("Bash", "cargo test"));
    assert_eq!(facts.name(ends[2].subject), "/w/a.rs");
    assert_eq!((ends[2].output_bytes, ends[2].duration), (12, Some(1_000_000)));
    assert!(facts.steps.iter().all(|step| step.prompt == Some(0)));
    let call = &facts.model_calls[0];
    assert_eq!(facts.steps[call.step as usize].kind, StepKind::ModelEnd);
    assert_eq!(call.tokens.unwrap().input, 1000);
    // 1000 × 3 + 100 × 15, in millionths
    assert_eq!((call.cost, call.priced), (Some(4500), true));
}

#[test]
fn kept_facts_are_what_is_read_anew_however_the_session_grows() {
    let mut recording = Recording::new();
    let mut sizes = Vec::new();
    for round in 0..4 {
        recording.prompt("a");
        let line = recording.answer(&format!("msg_{round}"), (10 + round, 5, 100, 0));
        recording.say("a", None, &[line]);
        // The facts are kept between the start and the end of a model call.
        let call = format!("m{round}");
        recording.record("a", StepKind::ModelStart, |event| event.call = Some(call.clone()));
        recording.facts();
        recording.record("a", StepKind::ModelEnd, |event| {
            (event.call, event.metadata) = (Some(call), Some(usage(round, 7)));
        });
        recording.call("b", &format!("c{round}"), "Bash", json!({ "command": "ls" }), json!("x"));
        let kept = recording.facts();
        for file in recording.kept_files() {
            fs::remove_file(file).unwrap();
        }
        let fresh = recording.facts();
        assert_eq!(kept, fresh, "round {round}");
        assert_eq!(recording.facts(), fresh);
        sizes.push(fresh.iter().map(|facts| facts.steps.len()).sum::<usize>());
    }
    assert_eq!(sizes, [6, 12, 18, 24]);
}

#[test]
fn kept_files_that_are_damaged_or_foreign_are_ignored() {
    let mut recording = Recording::new();
    recording.prompt("a");
    recording.model_call("a", "m1", usage(1000, 100));
    let expected = recording.facts();
    let files = recording.kept_files();
    assert_eq!(files.len(), 2);
    for file in &files {
        let whole = fs::read(file).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        let mut other_format = whole.clone();
        other_format[8] ^= 0x40;
        for bytes in [&whole[..whole.len() / 2], &flipped, &other_format, b"", b"{}"] {
            fs::write(file, bytes).unwrap();
            assert_eq!(recording.facts(), expected);
            assert_eq!(fs::read(file).unwrap(), whole, "it is written again");
        }
        fs::remove_file(file).unwrap();
        fs::create_dir(file).unwrap();
        assert_eq!(recording.facts(), expected, "a directory in its place");
        fs::remove_dir(file).unwrap();
    }
    // An older file of a session does not take the place of a newer one.
    let session_file = files.iter().find(|file| !file.ends_with("index")).unwrap();
    recording.facts();
    let older = fs::read(session_file).unwrap();
    recording.model_call("a", "m2", usage(7, 7));
    let newer = recording.facts();
    fs::write(session_file, older).unwrap();
    assert_eq!(recording.facts(), newer);
}

#[test]
fn facts_that_cannot_be_kept_are_read_each_time() {
    let mut recording = Recording::over(TestWorkspace::in_memory());
    recording.prompt("a");
    assert_eq!(recording.facts(), recording.facts());
    assert_eq!(recording.only().steps.len(), 1);

    let mut recording = Recording::new();
    recording.prompt("a");
    let dir = recording.place.store.local_dir().unwrap().join("workspaces");
    let dir = dir.join(recording.workspace.record.id.to_string()).join("facts");
    // A file where the directory belongs: nothing can be written, whoever runs the test.
    fs::write(&dir, "x").unwrap();
    assert_eq!(recording.only().steps.len(), 1);
    recording.prompt("a");
    assert_eq!(recording.only().steps.len(), 2);
}

#[test]
fn a_call_in_a_step_and_in_the_conversation_is_one_call() {
    let mut recording = Recording::new();
    recording.prompt("a");
    recording.model_call(
        "a",
        "m1",
        json!({ "model": "claude-sonnet-4-5",
        "usage": { "input": 12, "output": 300, "cache_read": 5000, "cache_write": 70 }, "cost_usd": 0.5 }),
    );
    // The transcript has the same request; its output was written before the stream ended.
    let same = recording.answer("msg_1", (12, 4, 5000, 70));
    let other = recording.answer("msg_2", (13, 4, 5100, 70));
    recording.say("a", None, &[same, other]);
    let facts = recording.only();
    let tokens: Vec<_> = facts.model_calls.iter().map(|call| call.tokens.unwrap().input).collect();
    assert_eq!(tokens, [12, 13]);
    assert_eq!(facts.model_calls[0].source, UsageSource::Step);
    assert_eq!((facts.model_calls[0].cost, facts.model_calls[0].priced), (Some(500_000), false));
    assert_eq!(facts.model_calls[0].tokens.unwrap().output, 300);
    assert_eq!(facts.model_calls[1].source, UsageSource::Conversation);
    assert!(facts.model_calls[1].priced);
}

#[test]
fn an_answer_that_was_cut_off_the_conversation_is_still_counted() {
    let mut recording = Recording::new();
    let first = recording.answer("msg_1", (1, 1, 0, 0));
    recording.say("a", None, &[first]);
    let second = recording.answer("msg_2", (2, 2, 0, 0));
    recording.say("a", None, &[second]);
    let third = recording.answer("msg_3", (3, 3, 0, 0));
    // The agent went back to before the second answer.
    recording.say("a", Some(1), &[third]);
    let inputs = |facts: SessionFacts| {
        let mut inputs: Vec<u64> = facts.model_calls.iter().map(|call| call.tokens.unwrap().input).collect();
        inputs.sort_unstable();
        inputs
    };
    assert_eq!(inputs(recording.only()), [1, 2, 3]);
    let fourth = recording.answer("msg_4", (4, 4, 0, 0));
    recording.say("a", Some(1), &[fourth]);
    assert_eq!(inputs(recording.only()), [1, 2, 3, 4], "also when only the end is read");
}

#[test]
fn waiting_at_a_breakpoint_belongs_to_its_call() {
    let mut recording = Recording::new();
    recording.prompt("a");
    let tool = |event: &mut AgentEvent| event.tool = Some("Bash".into());
    recording.record("a", StepKind::ToolStart, |event| {
        tool(event);
        event.call = Some("c1".into());
    });
    recording.record("a", StepKind::BreakpointHit, |event| {
        tool(event);
        event.input = Some(json!({ "tool": "Bash", "input": {}, "breakpoint": 1 }));
    });
    // Facts are kept while the call waits.
    assert_eq!(recording.only().steps.len(), 3);
    recording.seconds += 59;
    let mut answered = AgentEvent::new("claude", "a", StepKind::Decision, "resumed");
    tool(&mut answered);
    answered.input = Some(json!({ "before": {}, "answer": { "do": "resume" }, "call": "c1" }));
    let mut report = ReportedEvent::new(answered, recording.now());
    report.call.status = CallStatus::Waited { call: "c1".into(), micros: 60_000_000, edited: false };
    recording.record_report(&report);
    assert_eq!(recording.only().steps.len(), 4);
    recording.record("a", StepKind::ToolEnd, |event| {
        tool(event);
        event.call = Some("c1".into());
    });
    let facts = recording.only();
    let end = facts.steps.last().unwrap();
    assert_eq!((end.waited, end.duration), (60_000_000, Some(2_000_000)));
    for at in [2, 3] {
        assert_eq!(facts.name(facts.steps[at].call), "c1");
    }
}

#[test]
fn impossible_usage_and_clocks_that_go_back_are_counted_and_left_out() {
    let mut recording = Recording::new();
    recording.prompt("a");
    for (number, usage) in [json!({ "input": -4 }), json!({ "input": u64::MAX }), json!({ "output": 1e308 })]
        .into_iter()
        .enumerate()
    {
        recording.model_call("a", &format!("m{number}"), json!({ "model": "gpt-5", "usage": usage }));
    }
    let absurd = recording.answer("msg_1", (u64::MAX, u64::MAX, 1, 1));
    recording.say("a", None, &[absurd]);
    recording.seconds = -1_000_000;
    recording.prompt("a");
    let at = Timestamp::from_micros(i64::MIN + 1);
    recording.record_report(&ReportedEvent::new(AgentEvent::new("claude", "a", StepKind::UserInput, ""), at));
    let facts = recording.only();
    assert_eq!(facts.defects.impossible_usage, 4);
    assert_eq!(facts.defects.clock_went_back, 2);
    assert!(facts.model_calls.iter().all(|call| call.tokens.is_none() && call.cost.is_none()));
    assert_eq!(recording.only(), facts, "kept and read back");
}

#[test]
fn sessions_are_selected() {
    let mut recording = Recording::new();
    recording.prompt("old");
    recording.seconds += 1000;
    let since = recording.now();
    recording.prompt("new");
    let engine = recording.place.engine();
    let load = |query: FactsQuery| load_facts(&engine, &Prices::built_in(), &query).unwrap();
    let all = load(FactsQuery::default());
    assert_eq!(all.len(), 2, "the person's own session is not one of them");
    let recent = load(FactsQuery { since: Some(since), ..FactsQuery::default() });
    assert_eq!(recent, [all[1].clone()]);
    let one = load(FactsQuery { session: all[0].session, ..FactsQuery::default() });
    assert_eq!(one, [all[0].clone()]);
    let other = stepback_model::ids::WorkspaceId::from_bytes([9; 16]);
    assert!(load(FactsQuery { workspace: Some(other), ..FactsQuery::default() }).is_empty());
    // What changed since the index is in it afterwards, whether it was asked for or not.
    recording.seconds -= 2000;
    recording.prompt("older");
    recording.prompt("old");
    recording.seconds += 5000;
    recording.prompt("new");
    let recent = load(FactsQuery { since: Some(since), ..FactsQuery::default() });
    assert_eq!(recent.iter().map(|facts| facts.steps.len()).collect::<Vec<_>>(), [2]);
    let all = load(FactsQuery::default());
    assert_eq!(all.iter().map(|facts| facts.steps.len()).collect::<Vec<_>>(), [1, 2, 2]);
    // Asked for by time first, nothing is missing later.
    for file in recording.kept_files() {
        fs::remove_file(file).unwrap();
    }
    load(FactsQuery { since: Some(since), ..FactsQuery::default() });
    assert_eq!(load(FactsQuery::default()), all);
}
