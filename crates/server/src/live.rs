//! Live updates: tells clients about new commits in the store as they happen.
//!
//! One task waits for commits, by this server or by another process, and wakes all followers. A follower keeps only its
//! position in the log and reads on from there at its own pace: a slow one falls behind, but neither loses a step nor delays
//! the others. Everything that is not a step is only announced as a hint that something changed.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use stepback_agents::inbox;
use stepback_api::control::StopDocument;
use stepback_engine::Engine;
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::record::StepKind;
use stepback_store::port::{CommitMark, StepAt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::api::stops;
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Most clients that may follow at once.
const MOST: usize = 128;
/// Steps read per batch.
const STEPS_PER_READ: u64 = 256;
/// How long one wait for a commit blocks.
const COMMIT_WAIT_TIMEOUT: Duration = Duration::from_millis(250);
/// How often to check for what is not a commit: notes left by hooks, and agents that wait.
const SIDE_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Shortest time between two hints to one follower that something else changed.
const MIN_HINT_INTERVAL: Duration = Duration::from_millis(500);
/// After this long without news, a follower is sent [`News::Quiet`].
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Delay before a retry when the store does not answer.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The state of the store at the last scan, shared with all followers.
#[derive(Clone, Debug, Default)]
struct StoreStatus {
    mark: Option<CommitMark>,
    stops: Arc<Vec<StopDocument>>,
}

/// The shared state of all live connections of a server.
pub struct LiveUpdates {
    status: watch::Sender<StoreStatus>,
    closing: watch::Sender<bool>,
    follower_slots: Arc<Semaphore>,
    /// Whether the task that looks for commits is running.
    is_polling: Mutex<bool>,
}

impl Default for LiveUpdates {
    fn default() -> Self {
        Self {
            status: watch::Sender::default(),
            closing: watch::Sender::default(),
            follower_slots: Arc::new(Semaphore::new(MOST)),
            is_polling: Mutex::default(),
        }
    }
}

impl LiveUpdates {
    /// Ends all followers: the server is about to stop.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Whether the server is about to stop.
    pub fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    fn subscribe(&self, state: &AppState) -> watch::Receiver<StoreStatus> {
        let mut looking = self.is_polling.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = self.status.subscribe();
        if !std::mem::replace(&mut *looking, true) {
            tokio::spawn(poll_store(state.clone()));
        }
        seen
    }

    /// Whether the task should end, because no follower is left or the server is stopping.
    fn end_polling_if_unused(&self) -> bool {
        let mut looking = self.is_polling.lock().unwrap_or_else(PoisonError::into_inner);
        *looking = self.status.receiver_count() > 0 && !*self.closing.borrow();
        !*looking
    }
}

/// Looks for commits and for notes left by hooks, for as long as there are followers.
async fn poll_store(state: AppState) {
    let live = state.live();
    let mut aside: Option<Instant> = None;
    while !live.end_polling_if_unused() {
        let mark = live.status.borrow().mark;
        let due = aside.is_none_or(|last| last.elapsed() >= SIDE_POLL_INTERVAL);
        if due {
            aside = Some(Instant::now());
        }
        let found = state.run(move |engine| {
            let stops = match due {
                true => {
                    record_inboxes(engine)?;
                    let waiting = stops::list_stops(engine)?;
                    Some(
                        waiting
                            .iter()
                            .map(|(id, _, stop)| stops::stop_document(id, stop))
                            .collect::<Vec<_>>(),
                    )
                }
                false => None,
            };
            let mark = match mark {
                Some(mark) => engine.store.wait_for_commit(mark, COMMIT_WAIT_TIMEOUT)?,
                None => engine.store.commit_seq()?,
            };
            Ok((mark, stops))
        });
        match found.await {
            Ok((mark, stops)) => {
                live.status.send_if_modified(|seen| {
                    let stops = stops.filter(|stops| *stops != *seen.stops);
                    let changed = seen.mark != Some(mark) || stops.is_some();
                    seen.mark = Some(mark);
                    seen.stops = stops.map_or_else(|| seen.stops.clone(), Arc::new);
                    changed
                });
            }
            // Every request that hits this error reports it; this task only waits and retries.
            Err(_) => sleep(RETRY_DELAY).await,
        }
    }
}

/// Records what hooks had no time to record.
fn record_inboxes(engine: &Engine) -> Result<(), Problem> {
    let Some(dir) = engine.store.local_dir() else { return Ok(()) };
    for workspace in engine.store.workspaces()? {
        let own = dir.join("workspaces").join(workspace.id.to_string());
        if !inbox::is_empty(Path::new(&own)) {
            // A workspace that cannot be opened right now must not hold up news of the others.
            let _ = state::open_workspace(engine, workspace.id);
        }
    }
    Ok(())
}

/// Which steps and stops a follower receives. A field that is `None` or empty does not limit.
#[derive(Clone, Debug, Default)]
pub struct LiveFilter {
    /// Only steps of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Only steps of this session.
    pub session: Option<SessionId>,
    /// Only steps of one of these kinds.
    pub kinds: Vec<StepKind>,
}

impl LiveFilter {
    fn matches_step(&self, placed: &StepAt) -> bool {
        let step = &placed.stored.step;
        self.workspace.is_none_or(|workspace| workspace == placed.workspace)
            && self.session.is_none_or(|session| session == step.session)
            && (self.kinds.is_empty() || self.kinds.contains(&step.kind))
    }

    fn matches_stop(&self, stop: &StopDocument) -> bool {
        self.workspace.is_none_or(|workspace| workspace.to_string() == stop.workspace)
            && self.session.is_none_or(|session| session.to_string() == stop.session)
    }
}

/// One update for a follower.
#[derive(Debug)]
pub enum FollowerEvent {
    /// Committed steps, in log order.
    Steps(Vec<StepAt>),
    /// Something was committed: besides steps, sessions, annotations and operations may have changed.
    Changed,
    /// The complete list of agents that wait now.
    Stops(Vec<StopDocument>),
    /// No news for a while.
    KeepAlive,
}

/// One client's position in the log.
pub struct Follower {
    state: AppState,
    filter: LiveFilter,
    position: u64,
    /// Whether there may be more steps after the position.
    is_behind: bool,
    status: watch::Receiver<StoreStatus>,
    /// The last commit that the follower was told about.
    mark: CommitMark,
    stops: Vec<StopDocument>,
    closing: watch::Receiver<bool>,
    /// When the next hint that something changed is due. `hinted` is when the last one was sent.
    hint_due_at: Option<Instant>,
    last_hint_at: Option<Instant>,
    _permit: OwnedSemaphorePermit,
}

impl Follower {
    /// Begins after a position, or at the end of the log if there is none.
    pub async fn start(state: &AppState, filter: LiveFilter, after: Option<u64>) -> Result<Self, Problem> {
        let live = state.live();
        let permit = live.follower_slots.clone().try_acquire_owned().map_err(|_| {
            Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                format!("the limit of {MOST} clients is reached"),
            )
            .with_hint("close one of them, or follow several sessions with one connection")
        })?;
        let seen = live.subscribe(state);
        // The mark is read before the position: a commit in between is announced once too often, never not at all.
        let (mark, newest) =
            state.run(|engine| Ok((engine.store.commit_seq()?, engine.store.newest_position()?))).await?;
        if let Some(after) = after.filter(|after| *after > newest) {
            let what = format!("the log ends at {newest}, before position {after}");
            return Err(Problem::usage(what).with_hint("start without a position; this may be another store"));
        }
        Ok(Self {
            state: state.clone(),
            filter,
            position: after.unwrap_or(newest),
            is_behind: true,
            mark,
            status: seen,
            stops: Vec::new(),
            closing: live.closing.subscribe(),
            hint_due_at: None,
            last_hint_at: None,
            _permit: permit,
        })
    }

    /// The position reached so far: a client that resumes from here misses nothing.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the next update; `None` when the server stops. Cancel safe: nothing is lost if the caller drops the future.
    pub async fn next(&mut self) -> Option<FollowerEvent> {
        loop {
            if *self.closing.borrow() {
                return None;
            }
            if self.is_behind {
                let position = self.position;
                let read =
                    self.state.run(move |engine| Ok(engine.store.follow(position, STEPS_PER_READ)?)).await;
                let Ok(mut page) = read else {
                    sleep(RETRY_DELAY).await;
                    continue;
                };
                self.is_behind = page.len() as u64 >= STEPS_PER_READ;
                self.position = page.last().map_or(position, |last| last.position);
                page.retain(|placed| self.filter.matches_step(placed));
                if !page.is_empty() {
                    return Some(FollowerEvent::Steps(page));
                }
                continue;
            }
            if self.hint_due_at.is_some_and(|hint| hint <= Instant::now()) {
                (self.hint_due_at, self.last_hint_at) = (None, Some(Instant::now()));
                return Some(FollowerEvent::Changed);
            }
            if let Some(stops) = self.apply_status() {
                return Some(FollowerEvent::Stops(stops));
            }
            if self.is_behind {
                continue;
            }
            let due = self.hint_due_at.unwrap_or_else(|| Instant::now() + KEEP_ALIVE_INTERVAL);
            tokio::select! {
                changed = self.status.changed() => changed.ok()?,
                _ = self.closing.changed() => {}
                () = sleep_until(due) => {
                    if self.hint_due_at.is_none() {
                        return Some(FollowerEvent::KeepAlive);
                    }
                }
            }
        }
    }

    /// Applies the latest scan. Returns which agents wait, if that changed.
    fn apply_status(&mut self) -> Option<Vec<StopDocument>> {
        let seen = self.status.borrow_and_update();
        // The scan may be older than the follower.
        if let Some(mark) = seen.mark.filter(|mark| *mark > self.mark) {
            if self.hint_due_at.is_none() {
                let now = Instant::now();
                self.hint_due_at =
                    Some(self.last_hint_at.map_or(now, |last| now.max(last + MIN_HINT_INTERVAL)));
            }
            self.mark = mark;
            self.is_behind = true;
        }
        let stops: Vec<StopDocument> =
            seen.stops.iter().filter(|stop| self.filter.matches_stop(stop)).cloned().collect();
        (stops != self.stops).then(|| {
            self.stops.clone_from(&stops);
            stops
        })
    }
}

