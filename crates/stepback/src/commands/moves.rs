//! Shows a planned move, asks for confirmation and applies it: the commands `stepback undo`, `stepback redo` and
//! `stepback rewind --plan`, and the part of every other move that they share.

use serde_json::{Value, json};
use stepback_engine::moves::{Confirmation, MoveAction, MoveKind, MoveRequest, PlannedMove};
use stepback_engine::{Workspace, diff};
use stepback_model::record::{Operation, OperationAction};

use super::confirmation::ask_user;
use super::rewind::{plan_document, print_plan, print_report, report_nothing_to_do};
use super::{CommandResult, DONE, board};
use crate::args::ConfirmArgs;
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Runs `stepback undo`.
pub fn undo(context: &Context, operation: Option<&str>, arguments: &ConfirmArgs) -> CommandResult {
    let workspace = context.open_workspace()?;
    let operation = operation.map(|text| workspace.find_operation(text)).transpose();
    let operation = operation
        .map_err(|error| CommandFailure::from(error).with_hint("\"stepback op log\" lists the operations"))?;
    let request =
        MoveRequest { force: arguments.force, ..MoveRequest::from_user(MoveAction::Undo { operation }) };
    confirm_and_apply(context, &workspace, workspace.plan_move(&request)?, arguments)
}

/// Runs `stepback redo`.
pub fn redo(context: &Context, arguments: &ConfirmArgs) -> CommandResult {
    let workspace = context.open_workspace()?;
    let request = MoveRequest { force: arguments.force, ..MoveRequest::from_user(MoveAction::Redo) };
    confirm_and_apply(context, &workspace, workspace.plan_move(&request)?, arguments)
}

/// Shows a plan, asks for confirmation, applies it, and prints what was done.
pub fn confirm_and_apply(
    context: &Context,
    workspace: &Workspace,
    planned: PlannedMove,
    arguments: &ConfirmArgs,
) -> CommandResult {
    if planned.files.is_none() {
        return apply_without_files(context, workspace, planned, arguments);
    }
    let kind = planned.request.action.kind();
    let Some(planned) = confirm_plan(context, workspace, planned, arguments)? else { return DONE };
    let shows_board = planned.request.board.is_some() && planned.merged_board.is_none();
    let Some(mut report) = workspace.apply_move(planned)?.into_files() else { return DONE };
    // The plan of a merge showed what changes on the board.
    if shows_board && !context.json {
        board::print_moved_board(context, report.board.take())?;
    }
    print_report(context, workspace, report, kind, None)
}

/// Undoes or redoes an operation that changed no file.
fn apply_without_files(
    context: &Context,
    workspace: &Workspace,
    planned: PlannedMove,
    arguments: &ConfirmArgs,
) -> CommandResult {
    let (kind, summary) = (planned.request.action.kind(), planned.summary.clone());
    let operation = planned.operation.clone();
    let is_created =
        |operation: &Operation| matches!(operation.action, OperationAction::CheckpointCreate { .. });
    let removes_checkpoint = kind == MoveKind::Undo && operation.as_ref().is_some_and(is_created);
    if removes_checkpoint
        && !(arguments.dry_run || arguments.yes || arguments.force)
        && let Some(changed) = describe_changed_files(workspace)?
        && !ask_to_remove_checkpoint(context, &summary, &changed)?
    {
        return DONE;
    }
    if !arguments.dry_run {
        workspace.apply_move(planned)?;
    }
    if context.json {
        output::print_document(&json!({
            "id": operation.map(|operation| operation.id), "summary": summary, "applied": !arguments.dry_run,
            "items": [], "left_alone": []
        }));
        return DONE;
    }
    let done = if arguments.dry_run { "Planned" } else { "Done" };
    output::print_line(format!("{done}: {summary}; no files changed"));
    let other = kind.reversal_kind().name();
    output::print_status(Paint::stderr().dim(format!("\"stepback {other}\" reverses this.")));
    if removes_checkpoint {
        output::print_status(
            "To take back changes of the files instead: \"stepback redo\", then \"stepback rewind @\".",
        );
    }
    DONE
}

/// Returns how many files differ from the newest checkpoint, in words; `None` if all are as they were.
fn describe_changed_files(workspace: &Workspace) -> Result<Option<String>, CommandFailure> {
    let _lock = workspace.lock_shared()?;
    let last = workspace.load_state(&workspace.head()?)?;
    let present = workspace.scan_for_display()?.state;
    let changes = diff::compare_visible_files(workspace.store(), &last, &present)?;
    Ok((!changes.is_empty()).then(|| output::count(changes.len() as u64, "changed path")))
}

