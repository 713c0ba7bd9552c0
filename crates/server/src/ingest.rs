//! Steps that agents report over the network: taken in batches, recorded together, answered when they are durable.
//!
//! Whoever finds nobody committing commits everything that waits; what arrives meanwhile waits for the next commit, and so a
//! busy server waits for the disk once for hundreds of requests and an idle one not at all. What waits is bounded in bytes:
//! beyond that a client is told to come back, and nothing that was acknowledged is ever given up.

pub mod body;
pub mod reported;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use stepback_engine::recorder::{Conversation, RecordLock, RecordedStep, ReportedEvent, WorkspaceEvents};
use stepback_engine::{Engine, EngineError, Workspace};
use stepback_model::ids::WorkspaceId;
use stepback_model::record::{self, Session};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use self::reported::{Ready, Said};
use crate::problem::Problem;
use crate::state;

/// How many bytes may be on their way at once.
const ROOM: usize = 48 << 20;
/// How many requests.
const REQUESTS: usize = 256;
/// How many things are recorded by one commit.
const TOGETHER: usize = 20_000;
/// So many things take longer to be taken apart than a thread takes to start.
const WORTH_A_THREAD: usize = 300;
/// How long to wait for somebody else who records in a workspace.
const PATIENCE: Duration = Duration::from_secs(2);
/// When a client that is told to come back should, in seconds.
const COME_BACK: &str = "1";
/// How many remote workspaces are remembered.
const MOST_REMOTES: usize = 1000;
/// Longest name of a workspace that is no directory here, in bytes.
const LONGEST_NAME: usize = 200;

/// Where a batch belongs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// A workspace that is known.
    Known(WorkspaceId),
    /// One that is no directory here.
    Remote(String),
}

impl Target {
    /// The one that a client names.
    pub fn named(engine: &Engine<'_>, name: Option<&str>) -> Result<Self, Problem> {
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
                "the name of a workspace is one line of at most {LONGEST_NAME} bytes"
            )));
        }
        Ok(Self::Remote(name.to_owned()))
    }
}

/// Things of one request that wait for the commit.
struct Waiting {
    target: Target,
    ready: Vec<Ready>,
    answer: oneshot::Sender<Answer>,
}

/// What a request hears in the end.
pub type Answer = Result<Stored, Problem>;

/// What became of the things of one request.
#[derive(Debug)]
pub struct Stored {
    /// Where they are.
    pub workspace: WorkspaceId,
    /// Their steps, in their order.
    pub steps: Vec<RecordedStep>,
}

/// Remote workspaces by name, as they are in the store: neither of the two ever changes in what is used here.
type Remotes = HashMap<String, (record::Workspace, Session)>;

/// What is on its way into the store.
pub struct Ingest {
    queue: Mutex<Queue>,
    remotes: Mutex<Remotes>,
    room: Arc<Semaphore>,
    requests: Arc<Semaphore>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    /// Whether somebody is committing, and will look here again.
    committing: bool,
}

impl Default for Ingest {
    fn default() -> Self {
        let (room, requests) = (Semaphore::new(ROOM), Semaphore::new(REQUESTS));
        Self {
            queue: Mutex::default(),
            remotes: Mutex::default(),
            room: Arc::new(room),
            requests: Arc::new(requests),
        }
    }
}

/// Room for one request.
pub struct Room {
    bytes: OwnedSemaphorePermit,
    _request: OwnedSemaphorePermit,
}

impl Room {
    /// Gives back what is not needed after all.
    pub fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes.num_permits().saturating_sub(bytes);
        drop(self.bytes.split(surplus));
    }
}

