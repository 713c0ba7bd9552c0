//! Which files of a repository were staged in a state, and whether any had changes that were not committed.
//!
//! Index, HEAD, objects and files are all part of a state, so this is derived on request, and is as exact for an old
//! checkpoint as for the present. Nothing runs git: see [`stepback_worktree::git_index`].

use std::collections::{BTreeMap, HashMap};

use stepback_model::hash::Hash;
use stepback_model::hex;
use stepback_model::path::RelPath;
use stepback_model::state::{GitSummary, WorkspaceState};
use stepback_model::tree::{Content, TreeNode};
use stepback_store::git_objects::{self, GitPack, Oid};
use stepback_worktree::git_index::GitIndex;

use crate::diff;
use crate::error::EngineError;
use crate::workspace::{StoreSource, Workspace};

/// Most bytes of files that are read to find out whether they differ from what git has.
const MAX_COMPARED_BYTES: u64 = 64 << 20;
/// Most entries that are read of a commit's trees.
const MAX_TREE_ENTRIES: usize = 1_000_000;

/// What is not committed in a repository.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RepositoryStatus {
    /// Paths, relative to the workspace, whose version in the index is not the one of HEAD; `None` if git's objects cannot be
    /// read.
    pub staged: Option<Vec<String>>,
    /// Paths of tracked files, relative to the workspace, that differ from the index.
    pub changed: Vec<String>,
    /// Whether anything is staged or changed; `None` if that could not be found out. Files that git does not track do not count.
    pub uncommitted: Option<bool>,
}

/// The objects of a repository, as a state has them.
struct RepositoryObjects<'w> {
    workspace: &'w Workspace,
    tree: Hash,
    packs: Vec<GitPack>,
}

impl Workspace {
    /// Returns what is staged and changed in a repository of a state.
    pub fn repository_status(
        &self,
        state: &WorkspaceState,
        repository: &GitSummary,
    ) -> Result<RepositoryStatus, EngineError> {
        let objects = RepositoryObjects::open(self, repository.tree)?;
        let Some(index) = objects.read_file("index")? else {
            return Ok(RepositoryStatus {
                staged: Some(Vec::new()),
                uncommitted: Some(false),
                ..Default::default()
            });
        };
        let Some(index) = GitIndex::from_bytes(&index) else { return Ok(RepositoryStatus::default()) };
        let git_dir = RelPath::parse(repository.path.clone()).unwrap_or_default();
        let root = git_dir.split_last().map(|(parent, _)| parent).unwrap_or_default();
        let shown = |path: &[u8]| match root.is_root() {
            true => String::from_utf8_lossy(path).into_owned(),
            false => format!("{}/{}", root.display(), String::from_utf8_lossy(path)),
        };
        let head = match &repository.summary.commit {
            None => Some(BTreeMap::new()),
            Some(commit) => objects.files_of_commit(commit)?,
        };
        let staged = head.map(|head| {
            let mut staged: Vec<String> = Vec::new();
            for entry in index.files() {
                if head.get(entry.path) != Some(&entry.oid) {
                    staged.push(shown(entry.path));
                }
            }
            staged.extend(head.keys().filter(|path| !index.has(path)).map(|path| shown(path)));
            staged.sort();
            staged.dedup();
            staged
        });
        let (changed, is_complete) = self.compare_with_index(state, &root, &index)?;
        let changed: Vec<String> = changed.iter().map(|path| shown(path)).collect();
        let uncommitted = match &staged {
            _ if !changed.is_empty() => Some(true),
            Some(staged) if !staged.is_empty() => Some(true),
            Some(_) if is_complete => Some(false),
            _ => None,
        };
        Ok(RepositoryStatus { staged, changed, uncommitted })
    }

    /// Returns the tracked paths that differ from the index, sorted, and whether all files were compared.
    fn compare_with_index(
        &self,
        state: &WorkspaceState,
        root: &RelPath,
        index: &GitIndex,
    ) -> Result<(Vec<Vec<u8>>, bool), EngineError> {
        let source = StoreSource(self.store());
        let tree = match (state.files, root.is_root()) {
            (Some(files), false) => match diff::find_node(&source, files, root)? {
                Some(TreeNode::Dir { tree, .. }) => Some(tree),
                _ => None,
            },
            (files, _) => files,
        };
        let files: HashMap<Vec<u8>, TreeNode> = (diff::compare_trees(&source, None, tree)?.into_iter())
            .filter_map(|change| Some((change.path.as_bytes().to_vec(), change.after?)))
            .collect();
        let (mut changed, mut budget, mut is_complete) = (Vec::new(), MAX_COMPARED_BYTES, true);
        for entry in index.files().filter(|entry| entry.is_checked_out) {
            let (size, is_executable) = match files.get(entry.path) {
                // What a scan leaves out is not known to differ.
                Some(TreeNode::Skipped { .. } | TreeNode::Dir { .. }) => continue,
                Some(TreeNode::File { size, mode, .. }) => (*size, mode & 0o100 != 0),
                Some(TreeNode::Symlink { target }) => (target.len() as u64, entry.is_executable),
                None => {
                    changed.push(entry.path.to_vec());
                    continue;
                }
            };
            // Git writes a size of zero for a file whose stat it does not trust.
            if is_executable != entry.is_executable || entry.size != 0 && size as u32 != entry.size {
                changed.push(entry.path.to_vec());
                continue;
            }
            if size > budget {
                is_complete = false;
                continue;
            }
            budget -= size;
            let bytes = match files.get(entry.path) {
                Some(node) => self.read_node(node)?,
                None => continue,
            };
            if !is_blob(&bytes, &entry.oid) {
                changed.push(entry.path.to_vec());
            }
        }
        changed.sort();
        Ok((changed, is_complete))
    }
}

