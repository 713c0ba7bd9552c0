//! Calls that overlap, that are reported twice, and that never end.

use serde_json::json;
use stepback_engine::Workspace;
use stepback_engine::authorship::Attribution;
use stepback_engine::recorder::{
    CallFacts, CallStatus, ChangeScope, FinishedCalls, ReportedEvent, ScanPolicy,
};
use stepback_model::conversation;
use stepback_model::event::AgentEvent;
use stepback_model::ids::StepId;
use stepback_model::record::{Session, StepKind};

use crate::session::{TestWorkspace, TranscriptFile, event, record, record_reading, report};

/// The sessions that may have changed a path last.
fn authors(workspace: &Workspace, path: &str) -> Vec<String> {
    let changes = workspace.numbered_changes(None).unwrap();
    let change = changes.iter().rev().find(|numbered| numbered.change.path.as_bytes() == path.as_bytes());
    let authors = match &change.unwrap().who {
        Attribution::Unreported => Vec::new(),
        Attribution::Call(author) => vec![author.clone()],
        Attribution::OneOf(authors) => authors.clone(),
    };
    let name = |author: &stepback_engine::authorship::Author| {
        let session: Session = workspace.store().session(author.session).unwrap().unwrap();
        session.info.external.unwrap()
    };
    let mut names: Vec<String> = authors.iter().map(name).collect();
    names.sort();
    names
}

fn start(session: &str, call: &str, at: i64) -> ReportedEvent {
    report(event(session, StepKind::ToolStart, call), ScanPolicy::Before, at)
}

fn end(session: &str, call: &str, at: i64) -> ReportedEvent {
    report(event(session, StepKind::ToolEnd, call), ScanPolicy::After, at)
}

#[test]
fn an_event_reported_again_changes_nothing() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let first = record(&workspace, &start("s", "c1", 0));
    place.write("file", "x");
    let again = record(&workspace, &start("s", "c1", 1));
    assert_eq!((again.id, again.number, again.is_checkpoint), (first.id, first.number, false));
    assert_eq!(workspace.newest_step_number().unwrap(), 1);
    record(&workspace, &end("s", "c1", 2));
    record(&workspace, &end("s", "c1", 3));
    assert_eq!(workspace.newest_step_number().unwrap(), 2);
    assert_eq!(authors(&workspace, "file"), ["s"]);
}

/// What a file held at a step.
fn content_at(workspace: &Workspace, step: StepId, path: &str) -> Option<String> {
    let stored = workspace.store().step(step).unwrap().unwrap();
    let path = stepback_model::path::RelPath::parse(path.as_bytes()).unwrap();
    let state = workspace.load_state(&stored).unwrap();
    let (_, bytes) = workspace.read_path(&state, &path).unwrap()?;
    Some(String::from_utf8(bytes).unwrap())
}

/// Every change, oldest first: its path and the sessions that may have made it, with a question mark if the person may have.
fn history(workspace: &Workspace) -> Vec<String> {
    let describe = |numbered: &stepback_engine::changes::NumberedChange| {
        let who = match &numbered.who {
            Attribution::Unreported => "the person".to_owned(),
            Attribution::Call(author) => author.tool.clone().unwrap(),
            Attribution::OneOf(authors) => format!("{}?", authors[0].tool.clone().unwrap()),
        };
        format!("{}: {who}", numbered.change.path)
    };
    workspace.numbered_changes(None).unwrap().iter().map(describe).collect()
}

/// A call of an editing tool that names its only path.
fn edit(session: &str, kind: StepKind, call: &str, path: &str, at: i64) -> ReportedEvent {
    let effect = if kind == StepKind::ToolStart { ScanPolicy::Before } else { ScanPolicy::After };
    let event = AgentEvent { tool: Some("Write".into()), ..event(session, kind, call) };
    let call = CallFacts { paths: vec![path.into()], scope: ChangeScope::NamedPaths, ..CallFacts::default() };
    ReportedEvent { call, ..report(event, effect, at) }
}

