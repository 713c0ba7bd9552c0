//! Influences where a file system places many new files.
//!
//! ext4 places a directory close to its parent, and files close to their directory. Inodes of files that were removed in
//! the last minutes are not reused, and each of them is checked for every new file: removing a copy of a tree and creating
//! another one beside it takes ten times as long as the first. A directory can be marked as holding unrelated directories;
//! then a new directory in it goes to a place that follows from its name.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Creates a directory in `dir` that only its owner can enter, placed away from everything around it; [`apart`] returns its
/// path.
pub fn make_apart(dir: &Path) -> io::Result<PathBuf> {
    mark_unrelated(dir);
    let inside = apart(dir);
    std::fs::DirBuilder::new().mode(0o700).create(&inside)?;
    Ok(inside)
}

/// The path that [`make_apart`] creates. Its name is the end of that of `dir`, which for a temporary directory has not been
/// used before.
pub fn apart(dir: &Path) -> PathBuf {
    dir.join(dir.file_name().and_then(|name| name.to_str()?.rsplit('-').next()).unwrap_or("work"))
}

/// Marks the directories in `dir` as unrelated to each other. Only a hint, and only some file systems support it.
#[cfg(target_os = "linux")]
fn mark_unrelated(dir: &Path) {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    if let Ok(file) = std::fs::File::open(dir)
        && let Ok(flags) = ioctl_getflags(&file)
    {
        // A file system without this flag returns an error, which is harmless.
        let _ = ioctl_setflags(&file, flags | IFlags::TOPDIR);
    }
}

/// Does nothing: this system has no such hint.
#[cfg(not(target_os = "linux"))]
fn mark_unrelated(_: &Path) {}
