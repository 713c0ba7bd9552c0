//! The words of commands about live agents: sessions, breakpoints, control, branches, hooks.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use stepback_engine::control::{BudgetScope, HitCondition};

// Which session a command is about.
#[derive(Debug, Args)]
pub struct SessionArg {
    /// The session: the beginning of its id, stepback's or the agent's [default: the stopped agent, else the last active one]
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
}

// Listing sessions.
#[derive(Debug, Args)]
pub struct SessionsArgs {
    /// Only sessions of this agent
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Only sessions active since then: "2 hours ago", 2026-01-23
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Sessions of every workspace in the store
    #[arg(long, conflicts_with = "workspace")]
    pub all_workspaces: bool,
}

// Putting hooks into agents.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Only this agent (can be repeated) [default: those in use]
    #[arg(long = "agent", value_name = "NAME")]
    pub agents: Vec<String>,
    /// Install for all projects of this user instead of this one
    #[arg(long)]
    pub user: bool,
    /// Also add the MCP server (stepback mcp) to the agent's settings, so that it can rewind by itself
    #[arg(long)]
    pub mcp: bool,
    /// Also keep an append-only copy of the store in this directory or bucket, as "stepback mirror add" does
    #[arg(long, value_name = "PLACE", conflicts_with = "uninstall")]
    pub mirror: Option<String>,
    /// Remove the hooks and the MCP server
    #[arg(long)]
    pub uninstall: bool,
    /// Block the agent's call if its checkpoint fails, instead of recording a gap
    #[arg(long)]
    pub strict: bool,
    /// Show what would change and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

// Running an agent.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Block the agent's call if its checkpoint fails, instead of recording a gap
    #[arg(long)]
    pub strict: bool,
    /// Do not record its model calls; the session cannot be rerun then
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
    /// The provider: anthropic, openai-compatible, or scripted FILE [default: scripted with --script, else anthropic]
    #[arg(long, value_names = ["NAME", "FILE"], num_args = 1..=2)]
    pub provider: Vec<String>,
    /// The model [default: that of the script or provider]
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// The script to play
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Base URL of the provider, instead of its default
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// Stop after N answers of the model
    #[arg(long, value_name = "N", default_value_t = stepback_builtin_agent::MAX_TURNS)]
    pub max_turns: u64,
    /// Start from this file (used by reruns)
    #[arg(long, value_name = "FILE", hide = true)]
    pub again: Option<PathBuf>,
    /// Continue the conversation from this point, in a new session
    #[arg(long, value_name = "POINT")]
    pub from: Option<String>,
    /// Continue a session: the beginning of its id, stepback's or the agent's
    #[arg(long, value_name = "SESSION", conflicts_with = "from")]
    pub session: Option<String>,
}

/// Breakpoints.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum BreakpointCommand {
    /// Add a breakpoint
    #[command(
        after_help = "Examples:\n  stepback breakpoint add tool Bash\n  stepback breakpoint add tool Bash --condition 'rm -rf|git push'\n  stepback breakpoint add path 'src/auth/**'\n  stepback breakpoint add pattern 'DROP TABLE'\n  stepback breakpoint add iteration 20\n  stepback breakpoint add error\n  stepback breakpoint add cost 2.50\n  stepback breakpoint add cost 20 --per day\n  stepback breakpoint add tokens 150000\n  stepback breakpoint add anomaly loop\n  stepback breakpoint add tool Bash --hits %10\n  stepback breakpoint add tool Write --log     only record it\n  stepback breakpoint add tool Bash --log-message 'call {hits}: {input.command}'"
    )]
    Add(AddBreakpointArgs),
    /// List breakpoints with their hit counts
    #[command(after_help = "Examples:\n  stepback breakpoint list")]
    List,
    /// Remove a breakpoint
    #[command(after_help = "Examples:\n  stepback breakpoint remove 2")]
    Remove {
        /// Its number
        id: u64,
    },
    /// Enable a breakpoint
    #[command(after_help = "Examples:\n  stepback breakpoint enable 2")]
    Enable {
        /// Its number
        id: u64,
    },
    /// Disable a breakpoint
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
pub struct AddBreakpointArgs {
    /// tool NAME, iteration N, pattern RE, error, path GLOB, cost USD, tokens N, or anomaly (of a KIND, or any)
    #[arg(value_parser = ["tool", "iteration", "pattern", "error", "path", "cost", "tokens", "anomaly"])]
    pub kind: String,
    /// Value for the kind
    pub value: Option<String>,
    /// Of cost and tokens, what all calls together may use [default: the cost of the session; the size of the context]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub per: Option<BudgetPer>,
    /// Only if the input also matches this regular expression
    #[arg(long, value_name = "RE")]
    pub condition: Option<String>,
    /// Which hits take effect: N or >=N (from the Nth on), =N (only the Nth), %N (every Nth)
    #[arg(long, value_name = "HITS", value_parser = clap::value_parser!(HitCondition))]
    pub hits: Option<HitCondition>,
    /// Only record the hit; do not stop
    #[arg(long)]
    pub log: bool,
    /// Only record the hit, with this message; {tool}, {input}, {input.FIELD}, {iteration}, {cost}, {tokens} and {hits} are replaced
    #[arg(long, value_name = "TEXT")]
    pub log_message: Option<String>,
}

