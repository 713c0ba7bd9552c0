//! The store port: each method is a request.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{OpId, SessionId, StepId, WorkspaceId};
use stepback_model::object::{ChainStep, ObjectError, ObjectSource};
use stepback_model::record::{Operation, Session, WorkspaceRecord};
use stepback_model::time::Timestamp;
use stepback_store::StoreError;
use stepback_store::port::{
    BatchAnswers, BatchLookup, ChainEntry, ChainHead, CommitLog, CommitMark, FinishedBatch, LostCommit,
    MaintenanceStore, Mutation, ObjectBatch, ObjectInfo, ObjectStore, OperationStore, PlanStore, Questions,
    Receipt, RefStore, SearchDocument, SearchRequest, SearchResult, SearchStore, SessionStore, StepAt,
    StepChainStore, StepCount, StepPage, StepQuery, StepRow, StepStore, Store, StoreUsage, StoredPlan, Swept,
};

use crate::batch::RemoteBatch;
use crate::client::RemoteStore;
use crate::pool::Repeat;
use crate::protocol::{BatchStart, StoreRequest, WireObject, read_infos, write_hashes};

/// How long one request waits for a commit, less than an idle connection may be silent.
const WAIT_PART: Duration = Duration::from_secs(15);

/// The error for a reply that is not what was asked for.
fn unreadable(what: &str) -> StoreError {
    StoreError::Server {
        what: "the answer of the server of the store cannot be read".into(),
        why: what.into(),
        remedy: "use the same version of stepback on both sides",
    }
}

/// The bytes, if they have the hash.
fn verified(kind: ObjectKind, hash: Hash, bytes: Vec<u8>) -> Result<Vec<u8>, ObjectError> {
    match Hash::of(kind, &bytes) == hash {
        true => Ok(bytes),
        false => Err(ObjectError::corrupt(kind, hash, "its hash does not match")),
    }
}

impl ObjectSource for RemoteStore {
    fn read(&self, kind: ObjectKind, hash: Hash) -> Result<Vec<u8>, ObjectError> {
        if kind == ObjectKind::Tree
            && let Some(bytes) = self.recent.get(hash)
        {
            return Ok(bytes.to_vec());
        }
        let request = StoreRequest::Read { kind: kind as u8, hash };
        let ((), bytes) = self.pool.call(&request, &[], Repeat::Allowed)?;
        let bytes = verified(kind, hash, bytes)?;
        if kind == ObjectKind::Tree {
            self.recent.put(hash, &bytes);
        }
        Ok(bytes)
    }

    fn read_chain(&self, kind: ObjectKind, first: Hash, next: &mut ChainStep<'_>) -> Result<(), ObjectError> {
        let mut at = Some(first);
        // The server sends the messages that most likely follow; each is used only if it is the one that does.
        let mut ahead: VecDeque<Vec<u8>> = VecDeque::new();
        while let Some(hash) = at {
            if kind == ObjectKind::Message && ahead.is_empty() {
                let request = StoreRequest::ReadMessages { hash };
                let ((), body) = self.pool.call(&request, &[], Repeat::Allowed)?;
                let mut rest = body.as_slice();
                while !rest.is_empty() {
                    let object =
                        WireObject::take_from(&mut rest).ok_or_else(|| unreadable("its messages"))?;
                    ahead.push_back(object.bytes.to_vec());
                }
            }
            let known = ahead.pop_front().filter(|bytes| Hash::of(kind, bytes) == hash);
            let bytes = match known {
                Some(bytes) => bytes,
                None => {
                    ahead.clear();
                    self.read(kind, hash)?
                }
            };
            at = next(hash, bytes)?;
        }
        Ok(())
    }
}

impl ObjectStore for RemoteStore {
    fn contains(&self, kind: ObjectKind, hash: Hash) -> Result<bool, StoreError> {
        self.ask(&StoreRequest::Contains { kind: kind as u8, hash })
    }

    fn gc_generation(&self) -> Result<u64, StoreError> {
        self.ask(&StoreRequest::GcGeneration)
    }

    fn cache_generation(&self) -> Result<u64, StoreError> {
        self.ask(&StoreRequest::CacheGeneration)
    }

    fn damaged_objects(&self) -> HashSet<Hash> {
        // Objects that are not named here are looked up at the commit.
        self.ask(&StoreRequest::DamagedObjects).unwrap_or_default()
    }

