//! Applies plans, and reports what was done.

use axum::extract::State;
use serde_json::json;
use stepback_engine::rewind::RewindReport;
use stepback_engine::{Engine, Workspace};
use stepback_model::ids::OpId;
use stepback_model::plan::SkippedPath;
use stepback_model::record::{Operation, OperationAction};
use stepback_worktree::apply::ChangeOutcome;

use super::plans::{agree, look};
use crate::documents::OperationDocument;
use crate::documents::files::LeftAloneDocument;
use crate::documents::plans::{AppliedDocument, KeptDocument, OutcomeDocument, PlanDocument, UndoDocument};
use crate::extract::{Json, Path, QueryString};
use crate::pagination::{self, Page, Paging};
use crate::plans::PlanKind;
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Returns a rewind plan as it was shown.
#[utoipa::path(get, path = "/rewind-plans/{plan}", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn rewind_plan(
    State(work): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<PlanDocument>, Problem> {
    look(work, PlanKind::Rewind, id).await
}

/// Applies a rewind plan, if it is still what would happen; otherwise nothing is done, and the problem holds the new plan.
#[utoipa::path(post, path = "/rewind-plans/{plan}/apply", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = AppliedDocument), (status = 409, body = Problem), (status = "default", body = Problem)))]
pub async fn rewind(
    State(work): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<AppliedDocument>, Problem> {
    agree(work, PlanKind::Rewind, id).await
}

/// Returns an undo plan as it was shown.
#[utoipa::path(get, path = "/undo-plans/{plan}", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn undo_plan(
    State(work): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<PlanDocument>, Problem> {
    look(work, PlanKind::Undo, id).await
}

/// Applies an undo plan, if it is still what would happen; otherwise nothing is done, and the problem holds the new plan.
#[utoipa::path(post, path = "/undo-plans/{plan}/apply", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = AppliedDocument), (status = 409, body = Problem), (status = "default", body = Problem)))]
pub async fn undo(
    State(work): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<AppliedDocument>, Problem> {
    agree(work, PlanKind::Undo, id).await
}

/// Returns a redo plan as it was shown.
#[utoipa::path(get, path = "/redo-plans/{plan}", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn redo_plan(
    State(work): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<PlanDocument>, Problem> {
    look(work, PlanKind::Redo, id).await
}

/// Applies a redo plan, if it is still what would happen; otherwise nothing is done, and the problem holds the new plan.
#[utoipa::path(post, path = "/redo-plans/{plan}/apply", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = AppliedDocument), (status = 409, body = Problem), (status = "default", body = Problem)))]
pub async fn redo(
    State(work): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<AppliedDocument>, Problem> {
    agree(work, PlanKind::Redo, id).await
}

/// Returns a switch plan as it was shown.
#[utoipa::path(get, path = "/switch-plans/{plan}", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn switch_plan(
    State(work): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<PlanDocument>, Problem> {
    look(work, PlanKind::Switch, id).await
}

/// Applies a switch plan, if it is still what would happen; otherwise nothing is done, and the problem holds the new plan.
#[utoipa::path(post, path = "/switch-plans/{plan}/apply", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = AppliedDocument), (status = 409, body = Problem), (status = "default", body = Problem)))]
pub async fn switch(
    State(work): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<AppliedDocument>, Problem> {
    agree(work, PlanKind::Switch, id).await
}

/// Lists the operations of stepback itself in a workspace, newest first.
#[utoipa::path(get, path = "/workspaces/{workspace}/operations", tag = "plans",
    params(("workspace" = String, Path, description = "The workspace"), Paging),
    responses((status = 200, body = Page<OperationDocument>), (status = "default", body = Problem)))]
pub async fn operations(
    State(work): State<AppState>,
    Path(id): Path<String>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<Page<OperationDocument>>, Problem> {
    let limit = paging.limit()?;
    work.run(move |engine| {
        let workspace = state::workspace(engine, &id)?;
        let about = ("operations", workspace.record.id.to_string());
        let before = paging.position(&about)?;
        let mut all = workspace.operations()?;
        all.retain(|operation| before.is_none_or(|before| operation.number < before));
        all.truncate(usize::try_from(limit + 1).unwrap_or(usize::MAX));
        let number = |operation: &Operation| operation.number;
        Ok(Json(pagination::page(all, limit, &about, number, OperationDocument::of)))
    })
    .await
}

/// The document of an operation that changed files.
pub(super) fn applied(
    engine: &Engine<'_>,
    workspace: &Workspace<'_>,
    report: &RewindReport,
) -> Result<AppliedDocument, Problem> {
    let mut left = report.left_alone.clone();
    let mut items = Vec::with_capacity(report.outcomes.len());
    for (change, outcome) in &report.outcomes {
        let reason = match outcome {
            ChangeOutcome::Done => None,
            ChangeOutcome::LeftAlone(reason) => {
                left.push(SkippedPath::conflict(change.path.clone(), reason.clone()));
                Some(reason.clone())
            }
        };
        items.push(OutcomeDocument {
            path: change.path.display().into_owned(),
            action: change.verb().to_owned(),
            done: reason.is_none(),
            reason,
        });
    }
    Ok(AppliedDocument {
        operation: OperationDocument::stored(engine, &report.operation)?,
        before: Some(report.before),
        after: Some(report.after),
        items,
        partial: left.iter().any(SkippedPath::is_conflict),
        left_alone: left.iter().map(LeftAloneDocument::of).collect(),
        kept: report.kept.iter().map(KeptDocument::of).collect(),
        undo: way_back(workspace, &report.operation),
    })
}

/// The document of an undo or redo that changed only the log.
pub(super) fn reversed(workspace: &Workspace<'_>, operation: OpId) -> Result<AppliedDocument, Problem> {
    let about = |other: &&Operation| matches!(&other.action, OperationAction::Undo { op, .. } | OperationAction::Redo { op, .. } if *op == operation);
    let operations = workspace.operations()?;
    let done = operations.iter().find(about);
    let done = done.ok_or_else(|| Problem::internal("what was done is not on record"))?;
    Ok(AppliedDocument {
        operation: OperationDocument::of(done),
        before: None,
        after: None,
        items: Vec::new(),
        left_alone: Vec::new(),
        kept: Vec::new(),
        partial: false,
        undo: way_back(workspace, done),
    })
}

/// How to undo an operation: an undo is undone by a redo, everything else by an undo.
fn way_back(workspace: &Workspace<'_>, operation: &Operation) -> UndoDocument {
    let (plans, body) = match &operation.action {
        OperationAction::Undo { .. } => ("redo-plans", json!({})),
        OperationAction::Redo { op, .. } => ("undo-plans", json!({ "operation": op })),
        _ => ("undo-plans", json!({ "operation": operation.id })),
    };
    let href = format!("/api/v1/workspaces/{}/{plans}", workspace.record.id);
    UndoDocument { method: "POST".to_owned(), href, body }
}
