//! Structurally shared lists: the chunks of a large file, the messages of a conversation.
//!
//! A list is a tree of [`ObjectKind::List`] nodes. Where one node ends and the next begins is decided by the hashes of
//! what it holds, never by how the list came about, so:
//!
//! - **equal sequences have equal roots**, whatever the history of edits (equality is one comparison);
//! - appending to a list, or changing its middle, writes only the nodes on the path to the change;
//! - the difference of two lists is found by skipping every node they share.
//!
//! # Shape
//!
//! A node closes after an entry whose hash ends in six zero bits, once it has [`MIN_FANOUT`] entries, and at the latest
//! after [`MAX_FANOUT`] entries; the last node of a level may be shorter. Level 0 holds items, level `n + 1` holds the
//! nodes of level `n`; the root is the only node of the lowest level that has just one. The minimum guarantees that every
//! level is much shorter than the one below, even for a list that repeats one item a million times. An edit can
//! move boundaries only up to the next one that the old and the new sequence share, usually the very next.
//!
//! # Who owns the items
//!
//! A list does not know what its items are. [`children`] tells a garbage collector which references are list nodes and
//! which are items; the owner of the list (a file, a conversation) knows the kind of object an item's hash names.
//!
//! # Hostile bytes
//!
//! Nodes are decoded strictly: one encoding per node, at most [`MAX_FANOUT`] entries, levels that fall by exactly one
//! from parent to child, counts and weights that agree. So no node can make a reader recurse, loop or allocate without
//! bound. Every read of an inconsistent list is an [`ObjectError::Corrupt`].

mod diff;
mod edit;
mod node;
mod read;
#[cfg(test)]
pub(crate) mod tests;

pub use diff::{DiffRange, ListDiff, diff};
pub use edit::{SpliceError, append, build, splice};
pub(crate) use node::ends_in_zero_bits;
pub use node::{Child, MAX_FANOUT, MIN_FANOUT, children};
pub use read::{Iter, Located, at_weight, get, iter, iter_from, len, weight};

use crate::hash::Hash;
#[cfg(doc)]
use crate::{ObjectKind, object::ObjectError};

/// One element of a list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ListItem {
    /// Hash of the object that the item refers to.
    pub hash: Hash,
    /// Its weight: the bytes of a chunk, or 1 for a message.
    pub len: u64,
}
