//! The classes of each byte, as one constant table.
//!
//! The scanner looks up every byte, so this must be a single load; and it runs in a hook process that lives for a
//! millisecond, so nothing may be built at startup.

/// `a` to `z`.
pub const LOWER: u8 = 1;
/// `A` to `Z`.
pub const UPPER: u8 = 2;
/// `0` to `9`.
pub const DIGIT: u8 = 4;
/// `_` and `-`.
pub const JOINER: u8 = 8;
/// Hexadecimal digits of either case.
pub const HEX: u8 = 16;
/// `+` and `/`, which base64 adds to letters and digits.
pub const PLUS_SLASH: u8 = 32;
/// `=`, the padding of base64.
pub const PAD: u8 = 64;
/// `.`, which joins the parts of some tokens.
pub const DOT: u8 = 128;

/// Letters and digits.
pub const ALNUM: u8 = LOWER | UPPER | DIGIT;
/// What a run is made of: names, words and most tokens.
pub const WORD: u8 = ALNUM | JOINER;
/// Base64 with its padding.
pub const BASE64: u8 = ALNUM | PLUS_SLASH | PAD;

/// The classes of every byte.
pub static CLASS: [u8; 256] = build();

const fn build() -> [u8; 256] {
    let mut table = [0u8; 256];
    let mut byte = 0usize;
    while byte < 256 {
        let b = byte as u8;
        let mut class = 0;
        if b.is_ascii_lowercase() {
            class |= LOWER;
        }
        if b.is_ascii_uppercase() {
            class |= UPPER;
        }
        if b.is_ascii_digit() {
            class |= DIGIT;
        }
        if b.is_ascii_hexdigit() {
            class |= HEX;
        }
        if b == b'_' || b == b'-' {
            class |= JOINER;
        }
        if b == b'+' || b == b'/' {
            class |= PLUS_SLASH;
        }
        if b == b'=' {
            class |= PAD;
        }
        if b == b'.' {
            class |= DOT;
        }
        table[byte] = class;
        byte += 1;
    }
    table
}

/// Whether `byte` is in one of the classes of `mask`.
#[inline]
pub fn is(byte: u8, mask: u8) -> bool {
    CLASS[byte as usize] & mask != 0
}

/// Returns where the run of bytes of `mask` that begins at `start` ends, reading at most `limit` bytes.
#[inline]
pub fn run_end(bytes: &[u8], start: usize, mask: u8, limit: usize) -> usize {
    let stop = bytes.len().min(start.saturating_add(limit));
    let mut index = start;
    while index < stop && is(bytes[index], mask) {
        index += 1;
    }
    index
}

/// Returns all classes that occur in `bytes`.
pub fn classes(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |mask, b| mask | CLASS[*b as usize])
}

/// Whether `needle` (in lower case) occurs in `bytes`, in any case.
pub fn contains_ignoring_case(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|w| w.eq_ignore_ascii_case(needle))
}

/// Whether `needle` occurs in `bytes`.
pub fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|w| w == needle)
}

/// Returns how many different bytes there are, counting no further than `enough`.
pub fn distinct(bytes: &[u8], enough: usize) -> usize {
    let mut bitmap = [0u64; 4];
    let mut count = 0;
    for b in bytes {
        let (word, bit) = ((b >> 6) as usize, 1u64 << (b & 63));
        if bitmap[word] & bit == 0 {
            bitmap[word] |= bit;
            count += 1;
            if count >= enough {
                break;
            }
        }
    }
    count
}
