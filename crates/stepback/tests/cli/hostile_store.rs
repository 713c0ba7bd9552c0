//! Stores that are missing, damaged, newer or no stores at all: said clearly, and nothing is lost.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;
use stepback_testkit::tree;

use crate::hostile::{NOTHING, STORE, expect_clear, recorded, size_of};
use crate::sandbox::Sandbox;

fn packs(world: &Sandbox) -> Vec<PathBuf> {
    let entries = fs::read_dir(world.store.join("packs")).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension() == Some(OsStr::new("pack")))
        .collect()
}

#[test]
fn a_store_that_is_missing_is_said_to_be_missing() {
    let (world, _, two) = recorded();
    fs::remove_dir_all(&world.store).unwrap();
    for arguments in [&["status"][..], &["log"], &["rewind", "one", "--yes"], &["fsck"], &["undo"]] {
        let ran = world.run(arguments).exits(NOTHING);
        assert!(ran.err.contains("there is no stepback store at"), "{}", ran.err);
        assert!(!world.store.exists(), "{arguments:?} made a store");
    }
    world.expect_files(&two, "without a store");
    world.ok(["checkpoint", "create", "new start"]);
    world.expect_restores("new start", &two, "after a new start");
}

#[test]
fn packs_without_their_database_are_not_written_over() {
    let (world, ..) = recorded();
    for name in ["log.sqlite", "log.sqlite-wal", "log.sqlite-shm"] {
        let _ = fs::remove_file(world.store.join(name));
    }
    let before = size_of(&world.store.join("packs"));
    world.run(["checkpoint", "create"]).exits(STORE);
    assert_eq!(size_of(&world.store.join("packs")), before);
}

#[test]
fn a_damaged_page_of_the_database_loses_no_file() {
    const PAGE: usize = 4096;
    let (world, one, two) = recorded();
    let database = world.store.join("log.sqlite");
    let connection = Connection::open(&database).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(connection);
    for name in ["log.sqlite-wal", "log.sqlite-shm"] {
        let _ = fs::remove_file(world.store.join(name));
    }
    let good = fs::read(&database).unwrap();
    let mut noticed = 0;
    for page in 0..good.len() / PAGE {
        for (how, fill) in [("zeroes", 0x00), ("noise", 0xd7)] {
            let mut bad = good.clone();
            bad[page * PAGE..(page + 1) * PAGE].fill(fill);
            for name in ["log.sqlite-wal", "log.sqlite-shm"] {
                let _ = fs::remove_file(world.store.join(name));
            }
            fs::write(&database, &bad).unwrap();
            let when = format!("page {page} is {how}");
            let checked = world.run(["fsck"]);
            expect_clear(&checked, &[0, STORE], &format!("{when}: fsck"));
            noticed += usize::from(checked.code == Some(STORE));
            let rewound = world.run(["rewind", "one", "--yes"]);
            // A list that lost its beginning looks shorter: then "one" is unknown, or nothing is recorded.
            expect_clear(&rewound, &[0, 3, 4, STORE], &format!("{when}: rewind"));
            let files = world.files();
            // All or nothing; if the damage keeps the rewind from being recorded at the end, it says so.
            let told = matches!(rewound.code, Some(0 | STORE));
            assert!(
                files == two || (files == one && told),
                "{when}: a mixture, {:?}: {}",
                rewound.code,
                rewound.err
            );
            if files == one {
                fs::remove_dir_all(&world.work).unwrap();
                fs::create_dir(&world.work).unwrap();
                tree::write(&two, &world.work);
            }
        }
    }
    assert!(noticed > good.len() / PAGE, "only {noticed} of {} damages were noticed", 2 * good.len() / PAGE);
}

