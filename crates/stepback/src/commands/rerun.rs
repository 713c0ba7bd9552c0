//! The command `stepback rerun`: runs a recorded session again from a point and compares the two.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use stepback_agents::policy;
use stepback_engine::branch::quote_branch_name;
use stepback_engine::materialize::apart;
use stepback_engine::reruns::RerunStatus;
use stepback_engine::{Engine, EngineError, Workspace};
use stepback_history::compare::{self, ComparedRun, Comparison};
use stepback_model::escape::safe;
use stepback_model::record::StepRow;
use stepback_model::record::{Session, StepKind};
use stepback_rerun::replay_responder::Divergence;
use stepback_rerun::scratch::ScratchDirectory;
use stepback_rerun::{RerunBranch, RerunError, RerunHost, RerunOptions, RerunResult};

use super::agents::current_exe_path;
use super::compare::ShownSteps;
use super::proxy::{on_difference, timing};
use super::{CommandResult, sessions};
use crate::args::proxy::{RerunArgs, ToolMode};
use crate::context::{self, Context};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Runs `stepback rerun`.
pub fn rerun(context: &Context, arguments: &RerunArgs) -> CommandResult {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, interrupted.clone())?;
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    let engine = context.engine();
    let workspace = context.open_workspace()?;
    let from = arguments.from.as_ref().map(|point| context.resolve(&workspace, point)).transpose()?;
    let session = resolve_session(&workspace, arguments, from.as_ref())?;
    let options = RerunOptions {
        from,
        set: arguments.set.clone(),
        until: arguments.until.as_deref().map(parse_kind).transpose()?,
        max_steps: arguments.max_steps,
        timeout: arguments.timeout,
        tools: match arguments.tools {
            ToolMode::Real => policy::ToolHandling::Real,
            ToolMode::Recorded => policy::ToolHandling::Recorded,
            ToolMode::Deny => policy::ToolHandling::Deny,
        },
        on_difference: on_difference(&arguments.recorded),
        timing: timing(&arguments.recorded),
        branch: RerunBranch::new(arguments.branch.clone()),
    };
    let name = sessions::display_name(&session);
    let begun = Instant::now();
    let mut announce = |rerun: &stepback_engine::reruns::Rerun| {
        output::print_unless_json(
            context.json,
            &format!("Rerunning {name} as branch {} (Ctrl-C stops it) …", rerun.branch),
        );
    };
    let done = run_once(context, &workspace, session, &options, &interrupted, arguments.keep, &mut announce)?;
    let compared = compare_with_original(engine, &workspace, &done)?;
    print_result(context, &done, begun.elapsed().as_secs_f64(), compared.as_ref(), arguments.compare);
    Ok(match done.rerun.status {
        RerunStatus::Completed | RerunStatus::Diverged => ExitCode::SUCCESS,
        _ => ExitCode::from(FailureKind::Partial as u8),
    })
}

/// Runs a session again once, in a scratch directory that is removed unless it is kept.
pub fn run_once(
    context: &Context,
    workspace: &Workspace,
    session: Session,
    options: &RerunOptions,
    interrupted: &AtomicBool,
    is_kept: bool,
    announce: &mut dyn FnMut(&stepback_engine::reruns::Rerun),
) -> Result<RerunResult, CommandFailure> {
    let scratch = ScratchDirectory::create(workspace.store().local_dir())?;
    let environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let (program, home) = (current_exe_path()?, context::home_dir().unwrap_or_default());
    let store = context.store_location().argument();
    let (prices, certificates) = (context.load_prices()?, context::path_variable("NODE_EXTRA_CA_CERTS"));
    let around = RerunHost {
        dir: scratch.path(),
        program: &program,
        store: Path::new(&store),
        home: &home,
        environment: &environment,
        prices: &prices,
        certificates: certificates.as_deref(),
        interrupted,
    };
    let done = stepback_rerun::rerun(workspace, session, options, &around, announce);
    // Done before anything is printed, because a closed output ends the program there.
    if is_kept {
        let kept = scratch.keep();
        output::print_unless_json(context.json, &format!("Its directory is {}.", apart(&kept).display()));
    } else {
        drop(scratch);
    }
    done.map_err(rerun_failure)
}

/// Returns the session to rerun: the named one, else the one that the point is a step of, else the last.
fn resolve_session(
    workspace: &Workspace,
    arguments: &RerunArgs,
    from: Option<&StepRow>,
) -> Result<Session, CommandFailure> {
    let step = from.map(|from| &from.step);
    let of_step = workspace.agent_sessions()?.into_iter().find(|session| {
        // Checkpoints that the user made belong to no agent; any session can start at them.
        step.is_some_and(|step| step.session == session.id)
    });
    match (arguments.session.as_deref(), of_step) {
        (None, Some(session)) => Ok(session),
        (named, of_step) => {
            let session = sessions::pick(workspace, named)?;
            match of_step.filter(|other| other.id != session.id) {
                Some(other) => Err(CommandFailure::new(
                    FailureKind::Usage,
                    format!("the point belongs to another session, {}", sessions::display_name(&other)),
                )
                .with_hint("omit the session, or use one of its points")),
                None => Ok(session),
            }
        }
    }
}

