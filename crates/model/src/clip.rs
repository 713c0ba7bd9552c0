//! Truncates texts that are too long to be kept, and marks in the text where it was cut.

use serde_json::Value;

/// Bytes reserved for the mark between the two parts.
const MARK_BYTES: usize = 64;
/// Texts are not cut to fewer bytes than this: the mark must fit.
pub const LEAST: usize = 4 * MARK_BYTES;

/// Truncates a text of more than `most` bytes, and inserts a mark. Its beginning and its end stay. Returns how many bytes
/// are left out; truncating it again changes nothing.
pub fn text(text: &mut String, most: usize) -> u64 {
    let most = most.max(LEAST);
    if text.len() <= most {
        return 0;
    }
    let head = text.floor_char_boundary(most * 3 / 4 - MARK_BYTES);
    let tail = text.ceil_char_boundary(text.len() - most / 4);
    let left_out = tail - head;
    *text = format!("{}\n[… {left_out} bytes left out …]\n{}", &text[..head], &text[tail..]);
    left_out as u64
}

/// Returns the first `most` characters of a text, with `…` if there are more.
pub fn first(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Truncates every text of more than `most` bytes in a value. Returns how many bytes are left out.
pub fn value(value: &mut Value, most: usize) -> u64 {
    match value {
        Value::String(own) => text(own, most),
        Value::Array(items) => items.iter_mut().map(|item| self::value(item, most)).sum(),
        Value::Object(fields) => fields.values_mut().map(|field| self::value(field, most)).sum(),
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
            assert!(cut.contains(&format!("[… {left_out} bytes left out …]")));
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
