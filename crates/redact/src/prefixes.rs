//! Finds the tokens of [`table`](crate::table) at the beginning of a run.
//!
//! Nearly every run is an ordinary word, so the first three bytes must be enough to reject it: there is a bit for each
//! beginning of some prefix. Both the bits and the order by first byte are computed at compile time.

use crate::byte_class::{self, ALNUM, DIGIT, DOT, LOWER, PAD, UPPER, WORD};
use crate::table::{COUNT, RULES, Rule};
use crate::values;
use crate::window::{ByteWindow, FoundSecret};

struct Index {
    /// Rows sorted by first byte; rows with the same one stay in the order of the table.
    order: [u16; COUNT],
    /// Where the rows of each first byte begin in `order`.
    starts: [u16; 257],
    /// Which three bytes may begin a prefix, by their hash.
    beginnings: [u64; 1024],
}

static INDEX: Index = build();

/// Returns a 16-bit hash of three bytes.
const fn hash(first: u8, second: u8, third: u8) -> usize {
    let bytes = first as u32 | (second as u32) << 8 | (third as u32) << 16;
    (bytes.wrapping_mul(0x9E37_79B1) >> 16) as usize
}

const fn build() -> Index {
    let mut index = Index { order: [0; COUNT], starts: [0; 257], beginnings: [0; 1024] };
    let (mut byte, mut next) = (0usize, 0usize);
    while byte < 256 {
        index.starts[byte] = next as u16;
        let mut row = 0;
        while row < COUNT {
            let prefix = RULES[row].prefix;
            if prefix[0] as usize == byte {
                index.order[next] = row as u16;
                next += 1;
                // A prefix of two bytes may continue with any third.
                let (mut third, last) = if prefix.len() > 2 { (prefix[2], prefix[2]) } else { (0, 255) };
                loop {
                    let bit = hash(prefix[0], prefix[1], third);
                    index.beginnings[bit >> 6] |= 1 << (bit & 63);
                    if third == last {
                        break;
                    }
                    third += 1;
                }
            }
            row += 1;
        }
        byte += 1;
    }
    index.starts[256] = next as u16;
    index
}

/// Whether some prefix may begin with the three bytes at `at`.
#[inline]
pub fn may_begin(view: &ByteWindow<'_>, index: usize) -> bool {
    let bit = hash(view.byte(index), view.byte(index + 1), view.byte(index + 2));
    INDEX.beginnings[bit >> 6] >> (bit & 63) & 1 == 1
}

/// Returns the token that begins at `at`, if there is one.
#[inline]
pub fn token_at(view: &ByteWindow<'_>, start: usize) -> Option<FoundSecret> {
    if may_begin(view, start) { search(view, start, view.byte(start)) } else { None }
}

#[inline(never)]
fn search(view: &ByteWindow<'_>, index: usize, first: u8) -> Option<FoundSecret> {
    let rows = INDEX.starts[first as usize] as usize..INDEX.starts[first as usize + 1] as usize;
    INDEX.order[rows].iter().find_map(|row| match_rule(view, index, &RULES[*row as usize]))
}

fn match_rule(view: &ByteWindow<'_>, index: usize, rule: &Rule) -> Option<FoundSecret> {
    if !view.has(index, rule.prefix) {
        return None;
    }
    let body = index + rule.prefix.len();
    let mut end = byte_class::run_end(view.bytes, body, rule.chars, rule.most + 1);
    if rule.chars & DOT != 0 {
        // The full stop of a sentence is not part of the token.
        while end > body && view.bytes[end - 1] == b'.' {
            end -= 1;
        }
    }
    let length = end - body;
    if length < rule.least || length > rule.most || byte_class::is(view.byte(end), WORD & !rule.chars) {
        return None;
    }
    let text = &view.bytes[body..end];
    if !is_plausible(text) {
        return None;
    }
    let start = if rule.keep_prefix { body } else { index };
    Some(FoundSecret::new(start, end, rule.kind))
}

