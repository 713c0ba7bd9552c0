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
pub enum Target {
    /// A workspace that is in the store.
    Known(WorkspaceId),
    /// A workspace that is not a directory on this machine, by name. Created on first use.
    Remote(String),
}

impl Target {
    /// Resolves the workspace that a client names: an id, an absolute path, or the name of a remote one.
    pub fn named(engine: &Engine, name: Option<&str>) -> Result<Self, Problem> {
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
            let found = found.ok_or_else(|| Problem::unknown("workspace", name))?;
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
struct Waiting {
    target: Target,
    reports: Vec<ReportedEvent>,
    answer: oneshot::Sender<IngestResult>,
}

/// The result that a request gets in the end.
pub type IngestResult = Result<Stored, Problem>;

/// The events of one request, as they were stored.
#[derive(Debug)]
pub struct Stored {
    /// The workspace that they were recorded in.
    pub workspace: WorkspaceId,
    /// Their steps, in the order of the request.
    pub steps: Vec<RecordedStep>,
}

/// Remote workspaces by name, cached: the parts of the two records that are used here never change.
type Remotes = HashMap<String, (record::WorkspaceRecord, Session)>;

/// The queue of events on their way into the store.
pub struct Ingest {
    queue: Mutex<Queue>,
    remotes: Mutex<Remotes>,
    room: Arc<Semaphore>,
    requests: Arc<Semaphore>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    /// Whether a thread is committing, and will check the queue again before it stops.
    committing: bool,
}

impl Default for Ingest {
    fn default() -> Self {
        let (room, requests) = (Semaphore::new(MAX_IN_FLIGHT_BYTES), Semaphore::new(MAX_IN_FLIGHT_REQUESTS));
        Self {
            queue: Mutex::default(),
            remotes: Mutex::default(),
            room: Arc::new(room),
            requests: Arc::new(requests),
        }
    }
}

/// The capacity that one request holds until it is dropped.
pub struct Room {
    bytes: OwnedSemaphorePermit,
    _request: OwnedSemaphorePermit,
}

impl Room {
    /// Releases the bytes beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes.num_permits().saturating_sub(bytes);
        drop(self.bytes.split(surplus));
    }
}

impl Ingest {
    /// Reserves capacity for a request of so many bytes. Fails at once if there is none.
    pub fn room(&self, bytes: usize) -> Result<Room, Full> {
        let bytes = u32::try_from(bytes.clamp(1, MAX_IN_FLIGHT_BYTES)).map_err(|_| Full)?;
        let request = self.requests.clone().try_acquire_owned().map_err(|_| Full)?;
        let bytes = self.room.clone().try_acquire_many_owned(bytes).map_err(|_| Full)?;
        Ok(Room { bytes, _request: request })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Every change of the queue is one assignment, so a poisoned lock leaves no half-done state.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the events of one request. Returns the channel of the answer, and whether the caller must start the commit.
    pub fn add(
        &self,
        target: Target,
        reports: Vec<ReportedEvent>,
    ) -> (oneshot::Receiver<IngestResult>, bool) {
        let (answer, answered) = oneshot::channel();
        let mut queue = self.queue();
        queue.waiting.push(Waiting { target, reports, answer });
        (answered, !std::mem::replace(&mut queue.committing, true))
    }

    /// Whether no commit is in progress.
    pub fn is_idle(&self) -> bool {
        !self.queue().committing
    }

    /// Commits until the queue is empty.
    pub fn commit(&self, engine: &Engine) {
        while self.commit_once(engine) {}
    }

    /// Commits one batch. Returns whether more waits, in which case the caller must commit again.
    pub fn commit_once(&self, engine: &Engine) -> bool {
        // If this thread panics, the next request starts a commit again, and the requests that waited get an error.
        let over = Over(self);
        self.record(engine, self.take());
        std::mem::forget(over);
        let mut queue = self.queue();
        queue.committing = !queue.waiting.is_empty();
        queue.committing
    }

    /// Takes as many waiting requests as one commit can hold.
    fn take(&self) -> Vec<Waiting> {
        let mut queue = self.queue();
        let mut count = 0;
        let more = queue.waiting.iter().position(|waiting| {
            count += waiting.reports.len();
            count > MAX_EVENTS_PER_COMMIT
        });
        // A batch is smaller than `MAX_EVENTS_PER_COMMIT`, so the first one always fits.
        let end = more.unwrap_or(queue.waiting.len());
        queue.waiting.drain(..end).collect()
    }
}

/// Drops what was recorded on another thread if it is large: dropping thousands of documents takes a tenth of the time of
/// recording them, and every request waits for the thread that records.
fn drop_beside(recorded: impl Send + 'static, count: usize) {
    if count >= MIN_EVENTS_FOR_THREAD {
        // If no thread can be started, the value is dropped here.
        let _ = std::thread::Builder::new().name("stepback-drop".into()).spawn(move || drop(recorded));
    }
}

struct Over<'a>(&'a Ingest);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.committing = false;
        queue.waiting.clear();
    }
}

