//! Two servers on one database, and one of them is killed while it writes: the other goes on, and nothing that either has
//! acknowledged is lost or there twice.

use std::collections::HashMap;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use stepback_testkit::postgres::PostgresServer;

use crate::reported::{EVENTS, post};
use crate::sandbox::Sandbox;
use crate::serving::Serving;

const PATIENCE: Duration = Duration::from_secs(60);
/// Batches that each client sends.
const BATCHES: usize = 30;
/// Batches that are acknowledged before one of the servers is killed.
const BEFORE: usize = 20;

#[test]
fn one_of_two_servers_is_killed_and_nothing_is_lost() {
    let database = PostgresServer::start();
    let mut world = Sandbox::new();
    world.store = PathBuf::from(database.database());
    let (mut first, second) = (Serving::start(&world, &[]), Serving::start(&world, &[]));
    let acknowledged = Mutex::new(HashMap::new());
    let answers = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        // Two clients of each server; a client of either writes to the same session as one of the other.
        for client in 0..4 {
            let (first, second, acknowledged, answers) = (&first, &second, &acknowledged, &answers);
            scope.spawn(move || {
                let mut server = if client < 2 { first } else { second };
                let mut stream = TcpStream::connect(server.host()).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let session = format!("s{}", client % 2);
                for batch in 0..BATCHES {
                    // No two clients have the same events.
                    let from = client * 1_000_000 + batch * EVENTS;
                    let answer = match post(&mut stream, &server.token, &session, from) {
                        Some(answer) => answer,
                        // What was not answered is sent again, to the other one. It may be stored already.
                        None => {
                            assert!(client < 2, "the server that lives does not answer");
                            server = second;
                            stream = TcpStream::connect(server.host()).unwrap();
                            post(&mut stream, &server.token, &session, from).unwrap()
                        }
                    };
                    let numbers = answer["steps"].as_array().unwrap();
                    assert_eq!(numbers.len(), EVENTS);
                    let mut all = acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
                    for (at, number) in numbers.iter().enumerate() {
                        all.insert((session.clone(), from + at), number.as_u64().unwrap());
                    }
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let until = Instant::now() + PATIENCE;
        while answers.load(Ordering::Relaxed) < BEFORE {
            assert!(Instant::now() < until, "the servers do not answer");
            std::thread::yield_now();
        }
        kill_process(Pid::from_child(&first.child), Signal::KILL).unwrap();
    });
    first.child.wait().unwrap();

    let acknowledged = acknowledged.into_inner().unwrap();
    assert_eq!(acknowledged.len(), 4 * BATCHES * EVENTS);
    // Through the server that lives, and once more past it.
    let sessions = second.get("/sessions?agent=mine");
    assert_eq!(sessions["items"].as_array().unwrap().len(), 2);
    let sql = "SELECT n.info ->> 'external', s.summary, s.number
               FROM stepback_steps s JOIN stepback_sessions n ON n.id = s.session WHERE n.agent = 'mine'";
    let rows = database.sql("test0", sql);
    let stored: Vec<(String, usize, u64)> = rows
        .lines()
        .map(|line| {
            let mut cells = line.split('|').map(str::trim);
            let mut next = || cells.next().unwrap();
            (next().to_owned(), next().parse().unwrap(), next().parse().unwrap())
        })
        .collect();
    assert_eq!(stored.len(), acknowledged.len(), "every step is there, and none twice");
    for (session, event, number) in stored {
        assert_eq!(acknowledged.get(&(session, event)), Some(&number), "{event}");
    }
    world.ok(["fsck"]);
}
