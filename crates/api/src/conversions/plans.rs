//! Plans, the changes they keep, and their results as documents.

use serde_json::json;
use stepback_engine::board::BoardReplacement;
use stepback_engine::branch_merge::MergeConflict;
use stepback_engine::kept::{Audience, KeptChange, SessionName};
use stepback_engine::moves::{MoveReport, MovedPart, PlannedMove, PlannedPart, SessionPart};
use stepback_model::ids::WorkspaceId;
use stepback_model::plan::{How, PlannedChange, RewindPlan, SkippedPath};
use stepback_model::record::{Operation, OperationAction};
use stepback_model::tree::TreeNode;
use stepback_store::{Store, StoreError};
use stepback_worktree::apply::ChangeOutcome;

use crate::files::{NodeDocument, SkippedPathDocument};
use crate::operations::OperationDocument;
use crate::plans::{
    AppliedPlanDocument, ChangeOutcomeDocument, KeptChangeDocument, MergeConflictDocument,
    MergedBoardDocument, MovedPartDocument, PlanDocument, PlannedChangeDocument, PlannedPartDocument,
    SessionNameDocument, UndoRequestDocument,
};

impl PlanDocument {
    /// The document of a plan in a workspace.
    pub fn from_planned_move(workspace: WorkspaceId, planned: &PlannedMove) -> Self {
        let (empty, id, kind) =
            (RewindPlan::default(), planned.id.clone(), planned.request.action.kind().name());
        let files = planned.files.as_ref();
        let plan = files.map_or(&empty, |files| &files.plan);
        let kept = files.map_or(&[][..], |files| &files.kept);
        let everything = files.map_or(&[][..], |files| &files.everything_changes);
        Self {
            apply: format!("/api/v1/{kind}-plans/{id}/apply"),
            id,
            kind: kind.to_owned(),
            workspace: workspace.to_string(),
            summary: planned.summary.clone(),
            conflicts: files
                .map_or(&[][..], |files| &files.conflicts)
                .iter()
                .map(MergeConflictDocument::from_conflict)
                .collect(),
            board: planned.merged_board.as_ref().map(MergedBoardDocument::from_replacement),
            git: planned.moved_parts().git,
            items: plan.changes.iter().map(PlannedChangeDocument::from_change).collect(),
            left_alone: plan.left_alone.iter().map(SkippedPathDocument::from_skipped_path).collect(),
            kept: kept.iter().map(KeptChangeDocument::from_change).collect(),
            everything_changes: everything.iter().map(|path| path.display().into_owned()).collect(),
            unchanged_because: files.and_then(|files| files.unchanged_because.clone()),
            warnings: files.map(|files| files.warnings.clone()).unwrap_or_default(),
            parts: planned.parts().iter().map(PlannedPartDocument::from_part).collect(),
            operation: planned.operation.as_ref().map(|operation| operation.id.to_string()),
        }
    }
}

impl MergeConflictDocument {
    /// The document of a conflict.
    pub fn from_conflict(conflict: &MergeConflict) -> Self {
        let node = |node: &Option<TreeNode>| node.as_ref().map(NodeDocument::from_node);
        Self {
            path: conflict.path.display().into_owned(),
            reason: conflict.reason.clone(),
            marked: conflict.is_marked,
            base: node(&conflict.base),
            ours: node(&conflict.ours),
            theirs: node(&conflict.theirs),
        }
    }
}

impl MergedBoardDocument {
    /// The document of what changes on a board.
    pub fn from_replacement(merged: &BoardReplacement) -> Self {
        Self {
            conflicts: merged.conflicts.iter().map(|conflict| conflict.sentence.clone()).collect(),
            changes: merged.diff.changes.iter().map(|change| change.sentence.clone()).collect(),
        }
    }
}

