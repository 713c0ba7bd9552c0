//! Errors in the text of a point, which show the position of the error.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use crate::path::display_bytes;
use crate::time_expr::{EXAMPLES, TimeExpr, WhenError, WhenErrorKind};

/// The error for a text that is not a point, or a point that names nothing.
///
/// Shown as
///
/// ```text
/// cannot resolve the point "tool::last": a tool name is missing after "tool:"
///   tool::last
///        ^
/// try: tool:bash:last
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PointError {
    /// The text as given; the beginning of it, if it was too long.
    pub text: String,
    /// The offending bytes of the text. Empty at a position where something is missing.
    pub span: Range<usize>,
    /// What is wrong, as part of a sentence.
    pub what: String,
    /// Valid points to suggest, best first.
    pub suggestions: Vec<String>,
}

impl PointError {
    /// Creates an error about the bytes `span` of `text`. Resolvers use it too: a point can be well-formed and name
    /// nothing.
    pub fn new(text: impl Into<String>, span: Range<usize>, what: impl Into<String>) -> Self {
        Self { text: text.into(), span, what: what.into(), suggestions: Vec::new() }
    }

    /// Adds suggestions.
    #[must_use]
    pub fn suggest<T: Into<String>>(mut self, suggestions: impl IntoIterator<Item = T>) -> Self {
        self.suggestions.extend(suggestions.into_iter().map(Into::into));
        self
    }

    /// Creates an error about a time in the point `text` that starts at byte `offset` and is not a moment in the past.
    pub fn from_time(text: &str, offset: usize, error: WhenError) -> Self {
        let span = error.span.start + offset..error.span.end + offset;
        Self { text: text.to_owned(), span, what: error.what, suggestions: error.suggestions }
    }

    /// Creates an error about a bare text that is not an existing label, id or branch: `what` says so. If the text was
    /// probably meant as a time (`2 huors ago`), the error is about the misspelt word instead.
    pub fn unknown_text(text: &str, what: impl Into<String>) -> Self {
        match TimeExpr::parse(text) {
            Err(error) if is_nearly_a_time(text, &error) => Self::from_time(text, 0, error),
            _ => Self::new(text, 0..text.len(), what),
        }
    }
}

/// Whether a text that does not parse as a moment was meant as one: it ends in `ago`, has a day or time that does not
/// exist, or is similar to a moment.
fn is_nearly_a_time(text: &str, error: &WhenError) -> bool {
    let has_suggestion = error.suggestions.first().is_some_and(|first| !EXAMPLES.contains(&first.as_str()));
    has_suggestion || error.kind == WhenErrorKind::OutOfRange || text.trim_end().ends_with(" ago")
}

/// A suggestion, with characters escaped that would reorder text on a terminal. Backslashes stay: the user has to type
/// them.
fn display_suggestion(suggestion: &str) -> Cow<'_, str> {
    let escaped = display_bytes(suggestion.as_bytes());
    if escaped.contains("\\u{") { escaped } else { Cow::Borrowed(suggestion) }
}

impl fmt::Display for PointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let display =
            |range: Range<usize>| display_bytes(self.text.as_bytes().get(range).unwrap_or_default());
        let (start, end) = (self.span.start.min(self.text.len()), self.span.end.min(self.text.len()));
        writeln!(f, "cannot resolve the point \"{}\": {}", display(0..self.text.len()), self.what)?;
        writeln!(f, "  {}", display(0..self.text.len()))?;
        let indent = display(0..start).chars().count() + 2;
        let carets = display(start..end).chars().count().max(1);
        write!(f, "{:indent$}{:^>carets$}", "", "")?;
        if !self.suggestions.is_empty() {
            let suggestions: Vec<_> = self.suggestions.iter().map(|text| display_suggestion(text)).collect();
            write!(f, "\ntry: {}", suggestions.join(", "))?;
        }
        Ok(())
    }
}

impl std::error::Error for PointError {}
