//! The command `stepback board recover`: the page for an agent that lost its context, and the steps that bring a session back.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::json;
use stepback_board::RecoveryStep;
use stepback_engine::Workspace;
use stepback_engine::board::BoardMoment;
use stepback_engine::moves::MoveRequest;
use stepback_model::escape::safe;
use stepback_model::record::StepRow;

use super::{resolve_board_moment, with_board};
use crate::args::board::RecoverArgs;
use crate::commands::confirmation::ask_user;
use crate::commands::{CommandResult, DONE, moves, rewind};
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output;

/// Runs `stepback board recover`.
pub fn recover(context: &Context, arguments: &RecoverArgs) -> CommandResult {
    with_board(context, &arguments.board, |workspace, session| {
        let moment = resolve_board_moment(context, workspace, arguments.at.as_deref())?;
        let checkpoint = find_checkpoint(context, workspace, arguments.at.as_deref())?;
        let needs_steps = context.json || arguments.steps || !arguments.apply.is_empty();
        let steps = match checkpoint.filter(|_| needs_steps) {
            Some(checkpoint) => {
                let until = (moment != BoardMoment::Now).then_some(checkpoint.step.number);
                stepback_board::plan_recovery_steps(workspace, session, &checkpoint, until)?
            }
            None => Vec::new(),
        };
        if !arguments.apply.is_empty() {
            return apply_steps(context, workspace, &steps, arguments);
        }
        if arguments.steps && !context.json {
            for (at, step) in steps.iter().enumerate() {
                output::print_line(format!("{:>3}  {}", at + 1, describe_step(step)));
            }
            if steps.is_empty() {
                output::print_line("There is no checkpoint to recover.");
            }
            output::print_status(
                "\"stepback board recover --apply 1\" applies the first; a plan is shown first.",
            );
            return DONE;
        }
        let budget = arguments.budget;
        let recovery =
            stepback_board::build_recovery_page(workspace, session, &moment, budget, context.now())?;
        match context.json {
            true => {
                let mut document = json!(recovery);
                document["steps"] = json!(steps);
                output::print_document(&document);
            }
            false => output::write_raw(recovery.page.as_bytes()),
        }
        DONE
    })
}

/// Returns the checkpoint that is recovered: the last one, or that of a point. `None` if there is none yet.
fn find_checkpoint(
    context: &Context,
    workspace: &Workspace,
    at: Option<&str>,
) -> Result<Option<StepRow>, CommandFailure> {
    match at {
        Some(point) => Ok(Some(workspace.nearest_checkpoint(&context.resolve(workspace, point)?)?)),
        None if workspace.head_id()?.is_none() => Ok(None),
        None => Ok(Some(workspace.head()?)),
    }
}

/// Describes a step in one line.
fn describe_step(step: &RecoveryStep) -> String {
    match step {
        RecoveryStep::RestoreCode { checkpoint, commit, branch, differing, .. } => {
            let commit =
                commit.as_ref().map(|commit| format!(" on commit {}", &commit[..commit.len().min(10)]));
            let branch = branch.as_ref().map(|branch| format!(" ({})", safe(branch)));
            let (commit, branch) = (commit.unwrap_or_default(), branch.unwrap_or_default());
            let paths = output::count(*differing as u64, "path");
            format!("restore code: checkpoint #{checkpoint}{commit}{branch}; {paths} differ now")
        }
        RecoveryStep::RestoreEnvironment { names } => {
            format!("restore environment: {}", safe(&names.join(", ")))
        }
        RecoveryStep::ReplayCommand { command, directory, step } => {
            let directory = directory.as_ref().map(|directory| format!(" in {}", safe(directory)));
            format!("replay command of #{step}: {}{}", safe(command), directory.unwrap_or_default())
        }
        RecoveryStep::ManualInstruction { instruction } => format!("by hand: {}", safe(instruction)),
    }
}

