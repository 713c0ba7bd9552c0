//! Reading git's index: which content git has of which file. Only to warn; nothing is decided by it.
//!
//! Asking `git status` would be simpler, but git runs programs that the repository's own configuration names, and that
//! configuration may have been written by the agent whose work is being taken back.

use std::collections::HashMap;
use std::path::Path;

use stepback_model::path::RelPath;

use crate::beneath::{Beneath, open_file};

/// The content git has in its index, by path, for the repository at `root`. `None` if there is none, or if it is in a form
/// that is not understood.
pub fn tracked(root: &Path) -> Option<HashMap<Vec<u8>, [u8; 20]>> {
    let git = RelPath::parse(".git").ok()?;
    let dir = Beneath::open(root).and_then(|mut beneath| beneath.dir(&git)).ok()?;
    let (mut file, _) = open_file(&dir, "index".as_ref()).ok()?;
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut file, &mut bytes).ok()?;
    parse(&bytes)
}

/// Versions 2 and 3: fixed fields, the id, flags, the name, padded to eight bytes.
fn parse(bytes: &[u8]) -> Option<HashMap<Vec<u8>, [u8; 20]>> {
    const FIXED: usize = 62;
    let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if bytes.get(..4)? != b"DIRC" || !matches!(word(4)?, 2 | 3) {
        return None;
    }
    let mut entries = HashMap::new();
    let mut at = 12;
    for _ in 0..word(8)? {
        let oid: [u8; 20] = bytes.get(at + 40..at + 60)?.try_into().ok()?;
        let flags = u16::from_be_bytes(bytes.get(at + 60..at + 62)?.try_into().ok()?);
        let extended = if flags & 0x4000 != 0 { 2 } else { 0 };
        let name_at = at + FIXED + extended;
        let len = bytes.get(name_at..)?.iter().position(|byte| *byte == 0)?;
        entries.insert(bytes[name_at..name_at + len].to_vec(), oid);
        at += (FIXED + extended + len + 8) & !7;
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_indexes_are_not_understood() {
        assert!(parse(b"").is_none());
        assert!(parse(b"DIRC\0\0\0\x04\0\0\0\0").is_none(), "version 4 is not read");
        assert_eq!(parse(b"DIRC\0\0\0\x02\0\0\0\0"), Some(HashMap::new()));
        assert!(parse(b"DIRC\0\0\0\x02\0\0\0\x01short").is_none());
    }

    #[test]
    fn a_real_index_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| {
            let output = std::process::Command::new("git").arg("-C").arg(dir.path()).args(arguments).output();
            output.is_ok_and(|output| output.status.success())
        };
        if !git(&["init", "-q", "."]) {
            eprintln!("git is not installed; nothing to compare with");
            return;
        }
        for name in ["a", "somewhat/longer name", "x"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        assert!(git(&["add", "-A"]));
        let tracked = tracked(dir.path()).unwrap();
        assert_eq!(tracked.len(), 3);
        assert_eq!(
            tracked[&b"somewhat/longer name"[..]],
            stepback_store::git_blob_id(b"somewhat/longer name")
        );
    }
}
