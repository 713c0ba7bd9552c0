//! Queries and searches in memory: every step is looked at.

use stepback_model::search::{Pattern, Phrase, Texts, Word, words};

use super::Inner;
use crate::port::{By, Document, Found, Hit, Query, Search, StoredCheckpoint};
use crate::scan::matching;
use crate::search::Ranking;

pub(super) fn unindexed(inner: &Inner, most: usize) -> Vec<StoredCheckpoint> {
    let said = |stored: &StoredCheckpoint| (stored.checkpoint.annotation.clone(), stored.purged);
    let is_known = |stored: &&StoredCheckpoint| {
        let known = inner.documents.get(&stored.checkpoint.step.id);
        known.is_none_or(|document| said(&document.stored) != said(stored))
    };
    inner.log.steps.iter().filter(is_known).take(most).cloned().collect()
}

pub(super) fn search(inner: &Inner, search: &Search) -> Found {
    let mut hits: Vec<Hit> = Vec::new();
    let scores = match (&search.pattern, search.ranked) {
        (Pattern::Words { with, without }, true) => Some(Scores::new(inner, with.iter().chain(without))),
        _ => None,
    };
    let among = match search.ranked {
        true => Query { by: By::Commit, oldest_first: false, ..search.among.clone() },
        false => search.among.clone(),
    };
    for (_, workspace, stored) in matching(inner.log.rows(), search.workspace, &among) {
        let Some(document) = inner.documents.get(&stored.checkpoint.step.id) else { continue };
        if !search.pattern.matches(&document.texts) {
            continue;
        }
        let score = scores.as_ref().map_or(0.0, |scores| scores.score(&document.texts));
        let snippets = search.pattern.snippets(&document.texts);
        hits.push(Hit { workspace, stored: stored.clone(), score, snippets });
    }
    // The sort is stable: what fits equally well stays in the order of the query, newest first.
    hits.sort_by(|a, b| b.score.total_cmp(&a.score));
    let total = hits.len() as u64;
    let end = search.skip.saturating_add(search.limit);
    let usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let hits = hits.into_iter().skip(usize(search.skip)).take(usize(search.limit)).collect();
    Found { hits, total, at_least: false, next: (end < total && search.limit > 0).then_some(end) }
}

/// How well steps fit a few phrases.
struct Scores<'s> {
    phrases: Vec<(&'s Phrase, f64)>,
    ranking: Ranking,
}

impl<'s> Scores<'s> {
    fn new(inner: &Inner, phrases: impl Iterator<Item = &'s Phrase>) -> Self {
        let split: Vec<Vec<Vec<Word>>> =
            inner.documents.values().map(|Document { texts, .. }| take_apart(texts)).collect();
        let documents = split.len() as f64;
        let length: usize = split.iter().flatten().map(Vec::len).sum();
        let ranking = Ranking { documents, average: length as f64 / documents };
        let weigh = |phrase: &'s Phrase| {
            let having = split.iter().filter(|words| count(phrase, words) > 0).count();
            (phrase, ranking.weight(having as u64))
        };
        Self { phrases: phrases.map(weigh).collect(), ranking }
    }

    fn score(&self, texts: &Texts) -> f64 {
        let words = take_apart(texts);
        let length = words.iter().map(Vec::len).sum::<usize>() as u64;
        let one =
            |(phrase, weight): &(&Phrase, f64)| self.ranking.score(*weight, count(phrase, &words), length);
        self.phrases.iter().map(one).sum()
    }
}

fn take_apart(texts: &Texts) -> Vec<Vec<Word>> {
    texts.values().map(|text| words(text).collect()).collect()
}

fn count(phrase: &Phrase, words: &[Vec<Word>]) -> u64 {
    words.iter().map(|words| phrase.count(words)).sum::<usize>() as u64
}
