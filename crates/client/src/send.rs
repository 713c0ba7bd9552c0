//! The thread that sends steps in batches, and retries until the server has them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::http::{Connection, HttpResponse};
use crate::queue::{Queue, Waiting, steps};
use crate::trace;

/// Most bytes of a batch.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// The first and the longest delay before a retry.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// The state of the sending thread.
pub struct Sender {
    /// The queue to send from.
    pub queue: Arc<Queue>,
    /// The connection to the server.
    pub connection: Connection,
    /// The JSON before the events of a batch.
    pub envelope: String,
    /// Most steps in a batch.
    pub batch: usize,
    /// How long the first step of a batch waits for others.
    pub linger: Duration,
}

impl Sender {
    /// Sends until the queue is closed and empty.
    pub fn run(mut self) {
        loop {
            let some = self.queue.take(self.batch, MAX_BATCH_BYTES, self.linger);
            if some.is_empty() {
                return;
            }
            self.deliver(&some);
        }
    }

    /// Retries until the server stores the steps or rejects them for good. Steps that are sent twice are stored once, because
    /// each has an id.
    fn deliver(&mut self, some: &[Waiting]) {
        let events: Vec<&str> = some.iter().map(|item| item.json.as_str()).collect();
        let body = format!("{}{}]}}", self.envelope, events.join(","));
        let all = steps(some);
        let mut pause = RETRY_DELAYS.0;
        loop {
            let reply = self.connection.post("/api/v1/ingest", body.as_bytes());
            let wait = match reply {
                Ok(HttpResponse { status: 200, body, .. }) => {
                    let taken: Value = serde_json::from_slice(&body).unwrap_or_default();
                    let rejected = taken["rejected"].as_u64().unwrap_or(0).min(all);
                    self.queue.done(|counts| {
                        counts.stored += all - rejected;
                        counts.rejected += rejected;
                    });
                    return;
                }
                // Retried: the server is busy or about to stop, or its token has changed.
                Ok(HttpResponse { status: 401 | 403 | 408 | 429 | 500.., retry_after, .. }) => retry_after,
                Ok(_) => {
                    self.queue.done(|counts| counts.rejected += all);
                    return;
                }
                Err(_) => None,
            };
            if self.queue.is_closed() {
                self.queue.done(|counts| counts.dropped += all);
                return;
            }
            self.queue.count(|counts| counts.retries += 1);
            // Jitter, so that many programs that lost the same server do not all reconnect at once.
            let apart = pause.mul_f64(0.5 + (trace::random() % 1000) as f64 / 1000.0);
            self.queue.pause(wait.unwrap_or_default().min(RETRY_DELAYS.1).max(apart));
            pause = (pause * 2).min(RETRY_DELAYS.1);
        }
    }
}
