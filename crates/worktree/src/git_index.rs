//! Reads git's index: which content git has of which file. It is used only for warnings and for display, never for decisions.
//!
//! Running `git status` would be simpler, but git runs programs that the repository's own configuration names, and that
//! configuration may have been written by the agent whose work is being taken back.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use stepback_model::path::RelPath;

use crate::anchored_path::{AnchoredDir, open_file};

/// The files of a repository as git's index has them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GitIndex {
    entries: HashMap<Vec<u8>, IndexEntry>,
    /// When the index was written, in seconds and nanoseconds: a file that changed in the same moment may look unchanged.
    written: (i64, i64),
}

/// One file of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct IndexEntry {
    /// Seconds and nanoseconds, truncated to 32 bits.
    changed: (u32, u32),
    modified: (u32, u32),
    inode: u32,
    mode: u32,
    size: u32,
    oid: [u8; 20],
    /// Whether git takes the file as it is, or leaves it out of the work tree.
    is_set_aside: bool,
}

/// A file of an index, for comparison with one that is not on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexedFile<'a> {
    /// The path, relative to the root of the repository.
    pub path: &'a [u8],
    /// The id of the blob.
    pub oid: [u8; 20],
    /// The size of the file, truncated to 32 bits; 0 if git does not know.
    pub size: u32,
    /// Whether it can be executed.
    pub is_executable: bool,
    /// Whether it should be in the work tree: not a submodule, and not left out by the user.
    pub is_checked_out: bool,
}

/// How a file compares with git's index, by its stat alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrackedState {
    /// It is what git has.
    Same,
    /// It differs.
    Changed,
    /// Only its content can tell: it is unchanged if its blob id is this one.
    Unclear([u8; 20]),
}

impl GitIndex {
    /// Reads the index of the repository at `root`. `None` if there is none, or if its format is not supported.
    pub fn read(root: &Path) -> Option<Self> {
        let git = RelPath::parse(".git").ok()?;
        let dir = AnchoredDir::open(root).and_then(|mut anchor| anchor.dir(&git)).ok()?;
        let (mut file, _) = open_file(&dir, "index".as_ref()).ok()?;
        let metadata = file.metadata().ok()?;
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut bytes).ok()?;
        Some(Self { entries: parse(&bytes)?, written: (metadata.mtime(), metadata.mtime_nsec()) })
    }

    /// Reads the bytes of an index; `None` if its format is not supported.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self { entries: parse(bytes)?, written: (0, 0) })
    }

    /// Returns its files, in no order. Directories of a sparse index are not files.
    pub fn files(&self) -> impl Iterator<Item = IndexedFile<'_>> {
        const TYPE: u32 = 0o170_000;
        let files = self.entries.iter().filter(|(_, entry)| entry.mode & TYPE != 0o040_000);
        files.map(|(path, entry)| IndexedFile {
            path,
            oid: entry.oid,
            size: entry.size,
            is_executable: entry.mode & 0o111 != 0,
            is_checked_out: !entry.is_set_aside && entry.mode & TYPE != 0o160_000,
        })
    }

    /// Whether git tracks this path, or a directory above it that is not checked out.
    pub fn has(&self, path: &[u8]) -> bool {
        let above = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..=at]);
        self.entries.contains_key(path) || above.into_iter().any(|dir| self.entries.contains_key(dir))
    }

    /// Compares a file on disk with the index by its stat alone; `None` if git does not track it.
    pub fn compare(&self, path: &[u8], file: &Metadata) -> Option<TrackedState> {
        let entry = self.entries.get(path)?;
        let low = |value: u64| value as u32;
        // Git writes a size of zero for a file whose stat it does not trust.
        if low(file.size()) != entry.size && entry.size != 0 {
            return Some(TrackedState::Changed);
        }
        let same_time = |(seconds, nanos): (u32, u32), now: (i64, i64)| {
            // Some builds of git store no nanoseconds.
            seconds == now.0 as u32 && (nanos == now.1 as u32 || nanos == 0)
        };
        let is_same = same_time(entry.modified, (file.mtime(), file.mtime_nsec()))
            && same_time(entry.changed, (file.ctime(), file.ctime_nsec()))
            && entry.inode == low(file.ino())
            && low(file.size()) == entry.size;
        let is_racy = match entry.modified.1 {
            0 => file.mtime() >= self.written.0,
            _ => (file.mtime(), file.mtime_nsec()) >= self.written,
        };
        Some(match is_same && !is_racy {
            true => TrackedState::Same,
            false => TrackedState::Unclear(entry.oid),
        })
    }
}

/// Parses versions 2 to 4: fixed fields, the id, flags, and the name, which is padded to eight bytes or, in version 4,
/// given as the difference to the name before.
/// Longest name of a file, in bytes: what the system takes for a path. Names share their beginnings in version 4, so without a
/// limit a small file could stand for more names than fit into memory.
const MAX_NAME: usize = 4096;

