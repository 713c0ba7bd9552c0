//! Controls live agents: pauses sessions, answers agents that wait, and leaves them messages.

use axum::extract::State;
use stepback_agents::Agent;
use stepback_agents::answer::HookAnswer;
use stepback_api::control::{NewAnswer, NewMessage, SessionControlDocument, StopDocument};
use stepback_api::page::Page;
use stepback_engine::Engine;
use stepback_engine::control::{Control, Stop, StopAnswer};

use crate::extract::{Json, Path};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Longest text sent to an agent, in bytes.
const LONGEST: usize = 64 << 10;

/// The document of a stop. A waiting call can run with another input if it has not run, and its agent supports that.
pub(crate) fn stop_document(workspace: &str, stop: &Stop) -> StopDocument {
    let can_edit =
        stop.output.is_none() && Agent::parse(&stop.agent).is_none_or(HookAnswer::can_change_input);
    StopDocument::from_stop(workspace, stop, can_edit)
}

/// All agents that wait in the store, the longest waiting first, each with its workspace id.
pub(crate) fn list_stops(engine: &Engine) -> Result<Vec<(String, Control, Stop)>, Problem> {
    let Some(dir) = engine.store.local_dir() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for workspace in engine.store.workspaces()? {
        let id = workspace.id.to_string();
        let place = dir.join("workspaces").join(&id);
        for stop in Control::new(&place).list_stops()? {
            found.push((id.clone(), Control::new(&place), stop));
        }
    }
    found.sort_by_key(|(_, _, stop)| stop.at);
    Ok(found)
}

/// Lists the agents that wait, in every workspace, the longest waiting first.
#[utoipa::path(get, path = "/stops", tag = "control",
    responses((status = 200, body = Page<StopDocument>), (status = "default", body = Problem)))]
pub async fn list(State(state): State<AppState>) -> Result<Json<Page<StopDocument>>, Problem> {
    state
        .run(|engine| {
            let items = list_stops(engine)?.iter().map(|(id, _, stop)| stop_document(id, stop)).collect();
            Ok(Json(Page::whole(items)))
        })
        .await
}

/// Answers an agent that waits.
#[utoipa::path(post, path = "/stops/{stop}/answer", tag = "control",
    params(("stop" = String, Path, description = "Its id")), request_body = NewAnswer,
    responses((status = 200, body = StopDocument), (status = "default", body = Problem)))]
pub async fn answer(
    State(state): State<AppState>,
    Path(id): Path<String>,
    Json(new_answer): Json<NewAnswer>,
) -> Result<Json<StopDocument>, Problem> {
    let again = matches!(new_answer, NewAnswer::Step);
    let answer = match new_answer {
        NewAnswer::Resume | NewAnswer::Step => StopAnswer::Resume,
        NewAnswer::Deny { reason } => {
            let reason = reason.unwrap_or_else(|| "The user refused this call.".to_owned());
            StopAnswer::Deny { reason: check_message(reason)? }
        }
        NewAnswer::Edit { input } if input.is_object() => StopAnswer::Edit { input },
        NewAnswer::Edit { .. } => return Err(Problem::usage("the input of a call must be a JSON object")),
    };
    state
        .run(move |engine| {
            let found = list_stops(engine)?.into_iter().find(|(_, _, stop)| stop.id == id);
            let (workspace, control, stop) = found.ok_or_else(|| Problem::not_found("stop", &id))?;
            if again {
                control.pause(Some(stop.session))?;
            }
            control.answer_stop(&stop, &answer)?;
            Ok(Json(stop_document(&workspace, &stop)))
        })
        .await
}

fn check_message(text: String) -> Result<String, Problem> {
    match text.len() {
        _ if text.trim().is_empty() => Err(Problem::usage("the message is empty")),
        length if length > LONGEST => Err(Problem::usage(format!("it is longer than {LONGEST} bytes"))),
        _ => Ok(text),
    }
}

/// Pauses a session at its next call.
#[utoipa::path(post, path = "/sessions/{session}/pause", tag = "control",
    params(("session" = String, Path, description = "The session")),
    responses((status = 200, body = SessionControlDocument), (status = "default", body = Problem)))]
pub async fn pause(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<SessionControlDocument>, Problem> {
    state
        .run(move |engine| {
            let (workspace, session) = state::find_session(engine, &id)?;
            workspace.check_running(&session, engine.env.now())?;
            workspace.control()?.pause(Some(session.id))?;
            Ok(Json(SessionControlDocument { session: session.id.to_string(), paused: true, answered: None }))
        })
        .await
}

/// Lets a paused session go on, and answers it if it waits.
#[utoipa::path(post, path = "/sessions/{session}/resume", tag = "control",
    params(("session" = String, Path, description = "The session")),
    responses((status = 200, body = SessionControlDocument), (status = "default", body = Problem)))]
pub async fn resume(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<SessionControlDocument>, Problem> {
    state
        .run(move |engine| {
            let (workspace, session) = state::find_session(engine, &id)?;
            let control = workspace.control()?;
            let was_paused = control.unpause(Some(session.id))?;
            let stop = control.list_stops()?.into_iter().find(|stop| stop.session == session.id);
            if let Some(stop) = &stop {
                control.answer_stop(stop, &StopAnswer::Resume)?;
            } else if was_paused {
                control.disarm_if_empty();
            } else {
                return Err(Problem::not_found("stop", "of this session, and it is not paused"));
            }
            let here = workspace.record.id.to_string();
            Ok(Json(SessionControlDocument {
                session: session.id.to_string(),
                paused: false,
                answered: stop.map(|stop| stop_document(&here, &stop)),
            }))
        })
        .await
}

/// Leaves a message that a session receives with its next call.
#[utoipa::path(post, path = "/sessions/{session}/inject", tag = "control",
    params(("session" = String, Path, description = "The session")), request_body = NewMessage,
    responses((status = 200, body = SessionControlDocument), (status = "default", body = Problem)))]
pub async fn inject(
    State(state): State<AppState>,
    Path(id): Path<String>,
    Json(message): Json<NewMessage>,
) -> Result<Json<SessionControlDocument>, Problem> {
    let text = check_message(message.text)?;
    state
        .run(move |engine| {
            let (workspace, session) = state::find_session(engine, &id)?;
            workspace.check_running(&session, engine.env.now())?;
            let control = workspace.control()?;
            control.queue_message(session.id, &text)?;
            let paused = control.is_paused(session.id);
            Ok(Json(SessionControlDocument { session: session.id.to_string(), paused, answered: None }))
        })
        .await
}
