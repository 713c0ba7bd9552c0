//! Reads a whole stat cache for a report: whether it is intact, and what is the newest file in it.
//!
//! A scan needs no such report: it ignores a damaged cache and rebuilds it.

use std::path::Path;

use crate::statcache::{CachedKind, StatCache};

/// What is known about a stat cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CacheCondition {
    /// There is none; the next scan hashes every file.
    Absent,
    /// It is damaged, or was written by another release; the next scan hashes every file and writes it again.
    Unusable,
    /// It is intact.
    Usable {
        /// Number of files in it.
        files: u64,
        /// The file with the latest modification time, and that time in nanoseconds since 1970.
        newest: Option<(Vec<u8>, i64)>,
    },
}

/// Reads and verifies the cache at `path`. `boot` identifies the present boot of the system.
pub fn inspect(path: &Path, boot: [u8; 16]) -> CacheCondition {
    match path.try_exists() {
        Ok(false) => return CacheCondition::Absent,
        Ok(true) => {}
        Err(_) => return CacheCondition::Unusable,
    }
    let Some(cache) = StatCache::open(path, boot).and_then(StatCache::read_whole) else {
        return CacheCondition::Unusable;
    };
    let mut files = 0;
    let mut newest: Option<(Vec<u8>, i64)> = None;
    let mut rest = vec![(0, Vec::new())];
    // A damaged cache may contain cycles.
    let mut left = cache.dir_count();
    while let Some((number, above)) = rest.pop() {
        let Some(dir) = cache.dir(number) else { return CacheCondition::Unusable };
        let Some(fewer) = left.checked_sub(1) else { return CacheCondition::Unusable };
        left = fewer;
        for entry in (0..dir.len()).filter_map(|at| dir.entry(at)) {
            let path = || match above.is_empty() {
                true => entry.name.to_vec(),
                false => [above.as_slice(), b"/", entry.name].concat(),
            };
            match entry.kind {
                CachedKind::Dir => rest.push((entry.aux, path())),
                CachedKind::Skipped => {}
                _ => {
                    files += 1;
                    if newest.as_ref().is_none_or(|(_, time)| entry.stat.mtime > *time) {
                        newest = Some((path(), entry.stat.mtime));
                    }
                }
            }
        }
    }
    CacheCondition::Usable { files, newest }
}
