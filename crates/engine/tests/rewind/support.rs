//! A workspace with a store, and short words for what tests do with them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use stepback_engine::rewind::{RewindReport, RewindRequest};
use stepback_engine::undo::UndoDirection;
use stepback_engine::{Engine, EngineError, Workspace};
use stepback_model::env::FrozenEnv;
use stepback_model::record::StepRow;
use stepback_model::record::{Annotation, Trigger};
use stepback_model::time::Timestamp;
use stepback_store::Store;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::memory::MemoryStore;
use stepback_testkit::tree::{self, Copy};
use stepback_worktree::apply::ChangeOutcome;
use stepback_worktree::rules::Budget;

/// When the clock of these tests starts: 2023-11-14T22:13:20Z.
pub const START: i64 = 1_700_000_000_000_000;

/// A directory with a workspace in it, and a store beside it.
pub struct Place {
    dir: tempfile::TempDir,
    pub root: PathBuf,
    store: Box<dyn Store>,
    env: FrozenEnv,
    pub budget: Budget,
}

impl Place {
    pub fn new() -> Self {
        Self::with(|dir| Box::new(EmbeddedStore::open(&dir.join("store")).unwrap()))
    }

    pub fn in_memory() -> Self {
        Self::with(|_| Box::new(MemoryStore::new(1 << 30)))
    }

    fn with(store: impl FnOnce(&Path) -> Box<dyn Store>) -> Self {
        let dir = tempfile::tempdir_in(tree::scratch_place()).unwrap();
        let top = dir.path().canonicalize().unwrap();
        let root = top.join("work");
        fs::create_dir(&root).unwrap();
        let store = store(&top);
        let env = FrozenEnv::new(Timestamp::from_micros(START), 1);
        Self { dir, root, store, env, budget: Budget::default() }
    }

    pub fn engine(&self) -> Engine<'_> {
        Engine {
            store: &*self.store,
            env: &self.env,
            budget: self.budget,
            threads: 2,
            progress: None,
            watcher: None,
        }
    }

    /// A directory outside the workspace.
    pub fn outside(&self) -> PathBuf {
        let outside = self.dir.path().canonicalize().unwrap().join("outside");
        fs::create_dir_all(&outside).unwrap();
        outside
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// Whether something is there, without following a link.
    pub fn has(&self, path: &str) -> bool {
        fs::symlink_metadata(self.path(path)).is_ok()
    }

    pub fn chmod(&self, path: &str, mode: u32) {
        fs::set_permissions(self.path(path), Permissions::from_mode(mode)).unwrap();
    }

    pub fn mode(&self, path: &str) -> u32 {
        fs::symlink_metadata(self.path(path)).unwrap().permissions().mode() & 0o7777
    }

    /// Everything in the workspace.
    pub fn copy(&self) -> Copy {
        tree::copy_of(&self.root, |_| false)
    }

    #[track_caller]
    pub fn expect(&self, expected: &Copy) {
        let differences = tree::differences(expected, &self.copy());
        assert!(differences.is_empty(), "the workspace is wrong:\n{differences}");
    }
}

/// Short words for a workspace.
pub trait Words {
    fn checkpoint(&self, label: &str) -> StepRow;
    fn rewind(&self, target: &StepRow) -> RewindReport;
    fn rewind_with_git(&self, target: &StepRow) -> RewindReport;
    fn rewind_paths(&self, target: &StepRow, paths: &[&str]) -> Result<RewindReport, EngineError>;
    fn take_back(&self, changes: &[usize]) -> RewindReport;
    fn undo(&self) -> RewindReport;
    fn redo(&self) -> RewindReport;
    /// The number of the newest change of `path`.
    fn change_of(&self, path: &str) -> usize;
}

impl Words for Workspace<'_> {
    fn checkpoint(&self, label: &str) -> StepRow {
        let annotation = Annotation { label: Some(label.into()), ..Annotation::default() };
        self.create_checkpoint(annotation, Trigger::Manual).unwrap().stored
    }

    fn rewind(&self, target: &StepRow) -> RewindReport {
        let request = RewindRequest { target: Some(target.clone()), ..RewindRequest::default() };
        self.apply(self.prepare_rewind(&request).unwrap()).unwrap()
    }

    fn rewind_with_git(&self, target: &StepRow) -> RewindReport {
        let request = RewindRequest { target: Some(target.clone()), git: true, ..RewindRequest::default() };
        self.apply(self.prepare_rewind(&request).unwrap()).unwrap()
    }

    fn rewind_paths(&self, target: &StepRow, paths: &[&str]) -> Result<RewindReport, EngineError> {
        let paths = paths.iter().map(|path| (*path).to_string()).collect();
        let request = RewindRequest { target: Some(target.clone()), paths, ..RewindRequest::default() };
        self.apply(self.prepare_rewind(&request)?)
    }

    fn take_back(&self, changes: &[usize]) -> RewindReport {
        let request = RewindRequest { changes: changes.to_vec(), ..RewindRequest::default() };
        self.apply(self.prepare_rewind(&request).unwrap()).unwrap()
    }

    fn undo(&self) -> RewindReport {
        let reversal = self.prepare_undo(None).unwrap();
        self.reverse_now(reversal, UndoDirection::Undo).unwrap().expect("the last operation changed files")
    }

    fn redo(&self) -> RewindReport {
        let reversal = self.prepare_redo().unwrap();
        self.reverse_now(reversal, UndoDirection::Redo).unwrap().expect("the undone operation changed files")
    }

    fn change_of(&self, path: &str) -> usize {
        let changes = self.numbered_changes(None).unwrap();
        let found = changes.iter().rev().find(|numbered| numbered.change.path.as_bytes() == path.as_bytes());
        found.unwrap_or_else(|| panic!("{path} is not in the list of changes")).number
    }
}

/// Paths that were left alone, from the start or while applying, with the reason.
pub fn left_alone(report: &RewindReport) -> Vec<(String, String)> {
    let planned = report.left_alone.iter().map(|left| (left.path.to_string(), left.reason.clone()));
    let met = report.outcomes.iter().filter_map(|(change, outcome)| match outcome {
        ChangeOutcome::LeftAlone(reason) => Some((change.path.to_string(), reason.clone())),
        ChangeOutcome::Done => None,
    });
    planned.chain(met).collect()
}

#[track_caller]
pub fn nothing_left_alone(report: &RewindReport) {
    assert_eq!(left_alone(report), [], "something was left alone");
}

#[track_caller]
pub fn was_left_alone(report: &RewindReport, path: &str) {
    let left = left_alone(report);
    assert!(left.iter().any(|(found, _)| found == path), "{path} is not listed as left alone: {left:?}");
}

/// Whether permission bits mean nothing to this process.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").unwrap().uid() == 0
}
