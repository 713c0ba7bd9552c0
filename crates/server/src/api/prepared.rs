//! Branches that are prepared now and executed later: a session, a point and what is to be different there.
//!
//! Until it is executed, such a branch has no steps; it is a rerun with the status `pending` in the log of its workspace.
//! Its name is enough to find it, as long as one workspace has it.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;
use stepback_api::branches::{BranchDocument, NewPreparedBranch, NewRerun};
use stepback_engine::{Engine, Workspace};
use stepback_rerun::RerunBranch;
use utoipa::IntoParams;

use super::branches::find_branch;
use super::reruns::{branch_location, read_options, start_rerun};
use crate::extract::{Json, Path, QueryString};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Where a branch is looked for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct BranchQuery {
    /// The workspace; all of them if none is given.
    pub workspace: Option<String>,
}

/// Prepares a branch: records what is to be run again and with which changes, and checks that it fits the recording.
/// `POST /branches/{branch}/execute` runs it.
#[utoipa::path(post, path = "/branches", tag = "branches", request_body = NewPreparedBranch,
    responses((status = 201, body = BranchDocument, headers(("location" = String, description = "The branch"))),
        (status = "default", body = Problem)))]
pub async fn prepare(
    State(state): State<AppState>,
    Json(new): Json<NewPreparedBranch>,
) -> Result<Response, Problem> {
    state
        .run(move |engine| {
            let (session, mut request) = new.into_rerun();
            let (workspace, session) = state::find_session(engine, &session)?;
            let options = read_options(&workspace, &request, RerunBranch::new(request.branch.clone()))?;
            // What a point such as "@" or "-2" means changes with every step.
            request.from = options.from.as_ref().map(|from| format!("#{}", from.step.number));
            request.branch = None;
            let rerun = stepback_rerun::prepare(&workspace, session, &options, json!(request))?;
            let location = branch_location(workspace.record.id, &rerun);
            let document = find_branch(&workspace, &rerun.branch)?;
            Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(document)).into_response())
        })
        .await
}

/// Returns a branch by its name alone.
#[utoipa::path(get, path = "/branches/{branch}", tag = "branches",
    params(("branch" = String, Path, description = "Its name; `/` is written as `%2F`"), BranchQuery),
    responses((status = 200, body = BranchDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(state): State<AppState>,
    Path(name): Path<String>,
    QueryString(query): QueryString<BranchQuery>,
) -> Result<Json<BranchDocument>, Problem> {
    state.run(move |engine| Ok(Json(find_in_workspaces(engine, &name, query.workspace.as_deref())?.1))).await
}

/// Runs a prepared branch. Answered as soon as it runs; the status of the branch shows the progress.
#[utoipa::path(post, path = "/branches/{branch}/execute", tag = "branches",
    params(("branch" = String, Path, description = "Its name; `/` is written as `%2F`"), BranchQuery),
    responses((status = 202, body = BranchDocument, headers(("location" = String, description = "The branch"))),
        (status = "default", body = Problem)))]
pub async fn execute(
    State(state): State<AppState>,
    Path(name): Path<String>,
    QueryString(query): QueryString<BranchQuery>,
) -> Result<Response, Problem> {
    let branch = name.clone();
    let (session, request) = state
        .run(move |engine| {
            let (workspace, _) = find_in_workspaces(engine, &branch, query.workspace.as_deref())?;
            let rerun = workspace.reruns()?.into_iter().find(|rerun| rerun.branch == branch);
            let rerun = rerun.filter(stepback_engine::reruns::Rerun::is_prepared).ok_or_else(|| {
                Problem::new(
                    StatusCode::CONFLICT,
                    "refused",
                    format!("branch {branch} is not waiting to be executed"),
                )
                .with_hint("\"POST /branches\" prepares a branch; each is executed once")
            })?;
            let request: NewRerun =
                serde_json::from_value(rerun.plan.unwrap_or_default()).map_err(|error| {
                    Problem::internal(format!("the request of branch {branch} cannot be read: {error}"))
                })?;
            Ok((rerun.of.to_string(), request))
        })
        .await?;
    start_rerun(state, session, request, RerunBranch::Prepared(name)).await
}

/// Finds the only branch with a name, and its workspace.
fn find_in_workspaces(
    engine: &Engine,
    name: &str,
    workspace: Option<&str>,
) -> Result<(Workspace, BranchDocument), Problem> {
    if let Some(id) = workspace {
        let workspace = state::find_workspace(engine, id)?;
        let branch = find_branch(&workspace, name)?;
        return Ok((workspace, branch));
    }
    let mut found = Vec::new();
    // The scratch workspaces of reruns have no branches that a user names.
    for record in engine.store.workspaces()?.into_iter().filter(|record| !record.is_rerun()) {
        // One that cannot be read does not hide the branches of the others; its own operations say what is wrong.
        let Ok(workspace) = state::open_workspace(engine, record.id) else { continue };
        if let Some(branch) = BranchDocument::list(&workspace)?.into_iter().find(|branch| branch.name == name)
        {
            found.push((workspace, branch));
        }
    }
    match found.len() {
        0 => Err(Problem::not_found("branch", name)),
        1 => Ok(found.remove(0)),
        _ => {
            let ids: Vec<_> = found.iter().map(|(workspace, _)| workspace.record.id.to_string()).collect();
            Err(Problem::new(
                StatusCode::CONFLICT,
                "refused",
                format!("{} workspaces have a branch {name}: {}", found.len(), ids.join(", ")),
            )
            .with_hint("name the workspace: ?workspace=ID"))
        }
    }
}
