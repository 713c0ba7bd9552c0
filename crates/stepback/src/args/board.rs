//! Arguments of `stepback board`: one command for everything about the reasoning board. The names its parts once had on the
//! top level stay as hidden aliases.

use clap::{Args, Command, Subcommand};

mod belief;
mod experiment;
mod gap;
mod hypothesis;
pub mod verify;

pub use belief::{BeliefCommand, ContradictionCommand};
pub use experiment::ExperimentCommand;
pub use gap::{GapCommand, NoteCommand};
pub use hypothesis::{EvidenceCommand, HypothesisCommand};
pub use verify::VerifyCommand;

// Which board.
#[derive(Debug, Args)]
pub struct BoardSelector {
    /// Session whose board to use: the beginning of its id, stepback's or the agent's [default: the agent running here, else your own]
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
}

// The board; without a command, it is shown.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BoardArgs {
    #[command(flatten)]
    pub show: BoardShowArgs,
    #[command(subcommand)]
    pub command: Option<BoardCommand>,
}

// What to show of a board.
#[derive(Debug, Args)]
pub struct BoardShowArgs {
    /// Show the board at this point [default: now]
    pub point: Option<String>,
    /// Include archived, retracted, resolved and filled items
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub board: BoardSelector,
}

// What can be done with a board.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum BoardCommand {
    /// Show the board, now or at a point (the default)
    #[command(
        after_help = "Examples:\n  stepback board show\n  stepback board show \"10 minutes ago\" --all"
    )]
    Show(BoardShowArgs),
    #[command(flatten)]
    Part(BoardPartCommand),
    /// Describe what changed between two points
    #[command(
        after_help = "Examples:\n  stepback board diff \"2 hours ago\"\n  stepback board diff '#40' '#80' --json"
    )]
    Diff {
        /// The earlier point
        from: String,
        /// The later point [default: now]
        to: Option<String>,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Restore the board from a point; files do not change
    #[command(
        after_help = "Examples:\n  stepback board restore '#40'\n  stepback board restore \"1 hour ago\" --dry-run"
    )]
    Restore {
        /// A step number, label, time or other point ("stepback help points" lists the forms)
        point: String,
        /// Show what would change and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Undo the changes of one step; later changes are kept
    #[command(
        after_help = "Examples:\n  stepback board undo        the last change\n  stepback board undo 42"
    )]
    Undo {
        /// The number of the step [default: the newest]
        step: Option<String>,
        /// Show what would change and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Merge the board of a branch, and list conflicts
    #[command(
        after_help = "Examples:\n  stepback board merge no-cache --dry-run\n  stepback board merge no-cache --theirs\n  stepback board merge '#80' --base '#40'"
    )]
    Merge {
        /// The branch, or any point with --base
        from: String,
        /// Merge changes after this point [default: where the experiment of the branch began]
        #[arg(long, value_name = "POINT")]
        base: Option<String>,
        /// In a conflict, use the version of the branch
        #[arg(long)]
        theirs: bool,
        /// Show what would change and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// List commands that the session ran, newest first
    #[command(after_help = "Examples:\n  stepback board commands --limit 5")]
    Commands {
        /// List at most N
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Show statistics of the board
    #[command(after_help = "Examples:\n  stepback board metrics --json")]
    Metrics {
        #[command(flatten)]
        board: BoardSelector,
    },
}

// Parts of the board: under `board`, and hidden on the top level.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum BoardPartCommand {
    /// Hypotheses: propose, test, conclude
    #[command(subcommand)]
    Hypothesis(HypothesisCommand),
    /// Evidence for and against hypotheses
    #[command(subcommand)]
    Evidence(EvidenceCommand),
    /// Beliefs, and what they depend on
    #[command(subcommand)]
    Belief(BeliefCommand),
    /// Contradictions between items
    #[command(subcommand)]
    Contradiction(ContradictionCommand),
    /// Gaps: open questions, and what to do next
    #[command(subcommand)]
    Gap(GapCommand),
    /// Checks that run and add evidence
    #[command(subcommand)]
    Verify(VerifyCommand),
    /// Notes
    #[command(subcommand)]
    Note(NoteCommand),
    /// Experiments: work on a branch with its own board
    #[command(subcommand)]
    Experiment(ExperimentCommand),
    /// Summarize the board for an agent that lost its context
    #[command(after_help = RECOVER)]
    Recover(RecoverArgs),
}

/// Hides `command` if it is a part of the board on the top level.
pub fn hide_part(command: Command) -> Command {
    match BoardPartCommand::has_subcommand(command.get_name()) {
        true => command.hide(true),
        false => command,
    }
}

// The summary for an agent that lost its context.
#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// Length limit in tokens
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub budget: usize,
    /// Show the board at this point
    #[arg(long, value_name = "POINT")]
    pub at: Option<String>,
    /// List what brings the session back: code, environment, command, and what is done by hand
    #[arg(long)]
    pub steps: bool,
    /// Apply these steps of --steps, in this order
    #[arg(long, value_name = "STEP", num_args = 1..)]
    pub apply: Vec<usize>,
    #[command(flatten)]
    pub agree: super::ConfirmArgs,
    #[command(flatten)]
    pub board: BoardSelector,
}

/// Examples of `board`.
pub const BOARD: &str = "\
Without a command, the board is shown.

Examples:
  stepback board                                    the current board
  stepback board show \"10 minutes ago\"              the board at that time
  stepback board hypothesis propose \"the cache is stale\"
  stepback board gap next                           what to do next
  stepback board diff \"2 hours ago\"                 what changed since then
  stepback board undo                               undo the last change";

const RECOVER: &str = "\
For an agent whose context was compacted, or an agent that takes over: what to do next, what is open, what is settled.

Examples:
  stepback board recover
  stepback board recover --budget 800
  stepback board recover --steps             what can be applied
  stepback board recover --apply 1 2";
