//! Recorded runs of agents.

use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::documents::SessionDocument;
use crate::extract::{Json, Path, Query};
use crate::page::{self, Page, Paging};
use crate::problem::Problem;
use crate::work::{self, Work};

/// Which sessions.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Wanted {
    /// Only those of this workspace.
    pub workspace: Option<String>,
    /// Only those of this agent.
    pub agent: Option<String>,
}

/// Sessions, the one that did something last first.
#[utoipa::path(get, path = "/sessions", tag = "sessions", params(Wanted, Paging), responses(
    (status = 200, body = Page<SessionDocument>), (status = "default", body = Problem)
))]
pub async fn list(
    State(work): State<Work>,
    Query(wanted): Query<Wanted>,
    Query(paging): Query<Paging>,
) -> Result<Json<Page<SessionDocument>>, Problem> {
    let about = ("sessions", wanted.workspace.clone(), wanted.agent.clone());
    let (limit, before) = (paging.limit()?, paging.position(&about)?);
    work.run(move |engine| {
        let mut sessions = engine.all_sessions()?;
        if let Some(id) = &wanted.workspace {
            let workspace = work::workspace(engine, id)?.record.id;
            sessions.retain(|session| session.workspace == workspace);
        }
        if let Some(agent) = &wanted.agent {
            sessions.retain(|session| session.agent == *agent);
        }
        // Two sessions of the same microsecond are told apart by nothing that a cursor could hold; it has not been seen.
        let seen = |session: &stepback_model::record::Session| {
            let at = session.info.seen_at.unwrap_or(session.started_at).as_micros();
            u64::try_from(at).unwrap_or_default()
        };
        sessions.sort_by_key(|session| (std::cmp::Reverse(seen(session)), session.id));
        sessions.retain(|session| before.is_none_or(|before| seen(session) < before));
        sessions.truncate(usize::try_from(limit + 1).unwrap_or(usize::MAX));
        Ok(Json(page::page(sessions, limit, &about, seen, SessionDocument::of)))
    })
    .await
}

/// One session, by its id, the agent's id of it, or the beginning of either.
#[utoipa::path(get, path = "/sessions/{session}", tag = "sessions",
    params(("session" = String, Path, description = "Its id, the agent's id of it, or the beginning of either")),
    responses((status = 200, body = SessionDocument), (status = "default", body = Problem)))]
pub async fn get(State(work): State<Work>, Path(id): Path<String>) -> Result<Json<SessionDocument>, Problem> {
    work.run(move |engine| Ok(Json(SessionDocument::of(&work::session(engine, &id)?.1)))).await
}
