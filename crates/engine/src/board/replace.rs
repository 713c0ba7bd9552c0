//! Replaces a board as a whole: by that of an earlier moment, by one without a single change, or by a merge.

use serde::Serialize;
use serde_json::{Value, json};
use stepback_model::ids::{OpId, StepId};
use stepback_model::record::{Operation, Session, StepKind, StepRow};
use stepback_reasoning::ItemId;
use stepback_reasoning::diff::BoardDiff;
use stepback_reasoning::merge::{BoardMerge, Conflict};
use stepback_store::Mutation;
use stepback_store::port::StepQuery;

use super::at_point::BoardMoment;
use super::editor::{BoardEditor, NextBoard};
use crate::error::EngineError;
use crate::rewind::{PreparedRewind, RewindReport};
use crate::workspace::Workspace;

/// The tool name of steps that restore, revert or merge a board.
const REPLACE_TOOL: &str = "mind";

/// The result of a restore, revert or merge of a board.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BoardReplacement {
    /// A one-line description.
    pub summary: String,
    /// The differences to the board before.
    #[serde(flatten)]
    pub diff: BoardDiff,
    /// Items that both sides had changed.
    pub conflicts: Vec<Conflict>,
    /// Items whose id differs between the two sides.
    pub renamed: Vec<(ItemId, ItemId)>,
    /// The number of the step that records it; `None` if nothing changed or for a dry run.
    pub step: Option<u64>,
}

impl BoardEditor<'_> {
    /// Restores the board of a moment. Everything since stays recorded.
    pub fn restore(&mut self, moment: &BoardMoment, dry_run: bool) -> Result<BoardReplacement, EngineError> {
        self.restore_board(moment, None, dry_run)
    }

    /// Restores the board along with the files that `operation` took to that moment. Undoing the operation reverts both.
    pub fn restore_with_operation(
        &mut self,
        moment: &BoardMoment,
        operation: OpId,
    ) -> Result<BoardReplacement, EngineError> {
        self.restore_board(moment, Some(operation), false)
    }

    fn restore_board(
        &mut self,
        moment: &BoardMoment,
        operation: Option<OpId>,
        dry_run: bool,
    ) -> Result<BoardReplacement, EngineError> {
        let past_board = self.board_at(moment)?;
        let summary = format!("restore the board of {}", past_board.describe());
        let source_step = past_board.step.as_ref().map(|stored| stored.step.id);
        let merged = BoardMerge { mind: past_board.board, conflicts: Vec::new(), renamed: Vec::new() };
        self.replace(merged, summary, build_replace_input("restore", "from", source_step, operation), dry_run)
    }

    /// Takes back what one step changed, the newest by default. Later changes stay.
    pub fn take_back(&mut self, number: Option<u64>, dry_run: bool) -> Result<BoardReplacement, EngineError> {
        self.take_back_step(number, None, dry_run)
    }

    fn take_back_step(
        &mut self,
        number: Option<u64>,
        operation: Option<OpId>,
        dry_run: bool,
    ) -> Result<BoardReplacement, EngineError> {
        let session = self.session()?;
        let moment = number.map_or(BoardMoment::Now, BoardMoment::Step);
        let changed_board = self.workspace.board_at(&session, &moment)?;
        let step = match (&changed_board.step, number) {
            (Some(stored), requested)
                if requested.is_none_or(|requested| requested == stored.step.number) =>
            {
                stored.step.clone()
            }
            (_, Some(requested)) => {
                return Err(EngineError::NotABoardChange { number: requested });
            }
            (_, None) => return Err(EngineError::NothingToUndo("take back")),
        };
        let board_before =
            self.workspace.board_at(&session, &BoardMoment::Step(step.number.saturating_sub(1)))?;
        let merged = self.current_board(&session)?.0.revert(&board_before.board, &changed_board.board)?;
        let summary = format!("take back #{}: {}", step.number, step.summary);
        self.replace(
            merged,
            summary,
            build_replace_input("take-back", "step", Some(step.id), operation),
            dry_run,
        )
    }

    /// Replaces the board by a merged one and records that, with `input` as the detail of the step; not for a dry run, nor if
    /// nothing changes.
    pub fn replace(
        &mut self,
        merged: BoardMerge,
        summary: String,
        input: Value,
        dry_run: bool,
    ) -> Result<BoardReplacement, EngineError> {
        let lock = self.workspace.lock_recording()?;
        let session = self.session()?;
        let (current, location) = self.current_board(&session)?;
        let diff = current.diff(&merged.mind);
        let mut replacement = BoardReplacement {
            summary,
            diff,
            conflicts: merged.conflicts,
            renamed: merged.renamed,
            step: None,
        };
        if dry_run || replacement.diff.changes.is_empty() && current == merged.mind {
            return Ok(replacement);
        }
        let origin = self.new_origin(&session);
        let warnings: Vec<&str> =
            replacement.diff.changes.iter().map(|change| change.sentence.as_str()).collect();
        let next = NextBoard {
            board: merged.mind,
            noun: REPLACE_TOOL,
            summary: replacement.summary.clone(),
            output: json!({ "said": warnings, "conflicts": replacement.conflicts }),
            input,
            causes: vec!["board-replaced"],
        };
        let recorded = self.record(&lock, &session, location, origin, next)?.step;
        replacement.step = Some(recorded.number);
        Ok(replacement)
    }

    /// Switches to another branch as planned, and restores the board that was left there.
    pub fn switch(
        &mut self,
        branch: &str,
        mut prepared: PreparedRewind,
    ) -> Result<RewindReport, EngineError> {
        // The lock for recording is always taken before that of the workspace. Should files change meanwhile: applying
        // compares every path with the plan.
        prepared.release_lock();
        self.save_board_for_branch(&self.workspace.present_branch()?)?;
        // Read before the switch: the board of a branch can be looked up only while the branch is not the present one.
        let target_step = self.board_at(&BoardMoment::Branch(branch.to_owned()))?.step;
        let report = self.workspace.switch(branch, prepared)?;
        let target_step = BoardMoment::Step(target_step.map_or(0, |stored| stored.step.number));
        let board = self.restore_with_operation(&target_step, report.operation.id)?;
        Ok(RewindReport { board: Some(board), ..report })
    }

    /// Stores the present board as that of `branch`, which is about to be left, so that a switch back can restore it.
    pub fn save_board_for_branch(&mut self, branch: &str) -> Result<(), EngineError> {
        let _lock = self.workspace.lock_recording()?;
        let session = self.session()?;
        let name = self.workspace.board_ref(session.id, branch);
        let Some(step) = self.workspace.board_at(&session, &BoardMoment::Now)?.step else { return Ok(()) };
        let value = step.step.id;
        let expected = self.workspace.store().reference(&name)?;
        self.workspace.store().commit(None, &[Mutation::SetRef { name, expected, value }])?;
        Ok(())
    }
}