/// Three edits after a call that never ends, with an edit of the person before each; the history of it all.
fn edits_after_a_refused_call(one_by_one: bool) -> Vec<String> {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    place.write("v", "0");
    record(&workspace, &start("s", "refused", 0));
    let mut ends = Vec::new();
    for (at, text) in ["1", "2", "3"].into_iter().enumerate() {
        let at = at as i64;
        place.write("mine", text);
        let before = {
            let mut start = edit("s", StepKind::ToolStart, text, "v", at);
            if one_by_one {
                start.update.finished_calls = FinishedCalls::OfWorker;
            }
            record(&workspace, &start)
        };
        assert_eq!(content_at(&workspace, before.id, "mine").as_deref(), Some(text), "scanned before");
        place.write("v", text);
        ends.push(record(&workspace, &edit("s", StepKind::ToolEnd, text, "v", at)));
    }
    for (end, text) in ends.iter().zip(["1", "2", "3"]) {
        assert_eq!(content_at(&workspace, end.id, "v").as_deref(), Some(text), "scanned after");
    }
    history(&workspace)
}

#[test]
fn every_call_is_scanned_although_another_one_never_ends() {
    // What the person wrote while the refused call was taken for running may have been that call. An agent that may run calls
    // in parallel is known to have begun another batch when a call starts after one has ended.
    assert_eq!(
        edits_after_a_refused_call(false),
        ["mine: Tool?", "v: Write", "mine: Tool?", "v: Write", "mine: the person", "v: Write"]
    );
    assert_eq!(
        edits_after_a_refused_call(true),
        ["mine: Tool?", "v: Write", "mine: the person", "v: Write", "mine: the person", "v: Write"]
    );
}

#[test]
fn the_end_of_a_parallel_call_is_scanned_while_another_one_runs() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    record(&workspace, &start("s", "a", 0));
    record(&workspace, &start("s", "b", 0));
    place.write("first", "a");
    let a = record(&workspace, &end("s", "a", 1));
    place.write("second", "b");
    let b = record(&workspace, &end("s", "b", 2));
    assert_eq!(content_at(&workspace, a.id, "first").as_deref(), Some("a"));
    assert_eq!(content_at(&workspace, a.id, "second"), None);
    assert_eq!(content_at(&workspace, b.id, "second").as_deref(), Some("b"));
    assert_eq!(history(&workspace), ["first: Tool", "second: Tool"]);
    place.write("mine", "x");
    record(&workspace, &start("s", "c", 3));
    assert_eq!(authors(&workspace, "mine"), [""; 0]);
}

#[test]
fn a_call_that_was_taken_for_abandoned_counts_when_its_end_arrives() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let began = record(&workspace, &start("s", "slow", 0));
    place.write("early", "x");
    record(&workspace, &report(event("s", StepKind::UserInput, "p"), ScanPolicy::None, 1));
    record(&workspace, &start("s", "other", 2));
    assert_eq!(history(&workspace), ["early: Tool?"]);
    record(&workspace, &end("s", "other", 3));
    place.write("late", "x");
    let ended = record(&workspace, &end("s", "slow", 4));
    assert_eq!(history(&workspace), ["early: Tool", "late: Tool"]);
    let stored = workspace.store().step(ended.id).unwrap().unwrap();
    let detail = workspace.load_detail(&stored.step).unwrap().unwrap();
    assert_eq!(detail["start"], json!(began.id), "the end is paired with its start");
}

#[test]
fn a_call_whose_start_was_missed_is_an_author_of_what_it_named() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    record(&workspace, &start("s", "first", 0));
    record(&workspace, &end("s", "first", 0));
    place.write("v", "1");
    place.write("mine", "1");
    record(&workspace, &edit("s", StepKind::ToolEnd, "missed", "v", 1));
    assert_eq!(history(&workspace), ["mine: the person", "v: Write"]);
    // Its start arrives late, and does not open a call that is over already.
    record(&workspace, &edit("s", StepKind::ToolStart, "missed", "v", 1));
    place.write("mine", "2");
    record(&workspace, &start("s", "next", 2));
    assert_eq!(authors(&workspace, "mine"), [""; 0]);
}

#[test]
fn a_model_turn_ends_the_calls_of_its_own_worker_only() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let of = |worker: &str, report: ReportedEvent| {
        let event = AgentEvent { worker: Some(worker.into()), ..report.event.clone() };
        ReportedEvent { event, ..report }
    };
    record(&workspace, &of("helper", start("s", "running", 0)));
    record(&workspace, &start("s", "refused", 1));
    record(&workspace, &report(event("s", StepKind::ModelStart, "m"), ScanPolicy::None, 2));
    let open = workspace.agent_sessions().unwrap()[0].info.open.clone();
    let running: Vec<&str> = open.iter().filter(|open| !open.ended).map(|open| open.call.as_str()).collect();
    assert_eq!(running, ["running"]);
}

