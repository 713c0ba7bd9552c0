//! The reasoning board of an agent (its mind) as part of its session: changed step by step, readable at any moment, taken back
//! and merged.
//!
//! Every change is a step of kind `reasoning` whose state has the mind after it. Such a step has no files of its own; if a
//! change is worth a checkpoint and files have changed, a checkpoint is made first. So the mind at a moment is that of the
//! newest such step at or before it, and pruning checkpoints never loses reasoning.

mod at_point;
mod commands;
mod editor;
mod experiment;
mod history;
mod merge;
mod process;
mod recover;
mod verify;

pub use self::at_point::{BoardAtPoint, BoardMoment};
pub use self::commands::CommandRun;
pub use self::editor::{BoardEdit, Thinker};
pub use self::experiment::StartedExperiment;
pub use self::history::{History, HypothesisHistory};
pub use self::merge::Joined;
pub use self::recover::Recovery;
pub use self::verify::Verified;

use stepback_model::record::Session;
use stepback_model::time::Timestamp;

use crate::error::EngineError;
use crate::session::status;
use crate::workspace::Workspace;

impl Workspace {
    /// Returns the session whose mind is meant: the one that is named, otherwise the only active agent session of the
    /// workspace, otherwise the user's. Fails if several agents are active.
    pub fn thinking_session(&self, named: Option<&str>, now: Timestamp) -> Result<Session, EngineError> {
        if let Some(text) = named {
            return self.find_session(text);
        }
        let mut live = self.running_sessions()?;
        live.retain(|session| status(session, false, now) == "active");
        match live.len() {
            0 => Ok(self.session.clone()),
            1 => Ok(live.remove(0)),
            _ => {
                let names: Vec<String> =
                    live.iter().map(|session| format!("{} {}", session.agent, session.id.short())).collect();
                Err(EngineError::Input(format!(
                    "{} agents are running here ({}); choose a board with --session",
                    live.len(),
                    names.join(", ")
                )))
            }
        }
    }
}
