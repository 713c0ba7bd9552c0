//! Keeps seals in a git repository, below `refs/stepback/seals/`: each is a commit with one file, after the one before.
//!
//! Three objects and one reference are written by [`stepback_git`], which runs no git; the index, the work tree and every
//! other reference stay as they are.

use std::path::Path;

use stepback_git::object::{MODE_FILE, encode_tree};
use stepback_git::reference::is_valid_name;
use stepback_git::{GitCommit, GitEntry, GitError, GitObjectKind, GitRepository, GitSignature, ObjectReader};
use stepback_model::time::Timestamp;

/// The references that this module writes.
pub const PREFIX: &str = "refs/stepback/seals/";
/// The name of the file in the commits.
const FILE: &str = "seal.json";

/// Returns the full name of a reference that the user wrote as `NAME`, `git:NAME` or in full; `None` if it is another one,
/// or not a valid name.
pub fn full_name(text: &str) -> Option<String> {
    let name = text.strip_prefix("git:").unwrap_or(text);
    let name = name.strip_prefix(PREFIX).unwrap_or(name);
    let has_plain_letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte));
    let full = format!("{PREFIX}{name}");
    (name != "refs" && !name.starts_with("refs/") && has_plain_letters && is_valid_name(&full))
        .then_some(full)
}

/// Commits a seal to the reference `name` of the repository of `root`, and returns the id of the commit.
pub fn write_seal(root: &Path, name: &str, text: &str, at: Timestamp) -> Result<String, GitError> {
    let repository = GitRepository::open(root)?;
    let mut anchor = repository.open_for_writing()?;
    let parent = repository.read_reference(name)?;
    let blob = repository.write_object(&mut anchor, GitObjectKind::Blob, text.as_bytes())?;
    let entry = GitEntry { mode: MODE_FILE, name: FILE.into(), oid: blob };
    let tree = repository.write_object(&mut anchor, GitObjectKind::Tree, &encode_tree(vec![entry]))?;
    let signature = GitSignature {
        name: "stepback".to_owned(),
        email: "stepback@localhost".to_owned(),
        seconds: at.as_micros().div_euclid(1_000_000),
    };
    let commit = GitCommit {
        tree,
        parents: parent.into_iter().collect(),
        author: signature.clone(),
        committer: signature,
        message: b"Seal of the record\n".to_vec(),
    };
    let commit = repository.write_object(&mut anchor, GitObjectKind::Commit, &commit.encode())?;
    repository.move_reference(&mut anchor, name, parent, commit)?;
    Ok(commit.to_string())
}

/// Returns the full names of the references with seals in the repository of `root`, in order; none if there is no repository.
pub fn list_seals(root: &Path) -> Vec<String> {
    let names = GitRepository::open(root).and_then(|repository| repository.list_references(PREFIX));
    names.unwrap_or_default().into_iter().filter(|name| full_name(name).as_ref() == Some(name)).collect()
}

/// Reads the newest seal of the reference `name`.
pub fn read_seal(root: &Path, name: &str) -> Result<Vec<u8>, GitError> {
    let repository = GitRepository::open(root)?;
    let commit = repository.read_reference(name)?.ok_or_else(|| GitError::NoReference(name.to_owned()))?;
    let reader = ObjectReader::open(&repository)?;
    let tree = reader.commit(commit)?.tree;
    let no_seal = || GitError::Damaged {
        what: name.to_owned(),
        reason: "it does not point to a commit with a seal".to_owned(),
    };
    let entry = reader.entry_at(tree, FILE.as_bytes())?.ok_or_else(no_seal)?;
    reader.blob(entry.oid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_references_of_seals_are_named() {
        for text in ["main", "git:main", "refs/stepback/seals/main", "git:refs/stepback/seals/main"] {
            assert_eq!(full_name(text).as_deref(), Some("refs/stepback/seals/main"), "{text}");
        }
        assert!(full_name("git:2026/week-47").is_some());
        for text in [
            "refs/heads/main",
            "git:refs/heads/main",
            "",
            "../x",
            "a/../../heads/main",
            "a..b",
            "x.lock",
            "-/",
            "a b",
        ] {
            assert_eq!(full_name(text), None, "{text}");
        }
    }
}
