//! The words of commands that save, list and compare states.

use clap::{Args, Subcommand};

/// Checkpoints.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum CheckpointCommand {
    /// Save the current state as a checkpoint
    #[command(
        after_help = "Examples:\n  stepback checkpoint create\n  stepback checkpoint create \"before refactoring\" -m \"tests are green\" --tag release"
    )]
    Create {
        /// A short name
        label: Option<String>,
        /// A note
        #[arg(short = 'm', value_name = "NOTE")]
        note: Option<String>,
        /// A tag (can be repeated)
        #[arg(long = "tag", value_name = "T")]
        tags: Vec<String>,
    },
    /// List checkpoints, newest first
    #[command(
        after_help = "Examples:\n  stepback checkpoint list\n  stepback checkpoint list --tag release --json\n  stepback checkpoint list --find tests"
    )]
    List {
        /// Only with this tag
        #[arg(long, value_name = "T")]
        tag: Option<String>,
        /// Only with this text in label, note or tags
        #[arg(long, value_name = "TEXT")]
        find: Option<String>,
        /// Only checkpoints of this session, and yours while it was at work
        #[arg(short, long, value_name = "SESSION")]
        session: Option<String>,
        /// Include automatic checkpoints and rewinds
        #[arg(long)]
        all: bool,
    },
    /// Show one checkpoint
    #[command(after_help = concat!("Examples:\n  stepback checkpoint show @\n  stepback checkpoint show '#3' --json"))]
    Show {
        /// A step number, label, time or other point ("stepback help points" lists the forms)
        point: String,
    },
    /// Replace a checkpoint's note
    #[command(
        after_help = "Examples:\n  stepback checkpoint annotate '#3' \"this one works\"\n  stepback checkpoint annotate '#3' \"works\" --label good --tag release"
    )]
    Annotate {
        /// A step number, label, time or other point ("stepback help points" lists the forms)
        point: String,
        /// The note
        note: String,
        /// A new label
        #[arg(long)]
        label: Option<String>,
        /// A tag to add (can be repeated)
        #[arg(long = "tag", value_name = "T")]
        tags: Vec<String>,
    },
    /// Delete a checkpoint ("stepback undo" restores it)
    #[command(after_help = "Examples:\n  stepback checkpoint delete '#3'")]
    Delete {
        /// A step number, label, time or other point ("stepback help points" lists the forms)
        point: String,
    },
}

// Listing changes.
#[derive(Debug, Args)]
pub struct ChangesArgs {
    /// Only changes after this point; "clear" starts a new list
    pub point: Option<String>,
    /// Only changes of paths that match (can be repeated)
    #[arg(long = "path", value_name = "GLOB")]
    pub paths: Vec<String>,
    /// Only changes that this session made
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
    /// Include changes that were taken back or cleared
    #[arg(long)]
    pub all: bool,
}

// Comparing.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Points A and B, or A..B (missing: the last checkpoint, and the working directory), then paths
    #[arg(value_name = "A] [B")]
    pub points: Vec<String>,
    /// Only a summary per file
    #[arg(long)]
    pub stat: bool,
    /// Only the paths that differ, one per line
    #[arg(long, conflicts_with = "stat")]
    pub name_only: bool,
    /// Old and new in two columns
    #[arg(long, conflicts_with_all = ["stat", "name_only"])]
    pub side_by_side: bool,
    /// Lines of context
    #[arg(long, short = 'U', value_name = "N", default_value_t = 3)]
    pub unified: usize,
    /// Only these paths
    #[arg(last = true, value_name = "PATH")]
    pub paths: Vec<String>,
}
