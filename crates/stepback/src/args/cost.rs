//! Arguments of `cost`.

use clap::{Args, ValueEnum};
use stepback_analysis::cost::CostGrouping;

/// Explanation and examples of `cost`.
pub const COST: &str = "\
Tokens and money of model calls, as proxies, hooks, telemetry and the agents' own conversations recorded them. Where no cost was recorded it is computed from the tokens, with the built-in list prices and your own in prices.json in the store's directory.
A tool costs what later requests pay for its results, and the answers that asked for its calls; this is inferred from how much each request grew. Answers that reruns took from a recording cost nothing, and are shown apart from the total.

Examples:
  stepback cost
  stepback cost --by tool --since yesterday
  stepback cost 4f2a --by prompt
  stepback cost --all-workspaces --by day --since '30 days ago' --json";

// What model calls cost.
#[derive(Debug, Args)]
pub struct CostArgs {
    /// Only this session: the beginning of its id, stepback's or the agent's
    #[arg(value_name = "SESSION")]
    pub session: Option<String>,
    /// What the rows are about
    #[arg(long, value_enum, value_name = "WHAT", default_value = "model")]
    pub by: CostBy,
    /// Only calls since this time: "2 hours ago", 2026-01-23
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Sessions of every workspace in the store
    #[arg(long, conflicts_with = "workspace")]
    pub all_workspaces: bool,
    /// Count what reruns asked models for, too
    #[arg(long)]
    pub reruns: bool,
    /// Show at most N rows; the others are added up
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub limit: usize,
}

/// What the rows of `cost` are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CostBy {
    /// The model that answered
    Model,
    /// The tool whose results were read (inferred)
    Tool,
    /// The agent
    Agent,
    /// The session
    Session,
    /// The branch
    Branch,
    /// The prompt that the agent was working on
    Prompt,
    /// The day, in universal time
    Day,
}

impl From<CostBy> for CostGrouping {
    fn from(by: CostBy) -> Self {
        match by {
            CostBy::Model => Self::Model,
            CostBy::Tool => Self::Tool,
            CostBy::Agent => Self::Agent,
            CostBy::Session => Self::Session,
            CostBy::Branch => Self::Branch,
            CostBy::Prompt => Self::Prompt,
            CostBy::Day => Self::Day,
        }
    }
}
