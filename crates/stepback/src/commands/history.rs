//! The commands `stepback log`, `stepback timeline` and `stepback op log`.

mod graph;

use std::collections::{HashMap, HashSet};

use serde_json::json;
use stepback_analysis::anomalies::Anomaly;
use stepback_api::steps::StepDocument;
use stepback_engine::path_filter::PathFilter;
use stepback_engine::{EngineError, Workspace};
use stepback_history::checkpoint_graph::{CheckpointNode, checkpoint_graph};
use stepback_model::change::PathChange;
use stepback_model::ids::StepId;
use stepback_model::record::{OpStatus, Session, StepKind};
use stepback_store::port::{StepQuery, StepRow};

use self::graph::{GraphStep, Lanes};
use super::{CommandResult, DONE, anomalies, documents, titles};
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Which steps to list.
pub struct LogQuery<'a> {
    /// Only steps of the current line that changed these paths; all steps if empty.
    pub paths: &'a [String],
    /// At most so many.
    pub limit: Option<usize>,
    /// Only steps of this session.
    pub session: Option<&'a str>,
    /// Only steps of these kinds; all kinds if empty.
    pub kinds: &'a [String],
}

/// Runs `stepback log`.
pub fn log(context: &Context, wanted: &LogQuery<'_>) -> CommandResult {
    let kinds = super::sessions::parse_kinds(wanted.kinds)?;
    let workspace = context.open_workspace()?;
    let session = wanted.session.map(|text| workspace.find_session(text)).transpose()?;
    let changed = match wanted.paths {
        [] => None,
        paths => Some(find_steps_that_changed(context, &workspace, paths)?),
    };
    let head = workspace.head_id()?;
    let query = StepQuery {
        session: session.map(|session| session.id),
        kinds,
        hidden: Some(false),
        limit: wanted.limit.filter(|_| changed.is_none()).map(|limit| limit as u64),
        ..StepQuery::default()
    };
    let mut steps = workspace.store().steps(workspace.record.id, &query).map_err(EngineError::from)?;
    if let Some(changed) = &changed {
        steps.retain(|stored| changed.contains(&stored.step.id));
        steps.truncate(wanted.limit.unwrap_or(usize::MAX));
    }
    let rolled_back = workspace.load_lines()?;
    let is_head = |stored: &StepRow| Some(stored.step.id) == head;
    let shown = steps.iter();
    if context.json {
        let items: Vec<_> = shown
            .map(|stored| {
                let mut value = documents::step(stored);
                value["head"] = json!(is_head(stored));
                value["rolled_back"] = json!(rolled_back.is_rolled_back(stored));
                value
            })
            .collect();
        output::print_document(&json!({ "items": items }));
        return DONE;
    }
    let paint = Paint::stdout();
    let now = context.now();
    for stored in shown {
        let step = &stored.step;
        let mark = if is_head(stored) { "@" } else { " " };
        let rolled = if rolled_back.is_rolled_back(stored) { "  (rolled back)" } else { "" };
        let kind = match stored.trigger {
            Some(_) if step.meta.tool.is_none() => String::new(),
            _ => format!("{}: ", step.kind.as_str()),
        };
        let failed = if step.meta.failed { paint.bad("  failed") } else { String::new() };
        output::print_line(format!(
            "{} {:>5}  {}  {:>12}  {}{}{failed}{}",
            paint.good(mark),
            paint.strong(format!("#{}", step.number)),
            paint.name(step.id.short()),
            paint.dim(step.at.ago(now)),
            paint.dim(kind),
            titles::step_title(stored),
            paint.note(rolled)
        ));
    }
    DONE
}

/// Returns the steps of the current line that changed one of the paths.
fn find_steps_that_changed(
    context: &Context,
    workspace: &Workspace,
    paths: &[String],
) -> Result<HashSet<StepId>, CommandFailure> {
    let named: Vec<String> = paths.iter().map(|path| context.to_workspace_path(workspace, path)).collect();
    let filter = PathFilter::new(&named)?;
    let _lock = workspace.lock_shared()?;
    let changes = workspace.numbered_changes(None)?;
    let is_named = |change: &PathChange| {
        filter.matches(&change.path) || change.from.as_ref().is_some_and(|from| filter.matches(from))
    };
    let found: HashSet<StepId> = changes
        .iter()
        .filter(|numbered| is_named(&numbered.change))
        .filter_map(|numbered| numbered.step.map(|(id, _)| id))
        .collect();
    // A path that never was there is a mistake; one that never changed has an empty list.
    let exists = |path: &String| context.directory.join(path).symlink_metadata().is_ok();
    if found.is_empty() && !paths.iter().any(exists) {
        let what = format!("no recorded step of the current line changed {}", paths.join(", "));
        return Err(CommandFailure::new(FailureKind::Nothing, what)
            .with_hint("paths are relative to where you are; \"stepback search NAME\" finds names"));
    }
    Ok(found)
}

/// Keeps the items whose step belongs to a session: its own, and those of the user while it was at work.
pub fn retain_of_session<T>(
    workspace: &Workspace,
    items: &mut Vec<T>,
    session: &Session,
    row: impl Fn(&T) -> &StepRow,
) -> Result<(), CommandFailure> {
    let mut kept = Vec::with_capacity(items.len());
    for item in items.drain(..) {
        let stored = row(&item);
        let is_users = stored.step.session == workspace.session.id;
        let is_at_work =
            |session: &Session, at_work: &[Session]| at_work.iter().any(|one| one.id == session.id);
        let belongs = stored.step.session == session.id
            || is_users && is_at_work(session, &workspace.sessions_at_work(stored)?);
        if belongs {
            kept.push(item);
        }
    }
    *items = kept;
    Ok(())
}

