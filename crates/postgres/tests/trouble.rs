//! What goes wrong with a server is said with what to do about it.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::path::Path;
use std::time::Duration;

use stepback_postgres::{Access, FORMAT, PostgresStore};
use stepback_store::StoreError;
use stepback_store::copy::INCOMPLETE;
use stepback_store::port::{Mutation, StepQuery};
use stepback_store::prelude::*;
use stepback_testkit::postgres::PostgresServer;
use stepback_testkit::sample::{Sample, put};

/// What a server's refusal says, and what to do.
fn refused<T>(result: Result<T, StoreError>) -> (String, &'static str) {
    match result.map(|_| ()).unwrap_err() {
        StoreError::Server { what, why, remedy } => (format!("{what}: {why}"), remedy),
        other => panic!("{other:?}"),
    }
}

fn impatient(url: &str, local: &Path, patience: Duration) -> Result<PostgresStore, StoreError> {
    PostgresStore::connect(&Access { patience: Some(patience), ..Access::new(url, local) })
}

#[test]
fn what_cannot_be_opened_is_explained() {
    let server = PostgresServer::start();
    let local = tempfile::tempdir().unwrap();
    let open = |url: &str| PostgresStore::open(url, local.path());

    let (said, remedy) = refused(open(&server.address("nowhere")));
    assert!(said.contains("nowhere") && said.contains("does not exist"), "{said}");
    assert!(remedy.contains("createdb"), "{remedy}");

    let (said, remedy) = refused(open("postgres://test@127.0.0.1:1/x"));
    assert!(said.contains("127.0.0.1:1") && said.contains("refused"), "{said}");
    assert!(remedy.contains("running"), "{remedy}");

    let url = server.database();
    let error = PostgresStore::connect_existing(&Access::new(&url, local.path())).unwrap_err();
    assert!(matches!(error, StoreError::Absent { .. }), "{error}");

    // Over TCP with a password from here on.
    server.sql("postgres", "CREATE ROLE ann LOGIN PASSWORD 'right'");
    server.require_passwords();
    let wrong = url.replace("test@", "ann:wrong@");
    let (said, remedy) = refused(open(&wrong));
    assert!(said.contains("password") && !said.contains("wrong@") && !said.contains(":wrong"), "{said}");
    assert!(remedy.contains("PGPASSWORD"), "{remedy}");

    let (said, remedy) = refused(open(&url.replace("test@", "ann:right@")));
    assert!(said.contains("permission denied"), "{said}");
    assert!(remedy.contains("permission"), "{remedy}");
}

/// Whatever is refused when a commit begins, nothing of it takes effect by itself.
#[test]
fn a_commit_that_cannot_begin_leaves_nothing() {
    let server = PostgresServer::start();
    let url = server.database();
    let local = tempfile::tempdir().unwrap();
    let store = PostgresStore::open(&url, local.path()).unwrap();
    let sample = Sample::new(1);
    sample.begin(&store, b"/before");
    let counts =
        "SELECT (SELECT count(*) FROM stepback_workspaces), (SELECT count(*) FROM stepback_sessions),
        (SELECT count(*) FROM stepback_objects), (SELECT sum(steps) FROM stepback_workspaces)";
    let before = server.sql("test0", counts);
    // As while everything is being freed, for longer than this server lets anybody wait.
    let key = "current_schema()::regnamespace::oid::integer";
    let freeing = format!("SELECT pg_advisory_xact_lock({}, {key})", 0x5342_0002);
    let holder = server.hold("test0", &freeing);
    server.sql("test0", "ALTER DATABASE test0 SET statement_timeout = '200ms'");
    let other = PostgresStore::open(&url, local.path()).unwrap();
    let batch = other.begin().unwrap();
    batch.write(stepback_model::hash::ObjectKind::Blob, b"never there", None).unwrap();
    let workspace = Sample::new(2).workspace(b"/never");
    let result = other.commit(Some(batch.finish().unwrap()), &[Mutation::AddWorkspace(workspace)]);
    assert!(result.is_err(), "{result:?}");
    drop(holder);
    server.sql("test0", "ALTER DATABASE test0 RESET statement_timeout");
    assert_eq!(server.sql("test0", counts), before);
}

#[test]
fn a_newer_store_is_refused_before_and_after_it_was_opened() {
    let server = PostgresServer::start();
    let url = server.database();
    let local = tempfile::tempdir().unwrap();
    let old = PostgresStore::open(&url, local.path()).unwrap();
    server.sql("test0", &format!("UPDATE stepback_schema SET version = {}", FORMAT + 1));
    for result in [
        PostgresStore::open(&url, local.path()),
        PostgresStore::connect_existing(&Access::new(&url, local.path())),
    ] {
        let error = result.unwrap_err();
        assert!(matches!(error, StoreError::Newer { found, .. } if found == FORMAT + 1), "{error}");
    }
    let error = old.commit(None, &[Mutation::DropRef { name: "x".into() }]).unwrap_err();
    assert!(matches!(error, StoreError::Newer { .. }), "{error}");
}

#[test]
fn half_a_copy_is_refused() {
    let server = PostgresServer::start();
    let url = server.database();
    let local = tempfile::tempdir().unwrap();
    let store = PostgresStore::open(&url, local.path()).unwrap();
    let value = stepback_model::ids::StepId::from_bytes([0; 16]);
    let marker = Mutation::SetRef { name: INCOMPLETE.into(), expected: None, value };
    store.commit(None, &[marker]).unwrap();
    let error = PostgresStore::open(&url, local.path()).unwrap_err();
    assert!(error.to_string().contains("copy"), "{error}");
}