impl AppliedPlanDocument {
    /// The document of a move that was made in a workspace.
    pub fn from_report(
        store: &dyn Store,
        workspace: WorkspaceId,
        report: &MoveReport,
    ) -> Result<Self, StoreError> {
        let operation = report.operation();
        let document = Self {
            operation: OperationDocument::from_store(store, operation)?,
            undo: UndoRequestDocument::for_operation(workspace, operation),
            ..Self::default()
        };
        let MoveReport::Files(report) = report else { return Ok(document) };
        let left = report.all_left_alone();
        Ok(Self {
            before: Some(report.before),
            after: Some(report.after),
            items: report.outcomes.iter().map(ChangeOutcomeDocument::from_outcome).collect(),
            partial: left.iter().any(SkippedPath::is_conflict)
                || report.outcomes.iter().any(|(change, _)| change.how == How::Marked)
                || report.board.as_ref().is_some_and(|board| !board.conflicts.is_empty()),
            board: report.board.as_ref().map(MergedBoardDocument::from_replacement),
            left_alone: left.iter().map(SkippedPathDocument::from_skipped_path).collect(),
            kept: report.kept.iter().map(KeptChangeDocument::from_change).collect(),
            parts: report.parts.iter().map(MovedPartDocument::from_part).collect(),
            ..document
        })
    }
}

impl PlannedPartDocument {
    /// The document of what a plan does to a part of a session.
    pub fn from_part(planned: &PlannedPart) -> Self {
        Self {
            part: planned.part.as_str().to_owned(),
            session: SessionNameDocument::from_name(&planned.session),
            changes: planned.changes.clone(),
            live: planned.is_live,
            follow_up: follow_up(planned),
        }
    }
}

/// What makes the agent itself follow: a conversation continues in a new session, and a running agent has to be told.
fn follow_up(planned: &PlannedPart) -> Option<String> {
    let PlannedPart { part, session, point, is_live, changes } = planned;
    let id = session.id;
    match part {
        SessionPart::Conversation => Some(format!(
            "POST /api/v1/sessions/{id}/forks with {{\"point\": \"#{point}\"}} prepares the session that continues from there"
        )),
        SessionPart::Memory | SessionPart::Task if *is_live && !changes.is_empty() => Some(format!(
            "POST /api/v1/sessions/{id}/inject tells the agent, which has a {} of its own",
            part.noun()
        )),
        _ => None,
    }
}

impl MovedPartDocument {
    /// The document of what happened to a part of a session.
    pub fn from_part(moved: &MovedPart) -> Self {
        Self {
            part: moved.part.as_str().to_owned(),
            session: SessionNameDocument::from_name(&moved.session),
            changes: moved.changes.clone(),
            kept: moved.kept.clone(),
            step: moved.step,
        }
    }
}

impl SessionNameDocument {
    /// The document of a session's name.
    pub fn from_name(name: &SessionName) -> Self {
        Self { id: name.id.to_string(), agent: name.agent.clone() }
    }
}

impl UndoRequestDocument {
    /// How to undo an operation: an undo is undone by a redo, everything else by an undo.
    fn for_operation(workspace: WorkspaceId, operation: &Operation) -> Self {
        let (plans, body) = match &operation.action {
            OperationAction::Undo { .. } => ("redo-plans", json!({})),
            OperationAction::Redo { op, .. } => ("undo-plans", json!({ "operation": op })),
            _ => ("undo-plans", json!({ "operation": operation.id })),
        };
        let href = format!("/api/v1/workspaces/{workspace}/{plans}");
        Self { method: "POST".to_owned(), href, body }
    }
}

impl OperationDocument {
    /// The document of an operation as it is in the store, with its number.
    pub fn from_store(store: &dyn Store, operation: &Operation) -> Result<Self, StoreError> {
        Ok(Self::from_operation(store.operation(operation.id)?.as_ref().unwrap_or(operation)))
    }
}

impl KeptChangeDocument {
    /// The document of a kept change.
    pub fn from_change(change: &KeptChange) -> Self {
        Self {
            path: change.path.display().into_owned(),
            author: change.author.kind().to_owned(),
            by: change.author.name(Audience::User),
            sessions: change.author.sessions.iter().map(SessionNameDocument::from_name).collect(),
            at: change.at,
            step_number: change.step,
            number: change.number.map(|number| number as u64),
        }
    }
}

impl ChangeOutcomeDocument {
    /// The document of a planned change and its outcome.
    pub fn from_outcome((change, outcome): &(PlannedChange, ChangeOutcome)) -> Self {
        let reason = match outcome {
            ChangeOutcome::Done => None,
            ChangeOutcome::LeftAlone(reason) => Some(reason.clone()),
        };
        Self {
            path: change.path.display().into_owned(),
            action: change.verb().to_owned(),
            done: reason.is_none(),
            reason,
        }
    }
}
