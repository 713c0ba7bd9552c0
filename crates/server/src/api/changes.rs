//! The numbered list of changes, with the author of each.

use axum::extract::State;
use serde::Deserialize;
use stepback_api::changes::NumberedChangeDocument;
use stepback_api::page::Page;
use stepback_engine::changes::NumberedChange;
use stepback_engine::path_filter::PathFilter;
use utoipa::IntoParams;

use super::points::resolve_point_in_session;
use crate::extract::{Json, Path, QueryString, parse_relative_path};
use crate::pagination::{self, Paging};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Filters for changes.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ChangesQuery {
    /// Only those after this point.
    pub since: Option<String>,
    /// Only those of this session.
    pub session: Option<String>,
    /// Only those of this path and what is below it; a glob.
    pub path: Option<String>,
    /// Also those that were taken back, or that a new list leaves out.
    #[serde(default)]
    pub all: bool,
}

/// Lists the changes on the current branch of a workspace, newest first.
#[utoipa::path(get, path = "/workspaces/{workspace}/changes", tag = "plans",
    params(("workspace" = String, Path, description = "The workspace"), ChangesQuery, Paging),
    responses((status = 200, body = Page<NumberedChangeDocument>), (status = "default", body = Problem)))]
pub async fn list(
    State(state): State<AppState>,
    Path(id): Path<String>,
    QueryString(query): QueryString<ChangesQuery>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<Page<NumberedChangeDocument>>, Problem> {
    let limit = paging.limit()?;
    state
        .run(move |engine| {
            let workspace = state::find_workspace(engine, &id)?;
            let about = ("changes", workspace.record.id.to_string(), format!("{query:?}"));
            let before = paging.start_position(&about)?;
            let paths: Vec<String> = query.path.iter().cloned().collect();
            paths.iter().try_for_each(|path| parse_relative_path(path.trim_end_matches('/')).map(drop))?;
            let filter = PathFilter::new(&paths)?;
            let session = query.session.as_ref().map(|text| workspace.find_session(text)).transpose()?;
            let since = query
                .since
                .as_ref()
                .map(|point| resolve_point_in_session(&workspace, point, session.as_ref()))
                .transpose()?;
            let since = since.map(|stored| workspace.nearest_checkpoint(&stored)).transpose()?;
            let cleared = workspace.session.info.cleared.unwrap_or(0);
            // Keeps a concurrent prune from freeing what is being read.
            let _lock = workspace.lock_shared()?;
            let mut listed = workspace.numbered_changes(since.as_ref())?;
            listed.retain(|numbered| {
                before.is_none_or(|before| (numbered.number as u64) < before)
                    && filter.matches(&numbered.change.path)
                    && session.as_ref().is_none_or(|session| numbered.who.is_certainly_by(session.id))
                    && (query.all || numbered.is_open(cleared))
            });
            listed.reverse();
            listed.truncate(usize::try_from(limit + 1).unwrap_or(usize::MAX));
            let number = |numbered: &NumberedChange| numbered.number as u64;
            Ok(Json(pagination::paginate(listed, limit, &about, number, NumberedChangeDocument::from_change)))
        })
        .await
}
