//! A store in memory, for tests and for embedding; bounded, so that a runaway agent cannot exhaust the machine's memory.

mod find;
mod log;
mod plans;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{OpId, SessionId, StepId, WorkspaceId};
use stepback_model::object::{ObjectError, ObjectSink, ObjectSource};
use stepback_model::record::{OpStatus, Operation, Session, WorkspaceRecord};
use stepback_model::step_chain::{StepLink, step_digest};

use self::log::MemoryLog;
use crate::error::StoreError;
use crate::port::{
    BatchLookup, ChainEntry, ChainHead, CommitLog, CommitMark, FinishedBatch, MaintenanceStore, Mutation,
    ObjectBatch, ObjectInfo, ObjectStore, OperationStore, Receipt, RefStore, SearchDocument, SearchRequest,
    SearchResult, SearchStore, SessionStore, StepChainStore, StepCount, StepPage, StepQuery, StepRow,
    StepStore, Store, StoreUsage, StoredPlan, Swept,
};
use crate::scan;

type Objects = HashMap<(ObjectKind, Hash), Vec<u8>>;

/// A store in memory.
#[derive(Debug)]
pub struct MemoryStore {
    limit: u64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    objects: Objects,
    bytes: u64,
    log: MemoryLog,
    epoch: u64,
    commits: u64,
    documents: HashMap<StepId, SearchDocument>,
    plans: HashMap<String, StoredPlan>,
}

impl MemoryStore {
    /// Creates a store that holds at most `limit` bytes of objects.
    pub fn new(limit: u64) -> Self {
        Self { limit, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ObjectSource for MemoryStore {
    fn read(&self, kind: ObjectKind, hash: Hash) -> Result<Vec<u8>, ObjectError> {
        self.inner().objects.get(&(kind, hash)).cloned().ok_or(ObjectError::Missing { kind, hash })
    }
}

struct Batch<'a> {
    store: &'a MemoryStore,
    epoch: u64,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    objects: Objects,
    bytes: u64,
}

impl Batch<'_> {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ObjectSink for Batch<'_> {
    fn write(&self, kind: ObjectKind, bytes: &[u8], _similar_to: Option<Hash>) -> Result<Hash, ObjectError> {
        let hash = Hash::of(kind, bytes);
        let mut pending = self.pending();
        if pending.objects.contains_key(&(kind, hash)) || self.store.contains(kind, hash)? {
            return Ok(hash);
        }
        let limit = self.store.limit;
        if pending.bytes + bytes.len() as u64 > limit {
            return Err(StoreError::Full { limit }.into());
        }
        pending.bytes += bytes.len() as u64;
        pending.objects.insert((kind, hash), bytes.to_vec());
        Ok(hash)
    }
}

impl ObjectBatch for Batch<'_> {
    fn contains(&self, kind: ObjectKind, hash: Hash) -> Result<bool, ObjectError> {
        Ok(self.pending().objects.contains_key(&(kind, hash)) || self.store.contains(kind, hash)?)
    }

    fn finish(self: Box<Self>) -> Result<FinishedBatch, StoreError> {
        let pending = self.pending.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(FinishedBatch { epoch: self.epoch, payload: Box::new(pending.objects) })
    }
}

impl ObjectStore for MemoryStore {
    fn contains(&self, kind: ObjectKind, hash: Hash) -> Result<bool, StoreError> {
        Ok(self.inner().objects.contains_key(&(kind, hash)))
    }

    fn gc_generation(&self) -> Result<u64, StoreError> {
        Ok(self.inner().epoch)
    }

    fn begin_since(&self, epoch: u64) -> Result<Box<dyn ObjectBatch + '_>, StoreError> {
        Ok(Box::new(Batch { store: self, epoch, pending: Mutex::default() }))
    }

    fn for_each_object(&self, visit: &mut dyn FnMut(ObjectInfo)) -> Result<(), StoreError> {
        for ((kind, hash), bytes) in &self.inner().objects {
            visit(ObjectInfo { kind: *kind, hash: *hash, raw_len: bytes.len() as u64, base: None });
        }
        Ok(())
    }
}

