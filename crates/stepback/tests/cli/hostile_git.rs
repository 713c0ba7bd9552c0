//! Repositories that are lost as a whole, and copies of them that are damaged: they come back, or nothing is touched.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use stepback_testkit::skip::skip;
use stepback_testkit::tree;

use crate::hostile::{PARTIAL, STORE, device_of, expect_clear};
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
    world.ok(["rewind", "whole", "--files", "--git", "--yes"]);
    world.expect_files(&files, "after rm -rf of everything");
    assert_eq!((git_log(world), git_status(world)), (log.clone(), status.clone()));
    world.git(&["fsck", "--strict"]);
    world.git(&["stash", "show", "--patch"]);
    // And a reset that throws work away.
    world.git(&["reset", "--quiet", "--hard", "HEAD~1"]);
    world.ok(["rewind", "whole", "--files", "--git", "--yes"]);
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

/// A repository with a pack and a few loose objects.
fn packed_and_loose() -> Sandbox {
    let world = Sandbox::new();
    world.write("file", "content\n".repeat(500));
    world.init_git();
    world.git(&["gc", "--quiet"]);
    for number in 0..3 {
        world.write("file", format!("content {number}\n").repeat(500));
        world.git(&["commit", "--quiet", "--all", "-m", "more"]);
    }
    world
}

/// Every file below `dir`.
fn files_below(dir: PathBuf) -> Vec<PathBuf> {
    let (mut dirs, mut files) = (vec![dir], Vec::new());
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { dirs.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

fn make_writable(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
}

#[test]
fn a_damaged_copy_in_the_store_is_not_put_in_place_and_the_rest_is_restored() {
    let world = packed_and_loose();
    world.ok(["checkpoint", "create", "one"]);
    let head = world.git(&["rev-parse", "HEAD"]);
    let mut damaged = Vec::new();
    for entry in fs::read_dir(world.store.join("vault")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        damaged.push(path.file_name().unwrap().to_str().unwrap().to_string());
    }
    assert!(damaged.len() >= 2, "{damaged:?}");
    fs::remove_dir_all(world.path(".git")).unwrap();
    let ran = world.run(["rewind", "one", "--files", "--git", "--yes"]);
    expect_clear(&ran, &[PARTIAL], "a damaged copy");
    for name in &damaged {
        assert!(ran.err.contains(name.as_str()), "{name} is not named: {}", ran.err);
        assert!(!world.path(".git/objects/pack").join(name).exists(), "{name}");
    }
    assert_eq!(world.git(&["rev-parse", "HEAD"]), head);
    assert_eq!(world.git(&["show", "HEAD:file"]), "content 2\n".repeat(500));
    assert_eq!(world.run(["fsck"]).code, Some(STORE));
}

#[test]
fn chmod_before_rm_does_not_keep_git_from_coming_back() {
    let world = packed_and_loose();
    world.ok(["checkpoint", "create", "one"]);
    let everything = world.everything();
    for round in 0..2 {
        for path in files_below(world.path(".git")) {
            make_writable(&path);
        }
        fs::remove_dir_all(world.path(".git")).unwrap();
        world.ok(["rewind", "one", "--files", "--git", "--yes"]);
        let differences = tree::differences(&everything, &world.everything());
        assert!(differences.is_empty(), "round {round}:\n{differences}");
        world.git(&["fsck", "--strict"]);
    }
    // A copy of the repository elsewhere is not the original either.
    let into = world.root().join("copy");
    world.ok(["restore", "one", "--git", "--into", into.to_str().unwrap()]);
    for path in files_below(into.join(".git/objects")) {
        make_writable(&path);
        fs::write(&path, "overwritten").unwrap();
    }
    world.git(&["fsck", "--strict"]);
    world.expect_sound("after overwriting a copy");
    fs::remove_dir_all(world.path(".git")).unwrap();
    world.ok(["rewind", "one", "--files", "--git", "--yes"]);
    world.git(&["fsck", "--strict"]);
}

#[test]
fn objects_that_a_power_loss_emptied_come_back() {
    let world = packed_and_loose();
    world.ok(["checkpoint", "create", "one"]);
    for path in files_below(world.path(".git/objects")) {
        make_writable(&path);
        fs::write(&path, "").unwrap();
    }
    world.ok(["rewind", "one", "--files", "--git", "--yes"]);
    world.git(&["fsck", "--strict"]);
    world.expect_sound("after objects were emptied");
}

#[test]
fn a_rebase_in_progress_is_left_and_entered() {
    let world = packed_and_loose();
    world.git(&["checkout", "--quiet", "-b", "topic", "HEAD~1"]);
    world.write("file", "topic\n");
    world.git(&["commit", "--quiet", "--all", "-m", "topic"]);
    world.git(&["branch", "x"]);
    world.ok(["checkpoint", "create", "before"]);
    let status = world.git(&["status"]);
    let rebase = world.command_git(&["rebase", "main"]).output().unwrap();
    assert!(!rebase.status.success(), "the rebase should stop");
    world.git(&["branch", "-D", "x"]);
    world.git(&["branch", "x/y/z"]);
    world.ok(["checkpoint", "create", "during"]);
    let during = world.git(&["status"]);
    world.ok(["rewind", "before", "--files", "--git", "--yes"]);
    assert_eq!(world.git(&["status"]), status);
    assert!(!world.path(".git/rebase-merge").exists());
    assert_eq!(world.git(&["branch", "--list", "x*"]), "  x\n");
    world.git(&["commit", "--quiet", "--allow-empty", "-m", "goes on"]);
    world.ok(["rewind", "during", "--files", "--git", "--yes"]);
    assert_eq!(world.git(&["status"]), during);
    world.git(&["rebase", "--abort"]);
    world.git(&["fsck", "--strict"]);
    world.expect_no_leftovers("after a rebase");
}

#[test]
fn a_damaged_object_is_named_at_the_checkpoint_and_at_the_rewind() {
    let world = packed_and_loose();
    let objects = files_below(world.path(".git/objects"));
    let object = objects.iter().find(|path| !path.parent().unwrap().ends_with("pack")).unwrap();
    make_writable(object);
    let bytes = fs::read(object).unwrap();
    fs::write(object, &bytes[..bytes.len() / 2]).unwrap();
    let name = object.strip_prefix(&world.work).unwrap().to_str().unwrap();
    let ran = world.ok(["checkpoint", "create", "one"]);
    assert!(ran.err.contains(name) && ran.err.contains("damaged"), "{}", ran.err);
    assert!(world.ok(["status"]).err.contains(name));
    let everything = world.everything();
    fs::remove_dir_all(world.path(".git")).unwrap();
    let ran = world.ok(["rewind", "one", "--files", "--git", "--yes"]);
    assert!(ran.err.contains(name) && ran.err.contains("damaged"), "{}", ran.err);
    let differences = tree::differences(&everything, &world.everything());
    assert!(differences.is_empty(), "{differences}");
}
