//! The interface of full-text search: the documents to index, the search, and its result.
//!
//! Texts are not part of a commit. They all follow from what is stored already, and tokenising them costs more than
//! everything else that a hook commits. So a caller that searches first indexes the steps that are not indexed yet
//! ([`crate::port::SearchStore::unindexed`], [`crate::port::SearchStore::index`]). A store may keep the index, or drop it at any time.

use stepback_model::ids::WorkspaceId;
use stepback_model::search::{Pattern, TextSnippet, Texts};

use crate::codec;
use crate::error::StoreError;
use crate::port::StepRow;
use crate::query::StepQuery;

/// A step with its texts, to be indexed.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct SearchDocument {
    /// The step as it was when the texts were gathered.
    pub stored: StepRow,
    /// The texts of the step.
    pub texts: Texts,
}

/// What to search for, and in which steps.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct SearchRequest {
    /// The words or the substring to find.
    pub pattern: Pattern,
    /// Only steps of this workspace; `None` for all.
    pub workspace: Option<WorkspaceId>,
    /// Only steps that match this query. Its cursor and limit are ignored; its order counts only where `ranked` is false.
    pub among: StepQuery,
    /// Best match first, by BM25; ties are newest first. A substring matches or does not, so all of its hits are ties.
    pub ranked: bool,
    /// Number of hits to skip.
    pub skip: u64,
    /// Maximum number of hits to return.
    pub limit: u64,
}

impl SearchRequest {
    /// Searches all workspaces, best match first.
    pub fn new(pattern: Pattern, limit: u64) -> Self {
        Self { pattern, workspace: None, among: StepQuery::default(), ranked: true, skip: 0, limit }
    }
}

/// A step that matches a search.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct SearchHit {
    /// The workspace of the step.
    pub workspace: WorkspaceId,
    /// The step as it is now.
    pub stored: StepRow,
    /// How well it matches; higher is better. 0 if the search was not ranked.
    pub score: f64,
    /// The matching excerpts; at least one.
    pub snippets: Vec<TextSnippet>,
}

/// The result of a search.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct SearchResult {
    /// The hits, in the requested order.
    pub hits: Vec<SearchHit>,
    /// The number of matching steps.
    pub total: u64,
    /// Whether `total` is only a lower bound, because the store stopped counting.
    pub at_least: bool,
    /// The value of `skip` for the next page; `None` if this is the last page.
    pub next: Option<u64>,
}

/// BM25 as SQLite's FTS5 computes it, so that all stores rank alike.
#[derive(Clone, Copy, Debug)]
pub struct Ranking {
    /// The number of indexed steps.
    pub documents: f64,
    /// The average number of words per step.
    pub average: f64,
}

impl Ranking {
    /// The weight of a phrase that `having` steps contain.
    pub fn weight(&self, having: u64) -> f64 {
        let having = having as f64;
        let weight = ((self.documents - having + 0.5) / (having + 0.5)).ln();
        // A word that most steps contain says little, but its weight must stay positive.
        if weight > 0.0 { weight } else { 1e-6 }
    }

    /// What a phrase of this weight adds to the score of a step that contains it `count` times among `length` words.
    pub fn score(&self, weight: f64, count: u64, length: u64) -> f64 {
        const SATURATION: f64 = 1.2;
        const LENGTH_NORMALIZATION: f64 = 0.75;
        let count = count as f64;
        let longer =
            1.0 - LENGTH_NORMALIZATION + LENGTH_NORMALIZATION * length as f64 / self.average.max(1.0);
        weight * (count * (SATURATION + 1.0) / (count + SATURATION * longer))
    }
}

/// Texts as an index keeps them, compressed if that helps, with their length before compression; 0 means not compressed.
pub fn pack(texts: &Texts) -> (usize, Vec<u8>) {
    // Names and texts always serialise.
    let raw = serde_json::to_vec(texts).unwrap_or_default();
    match codec::compress(&raw) {
        Some(packed) => (raw.len(), packed),
        None => (0, raw),
    }
}

/// Reverses [`pack`].
pub fn unpack(raw_len: i64, text: &[u8]) -> Result<Texts, StoreError> {
    let damaged = |what: String| StoreError::Corrupt { what: format!("the index: {what}") };
    let read = |bytes: &[u8]| serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()));
    match usize::try_from(raw_len) {
        Ok(0) | Err(_) => read(text),
        Ok(length) => read(&codec::decompress(text, length, None).map_err(damaged)?),
    }
}
