//! Short texts for display.

use serde_json::Value;

/// The maximum length of a summary, in characters.
const SUMMARY: usize = 160;

/// Returns the first non-empty line, shortened.
pub fn one_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    match line.char_indices().nth(SUMMARY) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

/// Formats a number with its noun.
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
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
