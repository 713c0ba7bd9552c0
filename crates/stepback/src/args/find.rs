//! The words of commands that find steps: search, query and bisect.

use clap::{Args, ValueEnum};
use stepback_store::port::{ORDERS, SortKey};

/// Examples of `search`.
pub const SEARCH: &str = "\
Finds prompts, answers, inputs and outputs of calls, errors, labels, notes, tags, summaries and paths of changed files.
All words must match, in any order: word, \"a phrase\", begin*, -not.

Examples:
  stepback search permission denied
  stepback search '\"cannot borrow\" src/parser*'
  stepback search 'timeout -retry' --errors --since yesterday
  stepback search --substring 'fn parse(&mut'
  stepback search migration --all-workspaces --agent claude --json";

/// Examples of `query`.
pub const QUERY: &str = "\
Examples:
  stepback query --kind tool-end --tool bash --errors
  stepback query --agent claude --since \"2 hours ago\" --order longest --limit 10
  stepback query --tag release --checkpoints
  stepback query --trace 4bf92f3577b34da6a3ce929d0e0e4736 --order earliest
  stepback query --min-duration 30s --count
  stepback query --all-workspaces --limit 100 --json";

/// Examples of `blame`.
pub const BLAME: &str = "\
Each line shows the step and the call that wrote it, and the prompt that the session was working on.
Lines are followed through renames, formatters and moved blocks. \"~\" marks a call that does not name the file: only calls of its session were running when the line appeared.

Examples:
  stepback blame src/main.rs
  stepback blame src/main.rs:40
  stepback blame src/main.rs:40,60 --json
  stepback blame old.rs --at '#12'";

// Where the lines of a file come from.
#[derive(Debug, Args)]
pub struct BlameArgs {
    /// The file, perhaps with a line or two: src/main.rs:40,60
    #[arg(value_name = "FILE[:LINE[,LINE]]")]
    pub file: String,
    /// As the file was at this point
    #[arg(long, value_name = "POINT")]
    pub at: Option<String>,
    /// Print one record per line, for other programs (as git blame --line-porcelain)
    #[arg(long)]
    pub porcelain: bool,
    /// Do not search git's history for the commits of older lines
    #[arg(long)]
    pub no_git: bool,
}

// Which steps a command looks at.
#[derive(Debug, Args)]
pub struct StepFilterArgs {
    /// Only steps of this session
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
    /// Only steps of this agent
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Only steps of these kinds (tool-end, user-input, error, …), separated by commas
    #[arg(long = "kind", value_name = "KINDS", value_delimiter = ',')]
    pub kinds: Vec<String>,
    /// Only steps since this time: "2 hours ago", 2026-01-23
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only steps until this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Only steps that failed
    #[arg(long)]
    pub errors: bool,
    /// Search all workspaces of the store
    #[arg(long)]
    pub all_workspaces: bool,
    /// Include checkpoints that were deleted or pruned
    #[arg(long)]
    pub hidden: bool,
}

// Finding steps by their words.
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// The query
    #[arg(value_name = "QUERY", required_unless_present = "reindex")]
    pub words: Vec<String>,
    #[command(flatten)]
    pub among: StepFilterArgs,
    /// Search for this exact text anywhere, ignoring case
    #[arg(long)]
    pub substring: bool,
    /// Newest first instead of best match first
    #[arg(long)]
    pub newest: bool,
    /// Show at most N steps
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: u64,
    /// Skip the first N
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip: u64,
    /// Rebuild the index first
    #[arg(long)]
    pub reindex: bool,
}

// Finding steps by what is known about them.
#[derive(Debug, Args)]
pub struct QueryArgs {
    #[command(flatten)]
    pub among: StepFilterArgs,
    /// Only steps of this sub-agent
    #[arg(long, value_name = "NAME")]
    pub worker: Option<String>,
    /// Only steps of this tool or model
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// Only steps of this call
    #[arg(long, value_name = "ID")]
    pub call: Option<String>,
    /// Only steps of this model turn
    #[arg(long, value_name = "N")]
    pub iteration: Option<u64>,
    /// Only steps of the task with this id
    #[arg(long, value_name = "ID")]
    pub task: Option<String>,
    /// Only steps of the trace with this id
    #[arg(long, value_name = "ID")]
    pub trace: Option<String>,
    /// Only steps of the span with this id
    #[arg(long, value_name = "ID")]
    pub span: Option<String>,
    /// Only steps with the same state as this hash
    #[arg(long, value_name = "HASH")]
    pub state: Option<String>,
    /// Only checkpoints
    #[arg(long)]
    pub checkpoints: bool,
    /// Only steps with this label
    #[arg(long, value_name = "LABEL")]
    pub label: Option<String>,
    /// Only steps with this tag
    #[arg(long, value_name = "TAG")]
    pub tag: Option<String>,
    /// Only steps that took at least this long: 500ms, 30s, 2m
    #[arg(long, value_name = "TIME")]
    pub min_duration: Option<String>,
    /// Sort order
    #[arg(long, value_enum, default_value_t = StepOrder::Newest)]
    pub order: StepOrder,
    /// Show at most N steps
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: u64,
    /// Continue after an earlier result: its "next"
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
    /// Only print the number of matches
    #[arg(long, conflicts_with = "cursor")]
    pub count: bool,
}

/// Examples of `commands`.
pub const COMMANDS: &str = "\
Lists commands that ran, that are still running, and that were refused and did not run.

Examples:
  stepback commands --failed
  stepback commands --session 4f2a --limit 10
  stepback commands --at 'before refactor'
  stepback commands --json | jq '.items[] | select(.status == \"not-run\")'";

// Listing the shell commands of agents.
#[derive(Debug, Args)]
pub struct CommandsArgs {
    /// Only commands of this session
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
    /// Only commands that ran and failed
    #[arg(long)]
    pub failed: bool,
    /// As it was at this point
    #[arg(long, value_name = "POINT")]
    pub at: Option<String>,
    /// Show at most N commands
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
    /// Continue before this step: the "next" of an earlier result
    #[arg(long, value_name = "NUMBER")]
    pub before: Option<u64>,
}

/// Orders of `query`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum StepOrder {
    /// Recorded last
    Newest,
    /// Recorded first
    Oldest,
    /// Latest time first; imported steps can be older than their records
    Latest,
    /// Earliest time first
    Earliest,
    /// Longest first
    Longest,
    /// Shortest first
    Shortest,
}

impl StepOrder {
    /// What steps are ordered by, and whether the oldest or shortest comes first.
    pub fn sort_key(self) -> (SortKey, bool) {
        let name = self.to_possible_value();
        let known =
            ORDERS.iter().find(|(known, _, _)| name.as_ref().is_some_and(|name| name.get_name() == *known));
        known.map_or((SortKey::Commit, false), |(_, by, oldest_first)| (*by, *oldest_first))
    }
}

// Searching.
#[derive(Debug, Args)]
pub struct BisectArgs {
    /// The command that tests a step
    #[arg(long, value_name = "CMD")]
    pub run: String,
    /// A point where it succeeds [default: the oldest]
    #[arg(long, value_name = "POINT")]
    pub good: Option<String>,
    /// A point where it fails [default: the newest checkpoint]
    #[arg(long, value_name = "POINT")]
    pub bad: Option<String>,
    /// Test this many steps in parallel
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub jobs: usize,
}
