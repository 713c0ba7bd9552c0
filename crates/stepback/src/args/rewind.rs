//! The words of `stepback rewind`.

use clap::Args;

use super::ConfirmArgs;

// Going back.
#[derive(Debug, Args)]
pub struct RewindArgs {
    /// The point to rewind to
    #[arg(required_unless_present_any = ["changes", "last", "all", "between", "plan"])]
    pub point: Option<String>,
    /// Only matching paths (can be repeated); a directory includes its contents
    #[arg(long = "path", value_name = "GLOB")]
    pub paths: Vec<String>,
    /// Take back one change of "stepback changes" (can be repeated)
    #[arg(long = "change", value_name = "N", conflicts_with_all = ["last", "all"])]
    pub changes: Vec<usize>,
    /// Take back the last N changes of agents; with --everything, of all authors
    #[arg(long, value_name = "N", conflicts_with = "all")]
    pub last: Option<usize>,
    /// Take back all changes of agents (after the point, if one is given), merging later edits; with --everything, of all authors
    #[arg(long)]
    pub all: bool,
    /// Take back what agents changed after point A and up to point B, merging later edits
    #[arg(long, value_names = ["A", "B"], num_args = 2, conflicts_with_all = ["point", "changes", "last", "all", "git", "conversation", "memory", "task", "both", "reasoning", "plan"])]
    pub between: Vec<String>,
    /// Take back only this hunk of the one change (can be repeated)
    #[arg(long = "hunk", value_name = "N", requires = "changes")]
    pub hunks: Vec<usize>,
    /// Also revert changes by you and by other sessions
    #[arg(long, conflicts_with_all = ["changes", "session"])]
    pub everything: bool,
    /// Only changes of this session; errors, calls and iterations in the point refer to it
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
    /// The files; the default if no part is named. Parts can be combined, and what is not named stays
    #[arg(long)]
    pub files: bool,
    /// Branches, HEAD and index of git repositories
    #[arg(long, requires = "point")]
    pub git: bool,
    /// The agent's conversation: it continues from the point
    #[arg(long, requires = "point")]
    pub conversation: bool,
    /// Files and conversation
    #[arg(long, requires = "point")]
    pub both: bool,
    /// The agent's memory
    #[arg(long, requires = "point")]
    pub memory: bool,
    /// The agent's task list
    #[arg(long, requires = "point")]
    pub task: bool,
    /// The agent's reasoning board
    #[arg(long, requires = "point")]
    pub reasoning: bool,
    /// The files, and the reasoning board if the point has one ("checkpoint restore")
    #[arg(long, hide = true, requires = "point")]
    pub with_board: bool,
    /// With --conversation or --both: resume the agent immediately, with this prompt if given
    #[arg(long, value_name = "PROMPT", num_args = 0..=1, default_missing_value = "")]
    pub resume: Option<String>,
    /// Apply a plan that a server or an agent showed, by its id
    #[arg(long, value_name = "ID", conflicts_with_all = ["point", "paths", "changes", "last", "all", "session", "everything", "git", "files", "memory", "task", "resume"])]
    pub plan: Option<String>,
    #[command(flatten)]
    pub agree: ConfirmArgs,
}
