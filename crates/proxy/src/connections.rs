//! Connections of HTTP clients within limits, for the proxy and the server.
//!
//! A client can connect and send nothing, or only a part of a request, and hold a connection for as long as it likes; a few
//! hundred of them would keep all others out. So a connection without a request in progress ends after a while, sooner if it
//! never sent one, and when there are too many, the one that has been idle for the longest time ends first.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How long connections may be idle, and how many there may be.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Most connections at once.
    pub count: usize,
    /// Time limit for the head of the first request, from the moment of connecting.
    pub first_request: Duration,
    /// How long a connection may stay open between requests.
    pub between_requests: Duration,
}

/// All connections of one listener. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ConnectionTable {
    limits: ConnectionLimits,
    open: Arc<Mutex<OpenConnections>>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    by_number: HashMap<u64, Arc<ConnectionState>>,
}

/// One connection. It is removed from its table when this is dropped.
#[derive(Debug)]
pub struct ClientConnection {
    number: u64,
    table: ConnectionTable,
    state: Arc<ConnectionState>,
}

#[derive(Debug)]
struct ConnectionState {
    activity: Mutex<Activity>,
    /// Tells the connection to end.
    evicted: Notify,
}

#[derive(Clone, Copy, Debug)]
struct Activity {
    /// Requests that are being answered.
    running: usize,
    /// Whether there was a request.
    has_asked: bool,
    /// The end of the last request, or the moment of connecting.
    since: Instant,
}

/// A request in progress. Drop it when its answer was sent.
#[derive(Debug)]
pub struct RunningRequest(Arc<ConnectionState>);

impl ConnectionTable {
    /// An empty table.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self { limits, open: Arc::default() }
    }

    /// Adds a connection. If there are too many, the one that was idle for the longest time is closed; `None` if all of
    /// them are busy, and the new one has to be closed.
    pub fn add(&self) -> Option<ClientConnection> {
        let mut open = lock(&self.open);
        if open.by_number.len() >= self.limits.count {
            let idle = |state: &ConnectionState| {
                let activity = *lock(&state.activity);
                // Clients that never sent a request go first.
                (activity.running == 0).then_some((activity.has_asked, activity.since))
            };
            let (_, longest) =
                open.by_number.iter().filter_map(|(number, state)| Some((idle(state)?, *number))).min()?;
            if let Some(state) = open.by_number.remove(&longest) {
                state.evicted.notify_one();
            }
        }
        let number = open.next;
        open.next += 1;
        let activity = Activity { running: 0, has_asked: false, since: Instant::now() };
        let state = Arc::new(ConnectionState { activity: Mutex::new(activity), evicted: Notify::new() });
        open.by_number.insert(number, Arc::clone(&state));
        Some(ClientConnection { number, table: self.clone(), state })
    }
}

impl ClientConnection {
    /// Notes a request, to be called with its head.
    pub fn begin_request(&self) -> RunningRequest {
        self.requests().begin()
    }

    /// Notes requests without the connection itself.
    pub fn requests(&self) -> RequestCounter {
        RequestCounter(Arc::clone(&self.state))
    }

    /// Completes when the connection has been idle for too long, or another one needs its place.
    pub async fn expired(&self) {
        loop {
            let Activity { running, has_asked, since } = *lock(&self.state.activity);
            let limits = &self.table.limits;
            let limit = if has_asked { limits.between_requests } else { limits.first_request };
            let deadline = match running {
                0 => since + limit,
                // Look again later: a request that ends now begins a new wait of at least this length.
                _ => Instant::now() + limits.first_request.min(limits.between_requests),
            };
            if running == 0 && deadline <= Instant::now() {
                return;
            }
            tokio::select! {
                () = sleep_until(deadline) => {}
                () = self.state.evicted.notified() => return,
            }
        }
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        lock(&self.table.open).by_number.remove(&self.number);
    }
}

/// Counts the requests of a connection. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RequestCounter(Arc<ConnectionState>);

impl RequestCounter {
    /// Notes a request, to be called with its head.
    pub fn begin(&self) -> RunningRequest {
        let mut activity = lock(&self.0.activity);
        activity.running += 1;
        activity.has_asked = true;
        RunningRequest(Arc::clone(&self.0))
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        let mut activity = lock(&self.0.activity);
        activity.running -= 1;
        activity.since = Instant::now();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The body of an answer, whose request is in progress until the body ends.
#[derive(Debug)]
pub struct CountedBody<B> {
    body: B,
    _running: RunningRequest,
}

impl<B> CountedBody<B> {
    /// Wraps the body of the answer to `running`.
    pub fn new(body: B, running: RunningRequest) -> Self {
        Self { body, _running: running }
    }
}

impl<B: Body + Unpin> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        count: 3,
        first_request: Duration::from_secs(10),
        between_requests: Duration::from_secs(60),
    };

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(test);
    }

    async fn lives_for(connection: &ClientConnection) -> Duration {
        let begun = Instant::now();
        connection.expired().await;
        begun.elapsed()
    }

    #[test]
    fn a_silent_connection_ends_and_a_busy_one_does_not() {
        run(async {
            let table = ConnectionTable::new(LIMITS);
            let silent = table.add().unwrap();
            assert_eq!(lives_for(&silent).await.as_secs(), 10);
            let used = table.add().unwrap();
            drop(used.begin_request());
            assert_eq!(lives_for(&used).await.as_secs(), 60);
            let busy = table.add().unwrap();
            let running = busy.begin_request();
            let waited = tokio::time::timeout(Duration::from_secs(100_000), busy.expired()).await;
            assert!(waited.is_err(), "an answer may take as long as it likes");
            drop(running);
            assert!((50..=70).contains(&lives_for(&busy).await.as_secs()));
        });
    }

    #[test]
    fn the_connection_that_is_idle_for_the_longest_time_makes_room() {
        run(async {
            let table = ConnectionTable::new(LIMITS);
            let used = table.add().unwrap();
            drop(used.begin_request());
            tokio::time::advance(Duration::from_secs(1)).await;
            let silent = table.add().unwrap();
            tokio::time::advance(Duration::from_secs(1)).await;
            let newer = table.add().unwrap();
            let next = table.add().unwrap();
            assert!(lives_for(&silent).await.is_zero(), "it never sent a request");
            let running = (newer.begin_request(), next.begin_request());
            let last = table.add().unwrap();
            assert!(lives_for(&used).await.is_zero());
            let also = last.begin_request();
            assert!(table.add().is_none(), "all are busy");
            drop((running, also));
            assert!(table.add().is_some());
            drop((used, silent, newer, next, last));
            assert!(lock(&table.open).by_number.is_empty());
        });
    }
}
