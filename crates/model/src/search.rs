//! Full-text search: how a text is split into words, what a search asks for, and where it matches.
//!
//! Every store gives the same results because all of them split texts here. A backend may keep an index to be fast; which
//! steps match, and what is marked in them, is decided by [`Pattern`] alone.

mod error;
mod find;
mod parse;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use error::PatternError;
pub use find::{TextSnippet, fold};

/// The part of a step that a text comes from, in display order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TextField {
    /// The error message.
    Error,
    /// Label, note and tags.
    Annotation,
    /// The input: a prompt, the input of a call.
    Input,
    /// The output of a call.
    Output,
    /// A message of the model.
    Message,
    /// Paths of files that changed.
    Path,
    /// The one-line summary.
    Summary,
    /// Ids: of the task, the trace and its spans.
    Id,
}

impl TextField {
    /// Every field, in order.
    pub const ALL: [Self; 8] = [
        Self::Error,
        Self::Annotation,
        Self::Input,
        Self::Output,
        Self::Message,
        Self::Path,
        Self::Summary,
        Self::Id,
    ];

    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Annotation => "annotation",
            Self::Input => "input",
            Self::Output => "output",
            Self::Message => "message",
            Self::Path => "path",
            Self::Summary => "summary",
            Self::Id => "id",
        }
    }
}

/// The texts of one step, at most one for each field.
pub type Texts = BTreeMap<TextField, String>;

/// Consecutive words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Phrase {
    /// The words, folded; at least one.
    pub words: Vec<String>,
    /// Whether the last word matches as a prefix.
    pub prefix: bool,
}

/// What a search looks for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Pattern {
    /// Every phrase of the first list, and none of the second. The first is not empty.
    Words {
        /// Phrases that must occur.
        with: Vec<Phrase>,
        /// Phrases that must not occur.
        without: Vec<Phrase>,
    },
    /// These characters anywhere in a text; folded, and not empty.
    Substring(String),
}

/// A word in a text: its place, and the form in which it is compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Word<'t> {
    /// Byte offset of its beginning.
    pub start: usize,
    /// Byte offset of its end.
    pub end: usize,
    /// The compared form: folded, and cut off at [`LONGEST_WORD`] characters. For most words it equals the text itself.
    pub text: Cow<'t, str>,
}

/// Number of characters of a word that are compared. Longer words are data, of which the beginning is enough.
pub const LONGEST_WORD: usize = 64;

/// The words of a text: maximal runs of letters, digits and underscores.
pub fn words(text: &str) -> impl Iterator<Item = Word<'_>> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let start = end_of(text, offset, |c| !is_word(c));
        if start == text.len() {
            offset = start;
            return None;
        }
        let end = end_of(text, start, is_word);
        offset = end;
        let word = &text[start..end];
        let is_folded = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let text = match word.len() <= LONGEST_WORD && word.bytes().all(is_folded) {
            true => Cow::Borrowed(word),
            false => word.chars().take(LONGEST_WORD).map(find::fold_char).collect(),
        };
        Some(Word { start, end, text })
    })
}

/// The end of the run of characters that satisfy `is_member` and that begins at `from`.
fn end_of(text: &str, start: usize, is_member: impl Fn(char) -> bool) -> usize {
    let bytes = text.as_bytes();
    let mut end = start;
    while let Some(byte) = bytes.get(end) {
        let c = match byte.is_ascii() {
            true => char::from(*byte),
            // `end` is always a character boundary.
            false => text[end..].chars().next().unwrap_or(char::REPLACEMENT_CHARACTER),
        };
        if !is_member(c) {
            break;
        }
        end += c.len_utf8();
    }
    end
}

fn is_word(c: char) -> bool {
    match c.is_ascii() {
        true => c.is_ascii_alphanumeric() || c == '_',
        false => c.is_alphanumeric(),
    }
}

#[cfg(test)]
mod tests;
