//! Hostile trees, links and git directories, drawn at random: whatever a bundle says, a restore changes nothing outside the
//! directory it was given.
//!
//! A changed byte of a bundle only breaks the addresses in it. So the input of this target is a description of files, one
//! line each, from which a bundle with right addresses is made.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::state::{GitState, GitSummary, WorkspaceState};
use stepback_model::tree::{Content, SkipReason, TreeEntry, TreeNode};
use stepback_store::port::StepQuery;
use stepback_testkit::fuzz::FuzzTarget;
use stepback_testkit::tree::{self, Copy};

use crate::hostile::{OBJECTS, STEP, bundle, hash, log, objects, session, step, workspace};
use crate::place::BundleStore;

const BLOB: &[u8] = b"written by a restore";

/// Files by name, before they have addresses.
enum Draft {
    Dir(BTreeMap<Vec<u8>, Draft>),
    Leaf(TreeNode),
}

/// What a description says.
struct Described {
    files: Draft,
    repositories: Vec<Vec<u8>>,
}

/// Reads lines such as `f src/file`, `d empty`, `l link target`, `g .git` (a git directory among the files) and `r .git` (a git
/// directory of the git slot). Other lines mean nothing.
fn read(input: &[u8]) -> Described {
    let mut described = Described { files: Draft::Dir(BTreeMap::new()), repositories: Vec::new() };
    for line in input.split(|byte| *byte == b'\n').take(40) {
        let mut words = line.splitn(3, |byte| *byte == b' ');
        let (Some(kind), Some(path)) = (words.next(), words.next()) else { continue };
        let leaf = match kind {
            b"f" => Draft::Leaf(TreeNode::File {
                mode: 0o644,
                size: BLOB.len() as u64,
                content: Content::Whole(hash(ObjectKind::Blob, BLOB)),
            }),
            b"d" => Draft::Dir(BTreeMap::new()),
            b"l" => Draft::Leaf(TreeNode::Symlink { target: words.next().unwrap_or_default().to_vec() }),
            b"g" => Draft::Leaf(TreeNode::Skipped { reason: SkipReason::GitDir }),
            b"r" => {
                described.repositories.push(path.to_vec());
                continue;
            }
            _ => continue,
        };
        put(&mut described.files, path, leaf);
    }
    described
}

fn put(draft: &mut Draft, path: &[u8], leaf: Draft) {
    let Draft::Dir(entries) = draft else { return };
    match path.iter().position(|byte| *byte == b'/') {
        Some(slash) => {
            let below = entries.entry(path[..slash].to_vec()).or_insert_with(|| Draft::Dir(BTreeMap::new()));
            put(below, &path[slash + 1..], leaf);
        }
        None => drop(entries.insert(path.to_vec(), leaf)),
    }
}

/// Encodes a directory and everything below it, without any check; returns its address.
fn encode(draft: &Draft, into: &mut BTreeMap<Hash, (ObjectKind, Vec<u8>)>) -> Hash {
    let Draft::Dir(entries) = draft else { panic!("only directories are encoded") };
    let mut list = Vec::new();
    for (name, draft) in entries {
        let node = match draft {
            Draft::Leaf(node) => node.clone(),
            Draft::Dir(_) => TreeNode::Dir { mode: 0o755, tree: encode(draft, into) },
        };
        list.push(TreeEntry { name: name.clone(), node });
    }
    let mut bytes = Vec::new();
    minicbor::encode(&list, &mut bytes).unwrap();
    add(into, ObjectKind::Tree, bytes)
}

fn add(into: &mut BTreeMap<Hash, (ObjectKind, Vec<u8>)>, kind: ObjectKind, bytes: Vec<u8>) -> Hash {
    let address = hash(kind, &bytes);
    into.insert(address, (kind, bytes));
    address
}

/// The objects of a description, and the state that they make up.
fn objects_of(described: &Described) -> (BTreeMap<Hash, (ObjectKind, Vec<u8>)>, WorkspaceState) {
    let mut all = BTreeMap::new();
    add(&mut all, ObjectKind::Blob, BLOB.to_vec());
    let files = encode(&described.files, &mut all);
    let mut inside = read(b"f HEAD\nf hooks/post-checkout\nl refs ..\n");
    put(&mut inside.files, b"refs2/up", Draft::Leaf(TreeNode::Symlink { target: b"../../..".to_vec() }));
    let tree = encode(&inside.files, &mut all);
    let repository = |path: &Vec<u8>| GitSummary { path: path.clone(), tree, summary: Default::default() };
    let repositories: Vec<GitSummary> = described.repositories.iter().map(repository).collect();
    let git = add(&mut all, ObjectKind::Git, GitState { repositories }.encode());
    (all, WorkspaceState { files: Some(files), git: Some(git), ..WorkspaceState::default() })
}

