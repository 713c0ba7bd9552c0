//! Whose board is meant.

use stepback_engine::Workspace;
use stepback_engine::session::session_status;
use stepback_model::record::Session;
use stepback_model::time::Timestamp;

use crate::error::BoardError;

/// Returns the session whose board is meant: the one that is named, otherwise the only active agent session of the workspace,
/// otherwise the user's. Fails if several agents are active.
pub fn choose_session(
    workspace: &Workspace,
    requested: Option<&str>,
    now: Timestamp,
) -> Result<Session, BoardError> {
    if let Some(text) = requested {
        return Ok(workspace.find_session(text)?);
    }
    let mut live = workspace.running_sessions()?;
    live.retain(|session| session_status(session, false, now) == "active");
    match live.len() {
        0 => Ok(workspace.session.clone()),
        1 => Ok(live.remove(0)),
        _ => {
            let name = |session: &Session| format!("{} {}", session.agent, session.id.short());
            Err(BoardError::SeveralAgents { agents: live.iter().map(name).collect() })
        }
    }
}
