//! The sessions of a workspace: finding them by id, by the agent's own id, or by a prefix of either, and their status.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use stepback_model::record::{self, Session};
use stepback_model::time::Timestamp;
use stepback_store::StoreError;
use stepback_store::port::{SortKey, StepQuery};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::workspace::Workspace;

/// A session without an event for this long counts as idle. In microseconds.
pub(crate) const IDLE_AFTER_MICROS: i64 = 3_600_000_000;

/// How many candidates an error lists.
const MAX_LISTED_CANDIDATES: usize = 5;

/// Every value that [`session_status`] returns, in the order in which error messages list them.
pub const STATUSES: [&str; 5] = ["active", "idle", "stopped", "ended", "prepared"];

/// Returns the status of a session: `stopped` at a breakpoint, `ended`, `prepared` if it is a fork that was never started,
/// `idle` if it had no event for an hour, or `active`.
pub fn session_status(session: &Session, is_stopped: bool, now: Timestamp) -> &'static str {
    match session.info.ended_at {
        _ if is_stopped => "stopped",
        Some(_) => "ended",
        None if is_prepared(session) => "prepared",
        None if now.as_micros().saturating_sub(last_event_time(session).as_micros()) > IDLE_AFTER_MICROS => {
            "idle"
        }
        None => "active",
    }
}

/// Returns the time of the last event of a session.
pub fn last_event_time(session: &Session) -> Timestamp {
    session.info.seen_at.unwrap_or(session.started_at)
}

/// Whether a session is a fork that was prepared but never started.
pub fn is_prepared(session: &Session) -> bool {
    let info = &session.info;
    info.forked_from.is_some()
        && info.seen_at.is_none_or(|seen| seen <= session.started_at)
        && info.iteration == 0
        && info.prompt.is_none()
        && info.open.is_empty()
}

/// Whether a session may still be running: it was recorded live, and no end was recorded.
pub fn is_running(session: &Session) -> bool {
    session.info.ended_at.is_none() && !session.info.imported && !is_prepared(session)
}

/// Returns why nothing can be delivered to a session, as the end of a sentence about it; `None` if it may be running.
pub fn not_running_reason(session: &Session, now: Timestamp) -> Option<String> {
    match session.info.ended_at {
        Some(at) => Some(format!("ended {}", at.ago(now))),
        None if session.info.imported => Some("was imported and does not run here".into()),
        None if is_prepared(session) => Some("is prepared but was not started yet".into()),
        None => None,
    }
}

impl Workspace {
    /// Returns the agent sessions that may be running, most recently active first.
    pub fn running_sessions(&self) -> Result<Vec<Session>, EngineError> {
        let mut sessions = self.agent_sessions()?;
        sessions.retain(is_running);
        Ok(sessions)
    }

    /// Fails if nothing can be delivered to the session; the error lists the running ones.
    pub fn check_running(&self, session: &Session, now: Timestamp) -> Result<(), EngineError> {
        let Some(reason) = not_running_reason(session, now) else { return Ok(()) };
        Err(EngineError::NotRunning(format!(
            "session {} {} {reason}; {}",
            session.agent,
            session.id.short(),
            self.describe_running_sessions()?
        )))
    }

    /// Returns which agents are running here, as a sentence without its full stop.
    pub fn describe_running_sessions(&self) -> Result<String, EngineError> {
        let names: Vec<String> = (self.running_sessions()?.iter())
            .map(|session| format!("{} {}", session.agent, session.id.short()))
            .collect();
        Ok(match names.as_slice() {
            [] => "no agent is running here".into(),
            [session_name] => format!("{session_name} is running here"),
            several => format!("{} are running here", several.join(", ")),
        })
    }

    /// Returns the agent sessions, most recently active first. The session that records gaps is not one of them.
    pub fn agent_sessions(&self) -> Result<Vec<Session>, EngineError> {
        let mut sessions = self.store().sessions(self.record.id)?;
        sessions.retain(|session| {
            session.agent != Session::PERSON && session.info.external.as_deref() != Some(Session::GAPS)
        });
        sessions.sort_by_key(|session| (std::cmp::Reverse(last_event_time(session)), session.id));
        Ok(sessions)
    }

    /// Returns the number of the newest step; 0 if there is none.
    pub fn newest_step_number(&self) -> Result<u64, EngineError> {
        let newest =
            self.store().steps(self.record.id, &StepQuery { limit: Some(1), ..StepQuery::default() })?;
        Ok(newest.first().map_or(0, |stored| stored.step.number))
    }

    /// Returns the only session whose id, or whose id given by the agent, starts with `text`.
    pub fn find_session(&self, text: &str) -> Result<Session, EngineError> {
        find_unique_session(self.store().sessions(self.record.id)?, text, "this workspace")
    }
}

