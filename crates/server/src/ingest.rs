//! Steps that agents report over the network: accepted in batches, recorded together, acknowledged once durable.
//!
//! A request that finds no commit in progress commits everything that waits; what arrives meanwhile waits for the next
//! commit. So a busy server waits for the disk once for hundreds of requests, and an idle one adds no delay. The queue is
//! bounded in bytes: beyond that a client gets 429 and retries, and nothing that was acknowledged is ever dropped.

pub mod body;
pub mod reported;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use stepback_engine::recorder::{RecordLock, RecordedStep, ReportedEvent, WorkspaceEvents};
use stepback_engine::{Engine, EngineError, Workspace};
use stepback_model::ids::WorkspaceId;
use stepback_model::record::{self, Session};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::problem::Problem;
use crate::state;

/// Most bytes of requests that may be in flight at once.
const MAX_IN_FLIGHT_BYTES: usize = 48 << 20;
/// Most requests that may be in flight at once.
const MAX_IN_FLIGHT_REQUESTS: usize = 256;
/// Most events that one commit records.
const MAX_EVENTS_PER_COMMIT: usize = 20_000;
/// From this many events on, dropping them takes longer than starting a thread.
const MIN_EVENTS_FOR_THREAD: usize = 300;
/// How long to wait for the recording lock of a workspace.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// Value of `Retry-After` for a refused client, in seconds.
const RETRY_AFTER_SECONDS: &str = "1";
/// How many remote workspaces are cached.
const MAX_CACHED_REMOTES: usize = 1000;
/// Longest name of a workspace that is not a directory on this machine, in bytes.
const LONGEST_NAME: usize = 200;

/// The workspace that a batch belongs to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum IngestTarget {
    /// A workspace that is in the store.
    Known(WorkspaceId),
    /// A workspace that is not a directory on this machine, by name. Created on first use.
    Remote(String),
}

impl IngestTarget {
    /// Resolves the workspace that a client names: an id, an absolute path, or the name of a remote one.
    pub fn resolve(engine: &Engine, name: Option<&str>) -> Result<Self, Problem> {
        let name = name.unwrap_or("default");
        let is_id = name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_id || name.starts_with('/') {
            let found = match is_id {
                true => {
                    let all = engine.store.workspaces()?;
                    all.into_iter().find(|workspace| workspace.id.to_string().eq_ignore_ascii_case(name))
                }
                false => engine.store.workspace_at(name.as_bytes())?,
            };
            let found = found.ok_or_else(|| Problem::not_found("workspace", name))?;
            return Ok(Self::Known(found.id));
        }
        if name.trim().is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
            return Err(Problem::usage(format!(
                "the name of a workspace must be one line of at most {LONGEST_NAME} bytes"
            )));
        }
        Ok(Self::Remote(name.to_owned()))
    }
}

/// The events of one request that wait for the commit.
struct PendingRequest {
    target: IngestTarget,
    reports: Vec<ReportedEvent>,
    answer: oneshot::Sender<IngestResult>,
}

/// The result that a request gets in the end.
pub type IngestResult = Result<StoredBatch, Problem>;

/// The events of one request, as they were stored.
#[derive(Debug)]
pub struct StoredBatch {
    /// The workspace that they were recorded in.
    pub workspace: WorkspaceId,
    /// Their steps, in the order of the request.
    pub steps: Vec<RecordedStep>,
}

/// Remote workspaces by name, cached: the parts of the two records that are used here never change.
type RemoteCache = HashMap<String, (record::WorkspaceRecord, Session)>;

/// The queue of events on their way into the store.
pub struct IngestQueue {
    queue: Mutex<Queue>,
    remotes: Mutex<RemoteCache>,
    byte_slots: Arc<Semaphore>,
    request_slots: Arc<Semaphore>,
}

#[derive(Default)]
struct Queue {
    pending: Vec<PendingRequest>,
    /// Whether a thread is committing, and will check the queue again before it stops.
    is_committing: bool,
}

impl Default for IngestQueue {
    fn default() -> Self {
        let (room, requests) = (Semaphore::new(MAX_IN_FLIGHT_BYTES), Semaphore::new(MAX_IN_FLIGHT_REQUESTS));
        Self {
            queue: Mutex::default(),
            remotes: Mutex::default(),
            byte_slots: Arc::new(room),
            request_slots: Arc::new(requests),
        }
    }
}

