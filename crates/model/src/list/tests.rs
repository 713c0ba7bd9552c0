//! Tests of [`crate::list`].

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::node::{Entry, MAX_LEVEL, Node};
use super::*;
use crate::hash::ObjectKind;
use crate::object::{ObjectError, ObjectSink, ObjectSource};

/// Objects in a map, with counters.
#[derive(Default)]
pub(crate) struct Memory {
    objects: RefCell<BTreeMap<Hash, Vec<u8>>>,
    pub(crate) reads: Cell<usize>,
    pub(crate) writes: Cell<usize>,
    pub(crate) similar: RefCell<Vec<Hash>>,
}

impl Memory {
    /// Number of different objects.
    pub(crate) fn len(&self) -> usize {
        self.objects.borrow().len()
    }

    /// The bytes stored under `hash`.
    pub(crate) fn bytes(&self, hash: Hash) -> Vec<u8> {
        self.objects.borrow()[&hash].clone()
    }
}

impl ObjectSource for Memory {
    fn read(&self, kind: ObjectKind, hash: Hash) -> Result<Vec<u8>, ObjectError> {
        self.reads.set(self.reads.get() + 1);
        let objects = self.objects.borrow();
        let bytes = objects.get(&hash).ok_or(ObjectError::Missing { kind, hash })?;
        if Hash::of(kind, bytes) == hash {
            Ok(bytes.clone())
        } else {
            Err(ObjectError::Missing { kind, hash })
        }
    }
}

impl ObjectSink for Memory {
    fn write(&self, kind: ObjectKind, bytes: &[u8], similar_to: Option<Hash>) -> Result<Hash, ObjectError> {
        self.writes.set(self.writes.get() + 1);
        self.similar.borrow_mut().extend(similar_to);
        let hash = Hash::of(kind, bytes);
        self.objects.borrow_mut().insert(hash, bytes.to_vec());
        Ok(hash)
    }
}

fn item(n: u64) -> ListItem {
    ListItem { hash: Hash::of(ObjectKind::Blob, &n.to_le_bytes()), len: n % 7 }
}

fn items(range: impl IntoIterator<Item = u64>) -> Vec<ListItem> {
    range.into_iter().map(item).collect()
}

fn all(memory: &Memory, root: Hash) -> Vec<ListItem> {
    iter(memory, root).collect::<Result<_, _>>().unwrap()
}

fn check_diff(memory: &Memory, a: &[ListItem], b: &[ListItem]) {
    let (root_a, root_b) = (build(memory, a.to_vec()).unwrap(), build(memory, b.to_vec()).unwrap());
    let diff = diff(memory, root_a, root_b).unwrap();
    let prefix = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let suffix = a[prefix..].iter().rev().zip(b[prefix..].iter().rev()).take_while(|(x, y)| x == y).count();
    assert_eq!((diff.prefix, diff.suffix), (prefix as u64, suffix as u64));
    assert_eq!((diff.len_a, diff.len_b), (a.len() as u64, b.len() as u64));
    assert_eq!(diff.is_empty(), a == b);
    let mut patched = Vec::new();
    let mut at = 0;
    for range in &diff.ranges {
        assert!(!range.a.is_empty() || !range.b.is_empty());
        patched.extend_from_slice(&a[at..range.a.start as usize]);
        assert_eq!(patched.len() as u64, range.b.start);
        patched.extend_from_slice(&b[range.b.start as usize..range.b.end as usize]);
        at = range.a.end as usize;
    }
    patched.extend_from_slice(&a[at..]);
    assert_eq!(patched, b);
}

#[test]
fn the_empty_list_is_a_list() {
    let memory = Memory::default();
    let root = build(&memory, []).unwrap();
    assert_eq!((len(&memory, root).unwrap(), weight(&memory, root).unwrap()), (0, 0));
    assert_eq!(all(&memory, root), []);
    assert_eq!(get(&memory, root, 0).unwrap(), None);
    assert_eq!(at_weight(&memory, root, 0).unwrap(), None);
    assert_eq!(children(&memory.bytes(root)), Ok(vec![]));
    let one = append(&memory, &memory, root, items(0..1)).unwrap();
    assert_eq!(one, build(&memory, items(0..1)).unwrap());
    assert_eq!(splice(&memory, &memory, one, 0..1, []).unwrap(), root);
}

