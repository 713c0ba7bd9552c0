//! Arguments of `stepback workspace`.

use std::path::PathBuf;

use clap::Subcommand;

/// Examples of `workspace`.
pub const WORKSPACE: &str = "\
A workspace is a directory tree with its history. It is known by its path, so it has to be told when it was moved. \
WORKSPACE is a path, or the beginning of an id that \"workspace list\" shows.

Examples:
  stepback workspace list
  stepback workspace move ~/old/shop ~/new/shop
  stepback workspace create ~/work/mono/service
  stepback workspace forget ~/old/experiment";

/// The workspaces of a store.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum WorkspaceCommand {
    /// List the workspaces of the store
    #[command(after_help = "Examples:\n  stepback workspace list\n  stepback workspace list --forgotten")]
    List {
        /// List forgotten ones instead
        #[arg(long)]
        forgotten: bool,
    },
    /// Make a directory a workspace of its own, also inside another one
    #[command(
        visible_alias = "split",
        after_help = "The workspace around it goes on covering the files; what agents do in the directory is recorded in the new one from now on.\n\nExamples:\n  stepback workspace create\n  stepback workspace create ~/work/mono/service"
    )]
    Create {
        /// The directory; by default the current one
        #[arg(value_name = "DIRECTORY")]
        place: Option<PathBuf>,
    },
    /// Tell that a workspace was moved or renamed; its history continues there
    #[command(
        visible_alias = "rename",
        after_help = "Move the directory first. No file is changed.\n\nExamples:\n  stepback workspace move ~/old/shop ~/new/shop\n  stepback workspace move 4f2a .\n  stepback workspace rename remote:box remote:build-box"
    )]
    Move {
        /// The workspace: its old path, or its id
        #[arg(value_name = "WORKSPACE")]
        named: String,
        /// The directory where it is now
        to: PathBuf,
        /// Move it although the old directory still exists
        #[arg(long, short = 'y')]
        yes: bool,
    },
    /// Forget a workspace: no list has it, and the next prune frees its space
    #[command(
        after_help = "No file of the workspace is changed. Until the next prune, also one in the background, \"workspace restore\" brings it back.\n\nExamples:\n  stepback workspace forget ~/old/experiment\n  stepback workspace forget 4f2a --yes"
    )]
    Forget {
        /// The workspace: its path, or its id
        #[arg(value_name = "WORKSPACE")]
        named: String,
        /// Do not ask for confirmation
        #[arg(long, short = 'y')]
        yes: bool,
    },
    /// Bring a forgotten workspace back, as long as nothing of it was freed
    #[command(after_help = "Examples:\n  stepback workspace restore 4f2a")]
    Restore {
        /// The workspace: its former path, or its id
        #[arg(value_name = "WORKSPACE")]
        named: String,
    },
}
