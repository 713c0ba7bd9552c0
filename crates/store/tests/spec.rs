//! The documents in `docs/spec/` say what the code does, byte by byte.

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::StepId;
use stepback_model::list;
use stepback_model::object::{ObjectError, ObjectSink};
use stepback_model::plan::RewindPlan;
use stepback_model::record::{OperationAction, StateTransition};
use stepback_model::state::{GitState, WorkspaceState};
use stepback_model::tree::{Content, SkipReason, Tree, TreeEntry, TreeNode};
use stepback_store::embedded::{EmbeddedStore, FORMAT};
use stepback_testkit::sample::{noise, put};

const OBJECTS: &str = include_str!("../../../docs/spec/objects.md");
const STORE: &str = include_str!("../../../docs/spec/store.md");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn assert_documented(bytes: &[u8]) {
    assert!(OBJECTS.contains(&format!("`{}`", hex(bytes))), "objects.md does not mention {}", hex(bytes));
}

#[test]
fn hash_domains_are_as_documented() {
    for kind in ObjectKind::ALL {
        let (number, name, empty) = (kind as u8, kind.to_string(), Hash::of(kind, b""));
        let row = format!("| {number} | {name} | `stepback object v1: {name:.<12}` | `{empty}` |");
        assert!(OBJECTS.contains(&row), "objects.md does not have {row}");
    }
}

#[test]
fn canonical_bytes_are_as_documented() {
    let hash = Hash::from_bytes([0x11; 32]);
    let nodes = [
        ("f", TreeNode::File { mode: 0o644, size: 5, content: Content::Whole(hash) }),
        ("d", TreeNode::Dir { mode: 0o755, tree: hash }),
        ("l", TreeNode::Symlink { target: b"t".to_vec() }),
        ("s", TreeNode::Skipped { reason: SkipReason::Fifo }),
    ];
    for (name, node) in nodes {
        assert_documented(&Tree::from_entries(vec![TreeEntry { name: name.into(), node }]).encode());
    }
    assert_documented(&Tree::default().encode());
    assert_documented(&WorkspaceState::default().encode());
    assert_documented(&GitState::default().encode());
    assert_documented(&RewindPlan::default().encode());
}

#[test]
fn the_empty_list_is_as_documented() {
    struct Documented;
    impl ObjectSink for Documented {
        fn write(&self, kind: ObjectKind, bytes: &[u8], _: Option<Hash>) -> Result<Hash, ObjectError> {
            assert_documented(bytes);
            Ok(Hash::of(kind, bytes))
        }
    }
    list::build(&Documented, []).unwrap();
}

#[test]
fn a_pack_is_laid_out_as_documented() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let record =
        |hash: Hash| [b"SR\x01\0\0\0\0\0\x05\0\0\0\x05\0\0\0".as_slice(), hash.as_bytes(), b"hello"].concat();
    // With much else it is in a pack, and what is little in the database.
    let hash = put(&store, &[b"hello", &noise(1, 20_000)])[0];
    let pack = std::fs::read(dir.path().join("packs/00000001.pack")).unwrap();
    assert!(pack.starts_with(&[b"SBPACK\0\x01".as_slice(), &record(hash)].concat()));
    let other = tempfile::tempdir().unwrap();
    put(&EmbeddedStore::open(other.path()).unwrap(), &[b"hello"]);
    let db = rusqlite::Connection::open(other.path().join("log.sqlite")).unwrap();
    let stored: Vec<u8> = db
        .query_row("SELECT record FROM records JOIN objects ON pack = 0 AND offset = id", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(stored, record(hash));
}

#[test]
fn tables_and_format_are_as_documented() {
    let dir = tempfile::tempdir().unwrap();
    EmbeddedStore::open(dir.path()).unwrap();
    let db = rusqlite::Connection::open(dir.path().join("log.sqlite")).unwrap();
    let sql =
        "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'";
    let mut statement = db.prepare(sql).unwrap();
    let rows =
        statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).unwrap();
    let mut columns = 0;
    for row in rows {
        let (table, column) = row.unwrap();
        columns += 1;
        assert!(STORE.contains(&format!("| `{table}` |")), "store.md does not mention the table {table}");
        assert!(STORE.contains(&format!("`{column}")), "store.md does not mention {table}.{column}");
    }
    assert!(columns > 40);
    assert!(STORE.contains(&format!("`user_version` is the store's format, {FORMAT}.")));
    assert!(STORE.contains(&format!("| {FORMAT} | ")));
}

#[test]
fn a_move_is_written_as_documented() {
    let id = StepId::from_bytes([1; 16]);
    let moved = StateTransition {
        before: id,
        after: id,
        onto: id,
        git: true,
        detail: None,
        branches: None,
        by: None,
        conversation_from: None,
        parts: vec![],
    };
    let written = serde_json::to_string(&OperationAction::Rewind { moved }).unwrap();
    let id = "01".repeat(16);
    let fields = format!(r#"{{"before":"{id}","after":"{id}","onto":"{id}","git":true}}"#);
    assert_eq!(written, format!(r#"{{"kind":"rewind","moved":{fields}}}"#));
    assert!(STORE.contains("a move is `{before, after, onto, git}`"));
}
