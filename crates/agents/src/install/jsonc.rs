//! Edits a JSON file that the user or an agent owns: every byte that stepback did not write stays the same.
//!
//! [`JsoncDocument`] keeps the text and a tree of spans into it. An edit cuts or inserts text at spans and parses again; nothing
//! is ever printed from the tree. Comments, trailing commas and a byte order mark are accepted; whether the agent that owns
//! the file accepts them too is a separate question, see [`JsoncDocument::first_comment`] and [`JsoncDocument::first_trailing_comma`].
//!
//! Removing what was inserted restores the previous bytes. A tree cannot tell whether an empty container was there before, so
//! the layout of a container records it: one that existed gets its first entry on a line of its own with *no* new line before
//! the closing bracket (or with a blank one, if there was a line break), while one made by stepback has the usual layout, or
//! is all on one line. [`JsoncDocument::remove`] reads this layout.

use super::parse;
pub use super::value::Value;

pub use super::parse::{Member, NodeKind, Position, SpannedNode, SyntaxError};

/// One step of a path into a document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PathStep {
    /// Into the member of an object with this name. If there are several, the last one, as JSON readers do.
    Key(String),
    /// Into the element of an array at this index.
    Index(usize),
}

impl From<&str> for PathStep {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for PathStep {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// What is left of a container after an entry was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemainingContent {
    /// Other entries.
    Entries,
    /// Nothing, and the container was there before the entry was inserted.
    Empty,
    /// Nothing, and the container looks as if it was made for the entry.
    EmptyAndOurs,
}

/// A JSON text with the spans of its values.
#[derive(Clone, Debug)]
pub struct JsoncDocument {
    text: String,
    root: SpannedNode,
    comment: Option<usize>,
    trailing_comma: Option<usize>,
}

impl JsoncDocument {
    /// Parses `text`. An empty text, or one of white space and comments only, is an error like any other.
    pub fn parse(text: String) -> Result<Self, SyntaxError> {
        let parsed = parse::parse(&text)?;
        Ok(Self { root: parsed.root, comment: parsed.comment, trailing_comma: parsed.trailing_comma, text })
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the root value.
    pub fn root(&self) -> &SpannedNode {
        &self.root
    }

    /// Returns the position of the first comment.
    pub fn first_comment(&self) -> Option<Position> {
        self.comment.map(|at| Position::from_offset(&self.text, at))
    }

    /// Returns the position of the first comma before a closing bracket.
    pub fn first_trailing_comma(&self) -> Option<Position> {
        self.trailing_comma.map(|at| Position::from_offset(&self.text, at))
    }

    /// Returns the position of `node`, for messages.
    pub fn position(&self, node: &SpannedNode) -> Position {
        Position::from_offset(&self.text, node.span.start)
    }

    /// Whether nothing but a final line break is outside the root value.
    pub fn is_bare(&self) -> bool {
        self.root.span.start == 0 && self.text[self.root.span.end..].trim_matches(['\r', '\n']).is_empty()
    }

    /// Returns the value at `path`.
    pub fn get(&self, path: &[PathStep]) -> Option<&SpannedNode> {
        path.iter().try_fold(&self.root, |node, step| node.child(step))
    }

    /// Adds a member to the object at `path`, after the existing ones. The caller must know that there is none of this name.
    pub fn insert_member(&mut self, path: &[PathStep], key: &str, value: &Value) -> Result<(), SyntaxError> {
        self.insert(path, Some(key), value)
    }

    /// Adds an element to the array at `path`, after the existing ones.
    pub fn append(&mut self, path: &[PathStep], value: &Value) -> Result<(), SyntaxError> {
        self.insert(path, None, value)
    }

    /// Replaces the value at `path` with `value`.
    pub fn replace(&mut self, path: &[PathStep], value: &Value) -> Result<(), SyntaxError> {
        let Some(node) = self.get(path) else { return Ok(()) };
        let span = node.span.clone();
        let printed = if self.text[span.clone()].contains('\n') {
            value.to_pretty_string(self.newline(), self.indent_unit(), self.line_indent(span.start))
        } else {
            value.to_compact_string(self.has_space_after_colon())
        };
        self.text.replace_range(span, &printed);
        self.reparse()
    }

    /// Removes the entry at `path` with its comma and its line, and returns what is left of its container.
    pub fn remove(&mut self, path: &[PathStep]) -> Result<RemainingContent, SyntaxError> {
        let Some((last, above)) = path.split_last() else { return Ok(RemainingContent::Entries) };
        let Some(container) = self.get(above) else { return Ok(RemainingContent::Entries) };
        let Some(index) = container.index_of(last) else { return Ok(RemainingContent::Entries) };
        let entries = container.entries();
        let (open, close) = (container.span.start + 1, container.span.end - 1);
        let entry = entries[index].clone();
        let comma = self.find_comma(entry.end, close);
        let bare = self.text[..entry.start].trim_end_matches(WHITE).len();
        let before = index.checked_sub(1).map_or(open, |above| entries[above].end);
        let behind = comma.map_or(entry.end, |at| at + 1);
        // The text that now follows must not become part of a line comment above.
        let lead = if parse::ends_in_line_comment(&self.text[before..bare])
            && !self.text[behind..].starts_with(BREAK)
        {
            entry.start
        } else {
            bare
        };
        if entries.len() == 1 {
            let (before, left) = (&self.text[open..entry.start], &self.text[behind..close]);
            let ours = comma.is_none() && looks_generated(before, left);
            let back = if is_whitespace(before) && before.starts_with(BREAK) {
                added_line_break_len(left)
            } else {
                0
            };
            self.text.replace_range(lead..behind + back, "");
            self.reparse()?;
            return Ok(if ours { RemainingContent::EmptyAndOurs } else { RemainingContent::Empty });
        }
        // If this is the last of several entries, remove the comma before it. Comments in between stay.
        let comma = comma.or_else(|| self.find_comma(before, entry.start));
        match comma {
            Some(comma) if comma > entry.start => {
                self.text.replace_range(comma..comma + 1, "");
                self.text.replace_range(lead..entry.end, "");
            }
            Some(comma) => {
                self.text.replace_range(lead.max(comma + 1)..entry.end, "");
                self.text.replace_range(comma..comma + 1, "");
            }
            None => self.text.replace_range(lead..entry.end, ""),
        }
        self.reparse()?;
        Ok(RemainingContent::Entries)
    }

    fn insert(&mut self, path: &[PathStep], key: Option<&str>, value: &Value) -> Result<(), SyntaxError> {
        let Some(container) = self.get(path) else { return Ok(()) };
        let entries = container.entries();
        let (open, close) = (container.span.start + 1, container.span.end - 1);
        let Some(last) = entries.last() else { return self.insert_first(open, key, value) };
        // After the last item in the container: the value, its comma or a comment.
        let at = self.text[..close].trim_end_matches(WHITE).len();
        let comma = self.find_comma(last.end, close);
        let one_line = !self.text[open..last.start].contains('\n')
            && !parse::ends_in_line_comment(&self.text[last.end..at]);
        let mut new = String::new();
        if one_line {
            new.push_str(if self.has_space_after_colon() { " " } else { "" });
            new.push_str(&format_member(
                key,
                &value.to_compact_string(self.has_space_after_colon()),
                self.has_space_after_colon(),
            ));
        } else {
            let indent = self.line_indent(last.start).to_owned();
            new.push_str(self.newline());
            new.push_str(&indent);
            new.push_str(&format_member(
                key,
                &value.to_pretty_string(self.newline(), self.indent_unit(), &indent),
                true,
            ));
        }
        if comma.is_some() {
            new.push(',');
        }
        let end = last.end;
        self.text.insert_str(at, &new);
        if comma.is_none() {
            self.text.insert(end, ',');
        }
        self.reparse()
    }

    /// Inserts the first entry into an empty container, in the layout by which [`JsoncDocument::remove`] knows that it was there
    /// before.
    fn insert_first(&mut self, open: usize, key: Option<&str>, value: &Value) -> Result<(), SyntaxError> {
        let newline = self.newline();
        let indent = format!("{}{}", self.line_indent(open), self.indent_unit());
        let printed = format_member(key, &value.to_pretty_string(newline, self.indent_unit(), &indent), true);
        let blank = if self.text[open..].starts_with(BREAK) { newline } else { "" };
        let new = format!("{newline}{indent}{printed}{blank}");
        self.text.insert_str(open, &new);
        self.reparse()
    }

    fn reparse(&mut self) -> Result<(), SyntaxError> {
        let text = std::mem::take(&mut self.text);
        *self = Self::parse(text)?;
        Ok(())
    }

    /// Returns the comma between `from` and `to`, a range of white space, comments and at most one comma.
    fn find_comma(&self, from: usize, to: usize) -> Option<usize> {
        parse::skip_blank(&self.text, from).filter(|&at| at < to && self.text[at..].starts_with(','))
    }

    fn newline(&self) -> &'static str {
        match self.text.find('\n') {
            Some(at) if self.text[..at].ends_with('\r') => "\r\n",
            _ => "\n",
        }
    }

