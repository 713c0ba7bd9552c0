//! Rewinds of files that another process uses, or that became something else than a file: what the user reads and the exit code.

use std::fs;
use std::process::Command;

use rusqlite::Connection;

use crate::sandbox::Sandbox;

/// Done in part: see `failure.rs`.
const PARTIAL: i32 = 5;

fn add(world: &Sandbox, text: &str) -> Connection {
    let connection = Connection::open(world.path("app.db")).unwrap();
    connection.pragma_update(None, "journal_mode", "wal").unwrap();
    connection.execute_batch("create table if not exists notes (text)").unwrap();
    connection.execute("insert into notes values (?1)", [text]).unwrap();
    connection
}

/// What a new connection finds, if the database is sound.
fn notes(world: &Sandbox) -> i64 {
    let connection = Connection::open(world.path("app.db")).unwrap();
    let sound: String = connection.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    connection.query_row("select count(*) from notes", [], |row| row.get(0)).unwrap()
}

#[test]
fn an_open_database_is_left_alone_and_force_replaces_it() {
    let world = Sandbox::new();
    drop(add(&world, "first"));
    world.write("readme.txt", "first\n");
    world.ok(["checkpoint", "create", "first"]);
    world.write("readme.txt", "second\n");
    // This process is another one than the commands below.
    let connection = add(&world, "second");
    let pid = format!("(pid {})", std::process::id());
    let plan = world.json(["rewind", "first", "--dry-run"]);
    assert!(plan["left_alone"].to_string().contains(&pid), "{plan}");
    let ran = world.run(["rewind", "first", "--yes"]).exits(PARTIAL);
    assert!(ran.err.contains("app.db") && ran.err.contains(&pid), "{}", ran.err);
    assert_eq!(fs::read_to_string(world.path("readme.txt")).unwrap(), "first\n");
    assert_eq!(notes(&world), 2);
    let nothing_else = world.run(["rewind", "first", "--yes", "--json"]).exits(PARTIAL);
    assert!(nothing_else.json()["left_alone"].to_string().contains(&pid));
    let forced = world.ok(["rewind", "first", "--yes", "--force"]);
    assert!(forced.err.contains(&pid), "{}", forced.err);
    assert_eq!(notes(&world), 1);
    world.run(["undo", "--yes"]).exits(0);
    assert_eq!(notes(&world), 2, "nothing has the restored database open, and all of it comes back");
    drop(connection);
}

#[test]
fn a_file_that_became_a_pipe_is_not_called_restored() {
    let world = Sandbox::new();
    world.write("a.txt", "first\n");
    world.write("b.txt", "first\n");
    world.ok(["checkpoint", "create", "first"]);
    fs::remove_file(world.path("a.txt")).unwrap();
    assert!(Command::new("mkfifo").arg(world.path("a.txt")).status().unwrap().success());
    world.write("b.txt", "second\n");
    world.ok(["rewind", "first", "--yes", "--dry-run"]);
    for path in [&["--path", "b.txt", "--path", "a.txt"] as &[&str], &["--path", "a.txt"], &[]] {
        for json in [&[] as &[&str], &["--json"]] {
            let ran = world.run([&["rewind", "first", "--yes"], path, json].concat()).exits(PARTIAL);
            assert!(format!("{}{}", ran.out, ran.err).contains("named pipe"), "{}{}", ran.out, ran.err);
        }
    }
    world.run(["rewind", "--all", "first", "--yes"]).exits(PARTIAL);
}
