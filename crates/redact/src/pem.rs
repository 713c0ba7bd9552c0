//! Private keys in their armour: PEM, OpenSSH, PGP and PuTTY.
//!
//! The body may be as in the file, in a JSON string (`\n` as two characters, or three if the string is in another
//! string), after line numbers in the output of an agent's file reader, or on one line. It may be truncated and it may be
//! longer than any buffer, so it is dropped piece by piece for as long as it looks like a key. The frame stays: it says
//! what was there.

use crate::byte_class::{self, ALNUM, BASE64, DIGIT, JOINER, PAD, PLUS_SLASH, WORD};
use crate::window::{AfterSecret, ByteWindow, FoundSecret};

/// The fewest characters of base64 that count as a line of a key.
const MIN_LINE_CHARS: usize = 20;
/// The longest separator between two lines of a key, in bytes.
const MAX_SEPARATOR_BYTES: usize = 64;
/// The longest headers inside the armour, in bytes.
const HEADERS: usize = 600;

/// Returns the private key whose frame's first line begins in the run, which ends with `BEGIN`.
pub fn key(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    let label = view.bytes.get(view.end..)?;
    let length = label.windows(5).take(60).position(|w| w == b"-----")?;
    let label = &label[..length];
    if !byte_class::contains(label, b"PRIVATE KEY")
        || label.iter().any(|b| !byte_class::is(*b, ALNUM) && *b != b' ')
    {
        return None;
    }
    let kind = if byte_class::contains(label, b"OPENSSH") {
        "ssh-private-key"
    } else if byte_class::contains(label, b"PGP") {
        "pgp-private-key"
    } else {
        "private-key"
    };
    find_body(view, view.end + length + 5, kind)
}

/// Returns the key after PuTTY's `Private-Lines: 14`.
pub fn putty_key(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    let count = view.skip_blanks(view.end + 1);
    let end = byte_class::run_end(view.bytes, count, DIGIT, 4);
    if end == count { None } else { find_body(view, end, "putty-private-key") }
}

fn find_body(view: &ByteWindow<'_>, start: usize, kind: &'static str) -> Option<FoundSecret> {
    let mut index = start;
    while index < start + HEADERS {
        index = separator_end(view.bytes, index);
        match header_end(view.bytes, index) {
            Some(end) => index = end,
            None => break,
        }
    }
    let end = line_end(view.bytes, index)?;
    Some(FoundSecret { start: index, end, kind, then: AfterSecret::DropKey })
}

/// Returns the end of a header such as `Proc-Type: 4,ENCRYPTED`.
fn header_end(bytes: &[u8], start: usize) -> Option<usize> {
    let name = byte_class::run_end(bytes, start, ALNUM | JOINER, 24);
    if name == start || bytes.get(name..name + 2) != Some(b": ") {
        return None;
    }
    let rest = bytes.get(name..)?;
    let end = rest.iter().take(120).position(|b| matches!(b, b'\n' | b'\r' | b'\\'))?;
    Some(name + end)
}

/// Returns how far the body continues from `index`, which is inside it.
pub fn body_continues(bytes: &[u8], index: usize) -> Option<usize> {
    let end = base64_end(bytes, index);
    if end > index {
        return Some(end);
    }
    let next = separator_end(bytes, index);
    if next == index { None } else { line_end(bytes, next) }
}

fn base64_end(bytes: &[u8], index: usize) -> usize {
    let mut end = index;
    loop {
        end = byte_class::run_end(bytes, end, BASE64, 4096 - (end - index).min(4096));
        // Some JSON encoders escape the slash.
        if end - index < 4000 && bytes.get(end..end + 2) == Some(b"\\/") {
            end += 2;
        } else {
            return end;
        }
    }
}

/// Returns the end of the line of a key that begins at `index`: long enough, or the last one before the frame.
fn line_end(bytes: &[u8], index: usize) -> Option<usize> {
    let end = base64_end(bytes, index);
    if end - index >= MIN_LINE_CHARS {
        return Some(end);
    }
    if end == index {
        return None;
    }
    let next_line = separator_end(bytes, end);
    let rest = bytes.get(next_line..).unwrap_or(b"");
    let checksum = byte_class::is(bytes[index], PAD) && end - index == 5;
    let followed = rest.starts_with(b"-----END")
        || rest.starts_with(b"Private-MAC")
        || next_line > end && rest.first() == Some(&b'=') && byte_class::run_end(rest, 0, BASE64, 6) == 5;
    (followed || checksum).then_some(end)
}

/// Returns the end of a separator between two lines of a key: line ends, plain or escaped, and what quoting, numbering,
/// marking and joining lines adds to them.
fn separator_end(bytes: &[u8], start: usize) -> usize {
    let mut index = start;
    while index < start + MAX_SEPARATOR_BYTES {
        let rest = &bytes[index..];
        let step = match rest {
            [b' ' | b'\t' | b'\n' | b'\r' | b'"' | b'\'' | b'|' | b'>' | b',', ..] => 1,
            [b'-', next, ..] if index > start && *next != b'-' => 1,
            [b'\\', ..] => escape_length(rest),
            [0xe2, 0x86, 0x92, ..] => 3,
            _ => line_number_length(rest),
        };
        if step == 0 {
            break;
        }
        index += step;
    }
    index
}

/// Returns the length of an escaped line end, tab, quote or arrow.
fn escape_length(rest: &[u8]) -> usize {
    let slashes = rest.iter().take(9).take_while(|b| **b == b'\\').count();
    match rest.get(slashes..) {
        Some([b'n' | b'r' | b't' | b'"' | b'\n', ..]) => slashes + 1,
        Some([b'u', b'2', b'1', b'9', b'2', ..]) => slashes + 5,
        Some([b'u', b'0', b'0', b'0', b'a' | b'd' | b'9', ..]) => slashes + 5,
        _ => 0,
    }
}

/// Returns the length of a line number and its separator.
fn line_number_length(rest: &[u8]) -> usize {
    let digits = byte_class::run_end(rest, 0, DIGIT, 7);
    if digits == 0 || digits == 7 {
        return 0;
    }
    match rest.get(digits..) {
        Some([b'\t' | b'|' | b':', ..]) => digits + 1,
        Some([0xe2, 0x86, 0x92, ..]) => digits + 3,
        Some(tail @ [b'\\', ..])
            if escape_length(tail) > 0 && !byte_class::is(tail[1], WORD | PLUS_SLASH) =>
        {
            digits
        }
        Some([b'\\', b't', ..]) => digits + 2,
        Some([b'\\', b'u', b'2', b'1', b'9', b'2', ..]) => digits + 6,
        _ => 0,
    }
}