#[cfg(test)]
mod tests {
    use stepback_engine::Engine;
    use stepback_model::env::FrozenEnv;
    use stepback_model::record::WorkspaceRecord;
    use stepback_model::time::Timestamp;
    use stepback_store::memory::MemoryStore;
    use stepback_store::port::Mutation;
    use stepback_store::prelude::*;

    use super::*;

    /// The scan can be delayed for so long that its first mark already contains a commit the follower has to be told about.
    #[tokio::test]
    async fn a_commit_before_the_first_scan_is_announced() {
        let now = Timestamp::from_micros(1);
        let store = Arc::new(MemoryStore::new(1 << 20));
        let work = AppState::new(Engine::new(store.clone(), Arc::new(FrozenEnv::new(now, 1))));
        *work.live().is_polling.lock().unwrap() = true;
        let mut follower = Follower::start(&work, LiveFilter::default(), None).await.unwrap();
        let workspace =
            WorkspaceRecord { id: WorkspaceId::from_bytes([1; 16]), root: b"/w".to_vec(), created_at: now };
        store.commit(None, &[Mutation::AddWorkspace(workspace)]).unwrap();
        let mark = store.commit_seq().unwrap();
        work.live().status.send_modify(|seen| seen.mark = Some(mark));
        assert!(matches!(follower.next().await, Some(FollowerEvent::Changed)));
    }
}
