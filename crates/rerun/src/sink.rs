//! Recording what a proxy carries: notes for the workspace, taken in beside the stream.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use stepback_agents::model_call_inbox::{Caller, ModelCallWriter, caller};
use stepback_exchange::{Exchange, Request};
use stepback_model::time::Timestamp;
use stepback_proxy::Sink;

/// Turns exchanges into notes. Whoever has the other end of its channel takes them in.
pub struct ModelCallSink {
    carrier: ModelCallWriter,
    callers: Mutex<HashMap<String, Caller>>,
    left: Mutex<Sender<()>>,
    trouble: Mutex<Option<String>>,
}

impl ModelCallSink {
    /// A recorder, and where it says that there is something to take in.
    pub fn new(carrier: ModelCallWriter) -> (Self, Receiver<()>) {
        let (left, taken) = channel();
        let recorder =
            Self { carrier, callers: Mutex::default(), left: Mutex::new(left), trouble: Mutex::default() };
        (recorder, taken)
    }

    /// The first thing that could not be recorded, and why.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn done(&self, written: std::io::Result<()>) {
        if let Err(error) = written {
            // The agent goes on; what is missing is said in the record if even that can be written, and at the end.
            let _ = self.carrier.lost(&error.to_string(), now());
            let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
            trouble.get_or_insert(error.to_string());
        }
        // Nobody takes anything in any more once the run is over; the next command does.
        let _ = self.left.lock().unwrap_or_else(PoisonError::into_inner).send(());
    }
}

impl Sink for ModelCallSink {
    fn begun(&self, id: &str, at: SystemTime, request: &Request, headers: &[(String, String)]) {
        let caller = caller(headers);
        let written = self.carrier.begun(id, timestamp(at), request, &caller);
        self.callers.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), caller);
        self.done(written);
    }

    fn ended(&self, id: &str, exchange: &Exchange) {
        let caller = self.callers.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.done(self.carrier.ended(exchange, now(), &caller.unwrap_or_default()));
    }
}

fn now() -> Timestamp {
    timestamp(SystemTime::now())
}

fn timestamp(at: SystemTime) -> Timestamp {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
