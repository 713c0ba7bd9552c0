//! SQLite databases and other files that a process has open while the workspace goes back.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use stepback_engine::rewind::{PreparedRewind, RewindRequest};
use stepback_engine::undo::{Reversal, UndoDirection};
use stepback_engine::{Engine, Workspace};
use stepback_model::record::StepRow;
use stepback_testkit::process;

use crate::support::{TestWorkspace, Words, left_alone, nothing_left_alone, was_left_alone};

const FILES: [&str; 3] = ["data/app.db", "data/app.db-wal", "data/app.db-shm"];

/// Not a test of its own: another process, with a file open until it is killed.
#[test]
fn holds_a_file_open() {
    let Some(task) = process::task() else { return };
    let parts: Vec<&str> = task.split('|').collect();
    let [mode, path, ready] = parts[..] else { panic!("{task}") };
    let file;
    let connection;
    match mode {
        "write" => {
            file = fs::OpenOptions::new().append(true).open(path).unwrap();
            fs::write(ready, "").unwrap();
            std::thread::sleep(Duration::from_secs(60));
            drop(file);
        }
        "map" => {
            file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
            let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
            // SAFETY: a fresh mapping of an open file, which nothing else in this process refers to.
            let mapped = unsafe { libc::mmap(std::ptr::null_mut(), 1, access, libc::MAP_SHARED, fd, 0) };
            assert_ne!(mapped, libc::MAP_FAILED);
            drop(file);
            fs::write(ready, "").unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
        journal => {
            connection = open(Path::new(path), journal);
            add(&connection, "by the other process");
            fs::write(ready, "").unwrap();
            std::thread::sleep(Duration::from_secs(60));
            drop(connection);
        }
    }
}

/// A process that has a file open; killed at the end.
struct Holder(Child);

impl Holder {
    fn start(place: &TestWorkspace, mode: &str, path: &str) -> Self {
        let ready = place.outside().join(format!("ready-{mode}"));
        let _ = fs::remove_file(&ready);
        let task = format!("{mode}|{}|{}", place.path(path).display(), ready.display());
        let child = process::spawn("databases::holds_a_file_open", &task);
        let until = Instant::now() + Duration::from_secs(30);
        while !ready.exists() {
            assert!(Instant::now() < until, "the other process did not get ready");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self(child)
    }

    /// As after a crash: nothing is written back, the log stays.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn pid(&self) -> String {
        format!("(pid {})", self.0.id())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn open(path: &Path, journal: &str) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.pragma_update(None, "journal_mode", journal).unwrap();
    connection.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
    connection
}

fn add(connection: &Connection, text: &str) {
    connection.execute_batch("create table if not exists notes (text)").unwrap();
    connection.execute("insert into notes values (?1)", [text]).unwrap();
}

/// What a new connection finds in the database, which must be sound.
fn notes(path: &Path) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let sound: String = connection.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    let mut statement = connection.prepare("select text from notes order by rowid").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// A workspace with a database that has one note, and the checkpoint of it.
struct DatabaseWorkspace {
    place: TestWorkspace,
    journal: &'static str,
}

impl DatabaseWorkspace {
    fn new(journal: &'static str) -> Self {
        let place = TestWorkspace::in_memory();
        place.write("readme.txt", "first\n");
        fs::create_dir(place.path("data")).unwrap();
        add(&open(&place.path(FILES[0]), journal), "first");
        Self { place, journal }
    }

    fn database(&self) -> PathBuf {
        self.place.path(FILES[0])
    }

    /// The other process adds a note and keeps the database open; a text file changes, too.
    fn open_elsewhere(&self) -> Holder {
        let holder = Holder::start(&self.place, self.journal, FILES[0]);
        self.place.write("readme.txt", "second\n");
        holder
    }
}

fn request(target: &StepRow) -> RewindRequest {
    RewindRequest { target: Some(target.clone()), ..RewindRequest::default() }
}

fn prepare(workspace: &Workspace, target: &StepRow) -> PreparedRewind {
    workspace.prepare_rewind(&request(target)).unwrap()
}

fn workspace(engine: &Engine, world: &DatabaseWorkspace) -> Workspace {
    engine.open_workspace_root(&world.place.root).unwrap()
}

#[test]
fn an_open_database_stays_and_is_listed_with_who_has_it_open() {
    for journal in ["wal", "delete"] {
        let world = DatabaseWorkspace::new(journal);
        let engine = world.place.engine();
        let workspace = workspace(&engine, &world);
        let first = workspace.checkpoint("first");
        let holder = world.open_elsewhere();
        let prepared = prepare(&workspace, &first);
        let report = workspace.apply_rewind(prepared).unwrap();
        assert_eq!(world.place.read("readme.txt"), "first\n", "other files go back");
        // With a log, the database file itself has not changed yet.
        was_left_alone(&report, if journal == "wal" { FILES[1] } else { FILES[0] });
        let left = left_alone(&report);
        assert!(left.iter().all(|(_, reason)| reason.contains(&holder.pid())), "{journal}: {left:?}");
        assert!(
            report.left_alone.iter().any(|left| left.is_conflict()),
            "{journal}: an exit code tells of it"
        );
        assert_eq!(notes(&world.database()), ["first", "by the other process"], "{journal}");
        holder.kill();
        let prepared = prepare(&workspace, &first);
        nothing_left_alone(&workspace.apply_rewind(prepared).unwrap());
        assert_eq!(notes(&world.database()), ["first"], "{journal}");
    }
}

#[test]
fn an_open_database_is_replaced_whole_when_the_user_insists() {
    for journal in ["wal", "delete"] {
        let world = DatabaseWorkspace::new(journal);
        let engine = world.place.engine();
        let workspace = workspace(&engine, &world);
        let first = workspace.checkpoint("first");
        let holder = world.open_elsewhere();
        let mut prepared = prepare(&workspace, &first);
        prepared.force();
        assert!(
            prepared.warnings.iter().any(|warning| warning.contains(&holder.pid())),
            "{:?}",
            prepared.warnings
        );
        nothing_left_alone(&workspace.apply_rewind(prepared).unwrap());
        assert_eq!(notes(&world.database()), ["first"], "{journal}");
    }
}

#[test]
fn a_database_that_is_opened_after_the_plan_was_made_stays() {
    let world = DatabaseWorkspace::new("wal");
    let engine = world.place.engine();
    let workspace = workspace(&engine, &world);
    let first = workspace.checkpoint("first");
    world.open_elsewhere().kill();
    let mut prepared = prepare(&workspace, &first);
    assert_eq!(prepared.plan.left_alone, []);
    prepared.release_lock();
    let holder = Holder::start(&world.place, "write", FILES[0]);
    let report = workspace.apply_rewind(prepared).unwrap();
    was_left_alone(&report, FILES[1]);
    assert!(left_alone(&report).iter().all(|(_, reason)| reason.contains(&holder.pid())));
    assert_eq!(world.place.read("readme.txt"), "first\n");
}

#[test]
fn an_undo_leaves_an_open_database_alone() {
    let world = DatabaseWorkspace::new("wal");
    let engine = world.place.engine();
    let workspace = workspace(&engine, &world);
    let first = workspace.checkpoint("first");
    world.open_elsewhere().kill();
    workspace.rewind(&first);
    let holder = Holder::start(&world.place, "write", FILES[0]);
    let reversal = workspace.prepare_undo(None).unwrap();
    let Reversal::Files { prepared, .. } = &reversal else { panic!("files change") };
    assert!(prepared.plan.left_alone.iter().any(|left| left.reason.contains(&holder.pid())));
    let report = workspace.apply_reversal(reversal, UndoDirection::Undo).unwrap().into_files().unwrap();
    was_left_alone(&report, FILES[1]);
    holder.kill();
    assert_eq!(notes(&world.database()), ["first"]);
}

#[test]
fn a_log_goes_with_a_database_that_had_none() {
    for path in FILES {
        let world = DatabaseWorkspace::new("wal");
        let engine = world.place.engine();
        let workspace = workspace(&engine, &world);
        assert!(
            !world.place.has(FILES[1]),
            "a log that is not needed is deleted when the database is closed"
        );
        let first = workspace.checkpoint("first");
        world.open_elsewhere().kill();
        assert!(world.place.has(FILES[1]));
        nothing_left_alone(&workspace.rewind_paths(&first, &[path]).unwrap());
        assert!(!world.place.has(FILES[1]), "restoring {path} takes the log along");
        assert_eq!(notes(&world.database()), ["first"]);
        assert_eq!(world.place.read("readme.txt"), "second\n");
    }
}

#[test]
fn a_log_comes_back_with_its_database() {
    for path in &FILES[..2] {
        let world = DatabaseWorkspace::new("wal");
        let engine = world.place.engine();
        let workspace = workspace(&engine, &world);
        let holder = world.open_elsewhere();
        // Taken while the database is in use: whatever is on disk.
        let live = workspace.checkpoint("live");
        holder.kill();
        add(&open(&world.database(), "wal"), "later");
        assert!(!world.place.has(FILES[1]), "the last one to close it writes the log back");
        workspace.checkpoint("later");
        nothing_left_alone(&workspace.rewind_paths(&live, &[path]).unwrap());
        assert_eq!(notes(&world.database()), ["first", "by the other process"], "{path}");
        nothing_left_alone(&workspace.rewind_paths(&workspace.head().unwrap(), &[path]).unwrap());
    }
}

#[test]
fn taking_back_one_change_of_a_database_takes_back_the_whole() {
    let world = DatabaseWorkspace::new("wal");
    let engine = world.place.engine();
    let workspace = workspace(&engine, &world);
    world.open_elsewhere().kill();
    workspace.checkpoint("first");
    add(&open(&world.database(), "wal"), "later");
    workspace.checkpoint("later");
    assert!(!world.place.has(FILES[1]));
    let report = workspace.take_back(&[workspace.change_of(FILES[0])]);
    nothing_left_alone(&report);
    assert!(world.place.has(FILES[1]));
    assert_eq!(notes(&world.database()), ["first", "by the other process"]);
}

#[test]
fn a_database_whose_log_changes_meanwhile_is_not_restored_in_part() {
    let world = DatabaseWorkspace::new("wal");
    let engine = world.place.engine();
    let workspace = workspace(&engine, &world);
    let first = workspace.checkpoint("first");
    add(&open(&world.database(), "wal"), "second");
    world.open_elsewhere().kill();
    let prepared = prepare(&workspace, &first);
    let before = fs::read(world.database()).unwrap();
    let log = fs::read(world.place.path(FILES[1])).unwrap();
    // A process that comes and goes between the last look and the exchange.
    fs::write(world.place.path(FILES[1]), [log.as_slice(), &[0; 32]].concat()).unwrap();
    let report = workspace.apply_rewind(prepared).unwrap();
    was_left_alone(&report, FILES[0]);
    was_left_alone(&report, FILES[1]);
    assert!(fs::read(world.database()).unwrap() == before, "the database was restored without its log");
    assert_eq!(notes(&world.database()), ["first", "second", "by the other process"]);
    assert_eq!(
        workspace.scan_for_display().unwrap().state.files,
        workspace.scan_present().unwrap().state.files
    );
}

#[test]
fn an_undo_does_not_put_a_database_under_a_later_log() {
    let world = DatabaseWorkspace::new("wal");
    let engine = world.place.engine();
    let workspace = workspace(&engine, &world);
    let first = workspace.checkpoint("first");
    add(&open(&world.database(), "wal"), "second");
    workspace.rewind(&first);
    // The database file stays as it is; only a log appears.
    Holder::start(&world.place, "wal", FILES[0]).kill();
    let report = workspace.undo();
    was_left_alone(&report, FILES[0]);
    assert_eq!(notes(&world.database()), ["first", "by the other process"]);
}

#[test]
fn a_file_that_is_open_for_writing_is_warned_about_and_replaced() {
    for mode in ["write", "map"] {
        let place = TestWorkspace::in_memory();
        place.write("server.log", "first\n");
        place.write("other.txt", "first\n");
        let engine = place.engine();
        let workspace = engine.open_workspace_root(&place.root).unwrap();
        let first = workspace.checkpoint("first");
        place.write("server.log", "second\n");
        place.write("other.txt", "second\n");
        let holder = Holder::start(&place, mode, "server.log");
        let prepared = prepare(&workspace, &first);
        let [warning] = prepared.warnings.as_slice() else { panic!("{mode}: {:?}", prepared.warnings) };
        assert!(warning.contains("server.log") && warning.contains(&holder.pid()), "{warning}");
        nothing_left_alone(&workspace.apply_rewind(prepared).unwrap());
        assert_eq!(place.read("server.log"), "first\n");
    }
}

#[test]
fn a_file_that_is_only_read_is_not_warned_about() {
    let place = TestWorkspace::in_memory();
    place.write("notes.txt-journal", "a text that only sounds like a journal\n");
    place.write("notes.txt", "first\n");
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let first = workspace.checkpoint("first");
    place.write("notes.txt", "second\n");
    place.write("notes.txt-journal", "another text\n");
    let _own = fs::File::options().append(true).open(place.path("notes.txt")).unwrap();
    let mut reader = std::process::Command::new("sleep")
        .arg("60")
        .stdin(fs::File::open(place.path("notes.txt")).unwrap())
        .spawn()
        .unwrap();
    let paths = vec!["notes.txt".to_string()];
    let prepared = workspace.prepare_rewind(&RewindRequest { paths, ..request(&first) }).unwrap();
    reader.kill().unwrap();
    reader.wait().unwrap();
    assert_eq!(prepared.warnings, [] as [String; 0]);
    assert_eq!(prepared.plan.changes.len(), 1, "files that are no database do not go together");
}
