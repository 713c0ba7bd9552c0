//! The sessions of a workspace, found by id, by the agent's own id, or by the beginning of either.

use stepback_model::record::Session;

use stepback_store::port::Query;

use crate::error::EngineError;
use crate::workspace::Workspace;

impl Workspace<'_> {
    /// Sessions of agents, the one that did something last first. Where gaps are noted is none.
    pub fn agent_sessions(&self) -> Result<Vec<Session>, EngineError> {
        let mut sessions = self.store().sessions(self.record.id)?;
        sessions.retain(|session| {
            session.agent != Session::PERSON && session.info.external.as_deref() != Some(Session::GAPS)
        });
        sessions.sort_by_key(|session| {
            (std::cmp::Reverse(session.info.seen_at.unwrap_or(session.started_at)), session.id)
        });
        Ok(sessions)
    }

    /// The number of the newest step.
    pub fn newest_number(&self) -> Result<u64, EngineError> {
        let newest = self.store().steps(self.record.id, &Query { limit: Some(1), ..Query::default() })?;
        Ok(newest.first().map_or(0, |stored| stored.checkpoint.step.number))
    }

    /// The one session whose id, or whose id in the agent's own words, begins with `text`.
    pub fn find_session(&self, text: &str) -> Result<Session, EngineError> {
        let wanted = text.to_ascii_lowercase();
        let named = |session: &Session| {
            session.id.to_string().starts_with(&wanted)
                || session
                    .info
                    .external
                    .as_ref()
                    .is_some_and(|id| id.to_ascii_lowercase().starts_with(&wanted))
        };
        let mut found: Vec<Session> =
            self.store().sessions(self.record.id)?.into_iter().filter(named).collect();
        let exact = |session: &Session| session.info.external.as_deref() == Some(text);
        if found.iter().any(exact) {
            found.retain(exact);
        }
        match (found.pop(), found.len()) {
            (Some(session), 0) => Ok(session),
            (Some(_), more) => {
                Err(EngineError::Point(format!("{} sessions of this workspace start with {text}", more + 1)))
            }
            (None, _) => Err(EngineError::Point(format!("no session of this workspace starts with {text}"))),
        }
    }
}
