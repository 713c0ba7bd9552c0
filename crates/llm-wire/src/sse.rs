//! Server-sent events, parsed from text that may arrive in any chunks.

use memchr::memchr2;

/// One event of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SseEvent {
    /// The name of the event, if it has one.
    pub name: Option<String>,
    /// The data of the event, lines joined.
    pub data: String,
    /// Where in the stream it ends, in bytes: after its blank line.
    pub end: usize,
}

/// Returns all complete events of a stream. The text after the last blank line is incomplete and not an event. Neither is
/// an event without data, as the standard says.
pub fn events(text: &str) -> Vec<SseEvent> {
    let mut events = Vec::new();
    let (mut name, mut data) = (None, None::<String>);
    for Line { text: line, end } in lines(text) {
        if line.is_empty() {
            if let Some(data) = data.take() {
                events.push(SseEvent { name: name.take(), data, end });
            }
            name = None;
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => data = Some(value.to_owned()),
            },
            "event" => name = Some(value.to_owned()),
            _ => {}
        }
    }
    events
}

/// A line without its line ending.
pub(crate) struct Line<'a> {
    pub(crate) text: &'a str,
    /// Where the next line begins.
    pub(crate) end: usize,
}

/// Returns the complete lines of a stream, which may end in LF, CR LF or CR.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    // A byte order mark at the very beginning is not part of a line.
    let mut offset = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    std::iter::from_fn(move || {
        let rest = &text[offset..];
        let length = memchr2(b'\n', b'\r', rest.as_bytes())?;
        let is_crlf = rest.as_bytes()[length..].starts_with(b"\r\n");
        offset += length + if is_crlf { 2 } else { 1 };
        Some(Line { text: &rest[..length], end: offset })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(text: &str) -> Vec<String> {
        events(text).into_iter().map(|event| event.data).collect()
    }

    #[test]
    fn names_data_and_ends() {
        let text = "event: a\ndata: 1\n\ndata: 2\n\n";
        let read = events(text);
        assert_eq!(read[0], SseEvent { name: Some("a".into()), data: "1".into(), end: 18 });
        assert_eq!(read[1], SseEvent { name: None, data: "2".into(), end: text.len() });
    }

    #[test]
    fn every_end_of_line_counts() {
        for end in ["\n", "\r\n", "\r"] {
            let text = format!("data: one{end}data: two{end}{end}data: [DONE]{end}{end}");
            assert_eq!(data(&text), ["one\ntwo", "[DONE]"], "{end:?}");
            assert_eq!(events(&text)[1].end, text.len());
        }
    }

    #[test]
    fn comments_and_unknown_fields_say_nothing() {
        assert_eq!(data(": ping\n\nid: 4\nretry: 10\ndata:x\n: more\ndata\n\n"), ["x\n"]);
        assert_eq!(data("event: lonely\n\ndata: x\n\n"), ["x"]);
        assert_eq!(events("event: lonely\n\ndata: x\n\n")[0].name, None);
    }

    #[test]
    fn an_unfinished_event_is_none() {
        assert_eq!(data("data: 1\n\ndata: 2\n"), ["1"]);
        assert_eq!(data("data: 1\n\ndata: 2"), ["1"]);
        assert_eq!(data(""), Vec::<String>::new());
    }

    #[test]
    fn only_one_blank_is_taken_off() {
        assert_eq!(data("data:  x \n\n"), [" x "]);
        assert_eq!(data("\u{feff}data: x\n\n"), ["x"]);
    }
}