/// What a budget is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum BudgetPer {
    /// What the session has used
    Session,
    /// What all sessions of the workspace have used today, in universal time
    Day,
    /// What all sessions of the workspace have used
    Workspace,
}

impl From<BudgetPer> for BudgetScope {
    fn from(per: BudgetPer) -> Self {
        match per {
            BudgetPer::Session => Self::Session,
            BudgetPer::Day => Self::Day,
            BudgetPer::Workspace => Self::Workspace,
        }
    }
}

/// Branches.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum BranchCommand {
    /// Create a branch that starts at a point
    #[command(
        after_help = "Examples:\n  stepback branch create try-redis\n  stepback branch create try-redis --from '#12'\n  stepback branch create try-redis --from '#12' --worktree ../try-redis --resume \"use redis instead\""
    )]
    Create {
        /// Its name
        name: String,
        /// The point it starts at [default: now]
        #[arg(long, value_name = "POINT")]
        from: Option<String>,
        /// Give it its own directory, so that several branches can be worked on at once
        #[arg(long, value_name = "DIR")]
        worktree: Option<PathBuf>,
        /// Resume the agent there with this prompt; without --worktree, the workspace is switched to the branch first
        #[arg(long, value_name = "PROMPT")]
        resume: Option<String>,
        #[command(flatten)]
        agree: super::ConfirmArgs,
    },
    /// List branches
    #[command(after_help = "Examples:\n  stepback branch list\n  stepback branch list --all")]
    List {
        /// Include archived branches
        #[arg(long)]
        all: bool,
    },
    /// Switch to another branch and restore its files
    #[command(
        after_help = "Examples:\n  stepback branch switch main\n  stepback branch switch try-redis --conversation\n  stepback branch switch main --conversation --resume \"what is left to do?\""
    )]
    Switch {
        /// Its name
        name: String,
        /// Also restore the reasoning board of the branch
        #[arg(long)]
        reasoning: bool,
        /// Also continue the agent's conversation as it was when the branch was left, under a new id
        #[arg(long)]
        conversation: bool,
        /// With --conversation: resume the agent immediately, with this prompt if given
        #[arg(long, value_name = "PROMPT", num_args = 0..=1, default_missing_value = "", requires = "conversation")]
        resume: Option<String>,
        #[command(flatten)]
        agree: super::ConfirmArgs,
    },
    /// Rename a branch
    #[command(after_help = "Examples:\n  stepback branch rename try-redis redis")]
    Rename {
        /// Its name
        name: String,
        /// Its new name
        to: String,
    },
    /// Say that a branch led nowhere; it stays in the list
    #[command(after_help = "Examples:\n  stepback branch abandon try-redis")]
    Abandon {
        /// Its name
        name: String,
    },
    /// Leave a branch out of the list
    #[command(after_help = "Examples:\n  stepback branch archive try-redis\n  stepback branch list --all")]
    Archive {
        /// Its name
        name: String,
    },
    /// Take up an abandoned or archived branch again, without switching to it
    #[command(after_help = "Examples:\n  stepback branch activate try-redis")]
    Activate {
        /// Its name
        name: String,
    },
    /// Delete a branch; its steps are kept
    #[command(after_help = "Examples:\n  stepback branch delete try-redis")]
    Delete {
        /// Its name
        name: String,
    },
    /// Merge what changed on a branch into the current one; conflicts are listed and left alone
    #[command(
        after_help = "Files are merged three ways from where the branches diverged. A file that both changed in ways that do not fit together stays as it is here. What was concluded on the branch is merged into the reasoning board in the same way. \"stepback undo\" takes both back.\n\nExamples:\n  stepback branch merge try-redis --dry-run\n  stepback branch merge \"alternative approach\"\n  stepback branch merge try-redis --markers"
    )]
    Merge {
        /// Its name
        name: String,
        /// Write conflict markers into text files that both branches changed in the same lines
        #[arg(long)]
        markers: bool,
        /// Merge conclusions into the board of this session [default: the running agent's, else yours]
        #[arg(long, value_name = "SESSION")]
        session: Option<String>,
        #[command(flatten)]
        agree: super::ConfirmArgs,
    },
    /// Compare two branches: files, conversation, steps
    #[command(after_help = "Examples:\n  stepback branch compare main try-redis")]
    Compare {
        /// The first
        a: String,
        /// The second [default: the current branch]
        b: Option<String>,
    },
}
