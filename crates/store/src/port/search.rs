//! Full-text search.

use stepback_model::record::StepRow;

use crate::error::StoreError;
use crate::search::{SearchDocument, SearchRequest, SearchResult};

/// Indexes the texts of steps and finds them.
///
/// The index follows from the log, may be removed at any time, and is no part of commits. All stores find the same steps, in
/// the same order, with the same highlights.
pub trait SearchStore {
    /// Steps whose search index entry is missing or out of date, in commit order; at most `most`. These are the steps that
    /// were committed, annotated or purged since they were last passed to [`Self::index`].
    fn unindexed(&self, most: usize) -> Result<Vec<StepRow>, StoreError>;
    /// Adds the texts of steps to the search index, replacing what was indexed for these steps before.
    fn index(&self, documents: &[SearchDocument]) -> Result<(), StoreError>;
    /// Clears the search index; every step is unindexed then.
    fn forget_index(&self) -> Result<(), StoreError>;
    /// The indexed steps that match `search`.
    fn search(&self, search: &SearchRequest) -> Result<SearchResult, StoreError>;
}
