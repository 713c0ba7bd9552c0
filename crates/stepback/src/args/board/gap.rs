//! Arguments of `stepback board gap` and `stepback board note`.

use clap::Subcommand;

use super::BoardSelector;

/// Gaps.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum GapCommand {
    /// Add an open question
    #[command(
        after_help = "Examples:\n  stepback board gap add \"which version does production run?\" --kind environment --criticality high --blocks H1\n  stepback board gap add \"why is the key empty?\" --after G1 --strategy \"print it\" --minutes 5"
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
        /// An item that it blocks (can be repeated)
        #[arg(long, value_name = "ITEM")]
        blocks: Vec<String>,
        /// A gap that must be filled first (can be repeated)
        #[arg(long, value_name = "G")]
        after: Vec<String>,
        /// How it could be filled
        #[arg(long, value_name = "TEXT")]
        strategy: Option<String>,
        /// Estimated minutes to fill it
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        minutes: Option<f64>,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Fill a gap with an answer
    #[command(after_help = "Examples:\n  stepback board gap fill G1 \"2.4.1, since Monday\"")]
    Fill {
        /// The gap, such as G1
        gap: String,
        /// The answer
        answer: String,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Drop a gap that no longer matters
    #[command(after_help = "Examples:\n  stepback board gap drop G2 \"the code is gone\"")]
    Drop {
        /// The gap, such as G1
        gap: String,
        /// The reason
        reason: String,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Reopen a gap
    #[command(after_help = "Examples:\n  stepback board gap reopen G1")]
    Reopen {
        /// The gap, such as G1
        gap: String,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Record that a gap must wait for another
    #[command(after_help = "Examples:\n  stepback board gap after G2 G1")]
    After {
        /// The gap, such as G1
        gap: String,
        /// The gap that must be filled first
        first: String,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Suggest what to do next: gaps to fill, hypotheses to test, contradictions to resolve
    #[command(after_help = "Examples:\n  stepback board gap next\n  stepback board gap next --json")]
    Next {
        #[command(flatten)]
        board: BoardSelector,
    },
    /// List gaps, the next one to fill first
    #[command(after_help = "Examples:\n  stepback board gap list")]
    List {
        #[command(flatten)]
        board: BoardSelector,
    },
}

/// Notes.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum NoteCommand {
    /// Add a note
    #[command(
        after_help = "Examples:\n  stepback board note add \"the staging database is a copy of Monday\" --about H1 --tag setup"
    )]
    Add {
        /// The text
        text: String,
        /// An item it is about (can be repeated)
        #[arg(long, value_name = "ITEM")]
        about: Vec<String>,
        /// A tag (can be repeated)
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// List notes, newest first
    #[command(after_help = "Examples:\n  stepback board note list")]
    List {
        #[command(flatten)]
        board: BoardSelector,
    },
}
