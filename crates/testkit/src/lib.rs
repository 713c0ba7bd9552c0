//! What tests share: the contract every store keeps, sample records, child processes, and naive copies of directories.
//!
//! Only tests depend on this crate, and it may use whatever it tests.
//!
//! # Modules
//!
//! - [`contract`]: what a correct store is: a new backend expands [`store_contract!`] once and gets one test per
//!   clause.
//! - [`TestWorkspace`]: a workspace and a store, which most tests start from.
//! - [`sample`]: records that are exact to the byte. [`process`]: one test of a binary as a real process of its own.
//! - [`tree`], [`work`]: naive copies of directories to compare with, and random changes to them.
//! - [`line_model`]: a slow and simple model of which steps are on which line, to compare the engine with.
//! - [`agent`], [`model`]: real coding agents, offline, and the scripted model they talk to, over four wires.
//! - [`postgres`], [`mcp`], [`python`]: a database server for one test, the official tools for MCP, and Python packages
//!   that tests run.
//! - [`fuzz`]: seeded mutations of bytes for whatever reads foreign input.
//! - [`skip`]: for tests that need more than a machine may have.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

pub mod agent;
pub mod contract;
pub mod fuzz;
pub mod line_model;
pub mod mcp;
pub mod model;
pub mod postgres;
pub mod process;
pub mod python;
pub mod sample;
pub mod skip;
pub mod test_workspace;
pub mod tree;
pub mod work;

pub use test_workspace::TestWorkspace;
