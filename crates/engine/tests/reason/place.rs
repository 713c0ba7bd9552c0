//! A workspace in which an agent thinks.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use stepback_engine::reason::{BoardEdit, Thinker};
use stepback_engine::recorder::{ReportedEvent, ScanPolicy, SessionUpdate};
use stepback_engine::{Engine, Workspace};
use stepback_model::env::Env;
use stepback_model::event::AgentEvent;
use stepback_model::record::{Session, StepKind};
use stepback_model::time::Timestamp;
use stepback_postgres::PostgresStore;
use stepback_reasoning::BoardMutation;
use stepback_reasoning::ids::HypothesisId;
use stepback_reasoning::item::{EvidenceKind, EvidenceOrigin, HypothesisStatus};
use stepback_store::Store;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::memory::MemoryStore;
use stepback_testkit::postgres::PostgresServer;
use stepback_testkit::tree;
use stepback_worktree::rules::Budget;

pub const START: i64 = 1_700_000_000_000_000;

/// A clock that tests move, and ids that count.
pub struct Clock(AtomicI64, AtomicI64);

impl Env for Clock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }

    fn fresh_id(&self) -> [u8; 16] {
        let next = self.1.fetch_add(1, Ordering::SeqCst);
        let mut id = [7; 16];
        id[..8].copy_from_slice(&next.to_be_bytes());
        id
    }
}

pub struct Place {
    pub root: PathBuf,
    pub store: Box<dyn Store>,
    clock: Clock,
    // After the store, which says goodbye to it.
    _server: Option<PostgresServer>,
    _dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self::with(|top| (Box::new(EmbeddedStore::open(&top.join("store")).unwrap()), None))
    }

    pub fn in_memory() -> Self {
        Self::with(|_| (Box::new(MemoryStore::new(1 << 30)), None))
    }

    pub fn in_postgres() -> Self {
        Self::with(|top| {
            let server = PostgresServer::start();
            let store = PostgresStore::open(&server.database(), &top.join("store")).unwrap();
            (Box::new(store), Some(server))
        })
    }

    /// One place for each kind of store, all alike.
    pub fn in_every_store() -> [Self; 3] {
        [Self::new(), Self::in_memory(), Self::in_postgres()]
    }

    fn with(open: impl FnOnce(&Path) -> (Box<dyn Store>, Option<PostgresServer>)) -> Self {
        let dir = tempfile::tempdir_in(tree::scratch_place()).unwrap();
        let top = dir.path().canonicalize().unwrap();
        let root = top.join("work");
        fs::create_dir(&root).unwrap();
        let (store, server) = open(&top);
        let clock = Clock(AtomicI64::new(START), AtomicI64::new(1));
        Self { root, store, clock, _server: server, _dir: dir }
    }

    pub fn engine(&self) -> Engine<'_> {
        Engine {
            store: &*self.store,
            env: &self.clock,
            budget: Budget::default(),
            threads: 2,
            progress: None,
            watcher: None,
        }
    }

    /// Lets seconds pass.
    pub fn wait(&self, seconds: i64) {
        self.clock.0.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.root.join(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.root.join(name)).unwrap()
    }

    /// Something that an agent reports.
    pub fn report(&self, workspace: &Workspace<'_>, kind: StepKind, call: Option<&str>, effect: ScanPolicy) {
        let mut event = AgentEvent::new("test", "s", kind, format!("{} happened", kind.as_str()));
        event.call = call.map(str::to_owned);
        event.tool = call.map(|_| "Bash".to_owned());
        let lock = workspace.lock_recording().unwrap();
        let learned = SessionUpdate::default();
        let report =
            ReportedEvent { event, effect, at: self.now(), conversation: None, paths: Vec::new(), learned };
        workspace.record(&lock, &report).unwrap();
    }

    /// The session of the agent, which has begun.
    pub fn session(&self, workspace: &Workspace<'_>) -> Session {
        self.report(workspace, StepKind::AgentStep, None, ScanPolicy::None);
        workspace.thinking_session(None, self.now()).unwrap()
    }
}

pub fn propose(statement: &str) -> BoardMutation {
    BoardMutation::ProposeHypothesis {
        statement: statement.into(),
        prior: 0.5,
        parent: None,
        excludes: Vec::new(),
        tags: Vec::new(),
    }
}

pub fn evidence(hypothesis: u32, strength: f64, document: &str) -> BoardMutation {
    BoardMutation::AddEvidence {
        hypothesis: HypothesisId(hypothesis),
        strength,
        text: format!("{document} says so"),
        kind: EvidenceKind::Documentation,
        source: EvidenceOrigin::Documentation(document.into()),
    }
}

pub fn conclude(hypothesis: u32, status: HypothesisStatus) -> BoardMutation {
    BoardMutation::SetHypothesis { hypothesis: HypothesisId(hypothesis), status, reason: None }
}

pub fn think(thinker: &mut Thinker<'_>, mutation: BoardMutation) -> BoardEdit {
    thinker.think(&mutation).unwrap()
}
