//! Names in the paths of URLs. Bytes other than letters, digits and `-_.~` are written as `%XX`, so that every name of a
//! file is exact, UTF-8 or not.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// The bytes that are escaped in one segment of a path.
const IN_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The bytes that are escaped in a path.
const IN_PATH: &AsciiSet = &IN_SEGMENT.remove(b'/');

/// Encodes a name as one segment of a path.
pub fn encode_segment(name: &str) -> String {
    percent_encode(name.as_bytes(), IN_SEGMENT).to_string()
}

/// Encodes a path, which keeps its `/`.
pub fn encode_path(path: &[u8]) -> String {
    percent_encode(path, IN_PATH).to_string()
}
