//! Where the time of a session went.

use axum::extract::State;
use serde::Deserialize;
use stepback_analysis::profile::{SpanWindow, load_profile, profile_document};
use stepback_api::profile::ProfileDocument;
use utoipa::IntoParams;

use crate::extract::{Json, Path, QueryString};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Which spans a profile has.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ProfileQuery {
    /// Only spans that end after this time, in microseconds from the start of the session.
    pub from_us: Option<u64>,
    /// Only spans that begin before this time, in microseconds from the start of the session.
    pub until_us: Option<u64>,
    /// At most so many spans, the longest: 2000 if none is given, at most 20000.
    pub limit: Option<u64>,
}

/// Where the time of a session went: per category, per tool and per model, with the critical path, the size of the context and the
/// spans of a waterfall.
#[utoipa::path(get, path = "/sessions/{session}/profile", tag = "steps",
    params(("session" = String, Path, description = "The session"), ProfileQuery),
    responses((status = 200, body = ProfileDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(state): State<AppState>,
    Path(id): Path<String>,
    QueryString(query): QueryString<ProfileQuery>,
) -> Result<Json<ProfileDocument>, Problem> {
    let window = read_window(&query)?;
    state
        .run(move |engine| {
            let (_, session) = state::find_session(engine, &id)?;
            let (facts, profile) = load_profile(engine, &session)?;
            Ok(Json(profile_document(&facts, &profile, window)))
        })
        .await
}

fn read_window(query: &ProfileQuery) -> Result<SpanWindow, Problem> {
    let limit = match query.limit.map(usize::try_from) {
        None => SpanWindow::DEFAULT_LIMIT,
        Some(Ok(limit)) if limit <= SpanWindow::MAX_LIMIT => limit,
        Some(_) => {
            return Err(Problem::usage(format!("a profile has at most {} spans", SpanWindow::MAX_LIMIT))
                .with_hint("use from_us and until_us to see a part of the session in full"));
        }
    };
    let window =
        SpanWindow { from: query.from_us.unwrap_or(0), until: query.until_us.unwrap_or(u64::MAX), limit };
    if window.from > window.until {
        return Err(Problem::usage("from_us is after until_us").with_hint("exchange them"));
    }
    Ok(window)
}
