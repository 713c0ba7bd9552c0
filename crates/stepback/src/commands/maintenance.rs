//! The commands `stepback prune` and `stepback stats`.

use std::collections::HashSet;

use serde_json::json;
use stepback_api::maintenance::PruneReportDocument;
use stepback_engine::prune::{PrunePlan, Pruned, Rules};
use stepback_model::path::display_bytes;
use stepback_model::record::{Session, WorkspaceRecord};
use stepback_store::port::StepQuery;

use super::{CommandResult, DONE, budget, mirror, titles};
use crate::args::PruneArgs;
use crate::context::Context;
use crate::output::{self, Paint};

/// Runs `stepback prune`.
pub fn prune(context: &Context, arguments: &PruneArgs) -> CommandResult {
    if arguments.budget {
        return budget::prune(context, arguments.dry_run);
    }
    let workspace = context.open_workspace()?;
    let rules = Rules {
        keep_last: arguments.keep_last,
        keep_days: arguments.keep_days,
        keep_manual: arguments.keep_manual,
        keep_significant: arguments.keep_significant,
        max_branches: arguments.max_branches,
        max_size: arguments.max_size,
        now: arguments.now,
    };
    let plan = workspace.plan_prune(rules)?;
    let document = PruneReportDocument::from_plan(&plan);
    if arguments.dry_run {
        if context.json {
            output::print_document(&json!(document));
        } else {
            print_prune_plan(&plan);
        }
        return DONE;
    }
    let size_before = plan.size_before;
    // What is freed now cannot be mirrored later.
    mirror::sync_before_prune(context);
    let pruned = workspace.prune(plan)?;
    if context.json {
        let mut value = json!(document.with_result(workspace.store(), &pruned)?);
        value["id"] = json!(pruned.operation.as_ref().map(|operation| operation.id));
        value["hidden"] = json!(pruned.hidden);
        output::print_document(&value);
        return DONE;
    }
    print_pruned(&pruned, size_before);
    DONE
}

fn print_prune_plan(plan: &PrunePlan) {
    for stored in &plan.hide {
        output::print_line(format!("would prune #{}  {}", stored.step.number, titles::step_title(stored)));
    }
    for name in &plan.branches {
        output::print_line(format!("would delete branch {name}"));
    }
    print_forgotten(&plan.forgotten);
    let freed: HashSet<_> = plan.purge.iter().collect();
    let undoable = plan.hide.iter().filter(|stored| !freed.contains(&stored.step.id)).count();
    output::print_line(format!(
        "{} would be pruned, {} kept; the space of {} would be freed",
        output::count(plan.hide.len() as u64, "checkpoint"),
        output::grouped(plan.keep as u64),
        output::count(plan.purge.len() as u64, "checkpoint"),
    ));
    output::print_line(size_line("The store would have", plan.size_before, plan.size_after));
    if undoable > 0 {
        output::print_line(format!(
            "\"stepback undo\" would restore {}; a prune frees their space after 24 hours (--now: immediately).",
            output::count(undoable as u64, "checkpoint")
        ));
    }
}

/// Says which forgotten workspaces a prune would free.
pub(super) fn print_forgotten(forgotten: &[WorkspaceRecord]) {
    for record in forgotten {
        output::print_line(format!(
            "would free the forgotten workspace {}; until then \"stepback workspace restore {}\" brings it back",
            display_bytes(record.former_root()),
            record.id.short()
        ));
    }
}

/// Says which forgotten workspaces a prune freed.
pub(super) fn print_freed(forgotten: &[WorkspaceRecord]) {
    for record in forgotten {
        output::print_line(format!(
            "Freed the forgotten workspace {} {}: it cannot be restored any more",
            display_bytes(record.former_root()),
            record.id.short()
        ));
    }
}