impl Workspace {
    /// When an operation that restored the board along with the files is undone or redone, reverts the last change it made to
    /// the board. `None` if it did not change the board.
    pub(crate) fn move_board_with_operation(
        &self,
        operation: &Operation,
    ) -> Result<Option<BoardReplacement>, EngineError> {
        let Some((session, stored)) = self.board_step_of_operation(operation)? else { return Ok(None) };
        let mut editor = BoardEditor::new(self, &session);
        editor.take_back_step(Some(stored.step.number), Some(operation.id), false).map(Some)
    }

    /// Returns the last change to a board that an operation made along with the files, and its session.
    pub(crate) fn board_step_of_operation(
        &self,
        operation: &Operation,
    ) -> Result<Option<(Session, StepRow)>, EngineError> {
        let query = StepQuery {
            kinds: vec![StepKind::Reasoning],
            tool: Some(REPLACE_TOOL.to_owned()),
            since: Some(operation.at),
            ..StepQuery::default()
        };
        for stored in self.store().steps(self.record.id, &query)? {
            let step = &stored.step;
            let detail = self.load_detail(step)?.unwrap_or_default();
            if detail["input"]["operation"] != json!(operation.id) {
                continue;
            }
            return Ok(self.store().session(step.session)?.zip(Some(stored)));
        }
        Ok(None)
    }
}

/// Returns the input recorded with a step that restores or reverts a board.
fn build_replace_input(what: &str, key: &str, step: Option<StepId>, operation: Option<OpId>) -> Value {
    let mut input = json!({ "do": what, key: step });
    if let Some(operation) = operation {
        input["operation"] = json!(operation);
    }
    input
}
