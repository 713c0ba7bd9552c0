//! A name and its value: `NAME=value`, `"name": "value"`, `name => 'value'`, `<name>value</name>`.
//!
//! The same pair occurs in many notations: in the JSON of a payload, in a JSON string inside that, in a shell command, in
//! a configuration file, in code. This module handles the notation; whether the value is a secret is decided in
//! [`values`].

use crate::byte_class::{self, ALNUM, WORD};
use crate::names::{self, Family, SecretName};
use crate::values::{self, ValueNotation};
use crate::window::{ByteWindow, FoundSecret, LONGEST_VALUE};
use crate::{headers, prefixes, structural};

/// The most `=` and `:` that a value without quotes may have. Where names are close together, each of them would
/// otherwise be followed by a long value, and scanning them all would take quadratic time.
const MAX_SIGNS: usize = 6;

/// The position of a value and its notation.
#[derive(Clone, Copy)]
struct ValueLocation {
    start: usize,
    end: usize,
    notation: ValueNotation,
}

/// Returns the secret that the run names, if it names one.
pub fn secret(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    if !names::may_announce(view.run()) {
        return None;
    }
    let (value, tight, key_quoted) = separator(view)?;
    let name = names::classify_name(view.run())?;
    let location = if tight && view.byte(value) == b'>' {
        element_value(view)
    } else {
        value_at(view, &name, value, tight, key_quoted)
    }?;
    judge(view, &name, location)
}

/// Returns the secret that `name` announces at `start`, for names that are followed only by a space.
pub fn secret_after_blank(view: &ByteWindow<'_>, name: &SecretName, start: usize) -> Option<FoundSecret> {
    let shouted = SecretName { is_uppercase: true, ..*name };
    let location = value_at(view, &shouted, start, true, true)?;
    judge(view, &shouted, location)
}

fn judge(view: &ByteWindow<'_>, name: &SecretName, mut location: ValueLocation) -> Option<FoundSecret> {
    if name.family == Family::Authorization {
        location.start = headers::after_scheme(view, location.start, location.end)?;
    }
    let value = view.bytes.get(location.start..location.end)?;
    if !values::is_secret(name, value, location.notation) {
        return None;
    }
    if name.family == Family::SetCookie {
        let equals = value.iter().position(|b| *b == b'=')?;
        location.end = location.start + value.iter().position(|b| *b == b';').unwrap_or(value.len());
        location.start += equals + 1;
        return (location.start < location.end)
            .then(|| FoundSecret::new(location.start, location.end, name.kind));
    }
    let kind = own_kind(view, location.start, location.end).unwrap_or(name.kind);
    Some(FoundSecret::new(location.start, location.end, kind))
}

