//! What model calls used and cost.

use axum::extract::State;
use serde::Deserialize;
use stepback_analysis::cost::{CostGrouping, CostRequest, cost_document};
use stepback_api::cost::CostDocument;
use utoipa::IntoParams;

use super::find::parse_time;
use crate::extract::{Json, QueryString};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// The most rows of a report.
const MAX_ROWS: u64 = 10_000;

/// What a cost report is about.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CostQuery {
    /// What the rows are about: `model` (the default), `tool`, `agent`, `session`, `branch`, `prompt` or `day`.
    pub by: Option<String>,
    /// Only calls since this time: `2 hours ago`, `2026-01-23`.
    pub since: Option<String>,
    /// Only sessions of this workspace; all workspaces if none is given.
    pub workspace: Option<String>,
    /// Only this session.
    pub session: Option<String>,
    /// Count what reruns asked models for, too.
    #[serde(default)]
    pub reruns: bool,
    /// Most rows to return (100 if none is given); the others are added up in one.
    pub limit: Option<u64>,
}

/// Returns tokens and money of model calls, by what was asked for. Answers that came from a recording, and what reruns asked
/// models for, are shown apart from the total. The share of a tool is inferred by the `rule`.
#[utoipa::path(get, path = "/cost", tag = "upkeep", params(CostQuery),
    responses((status = 200, body = CostDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(state): State<AppState>,
    QueryString(query): QueryString<CostQuery>,
) -> Result<Json<CostDocument>, Problem> {
    let by = match &query.by {
        None => CostGrouping::default(),
        Some(name) => CostGrouping::parse(name).ok_or_else(|| {
            let names = CostGrouping::ALL.map(CostGrouping::as_str).join(", ");
            Problem::usage(format!("by: \"{name}\" is not one of {names}"))
        })?,
    };
    let limit = query.limit.map(|limit| limit.clamp(1, MAX_ROWS));
    state
        .run(move |engine| {
            let mut workspace = match &query.workspace {
                Some(id) => Some(state::find_workspace(engine, id)?.record.id),
                None => None,
            };
            let session = match &query.session {
                Some(id) => {
                    let (home, session) = state::find_session(engine, id)?;
                    workspace = workspace.or(Some(home.record.id));
                    Some(session.id)
                }
                None => None,
            };
            let request = CostRequest {
                by,
                since: parse_time("since", query.since.as_deref(), engine.env.now())?,
                workspace,
                session,
                reruns: query.reruns,
                limit: limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(CostRequest::LIMIT),
            };
            Ok(Json(cost_document(engine, &request)?))
        })
        .await
}
