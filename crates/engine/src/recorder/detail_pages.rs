//! Pages that hold the details of steps recorded together, so that a commit of a thousand steps adds a few dozen objects
//! instead of a thousand.
//!
//! Each session has pages of its own: a bundle or copy of a session includes the pages of its steps, and must not contain
//! details of another session.

use std::collections::HashMap;

use serde_json::Value;
use stepback_model::hash::Hash;
use stepback_model::ids::SessionId;
use stepback_model::json::{ValuePage, ValueRoot};
use stepback_store::ObjectBatch;

use crate::error::EngineError;

/// Where a detail will be once its page is stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageRef {
    page: usize,
    part: u32,
}

/// The pages of one commit.
#[derive(Default)]
pub(super) struct DetailPages {
    /// The hash of each page, by page number; `None` while the page is not stored.
    stored: Vec<Option<Hash>>,
    /// The page of each session that is not full yet, with its number.
    open: HashMap<SessionId, (usize, ValuePage)>,
}

impl DetailPages {
    /// Puts a detail on a page of its session; `None` if the detail is too large for a page.
    pub fn add(
        &mut self,
        batch: &dyn ObjectBatch,
        session: SessionId,
        fields: &[(&str, &Value)],
    ) -> Result<Option<PageRef>, EngineError> {
        let stored = &mut self.stored;
        let (number, page) = self.open.entry(session).or_insert_with(|| {
            stored.push(None);
            (stored.len() - 1, ValuePage::default())
        });
        let Some(part) = page.add(fields) else { return Ok(None) };
        let slip = PageRef { page: *number, part };
        if page.is_full()
            && let Some((number, page)) = self.open.remove(&session)
        {
            self.stored[number] = Some(page.store(batch)?);
        }
        Ok(Some(slip))
    }

    /// Stores the remaining pages and returns where every page is.
    pub fn store(mut self, batch: &dyn ObjectBatch) -> Result<StoredPages, EngineError> {
        for (number, page) in self.open.into_values().filter(|(_, page)| !page.is_empty()) {
            self.stored[number] = Some(page.store(batch)?);
        }
        Ok(StoredPages(self.stored))
    }
}

/// The hashes of the stored pages, by page number.
pub(super) struct StoredPages(Vec<Option<Hash>>);

impl StoredPages {
    /// Returns where a detail is stored.
    pub fn locate(&self, slip: PageRef) -> Option<ValueRoot> {
        let node = (*self.0.get(slip.page)?)?;
        Some(ValueRoot { node, part: Some(slip.part) })
    }
}
