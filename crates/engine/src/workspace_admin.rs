//! Moving, forgetting and bringing back workspaces.
//!
//! A workspace is known by its root. Moving gives it another one; its history stays what it is. Forgetting puts a prefix before
//! its root: from then on no list has it, nothing keeps its objects, and its directory is unknown. The next collection
//! frees what only it held; until then it can come back. Its steps stay as rows that no list shows, because steps are never
//! deleted.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use stepback_model::ids::{OpId, StepId};
use stepback_model::path::display_bytes;
use stepback_model::record::{OpStatus, Operation, OperationAction, WorkspaceRecord};
use stepback_store::port::StepQuery;
use stepback_store::{Mutation, StoreError};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::workspace::Workspace;
use crate::workspace_index;

/// Why a workspace cannot be moved, forgotten or brought back.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// Another workspace has this root.
    #[error("{0} is another workspace already")]
    Taken(String),
    /// A prune freed what the workspace held.
    #[error("{0} cannot come back: a prune freed what it held")]
    Freed(String),
    /// The directory belongs to the store.
    #[error("{path} is in the store at {store}, which only stepback changes")]
    InStore {
        /// The directory.
        path: String,
        /// The store.
        store: String,
    },
    /// The workspace is not forgotten.
    #[error("{0} is not forgotten")]
    NotForgotten(String),
}

/// How many steps are released at once.
const STEPS_AT_ONCE: u64 = 10_000;

impl Engine {
    /// Gives a workspace another root. The caller makes sure that its files are there.
    pub fn move_workspace(&self, workspace: &Workspace, root: &[u8]) -> Result<WorkspaceRecord, EngineError> {
        self.check_outside_store(Path::new(OsStr::from_bytes(root)))?;
        let _lock = workspace.lock_for_everything()?;
        self.check_free_root(root)?;
        self.set_root(&workspace.record, root.to_vec())?;
        self.remove_marker(&workspace.record.root);
        let moved = WorkspaceRecord { root: root.to_vec(), ..workspace.record.clone() };
        self.write_marker(&moved);
        Ok(moved)
    }

    /// Forgets a workspace, and the scratch workspaces of its reruns that have ended. Returns how many of these there were.
    pub fn forget_workspace(&self, workspace: &Workspace) -> Result<usize, EngineError> {
        let _lock = workspace.lock_for_everything()?;
        let mut records = vec![workspace.record.clone()];
        let all = self.store.workspaces()?;
        for rerun in workspace.reruns()? {
            let Some(session) =
                rerun.session.map(|session| self.store.session(session)).transpose()?.flatten()
            else {
                continue;
            };
            let scratch = all.iter().find(|record| record.id == session.workspace && record.is_rerun());
            let is_in_use = |record: &&WorkspaceRecord| to_path(&record.root).exists();
            records.extend(scratch.filter(|record| !is_in_use(record)).cloned());
        }
        records.dedup_by_key(|record| record.id);
        let mutations: Vec<Mutation> = records
            .iter()
            .map(|record| Mutation::SetWorkspaceRoot { workspace: record.id, root: record.forgotten_root() })
            .collect();
        self.store.commit(None, &mutations)?;
        for record in &records {
            self.remove_marker(&record.root);
        }
        Ok(records.len() - 1)
    }

    /// Brings a forgotten workspace back, as long as nothing of it was freed.
    pub fn restore_workspace(&self, record: &WorkspaceRecord) -> Result<WorkspaceRecord, EngineError> {
        // A collection must not free it meanwhile.
        let _lock = self.block_garbage_collection()?;
        let shown = display_bytes(record.former_root()).to_string();
        let known = self.store.forgotten_workspaces()?.into_iter().find(|known| known.id == record.id);
        let Some(record) = known else { return Err(WorkspaceError::NotForgotten(shown).into()) };
        if record.is_freed() {
            return Err(WorkspaceError::Freed(shown).into());
        }
        let root = record.former_root().to_vec();
        self.check_free_root(&root)?;
        self.set_root(&record, root.clone())?;
        let restored = WorkspaceRecord { root, ..record };
        self.write_marker(&restored);
        Ok(restored)
    }

