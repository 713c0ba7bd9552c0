//! Directory trees: the entries of a directory, in canonical bytes.
//!
//! A tree lists *everything* that was in the directory, including what was not stored and why ([`TreeNode::Skipped`]). So a
//! path that is missing from a tree did not exist, and a rewind can distinguish a file to remove from one to leave
//! unchanged.

use minicbor::{Decode, Encode};

use crate::hash::{Hash, ObjectKind};
use crate::object::{ObjectError, ObjectSource};
use crate::path::is_valid_name;

/// Permission bits that are recorded: rwx for owner, group and others, plus setuid, setgid and sticky.
pub const MODE_MASK: u32 = 0o7777;

/// Where a file's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Encode, Decode)]
pub enum Content {
    /// One blob.
    #[n(0)]
    Whole(#[n(0)] Hash),
    /// A list of chunks ([`crate::list`]) whose bytes follow each other.
    #[n(1)]
    Chunked(#[n(0)] Hash),
    /// An immutable file of a git directory, kept under its own name in the store's vault of that repository.
    #[n(2)]
    Vaulted,
}

impl Content {
    /// The object this content starts at, if it is in the object store.
    pub fn object(&self) -> Option<(ObjectKind, Hash)> {
        match *self {
            Content::Whole(hash) => Some((ObjectKind::Blob, hash)),
            Content::Chunked(hash) => Some((ObjectKind::List, hash)),
            Content::Vaulted => None,
        }
    }
}

/// Why something that exists on disk has no content in the store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Encode, Decode, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[cbor(index_only)]
pub enum SkipReason {
    /// A directory of derived files that tools rebuild, such as `node_modules`.
    #[n(0)]
    HeavyCache,
    /// A rule in `.stepbackignore`.
    #[n(1)]
    Rule,
    /// Ignored by git and over the size budget for ignored files.
    #[n(2)]
    Budget,
    /// A named pipe.
    #[n(3)]
    Fifo,
    /// A socket.
    #[n(4)]
    Socket,
    /// A block or character device.
    #[n(5)]
    Device,
    /// Read permission was denied.
    #[n(6)]
    Unreadable,
    /// A git directory: kept in the state's git slot instead.
    #[n(7)]
    GitDir,
    /// Outside of the workspace although below its root: another file system mounted there, or stepback's own store.
    #[n(8)]
    Foreign,
    /// It kept changing while it was read, or vanished and came back; no consistent content could be read.
    #[n(9)]
    Unstable,
}

impl SkipReason {
    /// True if it was excluded on purpose; a restore leaves such a file unchanged. False if it could not be stored, so
    /// that a restore is incomplete.
    pub fn is_by_rule(self) -> bool {
        match self {
            Self::HeavyCache | Self::Rule | Self::Budget | Self::GitDir | Self::Foreign => true,
            Self::Fifo | Self::Socket | Self::Device | Self::Unreadable | Self::Unstable => false,
        }
    }

    /// A short phrase for listings.
    pub fn describe(self) -> &'static str {
        match self {
            Self::HeavyCache => "cache that tools rebuild",
            Self::Rule => ".stepbackignore",
            Self::Budget => "ignored by git and over the size budget",
            Self::Fifo => "named pipe",
            Self::Socket => "socket",
            Self::Device => "device",
            Self::Unreadable => "permission denied",
            Self::GitDir => "git directory",
            Self::Foreign => "another file system, or the store itself",
            Self::Unstable => "kept changing while it was read",
        }
    }
}

/// One entry of a directory, without its name.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Encode, Decode)]
pub enum TreeNode {
    /// A regular file.
    #[n(0)]
    File {
        /// Permission bits.
        #[n(0)]
        mode: u32,
        /// Length in bytes.
        #[n(1)]
        size: u64,
        /// Where the bytes are.
        #[n(2)]
        content: Content,
    },
    /// A directory.
    #[n(1)]
    Dir {
        /// Permission bits.
        #[n(0)]
        mode: u32,
        /// Hash of its [`Tree`].
        #[n(1)]
        tree: Hash,
    },
    /// A symbolic link.
    #[n(2)]
    Symlink {
        /// The target, exactly as stored in the link.
        #[cbor(n(0), with = "minicbor::bytes")]
        target: Vec<u8>,
    },
    /// Exists on disk, but is not stored.
    #[n(3)]
    Skipped {
        /// Why it is not stored.
        #[n(0)]
        reason: SkipReason,
    },
}

impl TreeNode {
    /// Whether a rewind may write or remove it.
    pub fn is_stored(&self) -> bool {
        !matches!(self, TreeNode::Skipped { .. })
    }

    /// Why this is not stored; `None` if it is.
    pub fn skipped(&self) -> Option<SkipReason> {
        match self {
            TreeNode::Skipped { reason } => Some(*reason),
            _ => None,
        }
    }

    /// Whether this is a directory with a listing.
    pub fn is_dir(&self) -> bool {
        matches!(self, TreeNode::Dir { .. })
    }
}

/// A named node.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array)]
pub struct TreeEntry {
    /// The file name: one component, raw bytes.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub name: Vec<u8>,
    /// The file, directory, link or skipped entry.
    #[n(1)]
    pub node: TreeNode,
}

/// A directory listing, sorted by name bytes, each name once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    entries: Vec<TreeEntry>,
}

