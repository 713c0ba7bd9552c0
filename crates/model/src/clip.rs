//! Truncates texts that are too long to be kept, and marks in the text where it was cut.

use serde_json::Value;

/// Bytes reserved for the mark between the two parts.
const MARK_BYTES: usize = 64;
/// Texts are not cut to fewer bytes than this: the mark must fit.
pub const LEAST: usize = 4 * MARK_BYTES;

/// Truncates a text of more than `max_bytes` bytes: keeps its beginning and its end, with a mark between them. Returns
/// how many bytes are left out; truncating it again changes nothing.
pub fn text(text: &mut String, max_bytes: usize) -> u64 {
    let max_bytes = max_bytes.max(LEAST);
    if text.len() <= max_bytes {
        return 0;
    }
    let head = text.floor_char_boundary(max_bytes * 3 / 4 - MARK_BYTES);
    let tail = text.ceil_char_boundary(text.len() - max_bytes / 4);
    let (left_out, whole) = (tail - head, text.len());
    *text = format!("{}\n[… {left_out} of {whole} bytes left out …]\n{}", &text[..head], &text[tail..]);
    left_out as u64
}

/// Returns the first `max_chars` characters of a text, with `…` if there are more.
pub fn first(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Truncates every string of more than `max_bytes` bytes in a JSON value. Returns how many bytes are left out.
pub fn value(value: &mut Value, max_bytes: usize) -> u64 {
    match value {
        Value::String(string) => text(string, max_bytes),
        Value::Array(items) => items.iter_mut().map(|item| self::value(item, max_bytes)).sum(),
        Value::Object(fields) => fields.values_mut().map(|field| self::value(field, max_bytes)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_counted_and_said() {
        for most in [0, LEAST, 1000, 64 << 10] {
            let long = "añ→".repeat(40_000);
            let mut cut = long.clone();
            let left_out = text(&mut cut, most);
            assert!(cut.len() <= most.max(LEAST), "{} > {most}", cut.len());
            assert!(cut.contains(&format!("[… {left_out} of {} bytes left out …]", long.len())));
            let (first, last) = (cut.split('\n').next().unwrap(), cut.split('\n').next_back().unwrap());
            assert!(long.starts_with(first) && long.ends_with(last));
            assert_eq!(first.len() + last.len() + left_out as usize, long.len());
            let again = cut.clone();
            assert_eq!((text(&mut cut, most), &cut), (0, &again));
        }
    }

    #[test]
    fn texts_inside_are_cut_and_everything_else_stays() {
        let mut whole = serde_json::json!({ "a": ["x".repeat(500), 1, null], "b": { "c": "short" } });
        assert_eq!(value(&mut whole, 300), 500 - 300 + 64);
        assert_eq!((&whole["a"][1], &whole["b"]["c"]), (&1.into(), &"short".into()));
    }
}