/// Returns the kind of the value by its own shape, which is more exact than the name.
pub fn own_kind(view: &ByteWindow<'_>, start: usize, end: usize) -> Option<&'static str> {
    let run_end = byte_class::run_end(view.bytes, start, WORD, LONGEST_VALUE);
    let own_view = ByteWindow {
        start,
        end: run_end,
        classes: byte_class::classes(&view.bytes[start..run_end]),
        ..*view
    };
    prefixes::token_at(&own_view, start)
        .or_else(|| structural::token(&own_view))
        .filter(|secret| secret.start == start && secret.end == end)
        .map(|secret| secret.kind)
}

/// Returns where the value begins, whether only `=` precedes it, and whether the name was in quotes.
fn separator(view: &ByteWindow<'_>) -> Option<(usize, bool, bool)> {
    let mut index = view.end;
    let (slashes, quote) = quote_at(view, index);
    let key_quoted = quote != 0;
    if key_quoted {
        index += slashes + 1;
        if view.byte(index) == b']' {
            index += 1;
        }
    } else if view.byte(index) == b'>' && view.before() == b'<' {
        return Some((index, true, true));
    }
    let sign = view.skip_blanks(index);
    let value = match (view.byte(sign), view.byte(sign + 1)) {
        (b'=', b'=' | b'~') | (b':', b':') => return None,
        (b'=', b'>') | (b':', b'=') => sign + 2,
        (b'=' | b':', _) => sign + 1,
        _ => return None,
    };
    let start = view.skip_blanks(value);
    let tight = sign == index && start == value && view.byte(sign) == b'=';
    Some((start, tight, key_quoted))
}

/// Returns how many backslashes and which quote are at `index`; 0 for none.
fn quote_at(view: &ByteWindow<'_>, index: usize) -> (usize, u8) {
    let mut slashes = 0;
    while slashes < 15 && view.byte(index + slashes) == b'\\' {
        slashes += 1;
    }
    match view.byte(index + slashes) {
        quote @ (b'"' | b'\'') => (slashes, quote),
        b'`' if slashes == 0 => (0, b'`'),
        _ => (0, 0),
    }
}

fn value_at(
    view: &ByteWindow<'_>,
    name: &SecretName,
    start: usize,
    tight: bool,
    key_quoted: bool,
) -> Option<ValueLocation> {
    // b"…", r"…", f"…" and the like are strings too.
    let literal =
        matches!(view.byte(start), b'b' | b'r' | b'u' | b'f' | b'@') && quote_at(view, start + 1).1 != 0;
    let start = start + usize::from(literal);
    let (slashes, quote) = quote_at(view, start);
    if quote != 0 {
        let data = key_quoted || name.is_uppercase;
        let notation = if data { ValueNotation::QuotedData } else { ValueNotation::QuotedCode };
        return quoted_value(view, start + slashes + 1, slashes, quote, notation);
    }
    if !tight
        && !key_quoted
        && let Some(location) = after_type(view, start)
    {
        return Some(location);
    }
    let end = bare_end(view, name, start, tight)?;
    Some(ValueLocation {
        start,
        end,
        notation: if tight { ValueNotation::Tight } else { ValueNotation::Loose },
    })
}

/// Returns the position of a value that ends with the quote it began with, on the same line.
fn quoted_value(
    view: &ByteWindow<'_>,
    start: usize,
    slashes: usize,
    quote: u8,
    notation: ValueNotation,
) -> Option<ValueLocation> {
    let (mut last_byte, mut blanks, mut signs) = (0, 0, 0);
    for index in start..view.bytes.len().min(start + LONGEST_VALUE) {
        let byte = view.bytes[index];
        if byte == quote {
            let closes = if slashes == 0 { last_byte % 2 == 0 } else { last_byte == slashes };
            if closes {
                return Some(ValueLocation { start, end: index - last_byte.min(slashes), notation });
            }
            if last_byte < slashes {
                return None;
            }
        }
        last_byte = if byte == b'\\' { last_byte + 1 } else { 0 };
        blanks += usize::from(byte == b' ');
        signs += usize::from(matches!(byte, b'=' | b':'));
        if byte == b'\n' || blanks > 32 || signs > 32 {
            return None;
        }
    }
    None
}

/// Returns the value in `name: Type = "value"`.
fn after_type(view: &ByteWindow<'_>, start: usize) -> Option<ValueLocation> {
    let mut index = start;
    while index < start + 40 {
        match view.byte(index) {
            b'=' if index > start => break,
            b if byte_class::is(b, ALNUM) || matches!(b, b'&' | b'\'' | b'_' | b'<' | b'>' | b'?' | b' ') => {
                index += 1
            }
            _ => return None,
        }
    }
    let value = view.skip_blanks(index + 1);
    let (slashes, quote) = quote_at(view, value);
    if index >= start + 40 || quote == 0 {
        return None;
    }
    quoted_value(view, value + slashes + 1, slashes, quote, ValueNotation::QuotedCode)
}

/// Returns where a value without quotes ends; `None` if it continues as an expression.
fn bare_end(view: &ByteWindow<'_>, name: &SecretName, start: usize, tight: bool) -> Option<usize> {
    let environment = tight && name.is_uppercase;
    let cookie = matches!(name.family, Family::Cookies | Family::SetCookie | Family::Authorization);
    let stop = view.bytes.len().min(start + LONGEST_VALUE);
    let mut index = start;
    let mut signs = 0;
    while index < stop {
        signs += usize::from(matches!(view.bytes[index], b'=' | b':'));
        if signs > if cookie { 64 } else { MAX_SIGNS } {
            return None;
        }
        match view.bytes[index] {
            b'\n' | b'\r' | b'"' | b'\'' | b'\\' | b'`' => break,
            b' ' if cookie && index < start + 2048 => {}
            _ if cookie => {}
            b' ' | b'\t' | b';' => break,
            _ if environment => {}
            b',' | b')' | b']' | b'}' | b'>' => break,
            b'&' if tight => break,
            b'(' | b'[' | b'{' | b'<' => return None,
            _ => {}
        }
        index += 1;
    }
    if index == start + LONGEST_VALUE {
        return None;
    }
    // Punctuation at the end of a sentence or bracket is not part of a value, nor is the space before a line end.
    while index > start && matches!(view.bytes[index - 1], b'.' | b',' | b')' | b' ' | b'\t') {
        index -= 1;
    }
    Some(index)
}

/// Returns the value in `<name>value</name>`.
fn element_value(view: &ByteWindow<'_>) -> Option<ValueLocation> {
    let start = view.end + 1;
    let length = view.bytes.get(start..)?.iter().take(512).position(|b| matches!(b, b'<' | b'\n'))?;
    view.has(start + length, b"</").then_some(ValueLocation {
        start,
        end: start + length,
        notation: ValueNotation::QuotedData,
    })
}
