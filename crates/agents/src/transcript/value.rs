//! Helpers to read fields of JSON of unknown shape.

use serde::Deserialize;
use serde_json::Value;
use stepback_model::time::Timestamp;

/// Returns the text under a key.
pub(crate) fn get_str<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str()
}

/// Returns the text under a key as an owned string.
pub(crate) fn get_string(value: &Value, key: &str) -> Option<String> {
    get_str(value, key).map(str::to_owned)
}

/// Whether a key is `true`.
pub(crate) fn get_bool(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or(false)
}

/// Returns the number under a key, or zero.
pub(crate) fn get_u64(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or(0)
}

/// Returns the time under a key: RFC 3339, or milliseconds since the epoch.
pub(crate) fn get_timestamp(value: &Value, key: &str) -> Option<Timestamp> {
    match value.get(key)? {
        Value::Number(millis) => Some(Timestamp::from_micros(millis.as_i64()?.saturating_mul(1000))),
        text @ Value::String(_) => Timestamp::deserialize(text).ok(),
        _ => None,
    }
}

/// Returns the elements under a key; empty if it is not a list.
pub(crate) fn get_array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns a text on one line, at most `limit` characters long.
pub(crate) fn clip_line(text: &str, limit: usize) -> String {
    // Only slightly more than the limit is read: the text may be megabytes long.
    let head: String = text.trim_start().chars().take(limit * 4).collect();
    let line = head.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= limit && text.trim().len() <= head.len() {
        return line;
    }
    let mut short: String = line.chars().take(limit.saturating_sub(1)).collect();
    short.push('…');
    short
}
