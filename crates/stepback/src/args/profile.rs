//! The words of the command that says where time went.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Examples of `profile`.
pub const PROFILE: &str = "\
Every moment of the session belongs to one category: a model, a tool, hooks and the agent itself, a breakpoint, the user, or idle. The duration of a call is without waiting.

Examples:
  stepback profile
  stepback profile 4f2a --json
  stepback profile 4f2a --format html -o profile.html
  stepback profile --format speedscope -o profile.json     open it at speedscope.app
  stepback profile --format chrome -o trace.json           open it at ui.perfetto.dev";

// Where the time of a session went.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// The session: the beginning of its id, stepback's or the agent's [default: the last active one here]
    #[arg(value_name = "SESSION")]
    pub session: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = ProfileFormat::Text)]
    pub format: ProfileFormat,
    /// Output file; - means standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
}

/// Formats of `profile`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ProfileFormat {
    /// A report for people
    Text,
    /// A file for speedscope
    Speedscope,
    /// Chrome trace events, for Perfetto
    Chrome,
    /// One page without scripts, with a waterfall
    Html,
}
