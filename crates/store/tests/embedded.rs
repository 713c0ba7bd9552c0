//! The embedded store as files: what survives reopening, what is refused, what damage does, who may read it.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::{ObjectError, ObjectSource};
use stepback_model::record::{OpStatus, Step, StepContext, StepMeta};
use stepback_model::search::{Pattern, TextField, Texts};
use stepback_store::embedded::{EmbeddedStore, FORMAT};
use stepback_store::port::{SearchDocument, SearchRequest, StepQuery, StoredPlan};
use stepback_store::prelude::*;
use stepback_store::{Mutation, StoreError};
use stepback_testkit::process;
use stepback_testkit::sample::{Sample, append, noise, prose, put};
use tempfile::TempDir;

fn database(dir: &Path) -> PathBuf {
    dir.join("log.sqlite")
}

fn pack(dir: &Path, id: u64) -> PathBuf {
    dir.join("packs").join(format!("{id:08}.pack"))
}

fn read(store: &EmbeddedStore, hash: Hash) -> Result<Vec<u8>, ObjectError> {
    store.read(ObjectKind::Blob, hash)
}

fn assert_corrupt(store: &EmbeddedStore, hash: Hash) {
    let result = read(store, hash);
    assert!(matches!(result, Err(ObjectError::Corrupt { .. })), "{:?}", result.map(|bytes| bytes.len()));
}

/// A store with three blobs of 100 kB in its first pack, closed; and the offset of each record.
fn three_blobs() -> (TempDir, [(Hash, u64); 3]) {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let blobs = [noise(1, 100_000), noise(2, 100_000), noise(3, 100_000)];
    put(&store, &[&blobs[0], &blobs[1], &blobs[2]]);
    let located = blobs.map(|bytes| {
        let hash = Hash::of(ObjectKind::Blob, &bytes);
        let find = "SELECT offset FROM objects WHERE hash = ?1 AND pack = 1";
        let db = Connection::open(database(dir.path())).unwrap();
        (hash, db.query_row(find, [hash.as_bytes().as_slice()], |row| row.get::<_, i64>(0)).unwrap() as u64)
    });
    (dir, located)
}

#[test]
fn reopening_sees_everything() {
    let dir = tempfile::tempdir().unwrap();
    let sample = Sample::new(1);
    let store = EmbeddedStore::open(&dir.path().join("deep/er")).unwrap();
    let (workspace, session) = sample.begin(&store, b"/w");
    let (step, _) = sample.append(&store, session.id, &prose(1, 100));
    let op = sample.operation(workspace.id, OpStatus::Applying);
    let head = Mutation::SetRef { name: "head".into(), expected: None, value: step };
    store.commit(None, &[Mutation::AppendOp(op), head]).unwrap();
    let see = |store: &EmbeddedStore| {
        let checkpoints = store.checkpoints(workspace.id).unwrap();
        let bytes = read(store, checkpoints[0].step.state).unwrap();
        let log = (store.workspaces().unwrap(), store.sessions(workspace.id).unwrap(), checkpoints);
        let heads = (store.operations(workspace.id).unwrap(), store.references("").unwrap());
        let counts =
            (store.gc_generation().unwrap(), store.commit_seq().unwrap(), store.usage().unwrap().objects);
        (log, heads, counts, bytes)
    };
    let before = see(&store);
    drop(store);
    let store = EmbeddedStore::open_existing(&dir.path().join("deep/er")).unwrap();
    assert_eq!(see(&store), before);
    assert_eq!(sample.append(&store, session.id, b"more").1.steps, [2]);
}

#[test]
fn an_absent_store_is_not_made_unless_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    assert!(matches!(EmbeddedStore::open_existing(&path), Err(StoreError::Absent { .. })));
    assert!(!path.exists());
}

