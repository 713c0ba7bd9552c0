//! The store as the engine sees it: immutable objects, an append-only log, and a few pointers moved by compare-and-swap.
//!
//! A backend implements [`Store`] and [`ObjectBatch`] and runs the contract suite in `testkit`; nothing else decides what a
//! correct store is. All changes of the log go through [`Store::commit`]: a list of mutations that take effect together,
//! after the batch's objects are durable, or not at all.

use std::any::Any;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{OpId, SessionId, StepId, WorkspaceId};
use stepback_model::object::{ObjectError, ObjectSink, ObjectSource};
use stepback_model::record::{
    Annotation, Checkpoint, OpStatus, Operation, Session, SessionInfo, Step, Trigger, Workspace,
};

use crate::error::StoreError;
pub use crate::query::{COUNTED, Cursor, ORDERS, Page, Query, SortKey, StepAt, StepCount};
pub use crate::search::{Document, Found, Hit, Search};

/// Name of the vault inside a store's local directory: immutable git files, kept by hard link.
pub const VAULT: &str = "vault";

/// How long to wait before looking again whether somebody committed, where nobody says so.
const BETWEEN_LOOKS: Duration = Duration::from_millis(25);

/// One change of the log.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a commit has a handful of them, and they do not live long")]
pub enum Mutation {
    /// Registers a workspace. Registering the same root again is an error ([`StoreError::Exists`]), as is adding a session,
    /// step or operation whose id is taken.
    AddWorkspace(Workspace),
    /// Begins a session.
    AddSession(Session),
    /// Replaces what is known about a session.
    SetSessionInfo {
        /// Which.
        session: SessionId,
        /// What is known now.
        info: Box<SessionInfo>,
    },
    /// Appends a step; the store assigns its number, which counts up within the session's workspace.
    AppendStep {
        /// The step; its number is ignored.
        step: Step,
        /// Label, note and tags.
        annotation: Annotation,
        /// What made it a checkpoint, if it is one.
        trigger: Option<Trigger>,
    },
    /// Replaces a checkpoint's annotation.
    Annotate {
        /// Which.
        step: StepId,
        /// The new label, note and tags.
        annotation: Annotation,
    },
    /// Hides checkpoints (`by: Some`) or shows them again (`by: None`).
    SetHidden {
        /// Which.
        steps: Vec<StepId>,
        /// The operation that hides them.
        by: Option<OpId>,
    },
    /// Gives up the states of hidden checkpoints; the next collection frees what only they needed. Checkpoints that are not
    /// hidden (any more) are left alone.
    Purge {
        /// Which.
        steps: Vec<StepId>,
    },
    /// Moves a reference if it still is what the caller saw.
    SetRef {
        /// Its name.
        name: String,
        /// What it must be now; `None` if it must not exist.
        expected: Option<StepId>,
        /// What it becomes.
        value: StepId,
    },
    /// Forgets a reference, if there is one.
    DropRef {
        /// Its name.
        name: String,
    },
    /// Appends an operation; the store assigns its number.
    AppendOp(Operation),
    /// Updates how far an operation got.
    SetOpStatus {
        /// Which.
        op: OpId,
        /// The new status. Anything but `Applying` drops the journal.
        status: OpStatus,
    },
    /// Marks an operation as taken back, or in force again.
    SetOpUndone {
        /// Which.
        op: OpId,
        /// Taken back or not.
        undone: bool,
    },
}

/// What the store assigned while committing, in order of the mutations that asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Numbers of the appended steps.
    pub steps: Vec<u64>,
    /// Numbers of the appended operations.
    pub ops: Vec<u64>,
}

/// A checkpoint row plus whether its state is still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCheckpoint {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Whether its state was given up by a purge.
    pub purged: bool,
}

/// What a store holds, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Usage {
    /// Number of objects.
    pub objects: u64,
    /// Their size before compression.
    pub raw_bytes: u64,
    /// Their size as stored.
    pub stored_bytes: u64,
    /// Bytes the store occupies in all, including its log and space not yet reclaimed.
    pub total_bytes: u64,
}

/// What a sweep freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Swept {
    /// Objects that are gone.
    pub objects: u64,
    /// Bytes by which the store shrank.
    pub bytes: u64,
}

/// An object as listed for verification and collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its hash.
    pub hash: Hash,
    /// Its size before compression.
    pub raw_len: u64,
    /// The object its stored form is a difference against, if any; as long as this one is needed, so is that.
    pub base: Option<Hash>,
}

/// A position in the store's history of commits, for noticing concurrent ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitMark(pub u64);

/// Objects being written, not yet visible to others. Usable from several threads.
///
/// Dropping a batch without committing it discards what it wrote.
pub trait ObjectBatch: ObjectSink + Sync + Send {
    /// Whether an object is already stored or in this batch.
    fn contains(&self, kind: ObjectKind, hash: Hash) -> Result<bool, ObjectError>;
    /// Names git packs in the store's vault whose blobs need not be stored again. A store without a vault ignores it.
    fn reuse_packs(&self, _packs: &[Vec<u8>]) {}
    /// Completes the batch, ready to be made durable and named by a commit.
    fn finish(self: Box<Self>) -> Result<FinishedBatch, StoreError>;
}

