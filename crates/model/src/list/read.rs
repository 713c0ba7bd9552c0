//! Reading lists: length, weight, one item, or all of them lazily.

use super::ListItem;
use super::node::Node;
use crate::hash::Hash;
use crate::object::{ObjectError, ObjectSource};

/// Number of items. Reads one node.
pub fn len(source: &(impl ObjectSource + ?Sized), root: Hash) -> Result<u64, ObjectError> {
    Ok(Node::load(source, root)?.parent_entry(root).count)
}

/// Sum of the items' weights, `u64::MAX` if it is larger. Reads one node.
pub fn weight(source: &(impl ObjectSource + ?Sized), root: Hash) -> Result<u64, ObjectError> {
    Ok(Node::load(source, root)?.parent_entry(root).weight)
}

/// The item at `index`, counted from 0; `None` past the end. Reads one node per level.
pub fn get(
    source: &(impl ObjectSource + ?Sized),
    root: Hash,
    index: u64,
) -> Result<Option<ListItem>, ObjectError> {
    Ok(descend(source, root, index, |count, _| count)?.map(|located| located.item))
}

/// An item and its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Located {
    /// The item.
    pub item: ListItem,
    /// Its index in the list.
    pub index: u64,
    /// Sum of the weights before it: for a chunk, its offset in the file.
    pub start: u64,
}

/// The item that contains the offset `offset` (in units of weight), such as the chunk that holds a byte of a file; `None`
/// past the end. Items of weight 0 contain nothing. Reads one node per level.
pub fn at_weight(
    source: &(impl ObjectSource + ?Sized),
    root: Hash,
    offset: u64,
) -> Result<Option<Located>, ObjectError> {
    descend(source, root, offset, |_, weight| weight)
}

/// Descends to the item at `position`, where `measure` picks count or weight as the unit.
fn descend(
    source: &(impl ObjectSource + ?Sized),
    root: Hash,
    mut position: u64,
    measure: impl Fn(u64, u64) -> u64,
) -> Result<Option<Located>, ObjectError> {
    let mut node = Node::load(source, root)?;
    let (mut index, mut start) = (0u64, 0u64);
    loop {
        let mut child = None;
        for entry in &node.entries {
            let size = measure(entry.count, entry.weight);
            if position < size {
                child = Some(*entry);
                break;
            }
            position -= size;
            index = index.saturating_add(entry.count);
            start = start.saturating_add(entry.weight);
        }
        let Some(entry) = child else { return Ok(None) };
        if node.level == 0 {
            let item = ListItem { hash: entry.hash, len: entry.weight };
            return Ok(Some(Located { item, index, start }));
        }
        node = Node::load_child(source, entry, node.level)?;
    }
}

/// All items in order. Nodes are read lazily.
pub fn iter<S: ObjectSource>(source: S, root: Hash) -> Iter<S> {
    iter_from(source, root, 0)
}

/// The items from `index` on. Skips whole nodes before it.
pub fn iter_from<S: ObjectSource>(source: S, root: Hash, index: u64) -> Iter<S> {
    Iter { source, start: Some((root, index)), path: Vec::new() }
}

/// Iterates over the items of a list; ends after the first error.
pub struct Iter<S> {
    source: S,
    /// The root and how many items to skip, until the first item is requested.
    start: Option<(Hash, u64)>,
    /// The nodes from the root down to the current leaf, each with the entry to visit next.
    path: Vec<(Node, usize)>,
}

impl<S: ObjectSource> Iter<S> {
    fn next_item(&mut self) -> Result<Option<ListItem>, ObjectError> {
        if let Some((root, skip)) = self.start.take() {
            self.open(root, skip)?;
        }
        loop {
            let Some((node, index)) = self.path.last_mut() else { return Ok(None) };
            let Some(entry) = node.entries.get(*index).copied() else {
                self.path.pop();
                continue;
            };
            *index += 1;
            if node.level == 0 {
                return Ok(Some(ListItem { hash: entry.hash, len: entry.weight }));
            }
            let child = Node::load_child(&self.source, entry, node.level)?;
            self.path.push((child, 0));
        }
    }

    fn open(&mut self, root: Hash, mut skip: u64) -> Result<(), ObjectError> {
        let mut node = Node::load(&self.source, root)?;
        loop {
            let mut index = 0;
            while let Some(entry) = node.entries.get(index).filter(|entry| entry.count <= skip) {
                skip -= entry.count;
                index += 1;
            }
            let child = if skip > 0 && node.level > 0 { node.entries.get(index).copied() } else { None };
            let level = node.level;
            self.path.push((node, index + usize::from(child.is_some())));
            match child {
                Some(entry) => node = Node::load_child(&self.source, entry, level)?,
                None => return Ok(()),
            }
        }
    }
}

impl<S: ObjectSource> Iterator for Iter<S> {
    type Item = Result<ListItem, ObjectError>;

    fn next(&mut self) -> Option<Self::Item> {
        let result = self.next_item();
        if result.is_err() {
            self.path.clear();
        }
        result.transpose()
    }
}
