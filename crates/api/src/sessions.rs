//! Recorded runs of agents, and forks of their conversations.

use serde::{Deserialize, Serialize};
use stepback_model::record::Session;
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

/// One recorded run of one agent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SessionDocument {
    /// The session id.
    pub id: String,
    /// The id of its workspace.
    pub workspace: String,
    /// The name of the agent.
    pub agent: String,
    /// The agent's own id of the session.
    pub agent_session: Option<String>,
    /// The first prompt, shortened.
    pub title: Option<String>,
    /// The model, as last reported.
    pub model: Option<String>,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When it was last active.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub seen_at: Option<Timestamp>,
    /// When it ended; none if the agent did not report an end.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// `active`, `idle` (no activity for an hour), `stopped` (at a breakpoint), `ended` or `prepared` (a fork that was never
    /// started).
    pub status: String,
    /// Number of model turns so far.
    pub iterations: u64,
    /// The cost so far, in dollars; 0 if it is not known.
    pub cost_usd: f64,
    /// Whether it was imported from the agent's own transcript.
    pub imported: bool,
    /// The id of the session it was forked from.
    pub forked_from: Option<String>,
    /// Number of steps; in a list only if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Number of steps that failed; in a list only if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
}

impl SessionDocument {
    /// The document of a session with its status.
    pub fn from_session(session: &Session, status: &str) -> Self {
        let info = &session.info;
        Self {
            id: session.id.to_string(),
            workspace: session.workspace.to_string(),
            agent: session.agent.clone(),
            agent_session: info.external.clone(),
            title: info.title.clone(),
            model: info.model.clone(),
            started_at: session.started_at,
            seen_at: info.seen_at,
            ended_at: info.ended_at,
            status: status.to_owned(),
            iterations: info.iteration,
            cost_usd: info.cost as f64 / 1e6,
            imported: info.imported,
            forked_from: info.forked_from.map(|(session, _)| session.to_string()),
            steps: None,
            errors: None,
        }
    }

    /// Returns when it was last active, as far as is known.
    pub fn last_seen(&self) -> Timestamp {
        self.seen_at.unwrap_or(self.started_at)
    }

    /// Returns enough of its id to tell it from others.
    pub fn short_id(&self) -> &str {
        self.id.get(..8).unwrap_or(&self.id)
    }
}

/// The result of an import.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ImportDocument {
    /// The sessions of the file, as they are in this store.
    pub sessions: Vec<SessionDocument>,
    /// Steps in the file.
    pub steps: u64,
    /// Steps that the store did not have yet.
    pub new_steps: u64,
    /// Objects that the store did not have yet.
    pub new_objects: u64,
}

/// Where to fork a conversation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewFork {
    /// The point to continue from: a step of the session.
    pub point: String,
    /// Only return how it would continue. The default is `true`.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub dry_run: bool,
}

fn yes() -> bool {
    true
}

/// A fork of a conversation, made or planned.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ConversationForkDocument {
    /// The session it was forked from.
    pub session: String,
    /// The name of the agent.
    pub agent: String,
    /// The number of the step it continues from.
    pub from: u64,
    /// The agent's id of the new session.
    pub new_agent_session: String,
    /// How many lines of the conversation it starts with.
    pub messages: u64,
    /// The command that continues the conversation.
    pub command: Vec<String>,
    /// The directory to run the command in.
    pub directory: String,
    /// A note for the user.
    pub note: Option<String>,
    /// Whether the fork was written; otherwise this is a preview.
    pub ready: bool,
}
