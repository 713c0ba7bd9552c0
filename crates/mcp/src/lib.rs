//! MCP server: what stepback offers to agents, over standard input and output or over HTTP.
//!
//! [`protocol`] implements two generations of the protocol over any [`service::McpService`]; [`stdio`] and [`http`] are
//! the transports. [`toolset`] is stepback's own service: tools ([`tools`]) for time travel and for the board of an
//! agent's reasoning, resources and prompts. Responses are small unless the client asks for more, because an agent
//! reads all of them.
//!
//! The protocol does not know the store, and the tools do not know a transport. Nothing here reads the environment or
//! looks for a store; a [`toolset::Host`] opens the workspace.
//!
//! # Modules
//!
//! - [`rpc`], [`revision`], [`service`], [`protocol`]: messages, protocol revisions, the server's interface as a trait,
//!   and the methods on top of it.
//! - [`stdio`], [`http`] and `listen`: the two transports, and subscriptions to resources.
//! - [`toolset`], [`session_lookup`]: permissions and dispatch, and the session a server acts for. Start at
//!   [`toolset::ToolServer`].
//! - [`tools`]: one function for each tool.
//! - `resources`, `prompts`, `completion`: resources by URI, prompts by name, and completions.
//! - [`schema`], [`tool_error`] and `page`: schemas, published and checked; errors worded for a model; cursors.
//!
//! A new tool is a function below [`tools`], with schemas for its input and output, in the list of `tools.rs` and in
//! the table of `docs/guide/mcp.md`. Why the protocol is written by hand: `docs/design/0022-mcp-by-hand.md`.

mod completion;
pub mod http;
mod listen;
mod prompts;
pub mod protocol;
mod resources;
pub mod revision;
pub mod rpc;
pub mod schema;
pub mod service;
pub mod session_lookup;
pub mod stdio;
pub mod tool_error;
pub mod tools;
pub mod toolset;

pub use session_lookup::SessionHint;
pub use tool_error::ToolError;
pub use toolset::{Host, ToolServer, ToolServerOptions};
