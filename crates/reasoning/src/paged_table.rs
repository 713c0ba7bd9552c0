//! Items in numbered pages that versions of a mind share.
//!
//! A mind is cloned for every change, so cloning must be cheap: a page is behind an [`Arc`], and only the page in which an
//! item changes is copied. A page also remembers how it was stored; one that has not changed since is not written again.

use std::sync::{Arc, OnceLock};

use stepback_model::json::Piece;

use crate::error::MindError;
use crate::ids::{ItemId, ItemKind};

/// Items per page. Small enough that rewriting a page is cheap, large enough that ten thousand items are few objects.
pub const PAGE: usize = 64;
/// The most items of one kind.
pub const MOST: usize = 100_000;

/// A page, and its object in the store.
#[derive(Debug)]
pub(crate) struct Page<T> {
    /// The items; `None` for one that was taken back.
    pub items: Vec<Option<T>>,
    /// Its object in the store, once it is stored.
    pub stored: OnceLock<Piece>,
    /// The stored object of the page it was copied from, as the base of a delta.
    pub before: Option<Piece>,
}

impl<T: Clone> Page<T> {
    pub fn new(items: Vec<Option<T>>, stored: Option<Piece>) -> Self {
        let cell = OnceLock::new();
        if let Some(piece) = stored {
            // Cannot fail: the cell is new and empty.
            let _ = cell.set(piece);
        }
        Self { items, stored: cell, before: None }
    }

    /// A copy that is about to change.
    fn fork(&self) -> Self {
        let delta_base = self.stored.get().or(self.before.as_ref()).cloned();
        Self { items: self.items.clone(), stored: OnceLock::new(), before: delta_base }
    }
}

/// All items of one kind.
#[derive(Clone, Debug)]
pub struct Table<T> {
    pub(crate) kind: ItemKind,
    pub(crate) pages: Vec<Arc<Page<T>>>,
}

impl<T: Clone + PartialEq> Table<T> {
    pub(crate) fn new(kind: ItemKind) -> Self {
        Self { kind, pages: Vec::new() }
    }

    /// The highest number in use.
    pub fn newest(&self) -> u32 {
        let full = self.pages.len().saturating_sub(1) * PAGE;
        // Bounded by `MOST`.
        (full + self.pages.last().map_or(0, |page| page.items.len())) as u32
    }

    /// The number of items, without those that were taken back.
    pub fn count(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The item with this number.
    pub fn get(&self, number: u32) -> Option<&T> {
        let index = (number as usize).checked_sub(1)?;
        self.pages.get(index / PAGE)?.items.get(index % PAGE)?.as_ref()
    }

    /// The item with this number, or an error that says why there is none.
    pub fn require(&self, number: u32) -> Result<&T, MindError> {
        let item = ItemId { kind: self.kind, number };
        let newest = self.newest();
        self.get(number).ok_or(match number {
            n if n >= 1 && n <= newest => MindError::TakenBack(item),
            _ => MindError::Unknown { item, newest },
        })
    }

    /// All items with their numbers, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u32, &T)> {
        self.pages.iter().enumerate().flat_map(|(page, page_items)| {
            page_items
                .items
                .iter()
                .enumerate()
                .filter_map(move |(index, item)| Some(((page * PAGE + index + 1) as u32, item.as_ref()?)))
        })
    }

    /// Changes an existing item.
    pub(crate) fn change<R>(&mut self, number: u32, edit: impl FnOnce(&mut T) -> R) -> Result<R, MindError> {
        self.require(number)?;
        let slot = self.slot(number);
        // Cannot fail: `require` has found it.
        let item = slot.as_mut().ok_or(MindError::TakenBack(ItemId { kind: ItemKind::Note, number }))?;
        Ok(edit(item))
    }

    /// Appends an item and returns its number.
    pub(crate) fn push(&mut self, item: T) -> Result<u32, MindError> {
        if self.newest() as usize >= MOST {
            return Err(MindError::TooMany {
                what: self.kind.plural(),
                most: MOST,
                remedy: "start a new session, or choose another one with --session",
            });
        }
        match self.pages.last_mut().filter(|page| page.items.len() < PAGE) {
            Some(page) => {
                let mut fork = page.fork();
                fork.items.push(Some(item));
                *page = Arc::new(fork);
            }
            None => self.pages.push(Arc::new(Page::new(vec![Some(item)], None))),
        }
        Ok(self.newest())
    }

    /// Sets or clears the item of a number that is in use.
    pub(crate) fn put(&mut self, number: u32, item: Option<T>) {
        if self.get(number) != item.as_ref() {
            *self.slot(number) = item;
        }
    }

    /// The slot of a number that is in use.
    fn slot(&mut self, number: u32) -> &mut Option<T> {
        let index = number as usize - 1;
        let page = &mut self.pages[index / PAGE];
        let mut fork = page.fork();
        // A page behind a new Arc has one owner.
        fork.items.shrink_to_fit();
        *page = Arc::new(fork);
        match Arc::get_mut(page) {
            Some(page) => &mut page.items[index % PAGE],
            None => unreachable!("the page was made here"),
        }
    }

    /// Whether both tables share this page.
    pub(crate) fn shares_page(&self, other: &Self, page: usize) -> bool {
        match (self.pages.get(page), other.pages.get(page)) {
            (Some(a), Some(b)) => {
                Arc::ptr_eq(a, b) || matches!((a.stored.get(), b.stored.get()), (Some(a), Some(b)) if a == b)
            }
            _ => false,
        }
    }

    /// Numbers whose items differ between two tables, skipping pages they share.
    pub(crate) fn differing(&self, other: &Self) -> Vec<u32> {
        let pages = self.pages.len().max(other.pages.len());
        let mut differing_numbers = Vec::new();
        for page in (0..pages).filter(|page| !self.shares_page(other, *page)) {
            let numbers = (page * PAGE + 1) as u32..=((page + 1) * PAGE) as u32;
            differing_numbers.extend(numbers.filter(|number| self.get(*number) != other.get(*number)));
        }
        differing_numbers
    }
}

impl<T: Clone + PartialEq> PartialEq for Table<T> {
    fn eq(&self, other: &Self) -> bool {
        self.newest() == other.newest() && self.differing(other).is_empty()
    }
}