#[test]
fn a_newer_format_is_refused_by_readers_and_writers_and_left_alone() {
    let (dir, blobs) = three_blobs();
    // A program that has the store open while a newer one upgrades it.
    let old_program = EmbeddedStore::open(dir.path()).unwrap();
    let batch = old_program.begin().unwrap();
    let late = batch.write(ObjectKind::Blob, b"too late", None).unwrap();
    let mark = old_program.commit_seq().unwrap();
    let newer = FORMAT + 1;
    Connection::open(database(dir.path())).unwrap().pragma_update(None, "user_version", newer).unwrap();

    for result in [EmbeddedStore::open(dir.path()), EmbeddedStore::open_existing(dir.path())] {
        let error = result.unwrap_err();
        assert!(matches!(error, StoreError::Newer { found, known: FORMAT, .. } if found == newer), "{error}");
        assert!(error.to_string().contains(&format!("format {newer}")), "{error}");
    }
    let refused = old_program.commit(Some(batch.finish().unwrap()), &[]);
    assert!(matches!(refused, Err(StoreError::Newer { .. })), "{refused:?}");
    let refused = old_program.sweep(&HashSet::new(), mark);
    assert!(matches!(refused, Err(StoreError::Newer { .. })), "{refused:?}");

    Connection::open(database(dir.path())).unwrap().pragma_update(None, "user_version", FORMAT).unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    assert_eq!(read(&store, blobs[0].0).unwrap(), noise(1, 100_000));
    assert!(!ObjectStore::contains(&store, ObjectKind::Blob, late).unwrap());
}

/// A store of format 4 is read as it is; its next step raises the format, and only that one can have a task and a trace.
#[test]
fn a_store_from_before_contexts_is_read_and_gets_them_with_its_next_step() {
    let dir = tempfile::tempdir().unwrap();
    let sample = Sample::new(1);
    let state = Hash::of(ObjectKind::State, b"");
    let (workspace, session) = sample.begin(&EmbeddedStore::open(dir.path()).unwrap(), b"/w");
    sample.append(&EmbeddedStore::open(dir.path()).unwrap(), session.id, b"old");
    let other = Connection::open(database(dir.path())).unwrap();
    let columns =
        ["task", "trace", "span", "parent_span"].map(|name| format!("ALTER TABLE steps DROP COLUMN {name};"));
    other.execute_batch(&format!("{}PRAGMA user_version = 4", columns.join(""))).unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let of_task = StepQuery { task: Some("t".into()), ..StepQuery::default() };
    let count = |query: &StepQuery| {
        (store.steps(workspace.id, query).unwrap().len(), store.find(None, query).unwrap().total)
    };
    assert_eq!((count(&StepQuery::default()), count(&of_task)), ((1, 1), (0, 0)));
    let texts = |step: &Step| Texts::from([(TextField::Summary, step.summary.clone())]);
    let index = || {
        let steps = store.unindexed(10).unwrap().into_iter();
        let documents = steps.map(|stored| SearchDocument { texts: texts(&stored.step), stored });
        store.index(&documents.collect::<Vec<_>>()).unwrap();
    };
    let search = |among: &StepQuery| {
        let request = SearchRequest::new(Pattern::words("step").unwrap(), 10);
        store.search(&SearchRequest { among: among.clone(), ..request }).unwrap().total
    };
    index();
    assert_eq!((search(&StepQuery::default()), search(&of_task)), (1, 0));
    assert_eq!(store.chain_entries(workspace.id, 0, 10).unwrap().len(), 1);
    let context = StepContext { task: Some("t".into()), ..StepContext::default() };
    let meta = StepMeta { context: context.clone(), ..StepMeta::default() };
    store.commit(None, &[append(Step { meta, ..sample.step(session.id, state) })]).unwrap();
    let version: u32 = other.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!((version, count(&StepQuery::default()), count(&of_task)), (FORMAT, (2, 2), (1, 1)));
    assert_eq!(store.steps(workspace.id, &of_task).unwrap()[0].step.meta.context, context);
    index();
    assert_eq!((search(&StepQuery::default()), search(&of_task)), (2, 1));
}

