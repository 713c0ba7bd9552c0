//! The command line, in one place: parser, help, completions and man page all come from here. What the arguments of a command
//! are is said in plain comments: a documentation comment would take the place of the command's own description.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub mod aliases;
pub mod anomalies;
pub mod board;
pub mod cost;
pub mod fast_parse;
pub mod find;
pub mod git;
pub mod groups;
pub mod live;
pub mod mcp;
pub mod mirror;
pub mod profile;
pub mod proxy;
mod rewind;
pub mod seal;
pub mod share;
mod states;
pub mod store;
pub mod user_aliases;
pub mod viewers;
pub mod why;
pub mod workspace;

pub use rewind::RewindArgs;
pub use states::{ChangesArgs, CheckpointCommand, DiffArgs};
pub use store::{Fsck, PruneArgs};

/// Time travel for AI agents: checkpoint everything an agent can change, go back, undo exactly what it did.
#[derive(Debug, Parser)]
#[command(name = "stepback", version, about, max_term_width = 100, after_help = FIRST_MINUTE, subcommand_required = true, arg_required_else_help = true, mut_subcommands = board::hide_part)]
pub struct Arguments {
    /// Run as if started in DIR
    #[arg(short = 'C', value_name = "DIR", global = true, help_heading = GLOBAL)]
    pub directory: Option<PathBuf>,
    /// Use this workspace of the store, by the beginning of its id
    #[arg(long, value_name = "ID", global = true, help_heading = GLOBAL, conflicts_with = "directory")]
    pub workspace: Option<String>,
    /// Use the store in DIR, or at postgres://…, unix:/… or https://… [default: $STEPBACK_HOME, else the user's data directory]
    #[arg(long, value_name = "DIR", global = true, help_heading = GLOBAL)]
    pub store: Option<PathBuf>,
    /// Print one JSON document on stdout
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub json: bool,
    /// Allow a workspace as broad as / or the home directory
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub allow_broad: bool,
    /// Use colours: auto (on terminals, unless NO_COLOR is set), always, never
    #[arg(long, value_name = "WHEN", global = true, value_enum, hide_possible_values = true, help_heading = GLOBAL)]
    pub color: Option<ColorChoice>,
    /// Print long output at once instead of in a pager
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub no_pager: bool,
    /// The command
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// The directory the command is about.
    pub fn working_directory(&self) -> std::io::Result<PathBuf> {
        match &self.directory {
            Some(directory) => directory.canonicalize(),
            None => std::env::current_dir(),
        }
    }

    /// Whether the command prints a list or text that can be long, for a person to read.
    pub fn is_paged(&self) -> bool {
        let is_text = match &self.command {
            Command::Log { .. }
            | Command::Timeline { .. }
            | Command::Changes(_)
            | Command::Diff(_)
            | Command::Show { .. }
            | Command::Ls { .. }
            | Command::Sessions(_)
            | Command::Search(_)
            | Command::Query(_)
            | Command::Commands(_)
            | Command::Blame(_)
            | Command::Why(_)
            | Command::Anomalies(_)
            | Command::Cost(_)
            | Command::Compare(_)
            | Command::Op(OpCommand::Log)
            | Command::Points => true,
            Command::Checkpoint(command) => {
                matches!(command, CheckpointCommand::List { .. } | CheckpointCommand::Show { .. })
            }
            _ => false,
        };
        is_text && !self.json && !self.no_pager
    }
}

/// When output has colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum ColorChoice {
    /// On terminals, unless `NO_COLOR` is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Heading of the options that every command has.
const GLOBAL: &str = "Global options";

const FIRST_MINUTE: &str = "\
The first minute:
  stepback checkpoint create \"before the agent\"   save everything as it is
  …                                               let the agent work
  stepback status                                 see what changed
  stepback rewind \"before the agent\"              go back (shows the plan, asks)
  stepback undo                                   undo the rewind

With your agent:
  stepback init                                   record Claude Code, Codex, Gemini CLI, opencode
  stepback changes                                what was changed, by which call, for which prompt
  stepback rewind tool:bash:last                  go back to before the last shell command

