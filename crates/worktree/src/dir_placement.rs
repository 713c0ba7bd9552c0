//! Where a file system puts many new files at once.
//!
//! ext4 puts a directory close to the one it is in, and its files close to it. Places of files that were removed in the last
//! minutes are not used again, and each of them is looked at for every new file: whoever removes a copy of a tree and makes
//! another one beside it waits ten times as long as for the first. A directory can say that what is in it is not related;
//! then a new directory in it goes to a place that follows from its name.

use std::io;
use std::path::{Path, PathBuf};

/// Makes a directory in `dir`, away from everything around it; [`apart`] says which.
pub fn make_apart(dir: &Path) -> io::Result<PathBuf> {
    unrelate(dir);
    let inside = apart(dir);
    std::fs::create_dir(&inside)?;
    Ok(inside)
}

/// The directory that [`make_apart`] makes. Its name is the end of that of `dir`, which for a temporary directory is one that
/// nobody had before.
pub fn apart(dir: &Path) -> PathBuf {
    dir.join(dir.file_name().and_then(|name| name.to_str()?.rsplit('-').next()).unwrap_or("work"))
}

/// Says that directories in `dir` have nothing to do with each other. Only a hint, and only some file systems take it.
#[cfg(target_os = "linux")]
fn unrelate(dir: &Path) {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    if let Ok(file) = std::fs::File::open(dir)
        && let Ok(flags) = ioctl_getflags(&file)
    {
        // A file system that does not know it says so, and nothing is lost.
        let _ = ioctl_setflags(&file, flags | IFlags::TOPDIR);
    }
}

/// Says nothing: no such hint is known here.
#[cfg(not(target_os = "linux"))]
fn unrelate(_: &Path) {}
