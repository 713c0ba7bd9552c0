//! Which checkpoints a prune never takes, and which it keeps for what they stand for.

use std::collections::HashSet;

use stepback_model::ids::StepId;
use stepback_model::record::{Operation, OperationAction, StepKind, StepRow, Trigger};
use stepback_model::time::Timestamp;

use super::{KEPT_MANUAL, UNDO_WINDOW};
use crate::branch_merge;
use crate::error::EngineError;
use crate::workspace::Workspace;

/// Tags of checkpoints that were made because the reasoning changed in a way that matters later.
const SIGNIFICANT_TAGS: [&str; 3] = ["hypothesis-status", "contradiction", "verification"];
/// The other tags that stepback gives by itself. Any tag besides these and the significant ones is from a user or an agent.
const OWN_TAGS: [&str; 3] = ["gap-filled", "experiment", "time-passed"];

/// Whether a checkpoint is significant: it was made because a hypothesis was confirmed or rejected, because of a
/// contradiction or a verification, or it is the result of a merge.
pub fn is_significant(stored: &StepRow) -> bool {
    let is_merge =
        stored.step.kind == StepKind::Rewind && branch_merge::is_merge_summary(&stored.step.summary);
    is_merge || stored.annotation.tags.iter().any(|tag| SIGNIFICANT_TAGS.contains(&tag.as_str()))
}

/// Whether the step is marked: with a label, a note or a tag.
fn is_marked(stored: &StepRow) -> bool {
    let annotation = &stored.annotation;
    let is_own = |tag: &String| SIGNIFICANT_TAGS.contains(&tag.as_str()) || OWN_TAGS.contains(&tag.as_str());
    annotation.label.is_some() || annotation.note.is_some() || !annotation.tags.iter().all(is_own)
}

/// Whether a checkpoint never goes to reach a size: it is manual, marked or significant.
pub fn is_kept_by_size(stored: &StepRow) -> bool {
    stored.trigger == Some(Trigger::Manual) || is_marked(stored) || is_significant(stored)
}

/// Returns the newest manual checkpoints, which stay when no rule is given.
pub(super) fn newest_manual_checkpoints(checkpoints: &[StepRow]) -> HashSet<StepId> {
    let manual = checkpoints
        .iter()
        .filter(|stored| stored.trigger == Some(Trigger::Manual) && stored.hidden_by.is_none());
    manual.take(KEPT_MANUAL).map(|stored| stored.step.id).collect()
}

/// When the undo window begins at `now`: what was hidden or moved before can no longer be brought back after a prune.
pub(crate) fn undo_window_start(now: Timestamp) -> Timestamp {
    let window = i64::try_from(UNDO_WINDOW.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(now.as_micros().saturating_sub(window))
}

/// The states that an undo of the moves since `start` needs.
pub(crate) fn moves_since(operations: &[Operation], start: Timestamp) -> HashSet<StepId> {
    let recent = operations.iter().filter(|op| op.at >= start);
    recent.filter_map(|op| op.action.moved()).flat_map(|moved| [moved.before, moved.after]).collect()
}

impl Workspace {
    /// Returns the checkpoints that no rule may hide: the head, the tips of branches, what an undo of the last move needs, and
    /// the files of marked steps without files of their own.
    pub(crate) fn protected_checkpoints(
        &self,
        operations: &[Operation],
    ) -> Result<HashSet<StepId>, EngineError> {
        let mut protected: HashSet<StepId> = self.head_id()?.into_iter().collect();
        protected.extend(self.branches()?.into_iter().map(|branch| branch.tip.step.id));
        if let Some(moved) = operations.iter().find_map(|op| op.action.moved()) {
            protected.extend([moved.before, moved.after]);
        }
        let mut annotated: HashSet<StepId> = HashSet::new();
        for operation in operations {
            let OperationAction::CheckpointAnnotate { step, .. } = operation.action else { continue };
            if !annotated.insert(step) {
                continue;
            }
            let Some(stored) = self.store().step(step)? else { continue };
            if stored.is_checkpoint() || !is_marked(&stored) {
                continue;
            }
            match self.nearest_checkpoint(&stored) {
                Ok(files) => protected.insert(files.step.id),
                Err(EngineError::NoFiles { .. }) => false,
                Err(error) => return Err(error),
            };
        }
        Ok(protected)
    }
}

#[cfg(test)]
mod tests {
    use stepback_model::hash::Hash;
    use stepback_model::ids::SessionId;
    use stepback_model::record::{Annotation, Step, StepMeta};

    use super::*;

    fn checkpoint(kind: StepKind, summary: &str, tags: &[&str]) -> StepRow {
        let step = Step {
            id: StepId::from_bytes([1; 16]),
            session: SessionId::from_bytes([2; 16]),
            number: 1,
            parent: None,
            kind,
            at: Timestamp::from_micros(0),
            state: Hash::from_bytes([0; 32]),
            summary: summary.to_owned(),
            meta: StepMeta::default(),
        };
        let tags = tags.iter().map(ToString::to_string).collect();
        let annotation = Annotation { tags, ..Annotation::default() };
        StepRow { step, annotation, trigger: Some(Trigger::Automatic), hidden_by: None, purged: false }
    }

    #[test]
    fn causes_in_the_reasoning_and_merges_are_significant_and_other_automatic_tags_are_not() {
        for tag in ["hypothesis-status", "contradiction", "verification"] {
            let stored = checkpoint(StepKind::Checkpoint, "before: something", &[tag]);
            assert!(is_significant(&stored) && is_kept_by_size(&stored), "{tag}");
        }
        assert!(is_significant(&checkpoint(StepKind::Rewind, "merge branch other", &[])));
        for tag in ["gap-filled", "experiment", "time-passed"] {
            let stored = checkpoint(StepKind::Checkpoint, "before: something", &[tag]);
            assert!(!is_significant(&stored) && !is_kept_by_size(&stored), "{tag}");
        }
        let tagged = checkpoint(StepKind::Checkpoint, "merge branch other", &["mine"]);
        assert!(!is_significant(&tagged) && is_kept_by_size(&tagged));
        assert!(!is_kept_by_size(&checkpoint(StepKind::ToolStart, "Bash", &[])));
    }

    /// A cause that is added later has to be put into one of the two lists.
    #[test]
    fn every_cause_of_a_checkpoint_is_known_here() {
        use stepback_reasoning::CheckpointCause;
        let causes = [
            CheckpointCause::HypothesisStatus,
            CheckpointCause::Contradiction,
            CheckpointCause::Verification,
            CheckpointCause::GapFilled,
            CheckpointCause::Experiment,
        ];
        for cause in causes {
            let tag = cause.as_str();
            assert!(SIGNIFICANT_TAGS.contains(&tag) || OWN_TAGS.contains(&tag), "{tag}");
        }
    }
}
