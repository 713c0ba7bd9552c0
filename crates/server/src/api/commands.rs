//! The shell commands that agents called.

use axum::extract::State;
use serde::Deserialize;
use stepback_api::commands::CommandDocument;
use stepback_api::page::Page;
use stepback_board::{CommandFilter, command_history};
use stepback_model::page_cursor;
use utoipa::IntoParams;

use super::points::resolve_point_in_session;
use crate::extract::{Json, Path, QueryString};
use crate::pagination::Paging;
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Most starts and ends of calls that are read for one page.
const MAX_READ_STEPS: u64 = 4000;

/// Filters for commands.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CommandsQuery {
    /// Only those of this session.
    pub session: Option<String>,
    /// Only those that ran and failed: the agent reported an error, or the exit code is not 0.
    #[serde(default)]
    pub failed: bool,
    /// As it was at this point.
    pub at: Option<String>,
}

/// Lists the shell commands that the agents in a workspace called, newest first. A page may have fewer items than asked for,
/// also none, and still not be the last: it then has a cursor.
#[utoipa::path(get, path = "/workspaces/{workspace}/commands", tag = "steps",
    params(("workspace" = String, Path, description = "The workspace"), CommandsQuery, Paging),
    responses((status = 200, body = Page<CommandDocument>), (status = "default", body = Problem)))]
pub async fn list(
    State(state): State<AppState>,
    Path(id): Path<String>,
    QueryString(query): QueryString<CommandsQuery>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<Page<CommandDocument>>, Problem> {
    let limit = paging.limit()?;
    state
        .run(move |engine| {
            let workspace = state::find_workspace(engine, &id)?;
            let about = ("commands", workspace.record.id.to_string(), format!("{query:?}"));
            let before = paging.start_position(&about)?;
            let session = query.session.as_ref().map(|text| workspace.find_session(text)).transpose()?;
            let at = query.at.as_ref();
            let at =
                at.map(|point| resolve_point_in_session(&workspace, point, session.as_ref())).transpose()?;
            let filter = CommandFilter {
                session: session.map(|session| session.id),
                failed: query.failed,
                until: at.map(|stored| stored.step.number),
                before,
                most: usize::try_from(limit).unwrap_or(usize::MAX),
                max_steps: Some(MAX_READ_STEPS),
            };
            let page = command_history(&workspace, &filter)?;
            Ok(Json(Page {
                items: page.commands.iter().map(CommandDocument::from_run).collect(),
                next_cursor: page.next.map(|next| page_cursor::encode(next, &about)),
                total: None,
            }))
        })
        .await
}
