//! Bytes that no client of ours sends, and servers that come and go.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use crate::support::{TestServer, service};
use stepback_model::hash::ObjectKind;
use stepback_model::object::ObjectSource as _;
use stepback_remote::{ClientConfig, RemoteStore, UnixStoreListener};
use stepback_store::StoreError;
use stepback_store::prelude::*;
use stepback_testkit::sample::{Sample, append, noise, put};

const HELLO: &str = "GET /store HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: stepback-store/1\r\n";

/// Sends bytes, and returns what comes back until the server closes the connection.
fn exchange(server: &TestServer, parts: &[&[u8]]) -> Vec<u8> {
    let mut stream = UnixStream::connect(server.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    for part in parts {
        // The server may have closed it already.
        let _ = stream.write_all(part);
    }
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn status(answer: &[u8]) -> String {
    String::from_utf8_lossy(answer).split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn wrong_requests_are_refused_with_a_reason() {
    let server = TestServer::start();
    for (request, wanted) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "404"),
        ("POST /store HTTP/1.1\r\n\r\n".to_owned(), "404"),
        ("GET /store HTTP/1.1\r\n\r\n".to_owned(), "426"),
        (HELLO.replace("store/1", "store/9") + "\r\n", "426"),
        (format!("{HELLO}Authorization: Bearer wrong\r\n\r\n"), "401"),
        (format!("{HELLO}Authorization: Bearer \r\n\r\n"), "401"),
        (format!("{HELLO}\r\n"), "101"),
    ] {
        let answer = exchange(&server, &[request.as_bytes()]);
        assert_eq!(status(&answer), wanted, "{request}");
    }
    // Heads that are too long, cut, or no text.
    assert!(exchange(&server, &[&vec![b'x'; 20_000]]).is_empty());
    assert!(exchange(&server, &[b"GET /store"]).is_empty());
    assert!(exchange(&server, &[b"\xff\xfe\r\n\r\n"]).is_empty());
    assert!(server.agent().commit_seq().is_ok(), "the server goes on");
}

#[test]
fn hostile_messages_end_their_connection_alone() {
    let server = TestServer::start();
    let hello = format!("{HELLO}\r\n");
    let message = |head: &[u8], body: &[u8]| {
        let lengths = [(head.len() as u32).to_be_bytes(), (body.len() as u32).to_be_bytes()].concat();
        [lengths.as_slice(), head, body].concat()
    };
    let after_hello = |bytes: &[u8]| {
        let answer = exchange(&server, &[hello.as_bytes(), bytes]);
        let end = answer.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
        String::from_utf8_lossy(&answer[end..]).into_owned()
    };
    // Huge lengths, and lengths of bytes that never come.
    assert_eq!(after_hello(&[0xff; 8]), "");
    assert_eq!(after_hello(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]), "");
    assert_eq!(after_hello(&[0x01, 0, 0, 0, 0x10, 0, 0, 0, b'{']), "");
    assert_eq!(after_hello(&[0, 0, 0, 9]), "");
    // What is no request is answered, and the connection goes on.
    for head in ["", "{}", "[]", "\"no_such\"", "{\"read\":{\"kind\":99,\"hash\":\"00\"}}", "{\"commit\":{}}"]
    {
        let both = [message(head.as_bytes(), b""), message(b"\"ping\"", b"")].concat();
        let answers = after_hello(&both);
        assert!(answers.contains("failed") && answers.contains("done"), "{head}: {answers}");
    }
    // Bodies that are not what the head says.
    let zero = "0".repeat(64);
    for (head, body) in [
        (r#"{"find_missing":{"epoch":0}}"#.to_owned(), vec![1; 40]),
        (r#"{"write_objects":{"start":{"epoch":0,"versions":null}}}"#.to_owned(), vec![1; 40]),
        (r#"{"usage_after":{"mutations":[]}}"#.to_owned(), vec![1; 40]),
        (format!(r#"{{"read":{{"kind":1,"hash":"{zero}"}}}}"#), Vec::new()),
        (
            r#"{"commit":{"nonce":"","start":null,"has_sent_ahead":false,"mutations":[]}}"#.to_owned(),
            Vec::new(),
        ),
        (
            r#"{"commit":{"nonce":"n","start":null,"has_sent_ahead":true,"mutations":[]}}"#.to_owned(),
            Vec::new(),
        ),
    ] {
        let answer = after_hello(&message(head.as_bytes(), &body));
        assert!(answer.contains("failed"), "{head}: {answer}");
    }
    assert!(server.agent().commit_seq().is_ok(), "the server goes on");
    assert!(server.store.check().unwrap().is_empty());
}

#[test]
fn a_commit_that_was_cut_changes_nothing() {
    let server = TestServer::start();
    let agent = server.agent();
    let sample = Sample::new(4);
    let (_, session) = sample.begin(&agent, b"/w");
    let before = server.store.commit_seq().unwrap();
    // Objects that are sent ahead of a commit that never comes.
    let batch = agent.begin().unwrap();
    for seed in 0..5 {
        batch.write(ObjectKind::Blob, &noise(seed, 4 << 20), None).unwrap();
    }
    drop(batch);
    assert_eq!(server.store.commit_seq().unwrap(), before);
    let (_, receipt) = sample.append(&agent, session.id, b"next");
    assert_eq!(receipt.steps, [1]);
}

#[test]
fn a_batch_that_is_sent_ahead_is_committed_as_a_whole() {
    let server = TestServer::start();
    let agent = server.agent();
    let blobs: Vec<Vec<u8>> = (0..9).map(|seed| noise(seed, 3 << 20)).collect();
    let known = put(&agent, &[&blobs[0]])[0];
    let batch = agent.begin().unwrap();
    let hashes: Vec<_> =
        blobs.iter().map(|blob| batch.write(ObjectKind::Blob, blob, Some(known)).unwrap()).collect();
    agent.commit(Some(batch.finish().unwrap()), &[]).unwrap();
    for (hash, blob) in hashes.iter().zip(&blobs) {
        assert!(server.store.read(ObjectKind::Blob, *hash).unwrap() == *blob);
        assert!(agent.read(ObjectKind::Blob, *hash).unwrap() == *blob);
    }
}

#[test]
fn a_client_survives_a_restart_of_the_server() {
    let mut server = TestServer::start();
    let agent = server.agent();
    let sample = Sample::new(5);
    let (workspace, session) = sample.begin(&agent, b"/w");
    server.restart();
    let (_, receipt) = sample.append(&agent, session.id, b"after");
    assert_eq!(receipt.steps, [1]);
    server.listener = None;
    let away = agent.workspaces().unwrap_err();
    assert!(matches!(&away, StoreError::Server { .. }), "{away}");
    server.restart();
    assert_eq!(agent.steps(workspace.id, &Default::default()).unwrap().len(), 1);
}

/// Passes bytes on between a client and the real server, and cuts the connection before the answer to the first commit.
fn cut_first_commit_answer(server: &TestServer, name: &str) -> std::path::PathBuf {
    let path = server.dir.path().join(name);
    let listener = UnixListener::bind(&path).unwrap();
    let real = server.socket();
    std::thread::spawn(move || {
        let mut has_cut = false;
        for stream in listener.incoming() {
            let (mut client, mut upstream) = (stream.unwrap(), UnixStream::connect(&real).unwrap());
            let mut buffer = vec![0; 1 << 20];
            // One request at a time: read it, pass it on, pass the answer back.
            while let Ok(read) = client.read(&mut buffer) {
                if read == 0 {
                    break;
                }
                let is_commit = buffer[..read].windows(9).any(|part| part == b"{\"commit\"");
                upstream.write_all(&buffer[..read]).unwrap();
                let answered = upstream.read(&mut buffer).unwrap();
                if is_commit && !has_cut {
                    has_cut = true;
                    break;
                }
                if client.write_all(&buffer[..answered]).is_err() {
                    break;
                }
            }
        }
    });
    path
}

#[test]
fn a_commit_whose_answer_was_lost_takes_effect_once() {
    let server = TestServer::start();
    let sample = Sample::new(6);
    let (workspace, session) = sample.begin(&*server.store, b"/w");
    let socket = cut_first_commit_answer(&server, "cut.sock");
    let config = ClientConfig { address: stepback_remote::RemoteAddress::Unix(socket), ..server.config() };
    let agent = RemoteStore::connect(&config).unwrap();
    let batch = agent.begin().unwrap();
    let state = batch.write(ObjectKind::Blob, b"state", None).unwrap();
    let step = sample.step(session.id, state);
    let receipt = agent.commit(Some(batch.finish().unwrap()), &[append(step.clone())]).unwrap();
    assert_eq!(receipt.steps, [1]);
    let steps = server.store.steps(workspace.id, &Default::default()).unwrap();
    assert_eq!(steps.iter().map(|stored| stored.step.id).collect::<Vec<_>>(), [step.id]);
}

#[test]
fn two_clients_append_at_once_without_a_gap() {
    let server = TestServer::start();
    let sample = Sample::new(7);
    let (workspace, session) = sample.begin(&*server.store, b"/w");
    std::thread::scope(|scope| {
        for client in 0..2u64 {
            let (agent, id) = (server.agent(), session.id);
            scope.spawn(move || {
                let sample = Sample::new(100 + client);
                for number in 0..20u64 {
                    sample.append(&agent, id, format!("{client} {number}").as_bytes());
                }
            });
        }
    });
    let mut numbers: Vec<u64> = server
        .store
        .steps(workspace.id, &Default::default())
        .unwrap()
        .iter()
        .map(|row| row.step.number)
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=40).collect::<Vec<_>>());
    assert!(stepback_store::step_chain::verify(&*server.store, workspace.id).unwrap().breaks.is_empty());
}

#[test]
fn a_server_that_does_not_answer_costs_a_hook_no_more_than_its_patience() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s.sock");
    // Accepts connections in the kernel, and never answers.
    let _listener = UnixListener::bind(&socket).unwrap();
    let address = stepback_remote::RemoteAddress::Unix(socket);
    let patience = Some(Duration::from_millis(50));
    let config = ClientConfig { patience, ..ClientConfig::new(address, &dir.path().join("local")) };
    let error = RemoteStore::connect(&config).unwrap_err().to_string();
    assert!(error.contains("did not answer in time"), "{error}");
}

#[test]
fn a_socket_is_replaced_only_if_no_server_answers() {
    let server = TestServer::start();
    let mode = std::fs::metadata(server.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let again = UnixStoreListener::start(&server.socket(), service(server.store.clone()));
    assert_eq!(again.err().map(|error| error.kind()), Some(std::io::ErrorKind::AddrInUse));
    // The socket of a process that was killed stays behind.
    let stale = server.dir.path().join("stale.sock");
    drop(UnixListener::bind(&stale).unwrap());
    let listener = UnixStoreListener::start(&stale, service(server.store.clone())).unwrap();
    assert!(UnixStream::connect(listener.path()).is_ok());
    drop(listener);
    assert!(!stale.exists());
    let file = server.dir.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    assert!(UnixStoreListener::start(&file, service(server.store.clone())).is_err());
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
}

#[test]
fn a_missing_server_is_reported_with_what_to_do() {
    let server = TestServer::start();
    let config = ClientConfig {
        address: stepback_remote::RemoteAddress::Unix(server.dir.path().join("none.sock")),
        ..server.config()
    };
    let Err(StoreError::Server { what, why, remedy }) = RemoteStore::connect(&config) else { panic!() };
    assert!(what.contains("none.sock") && why.contains("not running") && remedy.contains("serve --guard"));
    let wrong = ClientConfig { token: Some("x".repeat(40)), ..server.config() };
    let Err(StoreError::Server { why, .. }) = RemoteStore::connect(&wrong) else { panic!() };
    assert!(why.contains("token"), "{why}");
}