/// The capacity that one request holds until it is dropped.
pub struct CapacityPermit {
    bytes: OwnedSemaphorePermit,
    _request: OwnedSemaphorePermit,
}

impl CapacityPermit {
    /// Releases the bytes beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes.num_permits().saturating_sub(bytes);
        drop(self.bytes.split(surplus));
    }
}

impl IngestQueue {
    /// Reserves capacity for a request of so many bytes. Fails at once if there is none.
    pub fn reserve_capacity(&self, bytes: usize) -> Result<CapacityPermit, Overloaded> {
        let bytes = u32::try_from(bytes.clamp(1, MAX_IN_FLIGHT_BYTES)).map_err(|_| Overloaded)?;
        let request = self.request_slots.clone().try_acquire_owned().map_err(|_| Overloaded)?;
        let bytes = self.byte_slots.clone().try_acquire_many_owned(bytes).map_err(|_| Overloaded)?;
        Ok(CapacityPermit { bytes, _request: request })
    }

    fn lock_queue(&self) -> MutexGuard<'_, Queue> {
        // Every change of the queue is one assignment, so a poisoned lock leaves no half-done state.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the events of one request. Returns the channel of the answer, and whether the caller must start the commit.
    pub fn enqueue(
        &self,
        target: IngestTarget,
        reports: Vec<ReportedEvent>,
    ) -> (oneshot::Receiver<IngestResult>, bool) {
        let (answer, answered) = oneshot::channel();
        let mut queue = self.lock_queue();
        queue.pending.push(PendingRequest { target, reports, answer });
        (answered, !std::mem::replace(&mut queue.is_committing, true))
    }

    /// Whether no commit is in progress.
    pub fn is_idle(&self) -> bool {
        !self.lock_queue().is_committing
    }

    /// Commits until the queue is empty.
    pub fn commit_all(&self, engine: &Engine) {
        while self.commit_once(engine) {}
    }

    /// Commits one batch. Returns whether more waits, in which case the caller must commit again.
    pub fn commit_once(&self, engine: &Engine) -> bool {
        // If this thread panics, the next request starts a commit again, and the requests that waited get an error.
        let over = CommitGuard(self);
        self.record_requests(engine, self.take_batch());
        std::mem::forget(over);
        let mut queue = self.lock_queue();
        queue.is_committing = !queue.pending.is_empty();
        queue.is_committing
    }

    /// Takes as many waiting requests as one commit can hold.
    fn take_batch(&self) -> Vec<PendingRequest> {
        let mut queue = self.lock_queue();
        let mut count = 0;
        let more = queue.pending.iter().position(|waiting| {
            count += waiting.reports.len();
            count > MAX_EVENTS_PER_COMMIT
        });
        // A batch is smaller than `MAX_EVENTS_PER_COMMIT`, so the first one always fits.
        let end = more.unwrap_or(queue.pending.len());
        queue.pending.drain(..end).collect()
    }
}

/// Drops what was recorded on another thread if it is large: dropping thousands of documents takes a tenth of the time of
/// recording them, and every request waits for the thread that records.
fn drop_in_background(recorded: impl Send + 'static, count: usize) {
    if count >= MIN_EVENTS_FOR_THREAD {
        // If no thread can be started, the value is dropped here.
        let _ = std::thread::Builder::new().name("stepback-drop".into()).spawn(move || drop(recorded));
    }
}

struct CommitGuard<'a>(&'a IngestQueue);

impl Drop for CommitGuard<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.lock_queue();
        queue.is_committing = false;
        queue.pending.clear();
    }
}

/// Where the events of a request went: the index of the workspace, and the range among all events recorded there.
struct CommittedRequest {
    answer: oneshot::Sender<IngestResult>,
    workspace_index: usize,
    range: Range<usize>,
}

impl IngestQueue {
    /// Opens the workspace of a target.
    fn open_target(&self, engine: &Engine, target: &IngestTarget) -> Result<Workspace, Problem> {
        let name = match target {
            IngestTarget::Known(id) => return state::open_workspace(engine, *id),
            IngestTarget::Remote(name) => name,
        };
        // Every change of the map is one insertion, so a poisoned lock is safe to use.
        let mut remotes = self.remotes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((record, session)) = remotes.get(name) {
            return Ok(engine.reopen_remote_workspace(record.clone(), session.clone()));
        }
        let workspace = engine.open_remote_workspace(name)?;
        if remotes.len() >= MAX_CACHED_REMOTES {
            remotes.clear();
        }
        remotes.insert(name.clone(), (workspace.record.clone(), workspace.session.clone()));
        Ok(workspace)
    }

