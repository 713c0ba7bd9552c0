//! Why a session cannot be rerun, in words that say what to do about it.

use std::io;

use stepback_agents::Agent;
use stepback_agents::install::InstallError;
use stepback_api::failure::{self, FailureKind};
use stepback_engine::EngineError;

use crate::change::ChangeError;

/// Why a session cannot be rerun.
#[derive(Debug, thiserror::Error)]
pub enum RerunError {
    /// An error of the engine or the store.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An error of the agent's settings.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// A change that does not fit the session.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// The session has no model calls.
    #[error("the model calls of this session were not recorded, so they cannot be replayed")]
    NoCalls,
    /// The session has no prompt.
    #[error("this session has no prompt, so there is nothing to rerun")]
    NoPrompt,
    /// The session belongs to an agent that stepback cannot start.
    #[error("a session of \"{0}\" cannot be rerun: stepback does not know how to start this agent")]
    UnknownAgent(String),
    /// The agent is not installed.
    #[error("{} is not installed: program \"{program}\" not found", .agent.title())]
    AgentNotInstalled {
        /// The agent of the session.
        agent: Agent,
        /// The program that was looked for.
        program: String,
    },
    /// The address of the agent's model calls cannot be changed.
    #[error("{} does not support being answered from a recording", .0.title())]
    NoRoute(Agent),
    /// No rerun waits under this name.
    #[error("no prepared rerun waits as branch {0}: it was started already, or never prepared")]
    NotPrepared(String),
    /// The change does not apply to this kind of session.
    #[error("{0}")]
    NotApplicable(String),
    /// An I/O error.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl RerunError {
    /// Returns the kind of the error, and a hint on what to do about it.
    pub fn kind_and_hint(&self) -> (FailureKind, Option<&'static str>) {
        let (kind, hint) = match self {
            Self::Engine(error) => return failure::classify_engine_error(error),
            Self::NoCalls => (
                FailureKind::Nothing,
                "start agents with \"stepback run -- …\" or point them at \"stepback proxy\" to record their model calls",
            ),
            Self::NoPrompt | Self::UnknownAgent(_) => {
                (FailureKind::Nothing, "\"stepback sessions\" lists the sessions")
            }
            Self::NotPrepared(_) => (
                FailureKind::Refused,
                "\"stepback branch list\" shows the branches and reruns with their status",
            ),
            Self::Change(_) => (FailureKind::Usage, "\"stepback replay\" shows the steps with their numbers"),
            Self::NotApplicable(_) => (
                FailureKind::Usage,
                "\"stepback replay\" shows the session, \"stepback rerun --help\" explains the options",
            ),
            Self::AgentNotInstalled { .. } => {
                (FailureKind::System, "install it, or add it to the PATH; the recording is unchanged")
            }
            Self::Install(_) | Self::NoRoute(_) => (FailureKind::Refused, "nothing was changed"),
            Self::Io { .. } => (FailureKind::System, "your files were not changed"),
        };
        (kind, Some(hint))
    }
}
