//! Decides whether a value is a secret, given the name in front of it and the notation.

use crate::byte_class::{self, ALNUM, DIGIT, LOWER, UPPER};
use crate::code;
use crate::names::{Family, SecretName};
use crate::structural::is_encoded_pair;
use crate::window::{LONGEST_VALUE, MARK};

/// The notation of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueNotation {
    /// `"password": "…"`: data.
    QuotedData,
    /// `password = "…"`: code, or a configuration file.
    QuotedCode,
    /// `PASSWORD=…` without spaces.
    Tight,
    /// `password: …` or `password = …`.
    Loose,
}

/// Whether the value is only a placeholder: a variable, a blank to fill in, an example.
pub fn is_placeholder(value: &[u8]) -> bool {
    let gap = match value {
        [b'$', next, ..] => byte_class::is(*next, LOWER | UPPER) || matches!(next, b'{' | b'(' | b'_'),
        [b'#', b'{', ..] | [b'%', b's' | b'd' | b'v' | b'(' | b'{', ..] => true,
        [b'<', .., b'>'] | [b'{', .., b'}'] | [b'[', .., b']'] | [b'%', .., b'%'] | [b'(', .., b')'] => true,
        [b'{' | b'<', ..] => true,
        _ => false,
    };
    gap || byte_class::contains(value, b"${")
        || byte_class::contains(value, b"{{")
        || byte_class::contains(value, b"$(")
        || byte_class::contains(value, b"...")
        || byte_class::contains(value, "…".as_bytes())
        || value.len() >= 4 && byte_class::distinct(value, 3) < 3
        || has_filler(value)
}

/// Whether the value contains a word typical of examples. One pass, since every candidate is checked.
fn has_filler(value: &[u8]) -> bool {
    const FILLERS: &[&str] = &[
        "your",
        "example",
        "changeme",
        "change_me",
        "change-me",
        "placeholder",
        "dummy",
        "xxxx",
        "....",
        "****",
        "redacted",
        "insert_",
        "insert-",
        "replace_",
        "replace-",
        "replaceme",
        "sample",
        "<your",
        "fixme",
        "not-a-real",
        "notreal",
        "todo_",
        "00000000",
        "12345678901234567890",
        "abcdefghijklmnop",
    ];
    // Bits of the low five bits of the words' first letters.
    const FIRST_LETTER_BITS: u32 = {
        let (mut bits, mut index) = (0u32, 0);
        while index < FILLERS.len() {
            bits |= 1 << (FILLERS[index].as_bytes()[0] & 31);
            index += 1;
        }
        bits
    };
    value.iter().enumerate().any(|(index, byte)| {
        FIRST_LETTER_BITS >> (byte & 31) & 1 == 1
            && FILLERS.iter().any(|word| {
                let word = word.as_bytes();
                value[index..].get(..word.len()).is_some_and(|text| text.eq_ignore_ascii_case(word))
            })
    })
}

/// Whether `value` is a secret, if `name` precedes it.
pub fn is_secret(name: &SecretName, value: &[u8], notation: ValueNotation) -> bool {
    if value.len() < 4 || value.len() > LONGEST_VALUE || byte_class::contains(value, MARK) {
        return false;
    }
    if matches!(name.family, Family::Cookies | Family::SetCookie) {
        return is_cookie(value);
    }
    if value.iter().any(|b| b.is_ascii_control()) || is_placeholder(value) {
        return false;
    }
    // Base64 can look like a path.
    if name.family == Family::EncodedPair && is_encoded_pair(value) {
        return true;
    }
    if code::is_dull(value) || code::is_location(value) {
        return false;
    }
    let quoted = matches!(notation, ValueNotation::QuotedData | ValueNotation::QuotedCode);
    let data = notation == ValueNotation::QuotedData || name.is_uppercase && notation == ValueNotation::Tight;
    if !(quoted || data && is_plain_word(value)) && code::is_expression(value) {
        return false;
    }
    let classes = byte_class::classes(value);
    let blank = value.contains(&b' ');
    match name.family {
        Family::Phrase => is_phrase(value) || !blank && is_password(value, data),
        Family::Password | Family::Secret if blank => false,
        Family::Password => is_password(value, data),
        Family::Secret if name.kind == "connection-string" || name.kind == "dsn" => {
            value.len() >= 16
                && !code::is_label(value)
                && byte_class::contains_ignoring_case(value, b"password=")
        }
        Family::Secret => is_password(value, data) && (value.len() >= 8 || classes & DIGIT != 0),
        Family::Token => !blank && is_token(value),
        Family::Authorization => !blank && value.len() >= 12 && is_token(value),
        Family::EncodedPair => !blank && (value.len() >= 24 && is_token(value) || is_padded(value)),
        Family::Signature => value.len() >= 40 && is_token(value),
        Family::Cookies | Family::SetCookie => false,
    }
}

