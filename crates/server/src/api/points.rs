//! Points: the ways to name a moment, resolved to a step.

use axum::extract::State;
use stepback_api::steps::StepDocument;
use stepback_engine::Workspace;
use stepback_model::point;
use stepback_model::record::Session;
use stepback_model::record::StepRow;

use crate::extract::{Json, Path};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Longest point that is accepted, in bytes.
pub const LONGEST: usize = 1000;

/// Resolves a point to a step: `#12`, `@-1`, `error`, `15 minutes ago`, a label, …
#[utoipa::path(get, path = "/workspaces/{workspace}/points/{point}", tag = "steps",
    params(
        ("workspace" = String, Path, description = "The workspace"),
        ("point" = String, Path, description = "The point; `#` is written as `%23`, `/` as `%2F`"),
    ),
    responses((status = 200, body = StepDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(state): State<AppState>,
    Path((id, point)): Path<(String, String)>,
) -> Result<Json<StepDocument>, Problem> {
    state
        .run(move |engine| {
            let workspace = state::find_workspace(engine, &id)?;
            Ok(Json(StepDocument::from_row(&resolve_point(&workspace, &point)?)))
        })
        .await
}

/// Like [`resolve_point`]; errors, calls and iterations are those of `session`, if one is given.
pub fn resolve_point_in_session(
    workspace: &Workspace,
    point: &str,
    session: Option<&Session>,
) -> Result<StepRow, Problem> {
    match session {
        Some(session) => resolve_point(workspace, &point::in_session(point, &session.id.to_string())),
        None => resolve_point(workspace, point),
    }
}

/// Resolves a point to a step; relative times count from now.
pub fn resolve_point(workspace: &Workspace, point: &str) -> Result<StepRow, Problem> {
    if point.len() > LONGEST {
        return Err(Problem::usage(format!("a point must not be longer than {LONGEST} bytes")));
    }
    let now = workspace.engine.env.now();
    Ok(workspace.resolve(point, now, &jiff::tz::TimeZone::system)?)
}