fn parse(bytes: &[u8]) -> Option<HashMap<Vec<u8>, IndexEntry>> {
    const ENTRY_HEADER_BYTES: usize = 62;
    let word = |offset: usize| Some(u32::from_be_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?));
    let version = word(4)?;
    if bytes.get(..4)? != b"DIRC" || !matches!(version, 2..=4) {
        return None;
    }
    let mut entries = HashMap::new();
    let (mut offset, mut previous) = (12, Vec::new());
    for _ in 0..word(8)? {
        let mut entry = IndexEntry {
            mode: word(offset + 24)?,
            is_set_aside: false,
            changed: (word(offset)?, word(offset + 4)?),
            modified: (word(offset + 8)?, word(offset + 12)?),
            inode: word(offset + 20)?,
            size: word(offset + 36)?,
            oid: bytes.get(offset + 40..offset + 60)?.try_into().ok()?,
        };
        let flags = u16::from_be_bytes(bytes.get(offset + 60..offset + 62)?.try_into().ok()?);
        let extended = if flags & 0x4000 != 0 { 2 } else { 0 };
        let more = if extended == 0 { 0 } else { *bytes.get(offset + 62)? };
        // Assumed to be unchanged, or left out of the work tree.
        entry.is_set_aside = flags & 0x8000 != 0 || more & 0x40 != 0;
        let mut name_at = offset + ENTRY_HEADER_BYTES + extended;
        let mut name = Vec::new();
        if version == 4 {
            let (dropped, behind) = read_offset(bytes, name_at)?;
            name.extend_from_slice(previous.get(..previous.len().checked_sub(dropped)?)?);
            name_at = behind;
        }
        let len = bytes.get(name_at..)?.iter().position(|byte| *byte == 0)?;
        name.extend_from_slice(&bytes[name_at..name_at + len]);
        if name.len() > MAX_NAME {
            return None;
        }
        offset = match version {
            4 => name_at + len + 1,
            _ => offset + ((ENTRY_HEADER_BYTES + extended + len + 8) & !7),
        };
        previous.clone_from(&name);
        entries.insert(name, entry);
    }
    Some(entries)
}

/// A number of variable length, as git encodes offsets, and where it ends.
fn read_offset(bytes: &[u8], start: usize) -> Option<(usize, usize)> {
    let mut start = start;
    let mut byte = *bytes.get(start)?;
    let mut value = usize::from(byte & 127);
    while byte & 128 != 0 {
        start += 1;
        byte = *bytes.get(start)?;
        value = value.checked_add(1)?.checked_mul(128)? + usize::from(byte & 127);
    }
    Some((value, start + 1))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn an_index_whose_names_share_a_long_beginning_takes_no_memory() {
        let mut bytes = b"DIRC\0\0\0\x04\0\x01\0\0".to_vec();
        bytes.extend_from_slice(&[0; 62]);
        bytes.push(0);
        bytes.extend_from_slice(&[b'a'; 100_000]);
        for _ in 0..10_000 {
            // A name that drops nothing of the one before it.
            bytes.extend_from_slice(&[0; 63]);
            bytes.extend_from_slice(b"\0b\0");
        }
        assert!(parse(&bytes).is_none());
    }

    #[test]
    fn damaged_indexes_are_not_understood() {
        assert!(parse(b"").is_none());
        assert!(parse(b"DIRC\0\0\0\x05\0\0\0\0").is_none(), "version 5 is not read");
        assert_eq!(parse(b"DIRC\0\0\0\x02\0\0\0\0"), Some(HashMap::new()));
        assert!(parse(b"DIRC\0\0\0\x02\0\0\0\x01short").is_none());
    }

    #[test]
    fn a_stat_tells_which_files_are_as_git_has_them() {
        for version in ["2", "4"] {
            let dir = tempfile::tempdir().unwrap();
            let git = |arguments: &[&str]| {
                let output =
                    std::process::Command::new("git").arg("-C").arg(dir.path()).args(arguments).output();
                output.is_ok_and(|output| output.status.success())
            };
            assert!(git(&["init", "-q", "."]), "git is not installed");
            let names = ["a", "somewhat/longer name", "somewhat/other", "x", "racy"];
            let past = SystemTime::now() - Duration::from_secs(60);
            for name in names {
                let path = dir.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, name).unwrap();
                if name != "racy" {
                    fs::File::options().write(true).open(&path).unwrap().set_modified(past).unwrap();
                }
            }
            assert!(git(&["update-index", "--index-version", version]));
            assert!(git(&["add", "-A"]));
            let state = |name: &str| {
                let index = GitIndex::read(dir.path()).unwrap();
                index.compare(name.as_bytes(), &fs::symlink_metadata(dir.path().join(name)).unwrap())
            };
            assert_eq!(GitIndex::read(dir.path()).unwrap().entries.len(), names.len());
            assert_eq!(state("somewhat/longer name"), Some(TrackedState::Same));
            assert_eq!(state("somewhat/other"), Some(TrackedState::Same));
            fs::write(dir.path().join("a"), "longer").unwrap();
            assert_eq!(state("a"), Some(TrackedState::Changed));
            // The same size: only the content can tell.
            fs::write(dir.path().join("x"), "y").unwrap();
            assert_eq!(state("x"), Some(TrackedState::Unclear(stepback_store::git_blob_id(b"x"))));
            fs::write(dir.path().join("new"), "n").unwrap();
            assert_eq!(state("new"), None);
        }
    }
}
