//! The words of commands that write into the user's git repository.

use clap::{Args, Subcommand, ValueEnum};

/// Examples of `notes`.
pub const NOTES: &str = "\
Notes in the format authorship/3.0.0 below refs/notes/ai say which lines that a commit added were written by which session.
Entries of other programs stay as they are. Nothing else in the repository changes.

Examples:
  stepback notes write                 for the commit that is checked out
  stepback notes write main..HEAD
  stepback notes write --dry-run
  stepback notes read HEAD~1
  git notes --ref=ai show";

// Writing a session as commits.
#[derive(Debug, Args)]
pub struct GitExportArgs {
    /// Write the session as commits on this new branch, or reference below refs/stepback/, of the git repository
    #[arg(long, value_name = "BRANCH", conflicts_with_all = ["format", "output", "shorthand"])]
    pub git: Option<String>,
    /// What becomes a commit
    #[arg(long, value_enum, default_value_t = CommitGroup::Turn, requires = "git")]
    pub per: CommitGroup,
}

/// What becomes a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CommitGroup {
    /// What the session did between one prompt and the next
    Turn,
    /// Every checkpoint
    Checkpoint,
}

/// Commands about authorship notes.
#[derive(Debug, Subcommand)]
pub enum NotesCommand {
    /// Write who wrote the lines that commits added
    #[command(after_help = "Examples:\n  stepback notes write\n  stepback notes write main..HEAD --dry-run")]
    Write(NotesWriteArgs),
    /// Print who wrote the lines that a commit added
    #[command(after_help = "Examples:\n  stepback notes read\n  stepback notes read HEAD~1 --json")]
    Read(NotesReadArgs),
}

// Writing notes.
#[derive(Debug, Args)]
pub struct NotesWriteArgs {
    /// A commit, or a range: main..HEAD
    #[arg(value_name = "COMMIT|RANGE", default_value = "HEAD")]
    pub commits: String,
    /// Only print what would be written
    #[arg(long)]
    pub dry_run: bool,
}

// Reading notes.
#[derive(Debug, Args)]
pub struct NotesReadArgs {
    /// The commit
    #[arg(value_name = "COMMIT", default_value = "HEAD")]
    pub commit: String,
}