#[test]
fn a_call_is_kept_until_the_next_scan() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    record(&workspace, &start("s", "c1", 0));
    place.write("file", "x");
    // Its end came late, through the inbox, when the moment to look was over.
    record(&workspace, &report(event("s", StepKind::ToolEnd, "c1"), ScanPolicy::None, 1));
    record(&workspace, &start("s", "c2", 2));
    assert_eq!(authors(&workspace, "file"), ["s"]);
    // What comes after that look is not its doing any more.
    record(&workspace, &end("s", "c2", 3));
    place.write("mine", "x");
    record(&workspace, &start("s", "c3", 4));
    assert!(authors(&workspace, "mine").is_empty());
}

#[test]
fn a_call_that_was_refused_has_done_nothing() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    record(&workspace, &start("s", "c1", 0));
    let call = CallFacts { status: CallStatus::NeverRan, ..CallFacts::default() };
    record(
        &workspace,
        &ReportedEvent { call, ..report(event("s", StepKind::ToolEnd, "c1"), ScanPolicy::None, 1) },
    );
    place.write("mine", "x");
    record(&workspace, &start("s", "c2", 2));
    assert!(authors(&workspace, "mine").is_empty());
}

#[test]
fn a_call_that_was_cut_short_is_one_of_two_possibilities() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let paths = vec!["named".to_string()];
    let call = CallFacts { paths, ..CallFacts::default() };
    record(&workspace, &ReportedEvent { call, ..start("s", "c1", 0) });
    place.write("named", "x");
    record(&workspace, &report(event("s", StepKind::UserInput, "p2"), ScanPolicy::None, 1));
    record(&workspace, &start("s", "c2", 2));
    let changes = workspace.numbered_changes(None).unwrap();
    assert!(
        matches!(&changes[0].who, Attribution::OneOf(authors) if authors.len() == 1),
        "{:?}",
        changes[0].who
    );
    // A day later it no longer counts as open.
    record(&workspace, &start("s", "c3", 10));
    record(&workspace, &report(event("s", StepKind::UserInput, "p3"), ScanPolicy::None, 11));
    place.write("later", "x");
    record(&workspace, &start("s", "c4", 86_400));
    assert!(authors(&workspace, "later").is_empty());
}

#[test]
fn two_sessions_and_the_paths_they_name() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let naming = |session: &str, paths: &[&str]| {
        let paths = paths.iter().map(|path| path.to_string()).collect();
        let call = CallFacts { paths, ..CallFacts::default() };
        record(&workspace, &ReportedEvent { call, ..start(session, "c", 0) });
    };
    naming("one", &["mine", "ours"]);
    naming("two", &["yours", "ours"]);
    for path in ["mine", "yours", "ours", "other"] {
        place.write(path, "x");
    }
    record(&workspace, &end("one", "c", 1));
    record(&workspace, &end("two", "c", 2));
    assert_eq!(authors(&workspace, "mine"), ["one"]);
    assert_eq!(authors(&workspace, "yours"), ["two"]);
    assert_eq!(authors(&workspace, "ours"), ["one", "two"]);
    assert_eq!(authors(&workspace, "other"), ["one", "two"]);
}

#[test]
fn a_call_begins_before_the_turn_that_asked_for_it() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let said = |recorded: &stepback_engine::recorder::RecordedStep| {
        let stored = workspace.store().step(recorded.id).unwrap().unwrap();
        let state = workspace.load_state(&stored).unwrap();
        conversation::texts(workspace.store(), state.conversation).unwrap().len()
    };
    let transcript = TranscriptFile::new(&place);
    transcript.say(&json!({ "said": "hello" }));
    transcript.say(&json!({ "turn": "t1", "calls": ["c1", "c2"] }));
    let record = |report| record_reading(&workspace, &transcript, report);
    let first = record(start("s", "c1", 0));
    let second = record(start("s", "c2", 0));
    assert_eq!((said(&first), said(&second)), (1, 1));
    assert_eq!((first.iteration, second.iteration), (1, 1), "one turn");
    let ended = record(end("s", "c1", 1));
    assert_eq!(said(&ended), 2);
    transcript.say(&json!({ "turn": "t2", "calls": ["c3"] }));
    let third = record(start("s", "c3", 2));
    assert_eq!((third.iteration, said(&third)), (2, 2));
    // Another file in its place: what was said before is not said any more, and stays known at the steps it was said at.
    std::fs::write(transcript.path(), "{\"said\": \"new\"}\n").unwrap();
    let fourth = record(end("s", "c3", 3));
    assert_eq!((said(&fourth), said(&third)), (1, 2));
}
