//! The difference of two lists, found by skipping what they share.
//!
//! First the equal beginning and the equal end are removed, opening only nodes that differ. The rest is matched level by
//! level from the top: nodes that occur once on either side and in the same order are equal parts, and only what lies
//! between them is opened. The work is proportional to the size of the difference.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::node::{Entry, Node};
use crate::hash::Hash;
use crate::object::{ObjectError, ObjectSource};

/// A range in which two lists differ. One of the two ranges may be empty, never both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiffRange {
    /// The items of the first list.
    pub a: Range<u64>,
    /// The items of the second list in their place.
    pub b: Range<u64>,
}

/// How two lists differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListDiff {
    /// Number of items in the first list.
    pub len_a: u64,
    /// Number of items in the second list.
    pub len_b: u64,
    /// Number of equal items at the start; the largest possible.
    pub prefix: u64,
    /// Number of equal items at the end, after the prefix; the largest possible.
    pub suffix: u64,
    /// What differs in between, in order. Outside of these ranges the lists are equal. Ranges are as small as cheap
    /// matching makes them: an item that both sides of a range repeat may be in it.
    pub ranges: Vec<DiffRange>,
}

impl ListDiff {
    /// Whether the lists are equal.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// Compares two lists. Reads only nodes that differ.
pub fn diff(source: &(impl ObjectSource + ?Sized), a: Hash, b: Hash) -> Result<ListDiff, ObjectError> {
    let (node_a, node_b) = (Node::load(source, a)?, Node::load(source, b)?);
    let (len_a, len_b) = (node_a.parent_entry(a).count, node_b.parent_entry(b).count);
    if a == b {
        return Ok(ListDiff { len_a, len_b, prefix: len_a, suffix: 0, ranges: Vec::new() });
    }
    let (mut a, mut b) = (list_parts(&node_a).collect(), list_parts(&node_b).collect());
    let prefix = trim(source, &mut a, &mut b, End::Front)?;
    let suffix = trim(source, &mut a, &mut b, End::Back)?;
    let middle = Gap { a: a.into(), b: b.into(), a_at: prefix, b_at: prefix };
    let ranges = match_middle(source, middle)?;
    Ok(ListDiff { len_a, len_b, prefix, suffix, ranges })
}

/// An item (rank 0) or a whole node (rank: its level plus one). Equal parts have equal content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    rank: u8,
    entry: Entry,
}

fn list_parts(node: &Node) -> impl DoubleEndedIterator<Item = Part> + '_ {
    node.entries.iter().map(|entry| Part { rank: node.level, entry: *entry })
}

/// Reads the node of a part. Its children have a rank one lower.
fn open(source: &(impl ObjectSource + ?Sized), part: Part) -> Result<Node, ObjectError> {
    Node::load_child(source, part.entry, part.rank)
}

#[derive(Clone, Copy)]
enum End {
    Front,
    Back,
}

impl End {
    fn peek(self, parts: &VecDeque<Part>) -> Option<Part> {
        match self {
            End::Front => parts.front().copied(),
            End::Back => parts.back().copied(),
        }
    }

    fn pop(self, parts: &mut VecDeque<Part>) {
        match self {
            End::Front => parts.pop_front(),
            End::Back => parts.pop_back(),
        };
    }

    /// Replaces the node at this end by its children.
    fn open(
        self,
        source: &(impl ObjectSource + ?Sized),
        parts: &mut VecDeque<Part>,
        part: Part,
    ) -> Result<(), ObjectError> {
        let node = open(source, part)?;
        self.pop(parts);
        match self {
            End::Front => list_parts(&node).rev().for_each(|child| parts.push_front(child)),
            End::Back => parts.extend(list_parts(&node)),
        }
        Ok(())
    }
}

/// Removes equal items from one end of both lists and returns how many.
fn trim(
    source: &(impl ObjectSource + ?Sized),
    a: &mut VecDeque<Part>,
    b: &mut VecDeque<Part>,
    end: End,
) -> Result<u64, ObjectError> {
    let mut equal = 0;
    while let (Some(x), Some(y)) = (end.peek(a), end.peek(b)) {
        if x == y {
            end.pop(a);
            end.pop(b);
            equal += x.entry.count;
            continue;
        }
        if x.rank == 0 && y.rank == 0 {
            break;
        }
        if x.rank >= y.rank {
            end.open(source, a, x)?;
        }
        if y.rank >= x.rank {
            end.open(source, b, y)?;
        }
    }
    Ok(equal)
}

/// Two ranges at the same position that may still share items.
struct Gap {
    a: Vec<Part>,
    b: Vec<Part>,
    a_at: u64,
    b_at: u64,
}

fn count(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.entry.count).sum()
}

impl Gap {
    fn range(&self) -> DiffRange {
        DiffRange { a: self.a_at..self.a_at + count(&self.a), b: self.b_at..self.b_at + count(&self.b) }
    }