#[test]
fn a_server_that_refuses_to_write_says_why_and_recovers() {
    let mut server = PostgresServer::start();
    let url = server.database();
    let local = tempfile::tempdir().unwrap();
    let store = PostgresStore::open(&url, local.path()).unwrap();
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(&store, b"/w");
    let commit = |store: &PostgresStore| store.commit(None, &[Mutation::DropRef { name: "x".into() }]);

    server.sql("postgres", "ALTER DATABASE test0 SET default_transaction_read_only = on");
    let other = PostgresStore::open(&url, local.path()).unwrap();
    let (said, remedy) = refused(commit(&other));
    assert!(said.contains("read-only"), "{said}");
    assert!(remedy.contains("primary"), "{remedy}");
    assert_eq!(other.workspaces().unwrap().len(), 1, "reading works");
    server.sql("postgres", "ALTER DATABASE test0 RESET default_transaction_read_only");

    server.sql("postgres", "ALTER DATABASE test0 SET statement_timeout = '1ms'");
    let other = impatient(&url, local.path(), Duration::from_secs(5));
    let blobs: Vec<Vec<u8>> = (0..50).map(|seed| stepback_testkit::sample::noise(seed, 100_000)).collect();
    let said = other.and_then(|other| {
        let batch = other.begin()?;
        for bytes in &blobs {
            batch.write(stepback_model::ObjectKind::Blob, bytes, None)?;
        }
        other.commit(Some(batch.finish()?), &[])
    });
    let (said, remedy) = refused(said);
    assert!(said.contains("statement timeout") && remedy.contains("statement_timeout"), "{said}; {remedy}");
    server.sql("postgres", "ALTER DATABASE test0 RESET statement_timeout");

    // Somebody who holds the workspace for too long.
    let hurried = impatient(&url, local.path(), Duration::from_millis(300)).unwrap();
    let holder = server.hold("test0", "SELECT * FROM stepback_workspaces FOR UPDATE");
    let late = sample.step(session.id, stepback_model::Hash::from_bytes([1; 32]));
    let error = hurried.commit(None, &[stepback_testkit::sample::append(late)]).unwrap_err();
    assert!(matches!(error, StoreError::Locked), "{error:?}");
    drop(holder);

    // Away, and back: the same store goes on.
    server.crash();
    let away = impatient(&url, local.path(), Duration::from_secs(1));
    let (said, _) = refused(away);
    assert!(said.contains("refused"), "{said}");
    server.restart();
    put(&store, &[b"works again"]);
    assert_eq!(sample.append(&store, session.id, b"more").1.steps, [1]);
    assert_eq!(store.checkpoints(workspace.id).unwrap().len(), 1);
}

#[test]
fn what_is_local_is_forgotten_with_the_store_it_was_about() {
    let server = PostgresServer::start();
    let url = server.database();
    let local = tempfile::tempdir().unwrap();
    drop(PostgresStore::open(&url, local.path()).unwrap());
    std::fs::create_dir(local.path().join("workspaces")).unwrap();
    std::fs::write(local.path().join("settings.json"), "{}").unwrap();
    drop(PostgresStore::open(&url, local.path()).unwrap());
    assert!(local.path().join("workspaces").exists());
    server.sql("postgres", "DROP DATABASE test0 WITH (FORCE)");
    server.sql("postgres", "CREATE DATABASE test0");
    drop(PostgresStore::open(&url, local.path()).unwrap());
    assert!(!local.path().join("workspaces").exists(), "caches of another store were kept");
    assert!(local.path().join("settings.json").exists());
}

#[test]
fn a_server_without_room_loses_nothing() {
    let server = PostgresServer::start();
    let url = server.database();
    let local = tempfile::tempdir().unwrap();
    let before = PostgresStore::open(&url, local.path()).unwrap();
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(&before, b"/w");
    // A segment of the server's log has 16 MiB; what is left is for tables.
    server.limit_files(Some(17 << 20));
    let store = impatient(&url, local.path(), Duration::from_secs(5)).unwrap();
    let append = |store: &PostgresStore, seed: u64| {
        let batch = store.begin()?;
        let bytes = stepback_testkit::sample::noise(seed, 1500);
        let mut steps = Vec::new();
        for at in 0..2000u64 {
            let mut bytes = bytes.clone();
            bytes[..8].copy_from_slice(&at.to_le_bytes());
            let state = batch.write(stepback_model::ObjectKind::Blob, &bytes, None)?;
            if at == 0 {
                steps.push(stepback_testkit::sample::append(sample.step(session.id, state)));
            }
        }
        store.commit(Some(batch.finish()?), &steps)
    };
    let mut there = 0;
    let refusal = loop {
        match append(&store, there + 1) {
            Ok(_) => there += 1,
            Err(error) => break refused(Err::<(), _>(error)),
        }
        assert!(there < 50, "the server has room");
    };
    assert!(refusal.0.contains("could not extend file"), "{}", refusal.0);
    assert!(refusal.1.contains("free space") && refusal.1.contains("nothing was changed"), "{}", refusal.1);
    assert_eq!(store.steps(workspace.id, &StepQuery::default()).unwrap().len() as u64, there);
    // With room again, the same commit succeeds.
    drop(store);
    server.limit_files(None);
    let store = PostgresStore::open(&url, local.path()).unwrap();
    assert_eq!(append(&store, there + 1).unwrap().steps, [there + 1]);
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
}
