//! The reasoning board as a part of a state: what `at`, `checkpoint show` and `diff` say about it.

use serde_json::{Value, json};
use stepback_engine::{EngineError, Workspace};
use stepback_model::state::WorkspaceState;
use stepback_reasoning::ReasoningBoard;
use stepback_reasoning::diff::BoardDiff;

use crate::failure::CommandFailure;
use crate::output::{self, Paint};

/// Returns the board of a state; `None` if it has none.
fn load_board(
    workspace: &Workspace,
    state: &WorkspaceState,
) -> Result<Option<ReasoningBoard>, CommandFailure> {
    let load = |root| ReasoningBoard::load(workspace.store(), root).map(|(board, _)| board);
    Ok(state.reasoning.map(load).transpose().map_err(EngineError::from)?)
}

/// Returns the board of a state as a document; null if it has none.
pub fn state_board_document(workspace: &Workspace, state: &WorkspaceState) -> Result<Value, CommandFailure> {
    let board = load_board(workspace, state)?;
    Ok(board.map_or(Value::Null, |board| {
        let mut document = board.document();
        document["metrics"] = json!(board.metrics());
        document
    }))
}

/// Prints how much is on the board of a state, and the hypotheses that are open.
pub fn print_state_board(workspace: &Workspace, state: &WorkspaceState) -> Result<(), CommandFailure> {
    /// The most hypotheses that are named.
    const MAX_HYPOTHESES: usize = 5;
    let Some(board) = load_board(workspace, state)?.filter(|board| !board.is_empty()) else { return Ok(()) };
    let metrics = board.metrics();
    let count = |number: usize, noun: &str| output::count(number as u64, noun);
    output::print_line(format!(
        "  board    {} ({} concluded), {}, {} open",
        match metrics.hypotheses {
            1 => "1 hypothesis".to_owned(),
            number => format!("{} hypotheses", output::grouped(number as u64)),
        },
        metrics.concluded,
        count(metrics.beliefs, "belief"),
        count(metrics.contradictions, "contradiction"),
    ));
    let sections = board.board(false);
    let hypotheses = sections.iter().find(|section| section.title == "Hypotheses");
    let lines = hypotheses.into_iter().flat_map(|section| &section.lines);
    for line in lines.filter(|line| !line.starts_with(' ')).take(MAX_HYPOTHESES) {
        output::print_line(format!("           {line}"));
    }
    Ok(())
}

/// Returns how the boards of two states differ; `None` if they do not.
pub fn diff_state_boards(
    workspace: &Workspace,
    from: &WorkspaceState,
    to: &WorkspaceState,
) -> Result<Option<BoardDiff>, CommandFailure> {
    if from.reasoning == to.reasoning {
        return Ok(None);
    }
    let (from, to) = (load_board(workspace, from)?, load_board(workspace, to)?);
    let diff = from.unwrap_or_default().diff(&to.unwrap_or_default());
    Ok(Some(diff).filter(|diff| !diff.changes.is_empty()))
}

/// Prints how the boards of two states differ, a line for each item.
pub fn print_board_diff(diff: &BoardDiff) {
    output::print_line(Paint::stdout().strong("Board"));
    diff.changes.iter().for_each(|change| output::print_line(format!("  {}", change.sentence)));
}
