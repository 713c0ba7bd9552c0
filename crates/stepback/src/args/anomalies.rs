//! The words of the command that says what is unusual.

use clap::Args;

/// Examples of `anomalies`.
pub const ANOMALIES: &str = "\
Finds loops, edits that undo each other, retries that grow, bursts of errors, checks that keep failing in the same way, calls that are far slower or dearer than others like them, and contexts that grow without use. All of it is inferred; each line names what was measured. \"stepback settings anomalies.KIND\" sets the limit of a kind, and 0 turns it off.

Examples:
  stepback anomalies
  stepback anomalies 4f2a
  stepback anomalies --since yesterday --kind loop,no-progress
  stepback anomalies --all-workspaces --json
  stepback breakpoint add anomaly loop     stop an agent that loops";

// What is unusual.
#[derive(Debug, Args)]
pub struct AnomaliesArgs {
    /// The session: the beginning of its id, stepback's or the agent's [default: all sessions of this workspace]
    #[arg(value_name = "SESSION")]
    pub session: Option<String>,
    /// Only incidents that went on since this time: "2 hours ago", 2026-01-23
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only these kinds (loop, alternating-edits, growing-retries, error-burst, no-progress, undone-edits, slow-call, costly-call, context-growth), separated by commas
    #[arg(long = "kind", value_name = "KINDS", value_delimiter = ',')]
    pub kinds: Vec<String>,
    /// Show all of them instead of the newest 20
    #[arg(long)]
    pub all: bool,
    /// Sessions of every workspace in the store
    #[arg(long, conflicts_with = "session")]
    pub all_workspaces: bool,
}
