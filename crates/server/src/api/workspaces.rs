//! Workspaces: the directory trees that agents work in.

use axum::extract::State;
use stepback_api::page::Page;
use stepback_api::workspaces::WorkspaceDocument;

use crate::extract::{Json, Path};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Lists all workspaces of the store except the scratch directories of reruns, oldest first.
#[utoipa::path(get, path = "/workspaces", tag = "workspaces", responses(
    (status = 200, body = Page<WorkspaceDocument>), (status = "default", body = Problem)
))]
pub async fn list(State(state): State<AppState>) -> Result<Json<Page<WorkspaceDocument>>, Problem> {
    state
        .run(|engine| {
            let items = engine.project_workspaces()?.iter().map(WorkspaceDocument::from_record).collect();
            Ok(Json(Page::whole(items)))
        })
        .await
}

/// Returns a workspace by its id or the beginning of it.
#[utoipa::path(get, path = "/workspaces/{workspace}", tag = "workspaces",
    params(("workspace" = String, Path, description = "Its id, or the beginning of it")),
    responses((status = 200, body = WorkspaceDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<WorkspaceDocument>, Problem> {
    state
        .run(move |engine| {
            Ok(Json(WorkspaceDocument::from_record(&state::find_workspace(engine, &id)?.record)))
        })
        .await
}