    /// Returns one level of indentation: that of the root's first entry, or two spaces.
    fn indent_unit(&self) -> &str {
        let first = self.root.entries().into_iter().next();
        match first.map(|entry| self.line_indent(entry.start)) {
            Some(indent) if !indent.is_empty() => indent,
            _ => "  ",
        }
    }

    /// Returns the white space at the start of the line that `at` is on.
    fn line_indent(&self, at: usize) -> &str {
        let start = self.text[..at].rfind('\n').map_or(0, |found| found + 1);
        let line = &self.text[start..];
        &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
    }

    /// Whether the file has a space after the colon, in its own one-line objects.
    fn has_space_after_colon(&self) -> bool {
        match &self.root.kind {
            NodeKind::Object(members) => members.first().is_none_or(|first| {
                let text = &self.text[first.key.end..first.value.span.start];
                text.ends_with(WHITE)
            }),
            _ => true,
        }
    }
}

const WHITE: [char; 4] = [' ', '\t', '\r', '\n'];
const BREAK: [char; 2] = ['\r', '\n'];

fn format_member(key: Option<&str>, printed: &str, spaced: bool) -> String {
    match key {
        Some(key) => format!("{}:{}{printed}", super::value::quote_json(key), if spaced { " " } else { "" }),
        None => printed.to_owned(),
    }
}

/// Whether the text before and after a lone entry is what [`Value::pretty`] or [`Value::compact`] writes.
fn looks_generated(before: &str, after: &str) -> bool {
    let on_own_line = |text: &str| {
        text.trim_start_matches('\r')
            .strip_prefix('\n')
            .is_some_and(|rest| rest.trim_matches([' ', '\t']).is_empty())
    };
    (before.is_empty() && after.is_empty()) || (on_own_line(before) && on_own_line(after))
}

/// Returns how many bytes after a lone entry to remove with it: the line break of a container made with the entry, or the
/// blank line that [`JsoncDocument::fill`] added.
fn added_line_break_len(after: &str) -> usize {
    let rest = after.strip_prefix("\r\n").or_else(|| after.strip_prefix('\n'));
    match rest {
        Some(rest) if rest.starts_with(BREAK) => after.len() - rest.len(),
        Some(rest) if is_whitespace(rest) && !rest.contains('\n') => after.len(),
        _ => 0,
    }
}

fn is_whitespace(text: &str) -> bool {
    text.trim_matches(WHITE).is_empty()
}
