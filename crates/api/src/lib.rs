//! The documents that stepback's surfaces exchange: what the HTTP API takes and answers, what commands print with `--json`,
//! what the TUI shows, and the sessions that MCP clients read.
//!
//! Each object has one definition, which is both written and read, and from which the OpenAPI description is generated.
//! Documents are plain data: ids, hashes and enumerations are texts, so that a program in any language can read them.
//! Parameters of a single HTTP operation are not documents; they are beside the operation, in `stepback-server`.
//!
//! # Modules
//!
//! - [`workspaces`], [`sessions`], [`steps`], [`operations`]: the records of a store.
//! - [`checkpoints`], [`files`], [`changes`], [`state`]: what was saved, and what differs.
//! - [`plans`], [`branches`]: going back and forth.
//! - [`timeline`], [`search`], [`commands`], [`blame`], [`why`]: looking at sessions, finding steps, the commands that agents
//!   called, where lines come from, and why.
//! - [`control`]: stopping live agents, and answering those that wait.
//! - [`reasoning`]: an agent's board.
//! - [`ingest`]: what agents report over the network.
//! - [`maintenance`]: numbers, costs, pruning.
//! - [`page`], [`problem`], [`failure`], [`address`]: lists, errors and what to do about them, names in URLs.
//! - `conversions`: documents of the engine's values (feature `engine`).
//!
//! A new document goes into the module of its subject, with `Serialize`, `Deserialize` and `ToSchema`, and with a constructor
//! `of` from the value that it describes: beside it if that value is one of the model, in `conversions` otherwise.

pub mod address;
pub mod anomalies;
pub mod blame;
pub mod branches;
pub mod changes;
pub mod checkpoints;
pub mod commands;
pub mod control;
#[cfg(feature = "engine")]
pub mod conversions;
pub mod cost;
pub mod dashboard;
pub mod failure;
pub mod files;
pub mod git_export;
pub mod ingest;
pub mod maintenance;
pub mod operations;
pub mod page;
pub mod plans;
pub mod problem;
pub mod profile;
pub mod reasoning;
pub mod search;
pub mod sessions;
pub mod state;
pub mod steps;
pub mod timeline;
pub mod why;
pub mod workspaces;
