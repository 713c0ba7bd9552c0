//! The words of `stepback gap` and `stepback note`.

use clap::Subcommand;

use super::BoardArgs;

/// Gaps.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum GapCommand {
    /// Say what is not known
    #[command(
        after_help = "Examples:\n  stepback gap add \"which version does production run?\" --kind environment --criticality high --blocks H1\n  stepback gap add \"why is the key empty?\" --after G1 --strategy \"print it\" --minutes 5"
    )]
    Add {
        /// The question
        question: String,
        /// fact, behavior, cause, environment, requirement or impact
        #[arg(long, value_name = "KIND", default_value = "fact")]
        kind: String,
        /// low, medium, high or critical
        #[arg(long, value_name = "C", default_value = "medium")]
        criticality: String,
        /// What cannot go on without it (can be repeated)
        #[arg(long, value_name = "ITEM")]
        blocks: Vec<String>,
        /// A gap to be filled first (can be repeated)
        #[arg(long, value_name = "G")]
        after: Vec<String>,
        /// How it could be filled
        #[arg(long, value_name = "TEXT")]
        strategy: Option<String>,
        /// How long that would take
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        minutes: Option<f64>,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Say what was found out
    #[command(after_help = "Examples:\n  stepback gap fill G1 \"2.4.1, since Monday\"")]
    Fill {
        /// Which
        gap: String,
        /// What was found out
        answer: String,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Say that nobody needs to know any more
    #[command(after_help = "Examples:\n  stepback gap drop G2 \"the code is gone\"")]
    Drop {
        /// Which
        gap: String,
        /// Why
        reason: String,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Open a gap again
    #[command(after_help = "Examples:\n  stepback gap reopen G1")]
    Reopen {
        /// Which
        gap: String,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Say that a gap waits for another one
    #[command(after_help = "Examples:\n  stepback gap after G2 G1")]
    After {
        /// Which
        gap: String,
        /// The one to be filled first
        first: String,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Say what to do next: gaps to fill, hypotheses to test, contradictions to settle
    #[command(after_help = "Examples:\n  stepback gap next\n  stepback gap next --json")]
    Next {
        #[command(flatten)]
        board: BoardArgs,
    },
    /// List gaps, the next to fill first
    #[command(after_help = "Examples:\n  stepback gap list")]
    List {
        #[command(flatten)]
        board: BoardArgs,
    },
}

/// Notes.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum NoteCommand {
    /// Write something down
    #[command(
        after_help = "Examples:\n  stepback note add \"the staging database is a copy of Monday\" --about H1 --tag setup"
    )]
    Add {
        /// What
        text: String,
        /// An item it is about (can be repeated)
        #[arg(long, value_name = "ITEM")]
        about: Vec<String>,
        /// A word to find it by (can be repeated)
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// List notes, newest first
    #[command(after_help = "Examples:\n  stepback note list")]
    List {
        #[command(flatten)]
        board: BoardArgs,
    },
}