#[test]
fn a_truncated_or_rotten_pack_loses_no_file() {
    let (world, one, two) = recorded();
    let packs = packs(&world);
    assert!(!packs.is_empty());
    let sound = world.root().join("sound");
    let copy = |from: &Path, to: &Path| {
        assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
    };
    copy(&world.store, &sound);
    for pack in packs {
        let good = fs::read(&pack).unwrap();
        let cut: Vec<usize> = (0..6).map(|part| good.len() * part / 6).chain([good.len() - 1]).collect();
        let rot: Vec<usize> =
            (0..12).map(|part| good.len() * part / 12 + 9).filter(|at| *at < good.len()).collect();
        let bad = cut.into_iter().map(|length| (format!("cut at {length}"), good[..length].to_vec())).chain(
            rot.into_iter().map(|at| {
                let mut bytes = good.clone();
                bytes[at] ^= 0x40;
                (format!("rotten at {at}"), bytes)
            }),
        );
        for (how, bytes) in bad {
            fs::write(&pack, bytes).unwrap();
            let checked = world.run(["fsck"]);
            expect_clear(&checked, &[STORE], &format!("{how}: fsck"));
            let rewound = world.run(["rewind", "one", "--yes"]);
            expect_clear(&rewound, &[0, STORE], &format!("{how}: rewind"));
            let files = world.files();
            assert!(files == two || (files == one && rewound.code == Some(0)), "{how}: a mixture");
            let shown = world.run(["--json", "status"]);
            assert!(matches!(shown.code, Some(0 | STORE)), "{how}: status: {}", shown.err);
            shown.json();
            if files == one {
                fs::write(&pack, &good).unwrap();
                world.ok(["undo", "--yes"]);
                world.expect_files(&two, &how);
            }
            // A round stores damaged content again, elsewhere: the next one begins with the sound store.
            fs::remove_dir_all(&world.store).unwrap();
            copy(&sound, &world.store);
        }
    }
}

#[test]
fn a_missing_pack_is_noticed_and_nothing_is_freed_from_a_damaged_store() {
    let (world, _, two) = recorded();
    for pack in packs(&world) {
        fs::remove_file(pack).unwrap();
    }
    expect_clear(&world.run(["fsck"]), &[STORE], "fsck");
    expect_clear(&world.run(["rewind", "one", "--yes"]), &[STORE], "rewind");
    expect_clear(&world.run(["prune", "--now", "--keep-last", "1", "--keep-manual"]), &[STORE], "prune");
    world.expect_files(&two, "without packs");
}

#[test]
fn a_newer_store_is_refused_by_readers_and_writers() {
    let (world, one, two) = recorded();
    let database = Connection::open(world.store.join("log.sqlite")).unwrap();
    database.pragma_update(None, "user_version", 99).unwrap();
    let before = size_of(&world.store.join("packs"));
    let commands: [&[&str]; 9] = [
        &["status"],
        &["log"],
        &["checkpoint", "create", "three"],
        &["rewind", "one", "--yes"],
        &["undo", "--yes"],
        &["prune", "--now"],
        &["fsck"],
        &["stats"],
        &["restore", "one", "--into", "../elsewhere"],
    ];
    for arguments in commands {
        let ran = world.run(arguments).exits(STORE);
        assert!(ran.err.contains("format 99"), "{}", ran.err);
        assert!(ran.err.contains("Hint: use a newer version of stepback"), "{}", ran.err);
    }
    world.expect_files(&two, "with a newer store");
    assert_eq!(size_of(&world.store.join("packs")), before);
    database.pragma_update(None, "user_version", 1).unwrap();
    drop(database);
    world.expect_restores("one", &one, "with the right store");
}

#[test]
fn something_that_is_no_store_is_left_alone() {
    let (world, ..) = recorded();
    let other = world.root().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("log.sqlite"), "my diary\n".repeat(1000)).unwrap();
    let ran =
        world.run([OsStr::new("checkpoint"), OsStr::new("create"), OsStr::new("--store"), other.as_os_str()]);
    expect_clear(&ran, &[STORE], "a text file");
    assert_eq!(fs::read_to_string(other.join("log.sqlite")).unwrap(), "my diary\n".repeat(1000));
    fs::remove_file(other.join("log.sqlite")).unwrap();
    let database = Connection::open(other.join("log.sqlite")).unwrap();
    database.execute_batch("CREATE TABLE mine (a); INSERT INTO mine VALUES (1)").unwrap();
    let ran =
        world.run([OsStr::new("checkpoint"), OsStr::new("create"), OsStr::new("--store"), other.as_os_str()]);
    expect_clear(&ran, &[STORE], "another program's database");
    let count: i64 = database.query_row("SELECT count(*) FROM mine", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 1);
}
