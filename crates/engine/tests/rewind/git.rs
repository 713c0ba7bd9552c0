//! What people and agents do with git, done with the real git, and taken back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use stepback_engine::EngineError;
use stepback_engine::rewind::RewindRequest;
use stepback_testkit::tree;

use crate::support::{TestWorkspace, Words, nothing_left_alone};

/// A repository, driven by the real git.
pub struct Git(PathBuf);

impl Git {
    pub fn init(at: &Path) -> Self {
        fs::create_dir_all(at).unwrap();
        let git = Self(at.to_path_buf());
        git.run(&["init", "-q", "-b", "main"]);
        git
    }

    pub fn try_run(&self, arguments: &[&str]) -> (bool, String) {
        let output = Command::new("git")
            .args(["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"])
            .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"])
            .args(arguments)
            .current_dir(&self.0)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CEILING_DIRECTORIES", self.0.parent().unwrap())
            .env_remove("GIT_DIR")
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> String {
        let (worked, said) = self.try_run(arguments);
        assert!(worked, "git {arguments:?}: {said}");
        said
    }

    pub fn commit(&self, message: &str) {
        self.run(&["add", "-A"]);
        self.run(&["commit", "-q", "--allow-empty", "-m", message]);
    }

    /// Everything a person would look at.
    #[track_caller]
    pub fn picture(&self) -> String {
        let mut picture = String::new();
        for look in [
            &["fsck", "--full", "--strict"][..],
            &["status", "--porcelain=v2", "--branch"],
            &["log", "--all", "--format=%H %D %s"],
            &["stash", "list"],
            &["reflog", "--all"],
            &["ls-files", "--stage"],
            &["diff"],
            &["diff", "--cached"],
            &["for-each-ref"],
        ] {
            let said = self.run(look);
            // Objects nothing names any more are no damage.
            let lines =
                said.lines().filter(|line| !line.starts_with("dangling") && !line.starts_with("unreachable"));
            picture += &format!("$ git {look:?}\n{}\n", lines.collect::<Vec<_>>().join("\n"));
        }
        picture
    }
}

/// A repository with two commits, a branch, a stash, something staged and something not.
fn lively(place: &TestWorkspace) -> Git {
    let git = Git::init(&place.root);
    place.write(".gitignore", ".env\n");
    place.write("a", "1\n");
    place.write("dir/b", "1\n");
    git.commit("one");
    git.run(&["branch", "topic"]);
    place.write("a", "2\n");
    git.commit("two");
    place.write("a", "stashed\n");
    git.run(&["stash", "-q"]);
    place.write("a", "3\n");
    git.run(&["add", "a"]);
    place.write("dir/b", "not staged\n");
    place.write("untracked", "u\n");
    place.write(".env", "TOKEN=1\n");
    git
}

/// Wrecks a lively repository by `wreck`, and brings it back with one rewind, and again by undo and redo.
fn wrecked_and_back(place: &TestWorkspace, wreck: impl FnOnce(&Git)) {
    let engine = place.engine();
    let git = lively(place);
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    let (files, picture) = (outside_git(place), git.picture());
    wreck(&git);
    let wrecked = outside_git(place);
    assert!(wrecked != files || git.try_run(&["log", "--all", "--format=%H %D"]).1 != picture);
    nothing_left_alone(&workspace.rewind_with_git(&start));
    assert_eq!(tree::differences(&files, &outside_git(place)), "");
    assert_eq!(git.picture(), picture);
    nothing_left_alone(&workspace.undo());
    assert_eq!(tree::differences(&wrecked, &outside_git(place)), "");
    nothing_left_alone(&workspace.redo());
    assert_eq!(tree::differences(&files, &outside_git(place)), "");
    assert_eq!(git.picture(), picture);
    assert_eq!(engine.verify_objects().unwrap().problems, [] as [&str; 0]);
}

fn outside_git(place: &TestWorkspace) -> tree::Copy {
    tree::copy_of(&place.root, |path| path == b".git" || path.ends_with(b"/.git"))
}

#[test]
fn a_hard_reset_is_undone_with_files_index_and_branch() {
    wrecked_and_back(&TestWorkspace::new(), |git| drop(git.run(&["reset", "-q", "--hard", "HEAD~1"])));
}

#[test]
fn a_checkout_of_everything_is_undone() {
    wrecked_and_back(&TestWorkspace::new(), |git| drop(git.run(&["checkout", "-q", "--", "."])));
}

#[test]
fn a_stash_is_undone() {
    wrecked_and_back(&TestWorkspace::new(), |git| drop(git.run(&["stash", "-q", "-u"])));
}

#[test]
fn a_dropped_stash_and_a_deleted_branch_come_back() {
    wrecked_and_back(&TestWorkspace::new(), |git| {
        git.run(&["stash", "drop", "-q"]);
        git.run(&["branch", "-D", "topic"]);
    });
}

#[test]
fn a_commit_is_undone() {
    wrecked_and_back(&TestWorkspace::new(), |git| git.commit("three"));
}

#[test]
fn switching_branches_is_undone() {
    wrecked_and_back(&TestWorkspace::new(), |git| {
        git.run(&["checkout", "-q", "-f", "topic"]);
        git.commit("on topic");
    });
}

#[test]
fn garbage_collection_that_eats_what_was_lost_is_undone() {
    wrecked_and_back(&TestWorkspace::new(), |git| {
        git.run(&["reset", "-q", "--hard", "HEAD~1"]);
        git.run(&["stash", "clear"]);
        git.run(&["reflog", "expire", "--expire=now", "--all"]);
        git.run(&["gc", "-q", "--prune=now"]);
    });
}

#[test]
fn a_repository_in_packs_with_packed_refs_is_undone_too() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let git = lively(&place);
    git.run(&["gc", "-q"]);
    git.run(&["pack-refs", "--all"]);
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    let (files, picture) = (outside_git(&place), git.picture());
    git.run(&["reset", "-q", "--hard", "topic"]);
    git.commit("loose");
    git.run(&["gc", "-q", "--prune=now"]);
    nothing_left_alone(&workspace.rewind_with_git(&start));
    assert_eq!(tree::differences(&files, &outside_git(&place)), "");
    assert_eq!(git.picture(), picture);
}