/// Leaves out of a graph the checkpoints that do not belong to a session. What followed one of them follows the nearest one before
/// it that is left.
fn retain_nodes_of_session(
    workspace: &Workspace,
    nodes: &mut Vec<CheckpointNode>,
    session: &Session,
) -> Result<(), CommandFailure> {
    let before: HashMap<StepId, Option<(StepId, u64)>> =
        nodes.iter().map(|node| (node.stored.step.id, node.follows)).collect();
    retain_of_session(workspace, nodes, session, |node| &node.stored)?;
    let left: HashSet<StepId> = nodes.iter().map(|node| node.stored.step.id).collect();
    for node in nodes {
        while let Some((id, _)) = node.follows.filter(|(id, _)| !left.contains(id)) {
            node.follows = before.get(&id).copied().flatten();
        }
    }
    Ok(())
}

/// Returns what is unusual from each checkpoint on until the next one. An incident is marked where it begins; it may begin at a step
/// that is no checkpoint.
fn anomaly_marks(found: &[Anomaly], nodes: &[CheckpointNode]) -> HashMap<StepId, String> {
    let mut checkpoints: Vec<(u64, StepId)> =
        nodes.iter().map(|node| (node.stored.step.number, node.stored.step.id)).collect();
    checkpoints.sort_unstable();
    let mut marks: HashMap<StepId, String> = HashMap::new();
    for anomaly in found.iter().rev() {
        let first = anomaly.steps.first().copied().unwrap_or(anomaly.last);
        let until = checkpoints.partition_point(|(number, _)| *number <= first);
        let Some((_, id)) = checkpoints.get(until.saturating_sub(1)) else { continue };
        let mark = format!("{} #{first}–#{}", anomaly.kind, anomaly.last);
        let all = marks.entry(*id).or_default();
        if !all.is_empty() {
            all.push_str(", ");
        }
        all.push_str(&mark);
    }
    marks
}

/// Runs `stepback timeline`.
pub fn timeline(context: &Context, session: Option<&str>) -> CommandResult {
    let workspace = context.open_workspace()?;
    let head = workspace.head()?.step.id;
    let mut nodes = checkpoint_graph(&workspace)?;
    if let Some(session) = session {
        let session = workspace.find_session(session)?;
        retain_nodes_of_session(&workspace, &mut nodes, &session)?;
    }
    if context.json {
        let items: Vec<_> = nodes
            .iter()
            .map(|node| {
                let mut value = json!(StepDocument::from_row(&node.stored));
                value["branch"] = json!(node.branch);
                value["active"] = json!(node.is_on_line);
                value["rolled_back"] = json!(node.is_rolled_back);
                value["follows"] = json!(node.follows.map(|(_, number)| number));
                value["head"] = json!(node.stored.step.id == head);
                value
            })
            .collect();
        output::print_document(&json!({ "items": items, "head": head }));
        return DONE;
    }
    let paint = Paint::stdout();
    let now = context.now();
    let marks = anomaly_marks(&anomalies::find_marks(context, &workspace), &nodes);
    let drawn: Vec<GraphStep<StepId>> = nodes
        .iter()
        .map(|node| {
            let (step, is_present) = (node.stored.step.id, node.is_on_line);
            let glyph = if step == head { '◉' } else { ['○', '●'][usize::from(is_present)] };
            GraphStep { step, before: node.follows.map(|(id, _)| id), is_present, glyph }
        })
        .collect();
    for (node, Lanes { joins, row: (left, glyph, right), merge }) in nodes.iter().zip(graph::draw(&drawn)) {
        let (stored, step) = (&node.stored, &node.stored.step);
        let (active, here) = (node.is_on_line, step.id == head);
        let glyph = match (here, active) {
            (true, _) => paint.good(glyph),
            (false, true) => paint.strong(glyph),
            (false, false) => paint.dim(glyph),
        };
        let side = match step.kind {
            StepKind::ToolStart => "before ",
            StepKind::ToolEnd => "after ",
            _ => "",
        };
        let text =
            format!("#{:<4} {:>12}  {side}{}", step.number, step.at.ago(now), titles::step_title(stored));
        let text = if active { text } else { paint.dim(text) };
        let note = match &node.branch {
            _ if here => paint.good("  ← you are here"),
            _ if active => String::new(),
            Some(name) => paint.dim(format!("  (branch {name})")),
            None => paint.dim("  (rolled back)"),
        };
        let mark = marks.get(&step.id).map_or_else(String::new, |mark| paint.bad(format!("  ! {mark}")));
        joins.into_iter().for_each(|joins| output::print_line(paint.dim(joins)));
        output::print_line(format!("{}{glyph} {}{text}{mark}{note}", paint.dim(left), paint.dim(right)));
        merge.into_iter().for_each(|merge| output::print_line(paint.dim(merge)));
    }
    DONE
}

/// Runs `stepback op log`.
pub fn op_log(context: &Context) -> CommandResult {
    let workspace = context.open_workspace()?;
    let operations = workspace.operations()?;
    if context.json {
        let items: Vec<_> = operations.iter().map(documents::operation).collect();
        output::print_document(&json!({ "items": items }));
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
        output::print_line(format!(
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
