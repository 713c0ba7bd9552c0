//! Records the model calls that a proxy forwards, as notes in the inbox of the workspace.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use stepback_agents::model_call_inbox::{Caller, ModelCallWriter, caller};
use stepback_llm_wire::{Exchange, ModelRequest};
use stepback_model::time::Timestamp;
use stepback_proxy::Sink;

/// Writes exchanges to the inbox as notes. The receiver of its channel records them.
pub struct ModelCallSink {
    carrier: ModelCallWriter,
    callers: Mutex<HashMap<String, Caller>>,
    left: Mutex<Sender<()>>,
    trouble: Mutex<Option<String>>,
}

impl ModelCallSink {
    /// Creates a sink, and the channel on which it signals that there are notes to record.
    pub fn new(carrier: ModelCallWriter) -> (Self, Receiver<()>) {
        let (left, taken) = channel();
        let recorder =
            Self { carrier, callers: Mutex::default(), left: Mutex::new(left), trouble: Mutex::default() };
        (recorder, taken)
    }

    /// Returns the first error of recording, if there was one.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn done(&self, written: std::io::Result<()>) {
        if let Err(error) = written {
            // The agent continues; the gap is recorded if possible, and reported at the end.
            let _ = self.carrier.lost(&error.to_string(), now());
            let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
            trouble.get_or_insert(error.to_string());
        }
        // After the run no process receives this; the next command records the notes.
        let _ = self.left.lock().unwrap_or_else(PoisonError::into_inner).send(());
    }
}

impl Sink for ModelCallSink {
    fn begun(&self, id: &str, at: SystemTime, request: &ModelRequest, headers: &[(String, String)]) {
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
