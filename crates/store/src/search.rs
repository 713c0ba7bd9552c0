//! Full text: what is told to an index, what it is asked, what it answers.
//!
//! Texts are not part of a commit. All of them follow from what is stored already, and to take a text apart costs more than
//! everything else a hook commits; so whoever searches first tells the store about the steps that it does not know
//! ([`crate::Store::unindexed`], [`crate::Store::index`]). A store may keep what it was told, or forget it at any time.

use stepback_model::ids::WorkspaceId;
use stepback_model::search::{Pattern, Snippet, Texts};

use crate::codec;
use crate::error::StoreError;
use crate::port::StoredCheckpoint;
use crate::query::Query;

/// The texts of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Document {
    /// The step as it was when the texts were gathered.
    pub stored: StoredCheckpoint,
    /// They.
    pub texts: Texts,
}

/// What is looked for, and where.
#[derive(Clone, Debug)]
pub struct Search {
    /// What.
    pub pattern: Pattern,
    /// In this workspace; `None` for all.
    pub workspace: Option<WorkspaceId>,
    /// In these steps. Cursor and limit are not looked at; the order only where `ranked` is false.
    pub among: Query,
    /// What fits best first, by BM25; what fits equally well, newest first. A substring fits or does not.
    pub ranked: bool,
    /// Leave out so many.
    pub skip: u64,
    /// At most so many.
    pub limit: u64,
}

impl Search {
    /// Looks everywhere and shows what fits best.
    pub fn new(pattern: Pattern, limit: u64) -> Self {
        Self { pattern, workspace: None, among: Query::default(), ranked: true, skip: 0, limit }
    }
}

/// A step that was found.
#[derive(Clone, PartialEq, Debug)]
pub struct Hit {
    /// Its workspace.
    pub workspace: WorkspaceId,
    /// It, as it is now.
    pub stored: StoredCheckpoint,
    /// How well it fits; more is better. 0 where nothing was ranked.
    pub score: f64,
    /// What was found in it; at least one.
    pub snippets: Vec<Snippet>,
}

/// What a search found.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Found {
    /// In order.
    pub hits: Vec<Hit>,
    /// How many steps fit in all.
    pub total: u64,
    /// Whether there are so many at least, and nobody counted further.
    pub at_least: bool,
    /// How many to leave out to go on, if there are more.
    pub next: Option<u64>,
}

/// BM25 as SQLite's FTS5 counts it, so that all stores rank alike.
#[derive(Clone, Copy, Debug)]
pub struct Ranking {
    /// How many steps are indexed.
    pub documents: f64,
    /// How many words they have on average.
    pub average: f64,
}

impl Ranking {
    /// How much a phrase says that `having` steps have.
    pub fn weight(&self, having: u64) -> f64 {
        let having = having as f64;
        let weight = ((self.documents - having + 0.5) / (having + 0.5)).ln();
        // A word that most steps have says little, but never less than nothing.
        if weight > 0.0 { weight } else { 1e-6 }
    }

    /// What a phrase of that weight adds to the score of a step that has it `count` times among `length` words.
    pub fn score(&self, weight: f64, count: u64, length: u64) -> f64 {
        const SATURATION: f64 = 1.2;
        const LENGTH: f64 = 0.75;
        let count = count as f64;
        let longer = 1.0 - LENGTH + LENGTH * length as f64 / self.average.max(1.0);
        weight * (count * (SATURATION + 1.0) / (count + SATURATION * longer))
    }
}

/// Texts as an index keeps them, compressed if that helps, and their length before; 0 says that nothing was compressed.
pub fn pack(texts: &Texts) -> (usize, Vec<u8>) {
    // Names and texts always serialise.
    let raw = serde_json::to_vec(texts).unwrap_or_default();
    match codec::compress(&raw) {
        Some(packed) => (raw.len(), packed),
        None => (0, raw),
    }
}

/// Undoes [`pack`].
pub fn unpack(raw_len: i64, text: &[u8]) -> Result<Texts, StoreError> {
    let damaged = |what: String| StoreError::Corrupt { what: format!("the index: {what}") };
    let read = |bytes: &[u8]| serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()));
    match usize::try_from(raw_len) {
        Ok(0) | Err(_) => read(text),
        Ok(length) => read(&codec::decompress(text, length, None).map_err(damaged)?),
    }
}
