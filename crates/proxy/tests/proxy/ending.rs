//! Ending a proxy while answers are on their way.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use stepback_llm_wire::AnswerEnd;

use crate::agent::Agent;
use crate::proxy;
use crate::server::Server;

/// A server whose answer stays open until it is let go.
fn open_ended() -> (Server, mpsc::Sender<()>) {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let server = Server::start(move |mut connection| {
        connection.request();
        connection.stream();
        connection.chunk("data: 1\n\n");
        if wait.lock().unwrap().recv().is_ok() {
            connection.chunk("data: 2\n\n");
            connection.chunk("");
        }
        connection.until_closed();
    });
    (server, go)
}

#[test]
fn a_running_answer_may_finish() {
    let (server, go) = open_ended();
    let (proxy, told) = proxy(&server);
    let addr = proxy.addr();
    let mut idle = Agent::connect(addr);
    let mut agent = Agent::connect(addr);
    agent.send("POST /v1/messages", "", "{}");
    agent.head().unwrap();
    agent.piece().unwrap();
    let ending = std::thread::spawn(move || proxy.shutdown(crate::PATIENCE));
    // A connection that waits for nothing is closed at once, and that is how we see that the end has begun.
    assert!(idle.head().is_err());
    go.send(()).unwrap();
    let (body, end) = agent.rest();
    assert_eq!(body, b"data: 2\n\n");
    end.unwrap();
    let stats = ending.join().unwrap();
    assert_eq!((stats.exchanges, stats.running), (1, 0));
    assert_eq!(told.only().response.ended, AnswerEnd::Complete);
    assert!(std::net::TcpStream::connect(addr).is_err());
}

#[test]
fn what_does_not_finish_in_time_is_recorded_as_broken_off() {
    let (server, _go) = open_ended();
    let (proxy, told) = proxy(&server);
    let mut agent = Agent::connect(proxy.addr());
    agent.send("POST /v1/messages", "", "{}");
    agent.head().unwrap();
    agent.piece().unwrap();
    let stats = proxy.shutdown(Duration::from_millis(10));
    assert_eq!((stats.exchanges, stats.running, stats.cut_off), (1, 0, 1));
    assert!(agent.rest().1.is_err());
    // The sink was told before the proxy ended.
    assert_eq!(told.ended_now(), 1);
    let response = told.only().response;
    assert_eq!(response.body, "data: 1\n\n");
    assert!(matches!(response.ended, AnswerEnd::CutOff(why) if why.contains("the proxy was stopped")));
}