Exit codes: 0 done, 2 usage, 3 unknown point, 4 nothing found, 5 partly done, 6 store damaged or newer, \
7 system (permission, space), 8 busy, 9 refused, 1 other.";

const POINTS: &str = "\
A POINT names a step or a time:
  @            now (the newest checkpoint of the current line)
  @-3          three steps before
  '#42' or 42  step 42 (quoted, because # starts a comment in shells)
  4f2a91       a checkpoint by the beginning of its id
  before-refactoring, \"my label\"   a checkpoint by its label
  tag:release, tag:release:first   a checkpoint by its tag
  \"2 hours ago\", \"yesterday 14:00\", 2026-01-23T12:00   the state at that time
  tool:bash:last, tool:write:2     before a call of a tool
  error:last                       the last error
  iteration:5                      before the calls of the agent's fifth turn
  4f2a#@, 4f2a#12                  the newest step of a session, or one of its steps
  branch:NAME                      the newest step of a branch";

/// What to do.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Command {
    /// Create, list, show, annotate and delete checkpoints
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
    /// List steps, newest first
    #[command(
        after_help = "\"stepback timeline\" draws checkpoints and rewinds as a graph, \"stepback query\" filters by everything that is known of a step.\n\nExamples:\n  stepback log\n  stepback log -n 5 --json\n  stepback log src/main.rs          the steps that changed a file\n  stepback log --session 4f2a --kind tool-start"
    )]
    Log {
        /// Only steps of the current line that changed these files
        #[arg(value_name = "PATH")]
        paths: Vec<String>,
        /// Show at most N steps
        #[arg(long, short = 'n', value_name = "N")]
        limit: Option<usize>,
        /// Only steps of this session
        #[arg(long, value_name = "SESSION")]
        session: Option<String>,
        /// Only steps of these kinds (checkpoint, tool-start, user-input, error, …), separated by commas
        #[arg(long = "kind", value_name = "KINDS", value_delimiter = ',')]
        kinds: Vec<String>,
    },
    /// Draw steps and rewinds as a timeline, with the current position
    #[command(after_help = "Examples:\n  stepback timeline\n  stepback timeline --session 4f2a")]
    Timeline {
        /// Only checkpoints of this session, and yours while it was at work
        #[arg(short, long, value_name = "SESSION")]
        session: Option<String>,
    },
    /// Show the current position and what changed since the last checkpoint
    #[command(
        after_help = "Examples:\n  stepback status\n  stepback status --excluded   what is not covered, and why"
    )]
    Status {
        /// List what is not covered, and why
        #[arg(long)]
        excluded: bool,
    },
    /// List every change on the current line, numbered, so that each can be taken back
    #[command(
        after_help = "Examples:\n  stepback changes\n  stepback changes @-2              only later changes\n  stepback changes --path src/a.rs  the history of one file\n  stepback changes --session 4f2a   only changes of one session\n  stepback changes clear            start a new list, for example after a commit\n  stepback rewind --change 3        take back change 3 alone"
    )]
    Changes(ChangesArgs),
    /// Compare two points, or a point with the working directory
    #[command(
        after_help = "Examples:\n  stepback diff                      last checkpoint against now\n  stepback diff @-2                  two steps back against now\n  stepback diff '#3' '#7' --stat\n  stepback diff before..after --name-only\n  stepback diff @ -- src/main.rs     only one path\n  stepback diff --side-by-side"
    )]
    Diff(DiffArgs),
    /// Go back to a point, or take back single changes
    #[command(after_help = concat!("The current state is saved first; \"stepback undo\" restores it.\n\nExamples:\n  stepback rewind @-1\n  stepback rewind \"2 hours ago\" --dry-run\n  stepback rewind '#3' --path 'src/**' --yes\n  stepback rewind --change 2 --change 5\n  stepback rewind --last 2\n  stepback rewind --between \"2 hours ago\" \"1 hour ago\"\n  stepback rewind \"before the agent\" --files --git   branches, HEAD and index too\n  stepback rewind \"before refactor\" --memory --task   only what the agent remembered and planned\n  stepback rewind tool:bash:last              before the last shell command\n  stepback rewind '#41' --both --resume \"try it without the cache\"\n\nIf agents were recorded, only their changes are reverted; --everything rewinds the whole workspace."))]
    Rewind(RewindArgs),
    /// Show a step and the state at it
    #[command(
        visible_alias = "at",
        after_help = "Examples:\n  stepback show \"2 hours ago\"\n  stepback show '#3' --json      with every file"
    )]
    Show {
        /// A step number, label, time or other point ("stepback help points" lists the forms)
        #[arg(default_value = "@", hide_default_value = true)]
        point: String,
    },
    /// List the files at a point
    #[command(
        after_help = "Examples:\n  stepback ls @-1\n  stepback ls '#3' src --recursive\n  stepback ls \"2 hours ago\" --json"
    )]
    Ls {
        /// A step number, label, time or other point ("stepback help points" lists the forms)
        #[arg(default_value = "@", hide_default_value = true)]
        point: String,
        /// A file or directory, relative to where you are [default: where you are]
        path: Option<String>,
        /// Include everything below
        #[arg(long, short = 'r')]
        recursive: bool,
    },
    /// Print a file as it was at a point
    #[command(
        after_help = "Examples:\n  stepback cat @-1 src/main.rs\n  stepback cat \"yesterday\" .env > .env.old"
    )]
    Cat {
        /// A step number, label, time or other point ("stepback help points" lists the forms)
        point: String,
        /// The file, relative to where you are
        path: String,
    },
    /// Write a past state into another directory
    #[command(
        after_help = "Examples:\n  stepback restore @-1 --into /tmp/before\n  stepback restore '#3' --into ../old --git"
    )]
    Restore {
        /// A step number, label, time or other point ("stepback help points" lists the forms)
        point: String,
        /// A directory that does not exist or is empty
        #[arg(long, value_name = "DIR")]
        into: PathBuf,
        /// Include git directories
        #[arg(long)]
        git: bool,
    },
    /// Install hooks in the settings of the agents in use, to record them
    #[command(
        after_help = "Examples:\n  stepback init                     the agents found in this project\n  stepback init --agent claude --user\n  stepback init --dry-run\n  stepback init --uninstall"
    )]
    Init(live::InitArgs),
    /// Run an agent with hooks for this run only
    #[command(
        after_help = "Examples:\n  stepback run -- claude\n  stepback run -- codex exec \"fix the tests\""
    )]
    Run(live::RunArgs),
    /// Run the built-in agent, which is recorded without hooks
    #[command(
        after_help = "The agent reads, writes and edits files, runs shell commands, lists, searches, and delegates to workers. Ctrl-C stops it cleanly, a second Ctrl-C immediately.\n\nExamples:\n  stepback agent \"fix the failing test\"\n  stepback agent --provider openai-compatible --model qwen3 \"add a license header\"\n  stepback agent --provider scripted demo.json \"go\"\n  stepback agent --from tool:bash:last \"try it without the cache\""
    )]
    Agent(live::AgentArgs),
    /// Forward and record an agent's model calls, or answer them from a recording
    #[command(after_help = proxy::PROXY)]
    Proxy(proxy::ProxyArgs),
    /// Rerun a recorded session, optionally with changes
    #[command(after_help = proxy::RERUN)]
    Rerun(proxy::RerunArgs),
    /// Serve the store over HTTP, for the Studio, scripts and teams
    #[command(after_help = proxy::SERVE)]
    Serve(proxy::ServeArgs),
    /// Let another user of this machine hold the store, so that agents cannot destroy it
    #[command(subcommand)]
    Guard(store::GuardCommand),
    /// Open the Studio in a browser, already signed in
    #[command(after_help = proxy::STUDIO)]
    Studio(proxy::StudioArgs),
    /// Receive an event from an agent's hook (called by agents)
    #[command(
        after_help = "The event is read as JSON from standard input.\n\nExamples:\n  stepback hook claude < event.json\n  stepback hook codex --strict < event.json"
    )]
    Hook {
        /// claude, codex, gemini or opencode
        agent: String,
        /// Block the call if its checkpoint fails
        #[arg(long)]
        strict: bool,
    },
    /// List recorded sessions
    #[command(
        after_help = "Examples:\n  stepback sessions\n  stepback sessions --agent claude --since yesterday --json"
    )]
    Sessions(live::SessionsArgs),
    /// Export sessions to a file, or as commits of the git repository
    #[command(after_help = share::EXPORT)]
    Export(share::ExportArgs),
    /// Notes of git about who wrote the lines of a commit
    #[command(subcommand, after_help = git::NOTES)]
    Notes(git::NotesCommand),
    /// Import a bundle, exported lines, or conversations that agents recorded themselves
    #[command(after_help = share::IMPORT)]
    Import(share::ImportArgs),
    /// Stop running agents on a condition
    #[command(subcommand)]
    Breakpoint(live::BreakpointCommand),
    /// Stop agents at their next call
    #[command(after_help = "Examples:\n  stepback pause\n  stepback pause --session 4f2a")]
    Pause {
        /// Only this session: the beginning of its id, stepback's or the agent's [default: every agent here]
        #[arg(long, value_name = "SESSION")]
        session: Option<String>,
    },
    /// Resume a stopped agent
    #[command(after_help = "Examples:\n  stepback resume")]
    Resume {
        #[command(flatten)]
        of: live::SessionArg,
    },
    /// Resume a stopped agent for one call
    #[command(after_help = "Examples:\n  stepback step")]
    Step {
        #[command(flatten)]
        of: live::SessionArg,
    },
    /// Show a stopped or running agent
    #[command(
        after_help = "Examples:\n  stepback inspect                 its status\n  stepback inspect input           what it wants to run\n  stepback inspect conversation    its messages\n  stepback inspect files           what it changed"
    )]
    Inspect {
        /// input, conversation, files, task, memory, or state
        #[arg(value_parser = ["input", "conversation", "files", "task", "memory", "state"])]
        what: Option<String>,
        #[command(flatten)]
        of: live::SessionArg,
    },
    /// Send a message to an agent with its next call
    #[command(after_help = "Examples:\n  stepback inject \"do not touch the migrations\"")]
    Inject {
        /// The message
        text: String,
        #[command(flatten)]
        of: live::SessionArg,
    },
    /// Refuse the call a stopped agent wants to make
    #[command(after_help = "Examples:\n  stepback deny \"use the staging database\"")]
    Deny {
        /// The reason that the model gets
        reason: Option<String>,
        #[command(flatten)]
        of: live::SessionArg,
    },
    /// Resume a stopped agent with a different input for its call
    #[command(after_help = "Examples:\n  stepback edit-input '{\"command\": \"ls\"}'")]
    EditInput {
        /// The whole input, as JSON
        #[arg(value_name = "JSON")]
        input: String,
        #[command(flatten)]
        of: live::SessionArg,
    },
    /// Follow agents as they work
    #[command(
        after_help = "Examples:\n  stepback watch\n  stepback watch --filter tool-start,error\n  stepback watch --json       one document per line"
    )]
    Watch {
        /// Only steps of these kinds, separated by commas
        #[arg(long, value_name = "KINDS", value_delimiter = ',')]
        filter: Vec<String>,
        #[command(flatten)]
        of: live::SessionArg,
        /// Exit after N steps
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Step through a recorded session
    #[command(after_help = viewers::REPLAY)]
    Replay(viewers::ReplayArgs),
    /// Open the terminal interface: sessions, timeline, state, diff, live control
    #[command(after_help = viewers::TUI)]
    Tui(viewers::TuiArgs),
    /// Compare two sessions, branches or points: steps, files, memory, conversation
    #[command(after_help = viewers::COMPARE)]
    Compare(viewers::CompareArgs),
    /// Search the text of steps: prompts, answers, calls, errors, labels, paths
    #[command(after_help = find::SEARCH)]
    Search(find::SearchArgs),
    /// Filter steps by agent, kind, tool, time, label, duration
    #[command(after_help = find::QUERY)]
    Query(find::QueryArgs),
    /// List the shell commands that agents ran, with exit codes and output
    #[command(after_help = find::COMMANDS)]
    Commands(find::CommandsArgs),
    /// Show what model calls used and cost: by model, tool, agent, session, branch, prompt or day
    #[command(after_help = cost::COST)]
    Cost(cost::CostArgs),
    /// Show which call, prompt and session each line of a file comes from
    #[command(after_help = find::BLAME)]
    Blame(find::BlameArgs),
    /// Show what led to a step, a line or a belief, and where the model had its words from
    #[command(after_help = why::WHY)]
    Why(why::WhyArgs),
    /// Show where the time of a session went: models, tools, hooks, waiting, idle
    #[command(after_help = profile::PROFILE)]
    Profile(profile::ProfileArgs),
    /// Show what is unusual in sessions: loops, bursts of errors, slow and costly calls
    #[command(after_help = anomalies::ANOMALIES)]
    Anomalies(anomalies::AnomaliesArgs),
    /// Find the step after which a command fails
    #[command(
        after_help = "The command runs with sh in a scratch directory with the files of each tested step; the workspace is not changed. Exit code 0 means good, 125 skips the step, anything else means bad.\n\nExamples:\n  stepback bisect --run 'cargo test'\n  stepback bisect --run ./check.sh --good '#3' --bad @ --jobs 2"
    )]
    Bisect(find::BisectArgs),
    /// Branches: create, list, switch, merge, rename, delete, compare
    #[command(subcommand)]
    Branch(live::BranchCommand),
    /// The reasoning board: hypotheses, evidence, beliefs, gaps, checks, notes, experiments
    #[command(alias = "mind", after_help = board::BOARD)]
    Board(board::BoardArgs),
    #[command(flatten)]
    BoardPart(board::BoardPartCommand),
    /// Run an MCP server on stdin and stdout: time travel and the board as tools for an agent
    #[command(after_help = mcp::MCP)]
    Mcp(mcp::McpArgs),
    /// Show or change settings
    #[command(
        after_help = "The settings that begin with \"record.\" say what of an agent's events is recorded: by hooks, the proxy, the built-in agent, OpenTelemetry, a server's clients and imports alike. Whatever they say, calls that can change something have their checkpoints.\n\nExamples:\n  stepback settings\n  stepback settings checkpoint.minutes 5\n  stepback settings checkpoint.minutes default\n  stepback settings --edit\n  stepback settings record.capture no-outputs,no-commands\n  stepback settings record.output-bytes full\n  stepback settings record.redact 'ACME-[0-9]+' 'Project (Hush|Quiet)'"
    )]
    Settings {
        /// The setting
        key: Option<String>,
        /// Its new value, or the words of a list; "default" resets it
        #[arg(value_name = "VALUE")]
        values: Vec<String>,
        /// Open all settings in $EDITOR, with their meanings and defaults; aliases too
        #[arg(long, conflicts_with = "key")]
        edit: bool,
    },
    /// Check this installation and workspace for problems
    #[command(after_help = store::DOCTOR)]
    Doctor(store::DoctorArgs),
    /// Show the process that watches large workspaces, so that hooks need not scan every file
    #[command(
        after_help = "A hook starts it if a scan takes more than 15 ms; it exits after half an hour without requests. It is optional: \"stepback settings watcher 0\" turns it off.\n\nExamples:\n  stepback watcher\n  stepback watcher stop"
    )]
    Watcher {
        /// What to do with it [default: show it]
        #[command(subcommand)]
        command: Option<store::WatcherCommand>,
    },
    /// Undo the last operation of stepback
    #[command(
        after_help = "Later edits are kept: they are merged, or their files are skipped and listed.\n\nExamples:\n  stepback undo\n  stepback undo 4f2a        one operation of \"stepback op log\"\n  stepback undo --dry-run"
    )]
    Undo {
        /// An operation (number or beginning of its id) instead of the last one
        operation: Option<String>,
        #[command(flatten)]
        agree: ConfirmArgs,
    },
    /// Redo what was undone last
    #[command(after_help = "Examples:\n  stepback redo")]
    Redo {
        #[command(flatten)]
        agree: ConfirmArgs,
    },
    /// Show the log of operations
    #[command(subcommand)]
    Op(OpCommand),
    /// Prune old checkpoints and free space
    #[command(
        after_help = "Without rules: keeps the newest 50 manual checkpoints, significant ones, everything of the last hour, then one per hour. With rules: keeps what they say. Always kept: the current checkpoint, the tips of branches, and what the next undo needs. \"stepback undo\" restores pruned checkpoints; a prune frees their space after 24 hours, or immediately with --now. --max-size frees the space of what it removes, and removes nothing of the last 24 hours without --now, and nothing that you made, labelled, noted or tagged. If the store cannot become that small, nothing is pruned.\n\nExamples:\n  stepback prune --dry-run\n  stepback prune --keep-last 20\n  stepback prune --keep-days 14 --now\n  stepback prune --max-size 2GB"
    )]
    Prune(PruneArgs),
    /// Verify the integrity of the store
    #[command(
        after_help = "Examples:\n  stepback fsck\n  stepback fsck --json\n  stepback fsck --repair --dry-run"
    )]
    Fsck(store::Fsck),
    /// Write a signed list of what is recorded, or compare the store with one
    #[command(after_help = seal::SEAL)]
    Seal(seal::SealArgs),
    /// Keep append-only copies of the store in other places, and restore from them
    #[command(subcommand, after_help = mirror::MIRROR)]
    Mirror(mirror::MirrorCommand),
    /// Show statistics of the store
    #[command(after_help = "Examples:\n  stepback stats")]
    Stats,
    /// Copy the store to another location
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// List, create, move and forget workspaces
    #[command(subcommand, name = "workspace", after_help = workspace::WORKSPACE)]
    WorkspaceOf(workspace::WorkspaceCommand),
    /// Run a demo: an agent makes a mistake and is rewound, in a temporary directory
    #[command(
        after_help = "It uses the built-in agent, with a script instead of a model. Its files are kept, so that you can explore them.\n\nExamples:\n  stepback demo\n  stepback demo --fast --no-keep"
    )]
    Demo {
        /// Keep its files (the default)
        #[arg(long, conflicts_with = "no_keep")]
        keep: bool,
        /// Remove its files
        #[arg(long)]
        no_keep: bool,
        /// Do not pause for reading
        #[arg(long)]
        fast: bool,
    },
    /// Print a completion script for a shell: commands, options, points, labels, branches, sessions, paths
    #[command(
        after_help = "Examples:\n  stepback completions bash > ~/.local/share/bash-completion/completions/stepback\n  stepback completions zsh > \"${fpath[1]}/_stepback\"\n  stepback completions fish > ~/.config/fish/completions/stepback.fish\n\nRun it again after an update: the script and the program belong together."
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page
    #[command(
        after_help = "Examples:\n  stepback man | man -l -\n  stepback man rewind | man -l -\n  stepback man --into ~/.local/share/man/man1   all pages, as files"
    )]
    Man {
        /// A command, such as rewind or branch create [default: the program]
        command: Vec<String>,
        /// Write the pages of all commands into this directory
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        into: Option<PathBuf>,
    },
    /// Explain points, which name steps and times
    #[command(name = "points", after_help = POINTS)]
    Points,
}

