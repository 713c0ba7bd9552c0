//! Applies plans, and reports what was done.

use axum::extract::State;
use serde_json::{Value, json};
use stepback_engine::moves::{MoveKind, MoveReport};
use stepback_engine::{Engine, Workspace};
use stepback_model::plan::SkippedPath;
use stepback_model::record::{Operation, OperationAction};

use super::plans::{agree, look};
use crate::documents::OperationDocument;
use crate::documents::files::LeftAloneDocument;
use crate::documents::plans::{AppliedDocument, KeptDocument, OutcomeDocument, PlanDocument, UndoDocument};
use crate::extract::{Json, Path, QueryString};
use crate::pagination::{self, Page, Paging};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Returns a rewind plan as it was shown.
#[utoipa::path(get, path = "/rewind-plans/{plan}", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn rewind_plan(
    State(work): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    look(work, MoveKind::Rewind, id).await
}

/// Applies a rewind plan, if it is still what would happen; otherwise nothing is done, and the problem holds the new plan.
#[utoipa::path(post, path = "/rewind-plans/{plan}/apply", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = AppliedDocument), (status = 409, body = Problem), (status = "default", body = Problem)))]
pub async fn rewind(
    State(work): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<AppliedDocument>, Problem> {
    agree(work, MoveKind::Rewind, id).await
}

/// Returns an undo plan as it was shown.
#[utoipa::path(get, path = "/undo-plans/{plan}", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn undo_plan(State(work): State<AppState>, Path(id): Path<String>) -> Result<Json<Value>, Problem> {
    look(work, MoveKind::Undo, id).await
}

/// Applies an undo plan, if it is still what would happen; otherwise nothing is done, and the problem holds the new plan.
#[utoipa::path(post, path = "/undo-plans/{plan}/apply", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = AppliedDocument), (status = 409, body = Problem), (status = "default", body = Problem)))]
pub async fn undo(
    State(work): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<AppliedDocument>, Problem> {
    agree(work, MoveKind::Undo, id).await
}

/// Returns a redo plan as it was shown.
#[utoipa::path(get, path = "/redo-plans/{plan}", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn redo_plan(State(work): State<AppState>, Path(id): Path<String>) -> Result<Json<Value>, Problem> {
    look(work, MoveKind::Redo, id).await
}

/// Applies a redo plan, if it is still what would happen; otherwise nothing is done, and the problem holds the new plan.
#[utoipa::path(post, path = "/redo-plans/{plan}/apply", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = AppliedDocument), (status = 409, body = Problem), (status = "default", body = Problem)))]
pub async fn redo(
    State(work): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<AppliedDocument>, Problem> {
    agree(work, MoveKind::Redo, id).await
}

/// Returns a switch plan as it was shown.
#[utoipa::path(get, path = "/switch-plans/{plan}", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn switch_plan(
    State(work): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    look(work, MoveKind::Switch, id).await
}

/// Applies a switch plan, if it is still what would happen; otherwise nothing is done, and the problem holds the new plan.
#[utoipa::path(post, path = "/switch-plans/{plan}/apply", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = AppliedDocument), (status = 409, body = Problem), (status = "default", body = Problem)))]
pub async fn switch(
    State(work): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<AppliedDocument>, Problem> {
    agree(work, MoveKind::Switch, id).await
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

/// The document of a move that was made.
pub(super) fn applied(
    engine: &Engine,
    workspace: &Workspace,
    report: &MoveReport,
) -> Result<AppliedDocument, Problem> {
    let mut document = AppliedDocument {
        operation: OperationDocument::stored(engine, report.operation())?,
        before: None,
        after: None,
        items: Vec::new(),
        left_alone: Vec::new(),
        kept: Vec::new(),
        partial: false,
        undo: way_back(workspace, report.operation()),
    };
    if let MoveReport::Files(report) = report {
        let left = report.all_left_alone();
        document.before = Some(report.before);
        document.after = Some(report.after);
        document.items = report.outcomes.iter().map(OutcomeDocument::of).collect();
        document.partial = left.iter().any(SkippedPath::is_conflict);
        document.left_alone = left.iter().map(LeftAloneDocument::of).collect();
        document.kept = report.kept.iter().map(KeptDocument::of).collect();
    }
    Ok(document)
}

/// How to undo an operation: an undo is undone by a redo, everything else by an undo.
fn way_back(workspace: &Workspace, operation: &Operation) -> UndoDocument {
    let (plans, body) = match &operation.action {
        OperationAction::Undo { .. } => ("redo-plans", json!({})),
        OperationAction::Redo { op, .. } => ("undo-plans", json!({ "operation": op })),
        _ => ("undo-plans", json!({ "operation": operation.id })),
    };
    let href = format!("/api/v1/workspaces/{}/{plans}", workspace.record.id);
    UndoDocument { method: "POST".to_owned(), href, body }
}