#[test]
fn a_merge_in_progress_is_brought_back() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let git = Git::init(&place.root);
    place.write("a", "1\n");
    git.commit("one");
    git.run(&["checkout", "-q", "-b", "topic"]);
    place.write("a", "topic\n");
    git.commit("topic");
    git.run(&["checkout", "-q", "main"]);
    place.write("a", "main\n");
    git.commit("main");
    assert!(!git.try_run(&["merge", "topic"]).0, "the merge should conflict");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let merging = workspace.checkpoint("merging");
    let (files, picture) = (outside_git(&place), git.picture());
    git.run(&["merge", "--abort"]);
    nothing_left_alone(&workspace.rewind_with_git(&merging));
    assert_eq!(tree::differences(&files, &outside_git(&place)), "");
    assert_eq!(git.picture(), picture);
    git.run(&["merge", "--abort"]);
    assert_eq!(place.read("a"), "main\n");
}

fn remove_everything(root: &Path) {
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
}

#[test]
fn rm_rf_of_everything_including_git_is_undone_by_one_rewind() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let git = lively(&place);
    git.run(&["gc", "-q"]);
    place.write("loose", "not in a pack\n");
    git.commit("three");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    let (copy, picture) = (place.copy(), git.picture());
    remove_everything(&place.root);
    nothing_left_alone(&workspace.rewind_with_git(&start));
    assert_eq!(git.picture(), picture);
    // git itself rewrites its index when asked for the status; everything else is as it was.
    let without_index = |copy: tree::Copy| -> tree::Copy {
        copy.into_iter().filter(|(path, _)| path != b".git/index").collect()
    };
    let differences = tree::differences(&without_index(copy), &without_index(place.copy()));
    assert_eq!(differences, "");
    workspace.undo();
    assert!(!place.has("a") && !place.has(".env") && !place.has(".git"), "undone means gone again");
    nothing_left_alone(&workspace.redo());
    assert_eq!(git.picture(), picture);
    assert_eq!(engine.verify_objects().unwrap().problems, [] as [&str; 0]);
}

#[test]
fn a_repository_that_came_later_stays_usable_when_rewinding_to_before_it() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("a", "1\n");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    let git = Git::init(&place.root);
    place.write("a", "2\n");
    git.commit("one");
    workspace.rewind_with_git(&start);
    assert_eq!(place.read("a"), "1\n");
    let whole = git.try_run(&["fsck"]).0 && git.run(&["log", "--format=%s"]) == "one\n";
    assert!(whole || !place.has(".git"), "half a repository is left: {:?}", git.try_run(&["log"]));
}

