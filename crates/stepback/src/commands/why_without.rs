//! `stepback why TARGET --without SOURCE`: runs the session again without a source, and counts how often the change still came.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use stepback_agents::policy::ToolHandling;
use stepback_api::why::{WhyTrialDocument, WhyTrialRunDocument};
use stepback_engine::Workspace;
use stepback_engine::reruns::RerunStatus;
use stepback_model::escape::safe;
use stepback_provenance::WhyTarget;
use stepback_provenance::why::omit::{CAME, Omission, came, omit};
use stepback_proxy::Timing;
use stepback_rerun::replay_responder::OnDifference;
use stepback_rerun::{RerunBranch, RerunOptions, RerunResult};

use super::CommandResult;
use super::rerun::run_once;
use crate::args::why::WhyArgs;
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Runs the session again without the source numbered `source`.
pub fn without(
    context: &Context,
    workspace: &Workspace,
    target: &WhyTarget,
    arguments: &WhyArgs,
    source: usize,
) -> CommandResult {
    let omission = omit(workspace, target, source)?;
    let runs = arguments.runs.max(1);
    let expected = describe_expected(&omission, runs);
    if !arguments.live {
        return Err(CommandFailure::new(
            FailureKind::Refused,
            format!("what the model would do without {} is not recorded: {expected}", safe(&omission.source)),
        )
        .with_hint("add --live to allow these calls; they are billed as usual"));
    }
    output::print_unless_json(
        context.json,
        &format!("Running {runs} times without {}: {expected}.", safe(&omission.source)),
    );
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, interrupted.clone())?;
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    let mut done = Vec::new();
    for _ in 0..runs {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        let options = RerunOptions {
            from: Some(omission.from.clone()),
            set: vec![omission.set.clone()],
            until: None,
            max_steps: None,
            timeout: arguments.timeout,
            tools: ToolHandling::Real,
            on_difference: OnDifference::Live,
            timing: Timing::Instant,
            branch: RerunBranch::Unnamed,
        };
        let ran = run_once(
            context,
            workspace,
            omission.session.clone(),
            &options,
            &interrupted,
            false,
            &mut |_| {},
        )?;
        done.push(describe_run(context, workspace, &omission, &ran)?);
    }
    let document = summarize(arguments, &omission, runs, done);
    if context.json {
        output::print_document(&json!(document));
    } else {
        print_trial(&document);
    }
    Ok(match document.unknown {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(FailureKind::Partial as u8),
    })
}

fn describe_expected(omission: &Omission, runs: u64) -> String {
    let calls = omission.expected_calls.saturating_mul(runs);
    let cost = match omission.expected_cost {
        Some(cost) => format!("${:.4} at what they cost in the recording", cost as f64 * runs as f64 / 1e6),
        None => "their cost is not known".to_owned(),
    };
    format!("about {calls} model calls at most, {cost}")
}

/// Whether the change came in a run; not known if the run did not complete.
fn describe_run(
    context: &Context,
    workspace: &Workspace,
    omission: &Omission,
    ran: &RerunResult,
) -> Result<WhyTrialRunDocument, CommandFailure> {
    let came = match (ran.rerun.status, &ran.run.session) {
        (RerunStatus::Completed, Some(session)) => {
            let scratch = context.engine().open_session_workspace(session)?;
            Some(came(workspace, &ran.tip, Some((&scratch, session)), &omission.check)?)
        }
        (RerunStatus::Completed, None) => Some(came(workspace, &ran.tip, None, &omission.check)?),
        _ => None,
    };
    Ok(WhyTrialRunDocument {
        branch: ran.rerun.branch.clone(),
        status: ran.rerun.status.as_str().to_owned(),
        reason: ran.rerun.reason.clone(),
        came,
        live_calls: ran.run.counts.live,
    })
}

fn summarize(
    arguments: &WhyArgs,
    omission: &Omission,
    asked: u64,
    runs: Vec<WhyTrialRunDocument>,
) -> WhyTrialDocument {
    let count = |wanted: Option<bool>| runs.iter().filter(|run| run.came == wanted).count() as u64;
    let (came, not) = (count(Some(true)), count(Some(false)));
    WhyTrialDocument {
        target: arguments.target.clone(),
        source: omission.source.clone(),
        omitted: omission.removed.clone(),
        came,
        of: came + not,
        unknown: asked.saturating_sub(came + not),
        definition: CAME.to_owned(),
        expected_model_calls: omission.expected_calls,
        expected_cost_usd: omission.expected_cost.map(|cost| cost as f64 / 1e6),
        runs,
    }
}

fn print_trial(document: &WhyTrialDocument) {
    let paint = Paint::stdout();
    output::print_line(format!("Left out of {}:", paint.name(safe(&document.source))));
    for line in &document.omitted {
        output::print_line(format!("  - {}", safe(line)));
    }
    for run in &document.runs {
        let came = match run.came {
            Some(true) => paint.bad("the change came"),
            Some(false) => paint.good("the change did not come"),
            None => paint.note("not known"),
        };
        let reason = run.reason.as_ref().map(|reason| format!(": {}", safe(reason))).unwrap_or_default();
        output::print_line(format!("{} {}{reason}; {came}", paint.strong(safe(&run.branch)), run.status));
    }
    output::print_line(format!(
        "Without it, the change came in {} of {} runs{}.",
        document.came,
        document.of,
        if document.unknown > 0 {
            format!("; of {} it is not known", document.unknown)
        } else {
            String::new()
        }
    ));
    output::print_line(paint.dim(&document.definition));
}
