//! Short texts for display.

use serde_json::Value;
use stepback_model::clip;

/// The maximum length of a summary, in characters.
const MAX_SUMMARY_CHARS: usize = 160;

/// Returns the first non-empty line, shortened.
pub fn one_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    clip::first(line, MAX_SUMMARY_CHARS)
}

/// Returns a value on one line: a text unchanged, everything else as JSON.
pub fn in_short(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => one_line(text),
        other => one_line(&other.to_string()),
    }
}

/// Returns the name of a call with its input or output.
pub fn about(name: &str, value: Option<&Value>) -> String {
    match value.map(in_short).filter(|text| !text.is_empty()) {
        Some(text) => one_line(&format!("{name}: {text}")),
        None => name.to_owned(),
    }
}
