//! Commands about versions of a board: `stepback board diff`, `restore`, `undo` and `merge`.

use serde_json::json;
use stepback_engine::board::{BoardEditor, BoardMoment, BoardReplacement};

use super::{resolve_board_moment, with_board};
use crate::args::board::BoardSelector;
use crate::commands::{CommandResult, DONE};
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Runs `stepback board diff`.
pub fn diff(context: &Context, from: &str, to: Option<&str>, board: &BoardSelector) -> CommandResult {
    with_board(context, board, |workspace, session| {
        let (from, to) = (
            resolve_board_moment(context, workspace, Some(from))?,
            resolve_board_moment(context, workspace, to)?,
        );
        let (before, after) = (workspace.board_at(session, &from)?, workspace.board_at(session, &to)?);
        let diff = before.board.diff(&after.board);
        if context.json {
            let step = |seen: &stepback_engine::board::BoardAtPoint| {
                seen.step.as_ref().map(|stored| stored.step.number)
            };
            let mut document = json!(diff);
            document["from"] = json!(step(&before));
            document["to"] = json!(step(&after));
            output::print_document(&document);
            return DONE;
        }
        diff.changes.iter().for_each(|change| output::print_line(&change.sentence));
        output::print_line(Paint::stdout().strong(&diff.summary));
        DONE
    })
}

/// Runs `stepback board restore`.
pub fn restore(context: &Context, point: &str, dry_run: bool, board: &BoardSelector) -> CommandResult {
    with_board(context, board, |workspace, session| {
        let moment = resolve_board_moment(context, workspace, Some(point))?;
        let joined = BoardEditor::new(workspace, session).restore(&moment, dry_run)?;
        print_replacement(context, &joined, dry_run)
    })
}

/// Runs `stepback board undo`.
pub fn undo(context: &Context, step: Option<&str>, dry_run: bool, board: &BoardSelector) -> CommandResult {
    with_board(context, board, |workspace, session| {
        let number = step.map(|text| {
            text.trim_start_matches('#').parse::<u64>().map_err(|_| {
                CommandFailure::new(FailureKind::Usage, format!("\"{text}\" is not a step number"))
                    .with_hint("\"stepback log --kind reasoning\" lists the changes of the board")
            })
        });
        let joined = BoardEditor::new(workspace, session).take_back(number.transpose()?, dry_run)?;
        print_replacement(context, &joined, dry_run)
    })
}

/// Runs `stepback board merge`.
pub fn merge(
    context: &Context,
    from: &str,
    base: Option<&str>,
    theirs: bool,
    dry_run: bool,
    board: &BoardSelector,
) -> CommandResult {
    with_board(context, board, |workspace, session| {
        let base = base.map(|base| resolve_board_moment(context, workspace, Some(base))).transpose()?;
        let from = resolve_board_moment(context, workspace, Some(from))?;
        if from == BoardMoment::Now {
            return Err(CommandFailure::new(FailureKind::Usage, "this is the current board itself")
                .with_hint(
                    "switch to the branch to merge into first: stepback branch switch main --reasoning",
                ));
        }
        let joined = stepback_board::merge_board(
            &mut BoardEditor::new(workspace, session),
            &from,
            base.as_ref(),
            theirs,
            dry_run,
        )?;
        print_replacement(context, &joined, dry_run)
    })
}

/// Prints what joining two boards did, or would do.
pub(super) fn print_replacement(
    context: &Context,
    replacement: &BoardReplacement,
    dry_run: bool,
) -> CommandResult {
    if context.json {
        let mut document = json!(replacement);
        document["undo"] = json!(replacement.step.map(|step| format!("stepback board undo {step}")));
        output::print_document(&document);
        return DONE;
    }
    replacement.diff.changes.iter().for_each(|change| output::print_line(&change.sentence));
    for (there, here) in &replacement.renamed {
        output::print_line(format!("{there} of the branch is {here} here"));
    }
    for conflict in &replacement.conflicts {
        let kept = if conflict.taken { "theirs was taken" } else { "it stays as it is here" };
        output::print_line(format!("Conflict: {}; {kept}", conflict.sentence));
    }
    output::print_line(Paint::stdout().strong(&replacement.diff.summary));
    let hint = match replacement.step {
        Some(step) => format!("\"stepback board undo {step}\" undoes this."),
        None if dry_run => "Nothing was changed (dry run).".to_owned(),
        None => "There was nothing to change.".to_owned(),
    };
    output::print_status(Paint::stderr().dim(hint));
    DONE
}
