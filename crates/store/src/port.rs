//! The store interface that the engine uses: immutable objects, an append-only log, and a few references moved by
//! compare-and-swap.
//!
//! A backend implements [`Store`] and [`ObjectBatch`] and passes the contract suite in `testkit`, which alone defines what
//! a correct store is. All changes of the log go through [`Store::commit`]: a list of mutations that take effect together,
//! after the batch's objects are durable, or not at all.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{OpId, SessionId, StepId, WorkspaceId};
use stepback_model::object::{ObjectError, ObjectSink, ObjectSource};
use stepback_model::record::{
    Annotation, OpStatus, Operation, Session, SessionInfo, Step, Trigger, WorkspaceRecord,
};

use crate::error::StoreError;
pub use stepback_model::record::StepRow;

mod plans;

pub use self::plans::{KEPT_PLANS, PlanStore, StoredPlan};

pub use crate::query::{COUNTED, ORDERS, QueryCursor, SortKey, StepAt, StepCount, StepPage, StepQuery};
pub use crate::search::{SearchDocument, SearchHit, SearchRequest, SearchResult};

/// Name of the vault directory inside a store's local directory. It holds immutable git files, kept by hard link.
pub const VAULT: &str = "vault";

/// Poll interval of [`Store::wait_for_commit`] in a store without notifications.
const BETWEEN_LOOKS: Duration = Duration::from_millis(25);

/// One change of the log, applied by [`Store::commit`].
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a commit has a handful of them, and they do not live long")]
pub enum Mutation {
    /// Registers a workspace. Registering the same root again is an error ([`StoreError::Exists`]), as is adding a session,
    /// step or operation whose id is taken.
    AddWorkspace(WorkspaceRecord),
    /// Adds a session.
    AddSession(Session),
    /// Replaces the mutable part of a session.
    SetSessionInfo {
        /// The session to change.
        session: SessionId,
        /// The new value; it replaces the old one entirely.
        info: Box<SessionInfo>,
    },
    /// Appends a step; the store assigns its number, which counts up within the session's workspace.
    AppendStep {
        /// The step; its number is ignored.
        step: Step,
        /// Label, note and tags.
        annotation: Annotation,
        /// What made the step a checkpoint; `None` if it is not one.
        trigger: Option<Trigger>,
    },
    /// Replaces a checkpoint's annotation.
    Annotate {
        /// The checkpoint to annotate.
        step: StepId,
        /// The new label, note and tags.
        annotation: Annotation,
    },
    /// Hides checkpoints (`by: Some`) or shows them again (`by: None`).
    SetHidden {
        /// The steps to hide or show.
        steps: Vec<StepId>,
        /// The operation that hides them; `None` shows them again.
        by: Option<OpId>,
    },
    /// Releases the states of hidden checkpoints; the next collection frees the objects only they needed. Checkpoints that
    /// are not hidden (any more) are skipped.
    Purge {
        /// The checkpoints to purge.
        steps: Vec<StepId>,
    },
    /// Moves a reference if its value is still the one that the caller read.
    SetRef {
        /// Name of the reference.
        name: String,
        /// The value it must have now; `None` if it must not exist.
        expected: Option<StepId>,
        /// The value it gets.
        value: StepId,
    },
    /// Deletes a reference, if it exists.
    DropRef {
        /// Name of the reference.
        name: String,
    },
    /// Appends an operation; the store assigns its number.
    AppendOp(Operation),
    /// Updates the status of an operation.
    SetOpStatus {
        /// The operation to update.
        op: OpId,
        /// The new status. Anything but `Applying` drops the journal.
        status: OpStatus,
    },
    /// Marks an operation as undone, or as in effect again.
    SetOpUndone {
        /// The operation to mark.
        op: OpId,
        /// Whether it is undone.
        undone: bool,
    },
}

/// The numbers that a commit assigned, in the order of the mutations that needed one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Numbers of the appended steps.
    pub steps: Vec<u64>,
    /// Numbers of the appended operations.
    pub ops: Vec<u64>,
}

/// Size of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct StoreUsage {
    /// Number of objects.
    pub objects: u64,
    /// Size of all objects before compression, in bytes.
    pub raw_bytes: u64,
    /// Size of all objects as stored, in bytes.
    pub stored_bytes: u64,
    /// Bytes the store occupies in all, including its log and space not yet reclaimed.
    pub total_bytes: u64,
}

/// What a sweep freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Swept {
    /// Number of objects deleted.
    pub objects: u64,
    /// Bytes by which the store shrank.
    pub bytes: u64,
}

/// An object as listed for verification and collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Kind of the object.
    pub kind: ObjectKind,
    /// Hash of the object.
    pub hash: Hash,
    /// Size before compression, in bytes.
    pub raw_len: u64,
    /// The object that its stored form is a delta against, if any. The base must be kept as long as this object is needed.
    pub base: Option<Hash>,
}

