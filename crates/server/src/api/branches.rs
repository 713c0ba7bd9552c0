//! Branches, and the comparison of two runs.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use stepback_api::address::encode_segment;
use stepback_api::branches::{BranchDocument, BranchUpdate, NewBranch};
use stepback_api::files::ChangeDocument;
use stepback_api::operations::OperationDocument;
use stepback_api::page::Page;
use stepback_engine::{Engine, Workspace};
use stepback_history::compare::{self, ComparedRun};
use stepback_model::point::is_number;
use stepback_model::record::BranchStatus;
use utoipa::IntoParams;

use super::points::resolve_point;
use crate::extract::{Json, Path, QueryString};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// The shortest prefix of a session id that is accepted, so that `12` is still a step.
const MIN_ID_PREFIX_CHARS: usize = 4;

/// Lists all branches of a workspace by name, then reruns that have no branch yet.
#[utoipa::path(get, path = "/workspaces/{workspace}/branches", tag = "branches",
    params(("workspace" = String, Path, description = "The workspace")),
    responses((status = 200, body = Page<BranchDocument>), (status = "default", body = Problem)))]
pub async fn list(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<Page<BranchDocument>>, Problem> {
    state
        .run(move |engine| {
            let workspace = state::find_workspace(engine, &id)?;
            Ok(Json(Page::whole(BranchDocument::list(&workspace)?)))
        })
        .await
}

/// Finds the branch with this name.
pub(super) fn find_branch(workspace: &Workspace, name: &str) -> Result<BranchDocument, Problem> {
    let found = BranchDocument::list(workspace)?.into_iter().find(|branch| branch.name == name);
    found.ok_or_else(|| Problem::not_found("branch", name))
}

/// Creates a branch, without switching to it.
#[utoipa::path(post, path = "/workspaces/{workspace}/branches", tag = "branches",
    params(("workspace" = String, Path, description = "The workspace")), request_body = NewBranch,
    responses((status = 201, body = BranchDocument), (status = "default", body = Problem)))]
pub async fn create(
    State(state): State<AppState>,
    Path(id): Path<String>,
    Json(new): Json<NewBranch>,
) -> Result<Response, Problem> {
    state
        .run(move |engine| {
            let workspace = state::find_workspace(engine, &id)?;
            let from = resolve_point(&workspace, new.from.as_deref().unwrap_or("@"))?;
            workspace.create_branch(&new.name, &from)?;
            let name = encode_segment(&new.name);
            let place = format!("/api/v1/workspaces/{}/branches/{name}", workspace.record.id);
            let document = find_branch(&workspace, &new.name)?;
            Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(document)).into_response())
        })
        .await
}

/// Returns a branch.
#[utoipa::path(get, path = "/workspaces/{workspace}/branches/{branch}", tag = "branches",
    params(("workspace" = String, Path, description = "The workspace"), ("branch" = String, Path, description = "Its name; `/` is written as `%2F`")),
    responses((status = 200, body = BranchDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(state): State<AppState>,
    Path((id, name)): Path<(String, String)>,
) -> Result<Json<BranchDocument>, Problem> {
    state.run(move |engine| Ok(Json(find_branch(&state::find_workspace(engine, &id)?, &name)?))).await
}

/// Renames a branch, or sets its status. Either can be undone.
#[utoipa::path(patch, path = "/workspaces/{workspace}/branches/{branch}", tag = "branches",
    params(("workspace" = String, Path, description = "The workspace"), ("branch" = String, Path, description = "Its name")),
    request_body = BranchUpdate,
    responses((status = 200, body = BranchDocument), (status = "default", body = Problem)))]
