//! Commands that combine boards and branches: experiments, and boards that move along with the files.

use stepback_engine::Workspace;
use stepback_engine::board::{BoardEditor, BoardMoment, BoardReplacement};
use stepback_model::record::{Session, StepRow};
use stepback_reasoning::BoardMutation;
use stepback_reasoning::item::ExperimentStatus;

use super::{change_board, list, look, name, tell, versions, with_board, word};
use crate::args::board::ExperimentCommand;
use crate::commands::{CommandResult, DONE};
use crate::context::Context;
use crate::failure::CommandFailure;
use crate::output::{self, Paint};

/// Runs `stepback board experiment …`.
pub fn experiment(context: &Context, command: &ExperimentCommand) -> CommandResult {
    match command {
        ExperimentCommand::Start { branch, hypothesis, success, board } => {
            let hypothesis = hypothesis.as_deref().map(name).transpose()?;
            with_board(context, board, |workspace, session| {
                let begun = stepback_board::start_experiment(
                    &mut BoardEditor::new(workspace, session),
                    branch,
                    hypothesis,
                    success,
                    None,
                )?;
                tell(context, &begun.edit);
                if !context.json {
                    let left = begun.left;
                    output::line(format!("Now on branch {branch}."));
                    output::say(Paint::stderr().dim(format!(
                        "\"stepback branch switch {left} --reasoning\" switches back, \"stepback board merge {branch}\" then merges its findings."
                    )));
                }
                DONE
            })
        }
        ExperimentCommand::End { experiment, how, result, board } => change_board(context, board, |_| {
            Ok(BoardMutation::EndExperiment {
                experiment: name(experiment)?,
                status: word("outcome", how, ExperimentStatus::ALL, ExperimentStatus::as_str)?,
                result: result.clone(),
            })
        }),
        ExperimentCommand::List { board } => {
            look(context, board, None, |mind| list(context, mind, "experiments", "Experiments", |_| true))
        }
    }
}

/// Finds the session whose board goes back with the files to a point.
pub fn session_at(
    context: &Context,
    workspace: &Workspace,
    target: &StepRow,
) -> Result<Session, CommandFailure> {
    match workspace.store().session(target.step.session)? {
        Some(session) if session.info.slots.reasoning.is_some() => Ok(session),
        _ => Ok(stepback_board::choose_session(workspace, None, context.now())?),
    }
}

/// Rewinds the board alone to a point at which the files already are.
pub fn go_back(
    context: &Context,
    workspace: &Workspace,
    target: &StepRow,
    session: &Session,
    dry_run: bool,
) -> Result<(), CommandFailure> {
    let moment = BoardMoment::Step(target.step.number);
    let joined = BoardEditor::new(workspace, session).restore(&moment, dry_run)?;
    if !context.json {
        versions::tell(context, &joined, dry_run)?;
    }
    Ok(())
}

/// Prints what changed on a board that moved along with the files, unless the output is JSON.
pub fn tell_moved(context: &Context, joined: Option<BoardReplacement>) -> Result<(), CommandFailure> {
    if let (false, Some(joined)) = (context.json, joined) {
        versions::tell(context, &joined, false)?;
    }
    Ok(())
}
