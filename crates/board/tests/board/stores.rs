//! The same hunt for a bug in every kind of store: whatever can be asked about the board is answered alike.

use serde_json::{Value, json};
use stepback_engine::Workspace;
use stepback_engine::board::{BoardEditor, BoardMoment};
use stepback_engine::recorder::ScanPolicy;
use stepback_engine::rewind::RewindRequest;
use stepback_engine::undo::UndoDirection;
use stepback_model::record::{Session, StepKind, Trigger};
use stepback_model::time::Timestamp;
use stepback_reasoning::BoardMutation;
use stepback_reasoning::ids::{HypothesisId, VerificationId};

use crate::place::BoardWorkspace;

/// What was answered, in the order it was asked.
type Answers = Vec<(String, Value)>;

/// Says something, a minute after what was said before.
#[track_caller]
fn say(place: &BoardWorkspace, editor: &mut BoardEditor<'_>, mutation: Value) -> u64 {
    place.wait(60);
    let mutation: BoardMutation = serde_json::from_value(mutation).unwrap();
    editor.apply(&mutation).unwrap().step
}

/// A board as a document, without the time that checks took.
fn board(workspace: &Workspace, session: &Session, moment: &BoardMoment) -> Value {
    let seen = workspace.board_at(session, moment).unwrap();
    let mut document = seen.board.document();
    for run in document["runs"].as_array_mut().into_iter().flatten() {
        run["took_ms"] = json!(0);
    }
    json!({ "at": seen.step.map(|stored| stored.step.number), "board": document })
}

/// Suspicions, what speaks for them, what rests on what, what is not known, and a check that runs.
fn suspect(place: &BoardWorkspace, workspace: &Workspace, editor: &mut BoardEditor<'_>) {
    let said = [
        json!({ "do": "propose-hypothesis", "statement": "it is the cache", "tags": ["perf"] }),
        json!({ "do": "propose-hypothesis", "statement": "it is the old cache", "prior": 0.3, "parent": "H1" }),
        json!({ "do": "propose-hypothesis", "statement": "it is the clock ⏰", "excludes": ["H1"] }),
        json!({ "do": "set-hypothesis", "hypothesis": "H1", "status": "testing" }),
        json!({ "do": "add-evidence", "hypothesis": "H1", "strength": 0.6, "text": "a stale entry",
            "source": { "code": { "file": "cache.txt", "line": 1 } } }),
        json!({ "do": "add-evidence", "hypothesis": "H3", "strength": -0.4, "text": "it is right",
            "source": { "documentation": "ntp" } }),
        json!({ "do": "add-belief", "statement": "5 to 20 ms", "kind": "expectation", "confidence": 0.9,
            "subject": "ms", "value": { "range": [5.0, 20.0] } }),
        json!({ "do": "add-belief", "statement": "120 ms", "kind": "observation", "confidence": 0.95,
            "subject": "ms", "value": { "number": 120.0 } }),
        json!({ "do": "add-belief", "statement": "the cache is read", "kind": "inference", "confidence": 0.8 }),
        json!({ "do": "depend", "belief": "B3", "on": "B2", "kind": "derived-from", "strength": 0.7 }),
        json!({ "do": "settle-contradiction", "contradiction": "C1", "status": "resolved",
            "resolution": "a cold start" }),
        json!({ "do": "add-gap", "question": "which version?", "kind": "fact", "criticality": "high",
            "blocks": ["H1"] }),
        json!({ "do": "add-gap", "question": "since when?", "kind": "cause", "criticality": "low",
            "after": ["G1"] }),
        json!({ "do": "fill-gap", "gap": "G1", "answer": "2.4.1" }),
        json!({ "do": "add-note", "text": "staging is a copy", "about": ["H1", "B2"] }),
        json!({ "do": "add-verification", "title": "the cache is on", "timeout_ms": 5000,
            "check": { "file-text": { "path": "cache.txt", "text": "on", "absent": false } },
            "on_pass": [{ "evidence": { "hypothesis": "H1", "strength": 0.3 } }] }),
    ];
    for mutation in said {
        say(place, editor, mutation);
    }
    let cycle = json!({ "do": "depend", "belief": "B2", "on": "B3", "kind": "requires", "strength": 0.5 });
    let cycle: BoardMutation = serde_json::from_value(cycle).unwrap();
    assert!(editor.apply(&cycle).is_err(), "a circle is refused, and leaves nothing");
    place.wait(60);
    stepback_board::run_check(editor, VerificationId(1), false).unwrap();
    place.report(workspace, StepKind::ToolStart, Some("c1"), ScanPolicy::Before);
    place.write("cache.txt", "on, but small");
    place.report(workspace, StepKind::ToolEnd, Some("c1"), ScanPolicy::After);
}