fn apply_steps(
    context: &Context,
    workspace: &Workspace,
    steps: &[RecoveryStep],
    arguments: &RecoverArgs,
) -> CommandResult {
    let usage = |what: String| CommandFailure::new(FailureKind::Usage, what);
    if context.json && arguments.apply.len() > 1 {
        return Err(usage("with --json, apply one step at a time".into()));
    }
    let chosen = arguments.apply.iter().map(|number| {
        let step = number.checked_sub(1).and_then(|at| steps.get(at));
        step.ok_or_else(|| {
            usage(format!("there is no step {number}: there are {}", steps.len()))
                .with_hint("\"stepback board recover --steps\" lists them")
        })
    });
    // All of them are known before the first is applied.
    let chosen: Vec<&RecoveryStep> = chosen.collect::<Result<_, _>>()?;
    for step in chosen {
        output::print_unless_json(context.json, &output::capitalize(&describe_step(step)));
        let code = apply_step(context, workspace, step, arguments)?;
        if code != ExitCode::SUCCESS {
            return Ok(code);
        }
    }
    DONE
}

fn apply_step(
    context: &Context,
    workspace: &Workspace,
    step: &RecoveryStep,
    arguments: &RecoverArgs,
) -> CommandResult {
    match step {
        RecoveryStep::RestoreCode { checkpoint, .. } => {
            let target = context.resolve(workspace, &format!("#{checkpoint}"))?;
            let request = MoveRequest { force: arguments.agree.force, ..MoveRequest::restore(&target) };
            let planned = workspace.plan_move(&request)?;
            match planned.files.as_ref().filter(|files| files.plan.is_empty()) {
                Some(prepared) => {
                    rewind::report_nothing_to_do(context, prepared, None, arguments.agree.dry_run)
                }
                None => moves::confirm_and_apply(context, workspace, planned, &arguments.agree),
            }
        }
        RecoveryStep::RestoreEnvironment { names } => {
            let missing: Vec<&String> =
                names.iter().filter(|name| std::env::var_os(name).is_none()).collect();
            match context.json {
                true => output::print_document(&json!({ "kind": "restore-environment", "missing": missing })),
                false if missing.is_empty() => output::print_line("All of these variables are set."),
                false => {
                    let names: Vec<String> = missing.into_iter().map(|name| safe(name)).collect();
                    output::print_line(format!(
                        "Set these variables; stepback stores no values: {}",
                        names.join(", ")
                    ));
                }
            }
            DONE
        }
        RecoveryStep::ReplayCommand { command, directory, .. } => {
            replay_command(context, workspace, command, directory.as_deref(), arguments)
        }
        RecoveryStep::ManualInstruction { instruction } => {
            if context.json {
                let document = json!({ "kind": "manual-instruction", "instruction": instruction });
                output::print_document(&document);
            }
            DONE
        }
    }
}

/// Runs a recorded command again, after a question.
fn replay_command(
    context: &Context,
    workspace: &Workspace,
    command: &str,
    directory: Option<&str>,
    arguments: &RecoverArgs,
) -> CommandResult {
    if arguments.agree.dry_run {
        if context.json {
            let document = json!({ "kind": "replay-command", "command": command, "applied": false });
            output::print_document(&document);
        }
        return DONE;
    }
    if !arguments.agree.yes {
        let refusal = CommandFailure::new(FailureKind::Refused, "confirmation required: a command would run")
            .with_hint("add --yes to confirm, or --dry-run to only show it");
        if !ask_user(context.json, "Run it?", refusal)? {
            return DONE;
        }
    }
    let known = directory.map(PathBuf::from).filter(|directory| directory.is_dir());
    let directory: &Path = known.as_deref().unwrap_or(&workspace.root);
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).current_dir(directory);
    if context.json {
        // Standard output is the document.
        shell.stdout(std::process::Stdio::null());
    }
    let status = shell.status()?;
    if context.json {
        output::print_document(&json!({ "kind": "replay-command", "applied": true, "exit": status.code() }));
    }
    match status.success() {
        true => DONE,
        false => {
            output::print_status(format!("The command failed ({status})."));
            Ok(ExitCode::from(FailureKind::Partial as u8))
        }
    }
}
