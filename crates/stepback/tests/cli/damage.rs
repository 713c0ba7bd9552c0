//! A store that was damaged, deleted, or cannot be written to: what is lost is said, and what is there can be had.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use stepback_testkit::process;
use stepback_testkit::skip::skip;

use crate::hostile::{REFUSED, STORE, SYSTEM, recorded};
use crate::sandbox::Sandbox;
use crate::serving::Serving;

/// Flips a bit of the write-ahead log in the commit of the last checkpoint.
fn damage_log(world: &Sandbox, before: u64) {
    let path = world.store.join("log.sqlite-wal");
    let mut log = fs::read(&path).unwrap();
    log[before as usize + 2000] ^= 4;
    fs::write(&path, log).unwrap();
    fs::remove_file(world.store.join("log.sqlite-shm")).unwrap();
}

#[test]
fn a_checkpoint_that_the_database_lost_is_reported_and_brought_back() {
    let (world, ..) = recorded();
    let path = world.store.join("log.sqlite-wal");
    let before = fs::metadata(&path).unwrap().len();
    world.write("large", stepback_testkit::sample::noise(3, 60_000));
    world.ok(["checkpoint", "create", "three"]);
    let three = world.files();
    let logged = world.ok(["log", "--json"]).json();
    assert!(fs::metadata(&path).unwrap().len() > before, "the log was folded: the test must change");
    damage_log(&world, before);

    let shown = world.ok(["log"]);
    assert!(!shown.out.contains("three") && shown.err.contains("lost commits"), "{}{}", shown.out, shown.err);
    let checked = world.run(["fsck"]).exits(STORE);
    assert!(checked.out.contains("missing from the log") && checked.out.contains("three"), "{}", checked.out);
    let refused = world.run(["checkpoint", "create", "four"]).exits(STORE);
    assert!(refused.err.contains("fsck --repair"), "{}", refused.err);

    let planned = world.run(["fsck", "--repair"]).exits(REFUSED);
    assert!(planned.out.contains("would be brought back"), "{}", planned.out);
    let planned = world.ok(["fsck", "--repair", "--dry-run", "--json"]).json();
    assert_eq!((&planned["repaired"], &planned["lost"][0]["obstacle"]), (&json!(false), &json!(null)));
    world.run(["fsck"]).exits(STORE);
    let done = world.ok(["fsck", "--repair", "--yes", "--json"]).json();
    assert_eq!(done["lost"], planned["lost"]);
    world.expect_sound("after the repair");
    assert_eq!(world.ok(["log", "--json"]).json(), logged);
    world.expect_restores("three", &three, "after the repair");
    world.ok(["checkpoint", "create", "four"]);
    world.ok(["fsck", "--repair"]);
}

#[test]
fn a_lost_database_is_rebuilt_while_the_record_has_all_of_it() {
    let (world, one, two) = recorded();
    for name in ["log.sqlite", "log.sqlite-wal", "log.sqlite-shm"] {
        fs::remove_file(world.store.join(name)).unwrap();
    }
    world.run(["log"]).exits(STORE);
    world.run(["fsck", "--repair"]).exits(REFUSED);
    world.run(["log"]).exits(STORE);
    world.ok(["fsck", "--repair", "--yes"]);
    world.expect_sound("after the repair");
    world.expect_restores("one", &one, "after the repair");
    world.expect_restores("two", &two, "after the repair");
}

#[test]
fn content_that_was_found_damaged_is_stored_again_by_the_next_checkpoint() {
    let world = Sandbox::new();
    world.write("kept", stepback_testkit::sample::noise(1, 50_000));
    world.write("damaged", stepback_testkit::sample::noise(2, 50_000));
    world.write("sub/other", "other\n");
    world.ok(["checkpoint", "create", "one"]);
    let files = world.files();
    let pack = world.store.join("packs/00000001.pack");
    let mut bytes = fs::read(&pack).unwrap();
    let content = stepback_testkit::sample::noise(2, 50_000);
    let at = bytes.windows(64).position(|window| window == &content[1000..1064]).unwrap();
    bytes[at] ^= 1;
    fs::write(&pack, &bytes).unwrap();

    // What is intact is restored, and the rest is listed.
    let into = world.root().join("out");
    let ran = world.run(["restore", "one", "--into", into.to_str().unwrap()]).exits(STORE);
    assert!(ran.err.contains("damaged: damaged"), "{}", ran.err);
    assert!(!into.join("damaged").exists());
    assert_eq!(fs::read(into.join("kept")).unwrap(), fs::read(world.path("kept")).unwrap());
    assert_eq!(fs::read(into.join("sub/other")).unwrap(), b"other\n");
    for arguments in [&["cat", "one", "damaged"][..], &["fsck"]] {
        world.run(arguments).exits(STORE);
    }
    let created = world.ok(["checkpoint", "create", "two"]);
    assert!(!created.err.contains("cannot be restored"), "{}", created.err);
    world.expect_restores("two", &files, "stored again");
    world.expect_restores("one", &files, "stored again");
    world.expect_sound("stored again");
}

