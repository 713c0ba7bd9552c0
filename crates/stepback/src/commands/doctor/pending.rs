//! Checks work that waits: interrupted operations, reports in the inbox, steps that search does not find yet.

use std::fs::File;

use stepback_agents::inbox;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::port::StepQuery;

use super::Examination;
use super::fix::{Fix, FixAction};
use super::report::Finding;
use crate::failure::CommandFailure;
use crate::output;
use crate::store_location::StoreLocation;

/// The next search indexes this many steps without a noticeable delay.
const QUICK_STEPS: u64 = 400;
/// At most this many steps that are not indexed are counted.
const MAX_COUNTED_STEPS: usize = 5_000;
/// Reports that wait longer than this are mentioned: no command was run and no file was changed by an agent since.
const LONG_WAIT_MICROS: i64 = 86_400_000_000;

/// Finds operations that a process began and did not finish.
pub fn check_operations(examination: &Examination) -> Option<Finding> {
    let workspace = examination.workspace().ok()?;
    let operations = match examination.unfinished() {
        Ok(operations) => operations,
        Err(failure) => return Some(Finding::from_failure("operations", &failure)),
    };
    let Some(first) = operations.first() else {
        return Some(Finding::good("operations", "none was interrupted"));
    };
    let more = match operations.len() as u64 - 1 {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let ago = first.at.ago(examination.now());
    // Not `cache_dir`, which creates the directory.
    let dir =
        workspace.store().local_dir().map(|dir| dir.join("workspaces").join(workspace.record.id.to_string()));
    let lock = dir.and_then(|dir| File::open(dir.join("lock")).ok());
    if lock.is_some_and(|file| file.try_lock().is_err()) {
        let text = format!("a process works on \"{}\", begun {ago}{more}", first.summary);
        return Some(Finding::note("operations", text).with_hint("wait until it ends"));
    }
    let text = format!("\"{}\", begun {ago}{more}, was interrupted", first.summary);
    Some(
        Finding::problem("operations", text)
            .with_hint("the next command that opens the workspace finishes it, or restores what was there")
            .with_fix(Some(Fix {
                description: format!("finish \"{}\"{more}, or restore what was there", first.summary),
                undo: format!("stepback undo {}", first.id.short()),
                action: FixAction::FinishOperations,
            })),
    )
}

/// Counts the reports that hooks left to be recorded later.
pub fn check_inbox(examination: &Examination) -> Option<Finding> {
    let workspace = examination.workspace().ok()?;
    let dir = workspace.store().local_dir()?.join("workspaces").join(workspace.record.id.to_string());
    let summary = match inbox::summarize(&dir) {
        Ok(summary) => summary,
        Err(error) => {
            let text = format!("the reports of agents in {} cannot be read: {error}", dir.display());
            return Some(Finding::problem("inbox", text).with_hint("correct the permissions of the file"));
        }
    };
    if summary.notes == 0 {
        return Some(Finding::good("inbox", "no report of an agent waits to be recorded"));
    }
    let now = examination.now();
    let oldest = summary.oldest.map_or(String::new(), |at| format!(", the oldest from {}", at.ago(now)));
    let reports = output::count(summary.notes, "report");
    let gaps = match summary.gaps {
        0 => String::new(),
        gaps => format!("; {} of them will be a gap", output::grouped(gaps)),
    };
    let text = format!("{reports} of agents wait to be recorded{oldest}{gaps}");
    let text = if summary.notes == 1 { text.replace(" wait ", " waits ") } else { text };
    let waits_long = summary.oldest.is_some_and(|at| now.as_micros() - at.as_micros() > LONG_WAIT_MICROS);
    let found = match waits_long || summary.gaps > 0 {
        true => Finding::note("inbox", text),
        false => Finding::good("inbox", text),
    };
    Some(found.with_hint("the next command or checkpoint in this workspace records them").with_fix(Some(
        Fix {
            description: format!("record {reports} of agents"),
            undo: "not needed; steps are only added".to_owned(),
            action: FixAction::RecordInbox,
        },
    )))
}

/// Counts the steps that search does not find before it has indexed them.
pub fn check_search_index(examination: &Examination) -> Option<Finding> {
    let context = examination.context().ok()?;
    if let StoreLocation::Directory(dir) = &examination.location
        && !EmbeddedStore::has_index(dir)
    {
        let workspace = examination.workspace().ok()?;
        let newest = StepQuery { limit: Some(1), ..StepQuery::default() };
        let steps = workspace.store().steps(workspace.record.id, &newest).ok()?;
        let steps = steps.first().map_or(0, |stored| stored.step.number);
        let text =
            format!("nothing was searched yet; the first search indexes {}", output::count(steps, "step"));
        return Some(Finding::good("search", text));
    }
    let waiting =
        match context.store().unindexed(MAX_COUNTED_STEPS) {
            Ok(steps) => steps.len() as u64,
            Err(error) => {
                return Some(Finding::from_failure("search", &CommandFailure::from(error)).with_hint(
                    "the index follows from the log and can be removed: search.sqlite in the store",
                ));
            }
        };
    if waiting == 0 {
        return Some(Finding::good("search", "every step is indexed"));
    }
    let more = if waiting == MAX_COUNTED_STEPS as u64 { "at least " } else { "" };
    let text = format!("{more}{} will be indexed by the next search", output::count(waiting, "step"));
    if waiting <= QUICK_STEPS {
        return Some(Finding::good("search", text));
    }
    Some(Finding::note("search", text).with_hint("that search takes longer").with_fix(Some(Fix {
        description: format!("index {more}{}", output::count(waiting, "step")),
        undo: "not needed; the index follows from the log".to_owned(),
        action: FixAction::IndexSteps,
    })))
}
