//! A recorded state as a git tree.
//!
//! What git would not take is left out, with the reason: files that git ignores, directories without files, other
//! repositories, names that git refuses, and what the recording does not have. A path that was committed before stays as
//! committed where its content was not recorded.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use stepback_engine::Workspace;
use stepback_git::object::{MODE_DIR, MODE_EXECUTABLE, MODE_FILE, MODE_LINK, MODE_SUBMODULE, encode_tree};
use stepback_git::{GitEntry, GitObjectKind, GitOid, GitPackWriter};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::path::display_bytes;
use stepback_model::state::GitState;
use stepback_model::tree::{SkipReason, Tree, TreeNode};

use crate::error::GitExportError;

/// The most paths that are listed as left out.
const MAX_LISTED: usize = 200;
/// The largest file that is exported, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// The largest file of rules that is read, in bytes.
const MAX_RULE_BYTES: u64 = 1 << 20;

/// What an export leaves out.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOut {
    /// Paths with the reason; the first ones, if there are many.
    pub listed: BTreeMap<String, String>,
    /// How many there are.
    pub count: u64,
}

/// The rules of git about ignored files that hold in a directory, the innermost last.
#[derive(Clone, Default)]
struct RuleStack {
    rules: Vec<(usize, Rc<Gitignore>)>,
    fingerprint: u64,
}

impl RuleStack {
    fn with_text(&self, depth: usize, text: &[u8]) -> Self {
        let mut builder = GitignoreBuilder::new("");
        for line in String::from_utf8_lossy(text).lines() {
            // A line that is not a pattern means nothing, as in git.
            let _ = builder.add_line(None, line);
        }
        let Ok(rules) = builder.build() else { return self.clone() };
        let mut hasher = DefaultHasher::new();
        (self.fingerprint, depth, text).hash(&mut hasher);
        let mut extended = self.clone();
        extended.rules.push((depth, Rc::new(rules)));
        extended.fingerprint = hasher.finish();
        extended
    }

