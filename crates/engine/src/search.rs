//! Full-text search in everything that was recorded.
//!
//! The text of a step is spread over its row, its detail, the conversation and the files it changed. This module gathers it
//! for the steps that the store has not indexed yet, and then queries the store's index. Secrets were removed from all of it
//! before it was stored.

mod texts;

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use stepback_store::port::{SearchDocument, SearchRequest, SearchResult};

use self::texts::TextCollector;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::read_cache::LastRead;
use crate::workspace::StoreSource;

/// How many steps are indexed before a search that should return quickly.
const PROMPT_INDEX_STEPS: u64 = 400;
/// The maximum number of steps in one batch: sorting the words of many costs less per step.
const MAX_BATCH_STEPS: usize = 4000;
/// Roughly how many bytes of text one batch holds in memory.
const MAX_BATCH_BYTES: usize = 8 << 20;

impl Engine {
    /// Finds steps by their words. Indexes all new steps first.
    pub fn search(&self, search: &SearchRequest) -> Result<SearchResult, EngineError> {
        self.update_index()?;
        Ok(self.store.search(search)?)
    }

    /// Finds steps by their words, but indexes only a few new steps first. Also returns whether the index is complete.
    pub fn search_with_partial_index(
        &self,
        search: &SearchRequest,
    ) -> Result<(SearchResult, bool), EngineError> {
        let (_, complete) = self.update_index_partially(PROMPT_INDEX_STEPS)?;
        Ok((self.store.search(search)?, complete))
    }

    /// Indexes the steps that were recorded, annotated or purged since the last search, and returns how many.
    pub fn update_index(&self) -> Result<u64, EngineError> {
        Ok(self.update_index_partially(u64::MAX)?.0)
    }

    /// Like [`Self::update_index`] for about `max_steps` steps; also returns whether the index is complete.
    pub fn update_index_partially(&self, max_steps: u64) -> Result<(u64, bool), EngineError> {
        let source = StoreSource(self.store());
        let mut gatherer = TextCollector {
            store: self.store(),
            details: LastRead::new(&source),
            indexed_messages: HashMap::new(),
        };
        let mut indexed = 0;
        let mut last = Vec::new();
        loop {
            if indexed >= max_steps {
                return Ok((indexed, self.store.unindexed(1)?.is_empty()));
            }
            let at_once =
                MAX_BATCH_STEPS.min(usize::try_from(max_steps - indexed).unwrap_or(MAX_BATCH_STEPS));
            let steps = self.store.unindexed(at_once)?;
            let ids: Vec<_> = steps.iter().map(|stored| stored.step.id).collect();
            // If the store returns the same steps again after indexing them, this would never end.
            if steps.is_empty() || ids == last {
                return Ok((indexed, true));
            }
            last = ids;
            let (mut documents, mut bytes) = (Vec::with_capacity(steps.len()), 0);
            for stored in steps {
                let texts = gatherer.collect_texts(&stored);
                bytes += texts.values().map(String::len).sum::<usize>();
                documents.push(SearchDocument { texts, stored });
                // The rest goes into the next batch.
                if bytes > MAX_BATCH_BYTES {
                    break;
                }
            }
            indexed += documents.len() as u64;
            if let Some(progress) = &self.progress {
                progress.fetch_add(documents.len() as u64, Ordering::Relaxed);
            }
            self.store.index(&documents)?;
        }
    }
}
