//! Arguments of the commands about the store as a whole.

use std::path::PathBuf;

use clap::Subcommand;

/// The store as a whole.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Store {
    /// Copy everything to an empty store, and read all of it back
    #[command(
        after_help = "A store is a directory or a database: postgres://USER@HOST/DATABASE.\n\nExamples:\n  stepback store copy ~/.local/share/stepback postgres://me@db.example/stepback\n  stepback store copy postgres://me@db.example/stepback /backup/stepback"
    )]
    Copy {
        /// The store to copy
        from: PathBuf,
        /// Where to; must be empty or not exist yet
        to: PathBuf,
    },
}
