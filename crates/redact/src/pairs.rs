//! A name and its value: `NAME=value`, `"name": "value"`, `name => 'value'`, `<name>value</name>`.
//!
//! The same pair comes in many dresses: in the JSON of a payload, in a JSON string inside that, in a shell
//! command, in a file of settings, in code. This takes the dress off; whether the value is a secret is
//! decided in [`values`].

use crate::byte_class::{self, ALNUM, WORD};
use crate::names::{self, Family, Named};
use crate::values::{self, Written};
use crate::window::{Found, LONGEST_VALUE, View};
use crate::{headers, prefixes, structural};

/// How many `=` and `:` a value without quotes may have. Where names stand close together, each of them would
/// otherwise be followed by a long value, and looking at them all would take the square of the time.
const FEW_SIGNS: usize = 6;

/// Where a value is and how it is written.
#[derive(Clone, Copy)]
struct Place {
    start: usize,
    end: usize,
    written: Written,
}

/// The secret that the run names, if it names one.
pub fn secret(view: &View<'_>) -> Option<Found> {
    if !names::may_announce(view.run()) {
        return None;
    }
    let (value, tight, key_quoted) = separator(view)?;
    let named = names::announces(view.run())?;
    let place = if tight && view.byte(value) == b'>' {
        element(view)
    } else {
        value_at(view, &named, value, tight, key_quoted)
    }?;
    judge(view, &named, place)
}

/// The secret that `named` announces at `start`, for names that are followed by a blank only.
pub fn secret_after_blank(view: &View<'_>, named: &Named, start: usize) -> Option<Found> {
    let shouted = Named { shouted: true, ..*named };
    let place = value_at(view, &shouted, start, true, true)?;
    judge(view, &shouted, place)
}

fn judge(view: &View<'_>, named: &Named, mut place: Place) -> Option<Found> {
    if named.family == Family::Authorization {
        place.start = headers::after_scheme(view, place.start, place.end)?;
    }
    let value = view.bytes.get(place.start..place.end)?;
    if !values::is_secret(named, value, place.written) {
        return None;
    }
    if named.family == Family::SetCookie {
        let equals = value.iter().position(|b| *b == b'=')?;
        place.end = place.start + value.iter().position(|b| *b == b';').unwrap_or(value.len());
        place.start += equals + 1;
        return (place.start < place.end).then(|| Found::new(place.start, place.end, named.kind));
    }
    let kind = own_kind(view, place.start, place.end).unwrap_or(named.kind);
    Some(Found::new(place.start, place.end, kind))
}

