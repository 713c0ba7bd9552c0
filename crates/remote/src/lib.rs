//! A store that another process holds: the store port over a byte stream.
//!
//! A server holds the store as another user or on another machine, so a program that runs as the user of an agent cannot
//! delete or overwrite it. Everything that uses a store can use it by address: [`RemoteStore`] implements the port, and
//! [`StoreService`] serves connections from any [`Store`](stepback_store::Store). A connection has an [`AccessRole`]; with
//! `append`, what would hide, free or overwrite history is refused by the server, whatever the client is.
//!
//! Everything blocks: a connection carries one request at a time, and a client that works on several threads opens several
//! connections. Calls must therefore come from a thread that may block.
//!
//! # Modules
//!
//! - `address`, `local_dir`: where a store is, and the directory on this machine for caches, locks and an agent's inbox.
//! - `stream`, `tls`, `handshake`, `frame`: byte streams with timeouts, encryption, the HTTP upgrade that begins every
//!   connection, and messages of bounded size.
//! - `protocol`, `wire_error`: requests, replies, objects as bytes, and the errors of a store.
//! - `client`, `pool`, `port`, `batch`, `commit`: the store port for a client. Start at `port`.
//! - `service`, `dispatch`, `access`, `commit_ledger`, `unix_listener`: the server: connections, requests, roles, commits
//!   whose answer was lost, and the Unix socket. Start at `service`.
//!
//! The bytes are specified in `docs/spec/remote.md`, the reasons are in `docs/design/0023-guarded-store.md`.

mod access;
mod address;
mod batch;
mod client;
mod commit;
mod commit_ledger;
mod dispatch;
mod frame;
mod handshake;
mod local_dir;
mod pool;
mod port;
mod protocol;
mod service;
mod stream;
mod tls;
mod unix_listener;
mod wire_error;

pub use access::AccessRole;
pub use address::{RemoteAddress, is_address};
pub use client::{ClientConfig, RemoteStore};
pub use handshake::{PROTOCOL, STORE_PATH, is_upgrade_request};
pub use service::{ServiceConfig, StoreService};
pub use stream::ByteStream;
pub use unix_listener::UnixStoreListener;