/// Over many steps, a trace is found by an index, which the first query for one creates.
#[test]
fn a_trace_among_many_steps_is_found_by_an_index() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(&store, b"/w");
    let state = Hash::of(ObjectKind::State, b"");
    let step = |at: u32| {
        let trace = Some(format!("trace {}", at / 10));
        let meta =
            StepMeta { context: StepContext { trace, ..StepContext::default() }, ..StepMeta::default() };
        append(Step { meta, ..sample.step(session.id, state) })
    };
    store.commit(None, &(0..20_001).map(step).collect::<Vec<_>>()).unwrap();
    let query = StepQuery { trace: Some("trace 7".into()), ..StepQuery::default() };
    for place in [None, Some(workspace.id)] {
        let page = store.find(place, &query).unwrap();
        let numbers: Vec<u64> = page.steps.iter().map(|placed| placed.stored.step.number).collect();
        assert_eq!((page.total, numbers), (10, (71..=80).rev().collect()));
    }
    let plan = "EXPLAIN QUERY PLAN SELECT 1 FROM steps s WHERE 1 AND +s.workspace = ?1 AND s.trace = ?2 ORDER BY s.number";
    let db = Connection::open(database(dir.path())).unwrap();
    let used: String = db.query_row(plan, [1, 2], |row| row.get(3)).unwrap();
    assert!(used.contains("steps_of_trace"), "{used}");
}

/// An older program goes on with a store of its format until something is written that it would not understand.
#[test]
fn an_older_format_is_raised_by_the_first_change_that_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let other = Connection::open(database(dir.path())).unwrap();
    let version = || other.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0)).unwrap();
    assert_eq!(version(), FORMAT);
    other.pragma_update(None, "user_version", 1).unwrap();
    let sample = Sample::new(1);
    let (_, session) = sample.begin(&store, b"/w");
    let state = Hash::of(ObjectKind::State, b"");
    // Without steps and small objects there is nothing that an older program would not understand.
    assert_eq!(version(), 1);
    put(&store, &[b"small"]);
    assert_eq!(version(), FORMAT);
    other.pragma_update(None, "user_version", 3).unwrap();
    store.commit(None, &[append(sample.step(session.id, state))]).unwrap();
    assert_eq!(version(), FORMAT);
    other.execute_batch("DROP TABLE plans; PRAGMA user_version = 2").unwrap();
    assert!(store.plan("p").unwrap().is_none() && !store.remove_plan("p").unwrap());
    assert_eq!(version(), 2);
    let (id, workspace, created_at) = ("p".to_owned(), session.workspace, session.started_at);
    store.put_plan(&StoredPlan { id, workspace, created_at, body: Vec::new() }).unwrap();
    assert!(store.plan("p").unwrap().is_some());
    assert_eq!(version(), FORMAT);
}

#[test]
fn a_database_of_another_program_is_refused_and_left_alone() {
    for (application, version) in [(0, 0), (0, 3), (77, 0), (-5, -1)] {
        let dir = tempfile::tempdir().unwrap();
        let foreign = Connection::open(database(dir.path())).unwrap();
        foreign.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1);").unwrap();
        foreign.pragma_update(None, "application_id", application).unwrap();
        foreign.pragma_update(None, "user_version", version).unwrap();
        drop(foreign);
        let before = fs::read(database(dir.path())).unwrap();
        for result in [EmbeddedStore::open(dir.path()), EmbeddedStore::open_existing(dir.path())] {
            assert!(matches!(result, Err(StoreError::NotAStore { .. })), "{result:?}");
        }
        assert!(fs::read(database(dir.path())).unwrap() == before, "the foreign database was changed");
    }
}

#[test]
fn bytes_that_are_no_database_are_refused_and_left_alone() {
    for bytes in [noise(1, 10_000), b"hello".to_vec(), prose(1, 200)] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(database(dir.path()), &bytes).unwrap();
        let error = EmbeddedStore::open(dir.path()).unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
        assert!(fs::read(database(dir.path())).unwrap() == bytes);
    }
}

