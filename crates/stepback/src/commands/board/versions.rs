//! Commands about versions of a board: `stepback board diff`, `restore`, `undo` and `merge`.

use serde_json::json;
use stepback_engine::board::{BoardEditor, BoardMoment, BoardReplacement};

use super::{moment, with_board};
use crate::args::board::BoardSelector;
use crate::commands::{CommandResult, DONE};
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Runs `stepback board diff`.
pub fn diff(context: &Context, from: &str, to: Option<&str>, board: &BoardSelector) -> CommandResult {
    with_board(context, board, |workspace, session| {
        let (from, to) = (moment(context, workspace, Some(from))?, moment(context, workspace, to)?);
        let (before, after) = (workspace.board_at(session, &from)?, workspace.board_at(session, &to)?);
        let diff = before.board.diff(&after.board);
        if context.json {
            let step = |seen: &stepback_engine::board::BoardAtPoint| {
                seen.step.as_ref().map(|stored| stored.step.number)
            };
            let mut document = json!(diff);
            document["from"] = json!(step(&before));
            document["to"] = json!(step(&after));
            output::document(&document);
            return DONE;
        }
        diff.changes.iter().for_each(|change| output::line(&change.sentence));
        output::line(Paint::stdout().strong(&diff.summary));
        DONE
    })
}

/// Runs `stepback board restore`.
pub fn restore(context: &Context, point: &str, dry_run: bool, board: &BoardSelector) -> CommandResult {
    with_board(context, board, |workspace, session| {
        let moment = moment(context, workspace, Some(point))?;
        let joined = BoardEditor::new(workspace, session).restore(&moment, dry_run)?;
        tell(context, &joined, dry_run)
    })
}

/// Runs `stepback board undo`.
pub fn undo(context: &Context, step: Option<&str>, dry_run: bool, board: &BoardSelector) -> CommandResult {
    with_board(context, board, |workspace, session| {
        let number = step.map(|text| {
            text.trim_start_matches('#').parse::<u64>().map_err(|_| {
                CommandFailure::new(FailureKind::Usage, format!("\"{text}\" is not a step number"))
                    .hint("\"stepback log --kind reasoning\" lists the changes of the board")
            })
        });
        let joined = BoardEditor::new(workspace, session).take_back(number.transpose()?, dry_run)?;
        tell(context, &joined, dry_run)
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
        let base = base.map(|base| moment(context, workspace, Some(base))).transpose()?;
        let from = moment(context, workspace, Some(from))?;
        if from == BoardMoment::Now {
            return Err(CommandFailure::new(FailureKind::Usage, "this is the current board itself")
                .hint("switch to the branch to merge into first: stepback branch switch main --reasoning"));
        }
        let joined = stepback_board::merge(
            &mut BoardEditor::new(workspace, session),
            &from,
            base.as_ref(),
            theirs,
            dry_run,
        )?;
        tell(context, &joined, dry_run)
    })
}

/// Prints what joining two boards did, or would do.
pub(super) fn tell(context: &Context, joined: &BoardReplacement, dry_run: bool) -> CommandResult {
    if context.json {
        let mut document = json!(joined);
        document["undo"] = json!(joined.step.map(|step| format!("stepback board undo {step}")));
        output::document(&document);
        return DONE;
    }
    joined.diff.changes.iter().for_each(|change| output::line(&change.sentence));
    for (there, here) in &joined.renamed {
        output::line(format!("{there} of the branch is {here} here"));
    }
    for conflict in &joined.conflicts {
        let kept = if conflict.taken { "theirs was taken" } else { "it stays as it is here" };
        output::line(format!("Conflict: {}; {kept}", conflict.sentence));
    }
    output::line(Paint::stdout().strong(&joined.diff.summary));
    let hint = match joined.step {
        Some(step) => format!("\"stepback board undo {step}\" undoes this."),
        None if dry_run => "Nothing was changed (dry run).".to_owned(),
        None => "There was nothing to change.".to_owned(),
    };
    output::say(Paint::stderr().dim(hint));
    DONE
}