/// Compares the original from the point on with the rerun.
fn compare_with_original(
    engine: &Engine,
    workspace: &Workspace,
    done: &RerunResult,
) -> Result<Option<Comparison>, CommandFailure> {
    let Some(session) = &done.run.session else { return Ok(None) };
    let scratch = engine.open_session_workspace(session)?;
    let original = workspace.store().session(done.rerun.of).map_err(EngineError::from)?;
    let Some(original) = original else { return Ok(None) };
    let mut a = ComparedRun::from_session(workspace, &original)?;
    let mut b = ComparedRun::from_session(&scratch, session)?;
    // Each side may name the directory of the other: recorded answers name the original directory.
    let both = [a.directories.clone(), b.directories.clone()].concat();
    (a.directories, b.directories) = (both.clone(), both);
    b.name = format!("{} ({})", done.rerun.branch, b.name);
    Ok(Some(compare::compare(workspace.store(), &a, &b)?))
}

fn parse_kind(name: &str) -> Result<StepKind, CommandFailure> {
    StepKind::parse(name).ok_or_else(|| {
        let all: Vec<&str> = StepKind::ALL.iter().map(|kind| kind.as_str()).collect();
        CommandFailure::new(FailureKind::Usage, format!("unknown kind of step \"{name}\""))
            .with_hint(format!("known kinds are {}", all.join(", ")))
    })
}

/// Turns the reason why a rerun is not possible into a failure with hints.
pub fn rerun_failure(error: RerunError) -> CommandFailure {
    let (kind, hint) = error.kind_and_hint();
    if let RerunError::Engine(error) = error {
        return error.into();
    }
    let failure = CommandFailure::new(kind, error.to_string());
    match hint {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

fn print_result(
    context: &Context,
    done: &RerunResult,
    seconds: f64,
    compared: Option<&Comparison>,
    full_comparison: bool,
) {
    let RerunResult { rerun, run: ran, tip, from } = done;
    if context.json {
        output::print_document(&json!({
            "id": rerun.branch,
            "branch": rerun.branch,
            "status": rerun.status,
            "reason": rerun.reason,
            "of": rerun.of,
            "from": from.step.id,
            "session": rerun.session,
            "tip": tip.step.id,
            "changes": rerun.changes,
            "ended": ran.ended,
            "fence": ran.isolation,
            "model_calls": ran.counts,
            "seconds": seconds,
            "output": (rerun.status == RerunStatus::Failed).then_some(&ran.output),
            "summary": compared.map(|found| &found.summary),
            "comparison": compared.filter(|_| full_comparison).map(super::compare::comparison_document),
        }));
        return;
    }
    let paint = Paint::stdout();
    let status = match rerun.status {
        RerunStatus::Completed => paint.good("completed"),
        RerunStatus::Diverged => paint.note("diverged"),
        _ => paint.bad("failed"),
    };
    let reason = rerun.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    output::print_line(format!("{} {status}{reason}", paint.strong(&rerun.branch)));
    output::print_line(format!(
        "  {} answered from the recording, {} by a model, {} refused; {seconds:.1} s",
        ran.counts.recorded, ran.counts.live, ran.counts.refused
    ));
    output::print_line(format!("  sandbox: {}", ran.isolation.describe()));
    if let Some(parted) = &ran.counts.parted {
        print_divergence(parted);
    } else if rerun.status == RerunStatus::Failed && !ran.output.is_empty() {
        output::print_line("  the agent's last message:");
        for line in ran.output.lines() {
            output::print_line(format!("    {}", paint.dim(safe(line))));
        }
    }
    if let Some(found) = compared {
        output::print_line("");
        match full_comparison {
            true => super::compare::print_comparison(found, ShownSteps::Different),
            false => {
                found.summary.iter().for_each(|sentence| output::print_line(crate::diff_view::safe(sentence)))
            }
        }
    }
    output::print_status(Paint::stderr().dim(format!(
        "\"stepback diff {}\" shows its files, \"stepback branch switch {}\" switches to them, \"stepback undo\" deletes \
         the branch.",
        quote_branch_name(&format!("branch:{}", rerun.branch)),
        quote_branch_name(&rerun.branch)
    )));
}

/// Prints where a run diverged from the recording.
pub fn print_divergence(parted: &Divergence) {
    let paint = Paint::stdout();
    output::print_line(format!("  model call {} has no recorded match:", parted.call));
    for difference in &parted.differences {
        output::print_line(format!("    {}", paint.name(safe(&difference.path))));
        let side = |sign: &str, text: &Option<String>| {
            for line in text.iter().flat_map(|text| text.lines()).take(6) {
                output::print_line(format!("      {sign} {}", safe(line)));
            }
        };
        side("-", &difference.recorded);
        side("+", &difference.present);
    }
}
