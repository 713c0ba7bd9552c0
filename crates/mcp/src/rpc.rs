//! JSON-RPC 2.0 as MCP uses it: one message at a time, ids that are never null, no batches.

use serde_json::{Map, Value, json};

/// The `params` of a request or notification.
pub type Params = Map<String, Value>;

/// A message from the client.
#[derive(Clone, PartialEq, Debug)]
pub enum RpcMessage {
    /// Expects a response.
    Request {
        /// The id that the response must repeat: a string or an integer.
        id: Value,
        /// The method to call.
        method: String,
        /// The arguments of the method.
        params: Params,
    },
    /// Expects no response.
    Notification {
        /// The method that names the event.
        method: String,
        /// The arguments of the event.
        params: Params,
    },
    /// A response. This server sends no requests, so it is ignored.
    Response,
}

/// The error response to a request.
#[derive(Clone, PartialEq, Debug)]
pub struct Refusal {
    /// The JSON-RPC error code.
    pub code: i64,
    /// A description of the error.
    pub message: String,
    /// Details for programs.
    pub data: Option<Value>,
}

/// The message is not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// The JSON is not a valid message.
pub const INVALID_REQUEST: i64 = -32600;
/// The method is unknown.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The arguments are invalid.
pub const INVALID_PARAMS: i64 = -32602;
/// The server failed.
pub const INTERNAL_ERROR: i64 = -32603;
/// A resource was not found; used up to revision 2025-11-25.
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// The headers of a request contradict its body.
pub const HEADER_MISMATCH: i64 = -32020;
/// The request needs a capability that the client did not declare.
pub const MISSING_CAPABILITY: i64 = -32021;
/// The request states a revision that is not supported.
pub const UNSUPPORTED_VERSION: i64 = -32022;

impl Refusal {
    /// A refusal without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The refusal of invalid arguments.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    /// The refusal of the unknown method `method`.
    pub fn unknown_method(method: &str) -> Self {
        let clipped: String = method.chars().take(80).collect();
        Self::new(METHOD_NOT_FOUND, format!("unknown method \"{clipped}\""))
    }

    /// Adds details for programs.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }
}

/// Parses a message. The error carries the id under which to respond, if the input has one.
pub fn parse(bytes: &[u8]) -> Result<RpcMessage, (Option<Value>, Refusal)> {
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|error| (None, Refusal::new(PARSE_ERROR, format!("invalid JSON: {error}"))))?;
    let mut fields = match value {
        Value::Object(fields) => fields,
        Value::Array(_) => {
            let reason = "batches are not supported: they were removed in revision 2025-06-18";
            return Err((None, Refusal::new(INVALID_REQUEST, reason)));
        }
        _ => return Err((None, Refusal::new(INVALID_REQUEST, "a message must be a JSON object"))),
    };
    let id = fields.remove("id");
    let usable = id.as_ref().filter(|id| id.is_string() || id.is_i64() || id.is_u64()).cloned();
    let invalid = |reason: &str| (usable.clone(), Refusal::new(INVALID_REQUEST, reason));
    if fields.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(invalid("\"jsonrpc\" must be \"2.0\""));
    }
    let method = match fields.remove("method") {
        Some(Value::String(method)) => method,
        None if fields.contains_key("result") || fields.contains_key("error") => {
            return Ok(RpcMessage::Response);
        }
        _ => return Err(invalid("\"method\" must be a text")),
    };
    let params = match fields.remove("params") {
        None => Params::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Err(invalid("\"params\" must be an object")),
    };
    match (id, usable) {
        (None, _) => Ok(RpcMessage::Notification { method, params }),
        (Some(_), Some(id)) => Ok(RpcMessage::Request { id, method, params }),
        (Some(_), None) => {
            Err((None, Refusal::new(INVALID_REQUEST, "\"id\" must be a text or a whole number")))
        }
    }
}

/// The response to a request.
pub fn response(id: &Value, answer: Result<Value, Refusal>) -> Value {
    match answer {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(refusal) => error_response(Some(id), &refusal),
    }
}

/// The error response. Without an id the client cannot tell which request it belongs to.
pub fn error_response(id: Option<&Value>, refusal: &Refusal) -> Value {
    let mut error = json!({ "code": refusal.code, "message": refusal.message });
    if let Some(data) = &refusal.data {
        error["data"] = data.clone();
    }
    let mut message = json!({ "jsonrpc": "2.0", "error": error });
    // Revision 2025-11-25 and later omit an unknown id, where JSON-RPC itself requires null.
    if let Some(id) = id {
        message["id"] = id.clone();
    }
    message
}

/// A notification.
pub fn notification(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> i64 {
        parse(text.as_bytes()).unwrap_err().1.code
    }

    #[test]
    fn what_is_no_message_is_refused_under_its_id_if_it_has_one() {
        assert_eq!(code("{"), PARSE_ERROR);
        assert_eq!(code("\u{0}"), PARSE_ERROR);
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1e999}}"#), PARSE_ERROR);
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":NaN}}"#), PARSE_ERROR);
        assert_eq!(code(&"[".repeat(100_000)), PARSE_ERROR);
        for text in ["[]", "1", "null", r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#] {
            assert_eq!(code(text), INVALID_REQUEST, "{text}");
        }
        let odd = [
            r#"{"id":7,"method":"ping"}"#,
            r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":7}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":3}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}"#,
        ];
        for text in odd {
            let (id, refusal) = parse(text.as_bytes()).unwrap_err();
            assert_eq!((id, refusal.code), (Some(json!(7)), INVALID_REQUEST), "{text}");
        }
        for id in ["null", "1.5", "{}", "[1]", "true"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            let (id, refusal) = parse(text.as_bytes()).unwrap_err();
            assert_eq!((id, refusal.code), (None, INVALID_REQUEST), "{text}");
        }
    }

    #[test]
    fn messages_are_told_apart() {
        let request = parse(br#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#).unwrap();
        assert_eq!(
            request,
            RpcMessage::Request { id: json!("a"), method: "ping".into(), params: Params::new() }
        );
        let told = parse(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).unwrap();
        assert!(matches!(told, RpcMessage::Notification { .. }));
        assert_eq!(parse(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#).unwrap(), RpcMessage::Response);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_odd(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
