//! Merging branches: what fits is joined, what does not is listed with its three versions.

use std::fs;

use stepback_engine::Workspace;
use stepback_engine::moves::{MoveReport, MoveRequest, PlannedMove};
use stepback_model::plan::How;
use stepback_model::tree::TreeNode;
use stepback_store::Mutation;

use crate::support::{TestWorkspace, Words};

/// `main` and `other` both changed `text`, created `added`, and one of them deleted what the other one changed.
fn diverge(place: &TestWorkspace, workspace: &Workspace) {
    place.write("text", "1\n2\n3\n4\n5\n6\n");
    place.write("gone", "base\n");
    place.write("binary", "a\0b");
    workspace.checkpoint("start");
    workspace.create_branch("other", &workspace.head().unwrap()).unwrap();
    workspace.switch("other", workspace.prepare_switch("other").unwrap()).unwrap();
    place.write("text", "1\ntwo\n3\n4\n5\nsix\n");
    place.write("gone", "theirs\n");
    place.write("binary", "a\0c");
    place.write("added", "theirs\n");
    workspace.checkpoint("there");
    workspace.switch("main", workspace.prepare_switch("main").unwrap()).unwrap();
    place.write("text", "1\nzwei\n3\n4\n5\n6\n");
    place.write("binary", "a\0d");
    place.write("added", "ours\n");
    fs::remove_file(place.path("gone")).unwrap();
    workspace.checkpoint("here");
}

fn plan(workspace: &Workspace, markers: bool) -> PlannedMove {
    workspace.plan_move(&MoveRequest::merge("other", markers)).unwrap()
}

/// Returns the paths in conflict, each with whether it is marked and which of its versions exist.
fn conflicts(planned: &PlannedMove) -> Vec<(String, bool, [bool; 3])> {
    let found = planned.files.as_ref().unwrap().conflicts.iter();
    let versions = |node: [&Option<TreeNode>; 3]| node.map(Option::is_some);
    found
        .map(|found| {
            let present = versions([&found.base, &found.ours, &found.theirs]);
            (found.path.to_string(), found.is_marked, present)
        })
        .collect()
}

#[test]
fn a_conflict_is_data_with_three_versions_and_the_file_stays() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    diverge(&place, &workspace);
    let before = place.copy();
    let planned = plan(&workspace, false);
    let mut found = conflicts(&planned);
    found.sort();
    let expected = [
        ("added".into(), false, [false, true, true]),
        ("binary".into(), false, [true, true, true]),
        ("gone".into(), false, [true, false, true]),
        ("text".into(), false, [true, true, true]),
    ];
    assert_eq!(found, expected);
    assert!(planned.is_empty(), "nothing of it fits");
    drop(planned);
    place.expect(&before);
}

#[test]
fn markers_are_written_on_request_into_text_and_taken_back() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    diverge(&place, &workspace);
    let before = place.copy();
    let planned = plan(&workspace, true);
    let marked: Vec<String> =
        conflicts(&planned).into_iter().filter(|found| found.1).map(|found| found.0).collect();
    assert_eq!(marked, ["added", "text"]);
    let files = planned.files.as_ref().unwrap();
    let binary = files.conflicts.iter().find(|found| found.path.to_string() == "binary").unwrap();
    assert_eq!(binary.reason, "both branches changed it, and it has no lines to merge");
    assert!(files.warnings[0].contains("2 files will have conflict markers"), "{:?}", files.warnings);
    assert!(files.plan.changes.iter().all(|change| change.how == How::Marked));
    let MoveReport::Files(_) = workspace.apply_move(planned).unwrap() else { panic!("files were moved") };
    let conflict = "<<<<<<< main\nzwei\n=======\ntwo\n>>>>>>> branch other\n";
    assert_eq!(place.read("text"), format!("1\n{conflict}3\n4\n5\nsix\n"), "what fits is joined");
    assert_eq!(place.read("added"), "<<<<<<< main\nours\n=======\ntheirs\n>>>>>>> branch other\n");
    assert_eq!((place.read("binary"), place.has("gone")), ("a\0d".into(), false), "these cannot be marked");
    let merged = workspace.head().unwrap();
    let detail = workspace.load_detail(&merged.step).unwrap().unwrap();
    let recorded = detail["merged"]["conflicts"].as_array().unwrap();
    assert_eq!(recorded.len(), 4, "the step of the merge keeps them: {detail}");
    workspace.undo();
    place.expect(&before);
    workspace.redo();
    assert!(place.read("text").contains(conflict));
}

#[test]
fn a_branch_without_a_common_step_is_refused() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    place.write("file", "1");
    workspace.checkpoint("start");
    let elsewhere = engine.open_workspace_root(&place.outside()).unwrap();
    let foreign = elsewhere.checkpoint("elsewhere");
    let name = format!("branch/{}/foreign", workspace.record.id);
    let set = Mutation::SetRef { name, expected: None, value: foreign.step.id };
    workspace.store().commit(None, &[set]).unwrap();
    let error = workspace.plan_move(&MoveRequest::merge("foreign", false)).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("no step in common"), "{error}");
}