impl CommitLog for MemoryStore {
    fn commit(&self, batch: Option<FinishedBatch>, mutations: &[Mutation]) -> Result<Receipt, StoreError> {
        let mut inner = self.inner();
        let mut fresh = Objects::new();
        if let Some(batch) = batch {
            if batch.epoch != inner.epoch {
                return Err(StoreError::Collected);
            }
            if let Ok(objects) = batch.payload.downcast::<Objects>() {
                fresh = *objects;
            }
        }
        fresh.retain(|key, _| !inner.objects.contains_key(key));
        let added: u64 = fresh.values().map(|bytes| bytes.len() as u64).sum();
        if inner.bytes + added > self.limit {
            return Err(StoreError::Full { limit: self.limit });
        }
        // Apply to a copy, so that mutations take effect together or not at all.
        let mut log = inner.log.clone();
        let mut receipt = Receipt::default();
        for mutation in mutations {
            log.apply(mutation, &mut receipt)?;
        }
        inner.log = log;
        inner.objects.extend(fresh);
        inner.bytes += added;
        inner.commits += 1;
        Ok(receipt)
    }

    fn commit_seq(&self) -> Result<CommitMark, StoreError> {
        Ok(CommitMark(self.inner().commits))
    }
}

impl SessionStore for MemoryStore {
    fn workspace_at(&self, root: &[u8]) -> Result<Option<WorkspaceRecord>, StoreError> {
        Ok(self.inner().log.workspaces.iter().find(|workspace| workspace.root == root).cloned())
    }

    fn workspaces(&self) -> Result<Vec<WorkspaceRecord>, StoreError> {
        let inner = self.inner();
        Ok(inner.log.workspaces.iter().filter(|workspace| !workspace.is_forgotten()).cloned().collect())
    }

    fn forgotten_workspaces(&self) -> Result<Vec<WorkspaceRecord>, StoreError> {
        let inner = self.inner();
        Ok(inner.log.workspaces.iter().filter(|workspace| workspace.is_forgotten()).cloned().collect())
    }

    fn sessions(&self, workspace: WorkspaceId) -> Result<Vec<Session>, StoreError> {
        let inner = self.inner();
        Ok(inner.log.sessions.iter().filter(|session| session.workspace == workspace).cloned().collect())
    }

    fn session(&self, session: SessionId) -> Result<Option<Session>, StoreError> {
        Ok(self.inner().log.sessions.iter().find(|known| known.id == session).cloned())
    }
}

impl StepStore for MemoryStore {
    fn step(&self, step: StepId) -> Result<Option<StepRow>, StoreError> {
        let inner = self.inner();
        Ok(inner.log.steps.iter().find(|stored| stored.step.id == step).cloned())
    }

    fn step_numbered(&self, workspace: WorkspaceId, number: u64) -> Result<Option<StepRow>, StoreError> {
        let inner = self.inner();
        Ok(inner.log.of_workspace(workspace).find(|stored| stored.step.number == number).cloned())
    }

    fn steps(&self, workspace: WorkspaceId, query: &StepQuery) -> Result<Vec<StepRow>, StoreError> {
        let page = self.find(Some(workspace), query)?;
        Ok(page.steps.into_iter().map(|placed| placed.stored).collect())
    }

    fn find(&self, workspace: Option<WorkspaceId>, query: &StepQuery) -> Result<StepPage, StoreError> {
        Ok(scan::page(self.inner().log.rows(), workspace, query))
    }

    fn tally(&self, workspace: WorkspaceId) -> Result<Vec<StepCount>, StoreError> {
        Ok(scan::tally(self.inner().log.rows(), workspace))
    }

    fn checkpoints(&self, workspace: WorkspaceId) -> Result<Vec<StepRow>, StoreError> {
        let inner = self.inner();
        let kept = inner.log.of_workspace(workspace).filter(|stored| stored.is_checkpoint());
        let mut kept: Vec<StepRow> = kept.cloned().collect();
        kept.reverse();
        Ok(kept)
    }
}

impl StepChainStore for MemoryStore {
    fn chain_entries(
        &self,
        workspace: WorkspaceId,
        after: u64,
        most: u64,
    ) -> Result<Vec<ChainEntry>, StoreError> {
        let inner = self.inner();
        let links: HashMap<StepId, StepLink> = inner
            .log
            .steps
            .iter()
            .map(|stored| stored.step.id)
            .zip(inner.log.links.iter().copied())
            .collect();
        let entries = inner.log.of_workspace(workspace).filter(|stored| stored.step.number > after);
        let entries = entries.take(usize::try_from(most).unwrap_or(usize::MAX)).map(|stored| ChainEntry {
            session: stored.step.session,
            number: stored.step.number,
            digest: Some(step_digest(&stored.step, stored.trigger)),
            link: links.get(&stored.step.id).copied(),
        });
        Ok(entries.collect())
    }

