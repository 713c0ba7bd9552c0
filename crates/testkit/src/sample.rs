//! Sample data: records with fresh ids, and bytes that compress well or not at all.

use stepback_model::env::{Env, FrozenEnv};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{OpId, SessionId, StepId, WorkspaceId};
use stepback_model::record::{
    Annotation, OpStatus, Operation, OperationAction, Session, SessionInfo, Step, StepKind, StepMeta,
    Trigger, WorkspaceRecord,
};
use stepback_model::time::Timestamp;
use stepback_store::port::{Mutation, Receipt, Store};

/// Makes records. Two samples with different seeds never make the same id.
#[derive(Debug)]
pub struct Sample {
    env: FrozenEnv,
}

impl Sample {
    /// Ids and times derive from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { env: FrozenEnv::new(Timestamp::from_micros(1_700_000_000_000_000), seed) }
    }

    /// A workspace at `root`.
    pub fn workspace(&self, root: &[u8]) -> WorkspaceRecord {
        let id = WorkspaceId::from_bytes(self.env.fresh_id());
        WorkspaceRecord { id, root: root.to_vec(), created_at: self.env.now() }
    }

    /// A session in `workspace`.
    pub fn session(&self, workspace: WorkspaceId) -> Session {
        let id = SessionId::from_bytes(self.env.fresh_id());
        Session {
            id,
            workspace,
            agent: "sample".into(),
            started_at: self.env.now(),
            info: SessionInfo::default(),
        }
    }

    /// A step of `session` with `state`.
    pub fn step(&self, session: SessionId, state: Hash) -> Step {
        Step {
            id: StepId::from_bytes(self.env.fresh_id()),
            session,
            number: 0,
            parent: None,
            kind: StepKind::Checkpoint,
            at: self.env.now(),
            state,
            summary: "a step".into(),
            meta: StepMeta::default(),
        }
    }

    /// An operation of `workspace`; while applying, it has a journal.
    pub fn operation(&self, workspace: WorkspaceId, status: OpStatus) -> Operation {
        Operation {
            id: OpId::from_bytes(self.env.fresh_id()),
            workspace,
            number: 0,
            at: self.env.now(),
            summary: "an operation".into(),
            action: OperationAction::CheckpointCreate { step: StepId::from_bytes(self.env.fresh_id()) },
            status,
            undone: false,
            journal: (status == OpStatus::Applying).then(|| Hash::of(ObjectKind::Plan, b"journal")),
        }
    }

    /// A new workspace with one session, committed.
    pub fn begin(&self, store: &dyn Store, root: &[u8]) -> (WorkspaceRecord, Session) {
        let workspace = self.workspace(root);
        let session = self.session(workspace.id);
        let mutations = [Mutation::AddWorkspace(workspace.clone()), Mutation::AddSession(session.clone())];
        store.commit(None, &mutations).unwrap();
        (workspace, session)
    }

    /// A new step whose state is the blob `bytes`, committed together.
    pub fn append(&self, store: &dyn Store, session: SessionId, bytes: &[u8]) -> (StepId, Receipt) {
        let batch = store.begin().unwrap();
        let state = batch.write(ObjectKind::Blob, bytes, None).unwrap();
        let step = self.step(session, state);
        let id = step.id;
        (id, store.commit(Some(batch.finish().unwrap()), &[append(step)]).unwrap())
    }
}

/// The mutation that appends `step`, without label, note or tags.
pub fn append(step: Step) -> Mutation {
    Mutation::AppendStep { step, annotation: Annotation::default(), trigger: Some(Trigger::Automatic) }
}

/// Stores blobs in one commit.
pub fn put(store: &dyn Store, blobs: &[&[u8]]) -> Vec<Hash> {
    let batch = store.begin().unwrap();
    let hashes = blobs.iter().map(|bytes| batch.write(ObjectKind::Blob, bytes, None).unwrap()).collect();
    store.commit(Some(batch.finish().unwrap()), &[]).unwrap();
    hashes
}

/// `len` bytes that do not compress, the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// `lines` lines of text that compress well, different for every seed.
pub fn prose(seed: u64, lines: usize) -> Vec<u8> {
    let line = |index: usize| {
        format!("line {index} of text {seed}: {:016x} was here\n", (index as u64).wrapping_mul(seed | 1))
    };
    (0..lines).flat_map(|index| line(index).into_bytes()).collect()
}