    fn begin_since(&self, epoch: u64) -> Result<Box<dyn ObjectBatch + '_>, StoreError> {
        Ok(Box::new(RemoteBatch::new(self, BatchStart { epoch, versions: None })))
    }

    fn begin_on(&self, answers: &BatchAnswers) -> Result<Box<dyn ObjectBatch + '_>, StoreError> {
        let start = BatchStart { epoch: answers.epoch, versions: Some(answers.versions.clone()) };
        Ok(Box::new(RemoteBatch::new(self, start)))
    }

    fn for_each_object(&self, visit: &mut dyn FnMut(ObjectInfo)) -> Result<(), StoreError> {
        // Not repeated if the connection is lost: some objects would be visited twice.
        let mut connection = self.pool.open_connection()?;
        self.pool.send(&mut connection, &StoreRequest::ListObjects, &[])?;
        loop {
            let ((), body) = self.pool.receive(&mut connection)?;
            let infos = read_infos(&body).ok_or_else(|| unreadable("its list of objects"))?;
            if infos.is_empty() {
                self.pool.put_back(connection);
                return Ok(());
            }
            infos.into_iter().for_each(&mut *visit);
        }
    }
}

impl CommitLog for RemoteStore {
    fn commit(&self, batch: Option<FinishedBatch>, mutations: &[Mutation]) -> Result<Receipt, StoreError> {
        self.commit_all(batch, mutations)
    }

    fn commit_seq(&self) -> Result<CommitMark, StoreError> {
        self.ask(&StoreRequest::CommitSeq)
    }

    fn wait_for_commit(&self, after: CommitMark, patience: Duration) -> Result<CommitMark, StoreError> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let part = self.patience.map_or(WAIT_PART, |patience| patience / 2).min(left);
            let patience_ms = part.as_millis() as u64;
            let mark = self.ask(&StoreRequest::WaitForCommit { after, patience_ms })?;
            if mark != after || left <= part {
                return Ok(mark);
            }
        }
    }
}

impl BatchLookup for RemoteStore {
    fn look(&self, questions: &Questions<'_>) -> Result<BatchAnswers, StoreError> {
        self.ask(&StoreRequest::Look {
            steps: Cow::Borrowed(questions.steps),
            references: Cow::Borrowed(questions.references),
            sessions: Cow::Borrowed(questions.sessions),
        })
    }
}

impl SessionStore for RemoteStore {
    fn workspace_at(&self, root: &[u8]) -> Result<Option<WorkspaceRecord>, StoreError> {
        let found: Option<WorkspaceRecord> =
            self.ask_with(&StoreRequest::WorkspaceAt, &self.root_in_store(root))?;
        Ok(found.map(|record| self.workspace_here(record)))
    }

    fn workspaces(&self) -> Result<Vec<WorkspaceRecord>, StoreError> {
        let all: Vec<WorkspaceRecord> = self.ask(&StoreRequest::Workspaces)?;
        Ok(all.into_iter().map(|record| self.workspace_here(record)).collect())
    }

    fn sessions(&self, workspace: WorkspaceId) -> Result<Vec<Session>, StoreError> {
        self.ask(&StoreRequest::Sessions { workspace })
    }

    fn working_sessions(&self, workspace: WorkspaceId) -> Result<Vec<Session>, StoreError> {
        self.ask(&StoreRequest::WorkingSessions { workspace })
    }

    fn session(&self, session: SessionId) -> Result<Option<Session>, StoreError> {
        self.ask(&StoreRequest::Session { session })
    }
}

impl StepStore for RemoteStore {
    fn step(&self, step: StepId) -> Result<Option<StepRow>, StoreError> {
        self.ask(&StoreRequest::Step { step })
    }

    fn step_numbered(&self, workspace: WorkspaceId, number: u64) -> Result<Option<StepRow>, StoreError> {
        self.ask(&StoreRequest::StepNumbered { workspace, number })
    }

    fn steps(&self, workspace: WorkspaceId, query: &StepQuery) -> Result<Vec<StepRow>, StoreError> {
        self.ask(&StoreRequest::Steps { workspace, query: Cow::Borrowed(query) })
    }

    fn find(&self, workspace: Option<WorkspaceId>, query: &StepQuery) -> Result<StepPage, StoreError> {
        self.ask(&StoreRequest::Find { workspace, query: Cow::Borrowed(query) })
    }

    fn follow(&self, position: u64, most: u64) -> Result<Vec<StepAt>, StoreError> {
        self.ask(&StoreRequest::Follow { position, most })
    }

    fn newest_position(&self) -> Result<u64, StoreError> {
        self.ask(&StoreRequest::NewestPosition)
    }

    fn tally(&self, workspace: WorkspaceId) -> Result<Vec<StepCount>, StoreError> {
        self.ask(&StoreRequest::Tally { workspace })
    }

    fn checkpoints(&self, workspace: WorkspaceId) -> Result<Vec<StepRow>, StoreError> {
        self.ask(&StoreRequest::Checkpoints { workspace })
    }
}

impl OperationStore for RemoteStore {
    fn operation(&self, op: OpId) -> Result<Option<Operation>, StoreError> {
        self.ask(&StoreRequest::Operation { op })
    }

