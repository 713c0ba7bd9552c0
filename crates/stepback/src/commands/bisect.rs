//! The command `stepback bisect`: searches for the first bad checkpoint by running a command at each probe.

use serde_json::{Value, json};
use stepback_engine::materialize::make_apart;
use stepback_engine::workspace::describe;
use stepback_engine::{EngineError, Workspace, diff as engine_diff};
use stepback_history::bisect::{self, BisectEvent, BisectResult, Probe, ProbeVerdict};
use stepback_model::record::StepRow;

use super::{CommandResult, DONE, diff, documents, status, titles};
use crate::args::find::Bisect;
use crate::context::Context;
use crate::output::{self, Paint};

/// The most changed lines, or paths, that are shown at once.
const FEW: usize = 20;

/// Runs `stepback bisect`.
pub fn bisect(context: &Context, arguments: &Bisect) -> CommandResult {
    let workspace = context.workspace()?;
    let bad = context.resolve(&workspace, arguments.bad.as_deref().unwrap_or("@"))?;
    let good = arguments.good.as_ref().map(|good| context.resolve(&workspace, good)).transpose()?;
    let line = bisect::candidates(&workspace, good.as_ref(), &bad)?;
    let _lock = workspace.lock_shared()?;
    let temp = stepback_rerun::scratch::private_directory("stepback-bisect-")?;
    let dir = make_apart(temp.path())?;
    let jobs = arguments.jobs.clamp(1, 64);
    let mut probes: Vec<(usize, Probe)> = Vec::new();
    let found = bisect::search(&workspace, &line, &arguments.run, &dir, jobs, &mut |event| match event {
        BisectEvent::Probed(moment, probe) => {
            report(context, &line[moment], &probe);
            probes.push((moment, probe));
        }
        BisectEvent::Undecided(left) => {
            let left = output::count(left as u64, "step");
            output::say_for_people(context.json, &format!("  {left} left"));
        }
    })?;
    conclude(context, &workspace, &line, &found, &probes)
}

fn word(verdict: ProbeVerdict) -> &'static str {
    match verdict {
        ProbeVerdict::Good => "good",
        ProbeVerdict::Bad => "bad",
        ProbeVerdict::Skip => "cannot tell",
    }
}

fn report(context: &Context, stored: &StepRow, probe: &Probe) {
    let paint = Paint::stderr();
    let verdict = match probe.verdict {
        ProbeVerdict::Good => paint.good("good"),
        ProbeVerdict::Bad => paint.bad("bad "),
        ProbeVerdict::Skip => paint.note("skip"),
    };
    if !context.json {
        output::say(format!(
            "{:>6}  {verdict}  {}",
            format!("#{}", stored.step.number),
            paint.dim(format!(
                "{} (setup {}, run {})",
                titles::title(stored),
                output::duration(probe.set_up),
                output::duration(probe.ran)
            ))
        ));
    }
}

fn conclude(
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
                "verdict": word(probe.verdict),
                "code": probe.code,
                "set_up_ms": probe.set_up.as_secs_f64() * 1000.0,
                "ran_s": probe.ran.as_secs_f64(),
            })
        })
        .collect();
    let first = match found {
        BisectResult::First(moment) => *moment,
        BisectResult::Among(moments) => {
            let steps: Vec<&StepRow> = moments.iter().map(|moment| &line[*moment]).collect();
            match context.json {
                true => output::document(&json!({
                    "id": null,
                    "among": steps.iter().map(|stored| documents::step(stored)).collect::<Vec<_>>(),
                    "items": items,
                })),
                false => {
                    output::line("It is one of these steps; those in between were skipped:");
                    for stored in steps {
                        output::line(format!("  {}  {}", describe(stored), titles::title(stored)));
                    }
                }
            }
            return DONE;
        }
    };
    let (before, after) = (&line[first - 1], &line[first]);
    let (from, to) = (workspace.state_of(before)?, workspace.state_of(after)?);
    let changes = engine_diff::visible(workspace.store(), &from, &to).map_err(EngineError::from)?;
    let detail = workspace.detail_of(&after.step)?;
    if context.json {
        output::document(&json!({
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
    output::line(format!(
        "{} is the first bad step: {}",
        paint.strong(describe(after)),
        titles::title(after)
    ));
    if let Some(author) = status::behind_step(workspace, detail.as_ref()) {
        output::line(paint.dim(format!("  {author}")));
    }
    let (good, bad) = (before.step.number, after.step.number);
    let rewind = format!("\"stepback rewind '#{good}'\" goes back before it.");
    let paint_hint = Paint::stderr();
    if let Some(lines) = diff::short(workspace, &changes, FEW)? {
        output::raw(&lines);
        output::say(paint_hint.dim(rewind));
        return DONE;
    }
    for change in changes.iter().take(FEW) {
        output::line(format!("  {:<12} {}", paint.change(change), titles::change_path(change)));
    }
    output::say(paint_hint.dim(format!("\"stepback diff '#{good}' '#{bad}'\" shows the lines, {rewind}")));
    DONE
}