    fn is_ignored(&self, path: &[u8], is_dir: bool) -> bool {
        for (depth, rules) in self.rules.iter().rev() {
            // The path below the directory with the rules.
            let below = path.splitn(depth + 1, |byte| *byte == b'/').last().unwrap_or_default();
            match rules.matched(Path::new(OsStr::from_bytes(below)), is_dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }
}

/// A directory in its context: the same one in another context can have other files.
type DirKey = (Vec<u8>, Hash, Option<GitOid>, u64);

/// Writes recorded states as git trees.
pub(crate) struct StateTreeWriter<'w, 'r> {
    workspace: &'w Workspace,
    /// The pack that the objects are written into.
    pub pack: GitPackWriter<'r>,
    exclude: RuleStack,
    blobs: HashMap<(ObjectKind, Hash), GitOid>,
    trees: HashMap<DirKey, Option<GitOid>>,
    /// What was left out so far.
    pub left_out: LeftOut,
}

impl<'w, 'r> StateTreeWriter<'w, 'r> {
    /// Creates one. `exclude` has the repository's own rules about ignored files.
    pub(crate) fn new(workspace: &'w Workspace, pack: GitPackWriter<'r>, exclude: &[u8]) -> Self {
        Self {
            workspace,
            pack,
            exclude: RuleStack::default().with_text(0, exclude),
            blobs: HashMap::new(),
            trees: HashMap::new(),
            left_out: LeftOut::default(),
        }
    }

    /// Writes the files of a state. `tracked` is the tree of the commit that was checked out: what it has is not ignored.
    pub(crate) fn write(
        &mut self,
        files: Option<Hash>,
        git: &GitState,
        tracked: Option<GitOid>,
    ) -> Result<GitOid, GitExportError> {
        let rules = self.exclude.clone();
        let root = match files {
            Some(files) => self.write_dir(&[], files, git, tracked, &rules)?,
            None => None,
        };
        match root {
            Some(root) => Ok(root),
            None => Ok(self.pack.add(GitObjectKind::Tree, &[])?),
        }
    }

    fn leave_out(&mut self, path: &[u8], reason: impl Into<String>) {
        let path = display_bytes(path).into_owned();
        if self.left_out.listed.contains_key(&path) {
            return;
        }
        self.left_out.count += 1;
        if self.left_out.listed.len() < MAX_LISTED {
            self.left_out.listed.insert(path, reason.into());
        }
    }

    /// Writes a directory; `None` if nothing is in it that git takes.
    fn write_dir(
        &mut self,
        path: &[u8],
        tree: Hash,
        git: &GitState,
        tracked: Option<GitOid>,
        rules: &RuleStack,
    ) -> Result<Option<GitOid>, GitExportError> {
        let key = (path.to_vec(), tree, tracked, rules.fingerprint);
        if let Some(known) = self.trees.get(&key) {
            return Ok(*known);
        }
        let listing = Tree::load(self.workspace.store(), tree)?;
        let tracked_entries = match tracked {
            Some(tracked) => self.pack.reader().tree(tracked)?,
            None => Vec::new(),
        };
        let depth = if path.is_empty() { 0 } else { path.split(|byte| *byte == b'/').count() };
        let rules = match listing.get(b".gitignore") {
            Some(node @ TreeNode::File { size, .. }) if *size <= MAX_RULE_BYTES => {
                rules.with_text(depth, &self.workspace.read_node(node)?)
            }
            _ => rules.clone(),
        };
        let mut has_submodule = false;
        let mut entries = Vec::new();
        for entry in listing.entries() {
            let mut inner = path.to_vec();
            if !inner.is_empty() {
                inner.push(b'/');
            }
            inner.extend_from_slice(&entry.name);
            let tracked = tracked_entries.iter().find(|tracked| tracked.name == entry.name);
            let found = self.write_entry(&inner, &entry.name, &entry.node, git, tracked, &rules)?;
            has_submodule |= found.as_ref().is_some_and(|entry| entry.mode == MODE_SUBMODULE);
            entries.extend(found);
        }
        if entries.is_empty() {
            if listing.entries().is_empty() && !path.is_empty() {
                self.leave_out(path, "git keeps no empty directories");
            }
            self.trees.insert(key, None);
            return Ok(None);
        }
        let oid = self.pack.add(GitObjectKind::Tree, &encode_tree(entries))?;
        // The commit of a submodule is not part of the listing.
        if !has_submodule {
            self.trees.insert(key, Some(oid));
        }
        Ok(Some(oid))
    }

    fn write_entry(
        &mut self,
        path: &[u8],
        name: &[u8],
        node: &TreeNode,
        git: &GitState,
        tracked: Option<&GitEntry>,
        rules: &RuleStack,
    ) -> Result<Option<GitEntry>, GitExportError> {
        let found = |mode, oid| Ok(Some(GitEntry { mode, name: name.to_vec(), oid }));
        if is_refused(name, node) {
            if name != b".git" {
                self.leave_out(path, "git refuses this name");
            }
            return Ok(None);
        }
        let is_ignored = tracked.is_none() && rules.is_ignored(path, node.is_dir());
        if is_ignored && !matches!(node, TreeNode::Skipped { .. }) {
            self.leave_out(path, "ignored by git");
            return Ok(None);
        }
        match node {
            TreeNode::File { size, .. } if *size > MAX_FILE_BYTES => {
                self.leave_out(path, "larger than 1 GiB");
                Ok(None)
            }
            TreeNode::File { mode, content, .. } => {
                let mode = if mode & 0o100 == 0 { MODE_FILE } else { MODE_EXECUTABLE };
                let key = content.object();
                if let Some(oid) = key.and_then(|key| self.blobs.get(&key)) {
                    return found(mode, *oid);
                }
                let oid = self.pack.add(GitObjectKind::Blob, &self.workspace.read_node(node)?)?;
                if let Some(key) = key {
                    self.blobs.insert(key, oid);
                }
                found(mode, oid)
            }
            TreeNode::Symlink { target } => found(MODE_LINK, self.pack.add(GitObjectKind::Blob, target)?),
            TreeNode::Dir { tree, .. } => {
                let mut git_dir = path.to_vec();
                git_dir.extend_from_slice(b"/.git");
                let recorded = git.get(&git_dir).and_then(|repository| repository.summary.commit.as_ref());
                if let Some(tracked) = tracked.filter(|tracked| tracked.mode == MODE_SUBMODULE) {
                    let commit = recorded.and_then(|commit| GitOid::parse(commit.as_bytes()));
                    return found(MODE_SUBMODULE, commit.unwrap_or(tracked.oid));
                }
                if git.get(&git_dir).is_some()
                    || Tree::load(self.workspace.store(), *tree)?.get(b".git").is_some()
                {
                    self.leave_out(path, "a repository of its own, which is not a submodule");
                    return Ok(None);
                }
                let tracked = tracked.filter(|tracked| tracked.is_dir()).map(|tracked| tracked.oid);
                match self.write_dir(path, *tree, git, tracked, rules)? {
                    Some(oid) => found(MODE_DIR, oid),
                    None => Ok(None),
                }
            }
            TreeNode::Skipped { reason: SkipReason::GitDir } => Ok(None),
            TreeNode::Skipped { reason } => {
                let described = format!("not recorded: {}", reason.describe());
                match tracked {
                    Some(tracked) => {
                        self.leave_out(path, format!("{described}; it stays as committed"));
                        Ok(Some(tracked.clone()))
                    }
                    None => {
                        self.leave_out(path, described);
                        Ok(None)
                    }
                }
            }
        }
    }
}

/// Whether git refuses a name in a tree: those that are the git directory on some file system, and a link in place of
/// the list of submodules.
fn is_refused(name: &[u8], node: &TreeNode) -> bool {
    let visible: String =
        String::from_utf8_lossy(name).chars().filter(|letter| !is_invisible(*letter)).collect();
    let lower = visible.trim_end_matches([' ', '.']).to_ascii_lowercase();
    let lower = lower.split(':').next().unwrap_or_default();
    let is_git_dir = matches!(lower, ".git" | "git~1");
    let is_link = matches!(node, TreeNode::Symlink { .. });
    is_git_dir || (is_link && lower == ".gitmodules")
}

/// Whether a file system of Apple ignores a character in a name.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_hold_below_their_directory() {
        let root = RuleStack::default().with_text(0, b"*.log\n/build/\nnested/deep\n!keep.log\n");
        assert!(root.is_ignored(b"a.log", false) && root.is_ignored(b"x/y/a.log", false));
        assert!(!root.is_ignored(b"keep.log", false));
        assert!(root.is_ignored(b"build", true) && !root.is_ignored(b"x/build", true));
        assert!(!root.is_ignored(b"build", false));
        assert!(root.is_ignored(b"nested/deep", false));
        let inner = root.with_text(1, b"!a.log\n/only\n");
        assert!(!inner.is_ignored(b"x/a.log", false));
        assert!(inner.is_ignored(b"x/only", false) && !inner.is_ignored(b"x/y/only", false));
    }

    #[test]
    fn names_that_are_the_git_directory_elsewhere_are_refused() {
        let file = TreeNode::Symlink { target: b"x".to_vec() };
        for name in [
            ".git",
            ".GIT",
            "git~1",
            ".git.",
            ".git ",
            ".g\u{200c}it",
            ".git::$INDEX_ALLOCATION",
            ".gitmodules",
        ] {
            assert!(is_refused(name.as_bytes(), &file), "{name}");
        }
        for name in [".github", "git", ".gitkeep", "x.git"] {
            assert!(!is_refused(name.as_bytes(), &file), "{name}");
        }
    }
}
