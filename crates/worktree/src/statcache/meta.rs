//! Facts about the scan that wrote a stat cache, and their encoding.

use stepback_model::hash::Hash;
use stepback_model::path::RelPath;

use super::{Stat, u64_at};
use crate::scan::hints::LogPosition;

/// Facts about the scan that wrote the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta {
    /// Device and inode of the root directory: a replaced root invalidates everything.
    pub root: (u64, u64),
    /// The `stat` of the root directory; all zero if it is not reliable.
    pub root_stat: Stat,
    /// The store's collection epoch: after a collection, cached hashes may name objects that are gone.
    pub epoch: u64,
    /// Fingerprint of the rules that decided what is stored.
    pub rules: [u8; 32],
    /// The boot of the system in which it was written; within one boot the page cache cannot be torn.
    pub boot: [u8; 16],
    /// Totals of what git ignores.
    pub ignored: IgnoredTotals,
    /// The git slot of the state that was scanned, if there were git directories.
    pub git: Option<Hash>,
    /// The watcher's token that the cache corresponds to: since then only directories that the watcher named were scanned.
    pub token: Option<LogPosition>,
    /// When the last full scan happened, in nanoseconds.
    pub full_at: i64,
}

/// Totals of ignored files: what is stored nevertheless, and what does not fit into the budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IgnoredTotals {
    /// Bytes of ignored files stored: small ones, large ones.
    pub bytes: [u64; 2],
    /// The number of ignored files that are skipped because the budget is used up.
    pub waiting: u64,
}

impl IgnoredTotals {
    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        let sum = |index: usize| self.bytes[index].saturating_add(other.bytes[index]);
        Self { bytes: [sum(0), sum(1)], waiting: self.waiting.saturating_add(other.waiting) }
    }

    /// The difference of both.
    pub fn minus(self, other: Self) -> Self {
        let rest = |index: usize| self.bytes[index].saturating_sub(other.bytes[index]);
        Self { bytes: [rest(0), rest(1)], waiting: self.waiting.saturating_sub(other.waiting) }
    }
}

impl Meta {
    /// Length of the encoded form in bytes.
    pub const LEN: usize = 216;

    /// Appends the encoded form.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        let mut word = |value: u64| bytes.extend_from_slice(&value.to_le_bytes());
        let Stat { size, mtime, ctime, ino, mode } = self.root_stat;
        let token = self.token.unwrap_or_default();
        for value in [
            self.root.0,
            self.root.1,
            size,
            mtime as u64,
            ctime as u64,
            ino,
            u64::from(mode),
            self.epoch,
            self.ignored.bytes[0],
            self.ignored.bytes[1],
            self.ignored.waiting,
            self.full_at as u64,
            u64::from(self.git.is_some()),
            u64::from(self.token.is_some()),
            token.position,
        ] {
            word(value);
        }
        bytes.extend_from_slice(&self.rules);
        bytes.extend_from_slice(&self.boot);
        bytes.extend_from_slice(self.git.as_ref().map_or(&[0; 32], Hash::as_bytes).as_slice());
        bytes.extend_from_slice(&token.instance);
        debug_assert_eq!(bytes.len() - start, Self::LEN);
    }

    /// Reads the encoded form.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Self {
        let word = |index: usize| u64_at(bytes, index * 8);
        let part = |index: usize| bytes[index..].first_chunk::<32>().copied().unwrap_or_default();
        let short = |index: usize| bytes[index..].first_chunk::<16>().copied().unwrap_or_default();
        let root_stat = Stat {
            size: word(2),
            mtime: word(3) as i64,
            ctime: word(4) as i64,
            ino: word(5),
            mode: word(6) as u32,
        };
        Self {
            root: (word(0), word(1)),
            root_stat,
            epoch: word(7),
            ignored: IgnoredTotals { bytes: [word(8), word(9)], waiting: word(10) },
            full_at: word(11) as i64,
            git: (word(12) == 1).then(|| Hash::from_bytes(part(168))),
            token: (word(13) == 1).then(|| LogPosition { position: word(14), instance: short(200) }),
            rules: part(120),
            boot: short(152),
        }
    }
}

/// Appends paths, each preceded by its length.
pub(super) fn encode_paths(paths: &[RelPath], bytes: &mut Vec<u8>) {
    for path in paths {
        bytes.extend_from_slice(&(path.as_bytes().len() as u32).to_le_bytes());
        bytes.extend_from_slice(path.as_bytes());
    }
}

/// Decodes the output of [`encode_paths`]; `None` if it is malformed.
pub(super) fn decode_paths(mut bytes: &[u8]) -> Option<Vec<RelPath>> {
    let mut paths = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk::<4>() {
        let (path, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        paths.push(RelPath::parse(path).ok()?);
        bytes = rest;
    }
    bytes.is_empty().then_some(paths)
}