impl Engine {
    /// Like [`Workspace::find_session`], among the sessions of every workspace in the store.
    pub fn find_session_in_store(&self, text: &str) -> Result<Session, EngineError> {
        // Projects first: a rerun may have the same agent's id as the session it repeats.
        let store_name = "this store";
        find_unique_session(self.project_sessions()?, text, store_name)
            .or_else(|_| find_unique_session(self.all_sessions()?, text, store_name))
    }

    /// Returns the sessions of every workspace in the store.
    pub fn all_sessions(&self) -> Result<Vec<Session>, EngineError> {
        let mut sessions = Vec::new();
        for workspace in self.store.workspaces()? {
            sessions.extend(self.store.sessions(workspace.id)?);
        }
        Ok(sessions)
    }

    /// Returns the project workspaces of the store, oldest first: all but the scratch directories of reruns.
    pub fn project_workspaces(&self) -> Result<Vec<record::WorkspaceRecord>, EngineError> {
        let mut workspaces = self.store.workspaces()?;
        workspaces.retain(|workspace| !workspace.is_rerun());
        Ok(workspaces)
    }

    /// Returns the sessions of every project in the store, without those of reruns.
    pub fn project_sessions(&self) -> Result<Vec<Session>, EngineError> {
        let mut sessions = Vec::new();
        for workspace in self.project_workspaces()? {
            sessions.extend(self.store.sessions(workspace.id)?);
        }
        Ok(sessions)
    }

    /// Returns every workspace in the store, for reading: interrupted operations are not recovered.
    pub fn all_workspaces(&self) -> Result<Vec<Workspace>, EngineError> {
        let root = |workspace: record::WorkspaceRecord| PathBuf::from(OsString::from_vec(workspace.root));
        let mut all = Vec::new();
        for workspace in self.store.workspaces()? {
            all.extend(self.find_workspace(&root(workspace))?);
        }
        Ok(all)
    }

    /// Returns when the oldest and the newest step of all workspaces were recorded; `None` if there is no step. Reruns do not
    /// count: what they record is a copy of what happened before.
    pub fn recorded_period(&self) -> Result<Option<(Timestamp, Timestamp)>, EngineError> {
        let mut period: Option<(Timestamp, Timestamp)> = None;
        for workspace in self.project_workspaces()? {
            for oldest_first in [true, false] {
                let query =
                    StepQuery { by: SortKey::Time, oldest_first, limit: Some(1), ..StepQuery::default() };
                for placed in self.store.find(Some(workspace.id), &query)?.steps {
                    let at = placed.stored.step.at;
                    let (oldest, newest) = period.unwrap_or((at, at));
                    period = Some((oldest.min(at), newest.max(at)));
                }
            }
        }
        Ok(period)
    }

    /// Opens the workspace that a session ran in.
    pub fn open_session_workspace(&self, session: &Session) -> Result<Workspace, EngineError> {
        let known = self.store.workspaces()?.into_iter().find(|workspace| workspace.id == session.workspace);
        let missing = || StoreError::Corrupt { what: format!("session {} has no workspace", session.id) };
        let root = PathBuf::from(OsString::from_vec(known.ok_or_else(missing)?.root));
        self.open_known_workspace(&root)
    }
}

/// Returns the only one of these sessions with an id that starts with `text`.
fn find_unique_session(sessions: Vec<Session>, text: &str, of: &str) -> Result<Session, EngineError> {
    if text.is_empty() {
        return Err(EngineError::Point("the id of a session is missing".into()));
    }
    let lower_text = text.to_ascii_lowercase();
    let has_name = |session: &Session| {
        session.id.to_string().starts_with(&lower_text)
            || session
                .info
                .external
                .as_ref()
                .is_some_and(|id| id.to_ascii_lowercase().starts_with(&lower_text))
    };
    let mut matches: Vec<Session> = sessions.into_iter().filter(has_name).collect();
    // A complete id wins, however many other ids start with it.
    let exact = |session: &Session| {
        session.info.external.as_deref() == Some(text) || session.id.to_string() == lower_text
    };
    if matches.iter().any(exact) {
        matches.retain(exact);
    }
    if matches.len() > 1 {
        let names = matches
            .iter()
            .take(MAX_LISTED_CANDIDATES)
            .map(|session| format!("{} {}", session.agent, session.id.short()));
        let names = names.collect::<Vec<_>>().join(", ");
        let ellipsis = if matches.len() > MAX_LISTED_CANDIDATES { ", …" } else { "" };
        let count = matches.len();
        return Err(EngineError::Point(format!(
            "{count} sessions of {of} start with {text}: {names}{ellipsis}"
        )));
    }
    matches.pop().ok_or_else(|| EngineError::Point(format!("no session of {of} starts with {text}")))
}
