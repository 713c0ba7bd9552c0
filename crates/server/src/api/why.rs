//! Why something is as it is.

use axum::extract::State;
use serde::Deserialize;
use stepback_api::why::WhyDocument;
use stepback_provenance::why::{TargetContext, explain, parse_target};
use utoipa::IntoParams;

use crate::extract::{Json, Path, QueryString};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// What is asked about.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WhyQuery {
    /// A point (`#12`), lines of a file (`src/main.rs:40,43`), a file, an item of the board (`H2`), or a session
    /// (`session:4f2a`, or the beginning of its id).
    pub target: String,
    /// The file as it was at this point; as it is now if none is given.
    pub at: Option<String>,
    /// The session whose board has the item; the last active one if none is given.
    pub session: Option<String>,
}

/// Returns what led to a step, to lines, to an item of the board or to a session, and what the model had seen that has the
/// same words.
#[utoipa::path(get, path = "/workspaces/{workspace}/why", tag = "state",
    params(("workspace" = String, Path, description = "The workspace"), WhyQuery),
    responses((status = 200, body = WhyDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(state): State<AppState>,
    Path(id): Path<String>,
    QueryString(query): QueryString<WhyQuery>,
) -> Result<Json<WhyDocument>, Problem> {
    /// The longest target, in bytes.
    const LONGEST: usize = 8192;
    if query.target.len() > LONGEST {
        return Err(Problem::usage(format!("a target must not be longer than {LONGEST} bytes")));
    }
    state
        .run(move |engine| {
            let workspace = state::find_workspace(engine, &id)?;
            let session = query.session.as_ref().map(|text| workspace.find_session(text)).transpose()?;
            let context = TargetContext {
                now: workspace.engine.env.now(),
                zone: &jiff::tz::TimeZone::system,
                to_path: &str::to_owned,
                session,
                at: query.at.as_deref(),
            };
            let target = parse_target(&workspace, &query.target, &context)?;
            Ok(Json(explain(&workspace, &target, &query.target)?))
        })
        .await
}
