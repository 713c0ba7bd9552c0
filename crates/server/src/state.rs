//! The state that all requests share, and access to the engine, which blocks and so runs on threads of its own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use stepback_api::maintenance::StatisticsDocument;
use stepback_engine::{Engine, Workspace};
use stepback_model::ids::WorkspaceId;
use stepback_model::record::Session;
use stepback_store::Store;
use stepback_watcher::client::WatcherClient;
use stepback_worktree::scan::hints::ScanHints;
use tokio::task::JoinHandle;

use crate::api::otlp::OtlpReceiver;
use crate::api::reruns::{RunningReruns, ServerHost};
use crate::ingest::IngestQueue;
use crate::live::LiveUpdates;
use crate::problem::Problem;
use crate::single_flight::SingleFlight;

/// The shared state of the server: store, environment, queues. Cheap to clone.
#[derive(Clone)]
pub struct AppState {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    rerun_host: Option<ServerHost>,
    running_reruns: RunningReruns,
    /// Whether a background task is adding steps to the search index.
    indexing: AtomicBool,
    otlp_receiver: OtlpReceiver,
    watcher: OnceLock<Arc<dyn ScanHints>>,
    ingest: IngestQueue,
    live: LiveUpdates,
    statistics: SingleFlight<StatisticsDocument>,
}

/// Steps indexed per batch in the background; between batches, a process that ends is noticed.
const STEPS_PER_INDEX_BATCH: u64 = 4000;

/// How long a stopping program waits for running reruns.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

impl AppState {
    /// Creates the state over an engine, without reruns.
    pub fn new(engine: Engine) -> Self {
        Self::build(engine, None)
    }

    /// Creates the state over an engine, on a machine where sessions can be run again.
    pub fn with_rerun_host(engine: Engine, stage: ServerHost) -> Self {
        Self::build(engine, Some(stage))
    }

    fn build(engine: Engine, stage: Option<ServerHost>) -> Self {
        let (running, receiver) = (RunningReruns::default(), OtlpReceiver::default());
        let (ingest, live) = (IngestQueue::default(), LiveUpdates::default());
        let (indexing, watcher) = (AtomicBool::new(false), OnceLock::new());
        let statistics = SingleFlight::default();
        let inner = Inner {
            engine,
            rerun_host: stage,
            running_reruns: running,
            indexing,
            otlp_receiver: receiver,
            watcher,
            ingest,
            live,
            statistics,
        };
        Self { inner: Arc::new(inner) }
    }

    /// What reruns need; `None` if they cannot run here.
    pub(crate) fn rerun_host(&self) -> Option<&ServerHost> {
        self.inner.rerun_host.as_ref()
    }

    /// The running reruns.
    pub(crate) fn running_reruns(&self) -> &RunningReruns {
        &self.inner.running_reruns
    }

    /// The statistics of the store, shared by the requests for them.
    pub(crate) fn statistics(&self) -> &SingleFlight<StatisticsDocument> {
        &self.inner.statistics
    }

    /// Interrupts all reruns because the program is about to end, and waits a while for them to finish.
    pub fn shut_down_reruns(&self) {
        self.running_reruns().interrupt_all();
        let begun = Instant::now();
        while !self.running_reruns().is_empty() && begun.elapsed() < SHUTDOWN_TIMEOUT {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Runs `work` with the engine on the current thread, which may block.
    pub(crate) fn run_on_current_thread<T>(
        &self,
        task: impl FnOnce(&Engine) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        task(&self.inner.engine())
    }

    /// Sets the watcher that is asked for changed paths in workspaces.
    pub fn set_watcher(&self, watcher: WatcherClient) {
        // Only the first call counts; there is one watcher for each store.
        let _ = self.inner.watcher.set(Arc::new(watcher));
    }

    /// The store.
    pub fn store(&self) -> &dyn Store {
        self.inner.engine.store()
    }

    /// Whether a background task is adding steps to the search index.
    pub(crate) fn is_indexing(&self) -> bool {
        self.inner.indexing.load(Ordering::Acquire)
    }

    /// Adds steps that are missing in the search index in the background, until it is complete. Only one task runs at a time.
    pub(crate) fn index_in_background(&self) {
        let inner = self.inner.clone();
        if inner.indexing.swap(true, Ordering::AcqRel) {
            return;
        }
        tokio::task::spawn_blocking(move || {
            let engine = inner.engine();
            // On an error the task stops; the next search retries and reports it.
            while let Ok((_, false)) = engine.update_index_partially(STEPS_PER_INDEX_BATCH) {
                std::thread::yield_now();
            }
            inner.indexing.store(false, Ordering::Release);
        });
    }

    /// The receiver of OpenTelemetry data.
    pub(crate) fn otlp_receiver(&self) -> &OtlpReceiver {
        &self.inner.otlp_receiver
    }

    /// The queue of reported steps on their way into the store.
    pub(crate) fn ingest(&self) -> &IngestQueue {
        &self.inner.ingest
    }

    /// The shared state of live connections.
    pub(crate) fn live(&self) -> &LiveUpdates {
        &self.inner.live
    }

    /// Starts `work` with the engine on a blocking thread. It runs to its end even if the handle is dropped.
    pub(crate) fn spawn_blocking<T: Send + 'static>(
        &self,
        task: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || task(&inner.engine()))
    }

    /// Runs `work` with the engine on a blocking thread.
    pub async fn run<T: Send + 'static>(
        &self,
        task: impl FnOnce(&Engine) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        match self.spawn_blocking(task).await {
            Ok(done) => done,
            Err(_) => Err(Problem::internal("an internal error occurred")),
        }
    }
}

impl Inner {
    fn engine(&self) -> Engine {
        Engine { watcher: self.watcher.get().cloned(), ..self.engine.clone() }
    }
}

/// Finds the workspace with this id, or the only one whose id begins with it.
pub fn find_workspace(engine: &Engine, id: &str) -> Result<Workspace, Problem> {
    let all = engine.store.workspaces()?;
    let mut found = all.iter().filter(|workspace| !id.is_empty() && workspace.id.to_string().starts_with(id));
    let (Some(record), None) = (found.next(), found.next()) else {
        return Err(Problem::not_found("workspace", id));
    };
    open_workspace(engine, record.id)
}

/// Finds a session and its workspace.
pub fn find_session(engine: &Engine, id: &str) -> Result<(Workspace, Session), Problem> {
    let session = engine.find_session_in_store(id).map_err(|_| Problem::not_found("session", id))?;
    Ok((open_workspace(engine, session.workspace)?, session))
}

/// Opens the workspace with exactly this id, and records first what hooks left for it.
pub fn open_workspace(engine: &Engine, id: WorkspaceId) -> Result<Workspace, Problem> {
    let all = engine.store.workspaces()?;
    let record = all.into_iter().find(|workspace| workspace.id == id);
    let record = record.ok_or_else(|| Problem::not_found("workspace", &id.to_string()))?;
    let workspace = engine.open_known_workspace(Path::new(OsStr::from_bytes(&record.root)))?;
    stepback_agents::record::record_inbox(&workspace)?;
    workspace.update_branches_with_directories()?;
    Ok(workspace)
}