    fn operations(&self, workspace: WorkspaceId) -> Result<Vec<Operation>, StoreError> {
        self.ask(&StoreRequest::Operations { workspace })
    }

    fn unfinished(&self, workspace: WorkspaceId) -> Result<Vec<Operation>, StoreError> {
        self.ask(&StoreRequest::Unfinished { workspace })
    }
}

impl RefStore for RemoteStore {
    fn reference(&self, name: &str) -> Result<Option<StepId>, StoreError> {
        self.ask(&StoreRequest::Reference { name: Cow::Borrowed(name) })
    }

    fn references(&self, prefix: &str) -> Result<Vec<(String, StepId)>, StoreError> {
        self.ask(&StoreRequest::References { prefix: Cow::Borrowed(prefix) })
    }
}

impl StepChainStore for RemoteStore {
    fn chain_entries(
        &self,
        workspace: WorkspaceId,
        after: u64,
        most: u64,
    ) -> Result<Vec<ChainEntry>, StoreError> {
        self.ask(&StoreRequest::ChainEntries { workspace, after, most })
    }

    fn chain_heads(&self, workspace: WorkspaceId) -> Result<Vec<ChainHead>, StoreError> {
        self.ask(&StoreRequest::ChainHeads { workspace })
    }
}

impl SearchStore for RemoteStore {
    fn unindexed(&self, most: usize) -> Result<Vec<StepRow>, StoreError> {
        self.ask(&StoreRequest::Unindexed { most })
    }

    fn index(&self, documents: &[SearchDocument]) -> Result<(), StoreError> {
        self.ask(&StoreRequest::Index { documents: Cow::Borrowed(documents) })
    }

    fn forget_index(&self) -> Result<(), StoreError> {
        self.ask(&StoreRequest::ForgetIndex)
    }

    fn search(&self, search: &SearchRequest) -> Result<SearchResult, StoreError> {
        self.ask(&StoreRequest::Search { search: Cow::Borrowed(search) })
    }
}

impl PlanStore for RemoteStore {
    fn put_plan(&self, plan: &StoredPlan) -> Result<(), StoreError> {
        self.ask(&StoreRequest::PutPlan { plan: Cow::Borrowed(plan) })
    }

    fn plan(&self, id: &str) -> Result<Option<StoredPlan>, StoreError> {
        self.ask(&StoreRequest::Plan { id: Cow::Borrowed(id) })
    }

    fn remove_plan(&self, id: &str) -> Result<bool, StoreError> {
        self.ask_once(&StoreRequest::RemovePlan { id: Cow::Borrowed(id) }, &[])
    }

    fn plans(&self, workspace: WorkspaceId) -> Result<Vec<StoredPlan>, StoreError> {
        self.ask(&StoreRequest::Plans { workspace })
    }

    fn prune_plans(&self, workspace: WorkspaceId, oldest: Timestamp) -> Result<(), StoreError> {
        self.ask(&StoreRequest::PrunePlans { workspace, oldest })
    }
}

impl MaintenanceStore for RemoteStore {
    fn sweep(&self, live: &HashSet<Hash>, mark: CommitMark) -> Result<Swept, StoreError> {
        self.ask_once(&StoreRequest::Sweep { mark }, &write_hashes(live))
    }

    fn usage_after(&self, mutations: &[Mutation], live: &HashSet<Hash>) -> Result<StoreUsage, StoreError> {
        let request = StoreRequest::UsageAfter { mutations: Cow::Borrowed(mutations) };
        self.ask_with(&request, &write_hashes(live))
    }

    fn usage(&self) -> Result<StoreUsage, StoreError> {
        self.ask(&StoreRequest::Usage)
    }

    fn check(&self) -> Result<Vec<String>, StoreError> {
        self.ask(&StoreRequest::Check)
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        self.ask(&StoreRequest::CheckWritable)
    }

    fn has_lost_commits(&self) -> Result<bool, StoreError> {
        self.ask(&StoreRequest::HasLostCommits)
    }

    fn lost_commits(&self) -> Result<Vec<LostCommit>, StoreError> {
        self.ask(&StoreRequest::LostCommits)
    }

    fn restore_lost_commits(&self) -> Result<Vec<LostCommit>, StoreError> {
        self.ask_once(&StoreRequest::RestoreLostCommits, &[])
    }

    fn lenders(&self) -> Result<HashSet<Vec<u8>>, StoreError> {
        self.ask(&StoreRequest::Lenders)
    }
}

impl Store for RemoteStore {
    fn local_dir(&self) -> Option<&Path> {
        Some(&self.local)
    }

    /// Hard links on this side are not visible to the server.
    fn has_vault(&self) -> bool {
        false
    }

    fn patience(&self) -> Option<Duration> {
        self.patience
    }
}
