//! `stepback tui`: browses everything that was recorded, with keys at a terminal.
//!
//! [`app`] is the state as a value that changes with every [`effect::AppMessage`] and returns the [`effect::AppEffect`]s that
//! follow; [`executor`] carries those out against a [`source`]; [`draw`] draws the state on a screen; [`run`] is the loop
//! around them, and [`terminal`] takes and restores the terminal. The keys are defined in [`keys`], and nowhere else.

pub mod app;
pub mod documents;
pub mod draw;
pub mod effect;
pub mod executor;
pub mod keys;
pub mod run;
pub mod source;
pub mod terminal;
pub mod write;
