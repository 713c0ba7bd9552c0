//! Full text: what is told to an index, what it is asked, what it answers.
//!
//! Texts are not part of a commit. All of them follow from what is stored already, and to take a text apart costs more than
//! everything else a hook commits; so whoever searches first tells the store about the steps that it does not know
//! ([`crate::Store::unindexed`], [`crate::Store::index`]). A store may keep what it was told, or forget it at any time.

use stepback_model::ids::WorkspaceId;
use stepback_model::search::{Pattern, Snippet, Texts};

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
