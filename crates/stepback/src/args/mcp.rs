//! The words of `mcp`.

use clap::Args;

/// Examples of `mcp`.
pub const MCP: &str = "\
An agent starts this server itself once it is in its settings; \"stepback init --mcp\" adds it. It reads and writes one message \
of the Model Context Protocol per line and exits when stdin closes. An agent can read everything and change only its own work.

Examples:
  stepback init --mcp
  claude mcp add stepback -- stepback mcp
  stepback mcp --session 4f2a";

// Serving an agent.
#[derive(Debug, Args)]
pub struct McpArgs {
    /// Act for this session: the beginning of its id, stepback's or the agent's [default: the agent that started it, else the one running here]
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
    /// Let the agent change other sessions and revert their changes
    #[arg(long)]
    pub allow_others: bool,
}