/// A complete batch, waiting for the commit that makes its objects visible.
pub struct FinishedBatch {
    /// The collection epoch the batch was started in; a commit in a later one is refused with [`StoreError::Collected`].
    pub epoch: u64,
    /// The backend's own record of what was written.
    pub payload: Box<dyn std::any::Any + Send>,
}

impl std::fmt::Debug for FinishedBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FinishedBatch").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// What whoever records wants to know before anything else.
#[derive(Clone, Copy, Debug)]
pub struct Questions<'a> {
    /// Which of these steps are stored?
    pub steps: &'a [StepId],
    /// Where do these references point?
    pub references: &'a [String],
    /// What is known of these sessions?
    pub sessions: &'a [SessionId],
}

/// The answers to [`Questions`].
#[derive(Clone, Debug)]
pub struct Answers {
    /// The epoch since which they hold.
    pub epoch: u64,
    /// The steps that are stored.
    pub stored: HashSet<StepId>,
    /// For each reference, where it points.
    pub references: Vec<Option<StepId>>,
    /// For each session, what is known of it.
    pub sessions: Vec<Option<Session>>,
    /// What has to hold still when something is committed that rests on these answers, in a form that the store knows.
    pub relied_on: Option<Arc<dyn Any + Send + Sync>>,
}

/// A place where states and their history are kept.
pub trait Store: ObjectSource + Send + Sync {
    /// Whether an object is stored.
    fn contains(&self, kind: ObjectKind, hash: Hash) -> Result<bool, StoreError>;

    /// The number of collections so far. What was seen in one epoch may be gone in the next.
    fn gc_generation(&self) -> Result<u64, StoreError>;

