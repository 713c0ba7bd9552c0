//! Tests of [`crate::json`].

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::node::{Group, Member, Node, Part, Shape};
use super::*;
use crate::hash::{Hash, ObjectKind};
use crate::list::tests::Memory;
use crate::object::{ObjectError, ObjectSink};

fn put(memory: &Memory, value: &Value) -> Hash {
    store(memory, value, None).unwrap()
}

fn round_trip(value: &Value) {
    let memory = Memory::default();
    let hash = put(&memory, value);
    assert_eq!(load(&memory, hash).unwrap(), *value);
    assert_eq!(get(&memory, hash, "").unwrap().as_ref(), Some(value));
}

/// Ten thousand leaves: an object of 100 objects of 100 numbers.
fn big(changed: Option<(usize, usize)>) -> Value {
    let field = |i: usize, j: usize| {
        (format!("field {j}"), json!(if changed == Some((i, j)) { 1 << 40 } else { i * j }))
    };
    let part = |i: usize| (format!("part {i}"), Value::Object((0..100).map(|j| field(i, j)).collect()));
    Value::Object((0..100).map(part).collect())
}

/// A page with these values, and where each of them is.
fn page(memory: &Memory, values: &[Value]) -> Vec<ValueRoot> {
    let mut page = ValuePage::default();
    let places: Vec<u32> = values
        .iter()
        .map(|value| {
            let fields: Vec<_> = value.as_object().unwrap().iter().map(|(k, v)| (k.as_str(), v)).collect();
            page.add(&fields).unwrap()
        })
        .collect();
    let node = page.store(memory).unwrap();
    places.into_iter().map(|part| ValueRoot { node, part: Some(part) }).collect()
}

#[test]
fn values_on_a_page_are_found_by_their_place() {
    let values = [
        json!({ "input": { "b": [1, -2, 0.5, -0.0, null, true], "a": "text" }, "error": "x".repeat(3000) }),
        json!({}),
        json!({ "ü": { "deep": [[[{}]]] }, "big": 18446744073709551615u64 }),
    ];
    let memory = Memory::default();
    let roots = page(&memory, &values);
    for (value, root) in values.iter().zip(&roots) {
        assert_eq!(load(&memory, *root).unwrap(), *value);
        assert_eq!(ValueRoot::from_slice(&root.to_bytes()), Some(*root));
        assert_eq!(root.to_string().parse(), Ok(*root));
        // The same differences as those of values with nodes of their own.
        let plain = put(&memory, value);
        assert_eq!(diff(&memory, *root, plain).unwrap(), []);
        let other = put(&memory, &values[0]);
        assert_eq!(diff(&memory, *root, roots[0]).unwrap(), diff(&memory, plain, other).unwrap());
    }
    assert_eq!(get(&memory, roots[0], "/input/b/1").unwrap(), Some(json!(-2)));
    // The page as a whole is an ordinary value, which is how a collector finds what it refers to.
    assert_eq!(load(&memory, roots[0].node).unwrap(), json!(values));
    let beyond = ValueRoot { part: Some(3), ..roots[0] };
    assert!(matches!(load(&memory, beyond), Err(JsonError::Object(ObjectError::Corrupt { .. }))));
}

#[test]
fn what_is_large_or_deep_does_not_go_on_a_page() {
    let mut page = ValuePage::default();
    let text = Value::String("x".repeat(5000));
    let many = json!(vec!["x".repeat(100); 50]);
    let deep = (0..MAX_DEPTH).fold(Value::Null, |inner, _| json!([inner]));
    for large in [&text, &many, &deep] {
        assert_eq!(page.add(&[("small", &json!(1)), ("value", large)]), None);
    }
    assert!(page.is_empty());
    let deepest = (0..MAX_DEPTH - 2).fold(json!({}), |inner, _| json!([inner]));
    assert_eq!(page.add(&[("value", &deepest["no"])]), Some(0));
    let memory = Memory::default();
    let half = Value::String("x".repeat(3000));
    let mut at = 0;
    while !page.is_full() {
        at += 1;
        assert_eq!(page.add(&[("value", &half)]), Some(at));
    }
    assert!((8..=9).contains(&at), "{at}");
    let node = page.store(&memory).unwrap();
    assert_eq!(load(&memory, ValueRoot { node, part: Some(at) }).unwrap()["value"], half);
}

