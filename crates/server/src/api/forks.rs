//! Forks: continues a conversation from an earlier step in the agent itself.
//!
//! Only the machine that the agent ran on can do that: its conversations are files in the user's home directory. A fork
//! writes a new conversation beside the old one; nothing that exists is changed, and the agent is not started.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use stepback_agents::fork::{ForkError, ForkMode, ForkRequest, PlannedFork, plan_recorded_fork};
use stepback_api::sessions::{ConversationForkDocument, NewFork};
use stepback_engine::Workspace;
use stepback_model::record::Session;

use super::points::resolve_point_in_session;
use crate::api::reruns::ServerHost;
use crate::extract::{Json, Path};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Forks the conversation of a session at an earlier step under a new id, or returns a preview.
#[utoipa::path(post, path = "/sessions/{session}/forks", tag = "plans",
    params(("session" = String, Path, description = "The session")), request_body = NewFork,
    responses((status = 200, description = "How it would continue", body = ConversationForkDocument),
        (status = 201, description = "It can continue", body = ConversationForkDocument), (status = "default", body = Problem)))]
pub async fn create(
    State(state): State<AppState>,
    Path(id): Path<String>,
    Json(new): Json<NewFork>,
) -> Result<Response, Problem> {
    let stage = state.rerun_host().cloned();
    state
        .run(move |engine| {
            let (workspace, session) = state::find_session(engine, &id)?;
            let stage = stage.filter(|_| workspace.record.remote_name().is_none()).ok_or_else(|| {
                Problem::new(
                    StatusCode::CONFLICT,
                    "refused",
                    "conversations of agents on other machines cannot continue here",
                )
                .with_hint(
                    "\"stepback rewind POINT --conversation\" works on the machine that the agent ran on",
                )
            })?;
            let target = resolve_point_in_session(&workspace, &new.point, Some(&session))?;
            if target.step.session != session.id {
                return Err(Problem::usage(format!(
                    "step #{} belongs to another session",
                    target.step.number
                ))
                .with_hint("use a step of the session to continue"));
            }
            let (from, now) = (target.step.number, engine.env.now());
            let planned = plan_fork(&workspace, &stage, session, &target)?;
            if !new.dry_run {
                planned.execute(engine, &workspace, now)?;
            }
            let PlannedFork { session, fork, .. } = planned;
            let document = ConversationForkDocument {
                session: session.id.to_string(),
                agent: session.agent,
                from,
                new_agent_session: fork.session,
                messages: fork.kept_lines as u64,
                command: fork.command,
                directory: fork.cwd.display().to_string(),
                note: fork.note,
                ready: !new.dry_run,
            };
            let status = if new.dry_run { StatusCode::OK } else { StatusCode::CREATED };
            Ok((status, Json(document)).into_response())
        })
        .await
}

fn plan_fork(
    workspace: &Workspace,
    host: &ServerHost,
    session: Session,
    target: &stepback_store::port::StepRow,
) -> Result<PlannedFork, Problem> {
    let id = workspace.engine.env.fresh_id();
    if session.agent == stepback_builtin_agent::NAME {
        let store = Some(host.store.display().to_string());
        return Ok(stepback_builtin_agent::resume(workspace, session, target, store, None, None, id)?);
    }
    let home = host.agent_home.as_ref().ok_or_else(|| {
        Problem::new(
            StatusCode::CONFLICT,
            "refused",
            "the server has no home directory, so it cannot find the agent's conversations",
        )
    })?;
    let onward = ForkRequest { cwd: None, id, now: workspace.engine.env.now(), mode: ForkMode::Interactive };
    Ok(plan_recorded_fork(workspace, session, target, home, &onward)?)
}

impl From<ForkError> for Problem {
    fn from(error: ForkError) -> Self {
        match error {
            ForkError::Engine(error) => error.into(),
            ForkError::Unsupported(_) => Self::new(StatusCode::CONFLICT, "refused", error.to_string()),
            other => Self::new(
                StatusCode::CONFLICT,
                "refused",
                format!("the conversation cannot continue from there: {other}"),
            )
            .with_hint("prompts are good points to continue from"),
        }
    }
}
