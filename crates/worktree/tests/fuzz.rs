//! Indexes of git that were not written by git: read, or not understood.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::fs;
use std::path::Path;
use std::process::Command;

use stepback_testkit::fuzz::{FuzzTarget, MeteredAllocator};
use stepback_testkit::tree::scratch_place;
use stepback_worktree::git_index::GitIndex;

#[global_allocator]
static ALLOCATOR: MeteredAllocator = MeteredAllocator;

/// The index that git writes for a few files, in this version of its format.
fn index_by_git(root: &Path, version: &str) -> Vec<u8> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(root).env("GIT_CONFIG_GLOBAL", "/dev/null");
        assert!(command.output().unwrap().status.success(), "git {arguments:?}");
    };
    git(&["init", "-q"]);
    for name in ["a", "somewhat/longer name", "somewhat/other", "x"] {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), name).unwrap();
    }
    git(&["update-index", "--index-version", version]);
    git(&["add", "-A"]);
    git(&["add", "-N", "."]);
    fs::read(root.join(".git/index")).unwrap()
}

#[test]
fn git_index() {
    let corpus: Vec<_> = ["2", "3", "4"]
        .map(|version| index_by_git(tempfile::tempdir_in(scratch_place()).unwrap().path(), version))
        .into();
    let dir = tempfile::tempdir_in(scratch_place()).unwrap();
    fs::create_dir(dir.path().join(".git")).unwrap();
    let file = fs::metadata(dir.path()).unwrap();
    FuzzTarget::new("git index", corpus).run(8_000, |input| {
        fs::write(dir.path().join(".git/index"), input).unwrap();
        if let Some(index) = GitIndex::read(dir.path()) {
            let _ = index.compare(b"somewhat/other", &file);
        }
    });
}