#[test]
fn items_are_found_by_index_and_by_offset() {
    let memory = Memory::default();
    let list = items(0..5000);
    let root = build(&memory, list.clone()).unwrap();
    assert_eq!(all(&memory, root), list);
    assert_eq!(len(&memory, root).unwrap(), 5000);
    assert_eq!(weight(&memory, root).unwrap(), list.iter().map(|item| item.len).sum::<u64>());
    let mut start = 0;
    for (index, item) in list.iter().enumerate().step_by(61) {
        assert_eq!(get(&memory, root, index as u64).unwrap(), Some(*item));
        assert_eq!(iter_from(&memory, root, index as u64).next().unwrap().unwrap(), *item);
    }
    for (index, item) in list.iter().enumerate() {
        if index % 53 == 0 && item.len > 0 {
            let located = at_weight(&memory, root, start + item.len - 1).unwrap();
            assert_eq!(located, Some(Located { item: *item, index: index as u64, start }));
        }
        start += item.len;
    }
    assert_eq!(at_weight(&memory, root, start).unwrap(), None);
    assert_eq!(get(&memory, root, 5000).unwrap(), None);
    assert_eq!(iter_from(&memory, root, 5000).count(), 0);
    assert_eq!(iter_from(&memory, root, u64::MAX).count(), 0);
    assert_eq!(iter_from(&memory, root, 4321).count(), 679);
}

#[test]
fn appending_one_by_one_writes_a_few_nodes_each_and_gives_the_built_root() {
    let memory = Memory::default();
    let mut root = build(&memory, []).unwrap();
    for n in 0..3000 {
        memory.writes.set(0);
        root = append(&memory, &memory, root, [item(n)]).unwrap();
        assert!(memory.writes.get() <= 4, "{} nodes for item {n}", memory.writes.get());
    }
    assert_eq!(root, build(&memory, items(0..3000)).unwrap());
}

#[test]
fn a_change_in_the_middle_reads_and_writes_only_its_path() {
    let memory = Memory::default();
    let root = build(&memory, items(0..100_000)).unwrap();
    for at in [0u64, 1, 777, 50_000, 99_999] {
        memory.reads.set(0);
        memory.writes.set(0);
        memory.similar.borrow_mut().clear();
        let edited = splice(&memory, &memory, root, at..at + 1, [item(1 << 40)]).unwrap();
        assert!(memory.writes.get() <= 8, "{} writes", memory.writes.get());
        assert!(memory.reads.get() <= 32, "{} reads", memory.reads.get());
        assert!(!memory.similar.borrow().is_empty());
        let mut expected = items(0..100_000);
        expected[at as usize] = item(1 << 40);
        assert_eq!(edited, build(&memory, expected).unwrap());
        memory.reads.set(0);
        let found = diff(&memory, root, edited).unwrap();
        assert_eq!(found.ranges, [DiffRange { a: at..at + 1, b: at..at + 1 }]);
        assert!(memory.reads.get() <= 24, "{} reads for the diff", memory.reads.get());
    }
}

#[test]
fn a_list_of_one_item_repeated_stays_shallow_and_shared() {
    // Two items: one that is a boundary itself and one that is not.
    let boundary = (0..).map(item).find(|item| ends_in_zero_bits(item.hash, 6)).unwrap();
    for repeated in [boundary, item(1)] {
        let memory = Memory::default();
        let list = vec![repeated; 20_000];
        let root = build(&memory, list.clone()).unwrap();
        assert!(memory.len() < 40, "{} nodes", memory.len());
        assert_eq!(splice(&memory, &memory, root, 5..5, [repeated]).unwrap(), {
            build(&memory, vec![repeated; 20_001]).unwrap()
        });
        check_diff(&memory, &list, &list[..19_000]);
    }
}

#[test]
fn several_edits_are_found_as_several_ranges() {
    let memory = Memory::default();
    let a = items(0..10_000);
    let mut b = a.clone();
    b.splice(7000..7005, []);
    b.splice(4000..4000, items(90_000..90_003));
    b[1000] = item(1 << 50);
    check_diff(&memory, &a, &b);
    let (root_a, root_b) = (build(&memory, a).unwrap(), build(&memory, b).unwrap());
    let ranges = diff(&memory, root_a, root_b).unwrap().ranges;
    assert_eq!(
        ranges,
        [
            DiffRange { a: 1000..1001, b: 1000..1001 },
            DiffRange { a: 4000..4000, b: 4000..4003 },
            DiffRange { a: 7000..7005, b: 7003..7003 },
        ]
    );
}

#[test]
fn a_range_outside_the_list_is_an_error() {
    let memory = Memory::default();
    let root = build(&memory, items(0..3)).unwrap();
    let error = splice(&memory, &memory, root, 2..4, []).unwrap_err();
    assert_eq!(error.to_string(), "items 2..4 are not in a list of 3");
    #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
    let backwards = 2..1;
    assert!(splice(&memory, &memory, root, backwards, []).is_err());
}

