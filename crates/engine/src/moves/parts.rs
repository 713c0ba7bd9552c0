//! The parts of the state that a rewind takes back, each alone or several together.
//!
//! Files and git belong to the workspace; memory, task list, reasoning and conversation belong to a session. A rewind to a
//! point concerns one session: the one that was asked for, else that of the point, else the one that was active last by then.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stepback_model::clip;
use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::{Session, StepRow};
use stepback_model::state::WorkspaceState;
use stepback_store::port::StepQuery;

use super::request::{MoveAction, MoveRequest};
use crate::board::{BoardEditor, BoardMoment};
use crate::error::EngineError;
use crate::kept::SessionName;
use crate::rewind::RewindRequest;
use crate::session::is_running;
use crate::workspace::{Workspace, describe_checkpoint};

/// Longest value that a plan shows, in characters.
const MAX_VALUE_LENGTH: usize = 60;

/// Why parts of the state cannot be taken back.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PartsError {
    /// No part has this name.
    #[error("\"{name}\" is not a part of the state; the parts are {}", RewindParts::NAMES.join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// Single changes and ranges are changes of files.
    #[error("{0} can only be taken back to a point, not change by change")]
    NeedsPoint(&'static str),
    /// Something selects files, but files stay as they are.
    #[error("{0} only applies to files, and files are not among the parts to take back")]
    NeedsFiles(&'static str),
    /// No agent was recorded by then, so there is no session to take back.
    #[error("no agent had been recorded before {0}, so only files and git can go back to it")]
    NoSession(String),
    /// The session began after the point.
    #[error("session {session} had not started at {point}")]
    NotStarted {
        /// Agent and short id of the session.
        session: String,
        /// Description of the point.
        point: String,
    },
    /// The session has nothing of the kind, neither then nor now.
    #[error("session {session} has no recorded {part}, neither at {point} nor now{}", list_others(.others))]
    NothingRecorded {
        /// `memory` or `task list`.
        part: &'static str,
        /// Agent and short id of the session.
        session: String,
        /// Description of the point.
        point: String,
        /// Other sessions that have one, as agent and short id.
        others: Vec<String>,
    },
    /// No session has a board.
    #[error("no reasoning board is recorded in this workspace")]
    NoBoard,
}

fn list_others(names: &[String]) -> String {
    match names {
        [] => String::new(),
        names => format!("; these sessions have one: {}", names.join(", ")),
    }
}

/// Which parts of the state a rewind takes back; none stands for files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RewindParts {
    /// The files.
    pub files: bool,
    /// Branches, HEAD and index of git repositories.
    pub git: bool,
    /// The conversation: the agent continues from the point.
    pub conversation: bool,
    /// The agent's key-value memory.
    pub memory: bool,
    /// The task list.
    pub task: bool,
    /// The reasoning board.
    pub reasoning: bool,
}

impl RewindParts {
    /// The names of all parts.
    pub const NAMES: [&str; 6] = ["files", "git", "conversation", "memory", "task", "reasoning"];

    /// Parses names of parts.
    pub fn parse<S: AsRef<str>>(names: &[S]) -> Result<Self, PartsError> {
        let mut parts = Self::default();
        for name in names.iter().map(AsRef::as_ref) {
            let part = match name {
                "files" => &mut parts.files,
                "git" => &mut parts.git,
                "conversation" => &mut parts.conversation,
                "memory" => &mut parts.memory,
                "task" => &mut parts.task,
                "reasoning" => &mut parts.reasoning,
                other => return Err(PartsError::Unknown { name: other.to_owned() }),
            };
            *part = true;
        }
        Ok(parts)
    }

    /// Returns the names of the parts that are chosen.
    pub fn names(self) -> Vec<&'static str> {
        let chosen = [self.files, self.git, self.conversation, self.memory, self.task, self.reasoning];
        Self::NAMES.into_iter().zip(chosen).filter_map(|(name, chosen)| chosen.then_some(name)).collect()
    }

    /// Whether no part is named.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// A part of a session's state that is kept by stepback as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionPart {
    /// The conversation.
    Conversation,
    /// The agent's key-value memory.
    Memory,
    /// The task list.
    Task,
    /// The reasoning board.
    Reasoning,
}

