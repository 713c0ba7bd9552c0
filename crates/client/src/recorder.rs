//! The recorder: started once by a program, shared by all its sessions.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use stepback_model::record::StepKind;

use crate::config::{ConfigError, RecorderConfig};
use crate::http::Connection;
use crate::queue::{Queue, QueueCounts, Waiting};
use crate::send::Sender;
use crate::session::AgentSession;
use crate::step::StepReport;
use crate::trace;

/// Records what a program's agents do. Cheap to clone; the steps of all clones are sent by one thread. When the last clone is
/// dropped, what still waits is sent, for as long as the configuration allows.
#[derive(Clone)]
pub struct Recorder {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    config: RecorderConfig,
    queue: Arc<Queue>,
    enabled: AtomicBool,
    /// An id that is unique to this recorder.
    run: String,
    made: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("config", &self.inner.config).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Starts recording. Fails only if the configuration is invalid: an unreachable server never fails the program.
    pub fn start(config: RecorderConfig) -> Result<Self, ConfigError> {
        let address = config.check()?;
        let queue = Arc::new(Queue::new(config.most_waiting, config.most_waiting_bytes));
        let named = json!({ "workspace": config.workspace, "agent": config.agent }).to_string();
        let sender = Sender {
            queue: queue.clone(),
            connection: Connection::new(address, config.token.clone(), config.timeout),
            envelope: format!("{},\"events\":[", named.trim_end_matches('}')),
            batch: config.batch,
            linger: config.linger,
        };
        let thread = std::thread::Builder::new()
            .name("stepback-client".into())
            .spawn(move || sender.run())
            .map_err(|error| ConfigError(format!("cannot start a thread: {error}")))?;
        let run = format!("{:016x}{:016x}", trace::random(), trace::random());
        let (enabled, made) = (AtomicBool::new(true), AtomicU64::new(0));
        let thread = Mutex::new(Some(thread));
        Ok(Self { inner: Arc::new(Inner { config, queue, enabled, run, made, thread }) })
    }

    /// Returns a session by the agent's own id of it.
    pub fn session(&self, id: &str) -> AgentSession {
        AgentSession::new(self.clone(), id)
    }

    /// Turns recording on or off.
    pub fn enable(&self, enabled: bool) {
        self.inner.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Returns how many steps were sent, dropped and so on.
    pub fn counts(&self) -> QueueCounts {
        self.inner.queue.counts()
    }

    /// Waits until everything is sent, for at most `patience`. Returns whether everything is.
    pub fn flush(&self, patience: Duration) -> bool {
        self.inner.queue.flush(patience)
    }

    /// Returns an id that no other step of this recorder has.
    pub(crate) fn fresh_id(&self) -> String {
        format!("{}-{}", self.inner.run, self.inner.made.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn record(&self, session: &str, step: StepReport) {
        let inner = &*self.inner;
        if !inner.enabled.load(Ordering::Relaxed) {
            return;
        }
        if !inner.wants(session, &step) {
            inner.queue.count(|counts| counts.skipped += 1);
            return;
        }
        let (mut fields, left_out) = step.finished(&inner.config);
        if left_out > 0 {
            inner.queue.count(|counts| counts.left_out_bytes += left_out);
        }
        fields.insert("session".into(), session.into());
        fields.entry("id").or_insert_with(|| self.fresh_id().into());
        fields.entry("at").or_insert_with(|| jiff::Timestamp::now().to_string().into());
        let item =
            Waiting { session: session.to_owned(), json: Value::Object(fields).to_string(), is_gap: false };
        inner.queue.push(item, |session, missing| {
            let summary = format!("{missing} steps are missing: more was recorded than could be sent");
            let gap = json!({
                "session": session, "kind": StepKind::Gap.as_str(), "id": self.fresh_id(), "summary": summary,
                "error": { "name": "gap", "message": summary }, "at": jiff::Timestamp::now().to_string(),
            });
            Waiting { session: session.to_owned(), json: gap.to_string(), is_gap: true }
        });
    }
}

impl Inner {
    /// Whether a step is of an enabled kind and in the sample.
    fn wants(&self, session: &str, step: &StepReport) -> bool {
        let config = &self.config;
        if config.kinds.as_ref().is_some_and(|kinds| !kinds.contains(&step.kind)) {
            return false;
        }
        if config.sample_rate >= 1.0 || step.is_failure() || step.kind == StepKind::UserInput {
            return true;
        }
        // Hashed by call, so that both its ends are recorded or neither; a step without a call is hashed by its id or number.
        let mut hasher = DefaultHasher::new();
        session.hash(&mut hasher);
        match step.fields.get("call").or_else(|| step.fields.get("id")).and_then(Value::as_str) {
            Some(name) => name.hash(&mut hasher),
            None => (&self.run, self.made.fetch_add(1, Ordering::Relaxed)).hash(&mut hasher),
        }
        let place = (hasher.finish() >> 11) as f64 / (1u64 << 53) as f64;
        place < config.sample_rate
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.flush(self.config.farewell);
        self.queue.close();
        // The thread ends soon: at the latest when the request in flight times out.
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread.filter(|_| self.queue.counts().waiting == 0) {
            let _ = thread.join();
        }
    }
}
