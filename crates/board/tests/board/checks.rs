//! Checks that really run.

use serde_json::json;
use stepback_board::CheckReport;
use stepback_engine::board::BoardEditor;
use stepback_reasoning::BoardMutation;
use stepback_reasoning::ids::{HypothesisId, VerificationId};
use stepback_reasoning::item::{Check, CheckOutcome, Measured, OnOutcome};

use crate::place::{BoardWorkspace, apply, propose};

fn add(check: Check, inputs: &[&str]) -> BoardMutation {
    BoardMutation::AddVerification {
        title: "it is so".into(),
        check,
        timeout_ms: 20_000,
        inputs: inputs.iter().map(ToString::to_string).collect(),
        on_pass: vec![OnOutcome::Evidence { hypothesis: HypothesisId(1), strength: 0.5 }],
        on_fail: vec![OnOutcome::Evidence { hypothesis: HypothesisId(1), strength: -0.5 }],
    }
}

fn command(run: &str) -> Check {
    Check::Command { run: run.into(), exit: 0, contains: Vec::new(), lacks: Vec::new() }
}

/// Plans a check and runs it.
fn check(editor: &mut BoardEditor<'_>, check: Check) -> CheckReport {
    apply(editor, add(check, &[]));
    let id = VerificationId(editor.board().unwrap().verifications.newest());
    stepback_board::run_check(editor, id, false).unwrap()
}

#[test]
fn every_kind_of_check_passes_and_fails() {
    let place = BoardWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let session = place.session(&workspace);
    let mut editor = BoardEditor::new(&workspace, &session);
    apply(&mut editor, propose("it"));
    place.write("a", "one\ntwo\n");
    place.write("b", "one\ntwo\n");
    place.write("c", "one\n2\n");
    place.write("doc.json", "{\"rows\": [1, 2, 3]}");
    place.write("numbers", "1.0 2.0 3.1");
    place.write("reference", "1 2 3");
    let with = |contains: &[&str], lacks: &[&str]| Check::Command {
        run: "echo hello; exit 3".into(),
        exit: 3,
        contains: contains.iter().map(ToString::to_string).collect(),
        lacks: lacks.iter().map(ToString::to_string).collect(),
    };
    let same = |left: &str, right: &str| Check::SameFiles { left: left.into(), right: right.into() };
    let text = |text: &str, absent| Check::FileText { path: "a".into(), text: text.into(), absent };
    let row = |from, equals| Check::Json { from, pointer: "/rows/1".into(), equals };
    let close = |relative| Check::Reference {
        from: Measured::Command("cat numbers".into()),
        reference: "reference".into(),
        absolute: 0.0,
        relative,
    };
    let file = |name: &str| Measured::File(name.into());
    let cases = [
        (with(&["hell"], &["bye"]), CheckOutcome::Passed, "its exit code is 3"),
        (with(&["bye"], &[]), CheckOutcome::Failed, "\"bye\" is not in its output"),
        (with(&[], &["hello"]), CheckOutcome::Failed, "\"hello\" is in its output"),
        (command("exit 1"), CheckOutcome::Failed, "its exit code is 1, not 0"),
        (command("/no/such/program"), CheckOutcome::Error, "cannot be run"),
        (command("kill -9 $$"), CheckOutcome::Error, "signal 9"),
        (same("a", "b"), CheckOutcome::Passed, "the same 8 bytes"),
        (same("a", "c"), CheckOutcome::Failed, "differ from byte 4 on (line 2)"),
        (same("a", "nothing"), CheckOutcome::Error, "nothing cannot be read"),
        (text("two", false), CheckOutcome::Passed, "\"two\" is in a"),
        (text("two", true), CheckOutcome::Failed, "\"two\" is in a"),
        (row(file("doc.json"), json!(2)), CheckOutcome::Passed, "/rows/1 is 2"),
        (
            row(Measured::Command("cat doc.json".into()), json!(3)),
            CheckOutcome::Failed,
            "/rows/1 is 2, not 3",
        ),
        (row(file("a"), json!(3)), CheckOutcome::Error, "not valid JSON"),
        (close(0.05), CheckOutcome::Passed, "within the tolerance"),
        (close(0.01), CheckOutcome::Failed, "number 3 is 3.1"),
    ];
    for (plan, outcome, reason) in cases {
        let shown = format!("{plan:?}");
        let verified = check(&mut editor, plan);
        assert_eq!(verified.outcome, outcome, "{shown}: {}", verified.reason);
        assert!(verified.reason.contains(reason), "{shown}: {}", verified.reason);
    }
    for outside in ["../x", "/etc/passwd", "a/../../x"] {
        let error = editor.apply(&add(same(outside, "a"), &[])).unwrap_err().to_string();
        assert!(error.contains("is outside the workspace"), "{error}");
    }
}

#[test]
fn a_check_that_hangs_is_ended_and_says_nothing_about_the_hypothesis() {
    let place = BoardWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let session = place.session(&workspace);
    let mut editor = BoardEditor::new(&workspace, &session);
    apply(&mut editor, propose("it"));
    let BoardMutation::AddVerification { title, check, inputs, on_pass, on_fail, .. } =
        add(command("echo begun; sleep 1000"), &[])
    else {
        unreachable!()
    };
    apply(
        &mut editor,
        BoardMutation::AddVerification { title, check, timeout_ms: 200, inputs, on_pass, on_fail },
    );
    let verified = stepback_board::run_check(&mut editor, VerificationId(1), false).unwrap();
    assert_eq!(verified.outcome, CheckOutcome::TimedOut);
    let board = editor.board().unwrap();
    assert_eq!(board.runs.get(1).unwrap().output, "begun\n");
    assert!(board.evidence.is_empty());
}

#[test]
fn an_outcome_is_used_again_while_its_inputs_are_the_same() {
    let place = BoardWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let session = place.session(&workspace);
    let mut editor = BoardEditor::new(&workspace, &session);
    apply(&mut editor, propose("it"));
    place.write("input.txt", "1");
    let counting = command("echo run >> count; grep -q 1 input.txt");
    apply(&mut editor, add(counting, &["*.txt"]));
    let id = VerificationId(1);
    let count = || std::fs::read_to_string(place.root.join("count")).unwrap().lines().count();
    assert_eq!(stepback_board::run_check(&mut editor, id, false).unwrap().outcome, CheckOutcome::Passed);
    let again = stepback_board::run_check(&mut editor, id, false).unwrap();
    assert_eq!((again.outcome, again.edit), (CheckOutcome::Passed, None));
    assert_eq!(count(), 1);
    stepback_board::run_check(&mut editor, id, true).unwrap();
    assert_eq!(count(), 2, "a fresh run was asked for");
    place.write("input.txt", "2");
    assert_eq!(stepback_board::run_check(&mut editor, id, false).unwrap().outcome, CheckOutcome::Failed);
    assert_eq!(count(), 3);
    place.write("input.txt", "1");
    assert!(stepback_board::run_check(&mut editor, id, false).unwrap().cached.is_some(), "as it was before");
    assert_eq!(count(), 3);
}
