//! The command `stepback bisect`: searches for the first bad checkpoint by running a command at each probe.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepback_engine::bisect::{BisectResult, BisectSearch, ProbeVerdict, Scratch};
use stepback_engine::materialize::make_apart;
use stepback_engine::workspace::describe;
use stepback_engine::{EngineError, Workspace, diff as engine_diff};
use stepback_model::record::StepRow;

use super::{CommandResult, DONE, diff, status, view};
use crate::args::find::Bisect;
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// The exit code with which a command says that it cannot judge this checkpoint, as in git.
const CANNOT_TELL: i32 = 125;
/// The most changed lines, or paths, that are shown at once.
const FEW: usize = 20;

/// The result of one probe.
struct Probe {
    verdict: ProbeVerdict,
    code: i32,
    set_up: Duration,
    ran: Duration,
}

/// Runs `stepback bisect`.
pub fn bisect(context: &Context, arguments: &Bisect) -> CommandResult {
    let workspace = context.workspace()?;
    let line = candidates(context, &workspace, arguments)?;
    let _lock = workspace.lock_shared()?;
    let temp = tempfile::Builder::new().prefix("stepback-bisect-").tempdir()?;
    let dir = make_apart(temp.path())?;
    let jobs = arguments.jobs.clamp(1, 64);
    let mut scratches: Vec<Scratch<'_>> =
        (0..jobs).map(|number| Scratch::new(&workspace, dir.join(number.to_string()))).collect();
    let mut probes: Vec<(usize, Probe)> = Vec::new();
    let (first, last) = (0, line.len() - 1);
    for (moment, expected) in [(first, ProbeVerdict::Good), (last, ProbeVerdict::Bad)] {
        let probe = probe(&workspace, &mut scratches[0], &line[moment], &arguments.run)?;
        let verdict = probe.verdict;
        report(context, &line[moment], &probe);
        probes.push((moment, probe));
        if verdict != expected {
            return Err(not_as_expected(&line[moment], expected));
        }
    }
    let mut search = BisectSearch::between(first, last);
    loop {
        let next = search.next(jobs);
        if next.is_empty() {
            break;
        }
        let found: Vec<Result<Probe, CommandFailure>> = std::thread::scope(|scope| {
            let running: Vec<_> = next
                .iter()
                .zip(&mut scratches)
                .map(|(moment, scratch)| {
                    let (workspace, stored) = (&workspace, &line[*moment]);
                    scope.spawn(move || probe(workspace, scratch, stored, &arguments.run))
                })
                .collect();
            running
                .into_iter()
                .map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|_| Err(CommandFailure::new(FailureKind::Internal, "a probe failed")))
                })
                .collect()
        });
        for (moment, found) in next.into_iter().zip(found) {
            let probe = found?;
            search.tell(moment, probe.verdict);
            report(context, &line[moment], &probe);
            probes.push((moment, probe));
        }
        if search.left() > 0 {
            output::say_for_people(
                context.json,
                &format!("  {} left", output::count(search.left() as u64, "step")),
            );
        }
    }
    conclude(context, &workspace, &line, &search.found(), &probes)
}

/// Returns the checkpoints between the good and the bad one, oldest first.
fn candidates(
    context: &Context,
    workspace: &Workspace,
    arguments: &Bisect,
) -> Result<Vec<StepRow>, CommandFailure> {
    let bad = context.resolve(workspace, arguments.bad.as_deref().unwrap_or("@"))?;
    let bad = workspace.nearest_checkpoint(&bad)?;
    let mut line = workspace.ancestry(&bad)?;
    line.reverse();
    let first = line.iter().rposition(|stored| stored.purged).map_or(0, |at| at + 1);
    line.drain(..first);
    if let Some(good) = &arguments.good {
        let good = workspace.nearest_checkpoint(&context.resolve(workspace, good)?)?;
        let at = line.iter().position(|stored| stored.step.id == good.step.id);
        let at = at.ok_or_else(|| {
            CommandFailure::new(
                FailureKind::Point,
                format!("{} does not lead to {}", describe(&good), describe(&bad)),
            )
            .hint("\"stepback timeline\" shows how steps are related")
        })?;
        line.drain(..at);
    }
    if line.len() < 2 {
        return Err(CommandFailure::new(
            FailureKind::Nothing,
            "no step lies between the good and the bad point",
        )
        .hint("specify two points: stepback bisect --run CMD --good POINT --bad POINT"));
    }
    Ok(line)
}

fn probe(
    workspace: &Workspace,
    scratch: &mut Scratch<'_>,
    stored: &StepRow,
    command: &str,
) -> Result<Probe, CommandFailure> {
    let begun = Instant::now();
    scratch.become_state(&workspace.state_of(stored)?)?;
    let set_up = begun.elapsed();
    let begun = Instant::now();
    let status = Command::new("sh")
        .args(["-c", command])
        .current_dir(scratch.dir())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    let ran = begun.elapsed();
    // A command that was killed or not found says nothing about the files.
    let code = status.code().ok_or_else(|| {
        CommandFailure::new(FailureKind::System, format!("{command} was killed by a signal"))
    })?;
    if code == 126 || code == 127 {
        return Err(CommandFailure::new(
            FailureKind::System,
            format!("{command} cannot be run (exit code {code})"),
        )
        .hint("try it in the workspace first"));
    }
    let verdict = match code {
        0 => ProbeVerdict::Good,
        CANNOT_TELL => ProbeVerdict::Skip,
        _ => ProbeVerdict::Bad,
    };
    Ok(Probe { verdict, code, set_up, ran })
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
                view::title(stored),
                output::duration(probe.set_up),
                output::duration(probe.ran)
            ))
        ));
    }
}

fn not_as_expected(stored: &StepRow, expected: ProbeVerdict) -> CommandFailure {
    let (what, hint) = match expected {
        ProbeVerdict::Good => ("is not good", "choose an earlier one with --good"),
        _ => ("is not bad", "choose a later one with --bad"),
    };
    CommandFailure::new(
        FailureKind::Usage,
        format!("{} {what}, so there is nothing to search", describe(stored)),
    )
    .hint(hint)
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
                    "among": steps.iter().map(|stored| view::step(stored)).collect::<Vec<_>>(),
                    "items": items,
                })),
                false => {
                    output::line("It is one of these steps; those in between were skipped:");
                    for stored in steps {
                        output::line(format!("  {}  {}", describe(stored), view::title(stored)));
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
            "step": view::step(after),
            "detail": detail,
            "good": before.step.id,
            "changes": changes.iter().map(view::change).collect::<Vec<_>>(),
            "items": items,
        }));
        return DONE;
    }
    let paint = Paint::stdout();
    output::line(format!("{} is the first bad step: {}", paint.strong(describe(after)), view::title(after)));
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
        output::line(format!("  {:<12} {}", paint.change(change), view::change_path(change)));
    }
    output::say(paint_hint.dim(format!("\"stepback diff '#{good}' '#{bad}'\" shows the lines, {rewind}")));
    DONE
}
