//! Disks that fill up, I/O that fails and processes that die, at every single point of every command that writes.
//!
//! Each round starts from the same prepared world, breaks the n-th I/O of one command, and then looks at what a user has
//! left: the next command must set everything right by itself, the workspace is what it was before or what it should have
//! become and never a mixture, and every checkpoint made earlier comes back byte for byte.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use stepback_testkit::sample::noise;
use stepback_testkit::tree::Copy;

use crate::sandbox::{Ran, Sandbox};

/// More points than any command on these small trees may have.
const MOST_POINTS: u32 = 2_000;

/// The tree that the checkpoint "one" holds.
fn lay_out(world: &Sandbox) {
    world.write("keep.txt", "the same all the time\n");
    world.write("edited.txt", "as it was\n");
    world.write("deleted.txt", "not needed any more\n");
    world.write("tool.sh", "#!/bin/sh\n");
    world.write("nested/deep/file", "deep\n");
    world.write("turns", "a file that becomes a directory\n");
    world.write("folds/a", "a directory that becomes a file\n");
    world.write("folds/b/c", "with more below\n");
    fs::create_dir(world.path("empty")).unwrap();
    world.chmod("empty", 0o755);
    world.link("keep.txt", "link");
    world.link("keep.txt", "link-becomes-file");
    world.chmod("nested/deep", 0o750);
}

/// What an agent did to it: edits, deletions, creations, modes, links, and directories for files.
fn wreck(world: &Sandbox) {
    world.write("edited.txt", "as it is now\n");
    fs::remove_file(world.path("deleted.txt")).unwrap();
    world.write("created.txt", "new\n");
    world.write("more/created/below", "new and deep\n");
    world.chmod("tool.sh", 0o755);
    fs::remove_dir_all(world.path("nested")).unwrap();
    fs::remove_file(world.path("turns")).unwrap();
    world.write("turns/inside", "now a directory\n");
    fs::remove_dir_all(world.path("folds")).unwrap();
    world.write("folds", "now a file\n");
    fs::remove_dir(world.path("empty")).unwrap();
    for link in ["link", "link-becomes-file"] {
        fs::remove_file(world.path(link)).unwrap();
    }
    world.link("edited.txt", "link");
    world.write("link-becomes-file", "no link\n");
}

/// What a user sees: the files, and what git says.
#[derive(Clone, PartialEq, Eq)]
struct Sight {
    files: Copy,
    git: Vec<String>,
}

impl Sight {
    fn of(world: &Sandbox) -> Self {
        let mut git = Vec::new();
        if world.path(".git").exists() {
            git.push(fs::read_to_string(world.path(".git/HEAD")).unwrap());
            git.push(world.git(&["for-each-ref"]));
            // What is in the index shows in how it differs from HEAD and from the files.
            git.push(world.git(&["--no-optional-locks", "status", "--porcelain"]));
        }
        Self { files: world.files(), git }
    }
}

impl std::fmt::Debug for Sight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (path, thing) in &self.files {
            writeln!(f, "  {} {thing:?}", path.escape_ascii())?;
        }
        self.git.iter().try_for_each(|answer| writeln!(f, "  {answer}"))
    }
}

/// A world that can be put back to how it was before each round.
struct FaultCase {
    world: Sandbox,
    prepared: PathBuf,
    command: Vec<&'static str>,
    /// What the user sees before the command, and after it has succeeded.
    before: Sight,
    after: Sight,
    /// Checkpoints made before, by label.
    kept: Vec<(&'static str, Copy)>,
}

impl FaultCase {
    fn new(world: Sandbox, command: &[&'static str], kept: Vec<(&'static str, Copy)>) -> Self {
        let prepared = world.root().join("prepared");
        fs::create_dir(&prepared).unwrap();
        copy(&[world.work.clone(), world.store.clone()], &prepared);
        let before = Sight::of(&world);
        let mut scene =
            Self { world, prepared, command: command.to_vec(), after: before.clone(), before, kept };
        scene.world.ok(&scene.command);
        scene.after = Sight::of(&scene.world);
        scene
    }

    fn put_back(&self) {
        for dir in [&self.world.work, &self.world.store] {
            fs::remove_dir_all(dir).unwrap();
        }
        copy(&[self.prepared.join("work"), self.prepared.join("store")], &self.world.root());
    }

    /// Runs one faulty command and checks everything a user cares about afterwards. Gives what the command did.
    fn round(&self, fault: &str) -> Ran {
        self.put_back();
        let ran = self.world.faulty(&self.command, fault);
        let when = format!("{} with {fault}", self.command.join(" "));
        if !fault.starts_with("kill") && ran.code != Some(0) {
            assert_eq!(ran.code, Some(7), "{when}: a failing disk is the system's fault: {}", ran.err);
            assert!(ran.err.contains("Error: cannot"), "{when}: {}", ran.err);
        }
        self.check(&when, ran.code == Some(0));
        ran
    }

