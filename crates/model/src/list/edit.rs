//! Building and editing lists.
//!
//! An edit works level by level. On each level, a range of old entries is replaced by new ones: entries are fed into
//! nodes from the start of the node before the range, through the new entries, and on through old entries until a new
//! node ends exactly where an old one did. From there on the old nodes stand. The nodes replaced that way are the range
//! of the level above. Ranges are kept in positions of the old list's items, which mean the same on every level.

use std::ops::Range;
use std::rc::Rc;

use super::ListItem;
use super::node::{Entry, Node, closes_node};
use super::read;
use crate::hash::{Hash, ObjectKind};
use crate::object::{ObjectError, ObjectSink, ObjectSource};

/// Why a list could not be edited.
#[derive(Debug, thiserror::Error)]
pub enum SpliceError {
    /// The range is not inside the list.
    #[error("items {start}..{end} are not in a list of {len}")]
    OutOfRange {
        /// First item of the requested range.
        start: u64,
        /// End of the requested range, exclusive.
        end: u64,
        /// Number of items in the list.
        len: u64,
    },
    /// An object could not be read or written.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

/// Stores a list of `items` and returns its root. The list may be empty.
pub fn build(
    sink: &(impl ObjectSink + ?Sized),
    items: impl IntoIterator<Item = ListItem>,
) -> Result<Hash, ObjectError> {
    let mut nodes = NodeWriter::new(sink, 0);
    for item in items {
        nodes.push(as_entry(item))?;
    }
    let leaves = nodes.finish()?;
    if leaves.is_empty() { write_empty(sink) } else { build_up(sink, 1, leaves) }
}

/// Adds `items` to the end of the list. The same as building the longer list, but reads and writes only its right edge.
pub fn append(
    source: &(impl ObjectSource + ?Sized),
    sink: &(impl ObjectSink + ?Sized),
    root: Hash,
    items: impl IntoIterator<Item = ListItem>,
) -> Result<Hash, ObjectError> {
    let len = read::len(source, root)?;
    replace_range(source, sink, root, len..len, items)
}

/// Replaces the items in `range` by `items`. The result is the root that [`build`] gives for the resulting sequence;
/// nodes away from the change are neither read nor written.
pub fn splice(
    source: &(impl ObjectSource + ?Sized),
    sink: &(impl ObjectSink + ?Sized),
    root: Hash,
    range: Range<u64>,
    items: impl IntoIterator<Item = ListItem>,
) -> Result<Hash, SpliceError> {
    let len = read::len(source, root)?;
    if range.start > range.end || range.end > len {
        return Err(SpliceError::OutOfRange { start: range.start, end: range.end, len });
    }
    Ok(replace_range(source, sink, root, range, items)?)
}

/// [`splice`] with a range known to be inside the list.
fn replace_range(
    source: &(impl ObjectSource + ?Sized),
    sink: &(impl ObjectSink + ?Sized),
    root: Hash,
    range: Range<u64>,
    items: impl IntoIterator<Item = ListItem>,
) -> Result<Hash, ObjectError> {
    let root_node = Rc::new(Node::load(source, root)?);
    let old = EditedList { source, root: root_node.parent_entry(root), node: root_node };
    let (mut covered, mut nodes) = old.edit_level(sink, 0, range, items.into_iter().map(as_entry))?;
    for level in 0..=old.node.level {
        if level > 0 {
            (covered, nodes) = old.edit_level(sink, level, covered, nodes.into_iter())?;
        }
        if covered == (0..old.root.count) {
            match nodes.as_slice() {
                [] => return write_empty(sink),
                [only] => return Ok(only.hash),
                _ => {}
            }
        }
    }
    // On the level of the old root, what is covered starts at 0 and ends either there or at the end.
    if covered.end < old.root.count {
        nodes.push(old.root);
    }
    build_up(sink, old.node.level + 1, nodes)
}

fn as_entry(item: ListItem) -> Entry {
    Entry { hash: item.hash, count: 1, weight: item.len }
}

fn write_empty(sink: &(impl ObjectSink + ?Sized)) -> Result<Hash, ObjectError> {
    sink.write(ObjectKind::List, &Node { level: 0, entries: Vec::new() }.encode(), None)
}

/// Adds levels on top of `entries`, which are all the nodes below `level`, until one is left.
fn build_up(
    sink: &(impl ObjectSink + ?Sized),
    mut level: u8,
    mut entries: Vec<Entry>,
) -> Result<Hash, ObjectError> {
    loop {
        if let [only] = entries.as_slice() {
            return Ok(only.hash);
        }
        let mut nodes = NodeWriter::new(sink, level);
        for entry in entries {
            nodes.push(entry)?;
        }
        entries = nodes.finish()?;
        level += 1;
    }
}

/// Groups entries into nodes of one level and writes them.
struct NodeWriter<'a, K: ?Sized> {
    sink: &'a K,
    node: Node,
    closed: Vec<Entry>,
    /// The old node near the one being built: reused if it is the same, otherwise passed as `similar_to`.
    nearby: Option<(Hash, Rc<Node>)>,
}

impl<'a, K: ObjectSink + ?Sized> NodeWriter<'a, K> {
    fn new(sink: &'a K, level: u8) -> Self {
        Self { sink, node: Node { level, entries: Vec::new() }, closed: Vec::new(), nearby: None }
    }