/// Where the events of a request went: the index of the workspace, and the range among all events recorded there.
struct CommittedRequest {
    answer: oneshot::Sender<IngestResult>,
    place: usize,
    range: Range<usize>,
}

impl Ingest {
    /// Opens the workspace of a target.
    fn place(&self, engine: &Engine, target: &Target) -> Result<Workspace, Problem> {
        let name = match target {
            Target::Known(id) => return state::opened(engine, *id),
            Target::Remote(name) => name,
        };
        // Every change of the map is one insertion, so a poisoned lock is safe to use.
        let mut remotes = self.remotes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((record, session)) = remotes.get(name) {
            return Ok(engine.remote_workspace_again(record.clone(), session.clone()));
        }
        let workspace = engine.remote_workspace(name)?;
        if remotes.len() >= MAX_CACHED_REMOTES {
            remotes.clear();
        }
        remotes.insert(name.clone(), (workspace.record.clone(), workspace.session.clone()));
        Ok(workspace)
    }

    /// Records the events of several requests, and answers each.
    fn record(&self, engine: &Engine, all: Vec<Waiting>) {
        let mut places: Vec<(Workspace, RecordLock)> = Vec::new();
        let mut reports: Vec<Vec<ReportedEvent>> = Vec::new();
        let mut requests: Vec<CommittedRequest> = Vec::new();
        let opened = self.open(engine, &all, &mut places);
        for Waiting { target, reports: own, answer } in all {
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
            requests.push(CommittedRequest { answer, place, range: first..reports[place].len() });
        }
        let arrivals = |place: usize, range: Range<usize>| WorkspaceEvents {
            workspace: &places[place].0,
            lock: &places[place].1,
            reports: &reports[place][range],
        };
        let count = reports.iter().map(Vec::len).sum();
        let whole: Vec<WorkspaceEvents<'_>> =
            (0..reports.len()).map(|place| arrivals(place, 0..reports[place].len())).collect();
        let done = match engine.record_together(&whole) {
            Ok(done) => Ok(done),
            Err(EngineError::Json(_)) => Err(None),
            Err(error) => Err(Some(Problem::from(error))),
        };
        for CommittedRequest { answer, place, range } in requests {
            let steps = match &done {
                Ok(done) => Ok(done[place][range].to_vec()),
                Err(Some(problem)) => Err(problem.clone()),
                // One request that cannot be recorded must not fail the others, so each is recorded alone.
                Err(None) => match engine.record_together(&[arrivals(place, range)]) {
                    Ok(mut alone) => Ok(alone.pop().unwrap_or_default()),
                    Err(error) => Err(error.into()),
                },
            };
            let workspace = places[place].0.record.id;
            let _ = answer.send(steps.map(|steps| Stored { workspace, steps }));
        }
        drop_beside(reports, count);
    }

    /// Opens the workspaces of all requests, each once, and locks them for recording.
    fn open(
        &self,
        engine: &Engine,
        all: &[Waiting],
        places: &mut Vec<(Workspace, RecordLock)>,
    ) -> HashMap<Target, Result<usize, Problem>> {
        let mut opened = HashMap::new();
        let mut found: Vec<(Target, Workspace)> = Vec::new();
        for Waiting { target, .. } in all {
            if opened.contains_key(target) || found.iter().any(|(known, _)| known == target) {
                continue;
            }
            match self.place(engine, target) {
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
            let known = places.iter().position(|(place, _)| place.record.id == workspace.record.id);
            let at = match known {
                Some(at) => Ok(at),
                None => workspace.lock_recording_within(LOCK_TIMEOUT).map_err(Problem::from).map(|lock| {
                    places.push((workspace, lock));
                    places.len() - 1
                }),
            };
            opened.insert(target, at);
        }
        opened
    }
}

/// The error that too much is in flight already.
#[derive(Clone, Copy, Debug)]
pub struct Full;

impl IntoResponse for Full {
    fn into_response(self) -> Response {
        let problem = Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "busy",
            "the server is overloaded; nothing of this batch was recorded",
        )
        .hint("retry the same batch later; events with ids are never stored twice");
        ([(header::RETRY_AFTER, RETRY_AFTER_SECONDS)], problem).into_response()
    }
}