    /// Splits at equal parts, which are dropped.
    fn split(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let (mut i, mut j) = (0, 0);
        let (mut a_at, mut b_at) = (self.a_at, self.b_at);
        for (next_i, next_j) in
            find_anchors(&self.a, &self.b).into_iter().chain([(self.a.len(), self.b.len())])
        {
            let (mut a, mut b) = (&self.a[i..next_i], &self.b[j..next_j]);
            let (end_a, end_b) = (a_at + count(a), b_at + count(b));
            while let ([x, rest_a @ ..], [y, rest_b @ ..]) = (a, b)
                && x == y
            {
                (a, b) = (rest_a, rest_b);
                a_at += x.entry.count;
                b_at += x.entry.count;
            }
            while let ([rest_a @ .., x], [rest_b @ .., y]) = (a, b)
                && x == y
            {
                (a, b) = (rest_a, rest_b);
            }
            if !a.is_empty() || !b.is_empty() {
                gaps.push(Gap { a: a.to_vec(), b: b.to_vec(), a_at, b_at });
            }
            let anchor = self.a.get(next_i).map_or(0, |part| part.entry.count);
            (a_at, b_at) = (end_a + anchor, end_b + anchor);
            (i, j) = (next_i + 1, next_j + 1);
        }
        gaps
    }
}

/// Pairs of positions of equal parts that occur once on either side, in the same order on both (patience matching).
fn find_anchors(a: &[Part], b: &[Part]) -> Vec<(usize, usize)> {
    // Per part: its index in `a` and in `b`, and whether it occurs twice on one side.
    let mut positions: BTreeMap<Part, (Option<usize>, Option<usize>, bool)> = BTreeMap::new();
    for (index, part) in a.iter().enumerate() {
        let slot = positions.entry(*part).or_default();
        slot.2 |= slot.0.replace(index).is_some();
    }
    for (index, part) in b.iter().enumerate() {
        let slot = positions.entry(*part).or_default();
        slot.2 |= slot.1.replace(index).is_some();
    }
    let mut pairs: Vec<(usize, usize)> = positions
        .into_values()
        .filter_map(|slot| if let (Some(i), Some(j), false) = slot { Some((i, j)) } else { None })
        .collect();
    pairs.sort_unstable();
    find_longest_rising(&pairs)
}

/// The longest subsequence of `pairs`, sorted by the first position, whose second positions rise, too.
fn find_longest_rising(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // `ends[n]` is the pair that ends the best sequence of n + 1 pairs; `predecessor[k]` the one that precedes pair k.
    let mut ends: Vec<usize> = Vec::new();
    let mut predecessor: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (k, pair) in pairs.iter().enumerate() {
        let n = ends.partition_point(|end| pairs[*end].1 < pair.1);
        predecessor.push(n.checked_sub(1).map(|shorter| ends[shorter]));
        if n == ends.len() {
            ends.push(k);
        } else {
            ends[n] = k;
        }
    }
    let mut sequence = Vec::with_capacity(ends.len());
    let mut last = ends.last().copied();
    while let Some(k) = last {
        sequence.push(pairs[k]);
        last = predecessor[k];
    }
    sequence.reverse();
    sequence
}

fn match_middle(source: &(impl ObjectSource + ?Sized), middle: Gap) -> Result<Vec<DiffRange>, ObjectError> {
    let top = middle.a.iter().chain(&middle.b).map(|part| part.rank).max().unwrap_or(0);
    let mut gaps = vec![middle];
    let mut ranges = Vec::new();
    for rank in (0..=top).rev() {
        let mut open_gaps = Vec::new();
        for gap in gaps.iter().flat_map(Gap::split) {
            if rank == 0 || gap.a.is_empty() || gap.b.is_empty() {
                ranges.push(gap.range());
            } else {
                let (a, b) = (open_rank(source, &gap.a, rank)?, open_rank(source, &gap.b, rank)?);
                open_gaps.push(Gap { a, b, ..gap });
            }
        }
        gaps = open_gaps;
    }
    ranges.sort_by_key(|range| (range.a.start, range.b.start));
    ranges.dedup_by(|next, range| {
        let touch = next.a.start == range.a.end && next.b.start == range.b.end;
        if touch {
            (range.a.end, range.b.end) = (next.a.end, next.b.end);
        }
        touch
    });
    Ok(ranges)
}

/// Replaces every node of this rank by its children.
fn open_rank(
    source: &(impl ObjectSource + ?Sized),
    parts: &[Part],
    rank: u8,
) -> Result<Vec<Part>, ObjectError> {
    let mut children = Vec::with_capacity(parts.len());
    for part in parts {
        if part.rank == rank {
            children.extend(list_parts(&open(source, *part)?));
        } else {
            children.push(*part);
        }
    }
    Ok(children)
}
