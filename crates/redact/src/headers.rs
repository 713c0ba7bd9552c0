//! The schemes of HTTP authorization, wherever they occur: in a header, in a command, in a variable.

use crate::byte_class::{self, BASE64, DIGIT, LOWER, UPPER, WORD};
use crate::names::is_one_of;
use crate::pairs::own_kind;
use crate::prefixes::is_plausible;
use crate::structural::is_encoded_pair;
use crate::values;
use crate::window::{ByteWindow, FoundSecret};

const LONGEST: usize = 8 * 1024;

/// Returns the credentials after `Bearer`, `Basic` or Okta's `SSWS`, if the run is one of them.
pub fn credentials(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    let run = view.run();
    let bearer = run.eq_ignore_ascii_case(b"bearer");
    let basic = run.eq_ignore_ascii_case(b"basic");
    let okta = run == b"SSWS";
    if !(bearer || basic || okta) {
        return None;
    }
    let start = view.skip_blanks(view.end);
    let mut end = start;
    while end < start + LONGEST
        && (byte_class::is(view.byte(end), WORD | BASE64) || matches!(view.byte(end), b'.' | b'~'))
    {
        end += 1;
    }
    while end > start && view.bytes[end - 1] == b'.' {
        end -= 1;
    }
    let value = &view.bytes[start..end];
    if basic {
        let is_found = is_encoded_pair(value) || follows_authorization(view) && is_encoded(value);
        return is_found.then(|| FoundSecret::new(start, end, "basic-auth"));
    }
    if value.len() < 16 || value.len() == LONGEST || !is_plausible(value) {
        return None;
    }
    let kind = own_kind(view, start, end).unwrap_or(if okta { "okta-token" } else { "bearer-token" });
    Some(FoundSecret::new(start, end, kind))
}

/// Whether the scheme is the value of an `Authorization` header.
fn follows_authorization(view: &ByteWindow<'_>) -> bool {
    let preceding = view.bytes[..view.start].trim_ascii_end();
    let name = preceding.iter().rposition(|b| byte_class::is(*b, WORD)).map_or(0, |last| last + 1);
    let separator = &preceding[name..];
    preceding[..name].to_ascii_lowercase().ends_with(b"authorization")
        && separator.len() <= 12
        && separator.iter().any(|b| matches!(b, b':' | b'=' | b','))
}

/// Whether the text is base64 rather than a word such as `credentials`.
fn is_encoded(text: &[u8]) -> bool {
    let (body, padding) = match text.iter().rposition(|b| *b != b'=') {
        Some(last) => text.split_at(last + 1),
        None => return false,
    };
    let classes = byte_class::classes(body);
    let humps =
        body.windows(2).filter(|w| byte_class::is(w[0], LOWER) && byte_class::is(w[1], UPPER)).count();
    (8..LONGEST).contains(&text.len())
        && padding.len() <= 2
        && body.iter().all(|b| byte_class::is(*b, BASE64 | WORD))
        && (!padding.is_empty() || classes & DIGIT != 0 || humps >= 2)
        && !values::is_placeholder(body)
}

/// Returns where the credentials begin in the value of an `Authorization` header; `None` after the schemes that
/// [`credentials`] handles itself.
pub fn after_scheme(view: &ByteWindow<'_>, start: usize, end: usize) -> Option<usize> {
    let value = &view.bytes[start..end];
    let word = value.iter().take(24).take_while(|b| byte_class::is(**b, WORD)).count();
    if word == 0 || value.get(word) != Some(&b' ') {
        return Some(start);
    }
    (!is_one_of(&value[..word], &["bearer", "basic", "ssws"])).then_some(start + word + 1)
}
