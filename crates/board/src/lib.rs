//! What can be done with an agent's reasoning board, beyond recording it.
//!
//! The board itself is the crate `stepback-reasoning`, without a store; recording its changes, and moving it along with the
//! files, is [`stepback_engine::board`]. This crate is for those who work with a board: it finds the board that is meant, runs
//! checks and records their outcome, starts experiments, merges what they found, and tells an agent where it stopped.
//!
//! # Modules
//!
//! - `session`, `moment`: whose board is meant, and at which moment.
//! - `verify`, `finding`, `process`: running a check, comparing what it found, and its command as a bounded process.
//! - `experiment`, `merge`: a branch for an experiment, and what was learned there.
//! - `history`, `activity`: confidence over time; what a session took.
//! - `commands`, `command_ending`, `command_history`, `recover`, `recovery_steps`: the shell commands of sessions, the page
//!   to continue from, and what brings a session back.
//! - `error`: what can go wrong.

mod activity;
mod command_ending;
mod command_history;
mod commands;
mod error;
mod experiment;
mod finding;
mod history;
mod merge;
mod moment;
mod process;
mod recover;
mod recovery_steps;
mod session;
mod verify;

pub use activity::{SessionActivity, SessionMetrics, measure_session};
pub use command_history::{CommandFilter, CommandPage, command_history, list_commands};
pub use commands::{CommandRun, CommandStatus};
pub use error::BoardError;
pub use experiment::{StartedExperiment, start_experiment};
pub use history::{ConfidenceHistory, HypothesisHistory, confidence_history};
pub use merge::merge_board;
pub use moment::resolve_moment;
pub use recover::{RecoveryPage, build_recovery_page};
pub use recovery_steps::{RecoveryStep, plan_recovery_steps};
pub use session::choose_session;
pub use verify::{CheckReport, pending_checks, run_check};
