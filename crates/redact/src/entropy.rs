//! Tokens that are recognized only by their randomness.
//!
//! This is the rule that could do harm: digests, identifiers, encoded pictures and lock files are random too. So it
//! requires letters of both cases and digits in frequent alternation, a length that keys have, spaces or quotes around
//! it, and a name in front, if there is one, that does not explain it.

use crate::byte_class::{self, ALNUM, CLASS, DIGIT, LOWER, PLUS_SLASH, UPPER, WORD};
use crate::values::is_placeholder;
use crate::window::{ByteWindow, FoundSecret};

const MIN_SECRET_BYTES: usize = 32;
const MAX_SECRET_BYTES: usize = 100;

/// Names, or parts of them, of things that are random but not secret.
const NON_SECRET_NAMES: &[&str] = &[
    "id",
    "hash",
    "digest",
    "sum",
    "sha",
    "integrity",
    "nonce",
    "etag",
    "cursor",
    "uuid",
    "sig",
    "finger",
    "pub",
    "cert",
    "version",
    "commit",
    "rev",
    "ref",
    "tag",
    "name",
    "path",
    "file",
    "url",
    "uri",
    "src",
    "class",
    "style",
    "data",
    "content",
    "body",
    "image",
    "icon",
    "font",
    "h1",
    "blob",
    "next",
    "page",
    "cache",
    "challenge",
    "state",
    "request",
    "trace",
    "span",
    "arn",
    "avatar",
    "marker",
    "seed",
    "salt",
    "iv",
    "mac",
    "cid",
    "proof",
    "root",
];

/// The beginnings of encoded data that is not secret: public keys, certificates, pictures.
const ENCODED_DATA_PREFIXES: &[&[u8]] =
    &[b"AAAA", b"MII", b"iVBOR", b"R0lG", b"UklG", b"PHN2", b"PD94", b"JVBER", b"H4sI", b"UEsD", b"LS0t"];

/// Returns the random token that begins with the run.
#[inline]
pub fn token(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    let length = view.end - view.start;
    let next = view.byte(view.end);
    if byte_class::is(next, PLUS_SLASH) {
        if byte_class::is(view.before(), PLUS_SLASH | byte_class::DOT)
            || view.classes & byte_class::JOINER != 0
        {
            None
        } else {
            base64(view)
        }
    } else if (MIN_SECRET_BYTES..=MAX_SECRET_BYTES).contains(&length) && view.classes & ALNUM == ALNUM {
        let padded = byte_class::run_end(view.bytes, view.end, byte_class::PAD, 2);
        judge(view, padded)
    } else {
        None
    }
}

/// Returns a token of base64 with `+` or `/`. Many paths fit that too, so only the lengths of common keys count.
#[inline(never)]
fn base64(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    let end = byte_class::run_end(view.bytes, view.start, ALNUM | PLUS_SLASH, MAX_SECRET_BYTES + 1);
    let padded = byte_class::run_end(view.bytes, end, byte_class::PAD, 2);
    let common = match padded - end {
        0 => end - view.start == 40,
        _ => matches!(padded - view.start, 44 | 88),
    };
    if common { judge(view, padded) } else { None }
}

#[inline(never)]
fn judge(view: &ByteWindow<'_>, end: usize) -> Option<FoundSecret> {
    let text = &view.bytes[view.start..end];
    let stands_alone = matches!(
        view.before(),
        0 | b' ' | b'\t' | b'\n' | b'"' | b'\'' | b'`' | b'=' | b':' | b',' | b'(' | b'>' | b'n' | b't'
    ) && matches!(
        view.byte(end),
        0 | b' ' | b'\t' | b'\n' | b'\r' | b'"' | b'\'' | b'`' | b',' | b';' | b')' | b'<' | b'\\'
    );
    if !stands_alone
        || matches!(text.len(), 64 | 76)
        || ENCODED_DATA_PREFIXES.iter().any(|start| text.starts_with(start))
    {
        return None;
    }
    if has_small_prefix(text) || !is_random(text) || is_placeholder(text) {
        return None;
    }
    if view.bytes[..view.start].ends_with(b"base64,") || is_line_of_block(view, end) || is_explained(view) {
        return None;
    }
    Some(FoundSecret::new(view.start, end, "high-entropy"))
}

/// Whether the text has a short prefix such as `toolu_…`, `call_…`, `chatcmpl-…`, `sha512-…`, which says what it is;
/// prefixes of secrets are in the table.
fn has_small_prefix(text: &[u8]) -> bool {
    let joint = text.iter().take(16).position(|b| matches!(b, b'_' | b'-'));
    joint.is_some_and(|index| text[..index].iter().all(|b| byte_class::is(*b, LOWER | DIGIT)))
}

fn is_random(text: &[u8]) -> bool {
    let mut counts = [0u16; 256];
    let (mut digits, mut upper, mut lower) = (0, 0, 0);
    for b in text {
        counts[*b as usize] += 1;
        match CLASS[*b as usize] & ALNUM {
            DIGIT => digits += 1,
            UPPER => upper += 1,
            LOWER => lower += 1,
            _ => {}
        }
    }
    let changes =
        text.windows(2).filter(|w| CLASS[w[0] as usize] & ALNUM != CLASS[w[1] as usize] & ALNUM).count();
    if digits < 3 || upper < 5 || lower < 5 || changes * 5 < text.len() * 2 {
        return false;
    }
    let total = text.len() as f64;
    let entropy: f64 = counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| f64::from(*count) / total)
        .map(|share| -share * share.log2())
        .sum();
    entropy >= if text.len() < 40 { 4.2 } else { 4.4 }
}

/// Whether the token is a line between similar lines: a block of encoded data.
fn is_line_of_block(view: &ByteWindow<'_>, end: usize) -> bool {
    let ends_line = view.byte(end) == b'\n' || view.byte(end) == b'\r' || view.byte(end) == b'\\';
    let begins_line = matches!(view.before(), b'\n' | b'n');
    end - view.start >= 60 && (begins_line || ends_line)
}

/// Whether the name in front of the token says what it is.
fn is_explained(view: &ByteWindow<'_>) -> bool {
    let preceding = &view.bytes[..view.start];
    let signs = preceding
        .iter()
        .rev()
        .take(8)
        .take_while(|b| matches!(b, b'"' | b'\'' | b'\\' | b' ' | b'=' | b':' | b'>' | b'(' | b'`'))
        .count();
    let sign = &preceding[preceding.len() - signs..];
    if !sign.iter().any(|b| matches!(b, b'=' | b':' | b'>')) {
        return false;
    }
    let preceding = &preceding[..preceding.len() - signs];
    let length = preceding.iter().rev().take(40).take_while(|b| byte_class::is(**b, WORD)).count();
    let name = &preceding[preceding.len() - length..];
    NON_SECRET_NAMES.iter().any(|word| byte_class::contains_ignoring_case(name, word.as_bytes()))
}
