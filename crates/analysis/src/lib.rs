//! What recorded sessions cost, where their time went, and what in them is unusual.
//!
//! All answers are computed from [`facts`]: a few numbers for each step, read once from the details of the steps and from the
//! conversation, and kept. Nothing here changes a recording. What an answer rests on is part of it: a number that was recorded
//! is never mixed with one that was derived by a rule.
//!
//! # Modules
//!
//! - [`anomalies`]: what is unusual.
//! - [`facts`]: what is known of each step of a session. Start there.
//! - [`load`]: reads the facts of sessions from a store, and keeps them.
//! - [`marks`]: which steps say who waits for whom.
//! - [`cost`], [`prices`]: what model calls used and cost.
//! - [`dashboard`]: all sessions at a glance.
//! - [`profile`]: where the time of a session went.
//! - [`error`]: what can go wrong.

pub mod anomalies;
pub mod cost;
pub mod dashboard;
pub mod error;
pub mod facts;
pub mod load;
pub mod marks;
pub mod prices;
pub mod profile;

pub use error::AnalysisError;
