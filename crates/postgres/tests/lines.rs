//! Lines to the server that break, or change what is said, in the middle of a commit.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use stepback_model::hash::{Hash, ObjectKind};
use stepback_postgres::PostgresStore;
use stepback_store::port::{Mutation, StepQuery};
use stepback_store::prelude::*;
use stepback_testkit::postgres::PostgresServer;
use stepback_testkit::sample::{Sample, append};

const STATE: Hash = Hash::from_bytes([7; 32]);

/// Stands between a store and its server, and cuts the connection when the end of a transaction passes: before the server
/// gets it, or after it has answered.
struct Cutter {
    port: u16,
    armed: Arc<AtomicUsize>,
}

const BEGIN: &[u8] = b"BEGIN; SELECT pg_advisory";
const BEFORE: usize = 1;
const AFTER: usize = 2;
/// What begins a transaction is something that the server does not understand.
const MANGLED: usize = 3;
/// The server receives it, and no client waits for its answer.
const WHILE: usize = 4;

impl Cutter {
    fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let armed = Arc::new(AtomicUsize::new(0));
        let watched = armed.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(("127.0.0.1", to)).unwrap();
                let cut = Arc::new(AtomicBool::new(false));
                let (mut from, mut into) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (armed, cutting) = (watched.clone(), cut.clone());
                std::thread::spawn(move || {
                    let mut buffer = [0; 65536];
                    while let Ok(len @ 1..) = from.read(&mut buffer) {
                        let begins = buffer[..len].windows(BEGIN.len()).position(|bytes| bytes == BEGIN);
                        if let Some(at) = begins.filter(|_| armed.load(Ordering::SeqCst) == MANGLED) {
                            buffer[at] = b'?';
                            armed.store(0, Ordering::SeqCst);
                        }
                        let said =
                            |words: &[u8]| buffer[..len].windows(words.len()).any(|bytes| bytes == words);
                        // Either the end itself, or a call that is all of a commit, with its step.
                        if said(b"; COMMIT") || said(b"a step") {
                            match armed.swap(0, Ordering::SeqCst) {
                                BEFORE => break,
                                AFTER => cutting.store(true, Ordering::SeqCst),
                                WHILE => {
                                    let _ = into.write_all(&buffer[..len]);
                                    break;
                                }
                                _ => {}
                            }
                        }
                        if into.write_all(&buffer[..len]).is_err() {
                            break;
                        }
                    }
                    let _ = (from.shutdown(Shutdown::Both), into.shutdown(Shutdown::Both));
                });
                std::thread::spawn(move || {
                    let (mut from, mut into) = (server, client);
                    let mut buffer = [0; 65536];
                    while let Ok(len @ 1..) = from.read(&mut buffer) {
                        if cut.load(Ordering::SeqCst) || into.write_all(&buffer[..len]).is_err() {
                            break;
                        }
                    }
                    let _ = (from.shutdown(Shutdown::Both), into.shutdown(Shutdown::Both));
                });
            }
        });
        Self { port, armed }
    }
}

/// A store whose line to its server can be cut.
struct Line {
    store: PostgresStore,
    _local: tempfile::TempDir,
    cutter: Cutter,
    server: PostgresServer,
}

impl Line {
    fn new() -> Self {
        let server = PostgresServer::start();
        let url = server.database();
        let cutter = Cutter::start(server.port());
        let through = url.replace(&format!(":{}/", server.port()), &format!(":{}/", cutter.port));
        let local = tempfile::tempdir().unwrap();
        let store = PostgresStore::open(&through, local.path()).unwrap();
        Self { store, _local: local, cutter, server }
    }
}

#[test]
fn a_commit_whose_answer_is_lost_is_neither_done_twice_nor_given_up() {
    let Line { cutter, store, .. } = &Line::new();
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/w");
    for (at, when) in [BEFORE, AFTER, AFTER, BEFORE].into_iter().enumerate() {
        let batch = store.begin().unwrap();
        let state = batch.write(ObjectKind::Blob, &[at as u8], None).unwrap();
        let batch = batch.finish().unwrap();
        cutter.armed.store(when, Ordering::SeqCst);
        let receipt = store.commit(Some(batch), &[append(sample.step(session.id, state))]).unwrap();
        assert_eq!(cutter.armed.load(Ordering::SeqCst), 0, "nothing was cut");
        assert_eq!(receipt.steps, [at as u64 + 1]);
    }
    assert_eq!(store.steps(workspace.id, &StepQuery::default()).unwrap().len(), 4);
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
}

/// The connection is lost while the server still waits for another transaction: what it does later must not be repeated.
#[test]
fn a_commit_that_goes_on_without_its_client_is_waited_for() {
    let Line { server, cutter, store, .. } = &Line::new();
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/w");
    store.commit(None, &[append(sample.step(session.id, STATE))]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            server.sql(
                "test0",
                "BEGIN; UPDATE stepback_workspaces SET steps = steps; SELECT pg_sleep(2); COMMIT",
            )
        });
        std::thread::sleep(std::time::Duration::from_millis(700));
        cutter.armed.store(WHILE, Ordering::SeqCst);
        let receipt = store.commit(None, &[append(sample.step(session.id, STATE))]).unwrap();
        assert_eq!(cutter.armed.load(Ordering::SeqCst), 0, "nothing was cut");
        assert_eq!(receipt.steps, [2]);
    });
    assert_eq!(store.steps(workspace.id, &StepQuery::default()).unwrap().len(), 2);
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
}

/// A commit that begins first is refused as a whole when the server refuses to begin.
#[test]
fn nothing_takes_effect_when_the_server_refuses_to_begin() {
    let Line { server, cutter, store, .. } = &Line::new();
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/w");
    store.commit(None, &[append(sample.step(session.id, STATE))]).unwrap();
    let rows = "SELECT (SELECT count(*) FROM stepback_objects), (SELECT count(*) FROM stepback_steps),
        (SELECT count(*) FROM stepback_sessions), (SELECT string_agg(info::text, ' ') FROM stepback_sessions),
        (SELECT sum(steps) FROM stepback_workspaces), (SELECT sum(steps) FROM stepback_tallies)";
    let before = server.sql("test0", rows);
    let everything = || {
        let batch = store.begin().unwrap();
        let state = batch.write(ObjectKind::Blob, b"never there", None).unwrap();
        let mut info = session.info.clone();
        info.model = Some("another".into());
        let other = sample.session(workspace.id);
        let mutations = [
            append(sample.step(session.id, state)),
            Mutation::SetSessionInfo { session: session.id, info: Box::new(info) },
            append(sample.step(other.id, state)),
            Mutation::AddSession(other),
            Mutation::SetRef {
                name: "somewhere".into(),
                expected: None,
                value: sample.step(session.id, state).id,
            },
        ];
        store.commit(Some(batch.finish().unwrap()), &mutations)
    };
    cutter.armed.store(MANGLED, Ordering::SeqCst);
    let refused = everything();
    assert_eq!(cutter.armed.load(Ordering::SeqCst), 0, "nothing was mangled");
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(server.sql("test0", rows), before);
    assert_eq!(everything().unwrap().steps, [2, 3], "and then it works");
    assert_ne!(server.sql("test0", rows), before);
}
