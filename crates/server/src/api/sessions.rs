//! Sessions: the recorded runs of agents.

use std::collections::HashSet;

use axum::extract::State;
use serde::Deserialize;
use stepback_api::page::Page;
use stepback_api::sessions::SessionDocument;
use stepback_engine::Engine;
use stepback_engine::session::{STATUSES, last_event_time, session_status};
use stepback_model::ids::SessionId;
use stepback_model::record::Session;
use stepback_store::port::StepQuery as Steps;
use utoipa::IntoParams;

use super::find;
use crate::extract::{Json, Path, QueryString};
use crate::pagination::{self, Paging};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Filters for sessions.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SessionsQuery {
    /// Only those of this workspace; without it, those of all workspaces but the scratch directories of reruns.
    pub workspace: Option<String>,
    /// Only those of this agent; without it, those of all agents. What people did by themselves is listed with `person`.
    pub agent: Option<String>,
    /// Only those with this status: `active`, `idle` (no activity for an hour), `stopped` (at a breakpoint), `ended` or
    /// `prepared` (a fork that was never started).
    pub status: Option<String>,
    /// Only those that were active since this time: `2 hours ago`, `2026-01-23`.
    pub since: Option<String>,
    /// Only those that began before this time.
    pub until: Option<String>,
    /// Only those with a step that failed (`true`), or without one (`false`).
    pub has_error: Option<bool>,
    /// Include the number of steps of each session, and how many of them failed.
    #[serde(default)]
    pub counts: bool,
}

/// Lists sessions, the most recently active first, and counts them.
#[utoipa::path(get, path = "/sessions", tag = "sessions", params(SessionsQuery, Paging), responses(
    (status = 200, body = Page<SessionDocument>), (status = "default", body = Problem)
))]
pub async fn list(
    State(state): State<AppState>,
    QueryString(query): QueryString<SessionsQuery>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<Page<SessionDocument>>, Problem> {
    let about = ("sessions", format!("{query:?}"));
    let (limit, before) = (paging.limit()?, paging.start_position(&about)?);
    state
        .run(move |engine| {
            let now = engine.env.now();
            let since = find::parse_time("since", query.since.as_deref(), now)?;
            let until = find::parse_time("until", query.until.as_deref(), now)?;
            if let Some(status) = query.status.as_deref().filter(|status| !STATUSES.contains(status)) {
                return Err(Problem::unknown_word("status", status, &STATUSES));
            }
            let mut sessions = match &query.workspace {
                Some(id) => engine.store.sessions(state::find_workspace(engine, id)?.record.id)?,
                None => engine.project_sessions()?,
            };
            sessions.retain(|session| {
                query.agent.as_ref().map_or(session.agent != Session::PERSON, |agent| session.agent == *agent)
                    && since.is_none_or(|since| last_event_time(session) >= since)
                    && until.is_none_or(|until| session.started_at <= until)
            });
            // A cursor cannot tell two sessions of the same microsecond apart; that has not been observed.
            let place =
                |session: &Session| u64::try_from(last_event_time(session).as_micros()).unwrap_or_default();
            let stopped = stopped_sessions(engine)?;
            let status_of = |session: &Session| session_status(session, stopped.contains(&session.id), now);
            if let Some(wanted) = &query.status {
                sessions.retain(|session| status_of(session) == wanted);
            }
            if let Some(wanted) = query.has_error {
                let mut matching = Vec::with_capacity(sessions.len());
                for session in sessions {
                    if has_failed_step(engine, &session)? == wanted {
                        matching.push(session);
                    }
                }
                sessions = matching;
            }
            let total = sessions.len() as u64;
            sessions.sort_by_key(|session| (std::cmp::Reverse(place(session)), session.id));
            sessions.retain(|session| before.is_none_or(|before| place(session) < before));
            sessions.truncate(usize::try_from(limit + 1).unwrap_or(usize::MAX));
            let document = |session: &Session| SessionDocument::from_session(session, status_of(session));
            let counted = if query.counts { sessions.clone() } else { Vec::new() };
            let mut page = pagination::paginate(sessions, limit, &about, place, document);
            page.total = Some(total);
            for (document, session) in page.items.iter_mut().zip(&counted) {
                document.steps = Some(count_steps(engine, session, None)?);
                document.errors = Some(count_steps(engine, session, Some(true))?);
            }
            Ok(Json(page))
        })
        .await
}

/// Counts the steps of a session, or only those that failed.
fn count_steps(engine: &Engine, session: &Session, failed: Option<bool>) -> Result<u64, Problem> {
    let query = Steps {
        session: Some(session.id),
        failed,
        hidden: Some(false),
        limit: Some(0),
        count_all: true,
        ..Steps::default()
    };
    Ok(engine.store.find(Some(session.workspace), &query)?.total)
}

/// Whether a step of this session failed.
fn has_failed_step(engine: &Engine, session: &Session) -> Result<bool, Problem> {
    let query = Steps {
        session: Some(session.id),
        failed: Some(true),
        hidden: Some(false),
        limit: Some(1),
        ..Steps::default()
    };
    Ok(!engine.store.steps(session.workspace, &query)?.is_empty())
}

/// Returns the sessions that wait at a breakpoint.
fn stopped_sessions(engine: &Engine) -> Result<HashSet<SessionId>, Problem> {
    let mut stopped = HashSet::new();
    for workspace in engine.all_workspaces()? {
        stopped.extend(workspace.control()?.list_stops()?.into_iter().map(|stop| stop.session));
    }
    Ok(stopped)
}

/// Returns a session, with the numbers of its steps and errors.
#[utoipa::path(get, path = "/sessions/{session}", tag = "sessions",
    params(("session" = String, Path, description = "Its id, the agent's id of it, or the beginning of either")),
    responses((status = 200, body = SessionDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<SessionDocument>, Problem> {
    state
        .run(move |engine| {
            let (workspace, session) = state::find_session(engine, &id)?;
            let is_stopped = workspace.control()?.list_stops()?.iter().any(|stop| stop.session == session.id);
            let status = session_status(&session, is_stopped, engine.env.now());
            let mut document = SessionDocument::from_session(&session, status);
            document.steps = Some(count_steps(engine, &session, None)?);
            document.errors = Some(count_steps(engine, &session, Some(true))?);
            Ok(Json(document))
        })
        .await
}
