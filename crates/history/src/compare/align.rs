//! Alignment: pairs the steps of one side with those of the other.

use std::collections::HashSet;
use std::hash::Hash;
use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// The keys of a step, from the most to the least exact.
pub type AlignmentKey = [u64; LOOKS];
/// Number of levels of exactness: the whole input, the subject, the tool, the kind.
pub const LOOKS: usize = 4;

/// Returns the steps of both sides in order, with matching steps paired.
///
/// First it finds the longest common subsequence of exactly equal steps; in the gaps between them, it pairs steps about the
/// same subject, in the remaining gaps steps with the same tool, and then steps of the same kind.
pub fn align(a: &[AlignmentKey], b: &[AlignmentKey]) -> Vec<(Option<usize>, Option<usize>)> {
    let mut rows = Vec::with_capacity(a.len().max(b.len()));
    align_ranges(a, b, 0..a.len(), 0..b.len(), 0, &mut rows);
    rows
}

fn align_ranges(
    a: &[AlignmentKey],
    b: &[AlignmentKey],
    left: Range<usize>,
    right: Range<usize>,
    look: usize,
    rows: &mut Vec<(Option<usize>, Option<usize>)>,
) {
    if look == LOOKS || left.is_empty() || right.is_empty() {
        rows.extend(left.map(|at| (Some(at), None)));
        rows.extend(right.map(|at| (None, Some(at))));
        return;
    }
    let (mut from_a, mut from_b) = (left.start, right.start);
    for (at_a, at_b) in longest_common_subsequence(a, b, left.clone(), right.clone(), look) {
        align_ranges(a, b, from_a..at_a, from_b..at_b, look + 1, rows);
        rows.push((Some(at_a), Some(at_b)));
        (from_a, from_b) = (at_a + 1, at_b + 1);
    }
    align_ranges(a, b, from_a..left.end, from_b..right.end, look + 1, rows);
}

/// Returns the longest common subsequence. Steps that occur on one side only are removed first: they cannot be part of it,
/// and they make the search slow.
fn longest_common_subsequence(
    a: &[AlignmentKey],
    b: &[AlignmentKey],
    left: Range<usize>,
    right: Range<usize>,
    level: usize,
) -> Vec<(usize, usize)> {
    let key = |keys: &[AlignmentKey], index: usize| keys[index][level];
    let in_a: HashSet<u64> = left.clone().map(|index| key(a, index)).collect();
    let in_b: HashSet<u64> = right.clone().map(|index| key(b, index)).collect();
    let left: Vec<usize> = left.filter(|index| in_b.contains(&key(a, *index))).collect();
    let right: Vec<usize> = right.filter(|index| in_a.contains(&key(b, *index))).collect();
    let keys_a: Vec<u64> = left.iter().map(|index| key(a, *index)).collect();
    let keys_b: Vec<u64> = right.iter().map(|index| key(b, *index)).collect();
    let mut pairs = Vec::new();
    for op in capture_diff_slices(Algorithm::Myers, &keys_a, &keys_b) {
        if let DiffOp::Equal { old_index, new_index, len } = op {
            pairs.extend((0..len).map(|index| (left[old_index + index], right[new_index + index])));
        }
    }
    pairs
}

/// Returns a hash that is equal for equal values within one run of the program.
pub fn hash_value(thing: &impl Hash) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    thing.hash(&mut hasher);
    hasher.finish()
}