    /// Records the events of several requests, and answers each.
    fn record_requests(&self, engine: &Engine, pending: Vec<PendingRequest>) {
        let mut places: Vec<(Workspace, RecordLock)> = Vec::new();
        let mut reports: Vec<Vec<ReportedEvent>> = Vec::new();
        let mut requests: Vec<CommittedRequest> = Vec::new();
        let opened = self.open_targets(engine, &pending, &mut places);
        for PendingRequest { target, reports: own, answer } in pending {
            let place = match &opened[&target] {
                Ok(place) => *place,
                Err(problem) => {
                    let _ = answer.send(Err(problem.clone()));
                    continue;
                }
            };
            reports.resize_with(places.len(), Vec::new);
            let first = reports[place].len();
            reports[place].extend(own);
            requests.push(CommittedRequest {
                answer,
                workspace_index: place,
                range: first..reports[place].len(),
            });
        }
        let arrivals = |place: usize, range: Range<usize>| WorkspaceEvents {
            workspace: &places[place].0,
            lock: &places[place].1,
            reports: &reports[place][range],
        };
        let count = reports.iter().map(Vec::len).sum();
        let whole: Vec<WorkspaceEvents<'_>> =
            (0..reports.len()).map(|place| arrivals(place, 0..reports[place].len())).collect();
        let done = match engine.record_workspaces(&whole) {
            Ok(done) => Ok(done),
            Err(EngineError::Json(_)) => Err(None),
            Err(error) => Err(Some(Problem::from(error))),
        };
        for CommittedRequest { answer, workspace_index: place, range } in requests {
            let steps = match &done {
                Ok(done) => Ok(done[place][range].to_vec()),
                Err(Some(problem)) => Err(problem.clone()),
                // One request that cannot be recorded must not fail the others, so each is recorded alone.
                Err(None) => match engine.record_workspaces(&[arrivals(place, range)]) {
                    Ok(mut alone) => Ok(alone.pop().unwrap_or_default()),
                    Err(error) => Err(error.into()),
                },
            };
            let workspace = places[place].0.record.id;
            let _ = answer.send(steps.map(|steps| StoredBatch { workspace, steps }));
        }
        drop_in_background(reports, count);
    }

    /// Opens the workspaces of all requests, each once, and locks them for recording.
    fn open_targets(
        &self,
        engine: &Engine,
        pending: &[PendingRequest],
        workspaces: &mut Vec<(Workspace, RecordLock)>,
    ) -> HashMap<IngestTarget, Result<usize, Problem>> {
        let mut opened = HashMap::new();
        let mut found: Vec<(IngestTarget, Workspace)> = Vec::new();
        for PendingRequest { target, .. } in pending {
            if opened.contains_key(target) || found.iter().any(|(known, _)| known == target) {
                continue;
            }
            match self.open_target(engine, target) {
                Ok(workspace) => found.push((target.clone(), workspace)),
                Err(problem) => {
                    opened.insert(target.clone(), Err(problem));
                }
            }
        }
        // Locked in a fixed order, so that two processes that lock several never deadlock.
        found.sort_by_key(|(_, workspace)| workspace.record.id);
        for (target, workspace) in found {
            // Two names may resolve to one workspace, which is locked once.
            let known = workspaces.iter().position(|(place, _)| place.record.id == workspace.record.id);
            let at = match known {
                Some(at) => Ok(at),
                None => {
                    workspace.lock_recording_with_timeout(LOCK_TIMEOUT).map_err(Problem::from).map(|lock| {
                        workspaces.push((workspace, lock));
                        workspaces.len() - 1
                    })
                }
            };
            opened.insert(target, at);
        }
        opened
    }
}

/// The error that too much is in flight already.
#[derive(Clone, Copy, Debug)]
pub struct Overloaded;

impl IntoResponse for Overloaded {
    fn into_response(self) -> Response {
        let problem = Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "busy",
            "the server is overloaded; nothing of this batch was recorded",
        )
        .with_hint("retry the same batch later; events with ids are never stored twice");
        ([(header::RETRY_AFTER, RETRY_AFTER_SECONDS)], problem).into_response()
    }
}