/// Asks before a checkpoint is removed while files differ from it: the user may have expected that the files go back.
fn ask_to_remove_checkpoint(context: &Context, summary: &str, changed: &str) -> Result<bool, CommandFailure> {
    let refusal = CommandFailure::new(
        FailureKind::Refused,
        format!("confirmation required: this would {summary} and leave {changed} as they are"),
    )
    .with_hint("\"stepback rewind @\" takes back the changes of the files; --yes removes the checkpoint");
    if !context.json {
        output::print_status(format!(
            "This undoes the newest operation ({summary}) and leaves {changed} as they are; \"stepback rewind @\" takes those back."
        ));
    }
    ask_user(context.json, "Remove the checkpoint?", refusal)
}

/// Shows the plan and asks for confirmation. Returns `None` if nothing is to be done and everything was printed.
pub fn confirm_plan(
    context: &Context,
    workspace: &Workspace,
    planned: PlannedMove,
    arguments: &ConfirmArgs,
) -> Result<Option<PlannedMove>, CommandFailure> {
    let agreed = show_and_ask(context, planned, arguments)?;
    if agreed.is_some() {
        // Hook events that arrived while the user read the plan happened before this operation.
        stepback_agents::record::record_inbox_if_free(workspace)?;
    }
    Ok(agreed)
}

fn show_and_ask(
    context: &Context,
    mut planned: PlannedMove,
    arguments: &ConfirmArgs,
) -> Result<Option<PlannedMove>, CommandFailure> {
    let Some(prepared) = &planned.files else { return Ok(Some(planned)) };
    if arguments.dry_run {
        if context.json {
            let mut document = plan_document(prepared);
            if let Some(merged) = &planned.merged_board {
                document["board"] = json!(merged);
            }
            output::print_document(&document);
        } else {
            print_plan(context, prepared, planned.merged_board.as_ref(), true);
            output::print_status("Nothing was changed (dry run).");
        }
        return Ok(None);
    }
    let needs_no_question = arguments.yes || arguments.force || prepared.plan.changes.len() <= 1;
    if context.json {
        return match needs_no_question {
            true => Ok(Some(planned)),
            false => Err(CommandFailure::new(
                FailureKind::Refused,
                "confirmation required: several files would change",
            )
            .with_hint("add --yes to confirm, or --dry-run to only show the plan")),
        };
    }
    print_plan(context, prepared, planned.merged_board.as_ref(), false);
    if needs_no_question {
        return Ok(Some(planned));
    }
    planned.release_lock();
    let refusal = CommandFailure::new(
        FailureKind::Refused,
        "confirmation required: several files would change, and standard input is not a terminal",
    )
    .with_hint("add --yes to confirm, or --dry-run to only show the plan");
    Ok(ask_user(false, "Continue?", refusal)?.then_some(planned))
}

/// Applies a plan that a server showed, to the user or to an agent.
pub fn apply_shown_plan(
    context: &Context,
    workspace: &Workspace,
    id: &str,
    arguments: &ConfirmArgs,
) -> CommandResult {
    let shown = workspace.engine.load_shown_plan(id)?.filter(|shown| shown.workspace == workspace.record.id);
    let shown = shown.ok_or_else(|| {
        CommandFailure::new(FailureKind::Nothing, format!("this workspace has no plan {id}"))
            .with_hint("plans are kept for a day; plan again")
    })?;
    let mut planned = match workspace.confirm_move(&shown)? {
        Confirmation::Same(planned) => planned,
        Confirmation::Changed(planned) => {
            if let Some(prepared) = planned.files.as_ref().filter(|_| !context.json) {
                print_plan(context, prepared, planned.merged_board.as_ref(), false);
            }
            workspace.save_plan(&planned, Value::Null)?;
            let what = "the workspace changed since the plan was made; nothing was done";
            let hint = format!("\"stepback rewind --plan {}\" applies the new plan", planned.id);
            return Err(CommandFailure::new(FailureKind::Refused, what).with_hint(hint));
        }
    };
    if arguments.force {
        planned.force();
    }
    if let Some(prepared) = planned.files.as_ref().filter(|_| planned.is_empty()) {
        return report_nothing_to_do(context, prepared, planned.merged_board.as_ref(), arguments.dry_run);
    }
    let applied = confirm_and_apply(context, workspace, planned, arguments)?;
    if !arguments.dry_run {
        workspace.engine.delete_plan(id)?;
    }
    Ok(applied)
}
