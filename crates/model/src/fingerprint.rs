//! Fingerprints of what a call was given and what came back, equal for what a reader would call "the same again".
//!
//! Two runs of one failing test print different times, colours and temporary directories. These are left out, so that the
//! results are equal; every other number counts, because "3 failed" after "5 failed" is progress. A fingerprint tells
//! nothing about the text, and 0 stands for none.

use serde_json::Value;

/// Fields of an input that describe a call and change nothing about it.
const DESCRIPTIONS: [&str; 4] = ["description", "explanation", "justification", "intent"];
/// Fields of an output that differ each time: when something happened, how long it took, and which process did it.
const VOLATILE: [&str; 12] = [
    "duration",
    "duration_ms",
    "durationMs",
    "duration_seconds",
    "durationSeconds",
    "elapsed",
    "elapsed_ms",
    "timestamp",
    "pid",
    "process_id",
    "request_id",
    "uuid",
];
/// Units of a duration.
const UNITS: [&str; 14] = [
    "ms", "s", "sec", "secs", "second", "seconds", "\u{b5}s", "\u{3bc}s", "us", "ns", "min", "mins",
    "minutes", "m",
];
/// The shortest run of hexadecimal digits that is taken for an id.
const ID_DIGITS: usize = 12;
/// What stands for anything that is left out.
const LEFT_OUT: u8 = b'#';
/// How deep a value is followed.
const MAX_DEPTH: usize = 64;

/// Returns the fingerprint of a text as it is; 0 for an empty one.
pub fn fingerprint_text(text: &str) -> u64 {
    if text.is_empty() { 0 } else { hash_bytes(text.as_bytes()) }
}

/// Returns the fingerprint of the input of a call: equal for calls that do the same, however they are described. 0 if there
/// is no input.
pub fn fingerprint_input(input: &Value) -> u64 {
    let mut bytes = Vec::with_capacity(128);
    write_value(input, &DESCRIPTIONS, false, 0, &mut bytes);
    if bytes.is_empty() { 0 } else { hash_bytes(&bytes) }
}

/// Returns the fingerprint of an output or an error: equal for results that differ in times, durations, ids, colours and
/// temporary names only. 0 if there is no output.
pub fn fingerprint_output(output: &Value) -> u64 {
    let mut bytes = Vec::with_capacity(256);
    write_value(output, &VOLATILE, true, 0, &mut bytes);
    if bytes.is_empty() { 0 } else { hash_bytes(&bytes) }
}

/// Returns the fingerprint of the edit that would undo an edit, if it is one that replaces a text by another in one file: the
/// same input with the two texts exchanged. 0 if there is none.
pub fn fingerprint_inverse(input: &Value) -> u64 {
    const PAIRS: [(&str, &str); 3] =
        [("old_string", "new_string"), ("oldString", "newString"), ("old_str", "new_str")];
    let Value::Object(fields) = input else { return 0 };
    let pair = PAIRS.iter().find(|(old, new)| fields.contains_key(*old) && fields.contains_key(*new));
    let Some((old, new)) = pair else { return 0 };
    let mut exchanged = fields.clone();
    let (old_text, new_text) = (fields[*old].clone(), fields[*new].clone());
    exchanged.insert((*old).to_owned(), new_text);
    exchanged.insert((*new).to_owned(), old_text);
    fingerprint_input(&Value::Object(exchanged))
}

fn hash_bytes(bytes: &[u8]) -> u64 {
    let hash = blake3::hash(bytes);
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(first).max(1)
}

/// Writes a value without the fields that do not count. The order of the fields does not matter.
fn write_value(value: &Value, ignored: &[&str], normalize: bool, depth: usize, out: &mut Vec<u8>) {
    match value {
        Value::Null => {}
        Value::String(text) if normalize => normalize_text(text, out),
        Value::String(text) => out.extend_from_slice(text.as_bytes()),
        Value::Array(items) if depth < MAX_DEPTH => {
            for item in items {
                write_value(item, ignored, normalize, depth + 1, out);
                out.push(0);
            }
        }
        Value::Object(fields) if depth < MAX_DEPTH => {
            let mut names: Vec<&String> =
                fields.keys().filter(|name| !ignored.contains(&name.as_str())).collect();
            names.sort_unstable();
            for name in names {
                out.extend_from_slice(name.as_bytes());
                out.push(1);
                write_value(&fields[name], ignored, normalize, depth + 1, out);
                out.push(0);
            }
        }
        other => out.extend_from_slice(other.to_string().as_bytes()),
    }
}

