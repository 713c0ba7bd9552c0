//! The JSON documents of an answer: a single one, an array of them, or one in each event of a stream. Truncated or broken
//! answers are read as far as possible.

use std::ops::Range;

use serde_json::Value;

use crate::sse;

/// How the documents are arranged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// A single document.
    Whole,
    /// Elements of an array.
    Array,
    /// The data of events.
    Events,
}

/// One document.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) value: Value,
    /// Its byte range in the answer. For an event, the range of the whole event.
    pub(crate) span: Range<usize>,
}

/// All documents of an answer.
#[derive(Debug)]
pub(crate) struct Documents {
    pub(crate) form: Form,
    pub(crate) list: Vec<Document>,
    /// Whether the answer itself says that it is complete: by `[DONE]`, or by being a complete document.
    pub(crate) is_complete: bool,
}

impl Documents {
    /// Parses the body of an answer.
    pub(crate) fn parse(body: &str) -> Self {
        let start = body.len() - body.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']).len();
        match body.as_bytes().get(start) {
            Some(b'{') => parse_single(body, start),
            Some(b'[') => parse_array(body, start + 1),
            _ => parse_events(body),
        }
    }

    /// Returns the documents without their ranges.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        self.list.iter().map(|document| &document.value)
    }
}

fn parse_single(body: &str, start: usize) -> Documents {
    let (value, is_complete) = match serde_json::from_str(body[start..].trim_end()) {
        Ok(value) => (Some(value), true),
        Err(_) => (complete_truncated(&body[start..]), false),
    };
    let list = value.into_iter().map(|value| Document { value, span: start..body.len() }).collect();
    Documents { form: Form::Whole, list, is_complete }
}

fn parse_array(body: &str, mut offset: usize) -> Documents {
    let mut list = Vec::new();
    loop {
        let rest = &body[offset..];
        let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n', ',']).len();
        offset += blank;
        let mut values = serde_json::Deserializer::from_str(&body[offset..]).into_iter::<Value>();
        let Some(Ok(value)) = values.next() else { break };
        let end = offset + values.byte_offset();
        list.push(Document { value, span: offset..end });
        offset = end;
    }
    Documents { form: Form::Array, list, is_complete: body[offset..].starts_with(']') }
}

fn parse_events(body: &str) -> Documents {
    let mut list = Vec::new();
    let mut is_complete = false;
    let mut start = 0;
    let mut take = |data: &str, span: Range<usize>| {
        if data.trim() == "[DONE]" {
            is_complete = true;
        } else if let Ok(value) = serde_json::from_str(data) {
            list.push(Document { value, span });
        }
    };
    for event in sse::events(body) {
        take(&event.data, start..event.end);
        start = event.end;
    }
    // Some servers leave out the blank line after the last event, and clients accept that.
    let rest = &body[start..];
    if memchr::memmem::find(rest.as_bytes(), b"data").is_some() {
        for event in sse::events(&format!("{rest}\n\n")) {
            take(&event.data, start..body.len());
        }
    }
    Documents { form: Form::Events, list, is_complete }
}

/// Completes a truncated document by closing everything that is open at the end of the text.
fn complete_truncated(text: &str) -> Option<Value> {
    /// A text is often cut in the middle of a name or a number; then the last few possible ends are tried.
    const MAX_END_ATTEMPTS: usize = 4;
    let bytes = text.as_bytes();
    let mut open = Vec::new();
    let (mut in_string, mut escaped) = (false, false);
    let mut ends: std::collections::VecDeque<(usize, Vec<u8>)> = std::collections::VecDeque::new();
    for (index, &byte) in bytes.iter().enumerate() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => open.push(if byte == b'{' { b'}' } else { b']' }),
            b'}' | b']' => {
                open.pop();
            }
            _ => {}
        }
        if matches!(byte, b'{' | b'[' | b',') {
            if ends.len() == MAX_END_ATTEMPTS {
                ends.pop_front();
            }
            ends.push_back((if byte == b',' { index } else { index + 1 }, open.clone()));
        }
    }
    let closed = |text: &str, quote: &str, open: &[u8]| {
        let closing: String = open.iter().rev().map(|&byte| char::from(byte)).collect();
        serde_json::from_str(&format!("{text}{quote}{closing}")).ok()
    };
    let cut = if escaped { &text[..text.len() - 1] } else { text };
    closed(cut, if in_string { "\"" } else { "" }, &open)
        .or_else(|| ends.iter().rev().find_map(|(end, open)| closed(&text[..*end], "", open)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(body: &str) -> Vec<Value> {
        Documents::parse(body).list.into_iter().map(|document| document.value).collect()
    }

    #[test]
    fn the_three_forms() {
        assert_eq!(values(" {\"a\":1}\n"), [json!({"a": 1})]);
        assert_eq!(values("[{\"a\":1}\n,\r\n{\"a\":2}]"), [json!({"a": 1}), json!({"a": 2})]);
        assert_eq!(values("data: {\"a\":1}\n\ndata: [DONE]\n\n"), [json!({"a": 1})]);
        assert!(Documents::parse("data: [DONE]\n\n").is_complete);
        assert!(Documents::parse("data: [DONE]").is_complete);
        assert!(!Documents::parse("data: [DO").is_complete);
    }

    #[test]
    fn cut_documents_are_read_as_far_as_they_go() {
        assert_eq!(values(r#"{"a":{"text":"so fa"#), [json!({"a": {"text": "so fa"}})]);
        assert_eq!(values(r#"{"a":[1,2],"b":"x\"#), [json!({"a": [1, 2], "b": "x"})]);
        assert_eq!(values(r#"{"a":[1,2],"b":"x\u00"#), [json!({"a": [1, 2]})]);
        assert_eq!(values(r#"{"a":[1,2],"be"#), [json!({"a": [1, 2]})]);
        assert_eq!(values(r#"{"a":[1,2],"b":tr"#), [json!({"a": [1, 2]})]);
        assert_eq!(values("{"), [json!({})]);
        assert_eq!(values(r#"[{"a":1},{"a":"#), [json!({"a": 1})]);
        assert!(!Documents::parse(r#"[{"a":1},"#).is_complete);
        assert!(Documents::parse(r#"[{"a":1}]"#).is_complete);
        assert_eq!(values("<html>no</html>"), Vec::<Value>::new());
    }
}
