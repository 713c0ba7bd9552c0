//! A store with a mirror, and the comparison of two stores.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use stepback_mirror::archive::MirrorArchive;
use stepback_mirror::error::MirrorError;
use stepback_mirror::restore::{MirrorRestoreReport, restore};
use stepback_mirror::storage::directory::DirectoryStorage;
use stepback_mirror::sync::{MirrorSync, SyncReport};
use stepback_model::env::{Env, FrozenEnv};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::record::{Session, Step, Trigger, WorkspaceRecord};
use stepback_model::time::Timestamp;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::port::StepQuery;
use stepback_store::prelude::*;
use stepback_store::{Mutation, Receipt};
use stepback_testkit::sample::Sample;
use tempfile::TempDir;

/// The id of the mirrors of tests.
pub const ID: &str = "00112233445566778899aabbccddeeff";

/// A store in `store`, its mirror in `mirror`.
pub struct MirroredStore {
    pub dir: TempDir,
    pub sample: Sample,
    pub env: Arc<dyn Env>,
}

impl MirroredStore {
    pub fn new() -> Self {
        let start = Timestamp::from_micros(1_700_000_000_000_000);
        let dir = tempfile::tempdir().unwrap();
        Self { dir, sample: Sample::new(1), env: Arc::new(FrozenEnv::new(start, 9)) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn store(&self) -> EmbeddedStore {
        EmbeddedStore::open(&self.path("store")).unwrap()
    }

    pub fn archive(&self) -> MirrorArchive {
        open_archive(&self.path("mirror"), &*self.env)
    }

    pub fn sync(&self, store: &EmbeddedStore) -> Result<SyncReport, MirrorError> {
        MirrorSync::new(store, self.archive(), &*self.env).sync()
    }

    pub fn restore(&self, name: &str) -> Result<(MirrorRestoreReport, EmbeddedStore), MirrorError> {
        self.restore_generation(name, None)
    }

    pub fn restore_generation(
        &self,
        name: &str,
        generation: Option<u64>,
    ) -> Result<(MirrorRestoreReport, EmbeddedStore), MirrorError> {
        let into = self.path(name);
        let report = restore(&self.archive(), &into, generation, &self.env, &AtomicU64::new(0))?;
        Ok((report, EmbeddedStore::open_existing(&into).unwrap()))
    }

    /// A workspace with a session.
    pub fn begin(&self, store: &EmbeddedStore, root: &str) -> (WorkspaceRecord, Session) {
        self.sample.begin(store, root.as_bytes())
    }

    /// Appends a step whose state is real, so that what it needs can be found.
    pub fn append(&self, store: &EmbeddedStore, session: &Session, text: &[u8]) -> Step {
        let batch = store.begin().unwrap();
        let state = write_state(&*batch, text);
        let step = self.sample.step(session.id, state);
        let mutations = [Mutation::AppendStep {
            step: step.clone(),
            annotation: Default::default(),
            trigger: Some(Trigger::Automatic),
        }];
        let receipt: Receipt = store.commit(Some(batch.finish().unwrap()), &mutations).unwrap();
        Step { number: receipt.steps[0], ..step }
    }
}

/// Writes a state with one file.
pub fn write_state(batch: &dyn stepback_store::port::ObjectBatch, text: &[u8]) -> Hash {
    use stepback_model::state::WorkspaceState;
    use stepback_model::tree::{Content, Tree, TreeEntry, TreeNode};
    let blob = batch.write(ObjectKind::Blob, text, None).unwrap();
    let content = Content::Whole(blob);
    let node = TreeNode::File { mode: 0o644, size: text.len() as u64, content };
    let tree = Tree::from_entries(vec![TreeEntry { name: b"file".to_vec(), node }]);
    let files = Some(batch.write(ObjectKind::Tree, &tree.encode(), None).unwrap());
    let state = WorkspaceState { files, ..WorkspaceState::default() };
    batch.write(ObjectKind::State, &state.encode(), None).unwrap()
}

pub fn open_archive(path: &Path, env: &dyn Env) -> MirrorArchive {
    let storage = Arc::new(DirectoryStorage::create(path).unwrap());
    match MirrorArchive::open(storage.clone()).unwrap() {
        Some(archive) => archive,
        None => MirrorArchive::create(storage, ID, env.now()).unwrap(),
    }
}

/// Asserts that `copy` has everything that `original` has: all records, and every object of `objects`.
pub fn assert_same(original: &EmbeddedStore, copy: &EmbeddedStore) {
    assert_eq!(original.workspaces().unwrap(), copy.workspaces().unwrap());
    assert_eq!(original.references("").unwrap(), copy.references("").unwrap());
    for workspace in original.workspaces().unwrap() {
        let id = workspace.id;
        assert_eq!(original.sessions(id).unwrap(), copy.sessions(id).unwrap());
        assert_eq!(original.operations(id).unwrap(), copy.operations(id).unwrap());
        let query = StepQuery { oldest_first: true, ..StepQuery::default() };
        let steps = |store: &EmbeddedStore| {
            let mut steps = store.steps(id, &query).unwrap();
            // What was purged is there again.
            steps.iter_mut().for_each(|step| step.purged = false);
            steps
        };
        assert_eq!(steps(original), steps(copy));
    }
    let mut objects = Vec::new();
    original.for_each_object(&mut |object| objects.push(object)).unwrap();
    for object in objects {
        use stepback_model::object::ObjectSource as _;
        assert_eq!(
            original.read(object.kind, object.hash).unwrap(),
            copy.read(object.kind, object.hash).unwrap()
        );
    }
    assert_eq!(copy.check().unwrap(), Vec::<String>::new());
}
