//! Where in a text a pattern is found, and the part of it that is shown.

use serde::Serialize;

use super::{Field, Pattern, Phrase, Texts, Word, words};

/// Bytes shown before the first mark, and after it.
const BEFORE: usize = 60;
const AFTER: usize = 140;
/// Marks of one snippet.
const MOST_MARKS: usize = 32;

/// A part of a text, with what was found in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Snippet {
    /// Where it comes from.
    pub field: Field,
    /// The part.
    pub text: String,
    /// What was found: the first byte of each, and the byte after the last, in `text`. In order, and apart from each other.
    pub marks: Vec<(usize, usize)>,
    /// Whether the text begins before the part, and goes on after it.
    pub cut: (bool, bool),
}

/// A text in which case does not matter any more; every character becomes one character.
pub fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars().map(fold_char).collect()
}

/// A character in lower case. Those that would become several keep only the first, so that places can be counted.
pub(super) fn fold_char(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}

impl Phrase {
    /// Whether the phrase begins at the first of these words.
    fn begins(&self, found: &[Word<'_>]) -> bool {
        let last = self.words.len() - 1;
        found.len() > last
            && self.words.iter().zip(found).enumerate().all(|(at, (wanted, word))| match self.prefix {
                true if at == last => word.text.starts_with(wanted.as_str()),
                _ => word.text == *wanted,
            })
    }

    /// How often it is in these words.
    pub fn count(&self, words: &[Word<'_>]) -> usize {
        (0..words.len()).filter(|at| self.begins(&words[*at..])).count()
    }
}

impl Pattern {
    /// Whether a step with these texts is one that is looked for.
    pub fn matches(&self, texts: &Texts) -> bool {
        match self {
            Self::Substring(wanted) => texts.values().any(|text| fold(text).contains(wanted.as_str())),
            Self::Words { with, without } => {
                let split: Vec<Vec<Word<'_>>> = texts.values().map(|text| words(text).collect()).collect();
                let has = |phrase: &Phrase| split.iter().any(|words| phrase.count(words) > 0);
                with.iter().all(has) && !without.iter().any(has)
            }
        }
    }

    /// The places in a text that are looked for, in order and apart from each other.
    pub fn places(&self, text: &str) -> Vec<(usize, usize)> {
        let mut places: Vec<(usize, usize)> = match self {
            Self::Substring(wanted) => substring_places(text, wanted),
            Self::Words { with, .. } => {
                let found: Vec<Word<'_>> = words(text).collect();
                let at = |at: usize| {
                    let longest = with.iter().filter(|phrase| phrase.begins(&found[at..]));
                    let end = longest.map(|phrase| found[at + phrase.words.len() - 1].end).max()?;
                    Some((found[at].start, end))
                };
                (0..found.len()).filter_map(at).collect()
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

    /// What to show of a step that was found: of every field that has something of it, the part around the first place.
    pub fn snippets(&self, texts: &Texts) -> Vec<Snippet> {
        let snippet = |(field, text): (&Field, &String)| {
            let places = self.places(text);
            let first = *places.first()?;
            let start = floor(text, first.0.saturating_sub(BEFORE));
            let end = ceiling(text, (first.0 + AFTER).max(first.1).min(text.len()));
            let inside = places.iter().filter(|(_, last)| *last <= end).take(MOST_MARKS);
            Some(Snippet {
                field: *field,
                text: text[start..end].to_string(),
                marks: inside.map(|(from, to)| (from - start, to - start)).collect(),
                cut: (start > 0, end < text.len()),
            })
        };
        texts.iter().filter_map(snippet).collect()
    }
}

fn substring_places(text: &str, wanted: &str) -> Vec<(usize, usize)> {
    let folded = fold(text);
    if text.is_ascii() {
        return folded.match_indices(wanted).map(|(at, found)| (at, at + found.len())).collect();
    }
    // Folding keeps the number of characters, not that of bytes.
    let length = wanted.chars().count();
    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let (mut counted, mut chars) = (0, 0);
    let mut places = Vec::new();
    for (at, _) in folded.match_indices(wanted) {
        chars += folded[counted..at].chars().count();
        counted = at;
        places.push((starts[chars], starts[chars + length]));
    }
    places
}

fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ceiling(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}