#[test]
fn an_empty_file_is_a_store_that_was_never_finished() {
    let dir = tempfile::tempdir().unwrap();
    EmbeddedStore::open(dir.path()).unwrap();
    for name in ["log.sqlite", "log.sqlite-wal", "log.sqlite-shm"] {
        let _ = fs::remove_file(dir.path().join(name));
    }
    fs::write(database(dir.path()), b"").unwrap();
    put(&EmbeddedStore::open(dir.path()).unwrap(), &[b"works"]);
}

#[test]
fn packs_without_their_database_are_never_overwritten() {
    for empty_file in [true, false] {
        let (dir, _) = three_blobs();
        for name in ["log.sqlite", "log.sqlite-wal", "log.sqlite-shm"] {
            let _ = fs::remove_file(dir.path().join(name));
        }
        if empty_file {
            fs::write(database(dir.path()), b"").unwrap();
        }
        let before = fs::read(pack(dir.path(), 1)).unwrap();
        let error = EmbeddedStore::open(dir.path()).unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
        assert!(fs::read(pack(dir.path(), 1)).unwrap() == before);
    }
}

#[test]
fn a_damaged_database_is_an_error_and_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(&store, b"/w");
    let blobs: Vec<Vec<u8>> = (0..400).map(|seed| prose(seed, 3)).collect();
    let written = put(&store, &blobs.iter().map(Vec::as_slice).collect::<Vec<_>>());
    store
        .commit(None, &(0..200).map(|_| append(sample.step(session.id, written[0]))).collect::<Vec<_>>())
        .unwrap();
    store.sweep(&written.iter().copied().collect(), store.commit_seq().unwrap()).unwrap();
    drop(store);
    for name in ["log.sqlite-wal", "log.sqlite-shm"] {
        let _ = fs::remove_file(dir.path().join(name));
    }
    let intact = fs::read(database(dir.path())).unwrap();
    let page = 4096;
    let mut noticed = 0;
    for at in 0..intact.len() / page {
        let mut damaged = intact.clone();
        // The first page keeps its header, so that its damage is not only "not a database".
        let start = at * page + if at == 0 { 100 } else { 0 };
        damaged[start..start + 1500].copy_from_slice(&noise(at as u64, 1500));
        for name in ["log.sqlite-wal", "log.sqlite-shm"] {
            let _ = fs::remove_file(dir.path().join(name));
        }
        fs::write(database(dir.path()), &damaged).unwrap();
        let complaints = match EmbeddedStore::open(dir.path()) {
            Err(error) => vec![error.to_string()],
            Ok(store) => {
                let mut complaints = Vec::new();
                let mut note = |result: Result<(), String>| complaints.extend(result.err());
                note(store.checkpoints(workspace.id).map(drop).map_err(|error| error.to_string()));
                note(store.sessions(workspace.id).map(drop).map_err(|error| error.to_string()));
                note(store.for_each_object(&mut |_| {}).map_err(|error| error.to_string()));
                for (hash, bytes) in written.iter().zip(&blobs) {
                    match read(&store, *hash) {
                        Ok(found) => assert_eq!(found, *bytes, "a wrong answer"),
                        Err(error) => note(Err(error.to_string())),
                    }
                }
                // Whatever becomes of it: not a panic.
                let sweep = |mark| store.sweep(&written.iter().copied().collect(), mark);
                note(store.commit_seq().and_then(sweep).map(drop).map_err(|error| error.to_string()));
                match store.check() {
                    Ok(problems) => complaints.extend(problems),
                    Err(error) => complaints.push(error.to_string()),
                }
                complaints
            }
        };
        assert!(complaints.iter().all(|text| !text.is_empty()));
        noticed += usize::from(!complaints.is_empty());
    }
    assert!(noticed * 10 >= intact.len() / page * 8, "only {noticed} of {} pages", intact.len() / page);
}

