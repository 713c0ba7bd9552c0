//! Somebody else works in the same directory while a rewind is on its way.

use std::fs;
use std::os::unix::fs::symlink;

use stepback_engine::rewind::RewindRequest;
use stepback_model::plan::How;
use stepback_testkit::tree;

use crate::support::{TestWorkspace, Words, nothing_left_alone, was_left_alone};

fn whole(target: &stepback_store::port::StepRow) -> RewindRequest {
    RewindRequest { target: Some(target.clone()), ..RewindRequest::default() }
}

#[test]
fn a_file_edited_between_plan_and_apply_keeps_the_edit_and_is_listed() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    for name in ["edited", "same-size", "deleted", "created-dir/x", "plain"] {
        place.write(name, "old content");
    }
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    for name in ["edited", "same-size", "deleted", "created-dir/x", "plain"] {
        place.write(name, "agent wrote");
    }
    place.write("new", "agent");
    fs::remove_file(place.path("plain")).unwrap();
    let prepared = workspace.prepare_rewind(&whole(&start)).unwrap();
    place.write("edited", "a person's words, longer than before");
    place.write("same-size", "person here");
    fs::remove_file(place.path("deleted")).unwrap();
    place.write("new", "edited new");
    place.write("plain", "a person made it again");
    place.chmod("created-dir/x", 0o600);
    let report = workspace.apply_rewind(prepared).unwrap();
    for name in ["edited", "same-size", "deleted", "new", "plain", "created-dir/x"] {
        was_left_alone(&report, name);
    }
    assert_eq!(place.read("edited"), "a person's words, longer than before");
    assert_eq!(place.read("same-size"), "person here");
    assert_eq!(place.read("new"), "edited new");
    assert_eq!(place.read("plain"), "a person made it again");
    assert!(!place.has("deleted"));
}

#[test]
fn a_path_that_became_a_link_to_outside_is_left_alone_and_nothing_outside_is_touched() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let outside = place.outside();
    fs::write(outside.join("victim"), "precious").unwrap();
    place.write("f", "old");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    place.write("f", "precious");
    place.write("g", "precious");
    let prepared = workspace.prepare_rewind(&whole(&start)).unwrap();
    for name in ["f", "g"] {
        fs::remove_file(place.path(name)).unwrap();
        symlink(outside.join("victim"), place.path(name)).unwrap();
    }
    let before = tree::copy_of(&outside, |_| false);
    let report = workspace.apply_rewind(prepared).unwrap();
    was_left_alone(&report, "f");
    was_left_alone(&report, "g");
    assert_eq!(tree::differences(&before, &tree::copy_of(&outside, |_| false)), "");
}

#[test]
fn a_directory_that_became_a_link_to_outside_is_not_entered() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let outside = place.outside();
    place.write("dir/sub/changed", "old");
    place.write("dir/gone", "old");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    place.write("dir/sub/changed", "new");
    place.write("dir/sub/extra", "new");
    fs::remove_file(place.path("dir/gone")).unwrap();
    place.chmod("dir/sub", 0o700);
    let prepared = workspace.prepare_rewind(&whole(&start)).unwrap();
    // The same tree outside, so that every check by name and content would pass there.
    fs::rename(place.path("dir"), outside.join("dir")).unwrap();
    symlink(outside.join("dir"), place.path("dir")).unwrap();
    let before = tree::copy_of(&outside, |_| false);
    let report = workspace.apply_rewind(prepared).unwrap();
    for path in ["dir/sub/changed", "dir/gone"] {
        was_left_alone(&report, path);
    }
    assert_eq!(tree::differences(&before, &tree::copy_of(&outside, |_| false)), "");
}

#[test]
fn links_in_the_workspace_are_restored_as_links_and_never_followed() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let outside = place.outside();
    fs::write(outside.join("victim"), "precious").unwrap();
    symlink(outside.join("victim"), place.path("link")).unwrap();
    symlink(&outside, place.path("dirlink")).unwrap();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    let copy = place.copy();
    fs::remove_file(place.path("link")).unwrap();
    place.write("link", "a file now");
    fs::remove_file(place.path("dirlink")).unwrap();
    place.write("dirlink/victim", "a directory now");
    nothing_left_alone(&workspace.rewind(&start));
    place.expect(&copy);
    assert_eq!(fs::read_to_string(outside.join("victim")).unwrap(), "precious");
    nothing_left_alone(&workspace.undo());
    assert_eq!(place.read("dirlink/victim"), "a directory now");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn read_only_files_and_directories_are_restored_with_their_modes() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("ro/inner/file", "old");
    place.write("ro/other", "other");
    place.chmod("ro/inner/file", 0o444);
    place.chmod("ro/inner", 0o555);
    place.chmod("ro", 0o555);
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    let copy = place.copy();
    // Edit below read-only directories and leave them read-only.
    place.chmod("ro", 0o755);
    place.chmod("ro/inner", 0o755);
    place.chmod("ro/inner/file", 0o644);
    place.write("ro/inner/file", "new");
    place.write("ro/inner/extra", "new");
    fs::remove_file(place.path("ro/other")).unwrap();
    place.chmod("ro/inner/file", 0o400);
    place.chmod("ro/inner", 0o500);
    place.chmod("ro", 0o500);
    let changed = place.copy();
    nothing_left_alone(&workspace.rewind(&start));
    place.expect(&copy);
    nothing_left_alone(&workspace.undo());
    place.expect(&changed);
    place.chmod("ro", 0o755);
    place.chmod("ro/inner", 0o755);
}

#[test]
fn the_mode_of_a_file_does_not_leak_to_its_other_names() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("a", "same");
    place.chmod("a", 0o600);
    place.write("b", "same");
    place.chmod("b", 0o644);
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    let copy = place.copy();
    fs::remove_file(place.path("a")).unwrap();
    fs::hard_link(place.path("b"), place.path("a")).unwrap();
    nothing_left_alone(&workspace.rewind(&start));
    place.expect(&copy);
}

#[test]
fn a_plan_waits_for_a_person_while_others_make_checkpoints() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("f", "old");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    place.write("f", "new");
    let mut prepared = workspace.prepare_rewind(&whole(&start)).unwrap();
    prepared.release_lock();
    place.write("other", "came meanwhile");
    workspace.checkpoint("meanwhile");
    nothing_left_alone(&workspace.apply_rewind(prepared).unwrap());
    assert_eq!((place.read("f").as_str(), place.read("other").as_str()), ("old", "came meanwhile"));
    nothing_left_alone(&workspace.undo());
    assert_eq!((place.read("f").as_str(), place.read("other").as_str()), ("new", "came meanwhile"));
}

#[test]
fn planning_changes_nothing() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("f", "old");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    place.write("f", "new");
    let before =
        (place.copy(), workspace.operations().unwrap().len(), workspace.checkpoints().unwrap().len());
    let prepared = workspace.prepare_rewind(&whole(&start)).unwrap();
    assert_eq!(prepared.plan.changes.len(), 1);
    assert_eq!(prepared.plan.changes[0].how, How::Restored);
    drop(prepared);
    assert_eq!(
        before,
        (place.copy(), workspace.operations().unwrap().len(), workspace.checkpoints().unwrap().len())
    );
}