/// What the value is by its own shape, which says more than the name.
pub fn own_kind(view: &View<'_>, start: usize, end: usize) -> Option<&'static str> {
    let run_end = byte_class::run_end(view.bytes, start, WORD, LONGEST_VALUE);
    let own =
        View { start, end: run_end, classes: byte_class::classes(&view.bytes[start..run_end]), ..*view };
    prefixes::token_at(&own, start)
        .or_else(|| structural::token(&own))
        .filter(|found| found.start == start && found.end == end)
        .map(|found| found.kind)
}

/// Where the value begins, whether nothing but `=` is before it, and whether the name was in quotes.
fn separator(view: &View<'_>) -> Option<(usize, bool, bool)> {
    let mut at = view.end;
    let (slashes, quote) = quote_at(view, at);
    let key_quoted = quote != 0;
    if key_quoted {
        at += slashes + 1;
        if view.byte(at) == b']' {
            at += 1;
        }
    } else if view.byte(at) == b'>' && view.before() == b'<' {
        return Some((at, true, true));
    }
    let sign = view.skip_blanks(at);
    let value = match (view.byte(sign), view.byte(sign + 1)) {
        (b'=', b'=' | b'~') | (b':', b':') => return None,
        (b'=', b'>') | (b':', b'=') => sign + 2,
        (b'=' | b':', _) => sign + 1,
        _ => return None,
    };
    let start = view.skip_blanks(value);
    let tight = sign == at && start == value && view.byte(sign) == b'=';
    Some((start, tight, key_quoted))
}

/// How many backslashes and which quote there are at `at`; 0 for none.
fn quote_at(view: &View<'_>, at: usize) -> (usize, u8) {
    let mut slashes = 0;
    while slashes < 15 && view.byte(at + slashes) == b'\\' {
        slashes += 1;
    }
    match view.byte(at + slashes) {
        quote @ (b'"' | b'\'') => (slashes, quote),
        b'`' if slashes == 0 => (0, b'`'),
        _ => (0, 0),
    }
}

fn value_at(view: &View<'_>, named: &Named, start: usize, tight: bool, key_quoted: bool) -> Option<Place> {
    // b"…", r"…", f"…" and the like are strings too.
    let literal =
        matches!(view.byte(start), b'b' | b'r' | b'u' | b'f' | b'@') && quote_at(view, start + 1).1 != 0;
    let start = start + usize::from(literal);
    let (slashes, quote) = quote_at(view, start);
    if quote != 0 {
        let data = key_quoted || named.shouted;
        let written = if data { Written::QuotedData } else { Written::QuotedCode };
        return quoted(view, start + slashes + 1, slashes, quote, written);
    }
    if !tight
        && !key_quoted
        && let Some(place) = after_type(view, start)
    {
        return Some(place);
    }
    let end = bare_end(view, named, start, tight)?;
    Some(Place { start, end, written: if tight { Written::Tight } else { Written::Loose } })
}

/// The place of a value that ends with the quote it began with, before the line ends.
fn quoted(view: &View<'_>, start: usize, slashes: usize, quote: u8, written: Written) -> Option<Place> {
    let (mut before, mut blanks, mut signs) = (0, 0, 0);
    for at in start..view.bytes.len().min(start + LONGEST_VALUE) {
        let byte = view.bytes[at];
        if byte == quote {
            let closes = if slashes == 0 { before % 2 == 0 } else { before == slashes };
            if closes {
                return Some(Place { start, end: at - before.min(slashes), written });
            }
            if before < slashes {
                return None;
            }
        }
        before = if byte == b'\\' { before + 1 } else { 0 };
        blanks += usize::from(byte == b' ');
        signs += usize::from(matches!(byte, b'=' | b':'));
        if byte == b'\n' || blanks > 32 || signs > 32 {
            return None;
        }
    }
    None
}

/// The value in `name: Type = "value"`.
fn after_type(view: &View<'_>, start: usize) -> Option<Place> {
    let mut at = start;
    while at < start + 40 {
        match view.byte(at) {
            b'=' if at > start => break,
            b if byte_class::is(b, ALNUM) || matches!(b, b'&' | b'\'' | b'_' | b'<' | b'>' | b'?' | b' ') => {
                at += 1
            }
            _ => return None,
        }
    }
    let value = view.skip_blanks(at + 1);
    let (slashes, quote) = quote_at(view, value);
    if at >= start + 40 || quote == 0 {
        return None;
    }
    quoted(view, value + slashes + 1, slashes, quote, Written::QuotedCode)
}

/// Where a value without quotes ends; nothing if it goes on as an expression.
fn bare_end(view: &View<'_>, named: &Named, start: usize, tight: bool) -> Option<usize> {
    let environment = tight && named.shouted;
    let cookie = matches!(named.family, Family::Cookies | Family::SetCookie | Family::Authorization);
    let stop = view.bytes.len().min(start + LONGEST_VALUE);
    let mut at = start;
    let mut signs = 0;
    while at < stop {
        signs += usize::from(matches!(view.bytes[at], b'=' | b':'));
        if signs > if cookie { 64 } else { FEW_SIGNS } {
            return None;
        }
        match view.bytes[at] {
            b'\n' | b'\r' | b'"' | b'\'' | b'\\' | b'`' => break,
            b' ' if cookie && at < start + 2048 => {}
            _ if cookie => {}
            b' ' | b'\t' | b';' => break,
            _ if environment => {}
            b',' | b')' | b']' | b'}' | b'>' => break,
            b'&' if tight => break,
            b'(' | b'[' | b'{' | b'<' => return None,
            _ => {}
        }
        at += 1;
    }
    if at == start + LONGEST_VALUE {
        return None;
    }
    // What ends a sentence or a bracket does not belong to a value, nor does the blank before a line end.
    while at > start && matches!(view.bytes[at - 1], b'.' | b',' | b')' | b' ' | b'\t') {
        at -= 1;
    }
    Some(at)
}

/// The value in `<name>value</name>`.
fn element(view: &View<'_>) -> Option<Place> {
    let start = view.end + 1;
    let length = view.bytes.get(start..)?.iter().take(512).position(|b| matches!(b, b'<' | b'\n'))?;
    view.has(start + length, b"</").then_some(Place {
        start,
        end: start + length,
        written: Written::QuotedData,
    })
}