    /// Starts writing objects.
    fn begin(&self) -> Result<Box<dyn ObjectBatch + '_>, StoreError> {
        self.begin_since(self.gc_generation()?)
    }

    /// Starts writing objects, for somebody who has known since `epoch` what is stored.
    fn begin_since(&self, epoch: u64) -> Result<Box<dyn ObjectBatch + '_>, StoreError>;

    /// Starts writing objects, for somebody who rests on these answers. Its commit fails with [`StoreError::Moved`] or
    /// [`StoreError::Exists`] if they do not hold; if they were looked up, a store may do without comparing them.
    fn begin_on(&self, answers: &Answers) -> Result<Box<dyn ObjectBatch + '_>, StoreError> {
        self.begin_since(answers.epoch)
    }

    /// Makes the batch's objects visible and applies `mutations`, all or nothing. Durable when it returns.
    fn commit(&self, batch: Option<FinishedBatch>, mutations: &[Mutation]) -> Result<Receipt, StoreError>;

    /// The workspace with this root.
    fn workspace_at(&self, root: &[u8]) -> Result<Option<Workspace>, StoreError>;
    /// All workspaces, oldest first.
    fn workspaces(&self) -> Result<Vec<Workspace>, StoreError>;
    /// The sessions of a workspace, oldest first.
    fn sessions(&self, workspace: WorkspaceId) -> Result<Vec<Session>, StoreError>;
    /// The sessions of a workspace in which a call has begun and not ended, oldest first.
    fn working_sessions(&self, workspace: WorkspaceId) -> Result<Vec<Session>, StoreError> {
        let mut sessions = self.sessions(workspace)?;
        sessions.retain(|session| !session.info.open.is_empty());
        Ok(sessions)
    }
    /// One session.
    fn session(&self, session: SessionId) -> Result<Option<Session>, StoreError>;
    /// Where a reference points.
    fn reference(&self, name: &str) -> Result<Option<StepId>, StoreError>;
    /// All references whose name starts with `prefix`.
    fn references(&self, prefix: &str) -> Result<Vec<(String, StepId)>, StoreError>;
    /// One step, checkpoint or not.
    fn step(&self, step: StepId) -> Result<Option<StoredCheckpoint>, StoreError>;
    /// Answers several questions at once, where each by itself would be a way to a server and back.
    fn look(&self, questions: &Questions<'_>) -> Result<Answers, StoreError> {
        // The epoch first: what is freed after this look is then noticed.
        let epoch = self.gc_generation()?;
        let mut stored = HashSet::new();
        for step in questions.steps {
            if self.step(*step)?.is_some() {
                stored.insert(*step);
            }
        }
        let references = questions.references.iter().map(|name| self.reference(name));
        let references = references.collect::<Result<_, _>>()?;
        let sessions = questions.sessions.iter().map(|session| self.session(*session));
        let sessions = sessions.collect::<Result<_, _>>()?;
        Ok(Answers { epoch, stored, references, sessions, relied_on: None })
    }
    /// What the store believes the answers are, without a way to a server and back, if it knows enough: that none of the steps
    /// is stored, and that nobody else has changed what it remembers. For whoever begins on them ([`Self::begin_on`]), and
    /// looks if that turns out wrong.
    fn recall(&self, _questions: &Questions<'_>) -> Option<Answers> {
        None
    }
    /// One step by workspace and number, checkpoint or not.
    fn step_numbered(
        &self,
        workspace: WorkspaceId,
        number: u64,
    ) -> Result<Option<StoredCheckpoint>, StoreError>;
    /// The steps of a workspace that `query` asks for, newest first.
    fn steps(&self, workspace: WorkspaceId, query: &Query) -> Result<Vec<StoredCheckpoint>, StoreError>;
    /// The steps that `query` asks for, of one workspace or of all, with how many there are beyond its limit.
    fn find(&self, workspace: Option<WorkspaceId>, query: &Query) -> Result<Page, StoreError>;
    /// Steps of all workspaces that were committed after the one at `position`, in order of their commits; at most `most`.
    /// Whoever goes on behind the last one it was given misses none. Like [`Self::find`], without counting them all.
    fn follow(&self, position: u64, most: u64) -> Result<Vec<StepAt>, StoreError> {
        let from = Some(Cursor { value: 0, position });
        let query = Query { oldest_first: true, from, limit: Some(most), ..Query::default() };
        Ok(self.find(None, &query)?.steps)
    }
    /// The position of the newest step; 0 if there is none.
    fn newest_position(&self) -> Result<u64, StoreError> {
        let newest = self.find(None, &Query { limit: Some(1), ..Query::default() })?;
        Ok(newest.steps.first().map_or(0, |placed| placed.position))
    }
    /// How many steps of each agent and kind a workspace has, hidden ones included, in order of their names.
    fn tally(&self, workspace: WorkspaceId) -> Result<Vec<StepCount>, StoreError>;
    /// Checkpoints of a workspace, hidden ones included, newest first.
    fn checkpoints(&self, workspace: WorkspaceId) -> Result<Vec<StoredCheckpoint>, StoreError>;
    /// One operation.
    fn operation(&self, op: OpId) -> Result<Option<Operation>, StoreError>;
    /// Operations of a workspace, newest first.
    fn operations(&self, workspace: WorkspaceId) -> Result<Vec<Operation>, StoreError>;
    /// Operations of a workspace that were begun and neither finished nor reverted.
    fn unfinished(&self, workspace: WorkspaceId) -> Result<Vec<Operation>, StoreError>;

    /// Steps that a search does not know as they are now, in order of their commits; at most `most`. Those are steps that were
    /// committed, annotated or purged since [`Self::index`] was last told about them.
    fn unindexed(&self, most: usize) -> Result<Vec<StoredCheckpoint>, StoreError>;
    /// Makes texts of steps known to [`Self::search`], in place of what was known of these steps before.
    fn index(&self, documents: &[Document]) -> Result<(), StoreError>;
    /// Forgets all texts; every step is unindexed then.
    fn forget_index(&self) -> Result<(), StoreError>;
    /// The indexed steps that `search` asks for.
    fn search(&self, search: &Search) -> Result<Found, StoreError>;

    /// The present position in the history of commits.
    fn commit_seq(&self) -> Result<CommitMark, StoreError>;
    /// Waits until something was committed after `after`, by whichever process, and returns the position then; the same one if
    /// nothing was for as long as `patience`.
    fn wait_for_commit(&self, after: CommitMark, patience: Duration) -> Result<CommitMark, StoreError> {
        let until = Instant::now() + patience;
        loop {
            let mark = self.commit_seq()?;
            let left = until.saturating_duration_since(Instant::now());
            if mark != after || left.is_zero() {
                return Ok(mark);
            }
            std::thread::sleep(left.min(BETWEEN_LOOKS));
        }
    }
    /// Calls `visit` for every object. `visit` must not call the store.
    fn for_each_object(&self, visit: &mut dyn FnMut(ObjectInfo)) -> Result<(), StoreError>;
    /// Frees every object that is neither in `live` nor the base of one that stays, unless something was committed since `mark` ([`StoreError::Grew`]).
    fn sweep(&self, live: &HashSet<Hash>, mark: CommitMark) -> Result<Swept, StoreError>;
    /// What the store holds.
    fn usage(&self) -> Result<Usage, StoreError>;
    /// Checks the backend's own structures (not object contents) and returns what is wrong.
    fn check(&self) -> Result<Vec<String>, StoreError>;

    /// Names of the files in the vault that stored objects are borrowed from, and that must therefore stay.
    fn lenders(&self) -> Result<HashSet<Vec<u8>>, StoreError> {
        Ok(HashSet::new())
    }

    /// A local directory for caches, locks and hard links, if this store has one.
    fn local_dir(&self) -> Option<&Path>;

    /// Whether immutable git files may be kept by hard link in the local directory. A store that other machines read must have
    /// their content itself.
    fn has_vault(&self) -> bool {
        self.local_dir().is_some()
    }

    /// How long to wait for others at most, if whoever opened the store has less time than usual.
    fn patience(&self) -> Option<Duration> {
        None
    }
}
