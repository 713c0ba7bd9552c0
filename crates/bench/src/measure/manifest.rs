//! The exact content of a directory, to verify restores, and the size of stores.
//!
//! A restore only counts when the whole tree equals what it was: content by hash, full mode, symlink
//! targets, empty directories, `.git` included. This runs outside every measured time.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, anyhow};

/// One entry of a tree: its mode with the file type, and a hash of its content or target.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    mode: u32,
    hash: Option<blake3::Hash>,
}

/// All entries of a tree by path.
#[derive(Clone, Debug, Default)]
pub struct Manifest(BTreeMap<PathBuf, Entry>);

impl Manifest {
    /// Reads and hashes a whole tree.
    pub fn read(root: &Path) -> Result<Self> {
        let mut paths = Vec::new();
        collect_paths(root, &mut paths)?;
        let threads = thread::available_parallelism().map_or(1, |count| count.get());
        let share = paths.len().div_ceil(threads).max(1);
        let parts: Vec<Result<Vec<(PathBuf, Entry)>>> = thread::scope(|scope| {
            let workers: Vec<_> = paths
                .chunks(share)
                .map(|chunk| scope.spawn(move || chunk.iter().map(|path| read_entry(root, path)).collect()))
                .collect();
            let panicked = |_| Err(anyhow!("hashing a file panicked"));
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(panicked)).collect()
        });
        let mut entries = BTreeMap::new();
        for part in parts {
            entries.extend(part?);
        }
        Ok(Self(entries))
    }

    /// Reads only some paths again, which are known to be all that has changed.
    pub fn refresh(&mut self, root: &Path, paths: &[String]) -> Result<()> {
        for path in paths {
            let full = root.join(path);
            if full.symlink_metadata().is_ok() {
                let (relative, entry) = read_entry(root, &full)?;
                self.0.insert(relative, entry);
            } else {
                self.0.remove(Path::new(path));
            }
        }
        Ok(())
    }

    /// Describes how `other` differs from this manifest, one line per path.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        for (path, entry) in &self.0 {
            let difference = match other.0.get(path) {
                None => "is missing".to_owned(),
                Some(other_entry) if other_entry.hash != entry.hash => "has other content".to_owned(),
                Some(other_entry) if other_entry.mode != entry.mode => {
                    format!("has mode {:o} instead of {:o}", other_entry.mode, entry.mode)
                }
                Some(_) => continue,
            };
            differences.push(format!("{} {difference}", path.display()));
        }
        for path in other.0.keys().filter(|path| !self.0.contains_key(*path)) {
            differences.push(format!("{} should not be there", path.display()));
        }
        differences
    }
}

fn collect_paths(directory: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    for item in fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let item = item?;
        paths.push(item.path());
        if item.file_type()?.is_dir() {
            collect_paths(&item.path(), paths)?;
        }
    }
    Ok(())
}

fn read_entry(root: &Path, path: &Path) -> Result<(PathBuf, Entry)> {
    let metadata =
        fs::symlink_metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
    let hash = if metadata.is_file() {
        Some(hash_file(path).with_context(|| format!("cannot read {}", path.display()))?)
    } else if metadata.is_symlink() {
        Some(blake3::hash(fs::read_link(path)?.as_os_str().as_bytes()))
    } else {
        None
    };
    let relative = path.strip_prefix(root).unwrap_or(path).to_path_buf();
    Ok((relative, Entry { mode: metadata.mode(), hash }))
}

fn hash_file(path: &Path) -> std::io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(fs::File::open(path)?)?;
    Ok(hasher.finalize())
}

/// How much disk a directory takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskUse {
    /// Blocks that only exist because of this directory, in bytes.
    pub allocated: u64,
    /// The sum of file lengths, of the same files.
    pub apparent: u64,
    /// Blocks of files that also have a name elsewhere: removing the directory would not free them.
    pub linked: u64,
}

/// Measures a directory; a file with several names in it counts once.
pub fn disk_use(root: &Path) -> Result<DiskUse> {
    let mut paths = vec![root.to_path_buf()];
    collect_paths(root, &mut paths)?;
    let mut use_ = DiskUse::default();
    let mut linked_files: HashMap<(u64, u64), (u64, fs::Metadata)> = HashMap::new();
    for path in paths {
        // Stores may clean up behind a finished command, such as a database's log file.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            use_.allocated += metadata.blocks() * 512;
        } else {
            linked_files.entry((metadata.dev(), metadata.ino())).or_insert((0, metadata)).0 += 1;
        }
    }
    for (names, metadata) in linked_files.values() {
        if metadata.nlink() > *names {
            use_.linked += metadata.blocks() * 512;
        } else {
            use_.allocated += metadata.blocks() * 512;
            use_.apparent += metadata.len();
        }
    }
    Ok(use_)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("bench-manifest-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("d")).unwrap();
        path
    }

    #[test]
    fn every_kind_of_difference_is_seen() {
        let root = scratch("kinds");
        for file in ["content", "mode", "gone"] {
            fs::write(root.join(file), file).unwrap();
        }
        symlink("here", root.join("link")).unwrap();
        let before = Manifest::read(&root).unwrap();
        fs::write(root.join("content"), "CONTENT").unwrap();
        fs::set_permissions(root.join("mode"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(root.join("gone")).unwrap();
        fs::remove_file(root.join("link")).unwrap();
        symlink("there", root.join("link")).unwrap();
        fs::remove_dir(root.join("d")).unwrap();
        fs::write(root.join("new"), "").unwrap();
        let after = Manifest::read(&root).unwrap();
        let differences = before.differences(&after).join("\n");
        for expected in
            ["content has other content", "d is missing", "gone is missing", "link has other content"]
        {
            assert!(differences.contains(expected), "{differences}");
        }
        assert!(differences.contains("mode has mode 100600 instead of 100644"), "{differences}");
        assert!(differences.contains("new should not be there"), "{differences}");
        let mut refreshed = before;
        let paths = ["content", "mode", "gone", "link", "d", "new"].map(str::to_owned);
        refreshed.refresh(&root, &paths).unwrap();
        assert!(refreshed.differences(&after).is_empty());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn files_that_live_elsewhere_too_do_not_count() {
        let root = scratch("links");
        fs::create_dir(root.join("store")).unwrap();
        fs::write(root.join("outside"), vec![1; 100_000]).unwrap();
        fs::hard_link(root.join("outside"), root.join("store/inside")).unwrap();
        fs::write(root.join("store/own"), vec![2; 50_000]).unwrap();
        fs::hard_link(root.join("store/own"), root.join("store/own-again")).unwrap();
        let found = disk_use(&root.join("store")).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found.apparent, 50_000);
        assert!(found.linked >= 100_000 && (50_000..70_000).contains(&found.allocated), "{found:?}");
    }
}
