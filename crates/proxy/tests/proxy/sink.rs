//! A sink that records its calls, and lets a test wait for them.

use std::sync::{Condvar, Mutex};
use std::time::SystemTime;

use stepback_llm_wire::{Exchange, ModelRequest};
use stepback_proxy::Sink;

use crate::PATIENCE;

/// An id, the request, and all headers that are told.
pub type Begun = (String, ModelRequest, Vec<(String, String)>);

#[derive(Default)]
pub struct Told {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    begun: Vec<Begun>,
    ended: Vec<Exchange>,
}

impl Told {
    /// The first `count` exchanges, once they ended.
    pub fn ended(&self, count: usize) -> Vec<Exchange> {
        self.wait(|state| state.ended.len() >= count).1
    }

    /// The one exchange there is.
    pub fn only(&self) -> Exchange {
        let mut ended = self.ended(1);
        assert_eq!(ended.len(), 1);
        ended.remove(0)
    }

    /// What the sink was told when requests were complete, once there are `count`.
    pub fn begun(&self, count: usize) -> Vec<Begun> {
        self.wait(|state| state.begun.len() >= count).0
    }

    /// How many exchanges ended so far.
    pub fn ended_now(&self) -> usize {
        self.state.lock().unwrap().ended.len()
    }

    fn wait(&self, enough: impl Fn(&State) -> bool) -> (Vec<Begun>, Vec<Exchange>) {
        let state = self.state.lock().unwrap();
        let (state, late) = self.changed.wait_timeout_while(state, PATIENCE, |state| !enough(state)).unwrap();
        assert!(!late.timed_out(), "the sink was not told in time");
        (state.begun.clone(), state.ended.clone())
    }
}

impl Sink for Told {
    fn begun(&self, id: &str, _at: SystemTime, request: &ModelRequest, headers: &[(String, String)]) {
        let mut state = self.state.lock().unwrap();
        state.begun.push((id.to_owned(), request.clone(), headers.to_vec()));
        self.changed.notify_all();
    }

    fn ended(&self, id: &str, exchange: &Exchange) {
        let mut state = self.state.lock().unwrap();
        assert_eq!(id, exchange.id);
        assert!(state.begun.iter().any(|(known, ..)| known == id), "ended before it began");
        state.ended.push(exchange.clone());
        self.changed.notify_all();
    }
}
