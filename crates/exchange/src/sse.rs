//! Server-sent events, read from text that may arrive in any pieces.

/// One event of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Event {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its data, lines joined.
    pub data: String,
    /// Where in the stream it ends, in bytes: after its blank line.
    pub end: usize,
}

/// All whole events of a stream.
pub fn events(text: &str) -> Vec<Event> {
    let _ = text;
    unimplemented!()
}