fn is_plain_word(value: &[u8]) -> bool {
    value.iter().all(|b| byte_class::is(*b, ALNUM))
}

/// Whether the value is a password: it has something that a label does not have; in data it may also be a lower-case
/// word.
fn is_password(value: &[u8], data: bool) -> bool {
    if !code::is_label(value) {
        return !is_type_name(value);
    }
    let small = value.iter().all(|b| byte_class::is(*b, LOWER) || *b == b'-');
    let first_only = value[1..].iter().all(|b| byte_class::is(*b, LOWER));
    let is_letters_only = value.iter().all(|b| byte_class::is(*b, LOWER | UPPER | byte_class::JOINER));
    data && is_letters_only && value.len() >= 6 && (small || !first_only && !value.contains(&b'_'))
        || value.len() >= 24 && is_drawn(value)
}

/// Whether the value is a token generated by a machine: letters and digits, or long and of both cases.
fn is_token(value: &[u8]) -> bool {
    let classes = byte_class::classes(value);
    let digits = value.iter().filter(|b| byte_class::is(**b, DIGIT)).count();
    if classes & (LOWER | UPPER) == 0 {
        return digits >= 20;
    }
    if value.iter().filter(|b| !b.is_ascii_graphic()).count() > 0 {
        return false;
    }
    match value.len() {
        0..8 => false,
        8..16 => digits >= 2 && !is_type_name(value) && !ends_in_number(value),
        16..24 => digits >= 1 && !is_words(value) || is_drawn(value),
        _ => digits >= 2 && !is_words(value) || is_drawn(value),
    }
}

/// Whether the value is base64 with padding.
fn is_padded(value: &[u8]) -> bool {
    value.len() >= 12
        && value.len().is_multiple_of(4)
        && value.ends_with(b"=")
        && value.iter().all(|b| byte_class::is(*b, byte_class::BASE64 | byte_class::WORD | byte_class::PAD))
}

/// Whether the value is words and numbers with separators: `gpt-4-turbo-2024-04-09`.
fn is_words(value: &[u8]) -> bool {
    let mut parts = 0;
    let are_all_words =
        value.split(|b| !byte_class::is(*b, ALNUM)).filter(|part| !part.is_empty()).all(|part| {
            parts += 1;
            let letters = part.iter().all(|b| byte_class::is(*b, LOWER))
                || part.iter().all(|b| byte_class::is(*b, UPPER))
                || byte_class::is(part[0], UPPER) && part[1..].iter().all(|b| byte_class::is(*b, LOWER));
            part.len() <= 14 && (letters || part.len() <= 5 || part.iter().all(|b| byte_class::is(*b, DIGIT)))
        });
    are_all_words && parts >= 2
}

/// Whether the case of letters changes too often for words.
fn is_drawn(value: &[u8]) -> bool {
    let changes = value
        .windows(2)
        .filter(|w| byte_class::CLASS[w[0] as usize] & 7 != byte_class::CLASS[w[1] as usize] & 7)
        .count();
    value.len() >= 16 && changes * 3 > value.len() && byte_class::distinct(value, 10) >= 10
}

fn ends_in_number(value: &[u8]) -> bool {
    let stem = value.iter().rposition(|b| !byte_class::is(*b, DIGIT)).map_or(0, |index| index + 1);
    stem < value.len()
        && value[..stem].iter().all(|b| byte_class::is(*b, LOWER | UPPER) || matches!(b, b'_' | b'-'))
}

fn is_type_name(value: &[u8]) -> bool {
    value.len() < 16
        && value.iter().all(|b| byte_class::is(*b, ALNUM))
        && code::is_expression(value)
        && byte_class::is(value[0], UPPER)
}

/// Whether the value is four words or more, all in lower case.
fn is_phrase(value: &[u8]) -> bool {
    let words = value.split(|b| *b == b' ').filter(|word| !word.is_empty()).count();
    words >= 4
        && value.iter().all(|b| byte_class::is(*b, LOWER | DIGIT) || matches!(b, b' ' | b'-'))
        && (words >= 12 || words <= 8)
}

/// Whether the value is `name=value` with a value worth hiding.
fn is_cookie(value: &[u8]) -> bool {
    let Some(equals) = value.iter().take(128).position(|b| *b == b'=') else { return false };
    let (name, rest) = (&value[..equals], &value[equals + 1..]);
    let first = rest.split(|b| *b == b';').next().unwrap_or(b"");
    !name.is_empty()
        && name
            .iter()
            .all(|b| b.is_ascii_graphic() && !matches!(b, b'(' | b')' | b'{' | b'}' | b'$' | b'<' | b'"'))
        && first.len() >= 3
        && first.iter().all(|b| b.is_ascii_graphic())
        && !is_placeholder(first)
        && !first.iter().any(|b| matches!(b, b'(' | b'{' | b'$' | b'<'))
}
