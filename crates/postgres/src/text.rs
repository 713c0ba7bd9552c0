//! Escapes text that PostgreSQL does not accept: NUL characters, in a text or inside of a JSON document.
//!
//! An agent may print one, and no recorded data may be lost. So NUL is escaped as two characters, and the escape character
//! as two of itself. Text with neither, which is nearly all text, is stored unchanged.

use std::borrow::Cow;

use serde_json::Value;

/// The escape character: from the private use area, which ordinary text does not use.
const ESCAPE_CHAR: char = '\u{f8ff}';

/// Escapes `text` for storage.
pub(crate) fn escape_text(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE_CHAR]) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\0' => out.extend([ESCAPE_CHAR, '0']),
            ESCAPE_CHAR => out.extend([ESCAPE_CHAR, ESCAPE_CHAR]),
            other => out.push(other),
        }
    }
    Cow::Owned(out)
}

/// Reverses [`escape_text`].
pub(crate) fn unescape_text(text: String) -> String {
    if !text.contains(ESCAPE_CHAR) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            ESCAPE_CHAR if characters.next() == Some('0') => out.push('\0'),
            other => out.push(other),
        }
    }
    out
}

/// Serialises a record as the text of a JSON document.
pub(crate) fn to_json(record: &impl serde::Serialize) -> String {
    // The records are plain data with string keys, which always serialise.
    let text = serde_json::to_string(record).unwrap_or_default();
    if !text.contains("\\u0000") && !text.contains(ESCAPE_CHAR) {
        return text;
    }
    let mut value = serde_json::from_str(&text).unwrap_or(Value::Null);
    map_strings(&mut value, &|text| escape_text(text).into_owned());
    value.to_string()
}

/// Reads a record from the text of a JSON document.
pub(crate) fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    if !text.contains(ESCAPE_CHAR) {
        return serde_json::from_str(text);
    }
    let mut value = serde_json::from_str(text)?;
    map_strings(&mut value, &|text| unescape_text(text.to_string()));
    serde_json::from_value(value)
}

fn map_strings(value: &mut Value, of_text: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = of_text(text),
        Value::Array(items) => items.iter_mut().for_each(|item| map_strings(item, of_text)),
        Value::Object(fields) => {
            let old = std::mem::take(fields);
            for (name, mut value) in old {
                map_strings(&mut value, of_text);
                fields.insert(of_text(&name), value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_and_none_has_a_zero() {
        for text in
            ["", "plain", "\0", "a\0b\0", "\u{f8ff}", "\u{f8ff}0", "\0\u{f8ff}\0", "ü\u{f8ff}\u{f8ff}0"]
        {
            let kept = escape_text(text).into_owned();
            assert!(!kept.contains('\0'));
            assert_eq!(unescape_text(kept), text);
        }
    }

    #[test]
    fn every_document_comes_back() {
        let value = serde_json::json!({ "a\0": ["\0", { "\u{f8ff}": "\\u0000" }], "b": 1.5 });
        let kept = to_json(&value);
        assert!(!kept.replace("\\\\u0000", "").contains("\\u0000"), "{kept}");
        assert_eq!(from_json::<Value>(&kept).ok(), Some(value));
    }
}
