//! Merges into a board what was learned on another branch.

use serde_json::json;
use stepback_engine::board::{BoardAtPoint, BoardEditor, BoardMoment, BoardReplacement};
use stepback_reasoning::ReasoningBoard;

use crate::error::BoardError;

/// Merges what was learned between `base` and `from`. `base` defaults to the start of the experiment on the branch `from`.
pub fn merge_board(
    editor: &mut BoardEditor<'_>,
    from: &BoardMoment,
    base: Option<&BoardMoment>,
    take_theirs: bool,
    dry_run: bool,
) -> Result<BoardReplacement, BoardError> {
    let theirs = editor.board_at(from)?;
    let base = match (base, from) {
        (Some(base), _) => editor.board_at(base)?,
        (None, BoardMoment::Branch(branch)) => board_at_start(editor, branch, &theirs.board)?,
        (None, _) => return Err(BoardError::NoBase),
    };
    let merged = editor.board()?.merge(&base.board, &theirs.board, take_theirs)?;
    let summary = match from {
        BoardMoment::Branch(branch) => format!("merge the board of branch {branch}"),
        _ => format!("merge from {}", theirs.describe()),
    };
    let id = |seen: &BoardAtPoint| seen.step.as_ref().map(|stored| stored.step.id);
    let input = json!({ "do": "merge", "from": id(&theirs), "base": id(&base), "theirs": take_theirs });
    Ok(editor.replace(merged, summary, input, dry_run)?)
}

/// Returns the board as it was when the experiment on a branch began.
fn board_at_start(
    editor: &BoardEditor<'_>,
    branch: &str,
    theirs: &ReasoningBoard,
) -> Result<BoardAtPoint, BoardError> {
    let begun = theirs.experiments.iter().rev().find(|(_, known)| known.branch == branch);
    let begun = begun.ok_or_else(|| BoardError::UnknownStart { branch: branch.to_owned() })?;
    let step = editor.workspace().store().step(begun.1.origin.step)?;
    let number = step.map_or(0, |stored| stored.step.number);
    Ok(editor.board_at(&BoardMoment::Step(number))?)
}
