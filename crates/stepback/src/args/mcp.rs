//! The words of `mcp`.

use clap::Args;

/// Examples of `mcp`.
pub const MCP: &str = "\
An agent starts this by itself when it is in its settings: \"stepback init --mcp\" puts it there. One message of the Model Context \
Protocol per line on stdin and stdout; it ends when stdin does. An agent may look at everything and change only what is its own.

Examples:
  stepback init --mcp
  claude mcp add stepback -- stepback mcp
  stepback mcp --session 4f2a";

// Serving an agent.
#[derive(Debug, Args)]
pub struct Mcp {
    /// Speak for this session: the beginning of its id, ours or the agent's [default: the agent that started it, else the one at work here]
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
    /// Let the agent write into sessions of others, and take back what they did
    #[arg(long)]
    pub allow_others: bool,
}
