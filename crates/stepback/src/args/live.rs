//! The words of commands about live agents: sessions, breakpoints, control, branches, hooks.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

// Which session a command is about.
#[derive(Debug, Args)]
pub struct SessionArg {
    /// The session: the beginning of its id, ours or the agent's [default: the agent that waits, else the last at work]
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
}

// Listing sessions.
#[derive(Debug, Args)]
pub struct Sessions {
    /// Only sessions of this agent
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Only sessions that did something since then: "2 hours ago", 2026-01-23
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Those of every workspace in the store
    #[arg(long, conflicts_with = "workspace")]
    pub all_workspaces: bool,
}

// Putting hooks into agents.
#[derive(Debug, Args)]
pub struct Init {
    /// Only this agent (can be repeated) [default: those in use]
    #[arg(long = "agent", value_name = "NAME")]
    pub agents: Vec<String>,
    /// For every project of this user instead of this one
    #[arg(long)]
    pub user: bool,
    /// Also let the agent travel in time itself: add the MCP server (stepback mcp) to its settings
    #[arg(long)]
    pub mcp: bool,
    /// Take the hooks and the MCP server out again
    #[arg(long)]
    pub uninstall: bool,
    /// A checkpoint that cannot be made blocks the agent's call instead of leaving a gap
    #[arg(long)]
    pub strict: bool,
    /// Show what would change and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

// Running an agent.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// A checkpoint that cannot be made blocks the agent's call instead of leaving a gap
    #[arg(long)]
    pub strict: bool,
    /// Leave its model calls alone: they are not recorded, and the session cannot be rerun
    #[arg(long)]
    pub no_proxy: bool,
    /// The agent's command, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

// Running the built-in agent.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// The task
    pub prompt: Option<String>,
    /// Who answers: anthropic, openai-compatible, or scripted FILE [default: scripted with --script, else anthropic]
    #[arg(long, value_names = ["NAME", "FILE"], num_args = 1..=2)]
    pub provider: Vec<String>,
    /// The model [default: what the script or the provider says]
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// The script that is played
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Where the provider is, if not at its own address
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// End after N answers of the model
    #[arg(long, value_name = "N", default_value_t = stepback_builtin_agent::MAX_TURNS)]
    pub max_turns: u64,
    /// Begin as this file says (a rerun does this)
    #[arg(long, value_name = "FILE", hide = true)]
    pub again: Option<PathBuf>,
    /// Go on with the conversation as it was at this point, in a new session
    #[arg(long, value_name = "POINT")]
    pub from: Option<String>,
    /// Go on with a session: the beginning of its id, ours or the agent's
    #[arg(long, value_name = "SESSION", conflicts_with = "from")]
    pub session: Option<String>,
}

/// Breakpoints.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum BreakpointCommand {
    /// Stop when something happens
    #[command(
        after_help = "Examples:\n  stepback breakpoint add tool Bash\n  stepback breakpoint add tool Bash --condition 'rm -rf|git push'\n  stepback breakpoint add path 'src/auth/**'\n  stepback breakpoint add pattern 'DROP TABLE'\n  stepback breakpoint add iteration 20\n  stepback breakpoint add error\n  stepback breakpoint add cost 2.50\n  stepback breakpoint add tool Write --log     only note it"
    )]
    Add(AddBreakpoint),
    /// List breakpoints and how often each was hit
    #[command(after_help = "Examples:\n  stepback breakpoint list")]
    List,
    /// Remove a breakpoint
    #[command(after_help = "Examples:\n  stepback breakpoint remove 2")]
    Remove {
        /// Its number
        id: u64,
    },
    /// Put a breakpoint in force again
    #[command(after_help = "Examples:\n  stepback breakpoint enable 2")]
    Enable {
        /// Its number
        id: u64,
    },
    /// Keep a breakpoint without stopping at it
    #[command(after_help = "Examples:\n  stepback breakpoint disable 2")]
    Disable {
        /// Its number
        id: u64,
    },
    /// Remove all breakpoints
    #[command(after_help = "Examples:\n  stepback breakpoint clear")]
    Clear,
}

// A new breakpoint.
#[derive(Debug, Args)]
pub struct AddBreakpoint {
    /// tool NAME, iteration N, pattern RE, error, path GLOB, or cost USD
    #[arg(value_parser = ["tool", "iteration", "pattern", "error", "path", "cost"])]
    pub kind: String,
    /// What the kind needs
    pub value: Option<String>,
    /// The input must match this regular expression too
    #[arg(long, value_name = "RE")]
    pub condition: Option<String>,
    /// Stop from the Nth hit on
    #[arg(long, value_name = "N")]
    pub hits: Option<u64>,
    /// Only note it in the record; do not stop
    #[arg(long)]
    pub log: bool,
}

/// Branches.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum BranchCommand {
    /// Name a line of steps that begins at a point
    #[command(
        after_help = "Examples:\n  stepback branch create try-redis\n  stepback branch create try-redis --from '#12'\n  stepback branch create try-redis --from '#12' --worktree ../try-redis --resume \"use redis instead\""
    )]
    Create {
        /// Its name
        name: String,
        /// The point it begins at [default: now]
        #[arg(long, value_name = "POINT")]
        from: Option<String>,
        /// Give it a directory of its own, so that two can be worked on at once
        #[arg(long, value_name = "DIR")]
        worktree: Option<PathBuf>,
        /// Let the agent go on there with this prompt; without --worktree, the workspace goes to the branch first
        #[arg(long, value_name = "PROMPT")]
        resume: Option<String>,
        #[command(flatten)]
        agree: super::ConfirmArgs,
    },
    /// List branches
    #[command(after_help = "Examples:\n  stepback branch list")]
    List,
    /// Make another branch the present one: its files come back
    #[command(after_help = "Examples:\n  stepback branch switch main")]
    Switch {
        /// Its name
        name: String,
        /// The board of what was thought there comes back, too
        #[arg(long)]
        reasoning: bool,
        #[command(flatten)]
        agree: super::ConfirmArgs,
    },
    /// Give another name to a branch
    #[command(after_help = "Examples:\n  stepback branch rename try-redis redis")]
    Rename {
        /// Its name
        name: String,
        /// Its new name
        to: String,
    },
    /// Forget a branch; its steps stay
    #[command(after_help = "Examples:\n  stepback branch delete try-redis")]
    Delete {
        /// Its name
        name: String,
    },
    /// Compare two branches: files, conversation, steps
    #[command(after_help = "Examples:\n  stepback branch compare main try-redis")]
    Compare {
        /// One
        a: String,
        /// The other [default: the present one]
        b: Option<String>,
    },
}