#[cfg(test)]
mod tests {
    use stepback_model::env::FrozenEnv;
    use stepback_model::time::Timestamp;
    use stepback_store::memory::MemoryStore;

    use super::*;
    use crate::ingest::reported::{IngestContext, parse_event};

    fn test_event(session: &str, id: usize, deep: usize) -> ReportedEvent {
        let (open, close) = ("[".repeat(deep), "]".repeat(deep));
        let json =
            format!(r#"{{"session":"{session}","kind":"agent-step","id":"{id}","input":{open}{close}}}"#);
        let around = IngestContext { agent: Some("mine"), key: None, now: Timestamp::from_micros(1) };
        parse_event(&json, id, around).unwrap_or_else(|error| panic!("{error}")).report
    }

    fn with_engine(work: impl FnOnce(&Engine)) {
        let (store, env) = (MemoryStore::new(1 << 20), FrozenEnv::new(Timestamp::from_micros(1), 1));
        work(&Engine::new(Arc::new(store), Arc::new(env)));
    }

    #[test]
    fn what_waits_together_is_committed_together() {
        with_engine(|engine| {
            let ingest = IngestQueue::default();
            let remote = |name: &str| IngestTarget::Remote(name.into());
            // The workspaces exist already, so that creating them adds no commit.
            for name in ["a", "b"] {
                engine.open_remote_workspace(name).unwrap();
            }
            let before = engine.store.commit_seq().unwrap().0;
            let (first, is_first) =
                ingest.enqueue(remote("a"), vec![test_event("s", 1, 1), test_event("s", 2, 1)]);
            assert!(is_first, "the first one sees to the commit");
            let mut others = Vec::new();
            for (name, session) in [("b", "s"), ("a", "s"), ("a", "t")] {
                let (answer, is_first) = ingest.enqueue(remote(name), vec![test_event(session, 3, 1)]);
                assert!(!is_first);
                others.push(answer);
            }
            ingest.commit_all(engine);
            assert_eq!(engine.store.commit_seq().unwrap().0, before + 1, "one commit for all");
            let numbers = |answer: oneshot::Receiver<IngestResult>| -> Vec<u64> {
                answer.blocking_recv().unwrap().unwrap().steps.iter().map(|step| step.number).collect()
            };
            assert_eq!(numbers(first), [1, 2]);
            let others: Vec<_> = others.into_iter().map(numbers).collect();
            assert_eq!(others, [[1], [3], [4]]);
            assert!(
                ingest.enqueue(remote("a"), vec![test_event("s", 4, 1)]).1,
                "and the next one sees to the next"
            );
        });
    }

    #[test]
    fn one_request_that_cannot_be_recorded_keeps_no_other_from_it() {
        with_engine(|engine| {
            let ingest = IngestQueue::default();
            // As deep as JSON may be read, and one level too deep once the store wraps it.
            let (deep, _) = ingest.enqueue(IngestTarget::Remote("a".into()), vec![test_event("s", 1, 126)]);
            let (good, _) = ingest.enqueue(IngestTarget::Remote("a".into()), vec![test_event("s", 2, 1)]);
            let unknown = IngestTarget::Known(WorkspaceId::from_bytes([7; 16]));
            let (lost, _) = ingest.enqueue(unknown, vec![test_event("s", 3, 1)]);
            ingest.commit_all(engine);
            assert_eq!(good.blocking_recv().unwrap().unwrap().steps.len(), 1);
            assert_eq!(lost.blocking_recv().unwrap().unwrap_err().status, 404);
            assert!(deep.blocking_recv().unwrap().is_ok());
        });
    }

    #[test]
    fn there_is_room_for_so_much_and_no_more() {
        let ingest = IngestQueue::default();
        let mut most = ingest.reserve_capacity(MAX_IN_FLIGHT_BYTES).ok().unwrap();
        assert!(ingest.reserve_capacity(1).is_err());
        most.shrink_to(MAX_IN_FLIGHT_BYTES - 10);
        assert!(ingest.reserve_capacity(10).is_ok());
        drop(most);
        let all: Vec<CapacityPermit> =
            (0..MAX_IN_FLIGHT_REQUESTS).map(|_| ingest.reserve_capacity(1).ok().unwrap()).collect();
        assert!(ingest.reserve_capacity(1).is_err());
        drop(all);
        assert!(ingest.reserve_capacity(MAX_IN_FLIGHT_BYTES * 2).is_ok(), "one request always fits");
    }
}
