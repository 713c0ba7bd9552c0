//! Parses JSON with comments into a tree of spans.
//!
//! The grammar is JSON's, with line and block comments, trailing commas and a byte order mark allowed. Scalars must be valid
//! JSON too, so that a file with `undefined` in it is an error.

use std::fmt;
use std::ops::Range;

use super::jsonc::PathStep;

/// Maximum nesting depth. Settings are never that deep, and the parser must not run out of stack.
const MAX_DEPTH: usize = 128;

/// A value and its span.
#[derive(Clone, Debug)]
pub struct SpannedNode {
    /// Byte range of its text.
    pub span: Range<usize>,
    /// Its kind and content.
    pub kind: NodeKind,
}

/// The kinds of values, with their content.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// An object.
    Object(Vec<Member>),
    /// An array.
    Array(Vec<SpannedNode>),
    /// A string, unescaped.
    Text(String),
    /// A number, `true`, `false` or `null`, as written.
    Plain(String),
}

/// A member of an object.
#[derive(Clone, Debug)]
pub struct Member {
    /// The name, unescaped.
    pub name: String,
    /// Byte range of the name, including the quotes.
    pub key: Range<usize>,
    /// The value of the member.
    pub value: SpannedNode,
}

impl SpannedNode {
    /// Returns the member of this name, the last if there are several.
    pub fn member(&self, name: &str) -> Option<&Self> {
        let NodeKind::Object(members) = &self.kind else { return None };
        members.iter().rev().find(|member| member.name == name).map(|member| &member.value)
    }

    /// Returns the elements, if it is an array.
    pub fn elements(&self) -> Option<&[Self]> {
        match &self.kind {
            NodeKind::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// Returns the members, if it is an object.
    pub fn members(&self) -> Option<&[Member]> {
        match &self.kind {
            NodeKind::Object(members) => Some(members),
            _ => None,
        }
    }

    /// Returns the text, if it is a string.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it is this number, `true`, `false` or `null`.
    pub fn is_plain(&self, plain: &str) -> bool {
        matches!(&self.kind, NodeKind::Plain(found) if found == plain)
    }

    pub(super) fn child(&self, step: &PathStep) -> Option<&Self> {
        match step {
            PathStep::Key(name) => self.member(name),
            PathStep::Index(index) => self.elements()?.get(*index),
        }
    }

    pub(super) fn index_of(&self, step: &PathStep) -> Option<usize> {
        match (step, &self.kind) {
            (PathStep::Key(name), NodeKind::Object(members)) => {
                members.iter().rposition(|member| member.name == *name)
            }
            (PathStep::Index(index), NodeKind::Array(elements)) => {
                (*index < elements.len()).then_some(*index)
            }
            _ => None,
        }
    }

    /// Returns the spans of the entries: whole members of an object, elements of an array.
    pub(super) fn entries(&self) -> Vec<Range<usize>> {
        match &self.kind {
            NodeKind::Object(members) => {
                members.iter().map(|member| member.key.start..member.value.span.end).collect()
            }
            NodeKind::Array(elements) => elements.iter().map(|element| element.span.clone()).collect(),
            NodeKind::Text(_) | NodeKind::Plain(_) => Vec::new(),
        }
    }
}

/// A position in a text, for messages: line and column count from one, columns in characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// Line number, from one.
    pub line: usize,
    /// Column in characters, from one.
    pub column: usize,
}

impl Position {
    pub(super) fn from_offset(text: &str, at: usize) -> Self {
        let before = text.get(..at).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |found| found + 1);
        Self { line, column: before[start..].trim_start_matches('\u{feff}').chars().count() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// The text does not parse.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what} at {position}")]
pub struct SyntaxError {
    /// What is wrong.
    pub what: String,
    /// Position of the error.
    pub position: Position,
}

pub(super) struct ParsedDocument {
    pub root: SpannedNode,
    pub comment: Option<usize>,
    pub trailing_comma: Option<usize>,
}

/// Parses the whole text.
pub(super) fn parse(text: &str) -> Result<ParsedDocument, SyntaxError> {
    let mut reader = JsoncParser { text, offset: 0, comment: None, trailing_comma: None };
    if text.starts_with('\u{feff}') {
        reader.offset = '\u{feff}'.len_utf8();
    }
    reader.skip_blanks()?;
    let root = reader.parse_value(0)?;
    reader.skip_blanks()?;
    if reader.offset < text.len() {
        return Err(reader.error("unexpected data after the value"));
    }
    Ok(ParsedDocument { root, comment: reader.comment, trailing_comma: reader.trailing_comma })
}

/// Returns where the white space and comments from `from` on end. `None` if a comment does not end.
pub(super) fn skip_blank(text: &str, from: usize) -> Option<usize> {
    let mut reader = JsoncParser { text, offset: from, comment: None, trailing_comma: None };
    reader.skip_blanks().ok().map(|()| reader.offset)
}

/// Whether `between`, the text between two entries or brackets, ends inside a line comment.
pub(super) fn ends_in_line_comment(between: &str) -> bool {
    let mut rest = between;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n', ',']);
        let end = match rest.get(..2) {
            Some("//") => rest.find('\n'),
            Some("/*") => rest[2..].find("*/").map(|at| at + 4),
            _ => return false,
        };
        match end {
            Some(end) => rest = &rest[end..],
            None => return true,
        }
    }
}

struct JsoncParser<'a> {
    text: &'a str,
    offset: usize,
    comment: Option<usize>,
    trailing_comma: Option<usize>,
}

impl JsoncParser<'_> {
    fn remaining(&self) -> &str {
        &self.text[self.offset..]
    }