#[test]
fn a_row_with_absurd_numbers_is_damage_and_does_not_eat_the_memory() {
    let (dir, blobs) = three_blobs();
    let (hash, _) = blobs[1];
    let damages = [
        "record_len = 4611686018427387904",
        "record_len = -1",
        "offset = -1",
        "offset = 9223372036854775807",
        "raw_len = 4294967295",
        "depth = 7",
        "base = hash",
    ];
    for damage in damages {
        let db = Connection::open(database(dir.path())).unwrap();
        let columns = "offset, record_len, raw_len, depth, base";
        db.execute_batch(&format!("CREATE TEMP TABLE kept AS SELECT hash, {columns} FROM objects")).unwrap();
        db.execute(&format!("UPDATE objects SET {damage} WHERE hash = ?1"), [hash.as_bytes().as_slice()])
            .unwrap();
        let store = EmbeddedStore::open(dir.path()).unwrap();
        assert_corrupt(&store, hash);
        assert_eq!(read(&store, blobs[0].0).unwrap(), noise(1, 100_000), "{damage}");
        db.execute_batch(&format!(
            "UPDATE objects SET ({columns}) = (SELECT {columns} FROM kept WHERE kept.hash = objects.hash)"
        ))
        .unwrap();
        assert_eq!(read(&store, hash).unwrap(), noise(2, 100_000), "{damage}");
    }
}

#[test]
fn a_pack_whose_row_is_lost_is_reported_and_kept() {
    let (dir, blobs) = three_blobs();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    Connection::open(database(dir.path())).unwrap().execute("DELETE FROM packs", []).unwrap();
    assert_eq!(store.check().unwrap(), ["3 objects are in no committed part of a pack"]);
    store.sweep(&blobs.iter().map(|(hash, _)| *hash).collect(), store.commit_seq().unwrap()).unwrap();
    assert_eq!(read(&store, blobs[0].0).unwrap(), noise(1, 100_000));
}

#[test]
fn a_truncated_pack_loses_only_what_was_cut_off() {
    let (dir, mut blobs) = three_blobs();
    blobs.sort_by_key(|(_, offset)| *offset);
    File::options().write(true).open(pack(dir.path(), 1)).unwrap().set_len(blobs[2].1 + 1000).unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    assert_corrupt(&store, blobs[2].0);
    for (hash, _) in &blobs[..2] {
        read(&store, *hash).unwrap();
    }
    let problems = store.check().unwrap();
    assert!(problems.len() == 1 && problems[0].contains("00000001.pack"), "{problems:?}");

    // Writing goes on, elsewhere.
    let new = put(&store, &[&noise(9, 100_000)])[0];
    assert_eq!(read(&store, new).unwrap(), noise(9, 100_000));
    assert!(pack(dir.path(), 2).exists());
    // A sweep leaves what is left of the pack alone, and removes it when nobody needs it.
    store.sweep(&HashSet::from([blobs[0].0, new]), store.commit_seq().unwrap()).unwrap();
    read(&store, blobs[0].0).unwrap();
    store.sweep(&HashSet::from([new]), store.commit_seq().unwrap()).unwrap();
    assert!(!pack(dir.path(), 1).exists());
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
    assert_eq!(read(&store, new).unwrap(), noise(9, 100_000));
}

/// The bytes of the pack that are the record of an object.
fn record_of(dir: &Path, hash: Hash) -> std::ops::Range<usize> {
    let db = Connection::open(database(dir)).unwrap();
    let find = "SELECT offset, record_len FROM objects WHERE hash = ?1 AND pack = 1";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, u32>(0)? as usize, row.get::<_, u32>(1)? as usize));
    let (offset, len) = db.query_row(find, [hash.as_bytes().as_slice()], read).unwrap();
    offset..offset + len
}

