//! Records the model calls that a proxy forwards, as notes in the inbox of the workspace: in `stepback run`, in
//! `stepback proxy` and in a rerun.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use stepback_llm_wire::{Exchange, ModelRequest};
use stepback_model::time::Timestamp;
use stepback_proxy::Sink;

use crate::model_call_inbox::{Caller, ModelCallWriter, parse_caller};

/// Writes exchanges to the inbox as notes. The receiver of its channel records them.
pub struct ModelCallSink {
    writer: ModelCallWriter,
    /// The callers of the calls that have not ended, by call.
    callers: Mutex<HashMap<String, Caller>>,
    notes_written: Mutex<Sender<()>>,
    first_error: Mutex<Option<String>>,
}

impl ModelCallSink {
    /// Creates a sink, and the channel on which it signals that there are notes to record.
    pub fn new(writer: ModelCallWriter) -> (Self, Receiver<()>) {
        let (sender, receiver) = channel();
        let sink = Self {
            writer,
            callers: Mutex::default(),
            notes_written: Mutex::new(sender),
            first_error: Mutex::default(),
        };
        (sink, receiver)
    }

    /// Returns the first error of recording, if there was one.
    pub fn first_error(&self) -> Option<String> {
        self.first_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Signals that there is a note to record. A failure to write one leaves a gap.
    fn signal_note(&self, written: std::io::Result<()>) {
        if let Err(error) = written {
            // The agent continues; the gap is recorded if possible, and reported at the end.
            let _ = self.writer.write_gap(&error.to_string(), now());
            let mut first = self.first_error.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(error.to_string());
        }
        // After the run no process receives this; the next command records the notes.
        let _ = self.notes_written.lock().unwrap_or_else(PoisonError::into_inner).send(());
    }
}

impl Sink for ModelCallSink {
    fn begun(&self, id: &str, at: SystemTime, request: &ModelRequest, headers: &[(String, String)]) {
        let caller = parse_caller(headers);
        let written = self.writer.write_start(id, to_timestamp(at), request, &caller);
        self.callers.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), caller);
        self.signal_note(written);
    }

    fn ended(&self, id: &str, exchange: &Exchange) {
        let caller = self.callers.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.signal_note(self.writer.write_end(exchange, now(), &caller.unwrap_or_default()));
    }
}

fn now() -> Timestamp {
    to_timestamp(SystemTime::now())
}

fn to_timestamp(at: SystemTime) -> Timestamp {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