    fn error(&self, what: &str) -> SyntaxError {
        SyntaxError { what: what.to_owned(), position: Position::from_offset(self.text, self.offset) }
    }

    fn skip_blanks(&mut self) -> Result<(), SyntaxError> {
        loop {
            self.offset =
                self.text.len() - self.remaining().trim_start_matches([' ', '\t', '\r', '\n']).len();
            let length = if self.remaining().starts_with("//") {
                self.remaining().find('\n').unwrap_or(self.remaining().len())
            } else if self.remaining().starts_with("/*") {
                match self.remaining().find("*/") {
                    Some(end) if end > 1 => end + 2,
                    _ => return Err(self.error("an unterminated comment")),
                }
            } else {
                return Ok(());
            };
            self.comment.get_or_insert(self.offset);
            self.offset += length;
        }
    }

    fn parse_value(&mut self, depth: usize) -> Result<SpannedNode, SyntaxError> {
        if depth > MAX_DEPTH {
            return Err(self.error("values nested too deeply"));
        }
        let start = self.offset;
        let shape = match self.remaining().bytes().next() {
            Some(b'{') => NodeKind::Object(self.parse_list(b'}', |reader| {
                if !reader.remaining().starts_with('"') {
                    return Err(reader.error("a name in double quotes is missing"));
                }
                let start = reader.offset;
                let name = reader.parse_string()?;
                let key = start..reader.offset;
                reader.skip_blanks()?;
                if !reader.remaining().starts_with(':') {
                    return Err(reader.error("a colon is missing"));
                }
                reader.offset += 1;
                reader.skip_blanks()?;
                Ok(Member { name, key, value: reader.parse_value(depth + 1)? })
            })?),
            Some(b'[') => NodeKind::Array(self.parse_list(b']', |reader| reader.parse_value(depth + 1))?),
            Some(b'"') => NodeKind::Text(self.parse_string()?),
            None => return Err(self.error("a value is missing")),
            Some(_) => {
                let end = self.remaining().find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)));
                let plain = self.remaining()[..end.unwrap_or(self.remaining().len())].to_owned();
                if serde_json::from_str::<serde_json::Value>(&plain).is_err() {
                    return Err(self.error("not a JSON value"));
                }
                self.offset += plain.len();
                NodeKind::Plain(plain)
            }
        };
        Ok(SpannedNode { span: start..self.offset, kind: shape })
    }

    fn parse_list<T>(
        &mut self,
        close: u8,
        mut entry: impl FnMut(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<Vec<T>, SyntaxError> {
        self.offset += 1;
        let mut entries = Vec::new();
        let mut comma: Option<usize> = None;
        loop {
            self.skip_blanks()?;
            match self.remaining().bytes().next() {
                Some(found) if found == close => {
                    if let Some(comma) = comma {
                        self.trailing_comma.get_or_insert(comma);
                    }
                    self.offset += 1;
                    return Ok(entries);
                }
                None => return Err(self.error("unexpected end of file")),
                Some(_) if !entries.is_empty() && comma.is_none() => {
                    return Err(self.error("a comma or a closing bracket is missing"));
                }
                Some(_) => entries.push(entry(self)?),
            }
            self.skip_blanks()?;
            comma = self.remaining().starts_with(',').then_some(self.offset);
            self.offset += usize::from(comma.is_some());
        }
    }

    fn parse_string(&mut self) -> Result<String, SyntaxError> {
        let mut escaped = false;
        let end = self.remaining().bytes().enumerate().skip(1).find_map(|(index, byte)| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends.then_some(index + 1)
        });
        let Some(end) = end else { return Err(self.error("an unterminated string")) };
        let text =
            serde_json::from_str(&self.remaining()[..end]).map_err(|_| self.error("an invalid string"))?;
        self.offset += end;
        Ok(text)
    }
}
