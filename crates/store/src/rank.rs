//! How well a step fits what is looked for: BM25, the same in every store that reads the texts it found.

use stepback_model::search::{Phrase, Texts, Word, words};

/// Phrases with what each of them is worth.
pub(crate) struct Ranking<'s> {
    phrases: Vec<(&'s Phrase, f64)>,
    /// How many words a step has on average.
    average: f64,
}

/// What a phrase is worth that `having` of `all` steps have. One that most of them have says little, but never less than
/// nothing.
pub(crate) fn weight(all: f64, having: f64) -> f64 {
    let weight = ((all - having + 0.5) / (having + 0.5)).ln();
    if weight > 0.0 { weight } else { 1e-6 }
}

impl<'s> Ranking<'s> {
    pub fn new(phrases: Vec<(&'s Phrase, f64)>, average: f64) -> Self {
        Self { phrases, average: average.max(1.0) }
    }

    pub fn score(&self, words: &[Vec<Word>]) -> f64 {
        const SATURATION: f64 = 1.2;
        const LENGTH: f64 = 0.75;
        let length = length(words) as f64;
        let one = |(phrase, weight): &(&Phrase, f64)| {
            let count = count(phrase, words);
            let longer = 1.0 - LENGTH + LENGTH * length / self.average;
            weight * (count * (SATURATION + 1.0) / (count + SATURATION * longer))
        };
        self.phrases.iter().map(one).sum()
    }
}

/// The words of each text.
pub(crate) fn take_apart(texts: &Texts) -> Vec<Vec<Word>> {
    texts.values().map(|text| words(text).collect()).collect()
}

/// How many words there are.
pub(crate) fn length(words: &[Vec<Word>]) -> usize {
    words.iter().map(Vec::len).sum()
}

/// How often a phrase is in them.
pub(crate) fn count(phrase: &Phrase, words: &[Vec<Word>]) -> f64 {
    words.iter().map(|words| phrase.count(words)).sum::<usize>() as f64
}
