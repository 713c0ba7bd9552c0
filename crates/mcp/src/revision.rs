//! Revisions of the protocol, and which of the two eras a request belongs to.
//!
//! Up to 2025-11-25 a client introduces itself once (`initialize`), and that holds for the rest of the connection. From
//! 2026-07-28 on every request states its client and revision, and the server keeps no state.

use serde_json::{Value, json};

use crate::rpc::{Params, Refusal, UNSUPPORTED_VERSION};

/// The revision in which every request is self-contained.
pub const MODERN: &str = "2026-07-28";
/// Revisions that begin with `initialize`, newest first.
pub const LEGACY: [&str; 2] = ["2025-11-25", "2025-06-18"];

/// The `_meta` key of the revision of a request.
pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The `_meta` key of the client's name and version.
pub const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
/// The `_meta` key of the client's capabilities.
pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The `_meta` key of the server's name and version.
pub const SERVER: &str = "io.modelcontextprotocol/serverInfo";

/// Which generation of the protocol a request belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolEra {
    /// The `initialize` handshake of the connection says who the client is and which revision it uses.
    Legacy,
    /// Every request says so itself.
    Modern,
}

/// Every supported revision, newest first.
pub fn supported_versions() -> Vec<&'static str> {
    std::iter::once(MODERN).chain(LEGACY).collect()
}

/// The revision for a connection whose client asks for `requested`: that one if supported, else the newest legacy one.
pub fn negotiate_version(requested: &str) -> &'static str {
    LEGACY.into_iter().find(|supported| *supported == requested).unwrap_or(LEGACY[0])
}

/// The revision that a request states.
pub fn stated_version(params: &Params) -> Option<&Value> {
    params.get("_meta")?.get(VERSION)
}

/// Checks the `_meta` fields that a self-contained request must have.
pub fn check_meta(params: &Params) -> Result<(), Refusal> {
    let missing = |key: &str| Refusal::invalid_params(format!("params._meta must have \"{key}\""));
    let meta = match params.get("_meta") {
        Some(Value::Object(meta)) => meta,
        _ => return Err(missing(VERSION)),
    };
    let version = match meta.get(VERSION) {
        Some(Value::String(version)) => version,
        _ => return Err(missing(VERSION)),
    };
    if version != MODERN {
        return Err(unsupported_version(version));
    }
    if !meta.get(CAPABILITIES).is_some_and(Value::is_object) {
        return Err(missing(CAPABILITIES));
    }
    match meta.get(CLIENT) {
        None => Ok(()),
        Some(client) if client.get("name").is_some_and(Value::is_string) => Ok(()),
        Some(_) => Err(Refusal::invalid_params(format!("params._meta[\"{CLIENT}\"] must have a name"))),
    }
}

/// The refusal for the unsupported revision `requested`.
pub fn unsupported_version(requested: &str) -> Refusal {
    let requested: String = requested.chars().take(40).collect();
    Refusal::new(UNSUPPORTED_VERSION, format!("protocol revision \"{requested}\" is not supported"))
        .with_data(json!({ "supported": supported_versions(), "requested": requested }))
}
