//! Where the details of steps go that are recorded together: on pages, so that a commit of a thousand steps has a few dozen
//! objects more instead of a thousand.
//!
//! Each session has pages of its own. Whoever is given a session, in a bundle or a copy, is given the pages of its steps, and
//! must find nothing of another one there.

use std::collections::HashMap;

use serde_json::Value;
use stepback_model::hash::Hash;
use stepback_model::ids::SessionId;
use stepback_model::json::{Page, Root};
use stepback_store::ObjectBatch;

use super::step_writer::unstorable;
use crate::error::EngineError;

/// Where a detail will be once its page is stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageRef {
    page: usize,
    part: u32,
}

/// The pages of one commit.
#[derive(Default)]
pub(super) struct Pages {
    /// Where those are that are stored.
    stored: Vec<Option<Hash>>,
    /// The one of each session that takes more.
    open: HashMap<SessionId, (usize, Page)>,
}

impl Pages {
    /// Puts a detail on a page of its session; `None` if it is too large for one.
    pub fn add(
        &mut self,
        batch: &dyn ObjectBatch,
        session: SessionId,
        fields: &[(&str, &Value)],
    ) -> Result<Option<PageRef>, EngineError> {
        let stored = &mut self.stored;
        let (number, page) = self.open.entry(session).or_insert_with(|| {
            stored.push(None);
            (stored.len() - 1, Page::default())
        });
        let Some(part) = page.add(fields) else { return Ok(None) };
        let slip = PageRef { page: *number, part };
        if page.is_full()
            && let Some((number, page)) = self.open.remove(&session)
        {
            self.stored[number] = Some(page.store(batch).map_err(unstorable)?);
        }
        Ok(Some(slip))
    }

    /// Stores what is left, and tells where details are.
    pub fn store(mut self, batch: &dyn ObjectBatch) -> Result<Stored, EngineError> {
        for (number, page) in self.open.into_values().filter(|(_, page)| !page.is_empty()) {
            self.stored[number] = Some(page.store(batch).map_err(unstorable)?);
        }
        Ok(Stored(self.stored))
    }
}

/// Pages that are stored.
pub(super) struct Stored(Vec<Option<Hash>>);

impl Stored {
    /// Where a detail is.
    pub fn place(&self, slip: PageRef) -> Option<Root> {
        let node = (*self.0.get(slip.page)?)?;
        Some(Root { node, part: Some(slip.part) })
    }
}