/// Whether the text after a prefix could be random: identifiers that happen to begin like a token are words, and tokens
/// in documentation repeat one letter.
pub fn is_plausible(text: &[u8]) -> bool {
    let classes = byte_class::classes(text);
    let mixed = classes & (UPPER | LOWER) == UPPER | LOWER;
    let some_digits = text.iter().filter(|b| byte_class::is(**b, DIGIT)).count() >= 2;
    (some_digits || mixed && !is_joined_words(text))
        && byte_class::distinct(text, 6) >= 6
        && !values::is_placeholder(text)
}

/// Whether the text is joined words: `SomeLongName`, `some-Long_name`. Random letters can have as few changes of case by
/// chance, but then have many capitals, or a run of letters that cannot be pronounced.
fn is_joined_words(text: &[u8]) -> bool {
    let humps =
        text.windows(2).filter(|w| byte_class::is(w[0], LOWER) && byte_class::is(w[1], UPPER)).count();
    let runs = text.split(|b| !byte_class::is(*b, ALNUM | PAD)).filter(|part| !part.is_empty()).count();
    let capitals = text.iter().filter(|b| byte_class::is(**b, UPPER)).count();
    (humps + runs) * 4 <= text.len() && capitals * 4 <= text.len() + 4 && longest_without_vowel(text) <= 4
}

/// The length of the longest run of letters that are not vowels. A capital begins a word.
fn longest_without_vowel(text: &[u8]) -> usize {
    let (mut longest, mut run) = (0, 0);
    for byte in text {
        let is_consonant = byte.is_ascii_alphabetic() && !b"aeiouy".contains(&byte.to_ascii_lowercase());
        run = match is_consonant {
            true if byte_class::is(*byte, UPPER) => 1,
            true => run + 1,
            false => 0,
        };
        longest = longest.max(run);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_class::{HEX, JOINER, PLUS_SLASH};
    use crate::redact;

    /// A body of `length` bytes of the classes, the same one every time.
    fn body(chars: u8, length: usize) -> String {
        let all: Vec<u8> = (b'!'..=b'~')
            .filter(|b| byte_class::is(*b, chars & !(JOINER | PLUS_SLASH | PAD | DOT)))
            .filter(|b| chars & HEX == 0 || chars & ALNUM != 0 || !b.is_ascii_uppercase())
            .collect();
        let mut seed = 7usize;
        let mut draw = || {
            seed = (seed * 1103515245 + 12345) % 2147483648;
            all[(seed >> 8) % all.len()] as char
        };
        (0..length).map(|_| draw()).collect()
    }

    #[test]
    fn every_row_is_found_and_its_near_misses_are_not() {
        for rule in &RULES {
            let prefix = std::str::from_utf8(rule.prefix).unwrap();
            for length in [rule.least, (rule.least + rule.most) / 2, rule.most] {
                let text = format!("see '{prefix}{}', ok", body(rule.chars, length));
                let kept = if rule.keep_prefix { prefix } else { "" };
                assert_eq!(
                    redact(&text),
                    format!("see '{kept}[redacted:{}]', ok", rule.kind),
                    "{prefix} with {length}"
                );
            }
            let kind = format!("[redacted:{}]", rule.kind);
            let short = format!("see '{prefix}{}', ok", body(rule.chars, rule.least - 1));
            assert!(!redact(&short).contains(&kind), "too short: {short}");
            let long = format!("see '{prefix}{}', ok", body(rule.chars, rule.most + 1));
            assert!(!redact(&long).contains(&kind) || rule.prefix == b"FLWSECK-", "too long: {long}");
            let dull = format!("see '{prefix}{}', ok", "x".repeat(rule.least));
            assert_eq!(redact(&dull), dull);
            // Behind the full stop of `xoxe.` begins a token of its own.
            let inner = format!("a{prefix}{} ok", body(rule.chars, rule.least));
            assert!(!redact(&inner).contains(&kind) || prefix.starts_with("xoxe."), "inside a word: {inner}");
        }
    }

    #[test]
    fn there_are_more_than_a_hundred_kinds() {
        let kinds: std::collections::BTreeSet<_> = RULES.iter().map(|rule| rule.kind).collect();
        assert!(kinds.len() > 100, "{}", kinds.len());
    }
}