#[test]
fn a_missing_pack_does_not_spoil_the_next_checkpoint() {
    let world = Sandbox::new();
    for at in 0..30 {
        world.write(format!("file{at}"), stepback_testkit::sample::noise(at, 5_000));
    }
    world.ok(["checkpoint", "create", "one"]);
    let files = world.files();
    fs::remove_file(world.store.join("packs/00000001.pack")).unwrap();
    world.ok(["checkpoint", "create", "two"]);
    world.expect_restores("two", &files, "after the pack was deleted");
}

#[test]
fn a_server_whose_store_was_deleted_is_not_ready_and_accepts_nothing() {
    let (world, ..) = recorded();
    let serving = Serving::start(&world, &[]);
    let listed = serving.get("/workspaces");
    let serving_workspace = listed["items"][0]["id"].as_str().unwrap_or_default().to_owned();
    let ask = |request: &str, body: &str| {
        let mut stream = TcpStream::connect(serving.host()).unwrap();
        let head = format!(
            "{request} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            serving.host(),
            serving.token,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    };
    let ready = ask("GET /readyz", "");
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    fs::remove_dir_all(&world.store).unwrap();
    let ready = ask("GET /readyz", "");
    assert!(ready.starts_with("HTTP/1.1 5") && ready.contains("deleted or replaced"), "{ready}");
    let id = serving_workspace;
    let refused = ask(&format!("POST /api/v1/workspaces/{id}/checkpoints"), "{}");
    assert!(!refused.starts_with("HTTP/1.1 2"), "{refused}");
}

/// Runs this test again in a mount namespace of its own, in which `script` mounts something at `$0`.
fn in_mounts(name: &str, task: &str, script: &str) -> bool {
    if process::task().as_deref() == Some(task) {
        return false;
    }
    let place = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", &format!("{script} && exec \"$@\"")])
        .arg(place.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("STEPBACK_TEST_TASK", task)
        .env("STEPBACK_TEST_PLACE", place.path())
        .output()
        .unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if said.contains("unshare:") || said.contains("mount:") {
        skip(&format!("cannot mount: {said}"));
        return true;
    }
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    true
}

#[test]
fn a_store_on_a_read_only_disk_can_be_read() {
    let name = "damage::a_store_on_a_read_only_disk_can_be_read";
    if in_mounts(name, "read-only", "mount -t tmpfs -o size=40m tmpfs \"$0\"") {
        return;
    }
    let world = Sandbox::at(Path::new(&std::env::var_os("STEPBACK_TEST_PLACE").unwrap()));
    let place = |options: &str, target: &Path| {
        let status = Command::new("mount").args(["-o", options]).arg(target).status().unwrap();
        assert!(status.success(), "mount -o {options}");
    };
    fs::create_dir(&world.store).unwrap();
    let bound = Command::new("mount").arg("--bind").args([&world.store, &world.store]).status().unwrap();
    assert!(bound.success());
    world.write("file", "one\n");
    world.ok(["checkpoint", "create", "one"]);
    let one = world.files();
    world.write("file", "two\n");
    world.write("new", stepback_testkit::sample::noise(1, 50_000));
    world.ok(["checkpoint", "create", "two"]);
    let two = world.files();
    for folded in [false, true] {
        if folded {
            let database = rusqlite::Connection::open(world.store.join("log.sqlite")).unwrap();
            database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
            drop(database);
            for name in ["log.sqlite-wal", "log.sqlite-shm"] {
                let _ = fs::remove_file(world.store.join(name));
            }
        }
        place("remount,bind,ro", &world.store);
        let shown = world.ok(["log"]);
        assert!(shown.out.contains("two"), "{}", shown.out);
        for arguments in [
            &["checkpoint", "list"][..],
            &["checkpoint", "show", "one"],
            &["diff", "one", "two"],
            &["cat", "one", "file"],
            &["op", "log"],
            &["stats"],
            &["fsck"],
            &["timeline"],
            &["sessions"],
        ] {
            world.ok(arguments);
        }
        world.expect_restores("one", &one, "read-only");
        world.expect_restores("two", &two, "read-only");
        let out = world.root().join(format!("out{folded}"));
        world.ok(["restore", "one", "--into", out.to_str().unwrap()]);
        world.write("file", "three\n");
        let refused = world.run(["checkpoint", "create", "three"]).exits(SYSTEM);
        assert!(refused.err.contains("read-only") || refused.err.contains("Read-only"), "{}", refused.err);
        world.write("file", "two\n");
        place("remount,bind,rw", &world.store);
        world.ok(["status"]);
    }
    assert!(Command::new("umount").arg(&world.store).status().unwrap().success());
}
