//! Applies plans, and reports what was done.

use axum::extract::State;
use serde_json::Value;
use stepback_api::operations::OperationDocument;
use stepback_api::page::Page;
use stepback_api::plans::{AppliedPlanDocument, PlanDocument};
use stepback_engine::moves::MoveKind;
use stepback_model::record::Operation;

use super::plans::{apply_plan, get_plan};
use crate::extract::{Json, Path, QueryString};
use crate::pagination::{self, Paging};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Returns a rewind plan as it was shown.
#[utoipa::path(get, path = "/rewind-plans/{plan}", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn get_rewind_plan(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    get_plan(state, MoveKind::Rewind, id).await
}

/// Applies a rewind plan, if it is still what would happen; otherwise nothing is done, and the problem holds the new plan.
#[utoipa::path(post, path = "/rewind-plans/{plan}/apply", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = AppliedPlanDocument), (status = 409, body = Problem), (status = "default", body = Problem)))]
pub async fn rewind(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<AppliedPlanDocument>, Problem> {
    apply_plan(state, MoveKind::Rewind, id).await
}

/// Returns an undo plan as it was shown.
#[utoipa::path(get, path = "/undo-plans/{plan}", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn get_undo_plan(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    get_plan(state, MoveKind::Undo, id).await
}

/// Applies an undo plan, if it is still what would happen; otherwise nothing is done, and the problem holds the new plan.
#[utoipa::path(post, path = "/undo-plans/{plan}/apply", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = AppliedPlanDocument), (status = 409, body = Problem), (status = "default", body = Problem)))]
pub async fn undo(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<AppliedPlanDocument>, Problem> {
    apply_plan(state, MoveKind::Undo, id).await
}

/// Returns a redo plan as it was shown.
#[utoipa::path(get, path = "/redo-plans/{plan}", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn get_redo_plan(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    get_plan(state, MoveKind::Redo, id).await
}

/// Applies a redo plan, if it is still what would happen; otherwise nothing is done, and the problem holds the new plan.
#[utoipa::path(post, path = "/redo-plans/{plan}/apply", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = AppliedPlanDocument), (status = 409, body = Problem), (status = "default", body = Problem)))]
pub async fn redo(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<AppliedPlanDocument>, Problem> {
    apply_plan(state, MoveKind::Redo, id).await
}

/// Returns a switch plan as it was shown.
#[utoipa::path(get, path = "/switch-plans/{plan}", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn get_switch_plan(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    get_plan(state, MoveKind::Switch, id).await
}

/// Applies a switch plan, if it is still what would happen; otherwise nothing is done, and the problem holds the new plan.
#[utoipa::path(post, path = "/switch-plans/{plan}/apply", tag = "plans", params(("plan" = String, Path, description = "Its id")),
    responses((status = 200, body = AppliedPlanDocument), (status = 409, body = Problem), (status = "default", body = Problem)))]
pub async fn switch(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<AppliedPlanDocument>, Problem> {
    apply_plan(state, MoveKind::Switch, id).await
}

/// Lists the operations of stepback itself in a workspace, newest first.
#[utoipa::path(get, path = "/workspaces/{workspace}/operations", tag = "plans",
    params(("workspace" = String, Path, description = "The workspace"), Paging),
    responses((status = 200, body = Page<OperationDocument>), (status = "default", body = Problem)))]
pub async fn list_operations(
    State(state): State<AppState>,
    Path(id): Path<String>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<Page<OperationDocument>>, Problem> {
    let limit = paging.limit()?;
    state
        .run(move |engine| {
            let workspace = state::find_workspace(engine, &id)?;
            let about = ("operations", workspace.record.id.to_string());
            let before = paging.start_position(&about)?;
            let mut all = workspace.operations()?;
            all.retain(|operation| before.is_none_or(|before| operation.number < before));
            all.truncate(usize::try_from(limit + 1).unwrap_or(usize::MAX));
            let number = |operation: &Operation| operation.number;
            Ok(Json(pagination::paginate(all, limit, &about, number, OperationDocument::from_operation)))
        })
        .await
}
