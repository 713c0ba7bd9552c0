//! Where the lines of a file come from.

use axum::extract::State;
use serde::Deserialize;
use stepback_api::blame::BlameDocument;
use stepback_model::path::RelPath;
use stepback_provenance::blame::{blame, parse_lines};
use stepback_provenance::{BlameRequest, WalkLimits, add_commits, blame_document};
use utoipa::IntoParams;

use super::points::resolve_point;
use crate::extract::{Json, Path, QueryString};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// The lines that are asked about.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct BlameQuery {
    /// The file, relative to the root of the workspace.
    pub path: String,
    /// Only these lines: `12`, or `12,20` from the first to the last.
    pub lines: Option<String>,
    /// As the file was at this point; as it is now if none is given.
    pub at: Option<String>,
    /// Search git's history for the commits of older lines; yes if not given.
    pub git: Option<bool>,
}

/// Returns for every line of a file the change, the tool call, the model turn, the prompt and the session that it comes from.
#[utoipa::path(get, path = "/workspaces/{workspace}/blame", tag = "state",
    params(("workspace" = String, Path, description = "The workspace"), BlameQuery),
    responses((status = 200, body = BlameDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(state): State<AppState>,
    Path(id): Path<String>,
    QueryString(query): QueryString<BlameQuery>,
) -> Result<Json<BlameDocument>, Problem> {
    let path = RelPath::parse(query.path.as_str()).map_err(|error| {
        Problem::usage(format!("\"{}\" is not a path in the workspace: {error}", query.path))
    })?;
    let lines = match &query.lines {
        None => None,
        Some(text) => Some(parse_lines(text).ok_or_else(|| {
            Problem::usage(format!("\"{text}\" names no lines"))
                .with_hint("use a number, or two with a comma: 12,20")
        })?),
    };
    state
        .run(move |engine| {
            let workspace = state::find_workspace(engine, &id)?;
            let at = query.at.as_ref().map(|point| resolve_point(&workspace, point)).transpose()?;
            let mut found = blame(&workspace, &BlameRequest { path, at, lines })?;
            if query.git.unwrap_or(true) {
                add_commits(&workspace, &mut found, WalkLimits::default())?;
            }
            Ok(Json(blame_document(&workspace, &found)?))
        })
        .await
}
