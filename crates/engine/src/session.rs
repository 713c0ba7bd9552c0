//! The sessions of a workspace, found by id, by the agent's own id, or by the beginning of either.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use stepback_model::record::{self, Session};
use stepback_model::time::Timestamp;
use stepback_store::StoreError;
use stepback_store::port::Query;

use crate::error::EngineError;
use crate::workspace::{Engine, Workspace};

/// After so long without a word, a session is not called active any more. In microseconds.
const QUIET: i64 = 3_600_000_000;

/// How a session is doing. In this order of words.
pub const STATUSES: [&str; 4] = ["active", "idle", "stopped", "ended"];

/// How a session is doing: `stopped` at a breakpoint, `ended`, `idle` if nothing was heard of it for an hour, or `active`.
pub fn status(session: &Session, is_stopped: bool, now: Timestamp) -> &'static str {
    match session.info.ended_at {
        _ if is_stopped => "stopped",
        Some(_) => "ended",
        None if now.as_micros().saturating_sub(seen(session).as_micros()) > QUIET => "idle",
        None => "active",
    }
}

/// When a session last did something.
pub fn seen(session: &Session) -> Timestamp {
    session.info.seen_at.unwrap_or(session.started_at)
}

impl Workspace<'_> {
    /// Sessions of agents, the one that did something last first. Where gaps are noted is none.
    pub fn agent_sessions(&self) -> Result<Vec<Session>, EngineError> {
        let mut sessions = self.store().sessions(self.record.id)?;
        sessions.retain(|session| {
            session.agent != Session::PERSON && session.info.external.as_deref() != Some(Session::GAPS)
        });
        sessions.sort_by_key(|session| (std::cmp::Reverse(seen(session)), session.id));
        Ok(sessions)
    }

    /// The number of the newest step.
    pub fn newest_number(&self) -> Result<u64, EngineError> {
        let newest = self.store().steps(self.record.id, &Query { limit: Some(1), ..Query::default() })?;
        Ok(newest.first().map_or(0, |stored| stored.checkpoint.step.number))
    }

    /// The one session whose id, or whose id in the agent's own words, begins with `text`.
    pub fn find_session(&self, text: &str) -> Result<Session, EngineError> {
        one_named(self.store().sessions(self.record.id)?, text, "this workspace")
    }
}

impl Engine<'_> {
    /// Like [`Workspace::find_session`], among the sessions of every workspace in the store.
    pub fn find_session_anywhere(&self, text: &str) -> Result<Session, EngineError> {
        one_named(self.all_sessions()?, text, "this store")
    }

    /// The sessions of every workspace in the store.
    pub fn all_sessions(&self) -> Result<Vec<Session>, EngineError> {
        let mut sessions = Vec::new();
        for workspace in self.store.workspaces()? {
            sessions.extend(self.store.sessions(workspace.id)?);
        }
        Ok(sessions)
    }

    /// Every workspace in the store, to look at: what was begun in one and not finished stays as it is.
    pub fn every_workspace(&self) -> Result<Vec<Workspace<'_>>, EngineError> {
        let root = |workspace: record::Workspace| PathBuf::from(OsString::from_vec(workspace.root));
        let mut all = Vec::new();
        for workspace in self.store.workspaces()? {
            all.extend(self.find_workspace(&root(workspace))?);
        }
        Ok(all)
    }

    /// Opens the workspace that a session ran in.
    pub fn workspace_of(&self, session: &Session) -> Result<Workspace<'_>, EngineError> {
        let known = self.store.workspaces()?.into_iter().find(|workspace| workspace.id == session.workspace);
        let missing = || StoreError::Corrupt { what: format!("session {} has no workspace", session.id) };
        let root = PathBuf::from(OsString::from_vec(known.ok_or_else(missing)?.root));
        self.known_workspace(&root)
    }
}

/// The one of these sessions that `text` is the beginning of an id of.
fn one_named(sessions: Vec<Session>, text: &str, of: &str) -> Result<Session, EngineError> {
    let wanted = text.to_ascii_lowercase();
    let named = |session: &Session| {
        session.id.to_string().starts_with(&wanted)
            || session.info.external.as_ref().is_some_and(|id| id.to_ascii_lowercase().starts_with(&wanted))
    };
    let mut found: Vec<Session> = sessions.into_iter().filter(named).collect();
    let exact = |session: &Session| session.info.external.as_deref() == Some(text);
    if found.iter().any(exact) {
        found.retain(exact);
    }
    match (found.pop(), found.len()) {
        (Some(session), 0) => Ok(session),
        (Some(_), more) => {
            Err(EngineError::Point(format!("{} sessions of {of} start with {text}", more + 1)))
        }
        (None, _) => Err(EngineError::Point(format!("no session of {of} starts with {text}"))),
    }
}
