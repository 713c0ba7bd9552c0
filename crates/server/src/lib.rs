//! The HTTP server over a store: for the Studio, for scripts, for teams, for agents in any language.
//!
//! The API is below `/api/v1`, described by an OpenAPI document that is generated from the code. The engine blocks on disks
//! and locks, so every request does its work on a blocking thread. The server keeps no state outside the store, except for
//! plans that wait for confirmation; so it can be killed at any time, and several servers can share one store.

mod accept;
pub mod api;
mod auth;
pub mod documents;
mod extract;
mod ingest;
mod limits;
mod live;
mod mcp;
mod metrics;
mod pagination;
mod plans;
mod problem;
mod service;
mod signin;
mod state;
mod static_files;
mod strict;
mod tls;
mod watching;
mod write_timeout;

pub use api::reruns::ServerHost;
pub use auth::{AuthToken, Guard};
pub use problem::Problem;
pub use service::{HttpServer, ServerConfig, in_process_router, serve};
pub use state::AppState;
pub use tls::Tls;
pub use watching::watch;
