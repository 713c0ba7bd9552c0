//! `stepback log`, `stepback timeline` and `stepback op log`

use std::collections::{HashMap, HashSet};

use serde_json::json;
use stepback_engine::{EngineError, Workspace};
use stepback_model::ids::StepId;
use stepback_model::record::{OpStatus, StepKind};
use stepback_store::port::{Query, StoredCheckpoint};

use super::{Answer, DONE, view};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, Paint};

/// Steps with where they stand: newest first, the steps of the present line, and the head.
struct History {
    steps: Vec<StoredCheckpoint>,
    line: HashSet<StepId>,
    /// Steps that only other branches have.
    elsewhere: HashMap<StepId, String>,
    branch: String,
    head: StepId,
}

fn history(workspace: &Workspace<'_>) -> Result<History, Failure> {
    let head = workspace.head()?;
    let line: HashSet<StepId> =
        workspace.ancestry(&head)?.iter().map(|stored| stored.checkpoint.step.id).collect();
    let mut elsewhere = HashMap::new();
    for branch in workspace.branches()?.iter().filter(|branch| !branch.present) {
        let steps = workspace.ancestry(&branch.tip)?.into_iter().map(|stored| stored.checkpoint.step.id);
        elsewhere.extend(steps.filter(|step| !line.contains(step)).map(|step| (step, branch.name.clone())));
    }
    let (steps, branch) = (workspace.checkpoints()?, workspace.present_branch()?);
    Ok(History { steps, line, elsewhere, branch, head: head.checkpoint.step.id })
}

/// `log`
pub fn log(context: &Context, limit: Option<usize>, session: Option<&str>, kinds: &[String]) -> Answer {
    let kinds = super::sessions::kinds(kinds)?;
    let engine = context.engine();
    let workspace = context.workspace(&engine)?;
    let session = session.map(|text| workspace.find_session(text)).transpose()?;
    let head = workspace.head_id()?;
    let query = Query { session: session.map(|session| session.id), kinds, ..Query::default() };
    let mut steps = workspace.store().steps(workspace.record.id, &query).map_err(EngineError::from)?;
    steps.retain(|stored| stored.checkpoint.hidden_by.is_none());
    let rolled_back = workspace.lines()?;
    let is_head = |stored: &StoredCheckpoint| Some(stored.checkpoint.step.id) == head;
    let shown = steps.iter().take(limit.unwrap_or(usize::MAX));
    if context.json {
        let items: Vec<_> = shown
            .map(|stored| {
                let mut value = view::step(stored);
                value["head"] = json!(is_head(stored));
                value["rolled_back"] = json!(rolled_back.left_behind(stored));
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
        let mark = if is_head(stored) { "@" } else { " " };
        let rolled = if rolled_back.left_behind(stored) { "  (rolled back)" } else { "" };
        let kind = match stored.checkpoint.trigger {
            Some(_) if step.facts.tool.is_none() => String::new(),
            _ => format!("{}: ", step.kind.as_str()),
        };
        let failed = if step.facts.failed { paint.bad("  failed") } else { String::new() };
        output::line(format!(
            "{} {:>5}  {}  {:>12}  {}{}{failed}{}",
            paint.good(mark),
            paint.strong(format!("#{}", step.number)),
            paint.name(step.id.short()),
            paint.dim(step.at.ago(now)),
            paint.dim(kind),
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
    let History { steps, line, elsewhere, branch, head } = history(&workspace)?;
    if context.json {
        let items: Vec<_> = steps
            .iter()
            .map(|stored| {
                let mut value = view::checkpoint(stored);
                let on_line = line.contains(&stored.checkpoint.step.id).then_some(&branch);
                value["branch"] = json!(on_line.or_else(|| elsewhere.get(&stored.checkpoint.step.id)));
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
        let side = match step.kind {
            StepKind::ToolStart => "before ",
            StepKind::ToolEnd => "after ",
            _ => "",
        };
        let text = format!("#{:<4} {:>12}  {side}{}", step.number, step.at.ago(now), view::title(stored));
        let text = if active { text } else { paint.dim(text) };
        let note = if here {
            paint.good("  ← you are here")
        } else if active {
            String::new()
        } else if let Some(name) = elsewhere.get(&step.id) {
            paint.dim(format!("  (branch {name})"))
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
        let by = operation.action.moved().and_then(|moved| moved.by);
        let by = match by.map(|by| workspace.store().session(by)).transpose()?.flatten() {
            Some(session) => format!("  (by {} {})", session.agent, session.id.short()),
            None => String::new(),
        };
        output::line(format!(
            "{:>4}  {}  {:>12}  {}{}{}",
            paint.strong(operation.number),
            paint.name(operation.id.short()),
            paint.dim(operation.at.ago(now)),
            operation.summary,
            paint.dim(by),
            paint.note(status)
        ));
    }
    DONE
}
