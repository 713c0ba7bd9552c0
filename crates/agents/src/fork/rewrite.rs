//! Creates, replaces and compares ids and paths in raw lines.
//!
//! Lines are changed as text, so that everything else in them stays byte for byte as the agent wrote it. Searching for a
//! value together with its quotes is exact: inside a JSON string every quote is escaped.

use std::path::Path;

use serde_json::Value;
use stepback_model::time::Timestamp;

use crate::transcript::is_omitted_line;

/// A random UUID, version 4.
pub(super) fn uuid_v4(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    format_uuid(bytes)
}

/// A UUID that sorts by time, version 7.
pub(super) fn uuid_v7(mut bytes: [u8; 16], now: Timestamp) -> String {
    bytes[..6].copy_from_slice(&(now.as_micros() / 1000).to_be_bytes()[2..]);
    bytes[6] = bytes[6] & 0x0f | 0x70;
    format_uuid(bytes)
}

fn format_uuid(mut bytes: [u8; 16]) -> String {
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = stepback_model::hex::encode(&bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Replaces a string value where it is the whole string.
pub(super) fn replace_value(line: &str, old: &str, new: &str) -> String {
    line.replace(&format!("\"{old}\""), &format!("\"{new}\""))
}

/// Replaces a directory, and the start of paths below it, in the value of `cwd`.
pub(super) fn replace_cwd(line: &str, old: &Path, new: &Path) -> String {
    let quoted = |path: &Path| Value::from(path.to_string_lossy()).to_string();
    let (old, new) = (quoted(old), quoted(new));
    let (old, new) = (old.trim_end_matches('"'), new.trim_end_matches('"'));
    let mut line = line.to_owned();
    for key in ["\"cwd\":", "\"cwd\": "] {
        for end in ["\"", "/"] {
            line = line.replace(&format!("{key}{old}{end}"), &format!("{key}{new}{end}"));
        }
    }
    line
}

/// Joins lines to the content of a file.
pub(super) fn join_lines(lines: impl Iterator<Item = String>) -> Vec<u8> {
    let mut text = lines.collect::<Vec<_>>().join("\n");
    text.push('\n');
    text.into_bytes()
}

/// Formats a time as agents write it in file names, `2026-11-15T18-21-03`, cut to `length` characters.
pub(super) fn file_name_time(now: Timestamp, length: usize) -> String {
    now.to_string().chars().take(length).map(|c| if c == ':' { '-' } else { c }).collect()
}

/// Whether a line of the agent's own file is the recorded one. They differ if it was too long to keep or if a secret in it
/// was redacted.
pub(super) fn is_same_line(own: &str, recorded: &str) -> bool {
    own == recorded || is_omitted_line(recorded) || {
        let same = |(a, b): (Value, Value)| {
            let keys = ["type", "uuid", "parentUuid", "timestamp", "id", "ordinal", "leafUuid", "messageId"];
            let told = keys[1..].iter().any(|key| a.get(key).is_some());
            told && keys.iter().all(|key| a.get(key) == b.get(key))
        };
        serde_json::from_str(own).ok().zip(serde_json::from_str(recorded).ok()).is_some_and(same)
    }
}