    /// The state of things once the next command has run.
    fn check(&self, when: &str, succeeded: bool) {
        let world = &self.world;
        let status = world.run(["status"]);
        assert_eq!(status.code, Some(0), "{when}: status does not recover: {}", status.err);
        world.expect_no_leftovers(when);
        let sight = Sight::of(world);
        assert!(
            sight == self.after || (sight == self.before && !succeeded),
            "{when}: neither before nor after, but\n{sight:?}before was\n{:?}after is\n{:?}",
            self.before,
            self.after
        );
        world.expect_sound(when);
        for (label, files) in &self.kept {
            world.expect_restores(label, files, when);
        }
        self.go_on(when, &sight);
    }

    /// Whatever happened, the user can still go both ways.
    fn go_on(&self, when: &str, sight: &Sight) {
        let world = &self.world;
        if self.before == self.after {
            // A checkpoint or a prune: it can simply be done again.
            world.ok(&self.command);
            assert!(Sight::of(world) == self.before, "{when}: doing it again changes files");
            return;
        }
        let arguments: &[&str] = match (*sight == self.before, self.command[0]) {
            (true, _) => &self.command,
            (false, "undo") => &["redo", "--yes"],
            (false, _) => &["undo", "--yes"],
        };
        let other = if *sight == self.before { &self.after } else { &self.before };
        let ran = world.run(arguments);
        assert_eq!(ran.code, Some(0), "{when}: then {arguments:?}: {}{}", ran.out, ran.err);
        let found = Sight::of(world);
        assert!(
            found == *other,
            "{when}: then {arguments:?} leads to\n{found:?}instead of\n{other:?}{}",
            world.run(["op", "log"]).out
        );
        world.expect_no_leftovers(when);
    }

