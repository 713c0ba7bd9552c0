//! Several processes on one workspace and one store at once: an agent's hooks, a person, and a cleaning job.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;
use stepback_testkit::tree::{self, Copy};

use crate::sandbox::{Ran, Sandbox};

/// Rounds of each loop; two loops stay below the fifty newest manual checkpoints that a prune never takes.
const ROUNDS: usize = 20;

/// Codes that a command may end with when others are at work: done, nothing to undo, done in part, busy, refused.
const EXPECTED: [i32; 5] = [0, 4, 5, 8, 9];

#[track_caller]
fn expect_orderly(ran: &Ran, arguments: &[&str]) {
    let code = ran.code.unwrap_or_else(|| panic!("{arguments:?} was ended by a signal: {}", ran.err));
    assert!(EXPECTED.contains(&code), "{arguments:?} exits with {code}: {}{}", ran.out, ran.err);
}

#[test]
fn checkpoints_rewinds_and_prunes_at_once() {
    let world = Sandbox::new();
    for at in 0..40 {
        world.write(format!("dir{}/file{at}", at % 4), format!("file {at}\n"));
    }
    world.ok(["settings", "checkpoint.max-manual", "0"]);
    world.ok(["checkpoint", "create", "start"]);
    let start = world.files();
    let writing = AtomicBool::new(true);
    let (mut created, mut rewound, mut busy) = (0, 0, 0);
    thread::scope(|scope| {
        let create = |who: &'static str| {
            let world = &world;
            move || {
                let mut done = 0;
                for round in 0..ROUNDS {
                    // Each has a file of its own that changes all the time; a rewind may take it away meanwhile.
                    let _ = fs::write(world.path(format!("{who}.txt")), format!("{who} {round}\n"));
                    let label = format!("{who}-{round}");
                    let arguments = ["checkpoint", "create", &label];
                    let ran = world.run(arguments);
                    expect_orderly(&ran, &arguments);
                    done += usize::from(ran.code == Some(0));
                }
                done
            }
        };
        let first = scope.spawn(create("first"));
        let second = scope.spawn(create("second"));
        let travel = scope.spawn(|| {
            let (mut done, mut busy) = (0, 0);
            for round in 0..ROUNDS {
                let arguments: &[&str] = match round % 3 {
                    0 => &["rewind", "start", "--yes"],
                    1 => &["undo", "--yes"],
                    _ => &["redo", "--yes"],
                };
                let ran = world.run(arguments);
                expect_orderly(&ran, arguments);
                done += usize::from(matches!(ran.code, Some(0 | 5)));
                busy += usize::from(ran.code == Some(8));
            }
            (done, busy)
        });
        let prune = scope.spawn(|| {
            while writing.load(Ordering::Relaxed) {
                let arguments = ["prune", "--now", "--keep-last", "3", "--keep-manual"];
                let ran = world.run(arguments);
                expect_orderly(&ran, &arguments);
            }
        });
        let read = scope.spawn(|| {
            let commands: [&[&str]; 6] = [
                &["status"],
                &["diff", "start"],
                &["changes"],
                &["cat", "start", "dir0/file0"],
                &["log"],
                &["at", "start", "--json"],
            ];
            for arguments in commands.iter().cycle() {
                let ran = world.run(*arguments);
                assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.err);
                if !writing.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        // A loop that failed must not leave the others running for ever.
        let (first, second, travel) = (first.join(), second.join(), travel.join());
        writing.store(false, Ordering::Relaxed);
        created = first.unwrap() + second.unwrap();
        (rewound, busy) = travel.unwrap();
        prune.join().unwrap();
        read.join().unwrap();
    });
    assert_eq!(created, 2 * ROUNDS, "no checkpoint may fail because others are at work");
    // How many depends on the machine; none would mean that they starve.
    assert!(rewound > 0, "none of {ROUNDS} rewinds and undos got through, {busy} were busy");
    world.ok(["status"]);
    world.expect_no_leftovers("at the end");
    world.expect_sound("at the end");
    expect_gapless(&world);
    expect_complete_checkpoints(&world, &start);
    world.expect_restores("start", &start, "at the end");
    world.ok(["rewind", "start", "--yes"]);
    world.expect_files(&start, "after the last rewind");
}

/// Every checkpoint can be restored, and has of the files that never change what was in them.
fn expect_complete_checkpoints(world: &Sandbox, start: &Copy) {
    let survivors = world.json(["checkpoint", "list", "--all"]);
    let survivors = survivors["items"].as_array().unwrap();
    for survivor in survivors {
        let point = format!("#{}", survivor["number"]);
        let into = world.root().join(format!("restored-{}", survivor["number"]));
        let ran = world.run(["restore", &point, "--into", into.to_str().unwrap(), "--json"]).exits(0).json();
        let found = tree::copy_of(&into, |_| false);
        let files = found.values().filter(|thing| !thing.is_dir()).count();
        assert_eq!(ran["files"], files, "{point} is not complete");
        // The forty files never change; whatever a checkpoint saw of them must be right.
        for (path, thing) in start.iter().filter(|(path, _)| path.starts_with(b"dir")) {
            assert_eq!(found.get(path), Some(thing), "{point}: {}", path.escape_ascii());
        }
        fs::remove_dir_all(into).unwrap();
    }
}

/// Step and operation numbers have no gaps and no doubles, as the store itself has them.
fn expect_gapless(world: &Sandbox) {
    let database = rusqlite::Connection::open(world.store.join("log.sqlite")).unwrap();
    for table in ["steps", "operations"] {
        let query = format!("SELECT count(*), count(DISTINCT number), min(number), max(number) FROM {table}");
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        let (count, distinct, least, most): (i64, i64, i64, i64) =
            database.query_row(&query, [], row).unwrap();
        assert_eq!((distinct, least, most), (count, 1, count), "numbers of {table}");
    }
    let log = world.json(["log"]);
    let numbers: Vec<u64> =
        log["items"].as_array().unwrap().iter().map(|item| item["number"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|newer, older| newer > older), "not newest first: {numbers:?}");
}

#[test]
fn many_first_checkpoints_of_a_new_store_at_once() {
    let world = Sandbox::new();
    world.write("file", "content\n");
    let children: Vec<_> = (0..8).map(|_| world.spawn(&["checkpoint", "create", "--json"])).collect();
    let mut numbers: Vec<u64> = children
        .into_iter()
        .map(|child| {
            let ran: Ran = child.wait_with_output().unwrap().into();
            ran.exits(0).json()["number"].as_u64().unwrap()
        })
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=8).collect::<Vec<_>>());
    world.expect_sound("after eight first checkpoints");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let world = Sandbox::new();
    world.write("file", "line\n".repeat(200_000));
    world.ok(["checkpoint", "create", "one"]);
    let mut child =
        world.command(["cat", "one", "file"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success() || output.status.signal() == Some(13),
        "{:?} {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
}

#[test]
fn an_edit_between_plan_and_apply_survives() {
    let world = Sandbox::new();
    for at in 0..300 {
        world.write(format!("f{at:03}"), "old\n");
    }
    world.ok(["checkpoint", "create", "old"]);
    for at in 0..300 {
        world.write(format!("f{at:03}"), "new\n");
    }
    // Somebody types all the time while files go back.
    let stop = AtomicBool::new(false);
    let (ran, typed) = thread::scope(|scope| {
        let typist = scope.spawn(|| {
            let mut count = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                count += 1;
                let temporary = world.root().join("typing");
                fs::write(&temporary, format!("typed {count}\n")).unwrap();
                fs::rename(&temporary, world.path("f299")).unwrap();
            }
            count
        });
        let ran = world.run(["rewind", "old", "--yes", "--json"]);
        stop.store(true, Ordering::Relaxed);
        (ran, typist.join().unwrap())
    });
    assert!(matches!(ran.code, Some(0 | 5)), "{} {}", ran.out, ran.err);
    let document: Value = ran.json();
    let left =
        |name: &str| document["left_alone"].as_array().unwrap().iter().any(|item| item["path"] == name);
    let found = fs::read_to_string(world.path("f299")).unwrap();
    // What was typed last is there, or it is in the step that saved what was there before.
    let saved = || world.ok(["cat", &format!("#{}", document["before"]), "f299"]).out;
    if found == "old\n" {
        assert!(!left("f299"), "restored and said to be left alone");
        assert_eq!(saved(), format!("typed {typed}\n"));
    } else {
        assert_eq!(found, format!("typed {typed}\n"));
        assert_eq!(ran.code, Some(if left("f299") { 5 } else { 0 }));
    }
    for at in 0..299 {
        assert_eq!(fs::read_to_string(world.path(format!("f{at:03}"))).unwrap(), "old\n");
    }
    world.expect_no_leftovers("after the rewind");
    world.expect_sound("after the rewind");
}
