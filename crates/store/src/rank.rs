//! BM25 ranking, the same in every store that reads the texts of its matches.

use stepback_model::search::{Phrase, Texts, Word, words};

use crate::search;

/// The phrases of a search with their weights.
pub(crate) struct Ranking<'s> {
    phrases: Vec<(&'s Phrase, f64)>,
    formula: search::Ranking,
}

/// The weight of a phrase that `having` of `all` steps contain.
pub(crate) fn weight(all: f64, having: f64) -> f64 {
    search::Ranking { documents: all, average: 1.0 }.weight(having as u64)
}

impl<'s> Ranking<'s> {
    /// Creates a ranking; `average` is the average number of words per step.
    pub fn new(phrases: Vec<(&'s Phrase, f64)>, average: f64) -> Self {
        Self { phrases, formula: search::Ranking { documents: 0.0, average } }
    }

    pub fn score(&self, words: &[Vec<Word<'_>>]) -> f64 {
        let length = word_count(words) as u64;
        let one = |(phrase, weight): &(&Phrase, f64)| {
            self.formula.score(*weight, count_phrase(phrase, words) as u64, length)
        };
        self.phrases.iter().map(one).sum()
    }
}

/// The words of each text.
pub(crate) fn take_apart(texts: &Texts) -> Vec<Vec<Word<'_>>> {
    texts.values().map(|text| words(text).collect()).collect()
}

/// The total number of words.
pub(crate) fn word_count(words: &[Vec<Word<'_>>]) -> usize {
    words.iter().map(Vec::len).sum()
}

/// How often a phrase occurs in them.
pub(crate) fn count_phrase(phrase: &Phrase, words: &[Vec<Word<'_>>]) -> f64 {
    words.iter().map(|words| phrase.count(words)).sum::<usize>() as f64
}