#[test]
fn little_is_kept_in_the_database_and_freed_there() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let db = Connection::open(database(dir.path())).unwrap();
    let records = || db.query_row("SELECT count(*) FROM records", [], |row| row.get::<_, u32>(0)).unwrap();
    let small = put(&store, &[b"one", b"two"]);
    assert_eq!((records(), fs::read_dir(dir.path().join("packs")).unwrap().count()), (2, 0));
    // What turns out to be much goes into a pack, with everything before it.
    let much: Vec<Vec<u8>> = (0..30).map(|at| noise(at, 1000)).collect();
    let much: Vec<&[u8]> = much.iter().map(Vec::as_slice).collect();
    let large = put(&store, &much);
    assert_eq!((records(), fs::read_dir(dir.path().join("packs")).unwrap().count()), (2, 1));
    for (hash, bytes) in large.iter().zip(&much) {
        assert_eq!(read(&store, *hash).unwrap(), *bytes);
    }
    // Two who store the same at once have one record.
    let others = EmbeddedStore::open(dir.path()).unwrap();
    let batches = [&store, &others].map(|store| {
        let batch = store.begin().unwrap();
        batch.write(ObjectKind::Blob, b"three", None).unwrap();
        (store, batch.finish().unwrap())
    });
    for (store, batch) in batches {
        store.commit(Some(batch), &[]).unwrap();
    }
    assert_eq!(records(), 3);
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
    store.sweep(&HashSet::from([small[1]]), store.commit_seq().unwrap()).unwrap();
    assert_eq!(records(), 1);
    assert_eq!(read(&store, small[1]).unwrap(), b"two");
    assert!(matches!(read(&store, small[0]), Err(ObjectError::Missing { .. })));
    assert_eq!(store.check().unwrap(), Vec::<String>::new());

    db.execute("UPDATE records SET record = zeroblob(length(record))", []).unwrap();
    assert_corrupt(&store, small[1]);
    db.execute("DELETE FROM records", []).unwrap();
    assert_corrupt(&store, small[1]);
    assert_eq!(store.check().unwrap(), ["1 objects have no record in the database"]);
}

#[test]
fn a_store_of_format_1_has_its_records_in_packs_until_it_is_raised() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let db = Connection::open(database(dir.path())).unwrap();
    db.execute_batch("DROP TABLE records; PRAGMA user_version = 1").unwrap();
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
    store.sweep(&HashSet::new(), store.commit_seq().unwrap()).unwrap();
    let small = put(&store, &[b"one"])[0];
    assert_eq!(read(&store, small).unwrap(), b"one");
    let version = db.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0)).unwrap();
    assert_eq!(version, FORMAT);
}

#[test]
fn a_flipped_byte_is_noticed_and_never_gives_a_wrong_answer() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let (mut text, mut objects) = (prose(1, 100), Vec::new());
    for version in 0..3 {
        text.extend_from_slice(b"one line more\n");
        let batch = store.begin().unwrap();
        objects.push(batch.write(ObjectKind::Blob, &text, objects.last().copied()).unwrap());
        objects.push(batch.write(ObjectKind::Blob, &[version; 20], None).unwrap());
        // With much else, so that they are in a pack.
        batch.write(ObjectKind::Blob, &noise(u64::from(version), 20_000), None).unwrap();
        store.commit(Some(batch.finish().unwrap()), &[]).unwrap();
    }
    let file = File::options().read(true).write(true).open(pack(dir.path(), 1)).unwrap();
    let intact = fs::read(pack(dir.path(), 1)).unwrap();
    let readable = || objects.iter().filter(|hash| read(&store, **hash).is_ok()).count();
    assert_eq!(readable(), 6);
    let mut unnoticed = 0;
    let records: Vec<_> = objects.iter().map(|hash| record_of(dir.path(), *hash)).collect();
    for at in records.into_iter().flatten() {
        file.write_all_at(&[intact[at] ^ 0x10], at as u64).unwrap();
        for hash in &objects {
            match read(&store, *hash) {
                Ok(bytes) => assert_eq!(Hash::of(ObjectKind::Blob, &bytes), *hash),
                Err(error) => assert!(matches!(error, ObjectError::Corrupt { .. }), "{error:?}"),
            }
        }
        unnoticed += usize::from(readable() == 6);
        file.write_all_at(&intact[at..=at], at as u64).unwrap();
    }
    assert_eq!(readable(), 6);
    // Three reserved bytes in each record's header, and a few bits of a zstd frame, mean nothing.
    assert!(unnoticed < objects.len() * 8, "{unnoticed} of {} flips were not noticed", intact.len());
    file.write_all_at(b"X", 0).unwrap();
    assert_eq!(store.check().unwrap().len(), 1);
}