#[test]
fn without_git_the_git_directory_is_not_touched_and_a_moved_head_is_reported() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let git = lively(&place);
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    let files = outside_git(&place);
    git.commit("three");
    place.write("a", "after\n");
    let before = tree::copy_of(&place.path(".git"), |_| false);
    let request = RewindRequest { target: Some(start), ..RewindRequest::default() };
    let prepared = workspace.prepare_rewind(&request).unwrap();
    assert!(prepared.warnings.iter().any(|warning| warning.contains("HEAD")), "{:?}", prepared.warnings);
    nothing_left_alone(&workspace.apply_rewind(prepared).unwrap());
    assert_eq!(tree::differences(&files, &outside_git(&place)), "");
    assert_eq!(tree::differences(&before, &tree::copy_of(&place.path(".git"), |_| false)), "");
    workspace.undo();
    assert_eq!(tree::differences(&before, &tree::copy_of(&place.path(".git"), |_| false)), "");
}

#[test]
fn a_rewind_with_git_waits_for_git_and_changes_nothing_meanwhile() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let git = lively(&place);
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    git.commit("three");
    fs::write(place.path(".git/index.lock"), "").unwrap();
    let before = place.copy();
    let request = RewindRequest { target: Some(start.clone()), git: true, ..RewindRequest::default() };
    let refused = workspace.apply_rewind(workspace.prepare_rewind(&request).unwrap());
    assert!(matches!(refused, Err(EngineError::GitBusy { .. })), "{refused:?}");
    place.expect(&before);
    fs::remove_file(place.path(".git/index.lock")).unwrap();
    nothing_left_alone(&workspace.rewind_with_git(&start));
    let locks = place.copy().keys().filter(|path| path.ends_with(b".lock")).count();
    assert_eq!(locks, 0, "no lock of ours stays behind");
    git.run(&["status"]);
}

#[test]
fn nested_repositories_are_protected_like_the_outer_one() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let outer = lively(&place);
    let inner = Git::init(&place.path("vendor/lib"));
    place.write("vendor/lib/x", "1\n");
    inner.commit("inner one");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    let (files, pictures) = (outside_git(&place), [outer.picture(), inner.picture()]);
    place.write("vendor/lib/x", "2\n");
    inner.commit("inner two");
    fs::remove_dir_all(place.path("vendor")).unwrap();
    nothing_left_alone(&workspace.rewind_with_git(&start));
    assert_eq!(tree::differences(&files, &outside_git(&place)), "");
    assert_eq!([outer.picture(), inner.picture()], pictures);
    nothing_left_alone(&workspace.undo());
    nothing_left_alone(&workspace.redo());
    assert_eq!([outer.picture(), inner.picture()], pictures);
}

#[test]
fn a_submodule_with_its_git_file_comes_back_and_goes_again() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let outer = Git::init(&place.root);
    let upstream = place.outside().join("upstream");
    let library = Git::init(&upstream);
    fs::write(upstream.join("x"), "1\n").unwrap();
    library.commit("library");
    let url = upstream.to_str().unwrap();
    outer.run(&["-c", "protocol.file.allow=always", "submodule", "add", "-q", url, "sub"]);
    outer.commit("with a submodule");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    let files = || tree::copy_of(&place.root, |path| path == b".git");
    let (copy, picture) = (files(), outer.picture());
    fs::remove_dir_all(place.path("sub")).unwrap();
    // The submodule's `.git` is a plain file, so no --git is needed for it.
    nothing_left_alone(&workspace.rewind(&start));
    assert_eq!(tree::differences(&copy, &files()), "");
    assert_eq!(outer.picture(), picture);
    nothing_left_alone(&workspace.undo());
    assert!(!place.has("sub"), "undone means gone again");
    nothing_left_alone(&workspace.redo());
    assert_eq!(tree::differences(&copy, &files()), "");
    let inside = Git(place.path("sub"));
    assert!(inside.run(&["status", "--porcelain"]).is_empty());
}

#[test]
fn a_store_in_memory_protects_files_and_git_too() {
    wrecked_and_back(&TestWorkspace::in_memory(), |git| drop(git.run(&["reset", "-q", "--hard", "HEAD~1"])));
    wrecked_and_back(&TestWorkspace::in_memory(), |git| {
        fs::remove_dir_all(git.0.join(".git/refs")).unwrap();
        fs::remove_file(git.0.join("a")).unwrap();
    });
}
