//! Repositories that are lost as a whole, and copies of them that are damaged: they come back, or nothing is touched.

use std::fs;

use stepback_testkit::skip::skip;
use stepback_testkit::tree;

use crate::hostile::{STORE, SYSTEM, device_of, expect_clear};
use crate::sandbox::Sandbox;

/// Wrecks a repository as thoroughly as it can be, and brings it back with one command.
fn lose_and_recover_everything(world: &Sandbox) {
    world.write("src/main.rs", "fn main() {}\n");
    world.write(".env", "SECRET=1\n");
    world.write(".gitignore", ".env\n");
    world.init_git();
    world.write("src/main.rs", "fn main() { println!(\"second\") }\n");
    world.git(&["commit", "--quiet", "--all", "-m", "second"]);
    world.git(&["gc", "--quiet"]);
    world.write("src/main.rs", "fn main() { println!(\"third\") }\n");
    world.git(&["add", "--all"]);
    world.git(&["stash", "--quiet"]);
    world.write("staged", "in the index\n");
    world.git(&["add", "staged"]);
    world.ok(["checkpoint", "create", "whole"]);
    let (files, log, status) = (world.files(), git_log(world), git_status(world));
    for name in ["src", ".env", ".gitignore", "staged", ".git"] {
        let path = world.path(name);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
    world.ok(["rewind", "whole", "--git", "--yes"]);
    world.expect_files(&files, "after rm -rf of everything");
    assert_eq!((git_log(world), git_status(world)), (log.clone(), status.clone()));
    world.git(&["fsck", "--strict"]);
    world.git(&["stash", "show", "--patch"]);
    // And a reset that throws work away.
    world.git(&["reset", "--quiet", "--hard", "HEAD~1"]);
    world.ok(["rewind", "whole", "--git", "--yes"]);
    world.expect_files(&files, "after git reset --hard");
    assert_eq!((git_log(world), git_status(world)), (log, status));
    world.expect_no_leftovers("after git reset --hard");
    world.expect_sound("after losing everything");
}

fn git_log(world: &Sandbox) -> String {
    world.git(&["log", "--all", "--oneline"])
}

fn git_status(world: &Sandbox) -> String {
    world.git(&["--no-optional-locks", "status", "--porcelain", "--branch"])
}

#[test]
fn everything_gone_including_git_comes_back() {
    lose_and_recover_everything(&Sandbox::new());
}

#[test]
fn everything_comes_back_from_a_store_on_another_file_system() {
    let (here, there) = (std::env::temp_dir(), tree::scratch_place());
    if device_of(&here) == device_of(&there) {
        return skip(&format!("{} and {} are one file system", here.display(), there.display()));
    }
    let mut world = Sandbox::at(&here);
    let other = tempfile::TempDir::with_prefix_in("stepback-test-", there).unwrap();
    world.store = other.path().join("store");
    lose_and_recover_everything(&world);
}

#[test]
fn a_damaged_copy_of_a_repository_is_not_put_in_place() {
    let world = Sandbox::new();
    world.write("file", "content\n");
    world.init_git();
    world.git(&["gc", "--quiet"]);
    world.ok(["checkpoint", "create", "one"]);
    // A name of its own for each copy: the repository has the same files by another name.
    for entry in fs::read_dir(world.store.join("vault")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    }
    fs::remove_dir_all(world.path(".git")).unwrap();
    fs::remove_file(world.path("file")).unwrap();
    let before = world.everything();
    let ran = world.run(["rewind", "one", "--git", "--yes"]);
    expect_clear(&ran, &[STORE, SYSTEM], "a damaged copy");
    world.ok(["status"]);
    let differences = tree::differences(&before, &world.everything());
    assert!(differences.is_empty(), "not put back as it was:\n{differences}");
}
