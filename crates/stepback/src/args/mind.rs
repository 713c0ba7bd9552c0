//! The words of commands about what an agent thinks: hypotheses, evidence, beliefs, gaps, checks, notes.

use clap::Args;

mod belief;
mod board;
mod gap;
mod hypothesis;
pub mod verify;

pub use belief::{BeliefCommand, ContradictionCommand};
pub use board::{ExperimentCommand, MIND, MindArgs, MindCommand, RECOVER, Recover};
pub use gap::{GapCommand, NoteCommand};
pub use hypothesis::{EvidenceCommand, HypothesisCommand};

// Whose board.
#[derive(Debug, Args)]
pub struct BoardArgs {
    /// Of this session: the beginning of its id, ours or the agent's [default: the agent at work here, else your own]
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
}
