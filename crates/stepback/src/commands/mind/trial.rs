//! Boards and branches: experiments, switching with the board, going back with it.

use stepback_engine::Workspace;
use stepback_engine::reason::{Moment, Thinker};
use stepback_engine::rewind::Report;
use stepback_mind::Mutation;
use stepback_mind::item::ExperimentStatus;
use stepback_store::port::StoredCheckpoint;

use super::{board, list, look, name, think, word};
use crate::args::Agree;
use crate::args::mind::Experiment;
use crate::commands::{Answer, DONE, rewind};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, Paint};

/// `experiment …`
pub fn experiment(context: &Context, command: &Experiment) -> Answer {
    match command {
        Experiment::Start { branch, hypothesis, success, board } => {
            {
                // Before anything is written: a branch that cannot be made must not leave an experiment without one.
                let engine = context.engine();
                let workspace = context.workspace(&engine)?;
                workspace.check_new_branch(branch)?;
                workspace.head()?;
            }
            think(context, board, |_| {
                Ok(Mutation::StartExperiment {
                    branch: branch.clone(),
                    hypothesis: hypothesis.as_deref().map(name).transpose()?,
                    success: success.clone(),
                })
            })?;
            let engine = context.engine();
            let workspace = context.workspace(&engine)?;
            workspace.create_branch(branch, &workspace.head()?)?;
            let session = workspace.thinking_session(board.session.as_deref(), context.now())?;
            let mut thinker = Thinker::new(&workspace, &session);
            let left = workspace.present_branch()?;
            thinker.leave(&left)?;
            workspace.switch(branch, workspace.prepare_switch(branch)?)?;
            if !context.json {
                output::line(format!("Now on branch {branch}."));
                output::say(Paint::stderr().dim(format!(
                    "\"stepback branch switch {left} --reasoning\" goes back, \"stepback mind merge {branch}\" takes over from there what was found out."
                )));
            }
            DONE
        }
        Experiment::End { experiment, how, result, board } => think(context, board, |_| {
            Ok(Mutation::EndExperiment {
                experiment: name(experiment)?,
                status: word("outcome", how, ExperimentStatus::ALL, ExperimentStatus::as_str)?,
                result: result.clone(),
            })
        }),
        Experiment::List { board } => {
            look(context, board, None, |mind| list(context, mind, "experiments", "Experiments", |_| true))
        }
    }
}

/// Stands on another branch, with the board that was left there.
pub fn switch(context: &Context, workspace: &Workspace<'_>, branch: &str, agree: &Agree) -> Answer {
    let session = workspace.thinking_session(None, context.now())?;
    let mut thinker = Thinker::new(workspace, &session);
    // Before the workspace is locked: whoever records a step waits for the workspace, and not the other way round.
    thinker.leave(&workspace.present_branch()?)?;
    let prepared = workspace.prepare_switch(branch)?;
    let Some(prepared) = rewind::agree(context, prepared, agree)? else { return DONE };
    // Where the board of the branch is, is known as long as it is not the present one.
    let there = Moment::Branch(branch.to_owned());
    let report = workspace.switch(branch, prepared)?;
    let joined = thinker.restore_with(&there, report.operation.id)?;
    if !context.json {
        board::tell(context, &joined, false)?;
    }
    rewind::finish(context, workspace, report, "undo", None)
}

/// Takes the board back to a point, after files went there.
pub fn go_back(
    context: &Context,
    workspace: &Workspace<'_>,
    target: &StoredCheckpoint,
    with: Option<&Report>,
    dry_run: bool,
) -> Result<(), Failure> {
    let session = match workspace.store().session(target.checkpoint.step.session)? {
        Some(session) if session.info.slots.reasoning.is_some() => session,
        _ => workspace.thinking_session(None, context.now())?,
    };
    let moment = Moment::Step(target.checkpoint.step.number);
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
