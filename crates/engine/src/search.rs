//! Looking for words in everything that was recorded.
//!
//! What is known of a step is spread over its row, its detail, the conversation and the files it changed. Here it becomes
//! texts, for those steps that the store has not been told about; then the store is asked. Secrets were taken out of all of
//! it before it was stored.

mod texts;

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use stepback_store::port::{Document, Found, Search};

use self::texts::Gatherer;
use crate::error::EngineError;
use crate::read_cache::LastRead;
use crate::workspace::{Engine, StoreSource};

/// How many steps the store is told about before a search that should be prompt.
const PROMPTLY: u64 = 400;
/// How many steps the store is told about at once, at most: sorting the words of many costs less for each.
const AT_ONCE: usize = 4000;
/// How many bytes of texts are in memory for that, about.
const MOST_BYTES: usize = 8 << 20;

impl Engine<'_> {
    /// Finds steps by their words. Tells the store about new steps first.
    pub fn search(&self, search: &Search) -> Result<Found, EngineError> {
        self.bring_index_up_to_date()?;
        Ok(self.store.search(search)?)
    }

    /// Finds steps by their words, without telling the store about more than a few steps first. Says whether it knows all.
    pub fn search_promptly(&self, search: &Search) -> Result<(Found, bool), EngineError> {
        let (_, complete) = self.bring_index_forward(PROMPTLY)?;
        Ok((self.store.search(search)?, complete))
    }

    /// Tells the store about steps that were recorded, annotated or given up since the last search, and says how many.
    pub fn bring_index_up_to_date(&self) -> Result<u64, EngineError> {
        Ok(self.bring_index_forward(u64::MAX)?.0)
    }

    /// Like [`Self::bring_index_up_to_date`] for about `most` steps; says whether these were all.
    pub fn bring_index_forward(&self, most: u64) -> Result<(u64, bool), EngineError> {
        let source = StoreSource(self.store);
        let mut gatherer =
            Gatherer { store: self.store, details: LastRead::new(&source), heard: HashMap::new() };
        let mut told = 0;
        let mut last = Vec::new();
        loop {
            if told >= most {
                return Ok((told, self.store.unindexed(1)?.is_empty()));
            }
            let at_once = AT_ONCE.min(usize::try_from(most - told).unwrap_or(AT_ONCE));
            let steps = self.store.unindexed(at_once)?;
            let ids: Vec<_> = steps.iter().map(|stored| stored.checkpoint.step.id).collect();
            // A step that stays unknown after the store was told about it would be told forever.
            if steps.is_empty() || ids == last {
                return Ok((told, true));
            }
            last = ids;
            let (mut documents, mut bytes) = (Vec::with_capacity(steps.len()), 0);
            for stored in steps {
                let texts = gatherer.texts(&stored);
                bytes += texts.values().map(String::len).sum::<usize>();
                documents.push(Document { texts, stored });
                // The others come next time.
                if bytes > MOST_BYTES {
                    break;
                }
            }
            told += documents.len() as u64;
            if let Some(progress) = self.progress {
                progress.fetch_add(documents.len() as u64, Ordering::Relaxed);
            }
            self.store.index(&documents)?;
        }
    }
}
