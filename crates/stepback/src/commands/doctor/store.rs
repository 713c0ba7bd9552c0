//! Checks the store: whether it opens, is complete, can be written to, and has what was recorded.

use std::fs;

use stepback_mirror::settings::{MirrorOverview, list_mirrors};
use stepback_store::StoreError;
use stepback_store::port::StepQuery;
use stepback_store::step_chain;

use super::Examination;
use super::report::Finding;
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output;
use crate::protection::describe_protection;
use crate::store_location::StoreLocation;

/// The structures of a database up to this size, in bytes, are verified; more takes seconds.
const MAX_VERIFIED_BYTES: u64 = 128 << 20;
/// The chains of a workspace with up to this many steps are verified.
const MAX_VERIFIED_STEPS: u64 = 50_000;
/// How many problems of a structure are listed.
const MAX_LISTED_PROBLEMS: usize = 3;

/// Says how the store is protected.
pub fn describe_level(examination: &Examination) -> Finding {
    let protection = describe_protection(&examination.location);
    match protection.weakness {
        None => Finding::good("protection", protection.text),
        Some(weakness) if weakness.is_problem => {
            Finding::problem("protection", protection.text).with_hint(weakness.hint)
        }
        Some(weakness) => Finding::note("protection", protection.text).with_hint(weakness.hint),
    }
}

/// Says of each mirror how far behind it is.
pub fn check_mirrors(examination: &Examination) -> Vec<Finding> {
    let (StoreLocation::Directory(dir), Ok(context)) = (&examination.location, &examination.opened) else {
        return Vec::new();
    };
    let newest = context.store().commit_seq().map_or(0, |mark| mark.0);
    // Settings that cannot be read are part of the level of protection.
    let mirrors = list_mirrors(dir, newest).unwrap_or_default();
    mirrors.iter().map(describe_mirror).collect()
}

fn describe_mirror(mirror: &MirrorOverview) -> Finding {
    let address = &mirror.address;
    if let Some(contradiction) = &mirror.state.contradiction {
        let text = format!("{address}: the store contradicts it: {contradiction}");
        return Finding::problem("mirror", text)
            .with_hint("\"stepback mirror status --verify\" compares them; the mirror keeps both histories");
    }
    if let Some(failure) = &mirror.state.failure {
        let text = format!("{address}: cannot be synced: {}", failure.message);
        return Finding::problem("mirror", text).with_hint("\"stepback mirror sync\" tries again now");
    }
    match mirror.commits_behind {
        0 => Finding::good("mirror", format!("{address}: up to date")),
        behind => Finding::note("mirror", format!("{address}: lacks {}", output::count(behind, "commit")))
            .with_hint("\"stepback mirror sync\" copies them now"),
    }
}

/// Checks the store as a whole.
pub fn check_store(examination: &Examination) -> Vec<Finding> {
    let context = match &examination.opened {
        Ok(context) => context,
        Err(failure) => return vec![describe_failure(examination, failure)],
    };
    let mut findings = vec![describe_format(context)];
    findings.extend(check_lost_commits(context));
    findings.extend(check_writable(context));
    findings.extend(check_structures(examination, context));
    findings
}

fn describe_failure(examination: &Examination, failure: &CommandFailure) -> Finding {
    if failure.kind() == FailureKind::Nothing {
        return Finding::note(
            "store",
            format!("there is no store at {} yet", examination.location.display_text()),
        )
        .with_hint("the first checkpoint or the first event of an agent creates it");
    }
    let found = Finding::problem("store", failure.message());
    match failure.hint_text() {
        Some(hint) => found.with_hint(hint),
        None => found,
    }
}

fn describe_format(context: &Context) -> Finding {
    let path = context.store_path();
    match context.store().format() {
        Ok(Some(format)) if format.found < format.known => Finding::good(
            "store",
            format!(
                "{path} opens, format {}; the next change that needs it raises it to {}",
                format.found, format.known
            ),
        ),
        Ok(Some(format)) => Finding::good("store", format!("{path} opens, format {}", format.found)),
        Ok(None) => Finding::good("store", format!("{path} opens")),
        Err(error) => Finding::from_failure("store", &error.into()),
    }
}

