//! Those traits of the port whose methods are in several modules; each method calls the one that does the work.

use std::path::Path;
use std::time::Duration;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{StepId, WorkspaceId};
use stepback_store::StoreError;
use stepback_store::port::{
    BatchAnswers, CommitLog, CommitMark, FinishedBatch, Mutation, ObjectBatch, ObjectInfo, ObjectStore,
    Receipt, SearchDocument, SearchRequest, SearchResult, SearchStore, StepCount, StepPage, StepQuery,
    StepRow, StepStore, Store,
};

use crate::PostgresStore;

impl ObjectStore for PostgresStore {
    fn contains(&self, kind: ObjectKind, hash: Hash) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM stepback_objects WHERE hash = $1 AND kind = $2";
        let key = hash.as_bytes().as_slice();
        let row = self.pool.ask(async |connection| connection.row(sql, &[&key, &(kind as i16)]).await)?;
        Ok(row.is_some())
    }

    fn gc_generation(&self) -> Result<u64, StoreError> {
        self.current_epoch()
    }

    fn begin_since(&self, epoch: u64) -> Result<Box<dyn ObjectBatch + '_>, StoreError> {
        Ok(Box::new(self.new_batch(epoch, None)))
    }

    fn begin_on(&self, answers: &BatchAnswers) -> Result<Box<dyn ObjectBatch + '_>, StoreError> {
        Ok(Box::new(self.new_batch(answers.epoch, Some(answers.versions.clone()))))
    }

    fn for_each_object(&self, visit: &mut dyn FnMut(ObjectInfo)) -> Result<(), StoreError> {
        self.visit_objects(visit)
    }
}

impl CommitLog for PostgresStore {
    fn commit(&self, batch: Option<FinishedBatch>, mutations: &[Mutation]) -> Result<Receipt, StoreError> {
        self.commit_all(batch, mutations)
    }

    fn commit_seq(&self) -> Result<CommitMark, StoreError> {
        self.current_mark()
    }

    fn wait_for_commit(&self, after: CommitMark, patience: Duration) -> Result<CommitMark, StoreError> {
        self.await_commit(after, patience)
    }
}

impl StepStore for PostgresStore {
    fn step(&self, step: StepId) -> Result<Option<StepRow>, StoreError> {
        self.find_step(step)
    }

    fn step_numbered(&self, workspace: WorkspaceId, number: u64) -> Result<Option<StepRow>, StoreError> {
        self.find_step_numbered(workspace, number)
    }

    fn steps(&self, workspace: WorkspaceId, query: &StepQuery) -> Result<Vec<StepRow>, StoreError> {
        self.list_steps(workspace, query)
    }

    fn find(&self, workspace: Option<WorkspaceId>, query: &StepQuery) -> Result<StepPage, StoreError> {
        self.find_page(workspace, query)
    }

    fn tally(&self, workspace: WorkspaceId) -> Result<Vec<StepCount>, StoreError> {
        self.count_by_agent(workspace)
    }

    fn checkpoints(&self, workspace: WorkspaceId) -> Result<Vec<StepRow>, StoreError> {
        self.list_checkpoints(workspace)
    }
}

impl SearchStore for PostgresStore {
    fn unindexed(&self, most: usize) -> Result<Vec<StepRow>, StoreError> {
        self.list_unindexed(most)
    }

    fn index(&self, documents: &[SearchDocument]) -> Result<(), StoreError> {
        self.add_documents(documents)
    }

    fn forget_index(&self) -> Result<(), StoreError> {
        self.remove_index()
    }

    fn search(&self, search: &SearchRequest) -> Result<SearchResult, StoreError> {
        self.find_texts(search)
    }
}

impl Store for PostgresStore {
    fn local_dir(&self) -> Option<&Path> {
        Some(&self.local)
    }

    /// Hard links on this machine are not visible to other machines.
    fn has_vault(&self) -> bool {
        false
    }

    fn patience(&self) -> Option<Duration> {
        self.patience
    }
}
