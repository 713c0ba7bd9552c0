//! Arguments of `stepback board experiment`.

use clap::Subcommand;

use super::BoardSelector;

/// Experiments.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ExperimentCommand {
    /// Start an experiment on a new branch
    #[command(
        after_help = "The branch is created at the last checkpoint and becomes the current one, with its own files and board.\n\nExamples:\n  stepback board experiment start no-cache --hypothesis H1 --success \"the test passes ten times\""
    )]
    Start {
        /// Name of the new branch
        branch: String,
        /// The hypothesis it tests
        #[arg(long, value_name = "H")]
        hypothesis: Option<String>,
        /// The criterion for success
        #[arg(long, value_name = "TEXT")]
        success: String,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Record the result of an experiment
    #[command(
        after_help = "To merge its findings, switch to the branch you continue on and run \"stepback board merge BRANCH\".\n\nExamples:\n  stepback board experiment end X1 succeeded \"ten consecutive passes\""
    )]
    End {
        /// The experiment, such as X1
        experiment: String,
        /// succeeded, failed, inconclusive or abandoned
        #[arg(value_parser = ["succeeded", "failed", "inconclusive", "abandoned"])]
        how: String,
        /// What was found
        result: String,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// List experiments
    #[command(after_help = "Examples:\n  stepback board experiment list")]
    List {
        #[command(flatten)]
        board: BoardSelector,
    },
}
