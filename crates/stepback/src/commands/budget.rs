//! The disk budget on the command line: the setting, pruning for it by hand, and what `stats` says about it.

use serde_json::{Value, json};
use stepback_api::maintenance::{DiskBudgetDocument, ForgottenWorkspaceDocument, LastPruningDocument};
use stepback_api::steps::StepDocument;
use stepback_engine::budget::{BudgetPlan, BudgetReport};
use stepback_model::path::display_bytes;
use stepback_model::record::WorkspaceRecord;

use super::{CommandResult, DONE, maintenance, titles};
use crate::context::Context;
use crate::disk_budget::setting;
use crate::disk_budget::{self, LastPruning};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};
use crate::store_location::StoreLocation;

/// Prints what a new budget means for the store.
pub fn print_effect(context: &Context) -> CommandResult {
    disk_budget::measure_soon(context.store_location().local_dir());
    if let Some(budget) = disk_budget::of_location(context.store_location()) {
        let used = context.store().usage()?.total_bytes;
        if used >= stepback_engine::budget::starts_at(budget) {
            output::print_status(format!(
                "The store has {} and may have {}: the next checkpoint starts a pruning; \"stepback prune --budget --dry-run\" shows what it takes.",
                output::bytes(used),
                output::bytes(budget),
            ));
        }
    }
    DONE
}

/// Runs `stepback prune --budget`.
pub fn prune(context: &Context, dry_run: bool) -> CommandResult {
    let refused = |what: &str, hint: &str| {
        Err(CommandFailure::new(FailureKind::Refused, what.to_owned()).with_hint(hint.to_owned()))
    };
    let StoreLocation::Directory(dir) = context.store_location() else {
        return refused(
            "only a store in a directory on this machine has a disk budget",
            "\"stepback prune --max-size SIZE\" prunes one workspace of any store",
        );
    };
    let Some(budget) = disk_budget::of_location(context.store_location()) else {
        return refused("the store has no disk budget", "\"stepback settings disk.budget 2GB\" sets one");
    };
    let mut forgotten = context.engine().restorable_workspaces()?;
    if dry_run {
        let plan = context.engine().plan_budget(budget)?;
        if plan.size_before < stepback_engine::budget::starts_at(plan.budget) {
            forgotten.clear();
        }
        if context.json {
            let mut document = plan_document(&plan);
            document["forgotten"] = forgotten_document(&forgotten);
            output::print_document(&document);
        } else {
            maintenance::print_forgotten(&forgotten);
            print_plan(context, &plan)?;
        }
        return DONE;
    }
    let Some(done) = disk_budget::prune_now(dir, budget)? else {
        return Err(CommandFailure::new(FailureKind::Busy, "another process prunes this store already")
            .with_hint("\"stepback stats\" shows the result when it has finished"));
    };
    let report = match (done.report, done.failure) {
        (Some(report), _) => report,
        (None, failure) => {
            return Err(CommandFailure::new(
                FailureKind::System,
                format!("nothing was pruned: {}", failure.unwrap_or_default()),
            ));
        }
    };
    let left = context.store().forgotten_workspaces()?;
    forgotten.retain(|record| left.iter().any(|known| known.id == record.id && known.is_freed()));
    if context.json {
        let forgotten = forgotten_document(&forgotten);
        output::print_document(&json!({ "applied": true, "report": report, "forgotten": forgotten }));
    } else {
        print_report(&report);
        maintenance::print_freed(&forgotten);
    }
    DONE
}

fn forgotten_document(forgotten: &[WorkspaceRecord]) -> Value {
    forgotten.iter().map(|record| json!(ForgottenWorkspaceDocument::from_record(record))).collect()
}

fn plan_document(plan: &BudgetPlan) -> Value {
    let items: Vec<Value> = plan
        .removals
        .iter()
        .map(|removal| {
            let mut item = json!(StepDocument::from_row(&removal.stored));
            item["workspace"] = json!(removal.workspace);
            item
        })
        .collect();
    json!({
        "applied": false,
        "items": items,
        "expired": plan.expired.len(),
        "budget": plan.budget,
        "starts_at": stepback_engine::budget::starts_at(plan.budget),
        "size_before": plan.size_before,
        "size_after": plan.size_after,
        "fits": plan.fits,
        "smallest": plan.smallest,
    })
}

