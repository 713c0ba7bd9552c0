//! The notes of a repository, by commit.
//!
//! Notes are files in a tree, named after the commit; where there are many, the first digits of the name are directories.
//! Both are read, at any depth, and a note is written where its neighbours are.

use stepback_git::object::{MODE_DIR, MODE_FILE, encode_tree};
use stepback_git::{GitEntry, GitError, GitObjectKind, GitOid, GitRepository, ObjectReader};
use stepback_worktree::anchored_path::AnchoredDir;

/// The deepest directory of notes.
const MAX_DEPTH: usize = 19;

/// Whether an entry is a directory of notes.
fn is_fan_out(entry: &GitEntry) -> bool {
    entry.is_dir() && entry.name.len() == 2 && entry.name.iter().all(u8::is_ascii_hexdigit)
}

/// The note of a commit, or `None`.
pub(crate) fn find_note(
    reader: &ObjectReader,
    root: GitOid,
    commit: GitOid,
) -> Result<Option<Vec<u8>>, GitError> {
    let name = commit.to_string();
    let mut tree = root;
    for depth in 0..=MAX_DEPTH {
        let entries = reader.tree(tree)?;
        let rest = &name.as_bytes()[depth * 2..];
        if let Some(note) = entries.iter().find(|entry| entry.name == rest && entry.is_file()) {
            return reader.blob(note.oid).map(Some);
        }
        match entries.iter().find(|entry| is_fan_out(entry) && rest.starts_with(&entry.name)) {
            Some(inner) => tree = inner.oid,
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// Sets the note of a commit, and returns the new tree.
pub(crate) fn put_note(
    repository: &GitRepository,
    reader: &ObjectReader,
    anchor: &mut AnchoredDir,
    root: Option<GitOid>,
    commit: GitOid,
    blob: GitOid,
) -> Result<GitOid, GitError> {
    put_below(repository, reader, anchor, root, commit.to_string().as_bytes(), blob)
}

fn put_below(
    repository: &GitRepository,
    reader: &ObjectReader,
    anchor: &mut AnchoredDir,
    tree: Option<GitOid>,
    rest: &[u8],
    blob: GitOid,
) -> Result<GitOid, GitError> {
    let mut entries = match tree {
        // Also what was just written: a single object is always looked for on disk.
        Some(tree) => reader.tree(tree)?,
        None => Vec::new(),
    };
    let is_there = entries.iter().any(|entry| entry.name == rest);
    let is_fanned_out = rest.len() > 2 && entries.iter().any(is_fan_out);
    let (name, mode, oid) = match !is_there && is_fanned_out {
        true => {
            let inner = entries.iter().find(|entry| is_fan_out(entry) && rest.starts_with(&entry.name));
            let inner = inner.map(|entry| entry.oid);
            (&rest[..2], MODE_DIR, put_below(repository, reader, anchor, inner, &rest[2..], blob)?)
        }
        false => (rest, MODE_FILE, blob),
    };
    entries.retain(|entry| entry.name != name);
    entries.push(GitEntry { mode, name: name.to_vec(), oid });
    repository.write_object(anchor, GitObjectKind::Tree, &encode_tree(entries))
}
