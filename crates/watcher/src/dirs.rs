//! Which directory each kernel watch belongs to. Pure.
//!
//! The kernel watches inodes and does not report their paths. A directory that moves is removed with everything below it
//! and found again at its new path, so a path once recorded never changes.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use stepback_model::path::RelPath;

/// The kernel's number of a watch.
pub type Watched = i32;

/// Watches and paths.
#[derive(Debug, Default)]
pub struct Dirs {
    by_watch: HashMap<Watched, (RelPath, bool)>,
    by_path: BTreeMap<RelPath, Watched>,
}

/// The watched directory is already recorded at this other path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlreadyWatched(pub RelPath);

impl Dirs {
    /// The number of watched directories.
    pub fn len(&self) -> usize {
        self.by_watch.len()
    }

    /// Whether no directory is watched.
    pub fn is_empty(&self) -> bool {
        self.by_watch.is_empty()
    }

    /// Records a watch on the directory at `path`; `marked` if only the cache marker files in it matter. Fails if the same
    /// directory is already recorded at another path: it moved, and the event for that has not been read yet.
    pub fn add(&mut self, watch: Watched, path: &RelPath, marked: bool) -> Result<(), AlreadyWatched> {
        if let Some((known_path, _)) = self.by_watch.get(&watch)
            && known_path != path
        {
            return Err(AlreadyWatched(known_path.clone()));
        }
        if let Some(old_watch) = self.by_path.insert(path.clone(), watch)
            && old_watch != watch
        {
            self.by_watch.remove(&old_watch);
        }
        self.by_watch.insert(watch, (path.clone(), marked));
        Ok(())
    }

    /// The directory of a watch, and whether only the marker files in it matter.
    pub fn get(&self, watch: Watched) -> Option<(&RelPath, bool)> {
        self.by_watch.get(&watch).map(|(path, marked)| (path, *marked))
    }

    /// Whether the directory at `path` is watched.
    pub fn contains(&self, path: &RelPath) -> bool {
        self.by_path.contains_key(path)
    }

    /// Removes a watch that the kernel has ended.
    pub fn ended(&mut self, watch: Watched) {
        if let Some((path, _)) = self.by_watch.remove(&watch)
            && self.by_path.get(&path) == Some(&watch)
        {
            self.by_path.remove(&path);
        }
    }

    /// Removes the directory at `path` and all below it; returns their watches.
    pub fn remove(&mut self, path: &RelPath) -> Vec<Watched> {
        let mut removed: Vec<RelPath> =
            self.by_path.contains_key(path).then(|| path.clone()).into_iter().collect();
        let after_path = self.by_path.range((Bound::Excluded(path.clone()), Bound::Unbounded));
        // Names such as `a-b` sort between `a` and `a/b`.
        let same_prefix =
            after_path.take_while(|(candidate, _)| candidate.as_bytes().starts_with(path.as_bytes()));
        removed.extend(
            same_prefix
                .filter(|(candidate, _)| candidate.starts_with(path))
                .map(|(candidate, _)| candidate.clone()),
        );
        let watches: Vec<Watched> = removed.iter().filter_map(|path| self.by_path.remove(path)).collect();
        for watch in &watches {
            self.by_watch.remove(watch);
        }
        watches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    #[test]
    fn a_directory_goes_with_all_below_it_and_nothing_else() {
        let mut dirs = Dirs::default();
        for (watch, name) in ["", "a", "a-b", "a/x", "a/x/y", "a.c", "ab"].into_iter().enumerate() {
            dirs.add(watch as Watched, &path(name), false).unwrap();
        }
        let mut gone = dirs.remove(&path("a"));
        gone.sort_unstable();
        assert_eq!(gone, [1, 3, 4]);
        assert_eq!(dirs.len(), 4);
        assert!(dirs.get(3).is_none() && dirs.get(2).is_some());
    }

    #[test]
    fn one_directory_has_one_place() {
        let mut dirs = Dirs::default();
        dirs.add(1, &path("a"), false).unwrap();
        assert_eq!(dirs.add(1, &path("b"), false), Err(AlreadyWatched(path("a"))));
        dirs.add(1, &path("a"), false).unwrap();
        // Another directory took its place.
        dirs.add(2, &path("a"), true).unwrap();
        assert_eq!((dirs.get(1), dirs.get(2)), (None, Some((&path("a"), true))));
        dirs.ended(1);
        assert!(dirs.contains(&path("a")), "the end of the old watch says nothing about the new one");
        dirs.ended(2);
        assert!(dirs.is_empty() && !dirs.contains(&path("a")));
    }
}
