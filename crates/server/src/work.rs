//! The engine, as a request uses it: on a thread where it may wait.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use stepback_engine::{Engine, Workspace};
use stepback_model::env::Env;
use stepback_model::ids::WorkspaceId;
use stepback_model::record::Session;
use stepback_store::Store;
use stepback_worktree::rules::Budget;
use tokio::task::JoinHandle;

use crate::ingest::Ingest;
use crate::live::Live;
use crate::plans::Plans;
use crate::problem::Problem;

/// What every request works with.
#[derive(Clone)]
pub struct Work {
    inner: Arc<Inner>,
}

struct Inner {
    store: &'static dyn Store,
    env: Box<dyn Env>,
    threads: usize,
    plans: Plans,
    ingest: Ingest,
    live: Live,
}

impl Work {
    /// Over a store.
    pub fn new(store: &'static dyn Store, env: Box<dyn Env>, threads: usize) -> Self {
        let (plans, ingest, live) = (Plans::default(), Ingest::default(), Live::default());
        Self { inner: Arc::new(Inner { store, env, threads, plans, ingest, live }) }
    }

    /// The store.
    pub fn store(&self) -> &'static dyn Store {
        self.inner.store
    }

    /// The plans that were shown.
    pub(crate) fn plans(&self) -> &Plans {
        &self.inner.plans
    }

    /// What is on its way into the store.
    pub(crate) fn ingest(&self) -> &Ingest {
        &self.inner.ingest
    }

    /// What goes on in the store.
    pub(crate) fn live(&self) -> &Live {
        &self.inner.live
    }

    /// Starts some work with the engine on a thread where it may wait. It goes on even if nobody waits for it.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Engine<'_>) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || {
            let engine = Engine {
                store: inner.store,
                env: &*inner.env,
                budget: Budget::default(),
                threads: inner.threads,
                progress: None,
            };
            work(&engine)
        })
    }

    /// Does some work with the engine on a thread where it may wait.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Engine<'_>) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        match self.start(work).await {
            Ok(done) => done,
            Err(_) => Err(Problem::internal("the work on this request ended unexpectedly")),
        }
    }
}

/// The workspace with this id, or the beginning of one.
pub fn workspace<'e>(engine: &'e Engine<'_>, id: &str) -> Result<Workspace<'e>, Problem> {
    let all = engine.store.workspaces()?;
    let mut found = all.iter().filter(|workspace| !id.is_empty() && workspace.id.to_string().starts_with(id));
    let (Some(record), None) = (found.next(), found.next()) else {
        return Err(Problem::unknown("workspace", id));
    };
    opened(engine, record.id)
}

/// The workspace of a session, and the session.
pub fn session<'e>(engine: &'e Engine<'_>, id: &str) -> Result<(Workspace<'e>, Session), Problem> {
    let session = engine.find_session_anywhere(id).map_err(|_| Problem::unknown("session", id))?;
    Ok((opened(engine, session.workspace)?, session))
}

/// The workspace with exactly this id, with everything that hooks left for it.
pub fn opened<'e>(engine: &'e Engine<'_>, id: WorkspaceId) -> Result<Workspace<'e>, Problem> {
    let all = engine.store.workspaces()?;
    let record = all.into_iter().find(|workspace| workspace.id == id);
    let record = record.ok_or_else(|| Problem::unknown("workspace", &id.to_string()))?;
    let workspace = engine.known_workspace(Path::new(OsStr::from_bytes(&record.root)))?;
    stepback_agents::record::take_in_quietly(&workspace)?;
    Ok(workspace)
}
