//! The words of commands that give sessions away and take them in.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::git::GitExportArgs;

/// Examples of `export`.
pub const EXPORT: &str = "\
A bundle contains the sessions with all files at every step, conversations and git directories: anyone who gets it can read
them. Lines of JSON contain steps, conversations, and the names of changed files. With --git, a session becomes commits on a
new branch of the git repository; the index, the work tree and what is checked out stay as they are.

Examples:
  stepback export 4f2a -o session.bundle
  stepback export 4f2a --format jsonl | jq 'select(.record == \"step\") | .summary'
  stepback export 4f2a --git agent-work && git log --stat agent-work
  stepback import session.bundle                on another machine, in any directory";

/// Examples of `import`.
pub const IMPORT: &str = "\
The format of a file is detected. A bundle is verified as a whole before it is imported; importing it again changes nothing.

Examples:
  stepback import session.bundle
  stepback import ~/.claude/projects
  stepback import rollout.jsonl --agent codex";

// Giving sessions away.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The sessions: the beginning of their ids, stepback's or the agents' [default: the last active one here]
    #[arg(value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = ExportFormat::Bundle)]
    pub format: ExportFormat,
    /// Output file; - means standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    #[command(flatten)]
    pub into_git: GitExportArgs,
}

// Taking something in.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// A bundle, a transcript, or a directory to search for transcripts
    pub path: PathBuf,
    /// The agent that wrote the transcript [default: detected]
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
}

/// Formats of `export`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ExportFormat {
    /// Everything, for another store
    Bundle,
    /// Lines of JSON, for other programs
    Jsonl,
}
