//! What is unusual in sessions.

use axum::extract::State;
use serde::Deserialize;
use stepback_analysis::anomalies::{AnomalyQuery, anomalies_document, load_anomalies};
use stepback_analysis::prices::load_prices;
use stepback_api::anomalies::AnomaliesDocument;
use stepback_model::anomaly::AnomalyKind;
use utoipa::IntoParams;

use super::find::parse_time;
use crate::extract::{Json, QueryString};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Anomalies returned if no other number is asked for, and at most.
const DEFAULT_LIMIT: usize = 200;
const MAX_LIMIT: usize = 2000;

/// Which anomalies are returned.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AnomaliesQuery {
    /// Only those of this workspace.
    pub workspace: Option<String>,
    /// Only those of this session.
    pub session: Option<String>,
    /// Only incidents that went on since this time: `2 hours ago`, `2026-01-23`.
    pub since: Option<String>,
    /// Only these kinds, separated by commas: `loop,error-burst`.
    pub kind: Option<String>,
    /// At most so many, the newest: 200 if none is given, at most 2000.
    pub limit: Option<usize>,
}

/// Finds what is unusual in sessions: loops, bursts of errors, edits that lead nowhere, calls that are slower or dearer than others like
/// them, contexts that grow without use. All of it is inferred; each anomaly names its rule and its evidence.
#[utoipa::path(get, path = "/anomalies", tag = "steps", params(AnomaliesQuery),
    responses((status = 200, body = AnomaliesDocument), (status = "default", body = Problem)))]
pub async fn list(
    State(state): State<AppState>,
    QueryString(query): QueryString<AnomaliesQuery>,
) -> Result<Json<AnomaliesDocument>, Problem> {
    let kinds = parse_kinds(query.kind.as_deref().unwrap_or_default())?;
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if limit > MAX_LIMIT {
        return Err(Problem::usage(format!("at most {MAX_LIMIT} anomalies are returned"))
            .with_hint("use since, kind or session to ask for some of them"));
    }
    state
        .run(move |engine| {
            let mut wanted = AnomalyQuery {
                since: parse_time("since", query.since.as_deref(), engine.env.now())?,
                kinds,
                ..AnomalyQuery::default()
            };
            if let Some(id) = &query.workspace {
                wanted.workspace = Some(state::find_workspace(engine, id)?.record.id);
            }
            if let Some(id) = &query.session {
                let (_, session) = state::find_session(engine, id)?;
                if wanted.workspace.is_some_and(|workspace| workspace != session.workspace) {
                    return Err(Problem::usage("the session belongs to another workspace")
                        .with_hint("leave out \"workspace\""));
                }
                wanted.session = Some(session.id);
                wanted.workspace = Some(session.workspace);
            }
            let found = load_anomalies(engine, &load_prices(engine.store().local_dir())?, &wanted)?;
            Ok(Json(anomalies_document(&found, &engine.anomaly_limits, limit)))
        })
        .await
}

fn parse_kinds(text: &str) -> Result<Vec<AnomalyKind>, Problem> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let parse = |name: &str| {
        AnomalyKind::parse(name).ok_or_else(|| {
            Problem::usage(format!("\"{name}\" is not a kind of anomaly"))
                .with_hint(format!("use {}", AnomalyKind::ALL.map(AnomalyKind::name).join(", ")))
        })
    };
    names.map(parse).collect()
}
