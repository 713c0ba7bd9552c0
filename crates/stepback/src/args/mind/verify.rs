//! The words of `stepback verify`.

use clap::{Args, Subcommand};

use super::BoardArgs;

/// Checks.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Verify {
    /// Plan a check
    #[command(after_help = ADD)]
    Add(Box<Add>),
    /// Run checks, and do what their plans say should follow
    #[command(
        after_help = "Exit code 0 if all passed, 1 otherwise.\n\nExamples:\n  stepback verify run V1\n  stepback verify run            all that were not run yet\n  stepback verify run V1 --fresh"
    )]
    Run {
        /// Which [default: all that were not run yet]
        verifications: Vec<String>,
        /// Run it again even if its inputs are the same as at an earlier run
        #[arg(long)]
        fresh: bool,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// List checks and how they ended
    #[command(after_help = "Examples:\n  stepback verify list")]
    List {
        #[command(flatten)]
        board: BoardArgs,
    },
}

/// Examples of `verify add`.
pub const ADD: &str = "\
A command runs with sh in the workspace. When it takes too long or prints without end, it is ended with everything it started.

Examples:
  stepback verify add \"tests pass\" --run 'cargo test' --timeout 300 --pass-evidence H1=0.8 --fail-evidence H1=-0.8
  stepback verify add \"no warnings\" --run 'make' --lacks warning
  stepback verify add \"the same output\" --same out.txt expected.txt --pass-fills G1
  stepback verify add \"the flag is on\" --file app.toml --text 'cache = true'
  stepback verify add \"three rows\" --json-run './query --json' --pointer /rows --equals 3
  stepback verify add \"numbers fit\" --numbers-run ./simulate --reference ref.txt --relative 0.01 --input 'src/**' --halt-on-fail";

// A new check.
#[derive(Debug, Args)]
#[group(id = "check", required = true, multiple = false)]
pub struct Add {
    /// What it shows
    pub title: String,
    /// A command that must end with the expected exit code
    #[arg(long, value_name = "CMD", group = "check")]
    pub run: Option<String>,
    /// The exit code it must have
    #[arg(long, value_name = "N", default_value_t = 0, requires = "run", allow_negative_numbers = true)]
    pub exit: i32,
    /// A text that must be in what it prints (can be repeated)
    #[arg(long, value_name = "TEXT", requires = "run")]
    pub contains: Vec<String>,
    /// A text that must not be (can be repeated)
    #[arg(long, value_name = "TEXT", requires = "run")]
    pub lacks: Vec<String>,
    /// Two files that must have the same bytes
    #[arg(long, value_names = ["LEFT", "RIGHT"], num_args = 2, group = "check")]
    pub same: Vec<String>,
    /// A file that must have a text in it
    #[arg(long, value_name = "FILE", group = "check", requires = "text")]
    pub file: Option<String>,
    /// The text
    #[arg(long, value_name = "TEXT", requires = "file")]
    pub text: Option<String>,
    /// The text must not be there
    #[arg(long, requires = "file")]
    pub absent: bool,
    /// A file with a JSON document
    #[arg(long, value_name = "FILE", group = "check", requires_all = ["pointer", "equals"])]
    pub json_file: Option<String>,
    /// A command that prints a JSON document
    #[arg(long, value_name = "CMD", group = "check", requires_all = ["pointer", "equals"])]
    pub json_run: Option<String>,
    /// The place in the document: /results/0/name
    #[arg(long, value_name = "POINTER")]
    pub pointer: Option<String>,
    /// What must be there, as JSON
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub equals: Option<String>,
    /// A file with numbers
    #[arg(long, value_name = "FILE", group = "check", requires = "reference")]
    pub numbers_file: Option<String>,
    /// A command that prints numbers
    #[arg(long, value_name = "CMD", group = "check", requires = "reference")]
    pub numbers_run: Option<String>,
    /// The file with the numbers they must be close to
    #[arg(long, value_name = "FILE")]
    pub reference: Option<String>,
    /// How far each may be off
    #[arg(long, value_name = "D", default_value_t = 0.0, allow_negative_numbers = true)]
    pub absolute: f64,
    /// How far each may be off, as a part of its reference
    #[arg(long, value_name = "R", default_value_t = 0.0, allow_negative_numbers = true)]
    pub relative: f64,
    /// End it after so many seconds
    #[arg(long, value_name = "S", default_value_t = 60.0, allow_negative_numbers = true)]
    pub timeout: f64,
    /// Files the outcome depends on (can be repeated): while they are the same, it is not run again
    #[arg(long = "input", value_name = "GLOB")]
    pub inputs: Vec<String>,
    /// Evidence to add when it passes (can be repeated): H1=0.8
    #[arg(long, value_name = "H=S")]
    pub pass_evidence: Vec<String>,
    /// Evidence to add when it fails (can be repeated): H1=-0.8
    #[arg(long, value_name = "H=S")]
    pub fail_evidence: Vec<String>,
    /// A gap that is filled when it passes (can be repeated)
    #[arg(long, value_name = "G")]
    pub pass_fills: Vec<String>,
    /// A gap that is filled when it fails (can be repeated)
    #[arg(long, value_name = "G")]
    pub fail_fills: Vec<String>,
    /// Run no further checks when it passes
    #[arg(long)]
    pub halt_on_pass: bool,
    /// Run no further checks when it fails
    #[arg(long)]
    pub halt_on_fail: bool,
    #[command(flatten)]
    pub board: BoardArgs,
}
