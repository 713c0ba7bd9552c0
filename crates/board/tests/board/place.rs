//! A workspace in which an agent thinks.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use stepback_engine::Workspace;
use stepback_engine::board::{BoardEdit, BoardEditor};
use stepback_engine::recorder::{ReportedEvent, ScanPolicy};
use stepback_model::env::Env;
use stepback_model::event::AgentEvent;
use stepback_model::record::{Session, StepKind};
use stepback_model::time::Timestamp;
use stepback_postgres::PostgresStore;
use stepback_reasoning::BoardMutation;
use stepback_reasoning::ids::HypothesisId;
use stepback_reasoning::item::{EvidenceKind, EvidenceOrigin, HypothesisStatus};
use stepback_store::Store;
use stepback_testkit::TestWorkspace;
use stepback_testkit::postgres::PostgresServer;
pub use stepback_testkit::test_workspace::START;

/// A clock that tests move, and ids that count.
#[derive(Clone)]
pub struct MovedClock(Arc<(AtomicI64, AtomicI64)>);

impl Env for MovedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.0.load(Ordering::SeqCst))
    }

    fn fresh_id(&self) -> [u8; 16] {
        let next = self.0.1.fetch_add(1, Ordering::SeqCst);
        let mut id = [7; 16];
        id[..8].copy_from_slice(&next.to_be_bytes());
        id
    }
}

/// A workspace in which an agent keeps a board.
pub struct BoardWorkspace {
    test: TestWorkspace,
    clock: MovedClock,
    // Stopped after the store, which closes its connections to it.
    _server: Option<PostgresServer>,
}

impl Deref for BoardWorkspace {
    type Target = TestWorkspace;

    fn deref(&self) -> &TestWorkspace {
        &self.test
    }
}

impl BoardWorkspace {
    pub fn new() -> Self {
        Self::over(TestWorkspace::new(), None)
    }

    pub fn in_memory() -> Self {
        Self::over(TestWorkspace::in_memory(), None)
    }

    pub fn in_postgres() -> Self {
        let server = PostgresServer::start();
        let open = |top: &Path| -> Arc<dyn Store> {
            Arc::new(PostgresStore::open(&server.database(), &top.join("store")).unwrap())
        };
        Self::over(TestWorkspace::with_store(open), Some(server))
    }

    /// One for each kind of store, all alike.
    pub fn in_every_store() -> [Self; 3] {
        [Self::new(), Self::in_memory(), Self::in_postgres()]
    }

    fn over(test: TestWorkspace, server: Option<PostgresServer>) -> Self {
        let clock = MovedClock(Arc::new((AtomicI64::new(START), AtomicI64::new(1))));
        Self { test: test.with_env(clock.clone()), clock, _server: server }
    }

    /// Lets seconds pass.
    pub fn wait(&self, seconds: i64) {
        self.clock.0.0.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Something that an agent reports.
    pub fn report(&self, workspace: &Workspace, kind: StepKind, call: Option<&str>, effect: ScanPolicy) {
        let mut event = AgentEvent::new("test", "s", kind, format!("{} happened", kind.as_str()));
        event.call = call.map(str::to_owned);
        event.tool = call.map(|_| "Bash".to_owned());
        let lock = workspace.lock_recording().unwrap();
        let report = ReportedEvent { scan_policy: effect, ..ReportedEvent::new(event, self.now()) };
        workspace.record(&lock, &report).unwrap();
    }

    /// The session of the agent, which has begun.
    pub fn session(&self, workspace: &Workspace) -> Session {
        self.report(workspace, StepKind::AgentStep, None, ScanPolicy::None);
        stepback_board::choose_session(workspace, None, self.now()).unwrap()
    }
}

pub fn propose(statement: &str) -> BoardMutation {
    BoardMutation::ProposeHypothesis {
        statement: statement.into(),
        prior: 0.5,
        parents: Vec::new(),
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

pub fn apply(editor: &mut BoardEditor<'_>, mutation: BoardMutation) -> BoardEdit {
    editor.apply(&mutation).unwrap()
}
