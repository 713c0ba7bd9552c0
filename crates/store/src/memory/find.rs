//! Queries and searches of the store in memory, by a full scan of all steps.

use stepback_model::search::{Pattern, Phrase, Word};

use super::Inner;
use crate::port::{SearchDocument, SearchHit, SearchRequest, SearchResult, SortKey, StepQuery, StepRow};
use crate::rank::{Ranking, count_phrase, take_apart, weight, word_count};
use crate::scan::matching_steps;

pub(super) fn unindexed_steps(inner: &Inner, most: usize) -> Vec<StepRow> {
    let said = |stored: &StepRow| (stored.annotation.clone(), stored.purged);
    let is_known = |stored: &&StepRow| {
        let known = inner.documents.get(&stored.step.id);
        known.is_none_or(|document| said(&document.stored) != said(stored))
    };
    inner.log.steps.iter().filter(is_known).take(most).cloned().collect()
}

pub(super) fn search(inner: &Inner, search: &SearchRequest) -> SearchResult {
    let mut hits: Vec<SearchHit> = Vec::new();
    let ranking = match (&search.pattern, search.ranked) {
        (Pattern::Words { with, without }, true) => Some(build_ranking(inner, with.iter().chain(without))),
        _ => None,
    };
    let among = match search.ranked {
        true => StepQuery { by: SortKey::Commit, oldest_first: false, ..search.among.clone() },
        false => search.among.clone(),
    };
    for (_, workspace, stored) in matching_steps(inner.log.rows(), search.workspace, &among) {
        let Some(document) = inner.documents.get(&stored.step.id) else { continue };
        if !search.pattern.matches(&document.texts) {
            continue;
        }
        let score = ranking.as_ref().map_or(0.0, |ranking| ranking.score(&take_apart(&document.texts)));
        let snippets = search.pattern.snippets(&document.texts);
        hits.push(SearchHit { workspace, stored: stored.clone(), score, snippets });
    }
    // The sort is stable: ties stay in the order of the query, newest first.
    hits.sort_by(|a, b| b.score.total_cmp(&a.score));
    let total = hits.len() as u64;
    let end = search.skip.saturating_add(search.limit);
    let usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let hits = hits.into_iter().skip(usize(search.skip)).take(usize(search.limit)).collect();
    SearchResult { hits, total, at_least: false, next: (end < total && search.limit > 0).then_some(end) }
}

/// Weighs phrases by how many of all steps contain them.
fn build_ranking<'s>(inner: &Inner, phrases: impl Iterator<Item = &'s Phrase>) -> Ranking<'s> {
    let split: Vec<Vec<Vec<Word>>> =
        inner.documents.values().map(|SearchDocument { texts, .. }| take_apart(texts)).collect();
    let all = split.len() as f64;
    let words: usize = split.iter().map(|words| word_count(words)).sum();
    let weigh = |phrase: &'s Phrase| {
        let having = split.iter().filter(|words| count_phrase(phrase, words) > 0.0).count() as f64;
        (phrase, weight(all, having))
    };
    Ranking::new(phrases.map(weigh).collect(), words as f64 / all)
}
