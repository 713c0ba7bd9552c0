//! Taking back an older change while later edits stay.

use std::fs;

use stepback_engine::EngineError;
use stepback_engine::changes::SelectionError;
use stepback_engine::rewind::RewindRequest;
use stepback_model::plan::How;

use crate::support::{TestWorkspace, Words, left_alone, nothing_left_alone, was_left_alone};

const TEN: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n";

#[test]
fn an_older_change_is_taken_back_and_later_edits_of_other_lines_stay() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("f", TEN);
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    workspace.checkpoint("start");
    place.write("f", &TEN.replace("2\n", "two\n"));
    workspace.checkpoint("agent");
    let change = workspace.change_of("f");
    place.write("f", &TEN.replace("2\n", "two\n").replace("9\n", "nine\n"));
    let report = workspace.take_back(&[change]);
    nothing_left_alone(&report);
    assert_eq!(report.outcomes[0].0.how, How::Merged);
    assert_eq!(place.read("f"), TEN.replace("9\n", "nine\n"));
    // And back again, byte for byte.
    nothing_left_alone(&workspace.undo());
    assert_eq!(place.read("f"), TEN.replace("2\n", "two\n").replace("9\n", "nine\n"));
    nothing_left_alone(&workspace.redo());
    assert_eq!(place.read("f"), TEN.replace("9\n", "nine\n"));
}

#[test]
fn a_change_whose_lines_were_edited_since_is_left_alone_and_named() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("f", TEN);
    place.write("g", "g");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    workspace.checkpoint("start");
    place.write("f", &TEN.replace("2\n", "two\n"));
    place.write("g", "agent");
    workspace.checkpoint("agent");
    let changes = [workspace.change_of("f"), workspace.change_of("g")];
    let mine = TEN.replace("2\n", "zwei\n");
    place.write("f", &mine);
    let report = workspace.take_back(&changes);
    was_left_alone(&report, "f");
    assert_eq!((place.read("f"), place.read("g")), (mine, "g".into()));
}

#[test]
fn a_file_deleted_since_does_not_come_back_when_an_older_edit_of_it_is_taken_back() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("f", "old");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    workspace.checkpoint("start");
    place.write("f", "agent");
    workspace.checkpoint("agent");
    let change = workspace.change_of("f");
    fs::remove_file(place.path("f")).unwrap();
    let report = workspace.take_back(&[change]);
    was_left_alone(&report, "f");
    assert!(!place.has("f"));
}

#[test]
fn a_created_file_that_was_edited_since_is_not_deleted() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    workspace.checkpoint("start");
    place.write("new", "agent");
    workspace.checkpoint("agent");
    let change = workspace.change_of("new");
    place.write("new", "agent and I");
    was_left_alone(&workspace.take_back(&[change]), "new");
    assert_eq!(place.read("new"), "agent and I");
}

#[test]
fn binary_files_changed_twice_are_not_merged() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    for (label, bytes) in [("start", &b"\0a\nb\nc\nd\ne\n"[..]), ("agent", b"\0A\nb\nc\nd\ne\n")] {
        fs::write(place.path("bin"), bytes).unwrap();
        workspace.checkpoint(label);
    }
    let change = workspace.change_of("bin");
    fs::write(place.path("bin"), b"\0A\nb\nc\nd\nE\n").unwrap();
    was_left_alone(&workspace.take_back(&[change]), "bin");
    assert_eq!(fs::read(place.path("bin")).unwrap(), b"\0A\nb\nc\nd\nE\n");
}

#[test]
fn the_last_two_changes_are_taken_back_and_nothing_else() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    workspace.checkpoint("start");
    for name in ["a", "b", "c"] {
        place.write(name, name);
        workspace.checkpoint(name);
    }
    let request = RewindRequest { last: Some(2), ..RewindRequest::default() };
    let report = workspace.apply_rewind(workspace.prepare_rewind(&request).unwrap()).unwrap();
    nothing_left_alone(&report);
    assert!(place.has("a") && !place.has("b") && !place.has("c"));
}

#[test]
fn changes_no_checkpoint_has_seen_yet_count_as_the_last_ones() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("a", "1");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    workspace.checkpoint("start");
    place.write("a", "2");
    let request = RewindRequest { last: Some(1), ..RewindRequest::default() };
    nothing_left_alone(&workspace.apply_rewind(workspace.prepare_rewind(&request).unwrap()).unwrap());
    assert_eq!(place.read("a"), "1");
}