impl SessionPart {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Conversation => "conversation",
            Self::Memory => "memory",
            Self::Task => "task",
            Self::Reasoning => "reasoning",
        }
    }

    /// The name in sentences.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Conversation => "conversation",
            Self::Memory => "memory",
            Self::Task => "task list",
            Self::Reasoning => "reasoning board",
        }
    }

    /// The object of this part in a state.
    pub(super) fn of_state(self, state: &WorkspaceState) -> Option<Hash> {
        match self {
            Self::Conversation => state.conversation,
            Self::Memory => state.memory,
            Self::Task => state.task,
            Self::Reasoning => state.reasoning,
        }
    }

    /// What stands for a part that was never recorded.
    pub(super) fn empty_value(self) -> Value {
        if self == Self::Task { json!([]) } else { json!({}) }
    }
}

/// What a plan does to a part of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedPart {
    /// The part.
    pub part: SessionPart,
    /// The session it belongs to.
    pub session: SessionName,
    /// What changes, one sentence each without a full stop; none if the part already is as it was.
    pub changes: Vec<String>,
    /// Whether the session may be running, so that its agent has its own copy, which stepback does not change.
    pub is_live: bool,
    /// The number of the step that it goes back to.
    pub point: u64,
}

impl Workspace {
    /// Returns the request that takes `parts` of the state back to the target of `rewind`.
    pub fn request_parts(
        &self,
        mut rewind: RewindRequest,
        parts: RewindParts,
    ) -> Result<MoveRequest, EngineError> {
        let parts = if parts.is_empty() { RewindParts { files: true, ..parts } } else { parts };
        let by_change =
            !rewind.changes.is_empty() || rewind.last.is_some() || rewind.all || rewind.until.is_some();
        if let Some(part) = parts.names().into_iter().find(|name| *name != "files")
            && (by_change || rewind.target.is_none())
        {
            return Err(PartsError::NeedsPoint(part).into());
        }
        if !parts.files && !rewind.paths.is_empty() {
            return Err(PartsError::NeedsFiles("a path").into());
        }
        if !parts.files && !parts.git && rewind.everything {
            return Err(PartsError::NeedsFiles("\"everything\"").into());
        }
        let is_agents = parts.conversation || parts.memory || parts.task;
        let session = match &rewind.target {
            Some(target) if is_agents => Some(self.session_of_rewind(target, rewind.session)?),
            _ => None,
        };
        let board = match &rewind.target {
            Some(target) if parts.reasoning => Some(self.find_session_with_board(target, rewind.session)?),
            _ => None,
        };
        rewind.keep_files = !parts.files;
        (rewind.git, rewind.conversation) = (parts.git, parts.conversation);
        let id = session.map(|session| session.id);
        Ok(MoveRequest {
            board,
            memory: id.filter(|_| parts.memory),
            task: id.filter(|_| parts.task),
            ..MoveRequest::from_user(MoveAction::Rewind(Box::new(rewind)))
        })
    }

    /// Returns the session whose parts go back to a point.
    fn session_of_rewind(
        &self,
        target: &StepRow,
        requested: Option<SessionId>,
    ) -> Result<Session, EngineError> {
        let session = match requested {
            Some(id) => self.store().session(id)?,
            None => self.conversation_session(target)?,
        };
        session.ok_or_else(|| PartsError::NoSession(describe_checkpoint(target)).into())
    }

