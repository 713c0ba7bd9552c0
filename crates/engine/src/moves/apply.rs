//! Applies a planned move, with the reasoning board if that moves along.

use stepback_model::ids::SessionId;
use stepback_model::record::{Operation, Session};

use super::plan::PlannedMove;
use super::request::{MoveAction, MoveKind};
use crate::board::{BoardEditor, BoardMoment};
use crate::error::EngineError;
use crate::rewind::RewindReport;
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
                let board = request.board.map(|board| self.require_board_session(board)).transpose()?;
                // Read before the files move: a merge is the base of the next one.
                let merge = rewind.merge.as_deref().filter(|_| board.is_some());
                let merge =
                    merge.map(|branch| Ok::<_, EngineError>((branch, self.board_merge_base(branch)?)));
                let merge = merge.transpose()?;
                let mut report = self.apply_rewind(prepared)?;
                if let (Some(session), Some((branch, base))) = (&board, merge) {
                    let operation = Some(report.operation.id);
                    let merged =
                        BoardEditor::new(self, session).merge_branch(branch, base, operation, false)?;
                    report.board = Some(merged);
                }
                if let (Some(session), Some(target)) = (board, rewind.target) {
                    let moment = BoardMoment::Step(target.step.number);
                    let restored = BoardEditor::new(self, &session)
                        .restore_with_operation(&moment, report.operation.id)?;
                    report.board = Some(restored);
                }
                Ok(MoveReport::Files(Box::new(report)))
            }
            (MoveAction::Switch { branch, begin_at }, Some(prepared), _) => {
                if let Some(step) = begin_at {
                    self.create_branch(&branch, &self.require_step(step)?)?;
                }
                let report = match request.board {
                    Some(board) => BoardEditor::new(self, &self.require_board_session(board)?)
                        .switch(&branch, prepared)?,
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

    pub(super) fn require_board_session(&self, id: SessionId) -> Result<Session, EngineError> {
        let missing = || EngineError::Point(format!("there is no session {id}"));
        self.store().session(id)?.ok_or_else(missing)
    }
}
