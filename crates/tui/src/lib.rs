//! `stepback tui`: everything that was recorded, gone through with keys at a terminal.
//!
//! [`app`] is what is shown, as a value that changes with every [`effect::Message`] and says which [`effect::Effect`]s follow;
//! [`executor`] does those against a [`source`]; [`draw`] puts the value on a screen; [`run`] is the loop around them, and
//! [`terminal`] what it takes and gives back. What a key does is in [`keys`], and nowhere else.

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