fn bundle_of(mut all: BTreeMap<Hash, (ObjectKind, Vec<u8>)>, state: &WorkspaceState) -> Vec<u8> {
    let state = add(&mut all, ObjectKind::State, state.encode());
    let lines = log(&[workspace(), session(), step(STEP, None, state)]);
    bundle(&[lines, (OBJECTS, objects(&all.into_values().collect::<Vec<_>>()))])
}

/// A directory to restore into, beside and outside of which nothing may change.
struct GuardedTarget {
    dir: tempfile::TempDir,
    before: Copy,
}

impl GuardedTarget {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("outside/d")).unwrap();
        fs::write(dir.path().join("outside/HEAD"), "theirs").unwrap();
        let before = Self::around(dir.path());
        Self { dir, before }
    }

    fn around(dir: &Path) -> Copy {
        tree::copy_of(dir, |path| path == b"into")
    }

    fn outside(&self) -> String {
        self.dir.path().join("outside").display().to_string()
    }

    /// Restores with `restore`, which gets the directory, and returns whether it could.
    fn check(&self, restore: impl FnOnce(&Path) -> bool) -> bool {
        let into = self.dir.path().join("into");
        let restored = restore(&into);
        assert_eq!(Self::around(self.dir.path()), self.before);
        assert!(Command::new("chmod").args(["-R", "u+rwX"]).arg(&into).output().is_ok());
        let _ = fs::remove_dir_all(&into);
        restored
    }
}

/// Imports a bundle and restores its only step; returns whether both could be done.
fn import_and_restore(there: &BundleStore, bundle: &[u8], target: &GuardedTarget) -> bool {
    if there.import(bundle).is_err() {
        return false;
    }
    let record = there.store.workspaces().unwrap().remove(0);
    let root = PathBuf::from(OsStr::from_bytes(&record.root));
    let workspace = there.engine().open_known_workspace(&root).unwrap();
    let stored = there.store.steps(record.id, &StepQuery::default()).unwrap().remove(0);
    let state = workspace.load_state(&stored).unwrap();
    target.check(|into| workspace.materialize(&state, into, true).is_ok())
}

#[test]
fn a_restore_stays_in_its_directory() {
    let target = GuardedTarget::new();
    let outside = target.outside();
    let corpus = [
        format!("g .git\nr .git\nf file\nf d/file\nl d/link ../..\nl l {outside}\n"),
        format!("r d/.git\nf d/file\nl l {outside}\nl m d\n"),
        format!("l l {outside}\nr l\n"),
        format!("l l {outside}\nr l/.git\n"),
        format!("l .git {outside}\nr .git\n"),
        format!("d d\nl d/.git {outside}\nr d/.git\nr .git\n"),
        format!("f .git/HEAD\nr .git\nf {outside}/file\n"),
        "f ../file\nf a/../../file\nr ../.git\nr ./.git\nr a//.git\nr /.git\n".to_owned(),
    ];
    let words = [
        outside.as_str(),
        "../../outside",
        "..",
        "/",
        "\nl l ",
        "\nr ",
        "\nf ",
        ".git",
        "l/",
        "d/",
        " ",
        "\n",
    ];
    // Stores are replaced once something is in them.
    let there = RefCell::new(BundleStore::in_memory(1));
    let direct = BundleStore::in_memory(2);
    let opened = direct.engine().open_workspace_root(&direct.root).unwrap();
    let (mut imported, mut written) = (0, 0);
    FuzzTarget::new("restored files", corpus).words(&words).run(1_500, |input| {
        let described = read(input);
        let (all, state) = objects_of(&described);
        if import_and_restore(&there.borrow(), &bundle_of(all.clone(), &state), &target) {
            imported += 1;
        }
        there.replace(BundleStore::in_memory(1));
        // The same without the checks of an import: a store may hold what an earlier version imported.
        let batch = direct.store.begin().unwrap();
        for (kind, bytes) in all.values() {
            batch.write(*kind, bytes, None).unwrap();
        }
        direct.store.commit(Some(batch.finish().unwrap()), &[]).unwrap();
        written += u32::from(target.check(|into| opened.materialize(&state, into, true).is_ok()));
    });
    assert!(imported > 50 && written >= imported, "{imported} of {written} were imported");
}