impl Ingest {
    /// Room for a request that takes so many bytes, if there is any now.
    pub fn room(&self, bytes: usize) -> Result<Room, Full> {
        let bytes = u32::try_from(bytes.clamp(1, ROOM)).map_err(|_| Full)?;
        let request = self.requests.clone().try_acquire_owned().map_err(|_| Full)?;
        let bytes = self.room.clone().try_acquire_many_owned(bytes).map_err(|_| Full)?;
        Ok(Room { bytes, _request: request })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Every change of the queue is one assignment; nothing is half done in there.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds things of one request. Returns where the answer comes, and whether the caller must see to the commit.
    pub fn add(&self, target: Target, ready: Vec<Ready>) -> (oneshot::Receiver<Answer>, bool) {
        let (answer, answered) = oneshot::channel();
        let mut queue = self.queue();
        queue.waiting.push(Waiting { target, ready, answer });
        (answered, !std::mem::replace(&mut queue.committing, true))
    }

    /// Whether nobody commits right now.
    pub fn is_idle(&self) -> bool {
        !self.queue().committing
    }

    /// Commits until nothing waits any more.
    pub fn commit(&self, engine: &Engine<'_>) {
        while self.commit_once(engine) {}
    }

    /// Commits what waits. Returns whether something waits again, which the caller must see to.
    pub fn commit_once(&self, engine: &Engine<'_>) -> bool {
        // Should this thread panic, the next request sees to the commit; those that waited hear that it failed.
        let over = Over(self);
        self.record(engine, self.take());
        std::mem::forget(over);
        let mut queue = self.queue();
        queue.committing = !queue.waiting.is_empty();
        queue.committing
    }

    /// Takes what one commit can hold.
    fn take(&self) -> Vec<Waiting> {
        let mut queue = self.queue();
        let mut count = 0;
        let more = queue.waiting.iter().position(|waiting| {
            count += waiting.ready.len();
            count > TOGETHER
        });
        // A batch is smaller than what is committed together, so that the first one always fits.
        let end = more.unwrap_or(queue.waiting.len());
        queue.waiting.drain(..end).collect()
    }
}

/// Takes apart what was recorded on another thread, if it is much: thousands of documents are a tenth of what recording them
/// takes, and everybody waits for the thread that records.
fn drop_beside(recorded: impl Send + 'static, count: usize) {
    if count >= WORTH_A_THREAD {
        // Without a thread, it is taken apart here.
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

/// Where a request's things went: which of the workspaces, and which of all that is recorded there.
struct Asked {
    answer: oneshot::Sender<Answer>,
    place: usize,
    range: Range<usize>,
}

impl Ingest {
    /// Opens a workspace that things belong to.
    fn place<'e>(&self, engine: &'e Engine<'_>, target: &Target) -> Result<Workspace<'e>, Problem> {
        let name = match target {
            Target::Known(id) => return state::opened(engine, *id),
            Target::Remote(name) => name,
        };
        // Every change of it is one insertion.
        let mut remotes = self.remotes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((record, session)) = remotes.get(name) {
            return Ok(engine.remote_workspace_again(record.clone(), session.clone()));
        }
        let workspace = engine.remote_workspace(name)?;
        if remotes.len() >= MOST_REMOTES {
            remotes.clear();
        }
        remotes.insert(name.clone(), (workspace.record.clone(), workspace.session.clone()));
        Ok(workspace)
    }

    /// Records what several requests brought, and answers them.
    fn record(&self, engine: &Engine<'_>, all: Vec<Waiting>) {
        let mut places: Vec<(Workspace<'_>, RecordLock)> = Vec::new();
        let mut brought: Vec<Vec<Ready>> = Vec::new();
        let mut asked: Vec<Asked> = Vec::new();
        let opened = self.open(engine, &all, &mut places);
        for Waiting { target, ready, answer } in all {
            let place = match &opened[&target] {
                Ok(place) => *place,
                Err(problem) => {
                    let _ = answer.send(Err(problem.clone()));
                    continue;
                }
            };
            brought.resize_with(places.len(), Vec::new);
            let first = brought[place].len();
            brought[place].extend(ready);
            asked.push(Asked { answer, place, range: first..brought[place].len() });
        }
        let (bare, said): (Vec<Vec<ReportedEvent<'_>>>, Vec<Vec<Option<Said>>>) = (brought.into_iter())
            .map(|own| own.into_iter().map(|ready| (ready.report, ready.said)).unzip())
            .unzip();
        let reports: Vec<Vec<ReportedEvent<'_>>> = (bare.into_iter().zip(&said))
            .map(|(own, said)| {
                let spoken = said.iter().map(|said| said.as_ref().map(|said| said as &dyn Conversation));
                own.into_iter()
                    .zip(spoken)
                    .map(|(report, conversation)| ReportedEvent { conversation, ..report })
                    .collect()
            })
            .collect();
        let arrivals = |place: usize, range: Range<usize>| WorkspaceEvents {
            workspace: &places[place].0,
            lock: &places[place].1,
            reports: &reports[place][range],
        };
        let asked_for = reports.iter().map(Vec::len).sum();
        let whole: Vec<WorkspaceEvents<'_>> =
            (0..reports.len()).map(|place| arrivals(place, 0..reports[place].len())).collect();
        let done = match engine.record_together(&whole) {
            Ok(done) => Ok(done),
            Err(EngineError::Input(_)) => Err(None),
            Err(error) => Err(Some(Problem::from(error))),
        };
        for Asked { answer, place, range } in asked {
            let steps = match &done {
                Ok(done) => Ok(done[place][range].to_vec()),
                Err(Some(problem)) => Err(problem.clone()),
                // One that cannot be recorded keeps no other from being recorded.
                Err(None) => match engine.record_together(&[arrivals(place, range)]) {
                    Ok(mut alone) => Ok(alone.pop().unwrap_or_default()),
                    Err(error) => Err(error.into()),
                },
            };
            let workspace = places[place].0.record.id;
            let _ = answer.send(steps.map(|steps| Stored { workspace, steps }));
        }
        let bare: Vec<Vec<ReportedEvent<'static>>> = (reports.into_iter())
            .map(|own| own.into_iter().map(|report| ReportedEvent { conversation: None, ..report }).collect())
            .collect();
        drop_beside((bare, said), asked_for);
    }

    /// Opens the workspaces that things belong to, each once, and locks them for recording.
    fn open<'e>(
        &self,
        engine: &'e Engine<'_>,
        all: &[Waiting],
        places: &mut Vec<(Workspace<'e>, RecordLock)>,
    ) -> HashMap<Target, Result<usize, Problem>> {
        let mut opened = HashMap::new();
        let mut found: Vec<(Target, Workspace<'e>)> = Vec::new();
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
        // Always in the same order, so that two that lock several never wait for each other.
        found.sort_by_key(|(_, workspace)| workspace.record.id);
        for (target, workspace) in found {
            // Two names of one workspace are one.
            let known = places.iter().position(|(place, _)| place.record.id == workspace.record.id);
            let at = match known {
                Some(at) => Ok(at),
                None => workspace.lock_recording_within(PATIENCE).map_err(Problem::from).map(|lock| {
                    places.push((workspace, lock));
                    places.len() - 1
                }),
            };
            opened.insert(target, at);
        }
        opened
    }
}

/// That too much is on its way already.
#[derive(Clone, Copy, Debug)]
pub struct Full;

impl IntoResponse for Full {
    fn into_response(self) -> Response {
        let problem = Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "busy",
            "more is being sent than can be recorded right now; nothing of this batch was taken",
        )
        .hint("send the same batch again a little later; what has ids is never stored twice");
        ([(header::RETRY_AFTER, COME_BACK)], problem).into_response()
    }
}

#[cfg(test)]
mod tests {
    use stepback_model::env::FrozenEnv;
    use stepback_model::time::Timestamp;
    use stepback_store::memory::MemoryStore;
    use stepback_worktree::rules::Budget;

    use super::*;
    use crate::ingest::reported::{IngestContext, read};

    fn ready(session: &str, id: usize, deep: usize) -> Ready {
        let (open, close) = ("[".repeat(deep), "]".repeat(deep));
        let json =
            format!(r#"{{"session":"{session}","kind":"agent-step","id":"{id}","input":{open}{close}}}"#);
        let around = IngestContext { agent: Some("mine"), key: None, now: Timestamp::from_micros(1) };
        read(&json, id, around).unwrap_or_else(|error| panic!("{error}"))
    }

    fn with_engine(work: impl FnOnce(&Engine<'_>)) {
        let (store, env) = (MemoryStore::new(1 << 20), FrozenEnv::new(Timestamp::from_micros(1), 1));
        work(&Engine {
            store: &store,
            env: &env,
            budget: Budget::default(),
            threads: 1,
            progress: None,
            watcher: None,
        });
    }

    #[test]
    fn what_waits_together_is_committed_together() {
        with_engine(|engine| {
            let ingest = Ingest::default();
            let remote = |name: &str| Target::Remote(name.into());
            // The workspaces are there already.
            for name in ["a", "b"] {
                engine.remote_workspace(name).unwrap();
            }
            let before = engine.store.commit_seq().unwrap().0;
            let (first, nobody) = ingest.add(remote("a"), vec![ready("s", 1, 1), ready("s", 2, 1)]);
            assert!(nobody, "the first one sees to the commit");
            let mut others = Vec::new();
            for (name, session) in [("b", "s"), ("a", "s"), ("a", "t")] {
                let (answer, nobody) = ingest.add(remote(name), vec![ready(session, 3, 1)]);
                assert!(!nobody);
                others.push(answer);
            }
            ingest.commit(engine);
            assert_eq!(engine.store.commit_seq().unwrap().0, before + 1, "one commit for all");
            let numbers = |answer: oneshot::Receiver<Answer>| -> Vec<u64> {
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
            // As deep as JSON may be read, and one too deep with what is around it in the store.
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
        let mut most = ingest.room(ROOM).ok().unwrap();
        assert!(ingest.room(1).is_err());
        most.shrink_to(ROOM - 10);
        assert!(ingest.room(10).is_ok());
        drop(most);
        let all: Vec<Room> = (0..REQUESTS).map(|_| ingest.room(1).ok().unwrap()).collect();
        assert!(ingest.room(1).is_err());
        drop(all);
        assert!(ingest.room(ROOM * 2).is_ok(), "one request always fits");
    }
}