    fn chain_heads(&self, workspace: WorkspaceId) -> Result<Vec<ChainHead>, StoreError> {
        let inner = self.inner();
        let sessions = inner.log.sessions.iter().filter(|session| session.workspace == workspace);
        let heads = sessions.map(|session| match inner.log.heads.get(&session.id) {
            Some((linked, head)) => ChainHead { session: session.id, linked: *linked, head: Some(*head) },
            None => ChainHead { session: session.id, linked: 0, head: None },
        });
        Ok(heads.collect())
    }
}

impl OperationStore for MemoryStore {
    fn operation(&self, op: OpId) -> Result<Option<Operation>, StoreError> {
        Ok(self.inner().log.operations.iter().find(|operation| operation.id == op).cloned())
    }

    fn operations(&self, workspace: WorkspaceId) -> Result<Vec<Operation>, StoreError> {
        let inner = self.inner();
        Ok(inner.log.operations.iter().rev().filter(|op| op.workspace == workspace).cloned().collect())
    }

    fn unfinished(&self, workspace: WorkspaceId) -> Result<Vec<Operation>, StoreError> {
        let mut operations = self.operations(workspace)?;
        operations.retain(|op| op.status == OpStatus::Applying);
        Ok(operations)
    }
}

impl RefStore for MemoryStore {
    fn reference(&self, name: &str) -> Result<Option<StepId>, StoreError> {
        Ok(self.inner().log.refs.get(name).copied())
    }

    fn references(&self, prefix: &str) -> Result<Vec<(String, StepId)>, StoreError> {
        let inner = self.inner();
        let matching = inner.log.refs.iter().filter(|(name, _)| name.starts_with(prefix));
        Ok(matching.map(|(name, step)| (name.clone(), *step)).collect())
    }
}

impl BatchLookup for MemoryStore {}

impl SearchStore for MemoryStore {
    fn unindexed(&self, most: usize) -> Result<Vec<StepRow>, StoreError> {
        Ok(find::unindexed_steps(&self.inner(), most))
    }

    fn index(&self, documents: &[SearchDocument]) -> Result<(), StoreError> {
        let known = documents.iter().map(|document| (document.stored.step.id, document.clone()));
        self.inner().documents.extend(known);
        Ok(())
    }

    fn forget_index(&self) -> Result<(), StoreError> {
        self.inner().documents.clear();
        Ok(())
    }

    fn search(&self, search: &SearchRequest) -> Result<SearchResult, StoreError> {
        Ok(find::search(&self.inner(), search))
    }
}

impl MaintenanceStore for MemoryStore {
    fn sweep(&self, live: &HashSet<Hash>, mark: CommitMark) -> Result<Swept, StoreError> {
        let mut inner = self.inner();
        if inner.commits != mark.0 {
            return Err(StoreError::Grew);
        }
        let (objects, bytes) = (inner.objects.len(), inner.bytes);
        inner.objects.retain(|(_, hash), _| live.contains(hash));
        inner.bytes = inner.objects.values().map(|bytes| bytes.len() as u64).sum();
        inner.epoch += 1;
        inner.commits += 1;
        Ok(Swept { objects: (objects - inner.objects.len()) as u64, bytes: bytes - inner.bytes })
    }

    fn usage_after(&self, _: &[Mutation], live: &HashSet<Hash>) -> Result<StoreUsage, StoreError> {
        let inner = self.inner();
        let kept = inner.objects.iter().filter(|((_, hash), _)| live.contains(hash));
        let (objects, bytes) =
            kept.fold((0, 0), |(objects, bytes), (_, object)| (objects + 1, bytes + object.len() as u64));
        Ok(StoreUsage { objects, raw_bytes: bytes, stored_bytes: bytes, total_bytes: bytes })
    }

    fn usage(&self) -> Result<StoreUsage, StoreError> {
        let inner = self.inner();
        Ok(StoreUsage {
            objects: inner.objects.len() as u64,
            raw_bytes: inner.bytes,
            stored_bytes: inner.bytes,
            total_bytes: inner.bytes,
        })
    }

    fn check(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}

impl Store for MemoryStore {
    fn local_dir(&self) -> Option<&Path> {
        None
    }
}