fn print_plan(context: &Context, plan: &BudgetPlan) -> Result<(), CommandFailure> {
    let workspaces = context.store().workspaces()?;
    for removal in &plan.removals {
        let known = workspaces.iter().find(|known| known.id == removal.workspace);
        let root = known.map_or_else(String::new, |known| display_bytes(&known.root).to_string());
        let step = &removal.stored.step;
        output::print_line(format!("#{}  {}  in {root}", step.number, titles::step_title(&removal.stored)));
    }
    let count = output::count(plan.removals.len() as u64, "checkpoint");
    let begins = stepback_engine::budget::starts_at(plan.budget);
    let (used, budget) = (output::bytes(plan.size_before), output::bytes(plan.budget));
    if plan.size_before < begins {
        output::print_line(format!(
            "The store has {used} of {budget}: nothing goes now. At {}, {count} would go",
            output::bytes(begins)
        ));
    } else {
        output::print_line(format!(
            "The store has {used} of {budget}: {count} would go, and about {} would be left",
            output::bytes(plan.size_after)
        ));
    }
    if !plan.fits {
        warn_too_small(plan.budget, plan.smallest);
    }
    Ok(())
}

fn print_report(report: &BudgetReport) {
    output::print_line(format!(
        "Pruned {}; the store has {} of {}, was {}",
        output::count(report.checkpoints, "checkpoint"),
        output::bytes(report.size_after),
        output::bytes(report.budget),
        output::bytes(report.size_before),
    ));
    if !report.fits {
        warn_too_small(report.budget, report.size_after);
    }
}

fn warn_too_small(budget: u64, smallest: u64) {
    output::print_status(format!(
        "{} The budget of {} is too small: about {} stay, because manual, marked and significant checkpoints, checkpoints of the last day, and the record itself are kept. Delete some checkpoints, or raise it with \"stepback settings {} SIZE\".",
        Paint::stderr().note("Warning:"),
        output::bytes(budget),
        output::bytes(smallest),
        setting::KEY,
    ));
}

/// The last pruning of a store, as a document.
pub fn last_pruning(location: &StoreLocation) -> Option<LastPruningDocument> {
    let LastPruning { at, report, failure } = LastPruning::load(location.local_dir())?;
    let report = report.unwrap_or_default();
    Some(LastPruningDocument {
        at,
        checkpoints: report.checkpoints,
        size_before: report.size_before,
        size_after: report.size_after,
        fits: report.fits,
        failure,
    })
}

/// The budget of the store as a document; `None` if it has none.
pub fn document(context: &Context, used: u64) -> Result<Option<DiskBudgetDocument>, CommandFailure> {
    let Some(bytes) = disk_budget::of_location(context.store_location()) else { return Ok(None) };
    let outlook = context.engine().budget_outlook()?;
    Ok(Some(DiskBudgetDocument::new(bytes, used, &outlook, last_pruning(context.store_location()))))
}

/// Prints the budget as lines of `stats`.
pub fn print(context: &Context, budget: Option<&DiskBudgetDocument>) {
    let Some(budget) = budget else {
        let why = match context.store_location() {
            StoreLocation::Directory(_) => "nothing is pruned by itself",
            StoreLocation::Server { .. } => "the store is a database",
            StoreLocation::Guarded { .. } => "the server that holds the store decides",
        };
        output::print_line(format!("  No disk budget: {why}"));
        return;
    };
    output::print_line(format!(
        "  Disk budget {}, of which {} are used; pruning starts at {}",
        output::bytes(budget.bytes),
        output::bytes(budget.used),
        output::bytes(budget.starts_at)
    ));
    let first =
        budget.next_at.map_or_else(String::new, |at| format!(", the oldest from {}", at.ago(context.now())));
    output::print_line(format!(
        "  {} may go then{first}; {} stay",
        output::count(budget.removable, "automatic checkpoint"),
        output::grouped(budget.kept)
    ));
    let Some(last) = &budget.last else { return };
    let when = last.at.ago(context.now());
    match &last.failure {
        Some(failure) => output::print_line(format!("  The pruning of {when} failed: {failure}")),
        None => output::print_line(format!(
            "  The pruning of {when} removed {}; {} became {}",
            output::count(last.checkpoints, "checkpoint"),
            output::bytes(last.size_before),
            output::bytes(last.size_after)
        )),
    }
    if last.failure.is_none() && budget.used > budget.bytes {
        warn_too_small(budget.bytes, last.size_after);
    }
}
