//! `stepback log`, `stepback timeline` and `stepback op log`

use std::collections::HashSet;

use serde_json::json;
use stepback_engine::Workspace;
use stepback_model::ids::StepId;
use stepback_model::record::OpStatus;
use stepback_store::port::StoredCheckpoint;

use super::{Answer, DONE, view};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, Paint};

/// Steps with where they stand: newest first, the steps of the present line, and the head.
struct History {
    steps: Vec<StoredCheckpoint>,
    line: HashSet<StepId>,
    head: StepId,
}

fn history(workspace: &Workspace<'_>) -> Result<History, Failure> {
    let head = workspace.head()?;
    let line = workspace.ancestry(&head)?.iter().map(|stored| stored.checkpoint.step.id).collect();
    Ok(History { steps: workspace.checkpoints()?, line, head: head.checkpoint.step.id })
}

/// `log`
pub fn log(context: &Context, limit: Option<usize>) -> Answer {
    let engine = context.engine();
    let workspace = context.workspace(&engine)?;
    let History { steps, line, head } = history(&workspace)?;
    let shown = steps.iter().take(limit.unwrap_or(usize::MAX));
    if context.json {
        let items: Vec<_> = shown
            .map(|stored| {
                let mut value = view::checkpoint(stored);
                value["head"] = json!(stored.checkpoint.step.id == head);
                value["rolled_back"] = json!(!line.contains(&stored.checkpoint.step.id));
                value
            })
            .collect();
        output::document(&json!({ "items": items }));
        return DONE;
    }
    let paint = Paint::stdout();
    let now = context.now();
    for stored in shown {
        let step = &stored.checkpoint.step;
        let mark = if step.id == head { "@" } else { " " };
        let rolled = if line.contains(&step.id) { "" } else { "  (rolled back)" };
        output::line(format!(
            "{} {:>5}  {}  {:>12}  {}{}",
            paint.good(mark),
            paint.strong(format!("#{}", step.number)),
            paint.name(step.id.short()),
            paint.dim(step.at.ago(now)),
            view::title(stored),
            paint.note(rolled)
        ));
    }
    DONE
}

/// `timeline`
pub fn timeline(context: &Context) -> Answer {
    let engine = context.engine();
    let workspace = context.workspace(&engine)?;
    let History { steps, line, head } = history(&workspace)?;
    if context.json {
        let items: Vec<_> = steps
            .iter()
            .map(|stored| {
                let mut value = view::checkpoint(stored);
                value["branch"] = json!("main");
                value["active"] = json!(line.contains(&stored.checkpoint.step.id));
                value["head"] = json!(stored.checkpoint.step.id == head);
                value
            })
            .collect();
        output::document(&json!({ "items": items, "head": head }));
        return DONE;
    }
    let paint = Paint::stdout();
    let now = context.now();
    let mut aside = false;
    for stored in &steps {
        let step = &stored.checkpoint.step;
        let active = line.contains(&step.id);
        if aside && active {
            output::line(paint.dim("├─╯"));
        }
        aside = !active;
        let here = step.id == head;
        let lane = match (here, active) {
            (true, _) => format!("{}   ", paint.good("◉")),
            (false, true) => format!("{}   ", paint.strong("●")),
            (false, false) => format!("{} {} ", paint.dim("│"), paint.dim("○")),
        };
        let text = format!("#{:<4} {:>12}  {}", step.number, step.at.ago(now), view::title(stored));
        let text = if active { text } else { paint.dim(text) };
        let note = if here {
            paint.good("  ← you are here")
        } else if active {
            String::new()
        } else {
            paint.dim("  (rolled back)")
        };
        output::line(format!("{lane}{text}{note}"));
    }
    DONE
}

/// `op log`
pub fn op_log(context: &Context) -> Answer {
    let engine = context.engine();
    let workspace = context.workspace(&engine)?;
    let operations = workspace.operations()?;
    if context.json {
        let items: Vec<_> = operations.iter().map(view::operation).collect();
        output::document(&json!({ "items": items }));
        return DONE;
    }
    let paint = Paint::stdout();
    let now = context.now();
    for operation in &operations {
        let status = match (operation.status, operation.undone) {
            (OpStatus::Reverted, _) => "  (failed, reverted)",
            (OpStatus::Applying, _) => "  (unfinished)",
            (OpStatus::Done, true) => "  (undone)",
            (OpStatus::Done, false) => "",
        };
        output::line(format!(
            "{:>4}  {}  {:>12}  {}{}",
            paint.strong(operation.number),
            paint.name(operation.id.short()),
            paint.dim(operation.at.ago(now)),
            operation.summary,
            paint.note(status)
        ));
    }
    DONE
}