    /// Returns the session whose board goes back: the one that was asked for; else the first that has a board of that of the
    /// point, the one that was active last by then, the user's, and the agents' that were active last.
    fn find_session_with_board(
        &self,
        target: &StepRow,
        requested: Option<SessionId>,
    ) -> Result<SessionId, EngineError> {
        let mut candidates = Vec::new();
        candidates.extend(self.store().session(requested.unwrap_or(target.step.session))?);
        if requested.is_none() {
            candidates.extend(self.conversation_session(target)?);
            candidates.push(self.session.clone());
            candidates.extend(self.agent_sessions()?);
        }
        for candidate in candidates {
            if self.board_at(&candidate, &BoardMoment::Now)?.step.is_some() {
                return Ok(candidate.id);
            }
        }
        Err(PartsError::NoBoard.into())
    }

    /// Returns the step whose conversation a rewind reaches; `None` if the conversation stays as it is.
    pub(crate) fn conversation_of_rewind(
        &self,
        rewind: &RewindRequest,
        target: &StepRow,
    ) -> Result<Option<StepId>, EngineError> {
        match rewind.session.filter(|session| *session != target.step.session) {
            _ if !rewind.conversation => Ok(None),
            None => Ok(Some(target.step.id)),
            Some(session) => match self.session_state_at(session, target.step.number)? {
                Some((step, _)) => Ok(Some(step.step.id)),
                None => {
                    let session = self.require_session(session)?;
                    let (session, point) = (name_session(&session), describe_checkpoint(target));
                    Err(PartsError::NotStarted { session, point }.into())
                }
            },
        }
    }

    /// Returns what a session had at the step with this number, without files: the state of the newest of its own steps up to
    /// there that was not freed. `None` if it had none.
    pub fn session_state_at(
        &self,
        session: SessionId,
        number: u64,
    ) -> Result<Option<(StepRow, WorkspaceState)>, EngineError> {
        let mut before = number.saturating_add(1);
        loop {
            let query = StepQuery {
                session: Some(session),
                before: Some(before),
                limit: Some(1),
                ..StepQuery::default()
            };
            let Some(step) = self.store().steps(self.record.id, &query)?.pop() else { return Ok(None) };
            if !step.purged {
                let state = WorkspaceState::load(self.store(), step.step.state)?;
                return Ok(Some((step, WorkspaceState { files: None, git: None, ..state })));
            }
            before = step.step.number;
        }
    }

    /// Plans what a rewind does to the parts of sessions. Changes nothing.
    pub(super) fn plan_parts(&self, request: &MoveRequest) -> Result<Vec<PlannedPart>, EngineError> {
        let MoveAction::Rewind(rewind) = &request.action else { return Ok(Vec::new()) };
        let Some(target) = &rewind.target else { return Ok(Vec::new()) };
        let mut planned = Vec::new();
        if rewind.conversation
            && let Some(session) = match rewind.session {
                Some(id) => self.store().session(id)?,
                None => self.conversation_session(target)?,
            }
        {
            planned.push(self.plan_conversation(&session, target)?);
        }
        for (part, id) in [(SessionPart::Memory, request.memory), (SessionPart::Task, request.task)] {
            let Some(session) = id.map(|id| self.store().session(id)).transpose()?.flatten() else {
                continue;
            };
            let now = self.present_value(part, &session)?;
            let then = self.past_value(part, &session, target)?;
            if now.is_none() && then.is_none() {
                return Err(self.nothing_recorded(part, &session, target)?.into());
            }
            let (now, then) = (now.unwrap_or(part.empty_value()), then.unwrap_or(part.empty_value()));
            planned.push(planned_part(part, &session, target, describe_differences(&now, &then)));
        }
        if let Some(session) = request.board.map(|id| self.store().session(id)).transpose()?.flatten() {
            let moment = BoardMoment::Step(target.step.number);
            let diff = BoardEditor::new(self, &session).restore(&moment, true)?.diff;
            let changes = diff.changes.into_iter().map(|change| change.sentence).collect();
            planned.push(planned_part(SessionPart::Reasoning, &session, target, changes));
        }
        Ok(planned)
    }

