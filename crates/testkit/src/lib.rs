//! What tests share: the contract every store keeps, sample records, child processes, and naive copies of directories.
//!
//! Only tests depend on this crate. [`contract`] decides what a correct store is: a new backend expands
//! [`store_contract!`] once and gets one test per clause. [`TestWorkspace`] is the workspace and the store that most tests start
//! from. [`sample`] makes records that are exact to the byte, and
//! [`process`] runs one test of a binary as a real process of its own. [`agent`] runs real coding agents against a scripted
//! [`model`], [`postgres`] starts a server of a test's own, [`mcp`]
//! has the official tools for that protocol, and [`python`] has the packages of others that tests run. [`line_model`] says
//! which steps are on which line, to compare the engine with.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

pub mod agent;
pub mod contract;
pub mod line_model;
pub mod mcp;
pub mod model;
pub mod postgres;
pub mod process;
pub mod python;
pub mod sample;
pub mod test_workspace;
pub mod tree;
pub mod work;

pub use test_workspace::TestWorkspace;
