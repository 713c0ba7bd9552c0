//! Commands that combine boards and branches: experiments, and boards that move along with the files.

use stepback_engine::board::{BoardEditor, BoardReplacement};
use stepback_engine::branch::quote_branch_name;
use stepback_reasoning::BoardMutation;
use stepback_reasoning::item::ExperimentStatus;

use super::{
    change_board, parse_choice, parse_id, print_edit, print_items, versions, with_board, with_board_at,
};
use crate::args::board::ExperimentCommand;
use crate::commands::{CommandResult, DONE};
use crate::context::Context;
use crate::failure::CommandFailure;
use crate::output::{self, Paint};

/// Runs `stepback board experiment …`.
pub fn experiment(context: &Context, command: &ExperimentCommand) -> CommandResult {
    match command {
        ExperimentCommand::Start { branch, hypothesis, success, board } => {
            let hypothesis = hypothesis.as_deref().map(parse_id).transpose()?;
            with_board(context, board, |workspace, session| {
                let begun = stepback_board::start_experiment(
                    &mut BoardEditor::new(workspace, session),
                    branch,
                    hypothesis,
                    success,
                    None,
                )?;
                print_edit(context, &begun.edit);
                if !context.json {
                    let left = begun.left;
                    output::print_line(format!("Now on branch {branch}."));
                    output::print_status(Paint::stderr().dim(format!(
                        "\"stepback branch switch {} --reasoning\" switches back, \"stepback board merge {}\" then merges its findings.",
                        quote_branch_name(&left),
                        quote_branch_name(branch),
                    )));
                }
                DONE
            })
        }
        ExperimentCommand::End { experiment, how, result, board } => change_board(context, board, |_| {
            Ok(BoardMutation::EndExperiment {
                experiment: parse_id(experiment)?,
                status: parse_choice("outcome", how, ExperimentStatus::ALL, ExperimentStatus::as_str)?,
                result: result.clone(),
            })
        }),
        ExperimentCommand::List { board } => with_board_at(context, board, None, |reasoning_board| {
            print_items(context, reasoning_board, "experiments", "Experiments", |_| true)
        }),
    }
}

/// Prints what changed on a board that moved along with the files, unless the output is JSON.
pub fn print_moved_board(
    context: &Context,
    replacement: Option<BoardReplacement>,
) -> Result<(), CommandFailure> {
    let is_changed =
        |joined: &BoardReplacement| !joined.diff.changes.is_empty() || !joined.conflicts.is_empty();
    if let (false, Some(joined)) = (context.json, replacement.filter(is_changed)) {
        versions::print_replacement(context, &joined, false)?;
    }
    Ok(())
}
