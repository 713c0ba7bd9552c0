//! Anything at all as a point, a time, a search, and as the bytes of an object: read or refused, and written back the same.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::cell::RefCell;

use stepback_model::ObjectKind;
use stepback_model::conversation::ConversationMessage;
use stepback_model::hash::Hash;
use stepback_model::object::{ObjectError, ObjectSink, ObjectSource};
use stepback_model::point::PointExpr;
use stepback_model::search::Pattern;
use stepback_model::state::{GitState, WorkspaceState};
use stepback_model::tree::{Content, Tree, TreeEntry, TreeNode};
use stepback_model::{json, list, path, time_expr};
use stepback_testkit::fuzz::{FuzzTarget, MeteredAllocator};

#[global_allocator]
static ALLOCATOR: MeteredAllocator = MeteredAllocator;

#[test]
fn points() {
    let corpus = [
        "@",
        "@-3",
        "#12",
        "#42-3",
        "4f2a",
        "before the agent",
        "4f2a#3",
        "ab12#error:last",
        "tool:bash:last",
        "tool:Edit:2",
        "branch:main",
        "time:2 hours ago",
        "iteration:5",
        "label:\"a b\"",
        "tag:\"env:prod\":last",
        "error:first",
        "id:4047",
        "yesterday 14:00",
        "2026-01-02T03:04:05Z",
        "before-refactor-2",
        "\"#42\"",
    ];
    let words = [
        "@",
        "#",
        ":",
        "-",
        "\"",
        "last",
        "first",
        "tool:",
        "tag:",
        "branch:",
        "time:",
        "label:",
        "id:",
        "\\",
        "ü",
        "\u{202e}",
        "99999999999999999999",
    ];
    FuzzTarget::new("points", corpus).words(&words).run(6_000, |input| {
        let text = String::from_utf8_lossy(input);
        match PointExpr::parse(&text) {
            Ok(point) => {
                assert_eq!(PointExpr::parse(&point.to_string()).as_ref(), Ok(&point), "{text:?}: {point}")
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

#[test]
fn times_and_searches() {
    let corpus = [
        "2 hours ago",
        "yesterday",
        "last monday",
        "14:05",
        "2026-01-02",
        "2026-01-02T03:04:05+01:00",
        "10m",
        "3 weeks ago",
        "two words",
        "\"a phrase\" -not",
        "prefix*",
        "a OR b",
    ];
    let words = ["ago", "days", "months", "last ", "noon", ":", "-", "\"", "*", "é", "99999999999"];
    let (now, zone) =
        (stepback_model::time::Timestamp::from_micros(1_700_000_000_000_000), jiff::tz::TimeZone::UTC);
    FuzzTarget::new("times and searches", corpus).words(&words).run(4_000, |input| {
        let text = String::from_utf8_lossy(input);
        let _ = time_expr::parse(&text, now, &zone);
        let _ = time_expr::span_micros(&text);
        let _ = Pattern::words(&text);
        let _ = Pattern::substring(&text);
    });
}

/// Every object has these bytes.
struct Same<'a>(&'a [u8]);

impl ObjectSource for Same<'_> {
    fn read(&self, _: ObjectKind, _: Hash) -> Result<Vec<u8>, ObjectError> {
        Ok(self.0.to_vec())
    }
}

#[derive(Default)]
struct Written(RefCell<Vec<Vec<u8>>>);

impl ObjectSink for Written {
    fn write(&self, kind: ObjectKind, bytes: &[u8], _: Option<Hash>) -> Result<Hash, ObjectError> {
        self.0.borrow_mut().push(bytes.to_vec());
        Ok(Hash::of(kind, bytes))
    }
}

fn samples() -> Vec<Vec<u8>> {
    let hash = Hash::of(ObjectKind::Blob, b"x");
    let file = |name: &str, content| TreeEntry {
        name: name.into(),
        node: TreeNode::File { mode: 0o644, size: 3, content },
    };
    let tree = Tree::from_entries(vec![file("a", Content::Whole(hash)), file("b", Content::Vaulted)]);
    let state = WorkspaceState { files: Some(hash), ..WorkspaceState::default() };
    let sink = Written::default();
    let value = serde_json::json!({ "a": [1, 2.5, null, true], "text": "long ".repeat(2000), "b": { "c": (0..400).collect::<Vec<_>>() } });
    json::store(&sink, &value, None).unwrap();
    [tree.encode(), state.encode(), GitState::default().encode()]
        .into_iter()
        .chain(sink.0.into_inner())
        .collect()
}

#[test]
fn objects() {
    FuzzTarget::new("objects", samples()).run(15_000, |input| {
        if let Ok(tree) = Tree::decode(input) {
            assert_eq!(Tree::decode(&tree.encode()).as_ref(), Ok(&tree));
        }
        let (source, hash) = (Same(input), Hash::of(ObjectKind::Blob, input));
        if let Ok(state) = WorkspaceState::load(&source, hash) {
            assert_eq!(WorkspaceState::load(&Same(&state.encode()), hash).unwrap(), state);
        }
        let _ = GitState::load(&source, hash);
        let _ = ConversationMessage::load(&source, hash);
        let _ = json::children(input);
        let _ = list::children(input);
        let _ = path::RelPath::parse(input).map(|path| path.to_string());
    });
}
