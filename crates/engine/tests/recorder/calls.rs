//! Calls that overlap, that are reported twice, and that never end.

use serde_json::json;
use stepback_engine::Workspace;
use stepback_engine::authorship::Who;
use stepback_engine::recorder::{Effect, Learned, Report};
use stepback_model::conversation;
use stepback_model::record::{Session, StepKind};

use crate::session::{Place, event, record, report};

/// The sessions that may have changed a path last.
fn authors(workspace: &Workspace<'_>, path: &str) -> Vec<String> {
    let changes = workspace.numbered_changes(None).unwrap();
    let change = changes.iter().rev().find(|numbered| numbered.change.path.as_bytes() == path.as_bytes());
    let authors = match &change.unwrap().who {
        Who::Somebody => Vec::new(),
        Who::Call(author) => vec![author.clone()],
        Who::OneOf(authors) => authors.clone(),
    };
    let name = |author: &stepback_engine::authorship::Author| {
        let session: Session = workspace.store().session(author.session).unwrap().unwrap();
        session.info.external.unwrap()
    };
    let mut names: Vec<String> = authors.iter().map(name).collect();
    names.sort();
    names
}

fn start(session: &str, call: &str, at: i64) -> Report<'static> {
    report(event(session, StepKind::ToolStart, call), Effect::Before, at)
}

fn end(session: &str, call: &str, at: i64) -> Report<'static> {
    report(event(session, StepKind::ToolEnd, call), Effect::After, at)
}

#[test]
fn an_event_reported_again_changes_nothing() {
    let place = Place::in_memory();
    let engine = place.engine();
    let workspace = engine.workspace(&place.root).unwrap();
    let first = record(&workspace, &start("s", "c1", 0));
    place.write("file", "x");
    let again = record(&workspace, &start("s", "c1", 1));
    assert_eq!((again.id, again.number, again.kept), (first.id, first.number, false));
    assert_eq!(workspace.newest_number().unwrap(), 1);
    record(&workspace, &end("s", "c1", 2));
    record(&workspace, &end("s", "c1", 3));
    assert_eq!(workspace.newest_number().unwrap(), 2);
    assert_eq!(authors(&workspace, "file"), ["s"]);
}

#[test]
fn a_call_long_after_another_that_never_ended_has_its_checkpoint() {
    let place = Place::in_memory();
    let engine = place.engine();
    let workspace = engine.workspace(&place.root).unwrap();
    record(&workspace, &start("s", "stuck", 0));
    place.write("a", "a");
    assert!(!record(&workspace, &start("s", "at-once", 1)).kept, "they run at once");
    place.write("b", "b");
    assert!(record(&workspace, &start("s", "later", 60)).kept, "a look before this one");
    place.write("c", "c");
    record(&workspace, &end("s", "later", 61));
    assert!(record(&workspace, &start("s", "last", 120)).kept);
    for path in ["a", "b", "c"] {
        assert_eq!(authors(&workspace, path), ["s"], "{path}");
    }
}

#[test]
fn a_call_is_remembered_until_somebody_looks() {
    let place = Place::in_memory();
    let engine = place.engine();
    let workspace = engine.workspace(&place.root).unwrap();
    record(&workspace, &start("s", "c1", 0));
    place.write("file", "x");
    // Its end came late, through the inbox, when the moment to look was over.
    record(&workspace, &report(event("s", StepKind::ToolEnd, "c1"), Effect::None, 1));
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
    let place = Place::in_memory();
    let engine = place.engine();
    let workspace = engine.workspace(&place.root).unwrap();
    record(&workspace, &start("s", "c1", 0));
    let learned = Learned { never_ran: true, ..Learned::default() };
    record(&workspace, &Report { learned, ..report(event("s", StepKind::ToolEnd, "c1"), Effect::None, 1) });
    place.write("mine", "x");
    record(&workspace, &start("s", "c2", 2));
    assert!(authors(&workspace, "mine").is_empty());
}

#[test]
fn a_call_that_was_cut_short_is_one_of_two_possibilities() {
    let place = Place::in_memory();
    let engine = place.engine();
    let workspace = engine.workspace(&place.root).unwrap();
    let paths = vec!["named".to_string()];
    record(&workspace, &Report { paths, ..start("s", "c1", 0) });
    place.write("named", "x");
    record(&workspace, &report(event("s", StepKind::UserInput, "p2"), Effect::None, 1));
    record(&workspace, &start("s", "c2", 2));
    let changes = workspace.numbered_changes(None).unwrap();
    assert!(matches!(&changes[0].who, Who::OneOf(authors) if authors.len() == 1), "{:?}", changes[0].who);
    // A day later nobody thinks of it any more.
    record(&workspace, &start("s", "c3", 10));
    record(&workspace, &report(event("s", StepKind::UserInput, "p3"), Effect::None, 11));
    place.write("later", "x");
    record(&workspace, &start("s", "c4", 86_400));
    assert!(authors(&workspace, "later").is_empty());
}

#[test]
fn two_sessions_and_the_paths_they_name() {
    let place = Place::in_memory();
    let engine = place.engine();
    let workspace = engine.workspace(&place.root).unwrap();
    let naming = |session: &str, paths: &[&str]| {
        let paths = paths.iter().map(|path| path.to_string()).collect();
        record(&workspace, &Report { paths, ..start(session, "c", 0) });
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
    let place = Place::in_memory();
    let engine = place.engine();
    let workspace = engine.workspace(&place.root).unwrap();
    let said = |recorded: &stepback_engine::recorder::Recorded| {
        let stored = workspace.store().step(recorded.id).unwrap().unwrap();
        let state = workspace.state_of(&stored).unwrap();
        conversation::texts(workspace.store(), state.conversation).unwrap().len()
    };
    place.say(&json!({ "said": "hello" }));
    place.say(&json!({ "turn": "t1", "calls": ["c1", "c2"] }));
    let heard = |report| Report { conversation: Some(&place), ..report };
    let first = record(&workspace, &heard(start("s", "c1", 0)));
    let second = record(&workspace, &heard(start("s", "c2", 0)));
    assert_eq!((said(&first), said(&second)), (1, 1));
    assert_eq!((first.iteration, second.iteration), (1, 1), "one turn");
    let ended = record(&workspace, &heard(end("s", "c1", 1)));
    assert_eq!(said(&ended), 2);
    place.say(&json!({ "turn": "t2", "calls": ["c3"] }));
    let third = record(&workspace, &heard(start("s", "c3", 2)));
    assert_eq!((third.iteration, said(&third)), (2, 2));
    // Another file in its place: what was said before is not said any more, and stays known at the steps it was said at.
    std::fs::write(&place.transcript, "{\"said\": \"new\"}\n").unwrap();
    let fourth = record(&workspace, &heard(end("s", "c3", 3)));
    assert_eq!((said(&fourth), said(&third)), (1, 2));
}