pub async fn update(
    State(state): State<AppState>,
    Path((id, name)): Path<(String, String)>,
    Json(new): Json<BranchUpdate>,
) -> Result<Json<BranchDocument>, Problem> {
    state
        .run(move |engine| {
            let workspace = state::find_workspace(engine, &id)?;
            find_branch(&workspace, &name)?;
            let status = new.status.as_deref().map(|word| {
                let known = BranchStatus::ALL.map(BranchStatus::as_str);
                BranchStatus::parse(word).ok_or_else(|| Problem::unknown_word("status", word, &known))
            });
            let status = status.transpose()?;
            if new.name.is_none() && status.is_none() {
                return Err(Problem::usage("specify name, status or both"));
            }
            // Checked before the first of two changes is made.
            let new_name = new.name.filter(|new_name| *new_name != name);
            new_name.iter().try_for_each(|new_name| workspace.check_new_rerun_branch(new_name))?;
            if let Some(status) = status {
                workspace.set_branch_status(&name, status)?;
            }
            match new_name {
                Some(new_name) => {
                    workspace.rename_branch(&name, &new_name)?;
                    Ok(Json(find_branch(&workspace, &new_name)?))
                }
                None => Ok(Json(find_branch(&workspace, &name)?)),
            }
        })
        .await
}

/// Deletes a branch. Its steps stay. One that was prepared and not executed, or that failed before it had files, goes too.
#[utoipa::path(delete, path = "/workspaces/{workspace}/branches/{branch}", tag = "branches",
    params(("workspace" = String, Path, description = "The workspace"), ("branch" = String, Path, description = "Its name")),
    responses((status = 200, body = OperationDocument), (status = "default", body = Problem)))]
pub async fn delete(
    State(state): State<AppState>,
    Path((id, name)): Path<(String, String)>,
) -> Result<Json<OperationDocument>, Problem> {
    state
        .run(move |engine| {
            let workspace = state::find_workspace(engine, &id)?;
            find_branch(&workspace, &name)?;
            let operation = workspace.delete_branch(&name)?;
            Ok(Json(OperationDocument::from_store(engine.store(), &operation)?))
        })
        .await
}

/// The two sides of a comparison: branches, sessions (`session:ID`) or points.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CompareQuery {
    /// The first side.
    pub a: String,
    /// The second side.
    pub b: String,
    /// The workspace of the branches and points. Sessions are found without it.
    pub workspace: Option<String>,
}

/// Compares two runs: where they diverge, what each did, and how they end. The document is that of `stepback compare --json`.
#[utoipa::path(get, path = "/compare", tag = "branches", params(CompareQuery),
    responses((status = 200, body = Object), (status = "default", body = Problem)))]
pub async fn compare_runs(
    State(state): State<AppState>,
    QueryString(query): QueryString<CompareQuery>,
) -> Result<Json<Value>, Problem> {
    state
        .run(move |engine| {
            let workspace =
                query.workspace.as_ref().map(|id| state::find_workspace(engine, id)).transpose()?;
            let a = resolve_side(engine, workspace.as_ref(), &query.a)?;
            let b = resolve_side(engine, workspace.as_ref(), &query.b)?;
            let found = compare::compare(engine.store(), &a, &b)?;
            let mut document = json!(found);
            // Changes have the same form as everywhere else in the API.
            if let Some(changes) = &found.ends.files {
                document["files"] =
                    json!(changes.iter().map(ChangeDocument::from_change).collect::<Vec<_>>());
            }
            Ok(Json(document))
        })
        .await
}

fn resolve_side(engine: &Engine, workspace: Option<&Workspace>, text: &str) -> Result<ComparedRun, Problem> {
    if let Some(named) = text.strip_prefix("session:") {
        let (workspace, session) = state::find_session(engine, named)?;
        return Ok(ComparedRun::from_session(&workspace, &session)?);
    }
    let name = text.strip_prefix("branch:").unwrap_or(text);
    if let Some(workspace) = workspace
        && !is_number(text)
        && let Some(tip) = workspace.branch_tip(name)?
    {
        return Ok(ComparedRun::from_branch(workspace, name, &tip)?);
    }
    let may_be_id = text.len() >= MIN_ID_PREFIX_CHARS && !text.contains(['#', '@', ':']) && !is_number(text);
    if may_be_id && let Ok((workspace, session)) = state::find_session(engine, text) {
        return Ok(ComparedRun::from_session(&workspace, &session)?);
    }
    let Some(workspace) = workspace else {
        return Err(Problem::not_found("session", text)
            .with_hint("a branch or a point requires a workspace: &workspace=ID"));
    };
    Ok(ComparedRun::from_point(workspace, &resolve_point(workspace, text)?)?)
}
