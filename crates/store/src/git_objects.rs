//! Reads git's objects from the files that a state or the vault has: packs, loose objects, trees.

use std::io::Read;

use flate2::bufread::ZlibDecoder;

pub use crate::git_pack::{GitPack, Oid, pack_id};

/// Largest loose object that is read, in bytes: commits and trees are far smaller.
const MAX_LOOSE: u64 = 64 << 20;

/// An entry of a git tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GitTreeEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// Whether it is a tree itself.
    pub is_tree: bool,
    /// The id of the object.
    pub oid: Oid,
}

/// Returns the content of a loose object, without its header; `None` if it is damaged.
pub fn inflate_loose(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    ZlibDecoder::new(bytes).take(MAX_LOOSE).read_to_end(&mut whole).ok()?;
    let header = whole.iter().position(|byte| *byte == 0)?;
    Some(whole.split_off(header + 1))
}

/// Returns the entries of a tree; `None` if it is damaged.
pub fn parse_tree(bytes: &[u8]) -> Option<Vec<GitTreeEntry<'_>>> {
    let (mut rest, mut entries) = (bytes, Vec::new());
    while !rest.is_empty() {
        let space = rest.iter().position(|byte| *byte == b' ')?;
        let end = space + 1 + rest[space + 1..].iter().position(|byte| *byte == 0)?;
        let oid: Oid = rest.get(end + 1..end + 21)?.try_into().ok()?;
        // Modes are octal numbers: 40000 is a tree.
        let is_tree = rest[..space].ends_with(b"40000");
        entries.push(GitTreeEntry { name: &rest[space + 1..end], is_tree, oid });
        rest = &rest[end + 21..];
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_entries_and_a_damaged_one_has_none() {
        let entry =
            |mode: &str, name: &str| [mode.as_bytes(), b" ", name.as_bytes(), b"\0", &[7; 20]].concat();
        let bytes = [entry("100644", "a b"), entry("40000", "dir")].concat();
        let entries = parse_tree(&bytes).unwrap();
        assert_eq!((entries[0].name, entries[0].is_tree), (&b"a b"[..], false));
        assert_eq!((entries[1].name, entries[1].is_tree, entries[1].oid), (&b"dir"[..], true, [7; 20]));
        assert_eq!(parse_tree(b""), Some(Vec::new()));
        for length in 1..bytes.len() {
            assert!(length == 31 || parse_tree(&bytes[..length]).is_none(), "{length}");
        }
        assert!(inflate_loose(b"not compressed").is_none());
    }
}
