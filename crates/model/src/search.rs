//! Looking for words in what was recorded: what a text consists of, what is asked for, and where it is found.
//!
//! Every store answers a search in the same way because all of them take a text apart here. A backend may keep an index to be
//! fast; which steps it finds, and what it marks in them, is decided by [`Pattern`] alone.

mod error;
mod find;
mod parse;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use error::PatternError;
pub use find::{Snippet, fold};

/// The part of a step that a text comes from. In this order they are shown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Field {
    /// What went wrong.
    Error,
    /// Label, note and tags.
    Annotation,
    /// What went in: a prompt, the input of a call.
    Input,
    /// What came out of a call.
    Output,
    /// What the model said.
    Message,
    /// Paths of files that changed.
    Path,
    /// The one line for people.
    Summary,
}

impl Field {
    /// Every field, in order.
    pub const ALL: [Self; 7] =
        [Self::Error, Self::Annotation, Self::Input, Self::Output, Self::Message, Self::Path, Self::Summary];

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
        }
    }
}

/// The texts of one step, at most one for each field.
pub type Texts = BTreeMap<Field, String>;

/// Words that follow each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Phrase {
    /// The words, folded; at least one.
    pub words: Vec<String>,
    /// The last one need only begin like this.
    pub prefix: bool,
}

/// What is looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Every phrase of the first list, and none of the second. The first is not empty.
    Words {
        /// What must be there.
        with: Vec<Phrase>,
        /// What must not.
        without: Vec<Phrase>,
    },
    /// These characters, wherever they are; folded, and not empty.
    Substring(String),
}

/// A word in a text: its bytes, and what it is compared by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Word<'t> {
    /// Where it begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// Folded, and cut off at [`LONGEST_WORD`] characters. Most words are what they are compared by.
    pub text: Cow<'t, str>,
}

/// Characters of a word that count. What is longer is data, of which the beginning says enough.
pub const LONGEST_WORD: usize = 64;

/// The words of a text: letters, digits and underscores that stand together.
pub fn words(text: &str) -> impl Iterator<Item = Word<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = end_of(text, at, |c| !is_word(c));
        if start == text.len() {
            at = start;
            return None;
        }
        let end = end_of(text, start, is_word);
        at = end;
        let word = &text[start..end];
        let is_folded = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let text = match word.len() <= LONGEST_WORD && word.bytes().all(is_folded) {
            true => Cow::Borrowed(word),
            false => word.chars().take(LONGEST_WORD).map(find::fold_char).collect(),
        };
        Some(Word { start, end, text })
    })
}

/// Where the characters of a kind end that begin at `from`.
fn end_of(text: &str, from: usize, is_one: impl Fn(char) -> bool) -> usize {
    let bytes = text.as_bytes();
    let mut at = from;
    while let Some(byte) = bytes.get(at) {
        let c = match byte.is_ascii() {
            true => char::from(*byte),
            // `at` is always where a character begins.
            false => text[at..].chars().next().unwrap_or(char::REPLACEMENT_CHARACTER),
        };
        if !is_one(c) {
            break;
        }
        at += c.len_utf8();
    }
    at
}

fn is_word(c: char) -> bool {
    match c.is_ascii() {
        true => c.is_ascii_alphanumeric() || c == '_',
        false => c.is_alphanumeric(),
    }
}

#[cfg(test)]
mod tests;
