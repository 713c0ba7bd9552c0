//! The words of commands about a whole board: `stepback mind`, `recover` and `experiment`.

use clap::{Args, Subcommand};

use super::BoardArgs;

/// Experiments.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ExperimentCommand {
    /// Begin to try something out on a branch of its own
    #[command(
        after_help = "The branch is made at the last checkpoint and becomes the present one: files and board are its own until you leave it.\n\nExamples:\n  stepback experiment start no-cache --hypothesis H1 --success \"the test passes ten times\""
    )]
    Start {
        /// The branch
        branch: String,
        /// What is tried out
        #[arg(long, value_name = "H")]
        hypothesis: Option<String>,
        /// What must be so for it to have succeeded
        #[arg(long, value_name = "TEXT")]
        success: String,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Say what came of an experiment
    #[command(
        after_help = "\"stepback mind merge BRANCH\" takes over what was found out, from the branch you go on with.\n\nExamples:\n  stepback experiment end X1 succeeded \"ten passes in a row\""
    )]
    End {
        /// Which
        experiment: String,
        /// succeeded, failed, inconclusive or abandoned
        #[arg(value_parser = ["succeeded", "failed", "inconclusive", "abandoned"])]
        how: String,
        /// What came of it
        result: String,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// List experiments
    #[command(after_help = "Examples:\n  stepback experiment list")]
    List {
        #[command(flatten)]
        board: BoardArgs,
    },
}

// The whole board.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct MindArgs {
    /// As it was at this point [default: now]
    pub point: Option<String>,
    /// Also what is over: archived, retracted, resolved, filled
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub board: BoardArgs,
    /// What to do with it
    #[command(subcommand)]
    pub command: Option<MindCommand>,
}

// What can be done with a whole board.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum MindCommand {
    /// Say what changed between two moments, in sentences
    #[command(
        after_help = "Examples:\n  stepback mind diff \"2 hours ago\"\n  stepback mind diff '#40' '#80' --json"
    )]
    Diff {
        /// From this point
        from: String,
        /// To this one [default: now]
        to: Option<String>,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Make the board what it was at a point; files stay as they are
    #[command(
        after_help = "Examples:\n  stepback mind restore '#40'\n  stepback mind restore \"1 hour ago\" --dry-run"
    )]
    Restore {
        /// The point
        point: String,
        /// Show what would change and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Take back what one step changed; what came later stays
    #[command(after_help = "Examples:\n  stepback mind undo        the last change\n  stepback mind undo 42")]
    Undo {
        /// The number of the step [default: the newest]
        step: Option<String>,
        /// Show what would change and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Take over what was found out on a branch, with conflicts shown
    #[command(
        after_help = "Examples:\n  stepback mind merge no-cache --dry-run\n  stepback mind merge no-cache --theirs\n  stepback mind merge '#80' --base '#40'"
    )]
    Merge {
        /// The branch, or any point with --base
        from: String,
        /// Take over what came after this point [default: where the branch's experiment began]
        #[arg(long, value_name = "POINT")]
        base: Option<String>,
        /// Where both changed the same, theirs counts
        #[arg(long)]
        theirs: bool,
        /// Show what would change and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// List commands that the session ran, newest first
    #[command(after_help = "Examples:\n  stepback mind commands --limit 5")]
    Commands {
        /// At most N
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Show numbers about the board
    #[command(after_help = "Examples:\n  stepback mind metrics --json")]
    Metrics {
        #[command(flatten)]
        board: BoardArgs,
    },
}

// The page for an agent that lost its context.
#[derive(Debug, Args)]
pub struct Recover {
    /// At most so many tokens
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub budget: usize,
    /// As it was at this point
    #[arg(long, value_name = "POINT")]
    pub at: Option<String>,
    #[command(flatten)]
    pub board: BoardArgs,
}

/// Examples of `mind`.
pub const MIND: &str = "\
Examples:
  stepback mind                       what is thought now
  stepback mind \"10 minutes ago\"      what was thought then
  stepback mind --all --json
  stepback mind diff \"2 hours ago\"    what changed since
  stepback mind undo                  take back the last change";
/// Examples of `recover`.
pub const RECOVER: &str = "\
For an agent whose context was compacted, and for whoever takes over: what to do next, what is open, what is settled.

Examples:
  stepback recover
  stepback recover --budget 800";
