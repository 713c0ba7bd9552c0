//! Arguments of `stepback board verify`.

use clap::{Args, Subcommand};

use super::BoardSelector;

/// Checks.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum VerifyCommand {
    /// Add a check
    #[command(after_help = ADD)]
    Add(Box<VerifyAddArgs>),
    /// Run checks and apply the consequences they declare
    #[command(
        after_help = "Exit code 0 if all passed, 1 otherwise.\n\nExamples:\n  stepback board verify run V1\n  stepback board verify run            all that have not run yet\n  stepback board verify run V1 --fresh"
    )]
    Run {
        /// The checks, such as V1 [default: all that have not run yet]
        verifications: Vec<String>,
        /// Run it even if its inputs have not changed since its last run
        #[arg(long)]
        fresh: bool,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// List checks with their outcomes
    #[command(after_help = "Examples:\n  stepback board verify list")]
    List {
        #[command(flatten)]
        board: BoardSelector,
    },
}

/// Examples of `verify add`.
pub const ADD: &str = "\
A command runs with sh in the workspace. If it times out or prints too much, it is killed with all its child processes.

Examples:
  stepback board verify add \"tests pass\" --run 'cargo test' --timeout 300 --pass-evidence H1=0.8 --fail-evidence H1=-0.8
  stepback board verify add \"no warnings\" --run 'make' --lacks warning
  stepback board verify add \"the same output\" --same out.txt expected.txt --pass-fills G1
  stepback board verify add \"the flag is on\" --file app.toml --text 'cache = true'
  stepback board verify add \"three rows\" --json-run './query --json' --pointer /rows --equals 3
  stepback board verify add \"numbers fit\" --numbers-run ./simulate --reference ref.txt --relative 0.01 --input 'src/**' --halt-on-fail";

// A new check.
#[derive(Debug, Args)]
#[group(id = "check", required = true, multiple = false)]
pub struct VerifyAddArgs {
    /// What it checks
    pub title: String,
    /// A command that must exit with the expected code
    #[arg(long, value_name = "CMD", group = "check")]
    pub run: Option<String>,
    /// The expected exit code
    #[arg(long, value_name = "N", default_value_t = 0, requires = "run", allow_negative_numbers = true)]
    pub exit: i32,
    /// A text that its output must contain (can be repeated)
    #[arg(long, value_name = "TEXT", requires = "run")]
    pub contains: Vec<String>,
    /// A text that its output must not contain (can be repeated)
    #[arg(long, value_name = "TEXT", requires = "run")]
    pub lacks: Vec<String>,
    /// Two files that must be identical
    #[arg(long, value_names = ["LEFT", "RIGHT"], num_args = 2, group = "check")]
    pub same: Vec<String>,
    /// A file that must contain a text
    #[arg(long, value_name = "FILE", group = "check", requires = "text")]
    pub file: Option<String>,
    /// The text
    #[arg(long, value_name = "TEXT", requires = "file")]
    pub text: Option<String>,
    /// Require that the file does not contain the text
    #[arg(long, requires = "file")]
    pub absent: bool,
    /// A file with a JSON document
    #[arg(long, value_name = "FILE", group = "check", requires_all = ["pointer", "equals"])]
    pub json_file: Option<String>,
    /// A command that prints a JSON document
    #[arg(long, value_name = "CMD", group = "check", requires_all = ["pointer", "equals"])]
    pub json_run: Option<String>,
    /// JSON pointer into the document, such as /results/0/name
    #[arg(long, value_name = "POINTER")]
    pub pointer: Option<String>,
    /// The expected value, as JSON
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub equals: Option<String>,
    /// A file with numbers
    #[arg(long, value_name = "FILE", group = "check", requires = "reference")]
    pub numbers_file: Option<String>,
    /// A command that prints numbers
    #[arg(long, value_name = "CMD", group = "check", requires = "reference")]
    pub numbers_run: Option<String>,
    /// A file with the reference values
    #[arg(long, value_name = "FILE")]
    pub reference: Option<String>,
    /// Allowed absolute difference from each reference value
    #[arg(long, value_name = "D", default_value_t = 0.0, allow_negative_numbers = true)]
    pub absolute: f64,
    /// Allowed relative difference from each reference value
    #[arg(long, value_name = "R", default_value_t = 0.0, allow_negative_numbers = true)]
    pub relative: f64,
    /// Timeout in seconds
    #[arg(long, value_name = "S", default_value_t = 60.0, allow_negative_numbers = true)]
    pub timeout: f64,
    /// Files the outcome depends on (can be repeated); the check is skipped while they are unchanged
    #[arg(long = "input", value_name = "GLOB")]
    pub inputs: Vec<String>,
    /// Evidence to add if it passes, such as H1=0.8 (can be repeated)
    #[arg(long, value_name = "H=S")]
    pub pass_evidence: Vec<String>,
    /// Evidence to add if it fails, such as H1=-0.8 (can be repeated)
    #[arg(long, value_name = "H=S")]
    pub fail_evidence: Vec<String>,
    /// A gap to fill if it passes (can be repeated)
    #[arg(long, value_name = "G")]
    pub pass_fills: Vec<String>,
    /// A gap to fill if it fails (can be repeated)
    #[arg(long, value_name = "G")]
    pub fail_fills: Vec<String>,
    /// Run no further checks if it passes
    #[arg(long)]
    pub halt_on_pass: bool,
    /// Run no further checks if it fails
    #[arg(long)]
    pub halt_on_fail: bool,
    #[command(flatten)]
    pub board: BoardSelector,
}
