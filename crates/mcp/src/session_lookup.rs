//! Finds the session that a server acts for.
//!
//! An agent starts the server, or connects to it, without saying which of its sessions this is. The server decides in this
//! order: the session that the user named with `--session`; the id that the agent sets in the environment of its child
//! processes; the session that was found before, while it is running; the only active session in this workspace among those
//! of the agent that the client program belongs to. If several are active, the call that is open right now may decide: the
//! session that calls one of these tools has an open call.

use std::sync::{Mutex, PoisonError};

use stepback_engine::Workspace;
use stepback_engine::session::session_status;
use stepback_model::ids::SessionId;
use stepback_model::record::Session;
use stepback_model::time::Timestamp;

use crate::tool_error::ToolError;

/// What is known about which session this server acts for.
#[derive(Clone, Debug, Default)]
pub struct SessionHint {
    /// The session that the user named.
    pub session: Option<String>,
    /// The agent's own id of the session, from the environment.
    pub agent_session: Option<String>,
    /// Names of agents; the names of their client programs begin with them.
    pub agents: Vec<&'static str>,
}

/// The session that was found before.
#[derive(Debug, Default)]
pub struct SessionCache(Mutex<Option<SessionId>>);

impl SessionCache {
    fn get(&self) -> Option<SessionId> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, session: SessionId) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }
}

impl SessionHint {
    /// The session this server acts for: that of an agent, or the user's own if no agent is active.
    pub fn resolve_session(
        &self,
        workspace: &Workspace,
        cache: &SessionCache,
        client: Option<&str>,
        now: Timestamp,
    ) -> Result<Session, ToolError> {
        if let Some(session_name) = &self.session {
            return Ok(workspace.find_session(session_name)?);
        }
        let mut live = running_sessions(workspace)?;
        let is_named =
            |session: &&Session| self.agent_session.is_some() && session.info.external == self.agent_session;
        if let Some(session) = live.iter().find(is_named) {
            return Ok(session.clone());
        }
        let client_agent =
            self.agents.iter().find(|agent| client.is_some_and(|client| client.starts_with(**agent)));
        live.retain(|session| {
            session_status(session, false, now) == "active"
                && client_agent.is_none_or(|agent| session.agent == **agent)
        });
        let resolved = match cache.get().and_then(|id| live.iter().find(|session| session.id == id)) {
            Some(session) => session.clone(),
            None => match pick_session(&live) {
                Some(session) => session.clone(),
                None if live.is_empty() => return Ok(workspace.session.clone()),
                None => return Err(ambiguous_session_error(&live)),
            },
        };
        cache.set(resolved.id);
        Ok(resolved)
    }
}

/// Sessions of agents that were recorded here and have not ended.
fn running_sessions(workspace: &Workspace) -> Result<Vec<Session>, ToolError> {
    Ok(workspace.running_sessions()?)
}

/// Sessions of agents that are active here.
pub fn active_sessions(workspace: &Workspace, now: Timestamp) -> Result<Vec<Session>, ToolError> {
    let mut live = running_sessions(workspace)?;
    live.retain(|session| session_status(session, false, now) == "active");
    Ok(live)
}

fn pick_session(live: &[Session]) -> Option<&Session> {
    let calls = |session: &&Session| {
        let is_own_tool = |tool: &str| tool.contains("stepback");
        (session.info.open.iter()).any(|open| !open.ended && open.tool.as_deref().is_some_and(is_own_tool))
    };
    if let [one] = live {
        return Some(one);
    }
    let mut calling = live.iter().filter(calls);
    calling.next().filter(|_| calling.next().is_none())
}

fn ambiguous_session_error(live: &[Session]) -> ToolError {
    let names: Vec<String> =
        live.iter().map(|session| format!("{} {}", session.agent, session.id.short())).collect();
    ToolError::new(format!("{} agents are running here ({})", live.len(), names.join(", ")))
        .with_hint("ask the user to start this server with --session SESSION")
}