/// Writes a text without what differs in each run.
fn normalize_text(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let in_word = at > 0 && is_word(bytes[at - 1]);
        let skipped = match bytes[at] {
            0x1b => escape_length(&bytes[at..]),
            b'/' if bytes[at..].starts_with(b"/tmp/") => {
                let name = bytes[at + 5..]
                    .iter()
                    .take_while(|byte| is_word(**byte) || **byte == b'.' || **byte == b'-');
                5 + name.count()
            }
            byte if byte.is_ascii_hexdigit() && !in_word => {
                let after_colon = at > 0 && matches!(bytes[at - 1], b':' | b'.' | b'-');
                volatile_length(&bytes[at..], after_colon)
            }
            _ => 0,
        };
        if skipped == 0 {
            out.push(bytes[at]);
            at += 1;
        } else {
            if bytes[at] != 0x1b {
                out.push(LEFT_OUT);
            }
            at += skipped;
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The length of an escape sequence of a terminal.
fn escape_length(bytes: &[u8]) -> usize {
    match bytes.get(1) {
        Some(b'[') => {
            let end = bytes.iter().skip(2).position(|byte| (0x40..=0x7e).contains(byte));
            end.map_or(bytes.len(), |end| end + 3)
        }
        _ => 1,
    }
}

/// The length of a date, a time, a duration, an address or an id that the bytes begin with; 0 for anything else.
fn volatile_length(bytes: &[u8], is_continued: bool) -> usize {
    if bytes.starts_with(b"0x") {
        let digits = count(&bytes[2..], |byte| byte.is_ascii_hexdigit());
        return if digits >= 6 { digits + 2 } else { 0 };
    }
    let digits = count(bytes, |byte| byte.is_ascii_digit());
    let hex = count(bytes, |byte| byte.is_ascii_hexdigit() || byte == b'-');
    let ends = |length: usize| bytes.get(length).is_none_or(|byte| !is_word(*byte));
    let has_digit = bytes[..hex].iter().any(u8::is_ascii_digit);
    if !is_continued && hex > digits.max(ID_DIGITS - 1) && has_digit && ends(hex) && !is_date(bytes) {
        return hex;
    }
    if digits == 0 || is_continued {
        return 0;
    }
    if is_date(bytes) {
        let rest = &bytes[10..];
        let time =
            rest.first().filter(|byte| matches!(byte, b'T' | b' ')).map_or(0, |_| clock_length(&rest[1..]));
        return if time > 0 { 11 + time } else { 10 };
    }
    match clock_length(bytes) {
        0 => duration_length(bytes, digits),
        length => length,
    }
}

fn count(bytes: &[u8], belongs: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|byte| belongs(**byte)).count()
}

fn is_date(bytes: &[u8]) -> bool {
    bytes.len() >= 10
        && bytes[..10].iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

/// The length of `12:30:59.123Z`.
fn clock_length(bytes: &[u8]) -> usize {
    let is_clock = bytes.len() >= 8
        && bytes[..8].iter().enumerate().all(|(at, byte)| match at {
            2 | 5 => *byte == b':',
            _ => byte.is_ascii_digit(),
        });
    if !is_clock {
        return 0;
    }
    let fraction = match bytes.get(8) {
        Some(b'.' | b',') => 1 + count(&bytes[9..], |byte| byte.is_ascii_digit()),
        _ => 0,
    };
    8 + fraction + usize::from(bytes.get(8 + fraction) == Some(&b'Z'))
}

/// The length of `0.31s`, `12 ms` or `2m`.
fn duration_length(bytes: &[u8], digits: usize) -> usize {
    let fraction = match bytes.get(digits) {
        Some(b'.') => match count(&bytes[digits + 1..], |byte| byte.is_ascii_digit()) {
            0 => 0,
            more => more + 1,
        },
        _ => 0,
    };
    let number = digits + fraction;
    let space = usize::from(bytes.get(number) == Some(&b' '));
    let unit = count(&bytes[number + space..], |byte| byte.is_ascii_alphabetic() || byte >= 0x80);
    let rest = &bytes[number + space..];
    let is_unit = UNITS.iter().any(|name| name.as_bytes() == &rest[..unit]);
    // "5 m" is a length as often as a time.
    let is_ambiguous = space == 1 && unit == 1 && rest[0] == b'm';
    if is_unit && !is_ambiguous { number + space + unit } else { 0 }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn same(one: &str, other: &str) -> bool {
        fingerprint_output(&json!(one)) == fingerprint_output(&json!(other))
    }

    #[test]
    fn results_of_the_same_failure_are_equal() {
        assert!(same("2 failed in 0.31s", "2 failed in 12.07s"));
        assert!(same("ran at 2026-01-02T03:04:05.123Z", "ran at 2026-02-03T13:14:15Z"));
        assert!(same("[12:30:59] error", "[12:31:07] error"));
        assert!(same("panicked at 0x7ffe01ab", "panicked at 0x7ffe99cd"));
        assert!(same("\u{1b}[31mFAILED\u{1b}[0m", "FAILED"));
        assert!(same("in /tmp/abc123/x", "in /tmp/def.456/x"));
        assert!(same("id 6f1e2d3c-1111-4222-8333-444455556666", "id 0a1b2c3d-9999-4888-8777-666655554444"));
        assert!(same("took 3 \u{b5}s", "took 17 \u{b5}s"));
    }

    #[test]
    fn results_that_a_reader_would_tell_apart_differ() {
        assert!(!same("3 failed in 0.3s", "5 failed in 0.3s"));
        assert!(!same("error at main.rs:12:30", "error at main.rs:13:30"));
        assert!(!same("error at main.rs:12:30:59", "error at main.rs:12:31:59"));
        assert!(!same("expected 12, got 13", "expected 12, got 14"));
        assert!(!same("commit 4f2a91c", "commit 4f2a91d"), "short enough to be a word");
        assert!(!same("deadbeefcafes", "deadbeefcafed"));
        assert!(!same("version 1.2.3", "version 1.2.4"));
        assert!(!same("5 m wide", "6 m wide"));
    }

    #[test]
    fn what_describes_a_call_does_not_count() {
        let one = json!({"command": "make", "description": "Build it"});
        let other = json!({"description": "Build it again", "command": "make"});
        assert_eq!(fingerprint_input(&one), fingerprint_input(&other));
        assert_ne!(fingerprint_input(&one), fingerprint_input(&json!({"command": "make all"})));
        let result = |ms: u64| json!({"stdout": "ok", "durationMs": ms});
        assert_eq!(fingerprint_output(&result(3)), fingerprint_output(&result(9)));
        assert_eq!((fingerprint_output(&Value::Null), fingerprint_output(&json!(""))), (0, 0));
    }

    #[test]
    fn the_inverse_of_an_edit_is_the_edit_that_takes_it_back() {
        let edit = |old: &str, new: &str| json!({"file_path": "a", "old_string": old, "new_string": new});
        assert_eq!(fingerprint_inverse(&edit("x", "y")), fingerprint_input(&edit("y", "x")));
        assert_ne!(fingerprint_inverse(&edit("x", "y")), fingerprint_input(&edit("y", "z")));
        assert_eq!(fingerprint_inverse(&json!({"content": "x"})), 0);
    }

    #[test]
    fn any_text_has_a_fingerprint() {
        for text in ["0x", "1", "12:30:5", "2026-01-02", "2026-01-02T", "1.", "1. s", "/tmp/", "é1ms"] {
            assert_ne!(fingerprint_output(&json!(text)), 0, "{text}");
        }
        // Nothing of these can be seen.
        for text in ["\u{1b}", "\u{1b}[", "\u{1b}[0m"] {
            assert_eq!(fingerprint_output(&json!(text)), 0);
        }
    }
}