#[test]
fn a_missing_pack_is_damage_and_the_store_stays_usable() {
    let (dir, blobs) = three_blobs();
    fs::remove_file(pack(dir.path(), 1)).unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    assert_corrupt(&store, blobs[0].0);
    assert_eq!(store.check().unwrap().len(), 1);
    let new = put(&store, &[b"new"])[0];
    store.sweep(&HashSet::from([blobs[0].0, new]), store.commit_seq().unwrap()).unwrap();
    assert_eq!(store.check().unwrap().len(), 1, "a sweep hid the damage");
    store.sweep(&HashSet::from([new]), store.commit_seq().unwrap()).unwrap();
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
    assert_eq!(read(&store, new).unwrap(), b"new");
}

#[test]
fn what_given_up_batches_leave_behind_is_used_again_and_freed() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    for seed in 0..5 {
        let batch = store.begin().unwrap();
        batch.write(ObjectKind::Blob, &noise(seed, 3 << 20), None).unwrap();
        drop(batch.finish().unwrap());
    }
    assert_eq!(fs::read_dir(dir.path().join("packs")).unwrap().count(), 1, "every failure left a pack");
    let kept = put(&store, &[b"kept"])[0];
    let batch = store.begin().unwrap();
    batch.write(ObjectKind::Blob, &noise(9, 3 << 20), None).unwrap();
    drop(batch);
    // A crash between forgetting a pack and removing its file.
    fs::write(pack(dir.path(), 77), noise(1, 1 << 20)).unwrap();
    store.sweep(&HashSet::from([kept]), store.commit_seq().unwrap()).unwrap();
    assert!(store.usage().unwrap().total_bytes < 1 << 20, "{:?}", store.usage().unwrap());
    assert_eq!(read(&store, kept).unwrap(), b"kept");
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_place_where_no_store_can_be_is_a_clear_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"not a directory").unwrap();
    for path in [file.clone(), file.join("below")] {
        let error = EmbeddedStore::open(&path).unwrap_err();
        assert!(matches!(error, StoreError::Io { .. }), "{error:?}");
        assert!(error.to_string().contains("file"), "{error}");
        let error = EmbeddedStore::open_existing(&path).unwrap_err();
        assert!(matches!(error, StoreError::Io { .. } | StoreError::Absent { .. }), "{error:?}");
    }
    fs::create_dir(dir.path().join("log.sqlite")).unwrap();
    let error = EmbeddedStore::open(dir.path()).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error:?}");
}

#[test]
fn a_directory_without_permission_is_a_clear_error() {
    if process::ran_as_ordinary_user("a_directory_without_permission_is_a_clear_error") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let error = EmbeddedStore::open(&dir.path().join("store")).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error:?}");
    let error = EmbeddedStore::open(dir.path()).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error:?}");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn everything_the_store_makes_is_private_whatever_the_umask() {
    for umask in ["0", "22", "77"] {
        process::expect_success(process::spawn("child_makes_a_store_under_a_umask", umask));
    }
}

#[test]
fn child_makes_a_store_under_a_umask() {
    let Some(umask) = process::task() else { return };
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(u32::from_str_radix(&umask, 8).unwrap()));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("made/store");
    let store = EmbeddedStore::open(&path).unwrap();
    let kept = put(&store, &[&noise(1, 100_000), b"kept"])[1];
    // Makes a second pack.
    store.sweep(&HashSet::from([kept]), store.commit_seq().unwrap()).unwrap();
    put(&store, &[b"more"]);
    let mut files = 0;
    let mut dirs = vec![path.clone()];
    while let Some(dir) = dirs.pop() {
        let mode = fs::metadata(&dir).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{} has mode {mode:o}", dir.display());
        for entry in fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                dirs.push(entry.path());
                continue;
            }
            files += 1;
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{} has mode {mode:o}", entry.path().display());
        }
    }
    assert!(files >= 4, "database, -wal, -shm and packs; found {files}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    store.tighten_permissions().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
}