fn print_pruned(pruned: &Pruned, size_before: u64) {
    output::print_line(format!(
        "Pruned {}, kept {}; freed {} in {}",
        output::count(pruned.hidden as u64, "checkpoint"),
        output::grouped(pruned.kept as u64),
        output::bytes(pruned.swept.bytes),
        output::count(pruned.swept.objects, "object"),
    ));
    output::print_line(size_line("The store has", size_before, pruned.size_after));
    if !pruned.branches.is_empty() {
        output::print_line(format!(
            "Deleted {} {}; checkpoints that are only there follow the rules from the next prune on",
            if pruned.branches.len() == 1 { "branch" } else { "branches" },
            pruned.branches.join(", ")
        ));
    }
    print_freed(&pruned.forgotten);
    if pruned.reruns > 0 {
        output::print_line(format!(
            "Removed the intermediate files of {}; branches of reruns are kept",
            output::count(pruned.reruns as u64, "rerun")
        ));
    }
    let paint = Paint::stdout();
    if !pruned.branches.is_empty() {
        output::print_status(paint.dim("\"stepback undo\" restores the branches, the last one first."));
    }
    if pruned.undoable > 0 {
        output::print_status(paint.dim(
            "\"stepback undo\" restores them; a prune frees their space after 24 hours (--now: immediately).",
        ));
    }
}

fn size_line(subject: &str, before: u64, after: u64) -> String {
    format!("{subject} {}, was {}", output::bytes(after), output::bytes(before))
}

/// Runs `stepback stats`.
pub fn stats(context: &Context) -> CommandResult {
    let (engine, store) = (context.engine(), context.store());
    for workspace in engine.all_workspaces()? {
        // Pending hook events are counted too; those that cannot be recorded now stay pending.
        let _ = stepback_agents::record::record_inbox_if_free(&workspace);
    }
    let usage = store.usage()?;
    let budget = budget::document(context, usage.total_bytes)?;
    let (reruns, workspaces): (Vec<_>, Vec<_>) =
        store.workspaces()?.into_iter().partition(|workspace| workspace.is_rerun());
    let mut rows = Vec::new();
    for workspace in &workspaces {
        let visible = StepQuery {
            checkpoint: Some(true),
            hidden: Some(false),
            limit: Some(0),
            count_all: true,
            ..StepQuery::default()
        };
        let checkpoints = store.find(Some(workspace.id), &visible)?.total;
        let root = String::from_utf8_lossy(&workspace.root).into_owned();
        let tally = store.tally(workspace.id)?;
        let steps = tally.iter().map(|one| one.steps).sum::<u64>();
        let operations = store.operations(workspace.id)?.len() as u64;
        rows.push((workspace.id, root, checkpoints, steps, operations, tally));
    }
    let period = engine.recorded_period()?;
    if context.json {
        let sessions = engine.project_sessions()?;
        let total_sessions = sessions.iter().filter(|session| session.agent != Session::PERSON).count();
        let total_steps = rows.iter().map(|(_, _, _, steps, ..)| steps).sum::<u64>();
        let items: Vec<_> = rows
            .iter()
            .rev()
            .map(|(id, root, visible, steps, operations, tally)| {
                let mut agents = serde_json::Map::new();
                for one in tally {
                    let agent = agents.entry(&one.agent).or_insert_with(|| json!({}));
                    agent[one.kind.as_str()] = json!({ "steps": one.steps, "failed": one.failed });
                }
                json!({ "id": id, "root": root, "checkpoints": visible, "steps": steps, "operations": operations, "agents": agents })
            })
            .collect();
        output::print_document(&json!({
            "store": context.store_path(), "usage": usage, "items": items, "reruns": reruns.len(), "budget": budget,
            "total_steps": total_steps, "total_sessions": total_sessions,
            "oldest_step_at": period.map(|(oldest, _)| oldest), "newest_step_at": period.map(|(_, newest)| newest),
        }));
        return DONE;
    }
    output::print_line(format!("Store {}", context.store_path()));
    output::print_line(format!(
        "  {}, {} uncompressed; {} on disk, with indexes",
        output::count(usage.objects, "object"),
        output::bytes(usage.raw_bytes),
        output::bytes(usage.total_bytes)
    ));
    budget::print(context, budget.as_ref());
    for (_, root, visible, steps, operations, tally) in &rows {
        output::print_line(format!(
            "  {root}: {}, {}, {}",
            output::count(*visible, "checkpoint"),
            output::count(*steps, "step"),
            output::count(*operations, "operation")
        ));
        for of_agent in tally.chunk_by(|a, b| a.agent == b.agent) {
            let kinds: Vec<String> = of_agent
                .iter()
                .map(|one| format!("{} {}", output::grouped(one.steps), one.kind.as_str()))
                .collect();
            output::print_line(format!("    {}: {}", of_agent[0].agent, kinds.join(", ")));
        }
    }
    if !reruns.is_empty() {
        output::print_line(format!("  {}, not counted above", output::count(reruns.len() as u64, "rerun")));
    }
    DONE
}
