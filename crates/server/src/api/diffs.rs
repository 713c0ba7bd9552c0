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

use super::checkpoints::found;
use crate::extract::{Json, Path, QueryString, relative};
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
pub async fn with_now(
    State(work): State<AppState>,
    Path(id): Path<String>,
    QueryString(wanted): QueryString<DiffQuery>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<DiffDocument>, Problem> {
    work.run(move |engine| {
        let (workspace, stored) = found(engine, &id)?;
        let before = workspace.state_of(&stored)?;
        let now = workspace.look()?.state;
        document(&workspace, &stored, None, (&before, &now), &wanted, &paging)
    })
    .await
}

/// The differences between two checkpoints.
#[utoipa::path(get, path = "/checkpoints/{checkpoint}/diff/{other}", tag = "checkpoints",
    params(("checkpoint" = String, Path, description = "The id of the first"), ("other" = String, Path, description = "The id of the second"), DiffQuery, Paging),
    responses((status = 200, body = DiffDocument), (status = "default", body = Problem)))]
pub async fn between(
    State(work): State<AppState>,
    Path((id, other)): Path<(String, String)>,
    QueryString(wanted): QueryString<DiffQuery>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<DiffDocument>, Problem> {
    work.run(move |engine| {
        let (workspace, from) = found(engine, &id)?;
        let (elsewhere, to) = found(engine, &other)?;
        let (before, after) = (workspace.state_of(&from)?, elsewhere.state_of(&to)?);
        document(&workspace, &from, Some(&to), (&before, &after), &wanted, &paging)
    })
    .await
}

fn document(
    workspace: &Workspace,
    from: &StepRow,
    to: Option<&StepRow>,
    (before, after): (&Moment, &Moment),
    wanted: &DiffQuery,
    paging: &Paging,
) -> Result<Json<DiffDocument>, Problem> {
    let limit = paging.limit()?;
    let name = |stored: &StepRow| stored.step.id.to_string();
    let about = ("diff", name(from), to.map(name), format!("{wanted:?}"));
    let skip = paging.position(&about)?.unwrap_or(0);
    let paths: Vec<String> = wanted.path.iter().cloned().collect();
    paths.iter().try_for_each(|path| relative(path.as_bytes()).map(drop))?;
    let filter = PathFilter::new(&paths)?;
    // Keeps a concurrent prune from freeing what is being read.
    let _lock = workspace.lock_shared()?;
    let mut changes = diff::visible(workspace.store(), before, after)?;
    changes.retain(|change| {
        filter.matches(&change.path) || change.from.as_ref().is_some_and(|from| filter.matches(from))
    });
    let places = (1_u64..).zip(changes).filter(|(place, _)| *place > skip);
    let most = usize::try_from(limit + 1).unwrap_or(usize::MAX);
    let rows: Vec<(u64, PathChange)> = places.take(most).collect();
    let shown = pagination::page(rows, limit, &about, |(place, _)| *place, |(_, change)| change.clone());
    let mut left = MAX_TEXT_BYTES;
    let mut items = Vec::with_capacity(shown.items.len());
    for change in &shown.items {
        let text = match wanted.text && left > 0 {
            true => workspace.changed_lines(change)?.filter(|text| text.len() <= left),
            false => None,
        };
        left -= text.as_ref().map_or(0, String::len);
        items.push(ChangedFileDocument { change: ChangeDocument::of(change), text });
    }
    Ok(Json(DiffDocument {
        from: StepDocument::of(from),
        to: to.map(StepDocument::of),
        items,
        next_cursor: shown.next_cursor,
    }))
}