/// Operations.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum OpCommand {
    /// List operations of stepback, newest first
    #[command(after_help = "Examples:\n  stepback op log\n  stepback op log --json")]
    Log,
}

// Agreeing to a plan.
#[derive(Debug, Args)]
pub struct ConfirmArgs {
    /// Show the plan and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    pub yes: bool,
    /// Do not ask, and replace a database even if a process has it open
    #[arg(long)]
    pub force: bool,
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::Arguments;

    /// Two arguments of one name and different types are one panic when the command is used, and none before.
    #[test]
    fn no_command_has_an_argument_of_a_global_ones_name() {
        fn check(command: &Command, globals: &[String]) {
            for argument in command.get_arguments().filter(|argument| !argument.is_global_set()) {
                let name = argument.get_id().to_string();
                assert!(!globals.contains(&name), "{}: {name}", command.get_name());
            }
            command.get_subcommands().for_each(|command| check(command, globals));
        }
        let mut command = Arguments::command();
        // Before that, commands have no arguments.
        command.build();
        let globals = command.get_arguments().filter(|argument| argument.is_global_set());
        let globals: Vec<String> = globals.map(|argument| argument.get_id().to_string()).collect();
        assert!(globals.contains(&"json".to_string()));
        check(&command, &globals);
    }
}
