//! Commands that combine boards and branches: experiments, switching with the board, rewinding with it.

use stepback_engine::Workspace;
use stepback_engine::reason::{BoardMoment, Thinker};
use stepback_engine::rewind::RewindReport;
use stepback_model::record::StepRow;
use stepback_reasoning::BoardMutation;
use stepback_reasoning::item::ExperimentStatus;

use super::{board, list, look, name, tell, think, with_board, word};
use crate::args::ConfirmArgs;
use crate::args::mind::ExperimentCommand;
use crate::commands::{CommandResult, DONE, rewind};
use crate::context::Context;
use crate::failure::CommandFailure;
use crate::output::{self, Paint};

/// Runs `stepback experiment …`.
pub fn experiment(context: &Context, command: &ExperimentCommand) -> CommandResult {
    match command {
        ExperimentCommand::Start { branch, hypothesis, success, board } => {
            let hypothesis = hypothesis.as_deref().map(name).transpose()?;
            with_board(context, board, |workspace, session| {
                let begun =
                    Thinker::new(workspace, session).start_experiment(branch, hypothesis, success, None)?;
                tell(context, &begun.thought);
                if !context.json {
                    let left = begun.left;
                    output::line(format!("Now on branch {branch}."));
                    output::say(Paint::stderr().dim(format!(
                        "\"stepback branch switch {left} --reasoning\" goes back, \"stepback mind merge {branch}\" takes over from there what was found out."
                    )));
                }
                DONE
            })
        }
        ExperimentCommand::End { experiment, how, result, board } => think(context, board, |_| {
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

/// Switches to another branch and to the board that was left there.
pub fn switch(
    context: &Context,
    workspace: &Workspace<'_>,
    branch: &str,
    agree: &ConfirmArgs,
) -> CommandResult {
    let session = workspace.thinking_session(None, context.now())?;
    let mut thinker = Thinker::new(workspace, &session);
    let prepared = thinker.prepare_switch(branch)?;
    let Some(prepared) = rewind::agree(context, workspace, prepared, agree)? else { return DONE };
    let mut report = thinker.switch(branch, prepared)?;
    if !context.json
        && let Some(joined) = report.board.take()
    {
        board::tell(context, &joined, false)?;
    }
    rewind::finish(context, workspace, report, "undo", None)
}

/// Rewinds the board to a point, after the files were rewound there.
pub fn go_back(
    context: &Context,
    workspace: &Workspace<'_>,
    target: &StepRow,
    with: Option<&RewindReport>,
    dry_run: bool,
) -> Result<(), CommandFailure> {
    let session = match workspace.store().session(target.step.session)? {
        Some(session) if session.info.slots.reasoning.is_some() => session,
        _ => workspace.thinking_session(None, context.now())?,
    };
    let moment = BoardMoment::Step(target.step.number);
    let mut thinker = Thinker::new(workspace, &session);
    let joined = match with {
        Some(report) => thinker.restore_with(&moment, report.operation.id)?,
        None => thinker.restore(&moment, dry_run)?,
    };
    if !context.json {
        board::tell(context, &joined, dry_run)?;
    }
    Ok(())
}
