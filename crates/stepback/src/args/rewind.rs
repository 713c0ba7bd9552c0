//! The words of `stepback rewind`.

use clap::Args;

use super::ConfirmArgs;

// Going back.
#[derive(Debug, Args)]
pub struct Rewind {
    /// The point to go back to
    #[arg(required_unless_present_any = ["changes", "last", "all", "plan"])]
    pub point: Option<String>,
    /// Only paths that match (can be repeated); a directory stands for what it holds
    #[arg(long = "path", value_name = "GLOB")]
    pub paths: Vec<String>,
    /// Take back one change of "stepback changes" (can be repeated)
    #[arg(long = "change", value_name = "N", conflicts_with_all = ["last", "all"])]
    pub changes: Vec<usize>,
    /// Take back the last N changes of agents; those of anyone with --everything
    #[arg(long, value_name = "N", conflicts_with = "all")]
    pub last: Option<usize>,
    /// Take back all changes of agents (after the point, if one is given), merging what came between; those of anyone with
    /// --everything
    #[arg(long)]
    pub all: bool,
    /// Take back only this hunk of the one change (can be repeated)
    #[arg(long = "hunk", value_name = "N", requires = "changes")]
    pub hunks: Vec<usize>,
    /// Branches, HEAD and index of git repositories too
    #[arg(long, conflicts_with_all = ["changes", "last", "all"])]
    pub git: bool,
    /// What you and other sessions changed goes back, too
    #[arg(long, conflicts_with_all = ["changes", "session"])]
    pub everything: bool,
    /// Only what this session changed; errors, calls and iterations are counted in it
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
    /// Files only (this is the default)
    #[arg(long, group = "what")]
    pub files: bool,
    /// The agent's conversation only: it goes on from the point
    #[arg(long, group = "what", requires = "point")]
    pub conversation: bool,
    /// Files and the agent's conversation
    #[arg(long, group = "what", requires = "point")]
    pub both: bool,
    /// The board of what was thought goes back, too
    #[arg(long, requires = "point")]
    pub reasoning: bool,
    /// With --conversation or --both: let the agent go on right away, with this prompt if one is given
    #[arg(long, value_name = "PROMPT", num_args = 0..=1, default_missing_value = "")]
    pub resume: Option<String>,
    /// Apply a plan that a server or an agent showed, by its id
    #[arg(long, value_name = "ID", conflicts_with_all = ["point", "paths", "changes", "last", "all", "session", "everything", "git", "files", "resume"])]
    pub plan: Option<String>,
    #[command(flatten)]
    pub agree: ConfirmArgs,
}