/// A position in the store's sequence of commits, for detecting concurrent ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitMark(pub u64);

/// Objects being written, not yet visible to others. Usable from several threads.
///
/// Dropping a batch without committing it discards what it wrote.
pub trait ObjectBatch: ObjectSink + Sync + Send {
    /// Whether an object is already stored or in this batch.
    fn contains(&self, kind: ObjectKind, hash: Hash) -> Result<bool, ObjectError>;
    /// Names git packs in the store's vault whose blobs need not be stored again. A store without a vault ignores the call.
    fn reuse_packs(&self, _packs: &[Vec<u8>]) {}
    /// Completes the batch, so that a commit can make it durable and visible.
    fn finish(self: Box<Self>) -> Result<FinishedBatch, StoreError>;
}

/// A complete batch, waiting for the commit that makes its objects visible.
pub struct FinishedBatch {
    /// The collection epoch in which the batch was started; a commit in a later epoch fails with [`StoreError::Collected`].
    pub epoch: u64,
    /// The backend's own record of what was written.
    pub payload: Box<dyn std::any::Any + Send>,
}

impl std::fmt::Debug for FinishedBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FinishedBatch").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// The lookups that a recorder needs before it writes, as one batch.
#[derive(Clone, Copy, Debug)]
pub struct Questions<'a> {
    /// Steps to check for existence.
    pub steps: &'a [StepId],
    /// References to resolve.
    pub references: &'a [String],
    /// Sessions to read.
    pub sessions: &'a [SessionId],
}

/// The answers to [`Questions`].
#[derive(Clone, Debug)]
pub struct BatchAnswers {
    /// The collection epoch in which they were read; they hold from then on.
    pub epoch: u64,
    /// Those of the requested steps that are stored.
    pub stored: HashSet<StepId>,
    /// The target of each requested reference, in the order asked; `None` if it does not exist.
    pub references: Vec<Option<StepId>>,
    /// Each requested session, in the order asked; `None` if it does not exist.
    pub sessions: Vec<Option<Session>>,
    /// What must be unchanged when a commit relies on these answers.
    pub versions: ReadVersions,
}

/// The versions of what was read, for a commit that fails if another process has changed it since.
///
/// Empty in a store whose writers exclude each other by other means.
#[derive(Clone, Debug, Default)]
pub struct ReadVersions {
    /// The version of each session that was read, as the store writes it.
    pub sessions: HashMap<SessionId, String>,
    /// The references that were read, with their targets.
    pub references: Vec<(String, Option<StepId>)>,
}

/// A backend that keeps states and their history.
pub trait Store: ObjectSource + PlanStore + Send + Sync {
    /// Whether an object is stored.
    fn contains(&self, kind: ObjectKind, hash: Hash) -> Result<bool, StoreError>;

    /// The number of garbage collections so far: the current epoch. Objects seen in one epoch may be gone in the next.
    fn gc_generation(&self) -> Result<u64, StoreError>;