    /// Returns how much of a session's conversation stays when it goes to a step.
    pub(super) fn plan_conversation(
        &self,
        session: &Session,
        target: &StepRow,
    ) -> Result<PlannedPart, EngineError> {
        let kept = self.conversation_tip_at(session, target)?;
        let kept = stepback_model::conversation::len(self.store(), kept)?;
        let now = stepback_model::conversation::len(self.store(), session.info.tip)?;
        let changes = vec![format!("{kept} of {now} recorded messages")];
        Ok(planned_part(SessionPart::Conversation, session, target, changes))
    }

    pub(super) fn load_part(&self, hash: Option<Hash>) -> Result<Option<Value>, EngineError> {
        Ok(hash.map(|hash| stepback_model::json::load(self.store(), hash)).transpose()?)
    }

    /// The memory or task list that a session has now.
    pub(super) fn present_value(
        &self,
        part: SessionPart,
        session: &Session,
    ) -> Result<Option<Value>, EngineError> {
        let slots = session.info.slots;
        self.load_part(if part == SessionPart::Task { slots.task } else { slots.memory })
    }

    /// The memory or task list that a session had at a step.
    pub(super) fn past_value(
        &self,
        part: SessionPart,
        session: &Session,
        target: &StepRow,
    ) -> Result<Option<Value>, EngineError> {
        let Some((_, state)) = self.session_state_at(session.id, target.step.number)? else {
            let (session, point) = (name_session(session), describe_checkpoint(target));
            return Err(PartsError::NotStarted { session, point }.into());
        };
        self.load_part(part.of_state(&state))
    }

    fn nothing_recorded(
        &self,
        part: SessionPart,
        session: &Session,
        target: &StepRow,
    ) -> Result<PartsError, EngineError> {
        let mut others = self.agent_sessions()?;
        others.retain(|other| {
            let slots = other.info.slots;
            let slot = if part == SessionPart::Task { slots.task } else { slots.memory };
            other.id != session.id && slot.is_some()
        });
        Ok(PartsError::NothingRecorded {
            part: part.noun(),
            session: name_session(session),
            point: describe_checkpoint(target),
            others: others.iter().map(name_session).collect(),
        })
    }
}

pub(super) fn name_session(session: &Session) -> String {
    format!("{} {}", session.agent, session.id.short())
}

pub(super) fn planned_part(
    part: SessionPart,
    session: &Session,
    target: &StepRow,
    changes: Vec<String>,
) -> PlannedPart {
    let name = SessionName { id: session.id, agent: session.agent.clone() };
    let is_live = session.agent != Session::PERSON && is_running(session);
    PlannedPart { part, session: name, changes, is_live, point: target.step.number }
}

/// Returns what changes from one value to another, one sentence each.
pub(super) fn describe_differences(now: &Value, then: &Value) -> Vec<String> {
    let short = |value: &Value| match value {
        Value::String(text) => format!("\"{}\"", clip::first(text, MAX_VALUE_LENGTH)),
        other => clip::first(&other.to_string(), MAX_VALUE_LENGTH),
    };
    match (now, then) {
        (now, then) if now == then => Vec::new(),
        (Value::Object(now), Value::Object(then)) => {
            let removed = now.keys().filter(|key| !then.contains_key(*key));
            let mut changes: Vec<String> = removed.map(|key| format!("{key} goes")).collect();
            for (key, value) in then {
                match now.get(key) {
                    None => changes.push(format!("{key} comes back as {}", short(value))),
                    Some(present) if present != value => {
                        changes.push(format!("{key} becomes {} instead of {}", short(value), short(present)));
                    }
                    Some(_) => {}
                }
            }
            changes
        }
        (Value::Array(now), Value::Array(then)) if now.len() != then.len() => {
            vec![format!("it has {} entries instead of {}", then.len(), now.len())]
        }
        (Value::Array(now), Value::Array(then)) => {
            let differing = now.iter().zip(then).enumerate().filter(|(_, (now, then))| now != then);
            differing
                .map(|(index, (_, then))| format!("entry {} becomes {}", index + 1, short(then)))
                .collect()
        }
        (now, then) => vec![format!("it becomes {} instead of {}", short(then), short(now))],
    }
}
