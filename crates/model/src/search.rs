//! Looking for words in what was recorded: what a text consists of, what is asked for, and where it is found.
//!
//! Every store answers a search in the same way because all of them take a text apart here. A backend may keep an index to be
//! fast; which steps it finds, and what it marks in them, is decided by [`Pattern`] alone.

mod error;
mod find;
mod parse;

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
pub struct Word {
    /// Where it begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// Folded, and cut off at [`LONGEST_WORD`] characters.
    pub text: String,
}

/// Characters of a word that count. What is longer is data, of which the beginning says enough.
pub const LONGEST_WORD: usize = 64;

/// The words of a text: letters, digits and underscores that stand together.
pub fn words(text: &str) -> impl Iterator<Item = Word> {
    let mut chars = text.char_indices().peekable();
    std::iter::from_fn(move || {
        while chars.next_if(|(_, c)| !is_word(*c)).is_some() {}
        let start = chars.peek()?.0;
        let (mut end, mut folded, mut count) = (start, String::new(), 0);
        while let Some((at, c)) = chars.next_if(|(_, c)| is_word(*c)) {
            end = at + c.len_utf8();
            if count < LONGEST_WORD {
                folded.push(find::fold_char(c));
            }
            count += 1;
        }
        Some(Word { start, end, text: folded })
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests;
