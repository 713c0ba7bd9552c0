//! The HTTP server over a store: for the Studio, for scripts, for teams, for agents in any language.
//!
//! The API is below `/api/v1`, described by an OpenAPI document that is generated from the code. The engine blocks on
//! disks and locks, so every request does its work on a blocking thread. Everything that must last is in the store,
//! also the plans that wait for confirmation; so the server can be killed at any time, and several servers can share one
//! store. It reads no environment variables.
//!
//! # Modules
//!
//! - `service`, `accept`, `tls`, `write_timeout`: the server as a whole, its connections, encryption, slow clients.
//!   Start at [`serve`].
//! - `auth`, `browser_session`, `signin`, `limits`, `metrics`, `request_id`: who is let in (token, host, origin; browsers), load limits,
//!   observability.
//! - [`api`]: one function per operation, in modules by resource. Start at `api::router`.
//! - `state`, `extract`, `strict`, `problem`, `pagination`: what operations share: the engine on a blocking thread,
//!   typed input, refusal of unknown names, errors as RFC 9457 documents, pages.
//! - `live`, `ingest`: followers of the log, and steps that remote agents report.
//! - `mcp`, `watching`, `static_files`, `store_endpoint`: MCP at `/mcp`, the watcher of a server, the Studio's files, and the
//!   store's own port at `/store` for clients that use a guarded store.
//!
//! A new operation is a function with a `utoipa::path` attribute in a module of [`api`], a line in `api::operations`, its
//! documents in [`stepback_api`], tests in `tests/api`, a regenerated `docs/openapi.json`, and a row in
//! `docs/guide/server.md`.

mod accept;
pub mod api;
mod auth;
mod browser_session;
mod extract;
mod ingest;
mod limits;
mod live;
mod mcp;
mod metrics;
mod pagination;
mod problem;
mod request_id;
mod service;
mod signin;
mod single_flight;
mod state;
mod static_files;
mod store_endpoint;
mod strict;
mod timeline_messages;
mod tls;
mod watching;
mod write_timeout;

pub use api::reruns::{DiskBudgetReader, ServerHost};
pub use auth::{AuthToken, Guard};
pub use problem::Problem;
pub use service::{HttpServer, ServerConfig, in_process_router, serve};
pub use state::AppState;
pub use tls::Tls;
pub use watching::start_watcher;