#[test]
fn children_tell_nodes_from_items() {
    let memory = Memory::default();
    let list = items(0..2000);
    let root = build(&memory, list.clone()).unwrap();
    let mut pending = vec![Child::Node(root)];
    let mut found = Vec::new();
    while let Some(child) = pending.pop() {
        match child {
            Child::Node(hash) => pending.extend(children(&memory.bytes(hash)).unwrap().into_iter().rev()),
            Child::Item(hash) => found.push(hash),
        }
    }
    assert_eq!(found, list.iter().map(|item| item.hash).collect::<Vec<_>>());
}

#[test]
fn hostile_nodes_are_errors() {
    let entry = |n: u64, count| Entry { hash: item(n).hash, count, weight: 1 };
    let node = |level, entries: Vec<Entry>| Node { level, entries }.encode();
    assert!(children(b"").is_err());
    assert!(children(&node(MAX_LEVEL + 1, vec![entry(0, 1)])).is_err());
    assert!(children(&node(1, vec![])).is_err());
    assert!(children(&node(1, vec![entry(0, 0)])).is_err());
    assert!(children(&node(1, vec![entry(0, u64::MAX), entry(1, 1)])).is_err());
    assert!(children(&node(0, vec![entry(1, 1); MAX_FANOUT + 1])).is_err());
    let good = node(0, vec![entry(0, 1)]);
    assert!(children(&good).is_ok());
    assert!(children(&[&good[..], b"\0"].concat()).is_err());
    for cut in 0..good.len() {
        assert!(children(&good[..cut]).is_err());
    }
    // `[0, h'', []]` with the level in a longer form than needed.
    assert!(children(&[0x83, 0x18, 0x00, 0x40, 0x80]).is_err());
    // A huge array is announced, nothing follows.
    assert!(children(&[0x83, 0x00, 0x40, 0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).is_err());
}

#[test]
fn a_parent_that_lies_about_its_child_is_corrupt() {
    let memory = Memory::default();
    let leaf = build(&memory, items(0..3)).unwrap();
    for (level, count, weight) in [(1, 4, 3), (1, 3, 99), (2, 3, 3)] {
        let lie = Node { level, entries: vec![Entry { hash: leaf, count, weight }] };
        let root = memory.write(ObjectKind::List, &lie.encode(), None).unwrap();
        assert!(matches!(get(&memory, root, 0), Err(ObjectError::Corrupt { .. })));
        let mut iter = iter(&memory, root);
        assert!(iter.next().unwrap().is_err());
        assert!(iter.next().is_none());
        assert!(append(&memory, &memory, root, items(0..1)).is_err());
        assert!(diff(&memory, leaf, root).is_err());
    }
    let missing = item(5).hash;
    assert!(matches!(len(&memory, missing), Err(ObjectError::Missing { .. })));
}

/// Where, how many items to remove, what to insert.
type Edit = (usize, usize, Vec<u64>);

/// A sequence with repetitions and a few edits of it.
fn edits() -> impl Strategy<Value = (Vec<u64>, Vec<Edit>)> {
    let run = (0u64..400, 1u64..300, any::<bool>());
    let list = prop::collection::vec(run, 0..8).prop_map(|runs| {
        let expand =
            |(from, n, same): (u64, u64, bool)| (0..n).map(move |k| if same { from } else { from + k });
        runs.into_iter().flat_map(expand).collect()
    });
    let edit = (any::<usize>(), 0usize..200, prop::collection::vec(0u64..500, 0..20));
    (list, prop::collection::vec(edit, 1..4))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_edit_gives_the_root_of_the_built_list((list, edits) in edits()) {
        let memory = Memory::default();
        let mut list = items(list);
        let original = list.clone();
        let mut root = build(&memory, list.clone()).unwrap();
        for (at, remove, insert) in edits {
            let start = at % (list.len() + 1);
            let end = (start + remove).min(list.len());
            let insert = items(insert);
            root = splice(&memory, &memory, root, start as u64..end as u64, insert.clone()).unwrap();
            list.splice(start..end, insert);
            prop_assert_eq!(root, build(&memory, list.clone()).unwrap());
        }
        prop_assert_eq!(&all(&memory, root), &list);
        check_diff(&memory, &original, &list);
        check_diff(&memory, &list, &original);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = children(&bytes);
    }

    #[test]
    fn a_damaged_node_never_panics(at in any::<usize>(), byte in any::<u8>()) {
        let memory = Memory::default();
        let mut bytes = memory.bytes(build(&memory, items(0..20)).unwrap());
        let at = at % bytes.len();
        bytes[at] = byte;
        let root = memory.write(ObjectKind::List, &bytes, None).unwrap();
        for item in iter(&memory, root) {
            if item.is_err() {
                break;
            }
        }
    }
}