/// Does everything once and asks everything.
fn hunt(place: &BoardWorkspace) -> Answers {
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    place.write("cache.txt", "on");
    let session = place.session(&workspace);
    workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap();
    let mut answers = Answers::new();
    let mut editor = BoardEditor::new(&workspace, &session);
    suspect(place, &workspace, &mut editor);
    let before = workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap().stored;

    // An experiment, and what both sides found out.
    place.wait(60);
    let begun = stepback_board::start_experiment(
        &mut editor,
        "no-cache",
        Some(HypothesisId(1)),
        "ten fast runs",
        None,
    )
    .unwrap();
    answers.push(("began".into(), json!(begun.edit)));
    place.write("cache.txt", "off");
    let found = [
        json!({ "do": "add-evidence", "hypothesis": "H1", "strength": 0.9, "text": "fast",
            "source": { "documentation": "ten runs" } }),
        json!({ "do": "revise-belief", "belief": "B3", "confidence": 0.99 }),
        json!({ "do": "end-experiment", "experiment": "X1", "status": "succeeded", "result": "fast" }),
        json!({ "do": "set-hypothesis", "hypothesis": "H1", "status": "confirmed" }),
    ];
    for mutation in found {
        say(place, &mut editor, mutation);
    }
    let prepared = workspace.prepare_switch("main").unwrap();
    answers.push(("back on main".into(), json!(editor.switch("main", prepared).unwrap().board)));
    assert_eq!(place.read("cache.txt"), "on, but small");
    say(place, &mut editor, json!({ "do": "revise-belief", "belief": "B3", "confidence": 0.1 }));
    let there = BoardMoment::Branch("no-cache".into());
    answers.push(("board on the branch".into(), board(&workspace, &session, &there)));
    let planned = stepback_board::merge_board(&mut editor, &there, None, false, true).unwrap();
    assert_eq!((planned.step, planned.conflicts.len()), (None, 1), "both revised B3");
    answers.push(("merge, planned".into(), json!(planned)));
    answers.push((
        "merge".into(),
        json!(stepback_board::merge_board(&mut editor, &there, None, true, false).unwrap()),
    ));

    // Back, without the board and with it, and forth again.
    let target =
        || RewindRequest { target: Some(before.clone()), everything: true, ..RewindRequest::default() };
    place.write("cache.txt", "broken");
    let report = workspace.apply_rewind(workspace.prepare_rewind(&target()).unwrap()).unwrap();
    assert_eq!((place.read("cache.txt").as_str(), report.board), ("on, but small", None));
    answers.push(("files alone".into(), board(&workspace, &session, &BoardMoment::Now)));
    place.write("cache.txt", "broken again");
    let report = workspace.apply_rewind(workspace.prepare_rewind(&target()).unwrap()).unwrap();
    let moment = BoardMoment::Step(before.step.number);
    let restored = editor.restore_with_operation(&moment, report.operation.id).unwrap();
    assert!(!restored.diff.changes.is_empty());
    answers.push(("with the board".into(), json!(restored)));
    place.wait(60);
    for direction in [UndoDirection::Undo, UndoDirection::Redo, UndoDirection::Undo] {
        let reversal = match direction {
            UndoDirection::Undo => workspace.prepare_undo(None).unwrap(),
            UndoDirection::Redo => workspace.prepare_redo().unwrap(),
        };
        let report = workspace.apply_reversal(reversal, direction).unwrap().into_files().unwrap();
        answers.push((format!("{direction:?}"), json!(report.board)));
    }
    let noted = say(place, &mut editor, json!({ "do": "add-note", "text": "gone soon" }));
    answers.push(("taken back".into(), json!(editor.take_back(Some(noted), false).unwrap())));

    // Every moment, by number and by time, and the page to go on from.
    let newest = workspace.newest_step_number().unwrap();
    for number in 0..=newest {
        let moment = BoardMoment::Step(number);
        answers.push((format!("#{number}"), board(&workspace, &session, &moment)));
        if let Some(stored) = workspace.store().step_numbered(workspace.record.id, number).unwrap() {
            let at = stored.step.at.as_micros();
            for micros in [at - 1, at] {
                let moment = BoardMoment::Time(Timestamp::from_micros(micros));
                answers.push((format!("at {micros}"), board(&workspace, &session, &moment)));
            }
        }
        if number % 5 == 0 {
            let recovery =
                stepback_board::build_recovery_page(&workspace, &session, &moment, 800, place.now()).unwrap();
            answers.push((format!("recovery at #{number}"), json!(recovery)));
        }
    }
    let recovery =
        stepback_board::build_recovery_page(&workspace, &session, &BoardMoment::Now, 4000, place.now())
            .unwrap();
    assert!(recovery.page.contains("it is the cache"), "{}", recovery.page);
    answers.push(("recovery".into(), json!(recovery)));
    let history = stepback_board::confidence_history(&workspace, &session, 50).unwrap();
    answers.push(("confidence".into(), json!(format!("{history:?}"))));
    assert_eq!(engine.verify_objects().unwrap().problems, Vec::<String>::new());
    answers
}

#[test]
fn a_board_is_the_same_in_every_store() {
    let [embedded, memory, postgres] = BoardWorkspace::in_every_store();
    let expected = hunt(&embedded);
    assert!(expected.len() > 100, "{}", expected.len());
    for (store, place) in [("memory", memory), ("postgres", postgres)] {
        let answers = hunt(&place);
        for (expected, answer) in expected.iter().zip(&answers) {
            assert_eq!(expected, answer, "{store}: {}", expected.0);
        }
        assert_eq!(expected.len(), answers.len(), "{store}");
    }
}
