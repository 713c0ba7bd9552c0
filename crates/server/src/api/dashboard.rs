//! All sessions at a glance.

use axum::extract::State;
use serde::Deserialize;
use stepback_analysis::dashboard::{DashboardRequest, dashboard_document};
use stepback_api::dashboard::DashboardDocument;
use utoipa::IntoParams;

use super::find::parse_time;
use crate::extract::{Json, QueryString};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// What a dashboard is about.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DashboardQuery {
    /// Only sessions of this workspace; all workspaces if none is given.
    pub workspace: Option<String>,
    /// Only what was done since this time, from the full hour: `2 hours ago`, `2026-01-23`. Everything if none is given.
    pub since: Option<String>,
    /// Also count reruns.
    #[serde(default)]
    pub reruns: bool,
}

/// All sessions at a glance: cost and tokens by model, tool, agent, branch and day, how long calls take, how many fail, and the disk.
/// Every row says which steps are behind it.
#[utoipa::path(get, path = "/dashboard", tag = "upkeep", params(DashboardQuery),
    responses((status = 200, body = DashboardDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(state): State<AppState>,
    QueryString(query): QueryString<DashboardQuery>,
) -> Result<Json<DashboardDocument>, Problem> {
    let budget = state.rerun_host().map(|host| host.budget.clone());
    state
        .run(move |engine| {
            let workspace = match &query.workspace {
                Some(id) => Some(state::find_workspace(engine, id)?.record.id),
                None => None,
            };
            let since = parse_time("since", query.since.as_deref(), engine.env.now())?;
            let request = DashboardRequest { workspace, since, reruns: query.reruns };
            let budget = budget.and_then(|budget| (budget.0)()).map(|(bytes, _)| bytes);
            Ok(Json(dashboard_document(engine, request, budget)?))
        })
        .await
}