#[test]
fn numbers_are_exact() {
    for text in [
        "9007199254740993",
        "18446744073709551615",
        "-9223372036854775808",
        "0",
        "1.0",
        "1e300",
        "-0.5",
        "0.1",
    ] {
        let value: Value = serde_json::from_str(text).unwrap();
        let memory = Memory::default();
        let hash = put(&memory, &json!([value, { "x": value }]));
        assert_eq!(get(&memory, hash, "/1/x").unwrap(), Some(value.clone()));
        assert_eq!(get(&memory, hash, "/0").unwrap().unwrap().to_string(), value.to_string());
    }
    let memory = Memory::default();
    let hash = |text: &str| put(&memory, &serde_json::from_str(text).unwrap());
    assert_ne!(hash("9007199254740993"), hash("9007199254740992"));
    assert_ne!(hash("1"), hash("1.0"));
    assert_eq!(hash("-0.0"), hash("0.0"));
    assert_ne!(hash("18446744073709551615"), hash("18446744073709551616"));
}

#[test]
fn every_shape_round_trips() {
    for value in [
        json!(null),
        json!(true),
        json!(""),
        json!("ü\u{0}\n"),
        json!("x".repeat(4096)),
        json!("x".repeat(4097)),
        json!([]),
        json!({}),
        json!([[], {}, [[{}]]]),
        json!({"": "", "a/b": {"~": 1}}),
        json!({"long": "y".repeat(100_000), "again": ["y".repeat(100_000)]}),
        Value::Array((0..5000).map(|n| json!(n)).collect()),
        Value::Array((0..300).map(|n| json!("z".repeat(n * 10))).collect()),
        Value::Array(vec![json!(0); 10_000]),
        Value::Object((0..5000).map(|n| (format!("{n}"), json!(n))).collect()),
        Value::Object((0..20).map(|n| ("k".repeat(n * 2000), json!(n))).collect()),
        big(None),
    ] {
        round_trip(&value);
    }
}

#[test]
fn one_changed_leaf_of_ten_thousand_writes_few_objects() {
    let flat = |changed: Option<usize>| {
        let field = |n: usize| (format!("key {n}"), json!(if changed == Some(n) { -1 } else { n as i64 }));
        Value::Object((0..10_000).map(field).collect())
    };
    let array = |changed: Option<usize>| {
        Value::Array(
            (0..10_000usize).map(|n| if changed == Some(n) { json!("new") } else { json!(n) }).collect(),
        )
    };
    for (before, after) in
        [(big(None), big(Some((50, 50)))), (flat(None), flat(Some(5000))), (array(None), array(Some(5000)))]
    {
        let memory = Memory::default();
        let a = put(&memory, &before);
        let count = memory.len();
        let b = store(&memory, &after, Some(a)).unwrap();
        assert!(memory.len() - count <= 6, "{} new objects", memory.len() - count);
        assert_eq!(*memory.similar.borrow(), [a]);
        memory.reads.set(0);
        let differences = diff(&memory, a, b).unwrap();
        assert_eq!(differences.len(), 1);
        assert!(memory.reads.get() <= 16, "{} reads", memory.reads.get());
        memory.reads.set(0);
        let found = get(&memory, b, &differences[0].pointer).unwrap();
        assert_eq!(found, differences[0].after);
        assert!(memory.reads.get() <= 4, "{} reads", memory.reads.get());
    }
}

#[test]
fn equal_parts_are_stored_once() {
    let memory = Memory::default();
    let part = json!({"text": "a longish text ".repeat(50)});
    put(&memory, &part);
    let count = memory.len();
    put(&memory, &json!({"x": part, "y": [part, part]}));
    assert_eq!(memory.len(), count + 1);
}

#[test]
fn appending_to_a_long_array_writes_its_right_edge() {
    let memory = Memory::default();
    let array = |n: usize| Value::Array((0..n).map(|n| json!({"n": n})).collect());
    put(&memory, &array(10_000));
    let count = memory.len();
    put(&memory, &array(10_001));
    assert!(memory.len() - count <= 4);
}

