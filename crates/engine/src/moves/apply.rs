//! Applies a planned move, with the reasoning board if that moves along.

use stepback_model::record::Operation;

use super::part_steps::MovedParts;
use super::plan::PlannedMove;
use super::request::{MoveAction, MoveKind, MoveRequest};
use crate::board::BoardEditor;
use crate::error::EngineError;
use crate::rewind::{PreparedRewind, RewindReport};
use crate::undo::{Reversal, UndoDirection};
use crate::workspace::Workspace;

/// The result of a move.
#[derive(Debug)]
pub enum MoveReport {
    /// Files may have changed.
    Files(Box<RewindReport>),
    /// Only the log changed; this is the undo or redo that was recorded.
    Log(Box<Operation>),
}

impl MoveReport {
    /// The operation that was recorded.
    pub fn operation(&self) -> &Operation {
        match self {
            Self::Files(report) => &report.operation,
            Self::Log(operation) => operation,
        }
    }

    /// What happened to the files; `None` if only the log changed.
    pub fn into_files(self) -> Option<RewindReport> {
        match self {
            Self::Files(report) => Some(*report),
            Self::Log(_) => None,
        }
    }
}

impl Workspace {
    /// Applies a planned move. The present state is saved first; `undo` or `redo` takes the move back.
    pub fn apply_move(&self, planned: PlannedMove) -> Result<MoveReport, EngineError> {
        let PlannedMove { request, operation, files, summary, .. } = planned;
        let kind = request.action.kind();
        match (request.action, files, operation) {
            (MoveAction::Rewind(rewind), Some(prepared), _) => {
                if let (Some(board), Some(branch)) = (request.board, &rewind.merge) {
                    let session = self.require_session(board)?;
                    // Read before the files move: a merge is the base of the next one.
                    let base = self.board_merge_base(branch)?;
                    let mut report = self.apply_rewind(prepared)?;
                    let operation = Some(report.operation.id);
                    let merged =
                        BoardEditor::new(self, &session).merge_branch(branch, base, operation, false)?;
                    report.board = Some(merged);
                    return Ok(MoveReport::Files(Box::new(report)));
                }
                let has_parts = [request.board, request.memory, request.task].iter().any(Option::is_some);
                let request = MoveRequest { action: MoveAction::Rewind(rewind), ..request };
                let report = match has_parts {
                    true => self.apply_with_parts(
                        prepared,
                        |workspace| workspace.take_back_parts(&request),
                        Self::apply_rewind,
                    )?,
                    false => self.apply_rewind(prepared)?,
                };
                Ok(MoveReport::Files(Box::new(report)))
            }
            (MoveAction::Switch { branch, begin_at }, Some(prepared), _) => {
                if let Some(step) = begin_at {
                    self.create_branch(&branch, &self.require_step(step)?)?;
                }
                let report = match request.board {
                    Some(board) => {
                        BoardEditor::new(self, &self.require_session(board)?).switch(&branch, prepared)?
                    }
                    None => self.switch(&branch, prepared)?,
                };
                Ok(MoveReport::Files(Box::new(report)))
            }
            (_, files, Some(operation)) => {
                let reversal = match files {
                    Some(prepared) => Reversal::Files { prepared: Box::new(prepared), operation },
                    None => Reversal::Log { operation, summary },
                };
                let is_redo = kind == MoveKind::Redo;
                self.apply_reversal(reversal, if is_redo { UndoDirection::Redo } else { UndoDirection::Undo })
            }
            // A plan to rewind or to switch has files, one to undo or redo has an operation.
            (_, _, None) => Err(EngineError::NothingToUndo(kind.name())),
        }
    }

    /// Moves parts of sessions, then files. If the files cannot be moved, the parts go back to where they were.
    pub(crate) fn apply_with_parts(
        &self,
        mut prepared: PreparedRewind,
        move_parts: impl FnOnce(&Self) -> Result<MovedParts, EngineError>,
        apply: impl FnOnce(&Self, PreparedRewind) -> Result<RewindReport, EngineError>,
    ) -> Result<RewindReport, EngineError> {
        // The lock for recording is always taken before that of the workspace. Should files change meanwhile: applying
        // compares every path with the plan.
        prepared.release_lock();
        let moved = move_parts(self)?;
        prepared.part_steps.clone_from(&moved.steps);
        match apply(self, prepared) {
            Ok(report) => Ok(RewindReport { board: moved.board, parts: moved.parts, ..report }),
            // The files are as planned, and the next command records them.
            Err(error @ EngineError::Unrecorded { .. }) => Err(error),
            Err(error) => {
                self.reverse_part_steps(&moved.steps)?;
                Err(error)
            }
        }
    }
}
