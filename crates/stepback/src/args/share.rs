//! The words of commands that give sessions away and take them in.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Examples of `export`.
pub const EXPORT: &str = "\
A bundle holds the sessions with all files at every step, conversations and git directories: whoever gets it can read all of
that. Lines of JSON hold what happened and what was said, and the names of files that changed.

Examples:
  stepback export 4f2a -o session.bundle
  stepback export 4f2a --format jsonl | jq 'select(.record == \"step\") | .summary'
  stepback import session.bundle                elsewhere, in any directory";

/// Examples of `import`.
pub const IMPORT: &str = "\
What a file is, is found out. A bundle is checked as a whole before anything is taken in; to take it in twice changes nothing.

Examples:
  stepback import session.bundle
  stepback import ~/.claude/projects
  stepback import rollout.jsonl --agent codex";

// Giving sessions away.
#[derive(Debug, Args)]
pub struct Export {
    /// The sessions: the beginning of their ids, ours or the agents' [default: the last at work here]
    #[arg(value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// What to write
    #[arg(long, value_enum, default_value_t = ExportFormat::Bundle)]
    pub format: ExportFormat,
    /// Where to; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
}

// Taking something in.
#[derive(Debug, Args)]
pub struct Import {
    /// A bundle, a transcript, or a directory to look through
    pub path: PathBuf,
    /// The agent that wrote the transcript [default: found out]
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
