//! MCP server: what stepback offers to agents, over standard input and output or over HTTP.
//!
//! [`protocol`] implements two generations of the protocol over any [`service::McpService`]; [`stdio`] and [`http`] are the
//! transports. [`toolset`] is stepback's own service: tools ([`tools`]) for time travel and for the board of an agent's
//! reasoning, resources and prompts. Responses are small unless the client asks for more, because an agent reads all of
//! them.
//!
//! Nothing here reads the environment or looks for a store; a [`toolset::Host`] opens the workspace.

mod completion;
pub mod http;
mod listen;
mod page;
pub mod plans;
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

pub use plans::AgentPlans;
pub use session_lookup::SessionHint;
pub use tool_error::ToolError;
pub use toolset::{Host, ToolServer, ToolServerOptions};
