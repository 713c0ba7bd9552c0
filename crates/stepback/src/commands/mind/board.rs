//! The commands `stepback mind` and `stepback recover`.

use serde_json::json;
use stepback_engine::Workspace;
use stepback_engine::reason::{BoardMoment, Joined, Thinker};
use stepback_model::record::Session;

use super::{moment, with_board};
use crate::args::mind::{MindArgs, MindCommand, Recover};
use crate::commands::{CommandResult, DONE};
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Runs `stepback mind`.
pub fn mind(context: &Context, arguments: &MindArgs) -> CommandResult {
    match &arguments.command {
        None => with_board(context, &arguments.board, |workspace, session| {
            show(context, workspace, session, arguments)
        }),
        Some(MindCommand::Diff { from, to, board }) => with_board(context, board, |workspace, session| {
            let (from, to) =
                (moment(context, workspace, Some(from))?, moment(context, workspace, to.as_deref())?);
            let (before, after) = (workspace.mind_at(session, &from)?, workspace.mind_at(session, &to)?);
            let diff = before.mind.diff(&after.mind);
            if context.json {
                let step = |seen: &stepback_engine::reason::BoardAtPoint| {
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
        }),
        Some(MindCommand::Restore { point, dry_run, board }) => {
            with_board(context, board, |workspace, session| {
                let moment = moment(context, workspace, Some(point))?;
                let joined = Thinker::new(workspace, session).restore(&moment, *dry_run)?;
                tell(context, &joined, *dry_run)
            })
        }
        Some(MindCommand::Undo { step, dry_run, board }) => {
            with_board(context, board, |workspace, session| {
                let number = step.as_ref().map(|text| {
                    text.trim_start_matches('#').parse::<u64>().map_err(|_| {
                        CommandFailure::new(FailureKind::Usage, format!("\"{text}\" is no number of a step"))
                            .hint("\"stepback log --kind reasoning\" lists what was thought, with numbers")
                    })
                });
                let joined = Thinker::new(workspace, session).take_back(number.transpose()?, *dry_run)?;
                tell(context, &joined, *dry_run)
            })
        }
        Some(MindCommand::Merge { from, base, theirs, dry_run, board }) => {
            with_board(context, board, |workspace, session| {
                let base = base.as_deref().map(|base| moment(context, workspace, Some(base))).transpose()?;
                let from = moment(context, workspace, Some(from))?;
                if from == BoardMoment::Now {
                    return Err(CommandFailure::new(FailureKind::Usage, "that is the present board itself").hint(
                        "switch to the branch you go on with first: stepback branch switch main --reasoning",
                    ));
                }
                let joined =
                    Thinker::new(workspace, session).merge(&from, base.as_ref(), *theirs, *dry_run)?;
                tell(context, &joined, *dry_run)
            })
        }
        Some(MindCommand::Commands { limit, board }) => with_board(context, board, |workspace, session| {
            let commands = workspace.commands_of(session, None, *limit)?;
            if context.json {
                output::document(&json!({ "items": commands }));
                return DONE;
            }
            for ran in &commands {
                let exit = ran.exit.map_or(String::new(), |code| format!("  exit {code}"));
                let failed = if ran.failed && ran.exit.is_none() { "  failed" } else { "" };
                let command = ran.command.lines().next().unwrap_or_default();
                output::line(format!(
                    "#{}  {}{exit}{failed}  {command}",
                    ran.step,
                    ran.at.ago(context.now())
                ));
            }
            DONE
        }),
        Some(MindCommand::Metrics { board }) => with_board(context, board, |workspace, session| {
            let metrics = workspace.mind_at(session, &BoardMoment::Now)?.mind.metrics();
            if context.json {
                output::document(&json!(metrics));
                return DONE;
            }
            let m = &metrics;
            output::line(format!("{} hypotheses, {} concluded", m.hypotheses, m.concluded));
            output::line(format!("{} pieces of evidence", m.evidence));
            output::line(format!("{} beliefs, {} contradictions open", m.beliefs, m.contradictions));
            output::line(format!("{} gaps, {} filled", m.gaps, m.gaps_filled));
            output::line(format!("{} checks run, {} passed", m.verifications_run, m.verifications_passed));
            output::line(format!("{} experiments ended, {} notes", m.experiments_ended, m.notes));
            DONE
        }),
    }
}

fn show(
    context: &Context,
    workspace: &Workspace<'_>,
    session: &Session,
    arguments: &MindArgs,
) -> CommandResult {
    let moment = moment(context, workspace, arguments.point.as_deref())?;
    let seen = workspace.mind_at(session, &moment)?;
    let step = seen.step.as_ref().map(|stored| &stored.step);
    if context.json {
        let mut document = seen.mind.document();
        document["session"] = json!(session.id);
        document["step"] = json!(step.map(|step| step.number));
        document["at"] = json!(step.map(|step| step.at));
        document["metrics"] = json!(seen.mind.metrics());
        document["next"] = json!(seen.mind.next_actions());
        output::document(&document);
        return DONE;
    }
    let paint = Paint::stdout();
    let whose = match session.agent == Session::PERSON {
        true => "your own board".to_owned(),
        false => format!("the board of {} {}", session.agent, session.id.short()),
    };
    match step {
        Some(step) => output::line(paint.dim(format!(
            "As of #{}, {}: {whose}",
            step.number,
            step.at.ago(context.now())
        ))),
        None => {
            output::line(format!("Nothing was thought yet on {whose}."));
            output::say(paint.dim("Begin with \"stepback hypothesis propose\" or \"stepback gap add\"."));
        }
    }
    for section in seen.mind.board(arguments.all) {
        output::line("");
        output::line(paint.strong(section.title));
        section.lines.iter().for_each(|line| output::line(format!("  {line}")));
    }
    DONE
}

/// Prints what joining two boards did, or would do.
pub(super) fn tell(context: &Context, joined: &Joined, dry_run: bool) -> CommandResult {
    if context.json {
        let mut document = json!(joined);
        document["undo"] = json!(joined.step.map(|step| format!("stepback mind undo {step}")));
        output::document(&document);
        return DONE;
    }
    joined.diff.changes.iter().for_each(|change| output::line(&change.sentence));
    for (there, here) in &joined.renamed {
        output::line(format!("{there} there is called {here} here"));
    }
    for conflict in &joined.conflicts {
        let kept = if conflict.taken { "theirs was taken" } else { "it stays as it is here" };
        output::line(format!("Conflict: {}; {kept}", conflict.sentence));
    }
    output::line(Paint::stdout().strong(&joined.diff.summary));
    let hint = match joined.step {
        Some(step) => format!("\"stepback mind undo {step}\" takes that back."),
        None if dry_run => "Nothing was changed (dry run).".to_owned(),
        None => "There was nothing to change.".to_owned(),
    };
    output::say(Paint::stderr().dim(hint));
    DONE
}

/// Runs `stepback recover`.
pub fn recover(context: &Context, arguments: &Recover) -> CommandResult {
    with_board(context, &arguments.board, |workspace, session| {
        let moment = moment(context, workspace, arguments.at.as_deref())?;
        let recovery = workspace.recovery(session, &moment, arguments.budget, context.now())?;
        match context.json {
            true => output::document(&json!(recovery)),
            false => output::raw(recovery.page.as_bytes()),
        }
        DONE
    })
}
