//! `stepback serve` under load, and what is left when it is ended or killed: everything that was acknowledged.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::serving::Serving;

const CLIENTS: usize = 4;
/// How many events are in a batch.
pub const EVENTS: usize = 20;
const ENOUGH: usize = 40;
const PATIENCE: Duration = Duration::from_secs(60);

/// Posts a batch on a connection that stays. `None` if the server went away before it had answered.
pub fn post(stream: &mut TcpStream, token: &str, session: &str, first: usize) -> Option<Value> {
    let event = |at: usize| json!({ "session": session, "kind": "agent-step", "id": (first + at).to_string(), "summary": (first + at).to_string() });
    let events: Vec<Value> = (0..EVENTS).map(event).collect();
    let body = json!({ "workspace": "load", "agent": "mine", "events": events }).to_string();
    let request = format!(
        "POST /api/v1/ingest HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line).ok()?;
    if !line.starts_with("HTTP/1.1 200") {
        return None;
    }
    loop {
        line.clear();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut answer = vec![0; length];
    reader.read_exact(&mut answer).ok()?;
    serde_json::from_slice(&answer).ok()
}

/// Loads a server until it is gone, sends it `signal` on the way. Returns what it acknowledged: client, event and number.
fn load(world: &Sandbox, signal: Signal) -> (Vec<(usize, usize, u64)>, Option<i32>) {
    let mut serving = Serving::start(world, &[]);
    let acknowledged = Mutex::new(Vec::new());
    let answers = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (serving, acknowledged, answers) = (&serving, &acknowledged, &answers);
            scope.spawn(move || {
                let Ok(mut stream) = TcpStream::connect(serving.host()) else { return };
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                for batch in 0.. {
                    let first = batch * EVENTS;
                    let Some(answer) = post(&mut stream, &serving.token, &format!("s{client}"), first) else {
                        return;
                    };
                    let numbers = answer["steps"].as_array().unwrap();
                    assert_eq!(numbers.len(), EVENTS);
                    let own = numbers
                        .iter()
                        .enumerate()
                        .map(|(at, number)| (client, first + at, number.as_u64().unwrap()));
                    acknowledged.lock().unwrap_or_else(PoisonError::into_inner).extend(own);
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let until = Instant::now() + PATIENCE;
        while answers.load(Ordering::Relaxed) < ENOUGH {
            assert!(Instant::now() < until, "the server does not answer");
            std::thread::yield_now();
        }
        kill_process(Pid::from_child(&serving.child), signal).unwrap();
    });
    let code = serving.child.wait().unwrap().code();
    (acknowledged.into_inner().unwrap(), code)
}

/// What is in the store now.
fn survivors(world: &Sandbox) -> Vec<(usize, usize, u64)> {
    let log = rusqlite::Connection::open(world.store.join("log.sqlite")).unwrap();
    let sql =
        "SELECT n.info ->> 'external', s.summary, s.number FROM steps s JOIN sessions n ON n.id = s.session
               WHERE n.agent = 'mine' ORDER BY s.position";
    let mut statement = log.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| {
        let (session, event): (String, String) = (row.get(0)?, row.get(1)?);
        Ok((session[1..].parse().unwrap(), event.parse().unwrap(), row.get::<_, i64>(2)? as u64))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// Everything acknowledged is there, once, in order, and the store is whole.
fn nothing_is_lost(world: &Sandbox, acknowledged: &[(usize, usize, u64)]) {
    let all = survivors(world);
    let stored: HashSet<_> = all.iter().copied().collect();
    assert_eq!(all.len(), stored.len(), "nothing is there twice");
    let lost = acknowledged.iter().filter(|one| !stored.contains(one)).count();
    eprintln!("{} acknowledged, {} survived, {lost} lost", acknowledged.len(), all.len());
    assert_eq!(lost, 0);
    assert!(acknowledged.len() >= ENOUGH * EVENTS);
    for client in 0..CLIENTS {
        let own: Vec<usize> = all.iter().filter(|one| one.0 == client).map(|one| one.1).collect();
        assert!(own.iter().copied().eq(0..own.len()), "session {client} has no gap and is in order");
        assert_eq!(own.len() % EVENTS, 0, "a batch is stored as a whole");
    }
    let mut numbers: Vec<u64> = all.iter().map(|one| one.2).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64));
    world.run(["fsck"]).exits(0);
}

#[test]
fn a_server_that_is_killed_under_load_loses_nothing_that_it_acknowledged() {
    let world = Sandbox::new();
    let (acknowledged, code) = load(&world, Signal::KILL);
    assert_eq!(code, None, "a signal ended it");
    nothing_is_lost(&world, &acknowledged);
    // What is sent again is answered with the numbers it has.
    let mut serving = Serving::start(&world, &[]);
    let mut stream = TcpStream::connect(serving.host()).unwrap();
    let before = survivors(&world).len();
    let again = post(&mut stream, &serving.token, "s0", 0).unwrap();
    let known: Vec<u64> =
        acknowledged.iter().filter(|one| one.0 == 0).map(|one| one.2).take(EVENTS).collect();
    assert_eq!(again["steps"], json!(known));
    assert_eq!(survivors(&world).len(), before);
    kill_process(Pid::from_child(&serving.child), Signal::TERM).unwrap();
    assert_eq!(serving.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_server_that_is_ended_under_load_answers_what_it_took() {
    let world = Sandbox::new();
    let (acknowledged, code) = load(&world, Signal::TERM);
    assert_eq!(code, Some(0));
    nothing_is_lost(&world, &acknowledged);
    assert_eq!(survivors(&world).len(), acknowledged.len(), "everything that is stored was acknowledged");
}
