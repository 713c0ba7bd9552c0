//! Short words for what these tests do with a workspace.

use std::sync::Arc;

use stepback_engine::rewind::{RewindReport, RewindRequest};
use stepback_engine::undo::UndoDirection;
use stepback_engine::{EngineError, Workspace};
use stepback_model::record::StepRow;
use stepback_model::record::{Annotation, Trigger};
use stepback_store::Store;
use stepback_store::embedded::EmbeddedStore;
pub use stepback_testkit::TestWorkspace;
pub use stepback_testkit::test_workspace::START;
use stepback_worktree::apply::ChangeOutcome;

/// Opens the store again, as another process does; a store in memory has one handle only.
pub fn open_again(place: &TestWorkspace) -> Arc<dyn Store> {
    let dir = place.top().join("store");
    match dir.exists() {
        true => Arc::new(EmbeddedStore::open(&dir).unwrap()),
        false => place.store.clone(),
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

impl Words for Workspace {
    fn checkpoint(&self, label: &str) -> StepRow {
        let annotation = Annotation::labelled(label);
        self.create_checkpoint(annotation, Trigger::Manual).unwrap().stored
    }

    fn rewind(&self, target: &StepRow) -> RewindReport {
        let request = RewindRequest { target: Some(target.clone()), ..RewindRequest::default() };
        self.apply_rewind(self.prepare_rewind(&request).unwrap()).unwrap()
    }

    fn rewind_with_git(&self, target: &StepRow) -> RewindReport {
        let request = RewindRequest { target: Some(target.clone()), git: true, ..RewindRequest::default() };
        self.apply_rewind(self.prepare_rewind(&request).unwrap()).unwrap()
    }

    fn rewind_paths(&self, target: &StepRow, paths: &[&str]) -> Result<RewindReport, EngineError> {
        let paths = paths.iter().map(|path| (*path).to_string()).collect();
        let request = RewindRequest { target: Some(target.clone()), paths, ..RewindRequest::default() };
        self.apply_rewind(self.prepare_rewind(&request)?)
    }

    fn take_back(&self, changes: &[usize]) -> RewindReport {
        let request = RewindRequest { changes: changes.to_vec(), ..RewindRequest::default() };
        self.apply_rewind(self.prepare_rewind(&request).unwrap()).unwrap()
    }

    fn undo(&self) -> RewindReport {
        let reversal = self.prepare_undo(None).unwrap();
        self.apply_reversal(reversal, UndoDirection::Undo)
            .unwrap()
            .into_files()
            .expect("the last operation changed files")
    }

    fn redo(&self) -> RewindReport {
        let reversal = self.prepare_redo().unwrap();
        self.apply_reversal(reversal, UndoDirection::Redo)
            .unwrap()
            .into_files()
            .expect("the undone operation changed files")
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
