//! The state that all requests of one proxy share, and the calls to the sink, which run beside the streams.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};

use crate::body_capture::{BodyCapture, Budget};
use crate::connect::Models;
use crate::upstream::Routes;
use crate::{ProxyAccess, ProxyLimits, Responder, Sink, Stats};

/// The most concurrent calls to the sink: enough for several that wait for a disk, few enough to leave a processor for
/// the streams.
const SINK_CALLS: usize = 8;
/// How long to wait for a sink that was late the last time.
const LATE_SINK_TIMEOUT: Duration = Duration::from_millis(50);

pub(crate) struct ProxyState {
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) responder: Option<Arc<dyn Responder>>,
    pub(crate) limits: ProxyLimits,
    pub(crate) access: ProxyAccess,
    pub(crate) routes: Routes,
    pub(crate) client: Models,
    pub(crate) budget: Arc<Budget>,
    pub(crate) counts: Counts,
    /// Whether the proxy is shutting down and streams that are still open are to be cut off.
    pub(crate) is_shutting_down: AtomicBool,
    /// Whether the last call to the sink took longer than the limit: the next one is given less time.
    sink_was_slow: AtomicBool,
    runtime: Handle,
    sink_calls: Arc<Semaphore>,
    pending: PendingSinkCalls,
    prefix: String,
    next: AtomicU64,
}

/// The counters behind [`Stats`].
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) running: AtomicU64,
    pub(crate) exchanges: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) cut_off: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) sink_late: AtomicU64,
    pub(crate) sink_panicked: AtomicU64,
}

/// Increments a counter.
pub(crate) fn increment_counter(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The unfinished calls to the sink, so that a proxy that shuts down can wait for them.
#[derive(Default)]
struct PendingSinkCalls {
    count: AtomicUsize,
    /// Notified when the last one has ended.
    all_done: Notify,
}

/// Counts one call to the sink for as long as it runs.
struct PendingSinkCall(Arc<ProxyState>);

impl Drop for PendingSinkCall {
    fn drop(&mut self) {
        if self.0.pending.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.pending.all_done.notify_waiters();
        }
    }
}

impl ProxyState {
    pub(crate) fn new(
        sink: Arc<dyn Sink>,
        responder: Option<Arc<dyn Responder>>,
        limits: ProxyLimits,
        access: ProxyAccess,
        routes: Routes,
        models: Models,
        runtime: Handle,
    ) -> std::io::Result<Arc<Self>> {
        let mut random = [0u8; 6];
        getrandom::fill(&mut random).map_err(std::io::Error::other)?;
        let prefix = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Arc::new(Self {
            sink,
            responder,
            budget: Budget::new(limits.recorded_total),
            limits,
            access,
            routes,
            client: models,
            counts: Counts::default(),
            is_shutting_down: AtomicBool::new(false),
            sink_was_slow: AtomicBool::new(false),
            runtime,
            sink_calls: Arc::new(Semaphore::new(SINK_CALLS)),
            pending: PendingSinkCalls::default(),
            prefix,
            next: AtomicU64::new(1),
        }))
    }

    /// Returns an id that is unique across exchanges and proxies.
    pub(crate) fn new_id(&self) -> String {
        format!("{}-{}", self.prefix, self.next.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn new_capture(&self, encoding: Option<&str>) -> BodyCapture {
        BodyCapture::new(&self.budget, self.limits.recorded_body, encoding)
    }

    /// Runs `work` on what `input` resolves to, on a thread where it may block.
    pub(crate) fn spawn_sink_call<B, T>(
        self: &Arc<Self>,
        input: impl Future<Output = B> + Send + 'static,
        work: impl FnOnce(&Self, B) -> T + Send + 'static,
    ) -> tokio::task::JoinHandle<Option<T>>
    where
        B: Send + 'static,
        T: Send + 'static,
    {
        self.pending.count.fetch_add(1, Ordering::SeqCst);
        let waits = PendingSinkCall(Arc::clone(self));
        self.runtime.spawn(async move {
            let input = input.await;
            let shared = Arc::clone(&waits.0);
            // The semaphore is never closed.
            let _slot = Arc::clone(&shared.sink_calls).acquire_owned().await.ok()?;
            let result = tokio::task::spawn_blocking(move || work(&shared, input)).await.ok();
            drop(waits);
            result
        })
    }

    /// Calls the sink; a panic is counted and otherwise ignored.
    pub(crate) fn call_sink(&self, call: impl FnOnce(&dyn Sink)) {
        if catch_unwind(AssertUnwindSafe(|| call(&*self.sink))).is_err() {
            increment_counter(&self.counts.sink_panicked);
        }
    }

    /// Returns how long the end of an answer waits for the sink. A sink that hangs costs the agent the full wait once,
    /// not with every call.
    pub(crate) fn sink_timeout(&self) -> Duration {
        match self.sink_was_slow.load(Ordering::Relaxed) {
            true => self.limits.hold.min(LATE_SINK_TIMEOUT),
            false => self.limits.hold,
        }
    }

    /// Records that the end of an answer was sent before the sink was done with it.
    pub(crate) fn was_late(&self) {
        self.sink_was_slow.store(true, Ordering::Relaxed);
        increment_counter(&self.counts.sink_late);
    }

    /// Records that the sink is done with an answer.
    pub(crate) fn is_done(&self) {
        self.sink_was_slow.store(false, Ordering::Relaxed);
    }

    /// Waits until all calls of the sink are done.
    pub(crate) async fn all_told(&self) {
        loop {
            let all_done = self.pending.all_done.notified();
            if self.pending.count.load(Ordering::SeqCst) == 0 {
                return;
            }
            all_done.await;
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.counts;
        Stats {
            connections: read(&counts.connections),
            requests: read(&counts.requests),
            running: read(&counts.running),
            exchanges: read(&counts.exchanges),
            failed: read(&counts.failed),
            cut_off: read(&counts.cut_off),
            cancelled: read(&counts.cancelled),
            sink_late: read(&counts.sink_late),
            sink_panicked: read(&counts.sink_panicked),
            recorded_bytes: self.budget.held(),
        }
    }
}
