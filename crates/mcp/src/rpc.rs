//! JSON-RPC 2.0 as MCP uses it: one message at a time, ids that are never null, no batches.

use serde_json::{Map, Value, json};

/// The members of a request that are its arguments.
pub type Params = Map<String, Value>;

/// A message from the other side.
#[derive(Clone, PartialEq, Debug)]
pub enum Message {
    /// Wants an answer.
    Request {
        /// What the answer is to be marked with: a text or a whole number.
        id: Value,
        /// What is asked.
        method: String,
        /// With what.
        params: Params,
    },
    /// Wants none.
    Notification {
        /// What is told.
        method: String,
        /// With what.
        params: Params,
    },
    /// Answers something. We never ask, so it answers nothing of ours.
    Answer,
}

/// Why a request is not answered with a result.
#[derive(Clone, PartialEq, Debug)]
pub struct Refusal {
    /// What went wrong, as a number that programs know.
    pub code: i64,
    /// The same in words.
    pub message: String,
    /// What else there is to know.
    pub data: Option<Value>,
}

/// It is no JSON.
pub const PARSE_ERROR: i64 = -32700;
/// It is no message.
pub const INVALID_REQUEST: i64 = -32600;
/// Nobody knows the method.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The arguments do not fit.
pub const INVALID_PARAMS: i64 = -32602;
/// It is our fault.
pub const INTERNAL_ERROR: i64 = -32603;
/// What stood for a missing resource up to revision 2025-11-25.
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// The headers of a request say something else than its body.
pub const HEADER_MISMATCH: i64 = -32020;
/// A request needs something that the client did not say it can do.
pub const MISSING_CAPABILITY: i64 = -32021;
/// A request in a revision that is not spoken here.
pub const UNSUPPORTED_VERSION: i64 = -32022;

impl Refusal {
    /// A refusal.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The arguments do not fit.
    pub fn params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    /// Nobody knows `method`.
    pub fn method(method: &str) -> Self {
        let shown: String = method.chars().take(80).collect();
        Self::new(METHOD_NOT_FOUND, format!("this server has no method \"{shown}\""))
    }

    /// Adds what else there is to know.
    #[must_use]
    pub fn with(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }
}

/// Takes a message apart. What is no message comes with the id it should be answered under, if it has one.
pub fn parse(bytes: &[u8]) -> Result<Message, (Option<Value>, Refusal)> {
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|error| (None, Refusal::new(PARSE_ERROR, format!("this is no JSON: {error}"))))?;
    let mut fields = match value {
        Value::Object(fields) => fields,
        Value::Array(_) => {
            let why = "messages come one at a time: batches were removed in revision 2025-06-18";
            return Err((None, Refusal::new(INVALID_REQUEST, why)));
        }
        _ => return Err((None, Refusal::new(INVALID_REQUEST, "a message is a JSON object"))),
    };
    let id = fields.remove("id");
    let usable = id.as_ref().filter(|id| id.is_string() || id.is_i64() || id.is_u64()).cloned();
    let wrong = |why: &str| (usable.clone(), Refusal::new(INVALID_REQUEST, why));
    if fields.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(wrong("\"jsonrpc\" must be \"2.0\""));
    }
    let method = match fields.remove("method") {
        Some(Value::String(method)) => method,
        None if fields.contains_key("result") || fields.contains_key("error") => return Ok(Message::Answer),
        _ => return Err(wrong("\"method\" must be a text")),
    };
    let params = match fields.remove("params") {
        None => Params::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Err(wrong("\"params\" must be an object")),
    };
    match (id, usable) {
        (None, _) => Ok(Message::Notification { method, params }),
        (Some(_), Some(id)) => Ok(Message::Request { id, method, params }),
        (Some(_), None) => {
            Err((None, Refusal::new(INVALID_REQUEST, "\"id\" must be a text or a whole number")))
        }
    }
}

/// The message that answers a request.
pub fn answer(id: &Value, answer: Result<Value, Refusal>) -> Value {
    match answer {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(refusal) => refused(Some(id), &refusal),
    }
}

/// The message that says that something was refused. Without an id nobody knows what.
pub fn refused(id: Option<&Value>, refusal: &Refusal) -> Value {
    let mut error = json!({ "code": refusal.code, "message": refusal.message });
    if let Some(data) = &refusal.data {
        error["data"] = data.clone();
    }
    let mut message = json!({ "jsonrpc": "2.0", "error": error });
    // Revision 2025-11-25 and later leave an unknown id out, where JSON-RPC itself would have a null.
    if let Some(id) = id {
        message["id"] = id.clone();
    }
    message
}

/// A message that wants no answer.
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
            Message::Request { id: json!("a"), method: "ping".into(), params: Params::new() }
        );
        let told = parse(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).unwrap();
        assert!(matches!(told, Message::Notification { .. }));
        assert_eq!(parse(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#).unwrap(), Message::Answer);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_odd(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
