//! Moves the workspace in two calls: one shows a plan and changes nothing, the other confirms it by its id.

use serde_json::{Value, json};
use stepback_engine::board::BoardReplacement;
use stepback_engine::kept::{Audience, KeptChange};
use stepback_engine::moves::{Confirmation, MoveAction, MoveRequest, MovingAgent, PlannedMove};
use stepback_engine::rewind::{PreparedRewind, RewindReport};
use stepback_model::plan::SkippedPath;
use stepback_model::record::Session;

use super::rewind::{check_no_other_agents, not_own_session_error};
use super::{Args, Tool, ToolHints, ToolReply, page_limit};
use crate::schema::{boolean, integer, object, string, string_array};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

/// The most paths listed that are left alone or conflict.
const MAX_LISTED_PATHS: usize = 10;
/// The most changes of a board listed.
const MAX_LISTED_BOARD_CHANGES: usize = 20;

/// Refuses a switch of branches, also as an undo or redo, that would affect others.
fn check_allowed(
    context: &ToolContext<'_>,
    session: &Session,
    planned: &PlannedMove,
) -> Result<(), ToolError> {
    if planned.request.merged_branch().is_some() {
        return check_no_other_agents(context, session);
    }
    let (Some(branch), Some(prepared)) = (planned.entered_branch(), &planned.files) else { return Ok(()) };
    check_no_other_agents(context, session)?;
    match context.allow_others {
        true => Ok(()),
        false => check_own_changes(context, branch, prepared, session),
    }
}

/// Refuses a switch that would remove changes of other sessions from the workspace.
fn check_own_changes(
    context: &ToolContext<'_>,
    branch: &str,
    prepared: &PreparedRewind,
    session: &Session,
) -> Result<(), ToolError> {
    let in_the_way = context.workspace.foreign_changes(branch, prepared, session.id)?;
    if in_the_way.is_empty() {
        return Ok(());
    }
    let hidden = in_the_way.len().saturating_sub(MAX_LISTED_PATHS);
    let mut paths: Vec<String> = in_the_way.iter().take(MAX_LISTED_PATHS).map(ToString::to_string).collect();
    if hidden > 0 {
        paths.push(format!("{hidden} more"));
    }
    Err(ToolError::new(format!(
        "branch {branch} differs in files that others changed since: {}",
        paths.join(", ")
    ))
    .with_hint("take back only your own changes with rewind_plan; the user can switch with \"stepback branch switch\""))
}

/// Plans what was asked, shows the plan, and keeps it until it is confirmed.
pub(super) fn show_plan(
    context: &ToolContext<'_>,
    args: &Args,
    session: &Session,
    action: MoveAction,
) -> Result<ToolReply, ToolError> {
    let request = MoveRequest {
        action,
        agent: Some(MovingAgent { session: session.id, own_only: !context.allow_others }),
        board: args.flag("reasoning").then_some(session.id),
        force: false,
    };
    show_plan_of(context, args, session, &request)
}

/// Plans a request, shows the plan, and keeps it until it is confirmed.
pub(super) fn show_plan_of(
    context: &ToolContext<'_>,
    args: &Args,
    session: &Session,
    request: &MoveRequest,
) -> Result<ToolReply, ToolError> {
    let planned = context.workspace.plan_move(request)?;
    check_allowed(context, session, &planned)?;
    context.workspace.save_plan(&planned, Value::Null)?;
    Ok(plan_reply(&planned, page_limit(args, 30)))
}

/// What is left alone: paths that conflict with later changes, and changes of other sessions.
fn describe_skipped(items: &[SkippedPath], kept: &[KeptChange]) -> Vec<String> {
    let conflicts = items.iter().filter(|item| item.is_conflict());
    let mut stays: Vec<String> =
        conflicts.take(MAX_LISTED_PATHS).map(|item| format!("{}: {}", item.path, item.reason)).collect();
    let author_line =
        |item: &KeptChange| format!("{}: changed by {}", item.path, item.author.name(Audience::Agent));
    stays.extend(kept.iter().take(MAX_LISTED_PATHS).map(author_line));
    if kept.len() > MAX_LISTED_PATHS {
        stays.push(format!("{} more changes of others", kept.len() - MAX_LISTED_PATHS));
    }
    stays
}

fn plan_reply(planned: &PlannedMove, max_paths: usize) -> ToolReply {
    let PlannedMove { id, summary, files, merged_board, .. } = planned;
    let prepared = files.as_ref();
    let all = prepared.map_or(&[][..], |prepared| &prepared.plan.changes);
    let changes: Vec<String> =
        all.iter().take(max_paths).map(|change| format!("{} {}", change.verb(), change.path)).collect();
    let hidden = all.len().saturating_sub(max_paths);
    let skipped = prepared
        .map_or_else(Vec::new, |prepared| describe_skipped(&prepared.plan.left_alone, &prepared.kept));
    let mut warnings = prepared.map_or_else(Vec::new, |prepared| prepared.warnings.clone());
    let mut lines = vec![format!("Plan {id}: {summary}")];
    lines.extend(changes.iter().map(|change| format!("  {change}")));
    let mut structured = json!({ "plan": id, "summary": summary, "changes": changes });
    if all.is_empty() {
        lines.push("  no file changes".to_owned());
        let reason = prepared.and_then(|prepared| prepared.unchanged_because.as_deref());
        warnings.extend(reason.map(|reason| format!("no file changes: {reason}")));
    }
    if let Some(merged) = merged_board {
        let sentences = merged.conflicts.iter().map(|found| format!("conflict: {}", found.sentence));
        let changes = merged.diff.changes.iter().map(|change| change.sentence.clone());
        let board: Vec<String> = sentences.chain(changes).take(MAX_LISTED_BOARD_CHANGES).collect();
        lines.extend(board.iter().map(|sentence| format!("  board: {sentence}")));
        structured["board"] = json!(board);
    }
    if hidden > 0 {
        structured["changes_more"] = json!(hidden);
        lines.push(format!("  … and {hidden} more"));
    }
    if !skipped.is_empty() {
        lines.extend(skipped.iter().map(|item| format!("  skipped: {item}")));
        structured["left_alone"] = json!(skipped);
    }
    if !warnings.is_empty() {
        lines.extend(warnings.iter().map(|warning| format!("  warning: {warning}")));
        structured["warnings"] = json!(warnings);
    }
    ToolReply { text: lines.join("\n"), structured }
}

