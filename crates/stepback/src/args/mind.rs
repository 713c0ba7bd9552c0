//! The words of commands about what an agent thinks: hypotheses, evidence, beliefs, gaps, checks, notes.

use clap::Args;

mod belief;
mod board;
mod gap;
mod hypothesis;
pub mod verify;

pub use belief::{Belief, Contradiction};
pub use board::{Experiment, MIND, Mind, MindCommand, RECOVER, Recover};
pub use gap::{Gap, Note};
pub use hypothesis::{Evidence, Hypothesis};

// Whose board.
#[derive(Debug, Args)]
pub struct Board {
    /// Of this session: the beginning of its id, ours or the agent's [default: the agent at work here, else your own]
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
}
