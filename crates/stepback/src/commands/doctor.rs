//! The command `stepback doctor`: reports what keeps stepback from working well here, and how to fix it.

use std::time::{Duration, Instant};

use serde_json::json;
use stepback_model::time::Timestamp;

use super::watcher::WatcherState;
use super::{CommandResult, DONE, status};
use crate::context::Context;
use crate::failure::CommandFailure;
use crate::output::{self, Paint};
use crate::settings::{KNOWN, Settings};

/// The result of a check.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    /// It works, but could be better, or is configured that way.
    Note,
    /// Something does not work as it should.
    Bad,
}

struct Finding {
    subject: &'static str,
    verdict: Verdict,
    text: String,
    hint: Option<String>,
}

fn finding(subject: &'static str, verdict: Verdict, text: impl Into<String>) -> Finding {
    Finding { subject, verdict, text: text.into(), hint: None }
}

impl Finding {
    fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// Runs `stepback doctor`.
pub fn doctor(context: &Context) -> CommandResult {
    let mut findings =
        vec![finding("store", Verdict::Good, format!("{} opens", context.store_path())), settings(context)];
    workspace(context, &mut findings)?;
    let state = WatcherState::find(context);
    findings.push(watcher(&state, context.now()));
    if let Some(report) = state.report() {
        findings.extend(report.roots.iter().filter_map(|known| {
            let reason = known.sight.as_ref().err()?;
            Some(finding("watcher", Verdict::Note, format!("{}: {reason}", known.root.display())))
        }));
    }
    findings.extend(inotify());
    if context.json {
        let items: Vec<_> = (findings.iter().enumerate())
            .map(|(at, finding)| {
                let verdict = match finding.verdict {
                    Verdict::Good => "ok",
                    Verdict::Note => "note",
                    Verdict::Bad => "problem",
                };
                json!({ "id": at + 1, "subject": finding.subject, "verdict": verdict, "text": finding.text, "hint": finding.hint })
            })
            .collect();
        output::document(&json!({
            "ok": findings.iter().all(|finding| finding.verdict != Verdict::Bad),
            "items": items,
            "watcher": state.document(None),
            "not_watched": state.why_not(),
        }));
        return DONE;
    }
    let paint = Paint::stdout();
    for finding in &findings {
        let verdict = match finding.verdict {
            Verdict::Good => paint.good("ok     "),
            Verdict::Note => paint.dim("note   "),
            Verdict::Bad => paint.bad("problem"),
        };
        output::line(format!("{verdict} {:<10} {}", finding.subject, finding.text));
        if let Some(hint) = &finding.hint {
            output::line(paint.dim(format!("{:18} {hint}", "")));
        }
    }
    DONE
}

fn settings(context: &Context) -> Finding {
    match Settings::load(context.place().local()) {
        Ok(settings) => {
            let set: Vec<_> = KNOWN.iter().filter(|known| settings.is_set(known.key)).collect();
            let shown: Vec<_> =
                set.iter().map(|known| format!("{} {}", known.key, settings.get(known.key))).collect();
            let text = if shown.is_empty() { "all defaults".to_owned() } else { shown.join(", ") };
            finding("settings", Verdict::Good, text)
        }
        Err(failure) => finding("settings", Verdict::Bad, failure.message())
            .hint("correct or remove the file; until then, defaults are used"),
    }
}

/// Adds the findings about the current workspace, if there is one.
fn workspace(context: &Context, findings: &mut Vec<Finding>) -> Result<(), CommandFailure> {
    let Ok(workspace) = context.workspace() else {
        findings.push(finding("workspace", Verdict::Note, "nothing is recorded in this directory yet"));
        return Ok(());
    };
    let started = Instant::now();
    let present = workspace.look()?;
    let took: Duration = started.elapsed();
    findings.push(finding(
        "workspace",
        Verdict::Good,
        format!("{}, a scan of every file took {}", workspace.root.display(), output::duration(took)),
    ));
    for trouble in &present.troubles {
        let text = format!("{} is not covered: {}", trouble.path, trouble.reason);
        findings.push(finding("workspace", Verdict::Note, text));
    }
    let gaps = status::recent_gaps(context, &workspace)?;
    if gaps > 0 {
        let text = format!("{} could not be recorded in the last day", output::count(gaps, "event"));
        findings.push(finding("hooks", Verdict::Bad, text).hint("\"stepback log --kind gap\" shows why"));
    }
    Ok(())
}

fn watcher(state: &WatcherState, now: Timestamp) -> Finding {
    match (state.line(now), state.why_not()) {
        (Some(line), _) => finding("watcher", Verdict::Good, line),
        (None, why) => {
            let verdict = if state.is_failing() { Verdict::Bad } else { Verdict::Note };
            let found = finding("watcher", verdict, why.unwrap_or_default());
            match verdict {
                Verdict::Bad => found.hint("hooks scan every file instead"),
                _ => found,
            }
        }
    }
}

/// Checks the system's inotify limits, which restrict watching.
fn inotify() -> Option<Finding> {
    let limit = |name: &str| -> Option<u64> {
        std::fs::read_to_string(format!("/proc/sys/fs/inotify/{name}")).ok()?.trim().parse().ok()
    };
    let (watches, instances) = (limit("max_user_watches")?, limit("max_user_instances")?);
    let text = format!(
        "the system allows {} watched directories and {} inotify instances per user",
        output::grouped(watches),
        output::grouped(instances)
    );
    let few = watches < 20_000;
    let found = finding("inotify", if few { Verdict::Note } else { Verdict::Good }, text);
    Some(match few {
        true => found.hint("for large workspaces: sudo sysctl fs.inotify.max_user_watches=524288"),
        false => found,
    })
}
