//! Bytes as hex digits: ids, hashes, and names of files.

use std::fmt;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Writes two lower-case digits for each byte.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| encode_byte(*byte)).map(char::from).collect()
}

/// Parses pairs of lower- or upper-case digits.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| Some(decode_digit(pair[0])? << 4 | decode_digit(*pair.get(1)?)?);
    text.as_bytes().chunks(2).map(pair).collect()
}

/// Parses exactly `2 * N` lower- or upper-case digits.
pub fn decode_array<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    if text.len() != N * 2 {
        return None;
    }
    let mut bytes = [0u8; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = decode_digit(pair[0])? << 4 | decode_digit(pair[1])?;
    }
    Some(bytes)
}

/// Like [`encode`], of at most 32 bytes into a formatter, in one call: ids are written for every recorded step, and the
/// formatter's cost per byte is too high for that.
pub(crate) fn write(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = [0u8; 64];
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&encode_byte(*byte));
    }
    // Hex digits are valid UTF-8.
    f.write_str(std::str::from_utf8(&text[..bytes.len() * 2]).unwrap_or_default())
}

fn encode_byte(byte: u8) -> [u8; 2] {
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

fn decode_digit(letter: u8) -> Option<u8> {
    match letter {
        b'0'..=b'9' => Some(letter - b'0'),
        b'a'..=b'f' => Some(letter - b'a' + 10),
        b'A'..=b'F' => Some(letter - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_and_other_texts_are_refused() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Some(all));
        assert_eq!(encode(b"\x00\xab"), "00ab");
        assert_eq!(decode_array(b"00Ab"), Some([0, 0xab]));
        for wrong in ["0", "0g", "+1", "é", "abc"] {
            assert_eq!(decode(wrong), None, "{wrong}");
            assert_eq!(decode_array::<1>(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
