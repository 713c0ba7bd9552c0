//! Merges into a board what was learned on another branch.

use serde_json::json;
use stepback_engine::board::{BoardAtPoint, BoardEditor, BoardMoment, BoardReplacement};
use stepback_reasoning::ReasoningBoard;

use crate::error::BoardError;

/// Merges what was learned between `base` and `source`. `base` defaults to the start of the experiment on the branch `source`.
pub fn merge_board(
    editor: &mut BoardEditor<'_>,
    source: &BoardMoment,
    base: Option<&BoardMoment>,
    take_theirs: bool,
    dry_run: bool,
) -> Result<BoardReplacement, BoardError> {
    let their_board = editor.board_at(source)?;
    let base = match (base, source) {
        (Some(base), _) => editor.board_at(base)?,
        (None, BoardMoment::Branch(branch)) => board_at_start(editor, branch, &their_board.board)?,
        (None, _) => return Err(BoardError::NoBase),
    };
    let merged = editor.board()?.merge(&base.board, &their_board.board, take_theirs)?;
    let summary = match source {
        BoardMoment::Branch(branch) => format!("merge the board of branch {branch}"),
        _ => format!("merge from {}", their_board.describe()),
    };
    let id = |board_at_point: &BoardAtPoint| board_at_point.step.as_ref().map(|stored| stored.step.id);
    let input = json!({ "do": "merge", "from": id(&their_board), "base": id(&base), "theirs": take_theirs });
    Ok(editor.replace(merged, summary, input, dry_run)?)
}

/// Returns the board as it was when the experiment on a branch began.
fn board_at_start(
    editor: &BoardEditor<'_>,
    branch: &str,
    theirs: &ReasoningBoard,
) -> Result<BoardAtPoint, BoardError> {
    let experiment =
        theirs.experiments.iter().rev().find(|(_, experiment_entry)| experiment_entry.branch == branch);
    let experiment = experiment.ok_or_else(|| BoardError::UnknownStart { branch: branch.to_owned() })?;
    let step = editor.workspace().store().step(experiment.1.origin.step)?;
    let number = step.map_or(0, |stored| stored.step.number);
    Ok(editor.board_at(&BoardMoment::Step(number))?)
}
