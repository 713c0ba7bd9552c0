//! The command `stepback bisect`: searches for the first bad checkpoint by running a command at each probe.

use serde_json::{Value, json};
use stepback_engine::materialize::make_apart;
use stepback_engine::workspace::describe_checkpoint;
use stepback_engine::{EngineError, Workspace, diff as engine_diff};
use stepback_history::bisect::{self, BisectEvent, BisectResult, Probe, ProbeVerdict};
use stepback_model::record::StepRow;

use super::{CommandResult, DONE, diff, documents, status, titles};
use crate::args::find::BisectArgs;
use crate::context::Context;
use crate::output::{self, Paint};

/// The most changed lines, or paths, that are shown at once.
const MAX_LISTED_ITEMS: usize = 20;

/// Runs `stepback bisect`.
pub fn bisect(context: &Context, arguments: &BisectArgs) -> CommandResult {
    let workspace = context.open_workspace()?;
    let bad = context.resolve(&workspace, arguments.bad.as_deref().unwrap_or("@"))?;
    let good = arguments.good.as_ref().map(|good| context.resolve(&workspace, good)).transpose()?;
    let line = bisect::find_candidates(&workspace, good.as_ref(), &bad)?;
    let _lock = workspace.lock_shared()?;
    let temp = stepback_rerun::scratch::private_directory("stepback-bisect-")?;
    let dir = make_apart(temp.path())?;
    let jobs = arguments.jobs.clamp(1, 64);
    let mut probes: Vec<(usize, Probe)> = Vec::new();
    let found =
        bisect::find_first_bad(&workspace, &line, &arguments.run, &dir, jobs, &mut |event| match event {
            BisectEvent::Probed(moment, probe) => {
                print_probe(context, &line[moment], &probe);
                probes.push((moment, probe));
            }
            BisectEvent::Undecided(left) => {
                let left = output::count(left as u64, "step");
                output::print_unless_json(context.json, &format!("  {left} left"));
            }
        })?;
    print_result(context, &workspace, &line, &found, &probes)
}

fn verdict_name(verdict: ProbeVerdict) -> &'static str {
    match verdict {
        ProbeVerdict::Good => "good",
        ProbeVerdict::Bad => "bad",
        ProbeVerdict::Skip => "cannot tell",
    }
}

fn print_probe(context: &Context, stored: &StepRow, probe: &Probe) {
    let paint = Paint::stderr();
    let verdict = match probe.verdict {
        ProbeVerdict::Good => paint.good("good"),
        ProbeVerdict::Bad => paint.bad("bad "),
        ProbeVerdict::Skip => paint.note("skip"),
    };
    if !context.json {
        output::print_status(format!(
            "{:>6}  {verdict}  {}",
            format!("#{}", stored.step.number),
            paint.dim(format!(
                "{} (setup {}, run {})",
                titles::step_title(stored),
                output::duration(probe.setup_time),
                output::duration(probe.run_time)
            ))
        ));
    }
}

fn print_result(
    context: &Context,
    workspace: &Workspace,
    line: &[StepRow],
    found: &BisectResult,
    probes: &[(usize, Probe)],
) -> CommandResult {
    let items: Vec<Value> = probes
        .iter()
        .rev()
        .map(|(moment, probe)| {
            json!({
                "id": line[*moment].step.id,
                "number": line[*moment].step.number,
                "verdict": verdict_name(probe.verdict),
                "code": probe.code,
                "set_up_ms": probe.setup_time.as_secs_f64() * 1000.0,
                "ran_s": probe.run_time.as_secs_f64(),
            })
        })
        .collect();
    let first = match found {
        BisectResult::First(moment) => *moment,
        BisectResult::AnyOf(moments) => {
            let steps: Vec<&StepRow> = moments.iter().map(|moment| &line[*moment]).collect();
            match context.json {
                true => output::print_document(&json!({
                    "id": null,
                    "among": steps.iter().map(|stored| documents::step(stored)).collect::<Vec<_>>(),
                    "items": items,
                })),
                false => {
                    output::print_line("It is one of these steps; those in between were skipped:");
                    for stored in steps {
                        output::print_line(format!(
                            "  {}  {}",
                            describe_checkpoint(stored),
                            titles::step_title(stored)
                        ));
                    }
                }
            }
            return DONE;
        }
    };
    let (before, after) = (&line[first - 1], &line[first]);
    let (from, to) = (workspace.load_state(before)?, workspace.load_state(after)?);
    let changes =
        engine_diff::compare_visible_files(workspace.store(), &from, &to).map_err(EngineError::from)?;
    let detail = workspace.load_detail(&after.step)?;
    if context.json {
        output::print_document(&json!({
            "id": after.step.id,
            "number": after.step.number,
            "step": documents::step(after),
            "detail": detail,
            "good": before.step.id,
            "changes": changes.iter().map(documents::change).collect::<Vec<_>>(),
            "items": items,
        }));
        return DONE;
    }
    let paint = Paint::stdout();
    output::print_line(format!(
        "{} is the first bad step: {}",
        paint.strong(describe_checkpoint(after)),
        titles::step_title(after)
    ));
    if let Some(author) = status::describe_step_cause(workspace, detail.as_ref()) {
        output::print_line(paint.dim(format!("  {author}")));
    }
    let (good, bad) = (before.step.number, after.step.number);
    let rewind = format!("\"stepback rewind '#{good}'\" goes back before it.");
    let paint_hint = Paint::stderr();
    if let Some(lines) = diff::render_if_short(workspace, &changes, MAX_LISTED_ITEMS)? {
        output::write_raw(&lines);
        output::print_status(paint_hint.dim(rewind));
        return DONE;
    }
    for change in changes.iter().take(MAX_LISTED_ITEMS) {
        output::print_line(format!("  {:<12} {}", paint.change_kind(change), titles::change_path(change)));
    }
    output::print_status(
        paint_hint.dim(format!("\"stepback diff '#{good}' '#{bad}'\" shows the lines, {rewind}")),
    );
    DONE
}