#[test]
fn all_changes_taken_back_is_the_beginning_again() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("keep", "1");
    place.write("dir/gone", "2");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    workspace.checkpoint("start");
    let start = place.copy();
    place.write("new/deep/file", "3");
    fs::remove_dir_all(place.path("dir")).unwrap();
    workspace.checkpoint("one");
    place.write("keep", "edited");
    place.write("new/deep/other", "4");
    fs::create_dir(place.path("empty")).unwrap();
    place.chmod("keep", 0o600);
    workspace.checkpoint("two");
    place.write("dir", "a file where a directory was");
    let request = RewindRequest { all: true, ..RewindRequest::default() };
    let report = workspace.apply_rewind(workspace.prepare_rewind(&request).unwrap()).unwrap();
    nothing_left_alone(&report);
    place.expect(&start);
}

#[test]
fn a_rename_taken_back_moves_the_file_to_where_it_was() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("src/old.rs", "fn main() {}\n");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    workspace.checkpoint("start");
    fs::create_dir(place.path("lib")).unwrap();
    fs::rename(place.path("src/old.rs"), place.path("lib/new.rs")).unwrap();
    workspace.checkpoint("renamed");
    let change = workspace.change_of("lib/new.rs");
    nothing_left_alone(&workspace.take_back(&[change]));
    assert_eq!(place.read("src/old.rs"), "fn main() {}\n");
    assert!(!place.has("lib/new.rs"));
}

#[test]
fn a_rename_of_a_file_edited_since_keeps_the_edit() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("old", "text\n");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    workspace.checkpoint("start");
    fs::rename(place.path("old"), place.path("new")).unwrap();
    workspace.checkpoint("renamed");
    let change = workspace.change_of("new");
    place.write("new", "text, edited\n");
    was_left_alone(&workspace.take_back(&[change]), "new");
    assert_eq!(place.read("new"), "text, edited\n", "no byte of a later edit is lost");
}

#[test]
fn a_mode_change_is_taken_back_under_a_later_edit() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("run.sh", "echo\n");
    place.chmod("run.sh", 0o644);
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    workspace.checkpoint("start");
    place.chmod("run.sh", 0o777);
    workspace.checkpoint("chmod");
    let change = workspace.change_of("run.sh");
    place.write("run.sh", "echo edited\n");
    nothing_left_alone(&workspace.take_back(&[change]));
    assert_eq!((place.read("run.sh").as_str(), place.mode("run.sh")), ("echo edited\n", 0o644));
}

#[test]
fn undo_of_a_rewind_keeps_what_was_edited_since() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("f", TEN);
    place.write("g", "1");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    place.write("f", &TEN.replace("2\n", "two\n"));
    place.write("g", "2");
    workspace.rewind(&start);
    place.write("f", &TEN.replace("9\n", "nine\n"));
    place.write("g", "mine");
    place.write("h", "mine too");
    let report = workspace.undo();
    was_left_alone(&report, "g");
    assert_eq!(place.read("f"), TEN.replace("2\n", "two\n").replace("9\n", "nine\n"));
    assert_eq!((place.read("g").as_str(), place.read("h").as_str()), ("mine", "mine too"));
}

#[test]
fn an_unknown_change_number_is_refused_with_the_numbers_there_are() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    workspace.checkpoint("start");
    place.write("a", "1");
    workspace.checkpoint("one");
    let request = RewindRequest { changes: vec![7], ..RewindRequest::default() };
    match workspace.prepare_rewind(&request) {
        Err(EngineError::Selection(error)) => {
            assert_eq!(error, SelectionError::NoSuchChange { number: 7, listed: Some((1, 1)) });
            assert_eq!(error.to_string(), "there is no change 7: changes 1 to 1 are listed");
        }
        _ => panic!("change 7 was accepted"),
    }
    assert_eq!(place.read("a"), "1");
}

#[test]
fn a_change_limited_by_path_takes_back_only_that_path() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    workspace.checkpoint("start");
    place.write("src/a.rs", "1");
    place.write("docs/b.md", "2");
    workspace.checkpoint("one");
    let request = RewindRequest { all: true, paths: vec!["docs".into()], ..RewindRequest::default() };
    let report = workspace.apply_rewind(workspace.prepare_rewind(&request).unwrap()).unwrap();
    assert_eq!(left_alone(&report), []);
    assert!(place.has("src/a.rs") && !place.has("docs/b.md"));
}