#[test]
fn pointers_find_parts() {
    let memory = Memory::default();
    let hash = put(&memory, &json!({"a/b": {"~": [10, 20, {"": "empty"}]}, "": 1, "s": "text"}));
    let get = |pointer: &str| get(&memory, hash, pointer).unwrap();
    assert_eq!(get("/a~1b/~0/1"), Some(json!(20)));
    assert_eq!(get("/a~1b/~0/2/"), Some(json!("empty")));
    assert_eq!(get("/"), Some(json!(1)));
    for missing in [
        "/x",
        "/a~1b/~0/3",
        "/a~1b/~0/01",
        "/a~1b/~0/-",
        "/a~1b/~0/+1",
        "/s/0",
        "/a~1b/~0/99999999999999999999",
    ] {
        assert_eq!(get(missing), None, "{missing}");
    }
    let error = super::get(&memory, hash, "a").unwrap_err();
    assert_eq!(error.to_string(), "\"a\" is not a JSON pointer: it does not start with '/'");
    assert!(super::get(&memory, hash, "/~2").is_err());
    assert!(super::get(&memory, hash, "/~").is_err());
}

#[test]
fn differences_are_named_as_people_would() {
    let memory = Memory::default();
    let diff = |a: Value, b: Value| {
        let (a, b) = (put(&memory, &a), put(&memory, &b));
        diff(&memory, a, b).unwrap().into_iter().map(|d| (d.pointer, d.before, d.after)).collect::<Vec<_>>()
    };
    let is = |pointer: &str, before: Option<Value>, after: Option<Value>| (pointer.to_owned(), before, after);
    assert_eq!(diff(json!({"a": 1}), json!({"a": 1})), []);
    assert_eq!(diff(json!(1), json!("x")), [is("", Some(json!(1)), Some(json!("x")))]);
    assert_eq!(
        diff(json!({"a": 1, "b": {"c/d": 2}, "x": 0}), json!({"b": {"c/d": 3}, "n": null, "x": 0})),
        [
            is("/a", Some(json!(1)), None),
            is("/b/c~1d", Some(json!(2)), Some(json!(3))),
            is("/n", None, Some(json!(null))),
        ]
    );
    assert_eq!(diff(json!([1, 2, 3]), json!([0, 1, 2, 3])), [is("/0", None, Some(json!(0)))]);
    assert_eq!(diff(json!([1, 2, 3]), json!([1, 3])), [is("/1", Some(json!(2)), None)]);
    assert_eq!(
        diff(json!({"l": [{"t": 1}, 9]}), json!({"l": [{"t": 2}, 9, 10]})),
        [is("/l/0/t", Some(json!(1)), Some(json!(2))), is("/l/2", None, Some(json!(10))),]
    );
    assert_eq!(diff(json!({"a": []}), json!({"a": {}})), [is("/a", Some(json!([])), Some(json!({})))]);
}

#[test]
fn depth_is_limited_on_both_sides() {
    let nested = |depth: usize, width: usize| {
        (0..depth).fold(json!("x".repeat(width)), |inner, n| {
            if n % 2 == 0 { json!([inner]) } else { json!({"k": inner}) }
        })
    };
    let memory = Memory::default();
    for width in [0, 300] {
        round_trip(&nested(MAX_DEPTH, width));
        assert!(matches!(store(&memory, &nested(MAX_DEPTH + 1, width), None), Err(JsonError::TooDeep)));
        let (a, b) = (put(&memory, &nested(MAX_DEPTH, width)), put(&memory, &nested(MAX_DEPTH, width + 1)));
        assert_eq!(diff(&memory, a, b).unwrap().len(), 1);
    }
    // A hostile store: a node that holds a node that holds … deeper than a value may be.
    let wrap = |part: Part| Node::Leaf(Shape::Array, vec![Member { key: String::new(), part }]);
    let mut hash = put(&memory, &json!([]));
    let mut other = put(&memory, &json!([1]));
    for _ in 0..MAX_DEPTH + 5 {
        for hash in [&mut hash, &mut other] {
            *hash = memory.write(ObjectKind::Json, &wrap(Part::Node(*hash)).encode(), None).unwrap();
        }
    }
    assert!(matches!(load(&memory, hash), Err(JsonError::TooDeep)));
    assert!(matches!(diff(&memory, hash, other), Err(JsonError::TooDeep)));
}

