//! The command `stepback doctor`: reports what keeps stepback from working well here, and how to fix it.

use std::time::{Duration, Instant};

use serde_json::json;
use stepback_model::time::Timestamp;

use super::watcher::WatcherState;
use super::{CommandResult, DONE, status};
use crate::context::Context;
use crate::failure::CommandFailure;
use crate::output::{self, Paint};
use crate::settings::{SETTINGS, Settings};

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

fn new_finding(subject: &'static str, verdict: Verdict, text: impl Into<String>) -> Finding {
    Finding { subject, verdict, text: text.into(), hint: None }
}

impl Finding {
    fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// Runs `stepback doctor`.
pub fn doctor(context: &Context) -> CommandResult {
    let mut findings = vec![
        new_finding("store", Verdict::Good, format!("{} opens", context.store_path())),
        check_settings(context),
    ];
    findings.extend(check_store_guard(context));
    check_workspace(context, &mut findings)?;
    let state = WatcherState::find(context);
    findings.push(check_watcher(&state, context.now()));
    if let Some(report) = state.report() {
        findings.extend(report.roots.iter().filter_map(|known| {
            let reason = known.sight.as_ref().err()?;
            Some(new_finding("watcher", Verdict::Note, format!("{}: {reason}", known.root.display())))
        }));
    }
    findings.extend(check_inotify_limits());
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
        output::print_document(&json!({
            "ok": findings.iter().all(|finding| finding.verdict != Verdict::Bad),
            "items": items,
            "watcher": state.document(None),
            "not_watched": state.unavailable_reason(),
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
        output::print_line(format!("{verdict} {:<10} {}", finding.subject, finding.text));
        if let Some(hint) = &finding.hint {
            output::print_line(paint.dim(format!("{:18} {hint}", "")));
        }
    }
    DONE
}

/// Whether a server guards the store.
fn check_store_guard(context: &Context) -> Option<Finding> {
    let status = crate::guard_status::check_guard(context.store_location())?;
    let at = format!("{} ({})", status.address, status.kind);
    Some(match &status.role {
        Err(why) => new_finding("guard", Verdict::Bad, why.clone()),
        Ok(_) if status.is_protected() => new_finding(
            "guard",
            Verdict::Good,
            format!("{at}: this user can append to the store and read it"),
        ),
        Ok(_) => {
            new_finding("guard", Verdict::Note, format!("{at}: this user can do everything with the store"))
                .with_hint("an agent of this user can, too: remove STEPBACK_TOKEN and the token file")
        }
    })
}

fn check_settings(context: &Context) -> Finding {
    match Settings::load(context.store_location().local_dir()) {
        Ok(settings) => {
            let set: Vec<_> = SETTINGS.iter().filter(|known| settings.is_set(known.key)).collect();
            let shown: Vec<_> =
                set.iter().map(|known| format!("{} {}", known.key, settings.get(known.key))).collect();
            let text = if shown.is_empty() { "all defaults".to_owned() } else { shown.join(", ") };
            new_finding("settings", Verdict::Good, text)
        }
        Err(failure) => new_finding("settings", Verdict::Bad, failure.message())
            .with_hint("correct or remove the file; until then, defaults are used"),
    }
}

/// Adds the findings about the current workspace, if there is one.
fn check_workspace(context: &Context, findings: &mut Vec<Finding>) -> Result<(), CommandFailure> {
    let Ok(workspace) = context.open_workspace() else {
        findings.push(new_finding("workspace", Verdict::Note, "nothing is recorded in this directory yet"));
        return Ok(());
    };
    let started = Instant::now();
    let present = workspace.scan_for_display()?;
    let took: Duration = started.elapsed();
    findings.push(new_finding(
        "workspace",
        Verdict::Good,
        format!("{}, a scan of every file took {}", workspace.root.display(), output::duration(took)),
    ));
    for trouble in &present.skipped_paths {
        let text = format!("{} is not covered: {}", trouble.path, trouble.reason);
        findings.push(new_finding("workspace", Verdict::Note, text));
    }
    let gaps = status::count_recent_gaps(context, &workspace)?;
    if gaps > 0 {
        let text = format!("{} could not be recorded in the last day", output::count(gaps, "event"));
        findings.push(
            new_finding("hooks", Verdict::Bad, text).with_hint("\"stepback log --kind gap\" shows why"),
        );
    }
    Ok(())
}

fn check_watcher(state: &WatcherState, now: Timestamp) -> Finding {
    match (state.process_summary(now), state.unavailable_reason()) {
        (Some(line), _) => new_finding("watcher", Verdict::Good, line),
        (None, why) => {
            let verdict = if state.is_failing() { Verdict::Bad } else { Verdict::Note };
            let found = new_finding("watcher", verdict, why.unwrap_or_default());
            match verdict {
                Verdict::Bad => found.with_hint("hooks scan every file instead"),
                _ => found,
            }
        }
    }
}

/// Checks the system's inotify limits, which restrict watching.
fn check_inotify_limits() -> Option<Finding> {
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
    let found = new_finding("inotify", if few { Verdict::Note } else { Verdict::Good }, text);
    Some(match few {
        true => found.with_hint("for large workspaces: sudo sysctl fs.inotify.max_user_watches=524288"),
        false => found,
    })
}