    /// The forgotten workspaces that can still come back, other than those of reruns. The next collection frees them.
    pub fn restorable_workspaces(&self) -> Result<Vec<WorkspaceRecord>, EngineError> {
        let mut records = self.store.forgotten_workspaces()?;
        records.retain(|record| !record.is_freed() && !record.is_rerun());
        Ok(records)
    }

    /// Releases the steps of forgotten workspaces, so that the objects that only they need are freed. They cannot come back
    /// then. The caller keeps [`Self::restore_workspace`] out.
    pub(crate) fn release_forgotten(&self) -> Result<(), EngineError> {
        for record in self.store.forgotten_workspaces()? {
            if record.is_freed() {
                continue;
            }
            // First, so that it does not come back after a crash.
            self.set_root(&record, record.freed_root())?;
            let operation = Operation {
                id: OpId::from_bytes(self.env.fresh_id()),
                workspace: record.id,
                number: 0,
                at: self.env.now(),
                summary: "free a forgotten workspace".to_owned(),
                action: OperationAction::Prune { steps: Vec::new(), freed: true },
                status: OpStatus::Done,
                undone: false,
                journal: None,
            };
            let by = Some(operation.id);
            self.store.commit(None, &[Mutation::AppendOp(operation)])?;
            let mut after = None;
            loop {
                let query = StepQuery {
                    after,
                    oldest_first: true,
                    limit: Some(STEPS_AT_ONCE),
                    ..StepQuery::default()
                };
                let steps = self.store.steps(record.id, &query)?;
                let Some(last) = steps.last() else { break };
                after = Some(last.step.number);
                let steps: Vec<StepId> = steps.iter().map(|stored| stored.step.id).collect();
                let mutations = [Mutation::SetHidden { steps: steps.clone(), by }, Mutation::Purge { steps }];
                self.store.commit(None, &mutations)?;
            }
            if let Some(dir) = self.store.local_dir() {
                // Caches and locks; what is left of them is of no use and does no harm.
                let _ = fs::remove_dir_all(dir.join("workspaces").join(record.id.to_string()));
            }
        }
        Ok(())
    }

    fn set_root(&self, record: &WorkspaceRecord, root: Vec<u8>) -> Result<(), EngineError> {
        let shown = display_bytes(&root).to_string();
        let change = Mutation::SetWorkspaceRoot { workspace: record.id, root };
        match self.store.commit(None, &[change]) {
            Err(StoreError::Exists { .. }) => Err(WorkspaceError::Taken(shown).into()),
            committed => Ok(committed.map(|_| ())?),
        }
    }

    /// Fails if a directory is the store or in it: files restored there would overwrite what the store holds.
    pub fn check_outside_store(&self, path: &Path) -> Result<(), EngineError> {
        let Some(store) = self.store.local_dir().and_then(|store| store.canonicalize().ok()) else {
            return Ok(());
        };
        // What does not exist yet will be created below the part that does.
        let existing = path.ancestors().find_map(|above| above.canonicalize().ok());
        match existing.is_some_and(|existing| existing.starts_with(&store)) {
            false => Ok(()),
            true => Err(WorkspaceError::InStore {
                path: path.display().to_string(),
                store: store.display().to_string(),
            }
            .into()),
        }
    }

    fn check_free_root(&self, root: &[u8]) -> Result<(), EngineError> {
        match self.store.workspace_at(root)? {
            Some(_) => Err(WorkspaceError::Taken(display_bytes(root).to_string()).into()),
            None => Ok(()),
        }
    }

    /// Writes the file by which hooks find a workspace; only a hint.
    fn write_marker(&self, record: &WorkspaceRecord) {
        if let Some(dir) = self.store.local_dir().filter(|_| record.remote_name().is_none()) {
            let _ = workspace_index::write_marker(dir, to_path(&record.root), record.id);
        }
    }

    fn remove_marker(&self, root: &[u8]) {
        if let Some(dir) = self.store.local_dir() {
            workspace_index::remove_marker(dir, to_path(root));
        }
    }
}

fn to_path(root: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(root))
}