#[test]
fn a_small_store_cannot_unfold_without_bound() {
    let memory = Memory::default();
    let mut hash = put(&memory, &json!(["x".repeat(4000), "y".repeat(4000)]));
    for _ in 0..40 {
        let member = Member { key: String::new(), part: Part::Node(hash) };
        let node = Node::Leaf(Shape::Array, vec![member; 200]);
        hash = memory.write(ObjectKind::Json, &node.encode(), None).unwrap();
    }
    // Reading on would take 200 to the power of 40 reads; the limit stops it, here a smaller one to be quick.
    let mut reader = super::read::Reader::with_limit(&memory, 1 << 20);
    let root = reader.read_node(hash).unwrap();
    assert!(matches!(reader.read_value(root, 0), Err(JsonError::TooLarge)));
}

#[test]
fn hostile_nodes_are_errors() {
    let memory = Memory::default();
    let write = |node: &Node| memory.write(ObjectKind::Json, &node.encode(), None).unwrap();
    let leaf = |keys: &[&str]| {
        let member = |key: &&str| Member { key: (*key).to_owned(), part: Part::Scalar(json!(1)) };
        Node::Leaf(Shape::Object, keys.iter().map(member).collect())
    };
    assert!(children(&leaf(&["b", "a"]).encode()).is_err());
    assert!(children(&leaf(&["a", "a"]).encode()).is_err());
    assert!(children(&Node::Scalar(Part::Node(Hash::of(ObjectKind::Json, b""))).encode()).is_err());
    for bytes in [
        &b""[..],
        b"\x82\x00\xf5\x00",                             // trailing byte
        b"\x82\x00\x18\x01",                             // 1 in two bytes
        b"\x82\x00\xfb\x80\0\0\0\0\0\0\0",               // -0.0
        b"\x82\x00\xfb\x7f\xf0\0\0\0\0\0\0",             // infinity
        b"\x82\x00\x3b\xff\xff\xff\xff\xff\xff\xff\xff", // below i64
        b"\x82\x01\x9b\xff\xff\xff\xff\xff\xff\xff\xff", // a huge array
        b"\x82\x01\x9f\xff",                             // indefinite length
        b"\x82\x00\xc6\x41\x00",                         // a short hash
        b"\x82\x05\x80",                                 // unknown type
        b"\x84\x02\x01\x40\x80",                         // no groups
    ] {
        assert!(children(bytes).is_err(), "{bytes:x?}");
    }
    let deep = [&b"\x82\x01"[..], &[0x81; 100_000], &[0x80]].concat();
    assert!(children(&deep).is_err());

    // Groups that are in the wrong order, or are not what their parent says.
    let (first, second) = (write(&leaf(&["a", "m"])), write(&leaf(&["b", "c"])));
    let group = |hash, count, key: &str| Group { hash, count, key: key.to_owned() };
    let inner = |groups| Node::Inner(Shape::Object, 1, groups);
    let overlapping = write(&inner(vec![group(first, 2, "a"), group(second, 2, "b")]));
    assert!(load(&memory, overlapping).is_err());
    for lie in [group(first, 3, "a"), group(first, 2, "b"), group(put(&memory, &json!(1)), 1, "")] {
        assert!(load(&memory, write(&inner(vec![lie]))).is_err());
    }
    assert!(load(&memory, write(&Node::Inner(Shape::Object, 2, vec![group(first, 2, "a")]))).is_err());
    let blob = memory.write(ObjectKind::Blob, b"\xff\xfe", None).unwrap();
    assert!(load(&memory, write(&Node::Scalar(Part::Text(blob)))).is_err());
    let scalar = Part::Node(put(&memory, &json!(1)));
    assert!(
        load(&memory, write(&Node::Leaf(Shape::Array, vec![Member { key: String::new(), part: scalar }])))
            .is_err()
    );
}

#[test]
fn children_reach_every_object() {
    let memory = Memory::default();
    let value = json!({"big": big(None), "text": "t".repeat(9000), "small": ["u".repeat(5000)], "l": vec![json!({"a": 1}); 1000]});
    let mut pending = vec![(ObjectKind::Json, put(&memory, &value))];
    let mut reached = BTreeSet::new();
    while let Some((kind, hash)) = pending.pop() {
        if reached.insert(hash) && kind == ObjectKind::Json {
            pending.extend(children(&memory.bytes(hash)).unwrap());
        }
    }
    assert_eq!(reached.len(), memory.len());
}

