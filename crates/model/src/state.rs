//! A state: everything captured after a step, as one small object with a hash per slot.

use minicbor::{Decode, Encode};

use crate::hash::{Hash, ObjectKind};
use crate::object::{ObjectError, ObjectSource};
use crate::path::{RelPath, display_bytes};

/// The slots of a state. A slot that is `None` was not captured at that step.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode, serde::Serialize, serde::Deserialize,
)]
#[cbor(map)]
pub struct WorkspaceState {
    /// The files of the workspace: a [`crate::tree::Tree`].
    #[n(0)]
    pub files: Option<Hash>,
    /// Every git directory in the workspace: a [`GitState`].
    #[n(1)]
    pub git: Option<Hash>,
    /// The last message so far, which leads to all others: a [`crate::conversation`].
    #[n(2)]
    pub conversation: Option<Hash>,
    /// Hypotheses, beliefs, gaps: a [`crate::json`] value.
    #[n(3)]
    pub reasoning: Option<Hash>,
    /// The agent's key-value memory: a [`crate::json`] value.
    #[n(4)]
    pub memory: Option<Hash>,
    /// The current task: a [`crate::json`] value.
    #[n(5)]
    pub task: Option<Hash>,
    /// Names of environment variables and tools, never secret values: a [`crate::json`] value.
    #[n(6)]
    pub env: Option<Hash>,
}

impl WorkspaceState {
    /// Canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(160);
        // Writing into a Vec cannot fail.
        let _ = minicbor::encode(self, &mut bytes);
        bytes
    }

    /// Reads the state stored under `hash`.
    pub fn load(source: &(impl ObjectSource + ?Sized), hash: Hash) -> Result<Self, ObjectError> {
        let bytes = source.read(ObjectKind::State, hash)?;
        minicbor::decode(&bytes).map_err(|error| ObjectError::corrupt(ObjectKind::State, hash, error))
    }
}

/// The git directories found in a workspace.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[cbor(array)]
pub struct GitState {
    /// One per repository, sorted by path.
    #[n(0)]
    pub repositories: Vec<GitSummary>,
}

/// One git directory and a summary of it for display.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array)]
pub struct GitSummary {
    /// Path of the git directory itself, relative to the workspace (`.git`, `vendor/lib/.git`).
    #[cbor(n(0), with = "minicbor::bytes")]
    pub path: Vec<u8>,
    /// Its files, as a tree; immutable objects are [`crate::tree::Content::Vaulted`].
    #[n(1)]
    pub tree: Hash,
    /// The summary at capture time.
    #[n(2)]
    pub summary: RepositorySummary,
}

/// Branch, commit and pending operations of a repository at capture time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode, serde::Serialize)]
#[cbor(array)]
pub struct RepositorySummary {
    /// The checked-out branch (`main`), or `None` when HEAD is detached or unreadable.
    #[n(0)]
    pub branch: Option<String>,
    /// The commit HEAD resolves to, in hex; `None` before the first commit.
    #[n(1)]
    pub commit: Option<String>,
    /// A merge, rebase, cherry-pick, revert or bisect in progress.
    #[n(2)]
    pub in_progress: Option<String>,
    /// Number of stash entries.
    #[n(3)]
    pub stashes: u32,
}

impl GitState {
    /// Canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        // Writing into a Vec cannot fail.
        let _ = minicbor::encode(self, &mut bytes);
        bytes
    }

    /// Reads the git state stored under `hash`.
    pub fn load(source: &(impl ObjectSource + ?Sized), hash: Hash) -> Result<Self, ObjectError> {
        let bytes = source.read(ObjectKind::Git, hash)?;
        Self::decode(&bytes).map_err(|reason| ObjectError::corrupt(ObjectKind::Git, hash, reason))
    }

    /// Decodes canonical bytes, and checks that every repository is at a path of its own below the workspace, as a scan
    /// finds them: the last component is `.git`, and no other is.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let state: Self = minicbor::decode(bytes).map_err(|error| error.to_string())?;
        for GitSummary { path, .. } in &state.repositories {
            let display_path = display_bytes(path);
            let parsed =
                RelPath::parse(path.as_slice()).map_err(|error| format!("{display_path:?}: {error}"))?;
            let git_index = parsed.components().position(|name| name == b".git");
            if git_index.is_none_or(|index| index + 1 != parsed.depth()) {
                return Err(format!("{display_path:?} is not the path of a git directory"));
            }
        }
        if !state.repositories.windows(2).all(|pair| pair[0].path < pair[1].path) {
            return Err("a git directory occurs twice, or they are not sorted".into());
        }
        Ok(state)
    }

    /// The repository whose git directory is at `path`.
    pub fn get(&self, path: &[u8]) -> Option<&GitSummary> {
        self.repositories.iter().find(|repository| repository.path == path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_stores_only_the_slots_it_has() {
        let empty = WorkspaceState::default();
        let files =
            WorkspaceState { files: Some(Hash::of(ObjectKind::Tree, b"")), ..WorkspaceState::default() };
        assert!(empty.encode().len() < 10);
        assert!(files.encode().len() < 48);
        assert_eq!(minicbor::decode::<WorkspaceState>(&files.encode()).unwrap(), files);
    }

    #[test]
    fn a_repository_is_at_a_path_of_its_own_below_the_workspace() {
        let decoded = |paths: &[&str]| {
            let repository = |path: &&str| GitSummary {
                path: path.as_bytes().to_vec(),
                tree: Hash::of(ObjectKind::Tree, b""),
                summary: RepositorySummary::default(),
            };
            GitState::decode(&GitState { repositories: paths.iter().map(repository).collect() }.encode())
        };
        assert!(decoded(&[]).is_ok());
        assert!(decoded(&[".git", "a/b/.git", "vendor/.git"]).is_ok());
        for bad in [
            &[""][..],
            &["l"],
            &["/.git"],
            &["/tmp/.git"],
            &["../.git"],
            &["a/../.git"],
            &["a/.."],
            &["a//.git"],
            &["./.git"],
            &[".git/"],
            &["a\0/.git"],
            &[".git/modules/.git"],
            &[".git/hooks"],
            &[".git", ".git"],
            &["b/.git", "a/.git"],
        ] {
            assert!(decoded(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_unknown_slot_from_a_newer_version_is_ignored_by_the_decoder() {
        // Slot 99 holding null; the store's format version decides whether such a store may be opened at all.
        assert_eq!(
            minicbor::decode::<WorkspaceState>(&[0xa1, 0x18, 99, 0xf6]).unwrap(),
            WorkspaceState::default()
        );
    }
}