#[cfg(test)]
mod tests {
    use stepback_model::env::FrozenEnv;
    use stepback_model::time::Timestamp;
    use stepback_store::memory::MemoryStore;

    use super::*;
    use crate::ingest::reported::{IngestContext, read};

    fn ready(session: &str, id: usize, deep: usize) -> ReportedEvent {
        let (open, close) = ("[".repeat(deep), "]".repeat(deep));
        let json =
            format!(r#"{{"session":"{session}","kind":"agent-step","id":"{id}","input":{open}{close}}}"#);
        let around = IngestContext { agent: Some("mine"), key: None, now: Timestamp::from_micros(1) };
        read(&json, id, around).unwrap_or_else(|error| panic!("{error}")).report
    }

    fn with_engine(work: impl FnOnce(&Engine)) {
        let (store, env) = (MemoryStore::new(1 << 20), FrozenEnv::new(Timestamp::from_micros(1), 1));
        work(&Engine::new(Arc::new(store), Arc::new(env)));
    }

    #[test]
    fn what_waits_together_is_committed_together() {
        with_engine(|engine| {
            let ingest = Ingest::default();
            let remote = |name: &str| Target::Remote(name.into());
            // The workspaces exist already, so that creating them adds no commit.
            for name in ["a", "b"] {
                engine.remote_workspace(name).unwrap();
            }
            let before = engine.store.commit_seq().unwrap().0;
            let (first, is_first) = ingest.add(remote("a"), vec![ready("s", 1, 1), ready("s", 2, 1)]);
            assert!(is_first, "the first one sees to the commit");
            let mut others = Vec::new();
            for (name, session) in [("b", "s"), ("a", "s"), ("a", "t")] {
                let (answer, is_first) = ingest.add(remote(name), vec![ready(session, 3, 1)]);
                assert!(!is_first);
                others.push(answer);
            }
            ingest.commit(engine);
            assert_eq!(engine.store.commit_seq().unwrap().0, before + 1, "one commit for all");
            let numbers = |answer: oneshot::Receiver<IngestResult>| -> Vec<u64> {
                answer.blocking_recv().unwrap().unwrap().steps.iter().map(|step| step.number).collect()
            };
            assert_eq!(numbers(first), [1, 2]);
            let others: Vec<_> = others.into_iter().map(numbers).collect();
            assert_eq!(others, [[1], [3], [4]]);
            assert!(ingest.add(remote("a"), vec![ready("s", 4, 1)]).1, "and the next one sees to the next");
        });
    }

    #[test]
    fn one_request_that_cannot_be_recorded_keeps_no_other_from_it() {
        with_engine(|engine| {
            let ingest = Ingest::default();
            // As deep as JSON may be read, and one level too deep once the store wraps it.
            let (deep, _) = ingest.add(Target::Remote("a".into()), vec![ready("s", 1, 126)]);
            let (good, _) = ingest.add(Target::Remote("a".into()), vec![ready("s", 2, 1)]);
            let unknown = Target::Known(WorkspaceId::from_bytes([7; 16]));
            let (lost, _) = ingest.add(unknown, vec![ready("s", 3, 1)]);
            ingest.commit(engine);
            assert_eq!(good.blocking_recv().unwrap().unwrap().steps.len(), 1);
            assert_eq!(lost.blocking_recv().unwrap().unwrap_err().status, 404);
            assert!(deep.blocking_recv().unwrap().is_ok());
        });
    }

    #[test]
    fn there_is_room_for_so_much_and_no_more() {
        let ingest = Ingest::default();
        let mut most = ingest.room(MAX_IN_FLIGHT_BYTES).ok().unwrap();
        assert!(ingest.room(1).is_err());
        most.shrink_to(MAX_IN_FLIGHT_BYTES - 10);
        assert!(ingest.room(10).is_ok());
        drop(most);
        let all: Vec<Room> = (0..MAX_IN_FLIGHT_REQUESTS).map(|_| ingest.room(1).ok().unwrap()).collect();
        assert!(ingest.room(1).is_err());
        drop(all);
        assert!(ingest.room(MAX_IN_FLIGHT_BYTES * 2).is_ok(), "one request always fits");
    }
}