    /// Breaks the first I/O, the second, and so on, until there is none left to break; once by killing, once by a disk
    /// that is full from there on, once by a single failure.
    fn break_everywhere(&self) {
        let mut points = 0;
        // A killed process cannot hide that it was killed, so this counts the points.
        while self.round(&format!("kill:{}", points + 1)).code != Some(0) {
            points += 1;
            assert!(points < MOST_POINTS, "{:?} never succeeds", self.command);
        }
        assert!(points >= 3, "{:?} has only {points} fault points: is it armed?", self.command);
        let mut failed = 0;
        for n in 1..=points {
            for kind in ["enospc", "eio"] {
                failed += u32::from(self.round(&format!("{kind}:{n}")).code != Some(0));
            }
        }
        assert!(failed >= points, "most failures of the disk must be reported: {failed} of {}", 2 * points);
        eprintln!("{}: {points} points", self.command.join(" "));
    }
}

fn copy(from: &[PathBuf], into: &PathBuf) {
    let status = Command::new("cp").arg("-a").args(from).arg(into).status().unwrap();
    assert!(status.success());
}

/// "one" is recorded, "two" is recorded on top of it, and there are edits that no checkpoint has.
fn edited_world() -> (Sandbox, Vec<(&'static str, Copy)>) {
    let world = Sandbox::new();
    lay_out(&world);
    world.ok(["checkpoint", "create", "one"]);
    let one = world.files();
    wreck(&world);
    world.ok(["checkpoint", "create", "two"]);
    let two = world.files();
    world.write("edited.txt", "and an edit that only the user has\n");
    world.write("fresh.txt", "never recorded\n");
    (world, vec![("one", one), ("two", two)])
}

#[test]
fn creating_a_checkpoint_survives_every_fault() {
    let (world, kept) = edited_world();
    let scene = FaultCase::new(world, &["checkpoint", "create", "three"], kept);
    scene.break_everywhere();
}

/// What is much goes into a pack, which is one more file that can break.
#[test]
fn creating_a_large_checkpoint_survives_every_fault() {
    let (world, kept) = edited_world();
    let much: String = noise(7, 40_000).iter().map(|byte| format!("{byte:02x}")).collect();
    world.write("much.txt", &much);
    let scene = FaultCase::new(world, &["checkpoint", "create", "three"], kept);
    scene.break_everywhere();
}

#[test]
fn an_acknowledged_checkpoint_is_there_after_every_fault() {
    let (world, kept) = edited_world();
    let scene = FaultCase::new(world, &["checkpoint", "create", "three"], kept);
    for n in 1..MOST_POINTS {
        scene.put_back();
        let ran = scene.world.faulty(&scene.command, &format!("kill:{n}"));
        let listed = scene.world.json(["checkpoint", "list", "--find", "three"]);
        let there = listed["items"].as_array().unwrap().len();
        if there == 1 {
            scene.world.expect_restores("three", &scene.before.files, &format!("kill:{n}"));
        }
        if ran.code == Some(0) {
            assert_eq!(there, 1, "acknowledged and gone");
            return;
        }
        // Seen by the user or not: never said and not there.
        assert!(!ran.out.contains("Created checkpoint") || there == 1, "kill:{n}: said and not there");
    }
    panic!("it never succeeds");
}

#[test]
fn the_first_checkpoint_of_a_new_store_survives_every_fault() {
    let world = Sandbox::new();
    lay_out(&world);
    world.init_git();
    let before = world.everything();
    for kind in ["kill", "enospc", "eio"] {
        for n in 1.. {
            assert!(n < MOST_POINTS, "it never succeeds");
            let _ = fs::remove_dir_all(&world.store);
            let ran = world.faulty(&["checkpoint", "create", "one"], &format!("{kind}:{n}"));
            let when = format!("the first checkpoint with {kind}:{n}");
            world.ok(["checkpoint", "create", "again"]);
            assert!(world.everything() == before, "{when}: the workspace was touched");
            world.expect_sound(&when);
            world.expect_restores("again", &world.files(), &when);
            if ran.code == Some(0) {
                break;
            }
        }
    }
}

#[test]
fn a_rewind_survives_every_fault() {
    let (world, kept) = edited_world();
    FaultCase::new(world, &["rewind", "one", "--yes"], kept).break_everywhere();
}

#[test]
fn an_undo_survives_every_fault() {
    let (world, kept) = edited_world();
    world.ok(["rewind", "one", "--yes"]);
    FaultCase::new(world, &["undo", "--yes"], kept).break_everywhere();
}

#[test]
fn a_rewind_with_git_survives_every_fault() {
    let world = Sandbox::new();
    lay_out(&world);
    world.init_git();
    world.ok(["checkpoint", "create", "one"]);
    let one = world.files();
    wreck(&world);
    world.git(&["checkout", "--quiet", "-b", "topic"]);
    world.git(&["add", "--all"]);
    world.git(&["commit", "--quiet", "-m", "second"]);
    world.write("edited.txt", "and an edit that only the user has\n");
    let scene = FaultCase::new(world, &["rewind", "one", "--files", "--git", "--yes"], vec![("one", one)]);
    assert_ne!(scene.before.git, scene.after.git);
    scene.break_everywhere();
}

#[test]
fn bringing_a_lost_repository_back_survives_every_fault() {
    let world = Sandbox::new();
    world.write("file", "content\n");
    world.init_git();
    world.ok(["checkpoint", "create", "one"]);
    let one = world.files();
    fs::remove_dir_all(world.path(".git")).unwrap();
    world.write("file", "and an edit that only the user has\n");
    let scene = FaultCase::new(world, &["rewind", "one", "--files", "--git", "--yes"], vec![("one", one)]);
    assert!(scene.before.git.is_empty() && !scene.after.git.is_empty());
    scene.break_everywhere();
}

#[test]
fn a_prune_survives_every_fault() {
    let (world, kept) = edited_world();
    world.ok(["checkpoint", "create", "three"]);
    world.ok(["rewind", "one", "--yes"]);
    world.write("between.txt", "kept by the next rewind only\n");
    world.ok(["rewind", "two", "--yes"]);
    world.write("between.txt", "something else\n");
    world.ok(["rewind", "one", "--yes"]);
    world.ok(["rewind", "two", "--yes"]);
    world.ok(["checkpoint", "delete", "three"]);
    let scene = FaultCase::new(world, &["prune", "--now", "--keep-last", "1", "--keep-manual"], kept);
    scene.put_back();
    let plan = scene.world.json(["prune", "--now", "--keep-last", "1", "--keep-manual", "--dry-run"]);
    assert!(!plan["items"].as_array().unwrap().is_empty(), "there must be something to prune: {plan}");
    scene.break_everywhere();
}

#[test]
fn a_crash_during_recovery_is_recovered_from() {
    let (world, kept) = edited_world();
    let scene = FaultCase::new(world, &["rewind", "one", "--yes"], kept);
    let mut interrupted = 0;
    for first in (6..MOST_POINTS).step_by(9) {
        for kind in ["kill", "eio"] {
            for second in (1..MOST_POINTS).step_by(3) {
                scene.put_back();
                if scene.world.faulty(&scene.command, &format!("kill:{first}")).code == Some(0) {
                    assert!(interrupted > 10, "only {interrupted} recoveries were interrupted");
                    return;
                }
                if scene.world.faulty(&["status"], &format!("{kind}:{second}")).code == Some(0) {
                    break;
                }
                interrupted += 1;
                scene.check(&format!("kill:{first}, then {kind}:{second} while recovering"), false);
            }
        }
    }
    panic!("the rewind never succeeds");
}

#[test]
fn what_is_typed_after_a_crash_survives_the_recovery() {
    let (world, kept) = edited_world();
    let scene = FaultCase::new(world, &["rewind", "one", "--yes"], kept);
    for n in 1..MOST_POINTS {
        scene.put_back();
        if scene.world.faulty(&scene.command, &format!("kill:{n}")).code == Some(0) {
            return;
        }
        let when = format!("kill:{n}");
        // A file that the rewind wants to change, one it wants to bring back, and one it wants to remove.
        let typed = ["edited.txt", "deleted.txt", "created.txt"];
        for name in typed {
            fs::write(scene.world.path(name), format!("typed into {name}\n")).unwrap();
        }
        scene.world.ok(["status"]);
        for name in typed {
            let found = fs::read_to_string(scene.world.path(name)).unwrap();
            assert_eq!(found, format!("typed into {name}\n"), "{when}");
        }
        scene.world.expect_no_leftovers(&when);
        scene.world.expect_sound(&when);
    }
    panic!("it never succeeds");
}
