//! A store made reachable: for the Studio, for scripts, for teams, for agents in any language.
//!
//! Everything is below `/api/v1`, described by a document that is generated from the code. The engine underneath waits for
//! disks and locks, so every request does its work on a thread where it may wait; nothing here keeps state that is not in the
//! store, but for plans that wait for agreement, so that a server can be killed at any time and several can serve one store.

mod accept;
pub mod api;
pub mod documents;
mod extract;
mod guard;
mod ingest;
mod limits;
mod live;
mod mcp;
mod observe;
mod page;
mod pages;
mod patient;
mod plans;
mod problem;
mod service;
mod signin;
mod strict;
mod tls;
mod watching;
mod work;

pub use api::reruns::Stage;
pub use guard::{Guard, Token};
pub use problem::Problem;
pub use service::{Config, Server, serve, within};
pub use tls::Tls;
pub use watching::watch;
pub use work::Work;