    fn push(&mut self, entry: Entry) -> Result<(), ObjectError> {
        self.node.entries.push(entry);
        if closes_node(entry.hash, self.node.entries.len()) { self.close() } else { Ok(()) }
    }

    fn close(&mut self) -> Result<(), ObjectError> {
        let hash = match &self.nearby {
            Some((hash, old)) if **old == self.node => *hash,
            nearby => {
                let similar_to = nearby.as_ref().map(|(hash, _)| *hash);
                self.sink.write(ObjectKind::List, &self.node.encode(), similar_to)?
            }
        };
        self.closed.push(self.node.parent_entry(hash));
        self.node.entries.clear();
        Ok(())
    }

    /// Whether a node has just been closed, so that the next one can be an old one.
    fn is_between_nodes(&self) -> bool {
        self.node.entries.is_empty() && !self.closed.is_empty()
    }

    fn finish(mut self) -> Result<Vec<Entry>, ObjectError> {
        if !self.node.entries.is_empty() {
            self.close()?;
        }
        Ok(self.closed)
    }
}

/// The list being edited.
struct EditedList<'a, S: ?Sized> {
    source: &'a S,
    root: Entry,
    node: Rc<Node>,
}

impl<S: ObjectSource + ?Sized> EditedList<'_, S> {
    /// Replaces the entries of the nodes at `level` that are in `range` by `new`. Returns the nodes written and the range
    /// of old nodes they replace. No node is written only if no entry is left at all.
    fn edit_level<K: ObjectSink + ?Sized>(
        &self,
        sink: &K,
        level: u8,
        range: Range<u64>,
        new: impl Iterator<Item = Entry>,
    ) -> Result<(Range<u64>, Vec<Entry>), ObjectError> {
        let total = self.root.count;
        let mut nodes = NodeWriter::new(sink, level);
        let mut start = 0;
        if range.start > 0 {
            let cursor = self.seek(level, range.start - 1)?;
            let last = &cursor.last;
            start = last.start;
            nodes.nearby = Some((last.hash, Rc::clone(&last.node)));
            let mut position = start;
            for entry in last.node.entries.iter().take_while(|entry| {
                position += entry.count;
                position <= range.start
            }) {
                nodes.push(*entry)?;
            }
        }
        for entry in new {
            nodes.push(entry)?;
        }
        if range.end >= total {
            return Ok((start..total, nodes.finish()?));
        }
        let mut cursor = self.seek(level, range.end)?;
        loop {
            let last = &cursor.last;
            if last.at == 0 && nodes.is_between_nodes() {
                return Ok((start..last.start, nodes.finish()?));
            }
            nodes.nearby = Some((last.hash, Rc::clone(&last.node)));
            for entry in &last.node.entries[last.at..] {
                nodes.push(*entry)?;
            }
            let end = last.start + last.node.parent_entry(last.hash).count;
            if nodes.is_between_nodes() || !cursor.next_node(self.source)? {
                return Ok((start..end, nodes.finish()?));
            }
        }
    }

    /// The path to the entry, in a node at `level`, that holds the item at `position`, which must be in the list.
    fn seek(&self, level: u8, position: u64) -> Result<Cursor, ObjectError> {
        let root = Frame { hash: self.root.hash, node: Rc::clone(&self.node), start: 0, at: 0 };
        let (mut frames_above, mut last_frame) = (Vec::new(), root);
        loop {
            let mut start = last_frame.start;
            for entry in &last_frame.node.entries {
                if position - start < entry.count {
                    break;
                }
                start += entry.count;
                last_frame.at += 1;
            }
            if last_frame.node.level <= level {
                return Ok(Cursor { upper_frames: frames_above, last: last_frame });
            }
            let Some(entry) = last_frame.node.entries.get(last_frame.at).copied() else {
                return Ok(Cursor { upper_frames: frames_above, last: last_frame });
            };
            let node = Rc::new(Node::load_child(self.source, entry, last_frame.node.level)?);
            frames_above
                .push(std::mem::replace(&mut last_frame, Frame { hash: entry.hash, node, start, at: 0 }));
        }
    }
}

/// A node on the way to a position.
struct Frame {
    hash: Hash,
    node: Rc<Node>,
    /// Position of the node's first item.
    start: u64,
    /// The entry the path goes through.
    at: usize,
}

/// A path from the root to a node of some level.
struct Cursor {
    upper_frames: Vec<Frame>,
    last: Frame,
}

impl Cursor {
    /// Goes to the first entry of the next node of the same level; `false` at the end of the list.
    fn next_node(&mut self, source: &(impl ObjectSource + ?Sized)) -> Result<bool, ObjectError> {
        let level = self.last.node.level;
        let start = self.last.start + self.last.node.parent_entry(self.last.hash).count;
        while let Some(mut parent) = self.upper_frames.pop() {
            parent.at += 1;
            let Some(mut entry) = parent.node.entries.get(parent.at).copied() else { continue };
            let mut parent_level = parent.node.level;
            self.upper_frames.push(parent);
            loop {
                let node = Rc::new(Node::load_child(source, entry, parent_level)?);
                let frame = Frame { hash: entry.hash, node, start, at: 0 };
                if frame.node.level == level {
                    self.last = frame;
                    return Ok(true);
                }
                parent_level = frame.node.level;
                // An inner node always has a first entry; its decoder checks that.
                let Some(first) = frame.node.entries.first().copied() else { return Ok(false) };
                entry = first;
                self.upper_frames.push(frame);
            }
        }
        Ok(false)
    }
}