/// Whether a file has the content of a blob, also if git converts the ends of its lines.
fn is_blob(bytes: &[u8], oid: &Oid) -> bool {
    if stepback_store::git_blob_id(bytes) == *oid {
        return true;
    }
    let mut converted = Vec::with_capacity(bytes.len());
    for (index, byte) in bytes.iter().enumerate() {
        if *byte != b'\r' || bytes.get(index + 1) != Some(&b'\n') {
            converted.push(*byte);
        }
    }
    converted.len() != bytes.len() && stepback_store::git_blob_id(&converted) == *oid
}

impl<'w> RepositoryObjects<'w> {
    fn open(workspace: &'w Workspace, tree: Hash) -> Result<Self, EngineError> {
        let mut packs = Vec::new();
        let source = StoreSource(workspace.store());
        let dir = RelPath::parse("objects/pack").unwrap_or_default();
        if let (Some(TreeNode::Dir { tree: dir, .. }), Some(vault)) =
            (diff::find_node(&source, tree, &dir)?, workspace.engine.vault_dir())
        {
            for change in diff::compare_trees(&source, None, Some(dir))? {
                let is_vaulted =
                    matches!(change.after, Some(TreeNode::File { content: Content::Vaulted, .. }));
                let id = git_objects::pack_id(change.path.as_bytes()).filter(|_| is_vaulted);
                // A pack that cannot be opened is one whose objects are not known.
                packs.extend(id.and_then(|id| GitPack::open(&vault, id).ok()));
            }
        }
        Ok(Self { workspace, tree, packs })
    }

    /// The content of a file of the git directory; `None` if it is not there.
    fn read_file(&self, path: &str) -> Result<Option<Vec<u8>>, EngineError> {
        let path = RelPath::parse(path).unwrap_or_default();
        let node = diff::find_node(&StoreSource(self.workspace.store()), self.tree, &path)?;
        match node.filter(|node| !matches!(node, TreeNode::File { content: Content::Vaulted, .. })) {
            Some(node) => self.workspace.read_node(&node).map(Some),
            None => Ok(None),
        }
    }

    /// The content of an object; `None` if it is not there or cannot be read.
    fn read_object(&self, oid: &Oid) -> Result<Option<Vec<u8>>, EngineError> {
        let name = hex::encode(oid);
        if let Some(loose) = self.read_file(&format!("objects/{}/{}", &name[..2], &name[2..]))? {
            return Ok(git_objects::inflate_loose(&loose));
        }
        Ok(self.packs.iter().find(|pack| pack.contains(oid)).and_then(|pack| pack.read_object(oid).ok()))
    }

    /// The files of a commit with the ids of their blobs; `None` if its objects cannot be read.
    fn files_of_commit(&self, commit: &str) -> Result<Option<BTreeMap<Vec<u8>, Oid>>, EngineError> {
        let Some(commit) = hex::decode_array::<20>(commit.as_bytes()) else { return Ok(None) };
        let Some(text) = self.read_object(&commit)? else { return Ok(None) };
        let tree = text.strip_prefix(b"tree ").and_then(|rest| hex::decode_array::<20>(rest.get(..40)?));
        let Some(tree) = tree else { return Ok(None) };
        let (mut files, mut open) = (BTreeMap::new(), vec![(Vec::new(), tree)]);
        while let Some((above, tree)) = open.pop() {
            let Some(bytes) = self.read_object(&tree)? else { return Ok(None) };
            let Some(entries) = git_objects::parse_tree(&bytes) else { return Ok(None) };
            for entry in entries {
                let path: Vec<u8> = match above.is_empty() {
                    true => entry.name.to_vec(),
                    false => [above.as_slice(), b"/", entry.name].concat(),
                };
                match entry.is_tree {
                    true => open.push((path, entry.oid)),
                    false => drop(files.insert(path, entry.oid)),
                }
            }
            if files.len() + open.len() > MAX_TREE_ENTRIES {
                return Ok(None);
            }
        }
        Ok(Some(files))
    }
}
