//! Finds a pattern in a text, and selects the excerpt to show.

use serde::{Deserialize, Serialize};

use super::{Pattern, Phrase, TextField, Texts, Word, words};

/// Bytes shown before the first mark, and after it.
const BYTES_BEFORE_MARK: usize = 60;
const BYTES_AFTER_MARK: usize = 140;
/// Maximum number of marks in one snippet.
const MAX_MARKS: usize = 32;

/// An excerpt of a text, with the matches in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TextSnippet {
    /// The field that the text comes from.
    pub field: TextField,
    /// The excerpt.
    pub text: String,
    /// The matches as byte ranges of `text`, the end exclusive. In order, without overlap.
    pub marks: Vec<(usize, usize)>,
    /// Whether text was left out before the excerpt, and after it.
    pub cut: (bool, bool),
}

/// Folds case; every character becomes one character.
pub fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars().map(fold_char).collect()
}

/// A character in lower case. A character that would become several keeps only the first, so that positions can be counted.
pub(super) fn fold_char(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}

impl Phrase {
    /// Whether the phrase begins at the first of these words.
    fn is_prefix_of(&self, words: &[Word<'_>]) -> bool {
        let last = self.words.len() - 1;
        words.len() > last
            && self.words.iter().zip(words).enumerate().all(|(index, (expected, word))| match self.prefix {
                true if index == last => word.text.starts_with(expected.as_str()),
                _ => word.text == *expected,
            })
    }

    /// How often the phrase occurs in these words.
    pub fn count(&self, words: &[Word<'_>]) -> usize {
        (0..words.len()).filter(|index| self.is_prefix_of(&words[*index..])).count()
    }
}

impl Pattern {
    /// Whether a step with these texts matches.
    pub fn matches(&self, texts: &Texts) -> bool {
        match self {
            Self::Substring(substring) => texts.values().any(|text| fold(text).contains(substring.as_str())),
            Self::Words { with, without } => {
                let split: Vec<Vec<Word<'_>>> = texts.values().map(|text| words(text).collect()).collect();
                let occurs = |phrase: &Phrase| split.iter().any(|words| phrase.count(words) > 0);
                with.iter().all(occurs) && !without.iter().any(occurs)
            }
        }
    }

    /// The matches in a text, in order and without overlap.
    pub fn places(&self, text: &str) -> Vec<(usize, usize)> {
        let mut places: Vec<(usize, usize)> = match self {
            Self::Substring(substring) => substring_places(text, substring),
            Self::Words { with, .. } => {
                let split_words: Vec<Word<'_>> = words(text).collect();
                let phrase_span = |index: usize| {
                    let longest = with.iter().filter(|phrase| phrase.is_prefix_of(&split_words[index..]));
                    let end = longest.map(|phrase| split_words[index + phrase.words.len() - 1].end).max()?;
                    Some((split_words[index].start, end))
                };
                (0..split_words.len()).filter_map(phrase_span).collect()
            }
        };
        places.dedup_by(|later, earlier| {
            let overlaps = later.0 < earlier.1;
            if overlaps {
                earlier.1 = earlier.1.max(later.1);
            }
            overlaps
        });
        places
    }

    /// The excerpts to show of a matching step: for every field with a match, the part around the first one.
    pub fn snippets(&self, texts: &Texts) -> Vec<TextSnippet> {
        let snippet = |(field, text): (&TextField, &String)| {
            let places = self.places(text);
            let first = *places.first()?;
            let start = floor_char_boundary(text, first.0.saturating_sub(BYTES_BEFORE_MARK));
            let end = ceil_char_boundary(text, (first.0 + BYTES_AFTER_MARK).max(first.1).min(text.len()));
            let inside = places.iter().filter(|(_, last)| *last <= end).take(MAX_MARKS);
            Some(TextSnippet {
                field: *field,
                text: text[start..end].to_string(),
                marks: inside.map(|(from, to)| (from - start, to - start)).collect(),
                cut: (start > 0, end < text.len()),
            })
        };
        texts.iter().filter_map(snippet).collect()
    }
}

fn substring_places(text: &str, substring: &str) -> Vec<(usize, usize)> {
    let folded = fold(text);
    if text.is_ascii() {
        return folded
            .match_indices(substring)
            .map(|(offset, matched)| (offset, offset + matched.len()))
            .collect();
    }
    // Folding keeps the number of characters, but not that of bytes.
    let length = substring.chars().count();
    let starts: Vec<usize> = text.char_indices().map(|(offset, _)| offset).chain([text.len()]).collect();
    let (mut counted, mut chars) = (0, 0);
    let mut places = Vec::new();
    for (offset, _) in folded.match_indices(substring) {
        chars += folded[counted..offset].chars().count();
        counted = offset;
        places.push((starts[chars], starts[chars + length]));
    }
    places
}

fn floor_char_boundary(text: &str, mut offset: usize) -> usize {
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

fn ceil_char_boundary(text: &str, mut offset: usize) -> usize {
    while !text.is_char_boundary(offset) {
        offset += 1;
    }
    offset
}