    /// Starts writing objects.
    fn begin(&self) -> Result<Box<dyn ObjectBatch + '_>, StoreError> {
        self.begin_since(self.gc_generation()?)
    }

    /// Starts writing objects, for a caller whose knowledge of what is stored dates from `epoch`.
    fn begin_since(&self, epoch: u64) -> Result<Box<dyn ObjectBatch + '_>, StoreError>;

    /// Starts writing objects, for a caller that relies on these answers. The commit fails with [`StoreError::Moved`] or
    /// [`StoreError::Exists`] if they no longer hold, where the store compares them.
    fn begin_on(&self, answers: &BatchAnswers) -> Result<Box<dyn ObjectBatch + '_>, StoreError> {
        self.begin_since(answers.epoch)
    }

    /// Makes the batch's objects visible and applies `mutations`, all or nothing. The commit is durable when this returns.
    fn commit(&self, batch: Option<FinishedBatch>, mutations: &[Mutation]) -> Result<Receipt, StoreError>;

    /// The workspace with this root.
    fn workspace_at(&self, root: &[u8]) -> Result<Option<WorkspaceRecord>, StoreError>;
    /// All workspaces, oldest first.
    fn workspaces(&self) -> Result<Vec<WorkspaceRecord>, StoreError>;
    /// The sessions of a workspace, oldest first.
    fn sessions(&self, workspace: WorkspaceId) -> Result<Vec<Session>, StoreError>;
    /// The sessions of a workspace that have an open call, oldest first.
    fn working_sessions(&self, workspace: WorkspaceId) -> Result<Vec<Session>, StoreError> {
        let mut sessions = self.sessions(workspace)?;
        sessions.retain(|session| !session.info.open.is_empty());
        Ok(sessions)
    }
    /// The session with this id.
    fn session(&self, session: SessionId) -> Result<Option<Session>, StoreError>;
    /// The target of a reference.
    fn reference(&self, name: &str) -> Result<Option<StepId>, StoreError>;
    /// All references whose name starts with `prefix`.
    fn references(&self, prefix: &str) -> Result<Vec<(String, StepId)>, StoreError>;
    /// The step with this id, checkpoint or not.
    fn step(&self, step: StepId) -> Result<Option<StepRow>, StoreError>;
    /// Answers several questions in one round trip, where a server is involved.
    fn look(&self, questions: &Questions<'_>) -> Result<BatchAnswers, StoreError> {
        // Read the epoch first, so that a collection during the lookups is noticed.
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
        Ok(BatchAnswers { epoch, stored, references, sessions, versions: ReadVersions::default() })
    }
    /// The step with this number in a workspace, checkpoint or not.
    fn step_numbered(&self, workspace: WorkspaceId, number: u64) -> Result<Option<StepRow>, StoreError>;
    /// The steps of a workspace that match `query`, newest first.
    fn steps(&self, workspace: WorkspaceId, query: &StepQuery) -> Result<Vec<StepRow>, StoreError>;
    /// The steps that match `query`, in one workspace or in all, with the number of matches beyond its limit.
    fn find(&self, workspace: Option<WorkspaceId>, query: &StepQuery) -> Result<StepPage, StoreError>;
    /// Steps of all workspaces that were committed after the one at `position`, in commit order; at most `most`. A caller
    /// that continues after the last one returned misses none. Like [`Self::find`], without counting all matches.
    fn follow(&self, position: u64, most: u64) -> Result<Vec<StepAt>, StoreError> {
        let from = Some(QueryCursor { value: 0, position });
        let query = StepQuery { oldest_first: true, from, limit: Some(most), ..StepQuery::default() };
        Ok(self.find(None, &query)?.steps)
    }
    /// The position of the newest step; 0 if the store has no steps.
    fn newest_position(&self) -> Result<u64, StoreError> {
        let newest = self.find(None, &StepQuery { limit: Some(1), ..StepQuery::default() })?;
        Ok(newest.steps.first().map_or(0, |placed| placed.position))
    }
    /// Step counts of a workspace by agent and kind, hidden steps included, in order of their names.
    fn tally(&self, workspace: WorkspaceId) -> Result<Vec<StepCount>, StoreError>;
    /// Checkpoints of a workspace, hidden ones included, newest first.
    fn checkpoints(&self, workspace: WorkspaceId) -> Result<Vec<StepRow>, StoreError>;
    /// The operation with this id.
    fn operation(&self, op: OpId) -> Result<Option<Operation>, StoreError>;
    /// Operations of a workspace, newest first.
    fn operations(&self, workspace: WorkspaceId) -> Result<Vec<Operation>, StoreError>;
    /// Operations of a workspace that were begun and neither finished nor reverted.
    fn unfinished(&self, workspace: WorkspaceId) -> Result<Vec<Operation>, StoreError>;

    /// Steps whose search index entry is missing or out of date, in commit order; at most `most`. These are the steps that
    /// were committed, annotated or purged since they were last passed to [`Self::index`].
    fn unindexed(&self, most: usize) -> Result<Vec<StepRow>, StoreError>;
    /// Adds the texts of steps to the search index, replacing what was indexed for these steps before.
    fn index(&self, documents: &[SearchDocument]) -> Result<(), StoreError>;
    /// Clears the search index; every step is unindexed then.
    fn forget_index(&self) -> Result<(), StoreError>;
    /// The indexed steps that match `search`.
    fn search(&self, search: &SearchRequest) -> Result<SearchResult, StoreError>;

    /// The current position in the sequence of commits.
    fn commit_seq(&self) -> Result<CommitMark, StoreError>;
    /// Waits until any process commits after `after`, and returns the new position; returns `after` if nothing was
    /// committed within `patience`.
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
    /// Deletes every object that is neither in `live` nor the base of one that stays. Fails with [`StoreError::Grew`] if
    /// something was committed since `mark`.
    fn sweep(&self, live: &HashSet<Hash>, mark: CommitMark) -> Result<Swept, StoreError>;
    /// The size of the store.
    fn usage(&self) -> Result<StoreUsage, StoreError>;
    /// Checks the backend's own structures (not object contents) and returns a description of each problem.
    fn check(&self) -> Result<Vec<String>, StoreError>;

    /// Names of the vault files that stored objects are borrowed from; these files must be kept.
    fn lenders(&self) -> Result<HashSet<Vec<u8>>, StoreError> {
        Ok(HashSet::new())
    }

    /// A local directory for caches, locks and hard links, if this store has one.
    fn local_dir(&self) -> Option<&Path>;

    /// Whether immutable git files may be kept by hard link in the local directory. A store that other machines read must
    /// hold their content itself.
    fn has_vault(&self) -> bool {
        self.local_dir().is_some()
    }

    /// The longest time to wait for other processes, if the caller that opened the store has less time than usual.
    fn patience(&self) -> Option<Duration> {
        None
    }
}
