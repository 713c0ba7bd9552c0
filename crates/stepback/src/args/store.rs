//! Arguments of the commands about the store as a whole.

use std::path::PathBuf;

use clap::{Args, Subcommand};

// The process that watches large workspaces.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum WatcherCommand {
    /// Stop it; the next slow scan starts another one
    #[command(after_help = "Examples:\n  stepback watcher stop")]
    Stop,
}

/// The store as a whole.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum StoreCommand {
    /// Copy everything to an empty store and verify it
    #[command(
        after_help = "A store is a directory, a database (postgres://USER@HOST/DATABASE), or a server (unix:/PATH, https://HOST:PORT). A server accepts a copy only with its own token.\n\nExamples:\n  stepback store copy ~/.local/share/stepback postgres://me@db.example/stepback\n  stepback store copy postgres://me@db.example/stepback /backup/stepback"
    )]
    Copy {
        /// The store to copy
        from: PathBuf,
        /// The target, which must be empty or not exist
        to: PathBuf,
        /// Copy although steps were changed by another program; the copy does not show that they were
        #[arg(long)]
        accept_breaks: bool,
    },
}

/// Examples of `doctor`.
pub const DOCTOR: &str = "\
It checks how the store is protected, whether the hooks of each agent are intact, altered or gone, the store and its \
permissions, what was recorded, reports that wait, the workspace and its rules, the clock, space, versions and the \
watcher. It changes nothing without --fix, and runs no agent.

The exit code is 0 if there is no problem, and 1 if problems remain.

Examples:
  stepback doctor
  stepback doctor --fix              show what it would fix, and ask
  stepback doctor --fix --dry-run    only show it
  stepback doctor --fix --yes --json";

// Checking the installation.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Fix what can be fixed without losing anything, after showing a plan
    #[arg(long)]
    pub fix: bool,
    /// With --fix: show the plan and change nothing
    #[arg(long, requires = "fix")]
    pub dry_run: bool,
    /// With --fix: do not ask for confirmation
    #[arg(long, short = 'y', requires = "fix")]
    pub yes: bool,
}

/// A store that another user holds.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum GuardCommand {
    /// Create a system user that holds a store, and a service that guards it; needs root
    #[command(
        after_help = "It prints what it does, then does it. Afterwards, members of the group record with --store unix:/run/stepback/store.sock, or STEPBACK_HOME with that address.\n\nExamples:\n  stepback guard setup --print\n  sudo stepback guard setup\n  sudo stepback guard setup --group developers"
    )]
    Setup(GuardSetupArgs),
}

// Setting up a service.
#[derive(Debug, Args)]
pub struct GuardSetupArgs {
    /// The system user that holds the store
    #[arg(long, value_name = "NAME", default_value = "stepback", value_parser = parse_account_name)]
    pub user: String,
    /// The group whose members may record; it is created if it does not exist
    #[arg(long, value_name = "NAME", default_value = "stepback", value_parser = parse_account_name)]
    pub group: String,
    /// Print the commands and the unit file, and change nothing
    #[arg(long)]
    pub print: bool,
}

/// Reads the name of a user or group: what is accepted everywhere, and needs no quoting in a shell or a unit file.
fn parse_account_name(text: &str) -> Result<String, String> {
    let is_valid = text.len() <= 32
        && text.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-'));
    match is_valid {
        true => Ok(text.to_owned()),
        false => Err("use lower-case letters, digits, \"_\" and \"-\"".to_owned()),
    }
}

// Verifying.
#[derive(Debug, Args)]
pub struct Fsck {
    /// Bring back commits that the database has lost, after showing them
    #[arg(long)]
    pub repair: bool,
    /// With --repair: show what would be brought back and change nothing
    #[arg(long, requires = "repair")]
    pub dry_run: bool,
    /// With --repair: do not ask for confirmation
    #[arg(long, short = 'y', requires = "repair")]
    pub yes: bool,
}

// Pruning.
#[derive(Debug, Args)]
pub struct PruneArgs {
    /// Keep the newest N
    #[arg(long, value_name = "N")]
    pub keep_last: Option<usize>,
    /// Keep checkpoints of the last D days
    #[arg(long, value_name = "D")]
    pub keep_days: Option<u64>,
    /// Keep the newest 50 manual checkpoints, regardless of other rules
    #[arg(long)]
    pub keep_manual: bool,
    /// Keep significant checkpoints, regardless of other rules: hypotheses concluded, contradictions, verifications, merges
    #[arg(long)]
    pub keep_significant: bool,
    /// Delete the branches with the oldest tips until N are left; the current one and main stay
    #[arg(long, value_name = "N")]
    pub max_branches: Option<usize>,
    /// Remove automatic checkpoints, oldest first, until the store fits: 500MB, 2GB
    #[arg(long, value_name = "S", value_parser = parse_size)]
    pub max_size: Option<u64>,
    /// Free the space immediately, also of the last 24 hours; this cannot be undone
    #[arg(long)]
    pub now: bool,
    /// Show what would be pruned and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Reads a size: digits with an optional unit.
fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| "write a number and a unit, such as 500MB".to_string())?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "kib" => 1 << 10,
        "m" | "mb" => 1_000_000,
        "mib" => 1 << 20,
        "g" | "gb" => 1_000_000_000,
        "gib" => 1 << 30,
        "t" | "tb" => 1_000_000_000_000,
        "tib" => 1 << 40,
        _ => return Err(format!("{unit} is not a unit of size; use KB, MB, GB or TB")),
    };
    number.checked_mul(factor).ok_or_else(|| "the size is too large".to_string())
}