impl Tree {
    /// Creates a tree of `entries` in any order. Names must be valid and unique, as they are in a directory listing.
    pub fn from_entries(mut entries: Vec<TreeEntry>) -> Self {
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        debug_assert!(entries.windows(2).all(|pair| pair[0].name != pair[1].name));
        debug_assert!(entries.iter().all(|entry| is_valid_name(&entry.name)));
        Self { entries }
    }

    /// The entries, sorted by name.
    pub fn entries(&self) -> &[TreeEntry] {
        &self.entries
    }

    /// The entries, owned.
    pub fn into_entries(self) -> Vec<TreeEntry> {
        self.entries
    }

    /// The node called `name`.
    pub fn get(&self, name: &[u8]) -> Option<&TreeNode> {
        let index = self.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name)).ok()?;
        Some(&self.entries[index].node)
    }

    /// Sets or (with `None`) removes the node called `name`.
    pub fn set(&mut self, name: &[u8], node: Option<TreeNode>) {
        match (self.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name)), node) {
            (Ok(index), Some(node)) => self.entries[index].node = node,
            (Ok(index), None) => {
                self.entries.remove(index);
            }
            (Err(index), Some(node)) => self.entries.insert(index, TreeEntry { name: name.to_vec(), node }),
            (Err(_), None) => {}
        }
    }

    /// Canonical bytes: a CBOR array of entries, in order.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + self.entries.len() * 64);
        // Writing into a Vec cannot fail; the error type is `Infallible`.
        let _ = minicbor::encode(&self.entries, &mut bytes);
        bytes
    }

    /// Decodes and checks canonical bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut decoder = minicbor::Decoder::new(bytes);
        let entries: Vec<TreeEntry> = decoder.decode().map_err(|error| error.to_string())?;
        if decoder.position() != bytes.len() {
            return Err("bytes follow the last entry".into());
        }
        if let Some(bad) = entries.iter().find(|entry| !is_valid_name(&entry.name)) {
            return Err(format!("{:?} is not a file name", crate::path::display_bytes(&bad.name)));
        }
        if !entries.windows(2).all(|pair| pair[0].name < pair[1].name) {
            return Err("entries are not sorted".into());
        }
        Ok(Self { entries })
    }

    /// Reads the tree stored under `hash`.
    pub fn load(source: &(impl ObjectSource + ?Sized), hash: Hash) -> Result<Self, ObjectError> {
        let bytes = source.read(ObjectKind::Tree, hash)?;
        Self::decode(&bytes).map_err(|reason| ObjectError::corrupt(ObjectKind::Tree, hash, reason))
    }

    /// The hash of the empty tree.
    pub fn empty_hash() -> Hash {
        Hash::of(ObjectKind::Tree, &Tree::default().encode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> TreeNode {
        TreeNode::File {
            mode: 0o644,
            size: text.len() as u64,
            content: Content::Whole(Hash::of(ObjectKind::Blob, text.as_bytes())),
        }
    }

    #[test]
    fn a_tree_round_trips_with_every_kind_of_node() {
        let tree = Tree::from_entries(vec![
            TreeEntry { name: b"z\xff\n".to_vec(), node: file("z") },
            TreeEntry {
                name: b"dir".to_vec(),
                node: TreeNode::Dir { mode: 0o755, tree: Tree::empty_hash() },
            },
            TreeEntry { name: b"link".to_vec(), node: TreeNode::Symlink { target: b"../x\xfe".to_vec() } },
            TreeEntry { name: b"pipe".to_vec(), node: TreeNode::Skipped { reason: SkipReason::Fifo } },
        ]);
        assert_eq!(Tree::decode(&tree.encode()), Ok(tree.clone()));
        assert_eq!(tree.get(b"link"), Some(&TreeNode::Symlink { target: b"../x\xfe".to_vec() }));
        assert_eq!(tree.get(b"nope"), None);
    }

    #[test]
    fn hostile_names_and_disorder_do_not_decode() {
        let entries = |names: &[&[u8]]| {
            names.iter().map(|n| TreeEntry { name: n.to_vec(), node: file("") }).collect::<Vec<_>>()
        };
        for bad in [&[&b"../up"[..]][..], &[b"a/b"], &[b".."], &[b""], &[b"b", b"a"], &[b"a", b"a"]] {
            let mut bytes = Vec::new();
            minicbor::encode(entries(bad), &mut bytes).unwrap();
            assert!(Tree::decode(&bytes).is_err(), "{bad:?} decoded");
        }
        let mut trailing = Tree::default().encode();
        trailing.push(0);
        assert!(Tree::decode(&trailing).is_err());
        assert!(Tree::decode(b"").is_err());
    }

    #[test]
    fn set_replaces_inserts_and_removes() {
        let mut tree = Tree::default();
        tree.set(b"b", Some(file("1")));
        tree.set(b"a", Some(file("2")));
        tree.set(b"b", Some(file("3")));
        assert_eq!(tree.entries().len(), 2);
        assert_eq!(tree.get(b"b"), Some(&file("3")));
        tree.set(b"a", None);
        tree.set(b"a", None);
        assert_eq!(tree.entries().len(), 1);
    }
}
