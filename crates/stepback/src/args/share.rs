//! The words of commands that give sessions away and take them in.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::git::GitExportArgs;

/// Examples of `export`.
pub const EXPORT: &str = "\
A bundle contains the sessions with all files at every step, conversations and git directories: anyone who gets it can read
them. Lines of JSON contain steps, conversations, and the names of changed files.
The other formats hold one session, are redacted again, and are not imported as a whole. With --git, a session becomes commits
on a new branch of the git repository; the index, the work tree and what is checked out stay as they are.

Examples:
  stepback export 4f2a -o session.bundle
  stepback import session.bundle                on another machine, in any directory
  stepback export --html -o session.html        a page to read and to send, which needs no network
  stepback export 4f2a --format jsonl | jq 'select(.record == \"step\") | .summary'
  stepback export --otlp http://127.0.0.1:4318  to an OpenTelemetry collector
  stepback export --otlp spans.json             for tools that read OTLP as JSON
  stepback export --agent-trace | jq .files     which lines the session wrote
  stepback export 4f2a --git agent-work && git log --stat agent-work";

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
    /// The same as --format html: a page to read
    #[arg(long, group = "shorthand", conflicts_with = "format")]
    pub html: bool,
    /// The same as --format atif: a trajectory in ATIF 1.7
    #[arg(long, group = "shorthand", conflicts_with = "format")]
    pub atif: bool,
    /// The same as --format agent-trace: the lines that the session wrote, as Agent Trace 0.1.0
    #[arg(long, group = "shorthand", conflicts_with = "format")]
    pub agent_trace: bool,
    /// The same as --format har: the recorded model calls as an HTTP archive
    #[arg(long, group = "shorthand", conflicts_with = "format")]
    pub har: bool,
    /// Spans by OpenTelemetry's GenAI conventions: into a file as JSON, or to the receiver at http://… or https://…
    #[arg(long, value_name = "FILE|URL", group = "shorthand", conflicts_with_all = ["format", "output"])]
    pub otlp: Option<PathBuf>,
    /// Output file; - means standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    /// Replace the file if it exists, or with --git the branch if an earlier export wrote it
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub into_git: GitExportArgs,
}

impl ExportArgs {
    /// The format, however it was given.
    pub fn chosen_format(&self) -> ExportFormat {
        match self {
            Self { html: true, .. } => ExportFormat::Html,
            Self { atif: true, .. } => ExportFormat::Atif,
            Self { agent_trace: true, .. } => ExportFormat::AgentTrace,
            Self { har: true, .. } => ExportFormat::Har,
            Self { otlp: Some(_), .. } => ExportFormat::Otlp,
            Self { format, .. } => *format,
        }
    }

    /// The output file, which `--otlp` can name too.
    pub fn chosen_output(&self) -> &Path {
        self.otlp.as_deref().unwrap_or(&self.output)
    }
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
    /// A page to read
    Html,
    /// A trajectory in ATIF
    Atif,
    /// A record of Agent Trace
    AgentTrace,
    /// An HTTP archive of the model calls
    Har,
    /// Spans, as OTLP writes them in JSON
    Otlp,
}