/// The schema of [`shown`].
pub(super) fn plan_schema() -> serde_json::Value {
    object(
        &[
            ("plan", string("For rewind_apply")),
            ("summary", string("")),
            ("changes", string_array("Of files")),
            ("changes_more", integer("Not listed")),
            ("left_alone", string_array("Skipped paths, with reasons")),
            ("board", string_array("What changes on the board; conflicts first")),
            ("warnings", string_array("")),
        ],
        &["plan", "summary", "changes"],
    )
}

pub(super) fn apply_tool() -> Tool {
    Tool {
        name: "rewind_apply",
        title: "Apply a plan",
        description: "Applies a plan of rewind_plan, switch_plan, merge_plan or undo_plan, if it is still valid. The current state is saved first; undo_plan reverts it.",
        input: object(
            &[("plan", string("Its id")), ("force", boolean("Replace open databases too"))],
            &["plan"],
        ),
        output: object(
            &[
                ("summary", string("")),
                ("done", integer("Files that were changed")),
                ("operation", integer("For undo_plan")),
                ("before", integer("The step with the previous state")),
                ("after", integer("The step that was reached")),
                ("left_alone", string_array("Skipped paths, with reasons")),
                ("board", string_array("What changed on the board")),
            ],
            &["summary", "done"],
        ),
        hints: ToolHints { read_only: false, destructive: true, idempotent: false, open_world: false },
        is_slow: false,
        creates_workspace: false,
        run: apply_plan,
    }
}

fn apply_plan(context: &ToolContext<'_>, args: &Args) -> Result<ToolReply, ToolError> {
    let id = args.require_text("plan")?;
    let workspace = context.workspace;
    let unknown = || {
        let clipped_id: String = id.chars().take(40).collect();
        ToolError::new(format!("unknown plan \"{clipped_id}\"")).with_hint(
            "make one with rewind_plan, switch_plan, merge_plan or undo_plan; plans are kept for a day",
        )
    };
    let shown_here = workspace
        .engine
        .load_shown_plan(id)?
        .filter(|shown_plan| shown_plan.workspace == workspace.record.id);
    let mut shown_plan = shown_here.ok_or_else(unknown)?;
    // A plan without an agent was shown to the user.
    let agent = shown_plan.request.agent.as_mut().ok_or_else(unknown)?;
    agent.own_only = !context.allow_others;
    let own_session = context.own_session()?;
    let session = workspace.store().session(agent.session)?.ok_or_else(unknown)?;
    if session.id != own_session.id && !context.allow_others {
        return Err(not_own_session_error(&session, &own_session));
    }
    let (mut planned, is_same) = match workspace.confirm_move(&shown_plan)? {
        Confirmation::Same(planned) => (planned, true),
        Confirmation::Changed(planned) => (planned, false),
    };
    check_allowed(context, &session, &planned)?;
    if !is_same {
        workspace.save_plan(&planned, Value::Null)?;
        return Err(ToolError::new(format!(
            "the workspace changed since the plan was made, so nothing was done; the new plan is:\n{}",
            plan_reply(&planned, 30).text
        ))
        .with_hint("review it and call rewind_apply with its id"));
    }
    // The plan listed these paths as left alone, with the reason.
    if args.flag("force") {
        planned.force();
    }
    if planned.is_empty() {
        return Err(ToolError::new(format!("the plan changes nothing{}", planned.reason_unchanged())));
    }
    let summary = planned.summary.clone();
    let report = workspace.apply_move(planned)?.into_files();
    workspace.engine.delete_plan(id)?;
    Ok(report_reply(&summary, report.as_ref()))
}

/// The reply after applying a plan.
fn report_reply(summary: &str, report: Option<&RewindReport>) -> ToolReply {
    let Some(report) = report else {
        let text = format!("Done: {summary}. No file changed.");
        return ToolReply { text, structured: json!({ "summary": summary, "done": 0 }) };
    };
    let applied = report.outcomes.len() - report.conflicts().len();
    let left_alone = describe_skipped(&report.all_left_alone(), &report.kept);
    let mut lines =
        vec![format!("Done: {summary}. {applied} paths changed; #{} has the previous state.", report.before)];
    let mut structured = json!({
        "summary": summary,
        "done": applied,
        "operation": report.operation.number,
        "before": report.before,
        "after": report.after,
    });
    if !left_alone.is_empty() {
        lines.extend(left_alone.iter().map(|item| format!("  skipped: {item}")));
        structured["left_alone"] = json!(left_alone);
    }
    if let Some(BoardReplacement { diff, .. }) = &report.board {
        let messages: Vec<&String> =
            diff.changes.iter().map(|change| &change.sentence).take(MAX_LISTED_BOARD_CHANGES).collect();
        lines.extend(messages.iter().map(|sentence| format!("  board: {sentence}")));
        structured["board"] = json!(messages);
    }
    ToolReply { text: lines.join("\n"), structured }
}
