//! Checks the workspace: whether every file can be read, what rules exclude, and whether times make sense.

use std::time::Instant;

use stepback_model::path::display_bytes;
use stepback_model::time::Timestamp;
use stepback_store::port::StepQuery;
use stepback_worktree::cache_check::CacheCondition;
use stepback_worktree::rule_check::{self, RuleProblem};

use super::Examination;
use super::fix::{Fix, FixAction};
use super::report::Finding;
use crate::failure::CommandFailure;
use crate::output;

/// A time this far ahead is not a difference between two clocks of one machine.
const TOLERATED_MICROS: i64 = 60_000_000;
/// How many paths or rules of one kind are listed.
const MAX_LISTED: usize = 10;

/// Scans the workspace without storing anything, and checks the stat cache.
pub fn check_workspace(examination: &Examination) -> Vec<Finding> {
    if examination.opened.is_err() {
        return Vec::new();
    }
    let workspace = match &examination.workspace {
        None => {
            let text = "nothing is recorded in this directory yet";
            return vec![
                Finding::note("workspace", text)
                    .with_hint("\"stepback checkpoint create\" records it; hooks do it by themselves"),
            ];
        }
        Some(Err(failure)) => return vec![Finding::from_failure("workspace", failure)],
        Some(Ok(workspace)) => workspace,
    };
    // Before the scan, which ignores a damaged one.
    let cache = check_stat_cache(workspace.inspect_stat_cache(), examination.now());
    let started = Instant::now();
    let scanned = workspace.lock_shared().and_then(|_lock| workspace.scan_present());
    let mut findings = match scanned {
        Err(error) => vec![Finding::from_failure("workspace", &CommandFailure::from(error))],
        Ok(present) => {
            let text = format!(
                "{}, a scan of every file took {}",
                workspace.root.display(),
                output::duration(started.elapsed())
            );
            let mut findings = vec![Finding::good("workspace", text)];
            for skipped in present.skipped_paths.iter().take(MAX_LISTED) {
                let text = format!("{} is not covered: {}", skipped.path, skipped.reason);
                findings.push(Finding::note("workspace", text).with_id("workspace.skipped"));
            }
            if let Some(more) = present.skipped_paths.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
                let text = format!("{} not covered either", output::count(more as u64, "other path"));
                findings.push(
                    Finding::note("workspace", text)
                        .with_id("workspace.skipped")
                        .with_hint("\"stepback status\" lists all of them"),
                );
            }
            findings
        }
    };
    findings.extend(cache);
    findings
}

fn check_stat_cache(cache: CacheCondition, now: Timestamp) -> Vec<Finding> {
    match cache {
        CacheCondition::Absent => vec![Finding::good("cache", "no scan was remembered yet")],
        CacheCondition::Unusable => vec![
            Finding::note(
                "cache",
                "what the last scan found cannot be used: it is damaged, or of another release",
            )
            .with_hint("nothing is lost: the next checkpoint reads every file and writes it again")
            .with_fix(Some(Fix {
                description: "read every file and write the cache of scans again".to_owned(),
                undo: "not needed; it is only a cache".to_owned(),
                action: FixAction::RebuildStatCache,
            })),
        ],
        CacheCondition::Usable { files, newest } => {
            let mut findings = vec![Finding::good(
                "cache",
                format!("the last scan saw {}, and its cache is intact", output::count(files, "file")),
            )];
            let ahead = newest.filter(|(_, time)| time / 1000 - now.as_micros() > TOLERATED_MICROS);
            if let Some((path, time)) = ahead {
                let text = format!(
                    "{} was modified in the future, at {}",
                    display_bytes(&path),
                    Timestamp::from_micros(time / 1000)
                );
                findings.push(Finding::note("clock", text).with_id("clock.files").with_hint(
                    "a program set that time, or the clock was ahead; scans read such files every time (touch corrects it)",
                ));
            }
            findings
        }
    }
}

/// Checks the lines of `.stepbackignore`.
pub fn check_rules(examination: &Examination) -> Vec<Finding> {
    if examination.workspace().is_err() {
        return Vec::new();
    }
    let report = rule_check::check_rules(&examination.root);
    let mut findings = Vec::new();
    for (file, why) in &report.unreadable {
        let text = format!("{} is ignored: {why}", file.display());
        findings.push(Finding::problem("ignore", text).with_hint("correct or remove the file"));
    }
    for rule in report.idle.iter().take(MAX_LISTED) {
        let place = format!("{} line {}", rule.file.display(), rule.line);
        findings.push(match &rule.problem {
            RuleProblem::Invalid(why) => {
                Finding::problem("ignore", format!("{place} is not a valid pattern: {why}"))
                    .with_id("ignore.invalid")
                    .with_hint("correct the line: it excludes nothing")
            }
            RuleProblem::MatchesNothing => {
                Finding::note("ignore", format!("{place} matches nothing at present: {}", rule.pattern))
                    .with_id("ignore.unused")
            }
        });
    }
    let more = report.idle.len().saturating_sub(MAX_LISTED);
    if more > 0 {
        let text =
            format!("{} match nothing either, or are invalid", output::count(more as u64, "other line"));
        findings.push(Finding::note("ignore", text).with_id("ignore.unused"));
    }
    if report.files > 0 && findings.is_empty() {
        let searched = if report.is_complete { "" } else { " (the first 200,000 paths were compared)" };
        findings.push(Finding::good(
            "ignore",
            format!(
                "{} in .stepbackignore, all in use{searched}",
                output::count(report.patterns as u64, "pattern")
            ),
        ));
    }
    findings
}

/// Compares the newest step with the clock.
pub fn check_clock(examination: &Examination) -> Option<Finding> {
    let workspace = examination.workspace().ok()?;
    let newest = StepQuery { limit: Some(1), ..StepQuery::default() };
    let steps = match workspace.store().steps(workspace.record.id, &newest) {
        Ok(steps) => steps,
        Err(error) => return Some(Finding::from_failure("clock", &error.into())),
    };
    let step = &steps.first()?.step;
    let now = examination.now();
    let ahead = step.at.as_micros() - now.as_micros();
    if ahead <= TOLERATED_MICROS {
        return Some(Finding::good("clock", format!("the newest step is from {}", step.at.ago(now))));
    }
    let text =
        format!("the clock says {now}, but the newest step, #{}, was recorded at {}", step.number, step.at);
    Some(Finding::problem("clock", text).with_hint(
        "correct the clock if it is behind; steps keep their order, but points such as \"2 hours ago\" may name others",
    ))
}
