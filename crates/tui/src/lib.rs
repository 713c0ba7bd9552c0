//! `stepback tui`: browses everything that was recorded, with keys at a terminal.
//!
//! It uses only the documents of the server's API ([`stepback_api`]), whether the store is in this process or elsewhere; it knows neither
//! the engine nor the store.
//!
//! # Modules
//!
//! - [`run`], [`terminal`]: the loop, and taking and restoring the terminal. Start at [`run::run`].
//! - [`app`]: the state as a value that changes with every [`effect::AppMessage`] and returns the
//!   [`effect::AppEffect`]s that follow. Start at [`app::App::update`].
//! - [`effect`], [`executor`]: messages and effects, and carrying effects out in the background.
//! - [`source`]: the data source: the server's routes without a socket, or a server.
//! - [`draw`], [`mod@write`]: draws the state on a screen; documents as rows of text.
//! - [`keys`]: the one table behind keys, help and guide. A key is defined there and nowhere else.

pub mod app;
pub mod draw;
pub mod effect;
pub mod executor;
pub mod keys;
pub mod run;
pub mod source;
pub mod terminal;
pub mod write;
