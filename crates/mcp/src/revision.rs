//! Revisions of the protocol, and which of the two kinds a request belongs to.
//!
//! Up to 2025-11-25 a client introduces itself once (`initialize`) and everything after that is said in that connection. From
//! 2026-07-28 on every request says by itself who asks and in which revision, and a server remembers nothing.

use serde_json::{Value, json};

use crate::rpc::{Params, Refusal, UNSUPPORTED_VERSION};

/// The revision in which every request stands for itself.
pub const MODERN: &str = "2026-07-28";
/// Revisions with an introduction, the newest first.
pub const LEGACY: [&str; 2] = ["2025-11-25", "2025-06-18"];

/// Where a request says what it is about.
pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Who asks.
pub const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
/// What the one who asks can do.
pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Who answers.
pub const SERVER: &str = "io.modelcontextprotocol/serverInfo";

/// How a request is to be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolEra {
    /// By what was said at the beginning of the connection.
    Legacy,
    /// By itself.
    Modern,
}

/// Every revision that is spoken here, the newest first.
pub fn all() -> Vec<&'static str> {
    std::iter::once(MODERN).chain(LEGACY).collect()
}

/// The revision that a connection goes on with when a client asks for `wanted`: that one, else the newest we know.
pub fn agreed(wanted: &str) -> &'static str {
    LEGACY.into_iter().find(|known| *known == wanted).unwrap_or(LEGACY[0])
}

/// The revision that a request says it is in.
pub fn stated(params: &Params) -> Option<&Value> {
    params.get("_meta")?.get(VERSION)
}

/// Checks what a request must say about itself; for one that stands for itself.
pub fn check(params: &Params) -> Result<(), Refusal> {
    let missing = |key: &str| Refusal::params(format!("params._meta must have \"{key}\""));
    let meta = match params.get("_meta") {
        Some(Value::Object(meta)) => meta,
        _ => return Err(missing(VERSION)),
    };
    let version = match meta.get(VERSION) {
        Some(Value::String(version)) => version,
        _ => return Err(missing(VERSION)),
    };
    if version != MODERN {
        return Err(unsupported(version));
    }
    if !meta.get(CAPABILITIES).is_some_and(Value::is_object) {
        return Err(missing(CAPABILITIES));
    }
    match meta.get(CLIENT) {
        None => Ok(()),
        Some(client) if client.get("name").is_some_and(Value::is_string) => Ok(()),
        Some(_) => Err(Refusal::params(format!("params._meta[\"{CLIENT}\"] must have a name"))),
    }
}

/// Nobody here speaks `wanted`.
pub fn unsupported(wanted: &str) -> Refusal {
    let wanted: String = wanted.chars().take(40).collect();
    Refusal::new(UNSUPPORTED_VERSION, format!("revision \"{wanted}\" of the protocol is not spoken here"))
        .with(json!({ "supported": all(), "requested": wanted }))
}