/// Any JSON value, some of it large enough to be split and shared.
fn any_value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(|float| json!(float)),
        ".{0,12}".prop_map(Value::from),
        (0usize..6000).prop_map(|n| Value::from("s".repeat(n))),
    ];
    scalar.prop_recursive(4, 400, 40, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..40).prop_map(Value::Array),
            (inner.clone(), 100usize..300).prop_map(|(value, n)| Value::Array(vec![value; n])),
            prop::collection::vec(("[a-e/~ü]{0,3}", inner.clone()), 0..40)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            (inner, 100u32..300).prop_map(|(value, n)| {
                Value::Object(
                    (0..n).map(|k| (format!("k{}", k.wrapping_mul(2_654_435_761)), value.clone())).collect(),
                )
            }),
        ]
    })
}

/// Applies differences as their documentation says.
fn apply(mut value: Value, differences: &[ValueDifference]) -> Value {
    // Removals last and from the back, so that indexes of the first value stay right.
    let (gone, kept): (Vec<_>, Vec<_>) = differences.iter().partition(|d| d.after.is_none());
    for ValueDifference { pointer, before, after } in kept.into_iter().chain(gone.into_iter().rev()) {
        let Some((parent, token)) = pointer.rsplit_once('/') else { return after.clone().unwrap() };
        let token = token.replace("~1", "/").replace("~0", "~");
        match (value.pointer_mut(parent).unwrap(), after) {
            (Value::Object(fields), Some(after)) => {
                assert_eq!(fields.insert(token, after.clone()), *before);
            }
            (Value::Object(fields), None) => assert_eq!(fields.remove(&token), *before),
            (Value::Array(array), Some(after)) if before.is_none() => {
                array.insert(token.parse().unwrap(), after.clone());
            }
            (Value::Array(array), Some(after)) => array[token.parse::<usize>().unwrap()] = after.clone(),
            (Value::Array(array), None) => assert_eq!(Some(array.remove(token.parse().unwrap())), *before),
            _ => panic!("no container at {parent}"),
        }
    }
    value
}

fn reversed_keys(value: &Value) -> Value {
    match value {
        Value::Array(array) => Value::Array(array.iter().map(reversed_keys).collect()),
        Value::Object(fields) => {
            let mut reversed = Map::new();
            for (key, value) in fields.iter().rev() {
                reversed.insert(key.clone(), reversed_keys(value));
            }
            Value::Object(reversed)
        }
        scalar => scalar.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn values_round_trip_and_key_order_does_not_matter(value in any_value()) {
        let memory = Memory::default();
        let hash = put(&memory, &value);
        prop_assert_eq!(&load(&memory, hash).unwrap(), &value);
        prop_assert_eq!(put(&memory, &reversed_keys(&value)), hash);
    }

    #[test]
    fn differences_lead_from_one_value_to_the_other(a in any_value(), b in any_value()) {
        let memory = Memory::default();
        let (hash_a, hash_b) = (put(&memory, &a), put(&memory, &b));
        let differences = diff(&memory, hash_a, hash_b).unwrap();
        prop_assert_eq!(differences.is_empty(), a == b);
        prop_assert_eq!(apply(a, &differences), b);
    }

    #[test]
    fn edits_of_arrays_are_found(
        list in prop::collection::vec(0u8..20, 0..600),
        at in any::<usize>(),
        remove in 0usize..50,
        insert in prop::collection::vec(0u8..30, 0..50),
    ) {
        let memory = Memory::default();
        let mut edited = list.clone();
        let start = at % (list.len() + 1);
        edited.splice(start..(start + remove).min(list.len()), insert.iter().copied());
        let (a, b) = (json!({"l": list}), json!({"l": edited}));
        let differences = diff(&memory, put(&memory, &a), put(&memory, &b)).unwrap();
        prop_assert!(differences.len() <= remove.max(insert.len()));
        prop_assert_eq!(apply(a, &differences), b);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = children(&bytes);
        let _ = children(&[&[0x82, 0x01][..], &bytes].concat());
    }
}
