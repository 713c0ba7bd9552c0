//! Differences between two checkpoints, or between a checkpoint and now.

use axum::extract::State;
use serde::Deserialize;
use stepback_api::files::{ChangeDocument, ChangedFileDocument, DiffDocument};
use stepback_api::steps::StepDocument;
use stepback_engine::path_filter::PathFilter;
use stepback_engine::{Workspace, diff};
use stepback_model::change::PathChange;
use stepback_model::record::StepRow;
use stepback_model::state::WorkspaceState as Moment;
use utoipa::IntoParams;

use super::checkpoints::find_step;
use crate::extract::{Json, Path, QueryString, parse_relative_path};
use crate::pagination::{self, Paging};
use crate::problem::Problem;
use crate::state::AppState;

/// Most bytes of changed lines in one answer.
const MAX_TEXT_BYTES: usize = 16 << 20;

/// What a diff includes.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DiffQuery {
    /// Include the changed lines of text files.
    #[serde(default)]
    pub text: bool,
    /// Only this path and what is below it; a glob.
    pub path: Option<String>,
}

/// The changes between a checkpoint and now.
#[utoipa::path(get, path = "/checkpoints/{checkpoint}/diff", tag = "checkpoints",
    params(("checkpoint" = String, Path, description = "Its id"), DiffQuery, Paging),
    responses((status = 200, body = DiffDocument), (status = "default", body = Problem)))]
pub async fn diff_with_present(
    State(state): State<AppState>,
    Path(id): Path<String>,
    QueryString(query): QueryString<DiffQuery>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<DiffDocument>, Problem> {
    state
        .run(move |engine| {
            let (workspace, stored) = find_step(engine, &id)?;
            let before = workspace.load_state(&stored)?;
            let now = workspace.scan_for_display()?.state;
            build_diff(&workspace, &stored, None, (&before, &now), &query, &paging)
        })
        .await
}

/// The differences between two checkpoints.
#[utoipa::path(get, path = "/checkpoints/{checkpoint}/diff/{other}", tag = "checkpoints",
    params(("checkpoint" = String, Path, description = "The id of the first"), ("other" = String, Path, description = "The id of the second"), DiffQuery, Paging),
    responses((status = 200, body = DiffDocument), (status = "default", body = Problem)))]
pub async fn diff_checkpoints(
    State(state): State<AppState>,
    Path((id, other)): Path<(String, String)>,
    QueryString(query): QueryString<DiffQuery>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<DiffDocument>, Problem> {
    state
        .run(move |engine| {
            let (workspace, from) = find_step(engine, &id)?;
            let (elsewhere, to) = find_step(engine, &other)?;
            let (before, after) = (workspace.load_state(&from)?, elsewhere.load_state(&to)?);
            build_diff(&workspace, &from, Some(&to), (&before, &after), &query, &paging)
        })
        .await
}

fn build_diff(
    workspace: &Workspace,
    from: &StepRow,
    to: Option<&StepRow>,
    (before, after): (&Moment, &Moment),
    query: &DiffQuery,
    paging: &Paging,
) -> Result<Json<DiffDocument>, Problem> {
    let limit = paging.limit()?;
    let name = |stored: &StepRow| stored.step.id.to_string();
    let about = ("diff", name(from), to.map(name), format!("{query:?}"));
    let skip = paging.start_position(&about)?.unwrap_or(0);
    let paths: Vec<String> = query.path.iter().cloned().collect();
    paths.iter().try_for_each(|path| parse_relative_path(path.as_bytes()).map(drop))?;
    let filter = PathFilter::new(&paths)?;
    // Keeps a concurrent prune from freeing what is being read.
    let _lock = workspace.lock_shared()?;
    let mut changes = diff::compare_visible_files(workspace.store(), before, after)?;
    changes.retain(|change| {
        filter.matches(&change.path) || change.from.as_ref().is_some_and(|from| filter.matches(from))
    });
    let places = (1_u64..).zip(changes).filter(|(place, _)| *place > skip);
    let most = usize::try_from(limit + 1).unwrap_or(usize::MAX);
    let rows: Vec<(u64, PathChange)> = places.take(most).collect();
    let shown = pagination::paginate(rows, limit, &about, |(place, _)| *place, |(_, change)| change.clone());
    let mut left = MAX_TEXT_BYTES;
    let mut items = Vec::with_capacity(shown.items.len());
    for change in &shown.items {
        let text = match query.text && left > 0 {
            true => workspace.unified_diff(change)?.filter(|text| text.len() <= left),
            false => None,
        };
        left -= text.as_ref().map_or(0, String::len);
        items.push(ChangedFileDocument { change: ChangeDocument::from_change(change), text });
    }
    Ok(Json(DiffDocument {
        from: StepDocument::from_row(from),
        to: to.map(StepDocument::from_row),
        items,
        next_cursor: shown.next_cursor,
    }))
}
