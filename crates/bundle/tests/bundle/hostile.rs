//! Files that are truncated, changed, too new, or malicious are refused, and nothing is imported.

use serde_json::{Value, json};
use stepback_bundle::BundleError;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::state::{GitState, GitSummary, WorkspaceState};
use stepback_model::tree::{Content, SkipReason, Tree, TreeEntry, TreeNode};
use stepback_store::codec;

use crate::place::{BundleStore, small};

const LOG: u8 = 1;
pub const OBJECTS: u8 = 2;
const GIT_FILE: u8 = 3;
const PART: u8 = 4;

/// A bundle of these blocks, with the right hash at its end.
pub fn bundle(blocks: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = b"stepback-bundle\n\x01\0\0\0".to_vec();
    for (kind, block) in blocks {
        bytes.push(*kind);
        bytes.extend_from_slice(&(block.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(block);
    }
    let hash = blake3::hash(&bytes);
    bytes.extend_from_slice(&[255, 32, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(hash.as_bytes());
    bytes
}

pub fn objects(all: &[(ObjectKind, Vec<u8>)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (kind, bytes) in all {
        block.push(*kind as u8);
        block.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        block.extend_from_slice(bytes);
    }
    block
}

const WORKSPACE: &str = "11111111111111111111111111111111";
const SESSION: &str = "22222222222222222222222222222222";
pub const STEP: &str = "33333333333333333333333333333333";
const AT: &str = "2026-01-01T00:00:00Z";

pub fn workspace() -> Value {
    json!({ "record": "workspace", "id": WORKSPACE, "root": "/w", "created_at": AT })
}

pub fn session() -> Value {
    json!({ "record": "session", "id": SESSION, "workspace": WORKSPACE, "agent": "a",
            "started_at": AT, "info": {} })
}

pub fn step(id: &str, parent: Option<&str>, state: Hash) -> Value {
    json!({ "record": "step", "id": id, "session": SESSION, "number": 1, "parent": parent, "kind": "tool-end",
            "at": AT, "state": state, "summary": "s", "iteration": 0, "worker": null, "call": null, "tool": null,
            "failed": false, "duration": null, "detail": null, "annotation": { "tags": [] }, "trigger": "manual",
            "hidden_by": null, "purged": false })
}

pub fn log(lines: &[Value]) -> (u8, Vec<u8>) {
    (LOG, lines.iter().map(|line| format!("{line}\n")).collect::<String>().into_bytes())
}

fn state_of(tree: Hash) -> Vec<u8> {
    WorkspaceState { files: Some(tree), ..WorkspaceState::default() }.encode()
}

pub fn hash(kind: ObjectKind, bytes: &[u8]) -> Hash {
    Hash::of(kind, bytes)
}

fn empty_state() -> (Hash, Vec<u8>) {
    let bytes = WorkspaceState::default().encode();
    (hash(ObjectKind::State, &bytes), bytes)
}

#[track_caller]
fn refused(bytes: &[u8]) -> BundleError {
    let there = BundleStore::new(1);
    let error = there.import(bytes).expect_err("it was taken in");
    there.expect_nothing();
    match error {
        BundleError::Engine(other) => panic!("{other}"),
        error => error,
    }
}

#[track_caller]
fn senseless(blocks: &[(u8, Vec<u8>)], why: &str) {
    match refused(&bundle(blocks)) {
        BundleError::Inconsistent(what) => assert!(what.contains(why), "{what} instead of {why}"),
        other => panic!("{other} instead of {why}"),
    }
}

/// A step with one file called `name`, of `size` bytes as it says.
fn with_file(name: &[u8], size: u64, content: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let blob = hash(ObjectKind::Blob, content);
    let node = TreeNode::File { mode: 0o644, size, content: Content::Whole(blob) };
    let mut tree = Vec::new();
    minicbor::encode(vec![TreeEntry { name: name.to_vec(), node }], &mut tree).unwrap();
    let state = state_of(hash(ObjectKind::Tree, &tree));
    let lines = log(&[workspace(), session(), step(STEP, None, hash(ObjectKind::State, &state))]);
    let all = [(ObjectKind::State, state), (ObjectKind::Tree, tree), (ObjectKind::Blob, content.to_vec())];
    vec![lines, (OBJECTS, objects(&all))]
}

#[test]
fn what_is_made_by_hand_and_right_is_taken_in() {
    let there = BundleStore::new(1);
    assert_eq!(there.import(&bundle(&with_file(b"name", 4, b"text"))).unwrap().new_steps, 1);
    assert_eq!(there.engine().verify_objects().unwrap().problems, [""; 0]);
    let root = there.store.workspaces().unwrap().remove(0).root;
    assert!(root.starts_with(b"/imported/"));
}

#[test]
fn every_cut_and_every_changed_byte_is_noticed() {
    let world = small(2);
    let bytes = world.export(&world.sessions());
    let there = BundleStore::new(1);
    let step = (bytes.len() / 400).max(1);
    for at in (0..bytes.len()).step_by(step).chain(bytes.len() - 45..bytes.len()) {
        assert!(there.import(&bytes[..at]).is_err(), "cut at {at}");
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(there.import(&changed).is_err(), "changed at {at}");
    }
    assert!(there.import(&[&bytes[..], b"\0"].concat()).is_err());
    there.expect_nothing();
    assert!(matches!(
        refused(&[&bytes[..16], &[9, 0, 0, 0], &bytes[20..]].concat()),
        BundleError::Newer { .. }
    ));
}

#[test]
fn files_that_lead_out_of_the_workspace_are_refused() {
    for name in [&b"../up"[..], b"..", b"a/b", b"/etc/passwd", b"", b"a\0b"] {
        senseless(&with_file(name, 4, b"text"), "file name");
    }
}

/// Bytes of a tree with these entries.
fn tree_of(entries: &[(&str, TreeNode)]) -> Vec<u8> {
    let entry =
        |(name, node): &(&str, TreeNode)| TreeEntry { name: name.as_bytes().to_vec(), node: node.clone() };
    Tree::from_entries(entries.iter().map(entry).collect()).encode()
}

fn dir_of(tree: &[u8]) -> TreeNode {
    TreeNode::Dir { mode: 0o755, tree: hash(ObjectKind::Tree, tree) }
}

/// A step whose files are `entries` and the directory `d`, with a git directory at each of `paths` that has one file.
fn with_git(entries: &[(&str, TreeNode)], paths: &[&str]) -> Vec<(u8, Vec<u8>)> {
    let blob = b"written".to_vec();
    let (size, content) = (blob.len() as u64, Content::Whole(hash(ObjectKind::Blob, &blob)));
    let git_dir = tree_of(&[("HEAD", TreeNode::File { mode: 0o644, size, content })]);
    let below = tree_of(&[("link", link("..")), ("file", TreeNode::File { mode: 0o644, size, content })]);
    let files = tree_of(&[entries, &[("d", dir_of(&below))]].concat());
    let repository = |path: &&str| GitSummary {
        path: path.as_bytes().to_vec(),
        tree: hash(ObjectKind::Tree, &git_dir),
        summary: Default::default(),
    };
    let git = GitState { repositories: paths.iter().map(repository).collect() }.encode();
    let state = WorkspaceState {
        files: Some(hash(ObjectKind::Tree, &files)),
        git: Some(hash(ObjectKind::Git, &git)),
        ..WorkspaceState::default()
    };
    let state = state.encode();
    let lines = log(&[workspace(), session(), step(STEP, None, hash(ObjectKind::State, &state))]);
    let all = [
        (ObjectKind::State, state),
        (ObjectKind::Git, git),
        (ObjectKind::Tree, git_dir),
        (ObjectKind::Tree, below),
        (ObjectKind::Tree, files),
        (ObjectKind::Blob, blob),
    ];
    vec![lines, (OBJECTS, objects(&all))]
}

fn link(target: &str) -> TreeNode {
    TreeNode::Symlink { target: target.as_bytes().to_vec() }
}

#[test]
fn a_git_directory_is_in_a_directory_of_the_files() {
    let there = BundleStore::new(1);
    let skipped = TreeNode::Skipped { reason: SkipReason::GitDir };
    assert!(there.import(&bundle(&with_git(&[(".git", skipped)], &[".git", "d/.git"]))).is_ok());

    let links = [("l", link("/tmp")), ("m", link("d"))];
    let not_there = "is not in a directory of its files";
    for path in ["l/.git", "m/.git", "missing/.git", "d/link/.git", "d/file/.git", "d/missing/.git"] {
        senseless(&with_git(&links, &[path]), not_there);
    }
    for node in [link("/tmp"), link("d")] {
        senseless(&with_git(&[(".git", node)], &[".git"]), not_there);
    }
    for path in [
        "l",
        "d",
        "",
        "/tmp/.git",
        "../.git",
        "d/../.git",
        "d//.git",
        "./.git",
        ".git/",
        ".git/a",
        ".git/.git",
    ] {
        senseless(&with_git(&links, &[path]), "");
    }
    senseless(&with_git(&links, &[".git", ".git"]), "twice");
}

#[test]
fn sizes_and_references_must_be_true() {
    senseless(&with_file(b"name", 5, b"text"), "4 bytes instead of 5");
    senseless(&with_file(b"name", 1 << 60, b"text"), "bytes instead of");
    let (state, bytes) = empty_state();
    let nowhere = Hash::from_bytes([9; 32]);
    senseless(&[log(&[workspace(), session(), step(STEP, None, nowhere)])], "missing");
    // A state whose tree is a blob.
    let wrong = state_of(hash(ObjectKind::Blob, b"x"));
    let lines = log(&[workspace(), session(), step(STEP, None, hash(ObjectKind::State, &wrong))]);
    let all = objects(&[(ObjectKind::State, wrong), (ObjectKind::Blob, b"x".to_vec())]);
    senseless(&[lines, (OBJECTS, all)], "missing");
    let twice = objects(&[(ObjectKind::State, bytes.clone()), (ObjectKind::State, bytes.clone())]);
    senseless(&[log(&[workspace(), session(), step(STEP, None, state)]), (OBJECTS, twice)], "twice");
    let mut long = objects(&[(ObjectKind::State, bytes.clone())]);
    long[1] = 200;
    senseless(&[log(&[workspace(), session()]), (OBJECTS, long)], "block of objects");
    senseless(&[], "no session");
    senseless(&[(LOG, b"{}\n".to_vec())], "line 1");
    senseless(&[(LOG, b"\xff\n".to_vec())], "line 1");
    senseless(&[(LOG, format!("{}\n", "[".repeat(100_000)).into_bytes())], "line 1");
    senseless(&[log(&[session()])], "no workspace");
    senseless(&[log(&[workspace()])], "no session");
}

#[test]
fn records_must_fit_together() {
    let (state, bytes) = empty_state();
    let all = || (OBJECTS, objects(&[(ObjectKind::State, bytes.clone())]));
    let other = "44444444444444444444444444444444";
    let lines = |more: &[Value]| [&[workspace(), session()][..], more].concat();
    let circle = lines(&[step(STEP, Some(other), state), step(other, Some(STEP), state)]);
    senseless(&[log(&circle), all()], "does not come before");
    senseless(&[log(&lines(&[step(STEP, Some(STEP), state)])), all()], "does not come before");
    senseless(&[log(&lines(&[step(STEP, None, state), step(STEP, None, state)])), all()], "twice");
    senseless(&[log(&lines(&[session()])), all()], "twice");
    let mut foreign = step(STEP, None, state);
    foreign["session"] = json!(other);
    senseless(&[log(&lines(&[foreign])), all()], "no session");
    let reference = |name: &str, step: &str| json!({ "record": "reference", "what": "branch", "name": name, "step": step });
    senseless(&[log(&lines(&[step(STEP, None, state), reference("b", other)])), all()], "missing");
    for name in ["", "a  b", "a\tb", "-x", "x\u{7}"] {
        let named = lines(&[step(STEP, None, state), reference(name, STEP)]);
        senseless(&[log(&named), all()], "name of a branch");
    }
    let operation = json!({ "record": "operation", "id": other, "workspace": WORKSPACE, "number": 1, "at": AT,
        "summary": "s", "action": { "kind": "checkpoint-create", "step": STEP }, "status": "applying",
        "undone": false, "journal": state });
    senseless(&[log(&lines(&[step(STEP, None, state), operation])), all()], "under way");
}

#[test]
fn git_files_are_only_taken_under_names_that_git_has() {
    let (state, bytes) = empty_state();
    let lines = log(&[workspace(), session(), step(STEP, None, state)]);
    let all = (OBJECTS, objects(&[(ObjectKind::State, bytes)]));
    let named = |name: &str, size: u64| {
        (GIT_FILE, format!("{}\n", json!({ "name": name, "size": size })).into_bytes())
    };
    // Nothing names it, so it goes nowhere.
    let there = BundleStore::new(1);
    let blocks = [lines.clone(), all.clone(), named("../../escaped", 4), (PART, b"text".to_vec())];
    assert_eq!(there.import(&bundle(&blocks)).unwrap().new_git_files, 0);
    assert!(!there.top().join("escaped").exists());
    senseless(&[lines.clone(), all.clone(), named("x", 9), (PART, b"text".to_vec())], "shorter");
    senseless(&[lines.clone(), all.clone(), named("x", 1), (PART, b"text".to_vec())], "longer");
    senseless(&[lines, all, (PART, b"text".to_vec())], "longer");
}

#[test]
fn a_git_file_with_other_content_is_refused() {
    let name = [b'a'; 38];
    let node = TreeNode::File { mode: 0o444, size: 4, content: Content::Vaulted };
    let object = Tree::from_entries(vec![TreeEntry { name: name.to_vec(), node }]).encode();
    let dir = |name: &[u8], tree: &[u8]| {
        let node = TreeNode::Dir { mode: 0o755, tree: hash(ObjectKind::Tree, tree) };
        Tree::from_entries(vec![TreeEntry { name: name.to_vec(), node }]).encode()
    };
    let fan = dir(b"aa", &object);
    let git_dir = dir(b"objects", &fan);
    let repository = GitSummary {
        path: b".git".to_vec(),
        tree: hash(ObjectKind::Tree, &git_dir),
        summary: Default::default(),
    };
    let git = GitState { repositories: vec![repository] }.encode();
    let files = Tree::default().encode();
    let state = WorkspaceState {
        files: Some(hash(ObjectKind::Tree, &files)),
        git: Some(hash(ObjectKind::Git, &git)),
        ..WorkspaceState::default()
    };
    let state = state.encode();
    let lines = log(&[workspace(), session(), step(STEP, None, hash(ObjectKind::State, &state))]);
    let all = objects(&[
        (ObjectKind::State, state),
        (ObjectKind::Tree, files),
        (ObjectKind::Git, git),
        (ObjectKind::Tree, git_dir),
        (ObjectKind::Tree, fan),
        (ObjectKind::Tree, object),
    ]);
    let key = format!("object-aa{}", "a".repeat(38));
    senseless(&[lines.clone(), (OBJECTS, all.clone())], "is referenced but missing");
    let file = (GIT_FILE, format!("{}\n", json!({ "name": key, "size": 4 })).into_bytes());
    senseless(&[lines, (OBJECTS, all), file, (PART, b"text".to_vec())], "git file");
}

#[test]
fn what_is_known_as_something_else_is_a_contradiction() {
    let (state, bytes) = empty_state();
    let all = (OBJECTS, objects(&[(ObjectKind::State, bytes)]));
    let there = BundleStore::new(1);
    let first = [log(&[workspace(), session(), step(STEP, None, state)]), all.clone()];
    there.import(&bundle(&first)).unwrap();
    let mark = there.store.commit_seq().unwrap();
    let mut other = step(STEP, None, state);
    other["summary"] = json!("something else");
    let mut named = session();
    named["agent"] = json!("another agent");
    for lines in [[workspace(), session(), other], [workspace(), named, step(STEP, None, state)]] {
        let error = there.import(&bundle(&[log(&lines), all.clone()])).unwrap_err();
        assert!(matches!(error, BundleError::Conflict(_)), "{error}");
        assert_eq!(there.store.commit_seq().unwrap(), mark);
    }
}

#[test]
fn what_was_recorded_here_is_not_gone_on_with_by_others() {
    let mut world = small(4);
    let bytes = world.export(&world.sessions());
    let there = BundleStore::new(1);
    there.import(&bytes).unwrap();
    world.call("one");
    // The same session with steps that its own store does not have.
    let known = there.session(&world.sessions()[0]);
    let home = json!(world.sessions()[0].workspace);
    let mut lines = vec![workspace(), session()];
    lines[0]["id"] = home.clone();
    for (name, value) in [
        ("id", json!(known.id)),
        ("agent", json!(known.agent)),
        ("started_at", json!(known.started_at)),
        ("workspace", home),
    ] {
        lines[1][name] = value;
    }
    let (state, bytes) = empty_state();
    let mut forged = step(STEP, None, state);
    forged["session"] = json!(known.id);
    lines.push(forged);
    let forged = bundle(&[log(&lines), (OBJECTS, objects(&[(ObjectKind::State, bytes)]))]);
    let error = world.home.import(&forged).unwrap_err();
    assert!(matches!(error, BundleError::Conflict(_)), "{error}");
}

#[test]
fn what_unpacks_to_more_than_it_says_is_refused() {
    let packed = codec::compress(&vec![0; 64 << 20]).unwrap();
    for raw in [1u32, 1 << 20, (64 << 20) - 1, u32::MAX] {
        let mut bytes = b"stepback-bundle\n\x01\0\0\0".to_vec();
        bytes.push(OBJECTS);
        bytes.extend_from_slice(&(packed.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&raw.to_le_bytes());
        bytes.extend_from_slice(&packed);
        assert!(matches!(refused(&bytes), BundleError::Damaged(_) | BundleError::Inconsistent(_)));
    }
}