fn check_lost_commits(context: &Context) -> Option<Finding> {
    match context.store().has_lost_commits() {
        Ok(false) => None,
        Ok(true) => Some(
            Finding::problem(
                "store",
                "commits that were acknowledged are missing; nothing is recorded until they are brought back",
            )
            .with_id("store.lost")
            .with_hint("\"stepback fsck --repair\" shows which can be brought back, and asks"),
        ),
        Err(error) => Some(Finding::from_failure("store", &error.into()).with_id("store.lost")),
    }
}

fn check_writable(context: &Context) -> Option<Finding> {
    let error = context.store().check_writable().err()?;
    let found = |hint: &str| {
        Finding::problem("store", error.to_string()).with_id("store.write").with_hint(hint.to_owned())
    };
    Some(match &error {
        // Reported above.
        StoreError::Lost { .. } => return None,
        StoreError::ReadOnly { .. } => {
            found("what is recorded can be read; mount the file system for writing to record more")
        }
        StoreError::Replaced { .. } => found("end stepback processes that use the old store"),
        _ => Finding::from_failure("store", &CommandFailure::from(error)).with_id("store.write"),
    })
}

/// Checks the structures of the database and the lengths of packs, if that is quick.
fn check_structures(examination: &Examination, context: &Context) -> Vec<Finding> {
    let StoreLocation::Directory(dir) = &examination.location else { return Vec::new() };
    let length = |name: &str| fs::metadata(dir.join(name)).map_or(0, |metadata| metadata.len());
    let bytes = length("log.sqlite") + length("log.sqlite-wal");
    if bytes > MAX_VERIFIED_BYTES {
        let text = format!("the database has {}, too much to verify here", output::bytes(bytes));
        return vec![
            Finding::good("store", text)
                .with_id("store.structure")
                .with_hint("\"stepback fsck\" verifies all of it"),
        ];
    }
    let is_lost = context.store().has_lost_commits().unwrap_or(false);
    match context.store().check() {
        Ok(problems) => {
            // Lost commits are reported above.
            let problems: Vec<String> = problems
                .into_iter()
                .filter(|problem| !(is_lost && problem.contains("is missing from the log")))
                .collect();
            let more = problems.len().saturating_sub(MAX_LISTED_PROBLEMS);
            let mut findings: Vec<Finding> = (problems.into_iter().take(MAX_LISTED_PROBLEMS))
                .map(|problem| {
                    Finding::problem("store", problem)
                        .with_id("store.structure")
                        .with_hint("\"stepback fsck\" verifies everything and lists what is damaged")
                })
                .collect();
            if more > 0 {
                let text = format!("{} of its structures", output::count(more as u64, "further problem"));
                findings.push(Finding::problem("store", text).with_id("store.structure"));
            }
            if findings.is_empty() {
                let text = "its database and packs have the structure they should have";
                findings.push(
                    Finding::good("store", text)
                        .with_id("store.structure")
                        .with_hint("\"stepback fsck\" also verifies the content of every object"),
                );
            }
            findings
        }
        Err(error) => vec![Finding::from_failure("store", &error.into()).with_id("store.structure")],
    }
}

/// Verifies the chains of the workspace's sessions, if that is quick.
pub fn check_chain(examination: &Examination) -> Option<Finding> {
    let workspace = examination.workspace().ok()?;
    let (store, id) = (workspace.store(), workspace.record.id);
    let newest = StepQuery { limit: Some(1), ..StepQuery::default() };
    let steps = match store.steps(id, &newest) {
        Ok(steps) => steps.first().map_or(0, |stored| stored.step.number),
        Err(error) => return Some(Finding::from_failure("history", &error.into())),
    };
    if steps > MAX_VERIFIED_STEPS {
        let text = format!("{} steps; too many to verify here", output::grouped(steps));
        return Some(Finding::good("history", text).with_hint("\"stepback fsck\" verifies all of them"));
    }
    let report = match step_chain::verify(store, id) {
        Ok(report) => report,
        Err(error) => return Some(Finding::from_failure("history", &error.into())),
    };
    let Some(first) = report.breaks.first() else {
        let text = format!("{} of this workspace, as recorded", output::count(report.steps, "step"));
        return Some(Finding::good("history", text));
    };
    let more = match report.breaks.len() as u64 + report.omitted - 1 {
        0 => String::new(),
        more => format!(", and {} more", output::grouped(more)),
    };
    Some(
        Finding::problem("history", format!("another program changed the record: {first}{more}"))
            .with_hint("\"stepback fsck\" lists all changes; a seal from before names what was there"),
    )
}
