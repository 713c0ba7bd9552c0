//! Creates, replaces and removes single files beneath a root, never through a symbolic link.
//!
//! For everything that writes below a directory whose content is not under stepback's control and that needs no plan: locks
//! of a rewind, settings of agents, tools of the built-in agent. `cargo xtask tidy` refuses other ways to write there.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use stepback_faults as faults;
use stepback_model::path::RelPath;
use stepback_model::tree::MODE_MASK;

use crate::anchored_path::AnchoredDir;

/// Creates the directory at `path` and those above it, as far as they are missing, and opens it. `mode` is subject to the
/// umask.
pub fn make_dirs(anchor: &mut AnchoredDir, path: &RelPath, mode: u32) -> io::Result<Arc<OwnedFd>> {
    match anchor.dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    let mut path_so_far = RelPath::root();
    for name in path.components() {
        let parent_dir = anchor.dir(&path_so_far)?;
        faults::point()?;
        match rustix::fs::mkdirat(&parent_dir, OsStr::from_bytes(name), Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        path_so_far = path_so_far.join(name);
    }
    anchor.dir(path)
}

/// Replaces the content of the regular file at `path`, in place, or creates the file with `mode` and the directories above
/// it.
pub fn write_file(anchor: &mut AnchoredDir, path: &RelPath, bytes: &[u8], mode: u32) -> io::Result<()> {
    let (dir, name) = parent(anchor, path, 0o777)?;
    faults::point()?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(&dir, name, flags, Mode::from_raw_mode(mode))?;
    if FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut file = File::from(fd);
    faults::point()?;
    file.set_len(0)?;
    file.write_all(bytes)
}

/// Replaces the file at `path` by a new one, or creates it, so that a reader sees the old or the new content, also after a
/// crash. A regular file that is replaced passes its mode on; otherwise the new one has `mode`, subject to the umask. The
/// directory above must exist.
pub fn replace_file(anchor: &mut AnchoredDir, path: &RelPath, bytes: &[u8], mode: u32) -> io::Result<()> {
    static CREATED: AtomicU32 = AtomicU32::new(0);
    let Some((dir, name)) = anchor.parent(path)? else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut temporary = OsString::from(".");
    temporary.push(name);
    let created = CREATED.fetch_add(1, Ordering::Relaxed);
    temporary.push(format!(".stepback-{}-{created}", std::process::id()));
    // A killed process with the same id may have left one behind.
    let _ = rustix::fs::unlinkat(&dir, &temporary, AtFlags::empty());
    let result = write_beside(&dir, &temporary, name, bytes, mode).and_then(|()| {
        faults::point()?;
        Ok(rustix::fs::renameat(&dir, &temporary, &dir, name)?)
    });
    if result.is_err() {
        let _ = rustix::fs::unlinkat(&dir, &temporary, AtFlags::empty());
        return result;
    }
    // Some file systems cannot sync a directory. The content is safe either way.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(dir) = rustix::fs::openat(&dir, ".", flags, Mode::empty()) {
        let _ = rustix::fs::fsync(dir);
    }
    Ok(())
}

/// Writes `bytes` as the new file `temporary`, which is about to replace `name`.
fn write_beside(dir: &impl AsFd, temporary: &OsStr, name: &OsStr, bytes: &[u8], mode: u32) -> io::Result<()> {
    faults::point()?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, temporary, flags, Mode::from_raw_mode(mode))?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    if let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
    {
        rustix::fs::fchmod(&file, Mode::from_raw_mode(stat.st_mode & MODE_MASK))?;
        // Matters only to root, who may be editing a file of another user.
        let owner = (rustix::fs::Uid::from_raw(stat.st_uid), rustix::fs::Gid::from_raw(stat.st_gid));
        let _ = rustix::fs::fchown(&file, Some(owner.0), Some(owner.1));
    }
    faults::point()?;
    file.sync_all()
}

/// Creates the file at `path` for writing and reading. Fails with [`io::ErrorKind::AlreadyExists`] if something is there.
pub fn create_file(anchor: &mut AnchoredDir, path: &RelPath, mode: u32) -> io::Result<File> {
    let Some((dir, name)) = anchor.parent(path)? else { return Err(io::ErrorKind::AlreadyExists.into()) };
    faults::point()?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(&dir, name, flags, Mode::from_raw_mode(mode))?))
}

/// Gives the file at `from` the name `to`, in place of what has that name.
pub fn rename_file(anchor: &mut AnchoredDir, from: &RelPath, to: &RelPath) -> io::Result<()> {
    let (Some((from_dir, from_name)), Some((to_dir, to_name))) = (anchor.parent(from)?, anchor.parent(to)?)
    else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    faults::point()?;
    Ok(rustix::fs::renameat(&from_dir, from_name, &to_dir, to_name)?)
}

/// Creates a symbolic link at `path`. Fails with [`io::ErrorKind::AlreadyExists`] if something is there.
pub fn create_link(anchor: &mut AnchoredDir, path: &RelPath, target: &str) -> io::Result<()> {
    let Some((dir, name)) = anchor.parent(path)? else { return Err(io::ErrorKind::AlreadyExists.into()) };
    faults::point()?;
    Ok(rustix::fs::symlinkat(target, &dir, name)?)
}

/// Returns the target of the link at `path`; `None` if there is none.
pub fn read_link(anchor: &mut AnchoredDir, path: &RelPath) -> Option<Vec<u8>> {
    let (dir, name) = anchor.parent(path).ok()??;
    rustix::fs::readlinkat(&dir, name, Vec::new()).ok().map(std::ffi::CString::into_bytes)
}

/// Whether something is at `path`, a link included.
pub fn exists(anchor: &mut AnchoredDir, path: &RelPath) -> bool {
    match anchor.parent(path) {
        Ok(Some((dir, name))) => rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok(),
        Ok(None) => true,
        Err(_) => false,
    }
}

/// Removes the file or link at `path`.
pub fn remove_file(anchor: &mut AnchoredDir, path: &RelPath) -> io::Result<()> {
    let Some((dir, name)) = anchor.parent(path)? else { return Err(io::ErrorKind::InvalidInput.into()) };
    Ok(rustix::fs::unlinkat(&dir, name, AtFlags::empty())?)
}

/// Makes names that were created or removed in the directory at `path` durable.
pub fn sync_dir(anchor: &mut AnchoredDir, path: &RelPath) -> io::Result<()> {
    // The cached handle is only for path lookup; syncing needs one that is open for reading.
    let dir = anchor.dir(path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::fsync(rustix::fs::openat(&dir, ".", flags, Mode::empty())?)?)
}

/// Removes the empty directory at `path`.
pub fn remove_dir(anchor: &mut AnchoredDir, path: &RelPath) -> io::Result<()> {
    let Some((dir, name)) = anchor.parent(path)? else { return Err(io::ErrorKind::InvalidInput.into()) };
    rustix::fs::unlinkat(&dir, name, AtFlags::REMOVEDIR)?;
    anchor.close_cached();
    Ok(())
}

/// Opens the directory that holds `path`, creating it if needed; returns it with the name in it.
fn parent<'p>(
    anchor: &mut AnchoredDir,
    path: &'p RelPath,
    mode: u32,
) -> io::Result<(Arc<OwnedFd>, &'p OsStr)> {
    let Some((parent, name)) = path.split_last() else {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is the root"));
    };
    Ok((make_dirs(anchor, &parent, mode)?, OsStr::from_bytes(name)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    /// A root with a link out of it, and the directory that the link leads to.
    fn place() -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let (root, outside) = (top.join("root"), top.join("outside"));
        fs::create_dir_all(root.join("real/deep")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "theirs").unwrap();
        symlink(&outside, root.join("link")).unwrap();
        symlink(outside.join("file"), root.join("real/file")).unwrap();
        (dir, root, outside)
    }

    fn listing(dir: &Path) -> Vec<(String, Vec<u8>)> {
        let read = |entry: fs::DirEntry| {
            (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap())
        };
        fs::read_dir(dir).unwrap().map(|entry| read(entry.unwrap())).collect()
    }

    #[test]
    fn files_and_directories_are_written_beneath_the_root() {
        let (_dir, root, _) = place();
        let mut anchor = AnchoredDir::open(&root).unwrap();
        write_file(&mut anchor, &path("new/deep/file"), b"long text", 0o644).unwrap();
        write_file(&mut anchor, &path("new/deep/file"), b"short", 0o644).unwrap();
        assert_eq!(fs::read(root.join("new/deep/file")).unwrap(), b"short");
        fs::set_permissions(root.join("new/deep/file"), PermissionsExt::from_mode(0o640)).unwrap();
        replace_file(&mut anchor, &path("new/deep/file"), b"replaced", 0o600).unwrap();
        assert_eq!(fs::read(root.join("new/deep/file")).unwrap(), b"replaced");
        assert_eq!(fs::metadata(root.join("new/deep/file")).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(listing(&root.join("new/deep")).len(), 1, "no temporary file stays");
        create_link(&mut anchor, &path("new/lock"), "mark").unwrap();
        assert!(exists(&mut anchor, &path("new/lock")));
        assert_eq!(read_link(&mut anchor, &path("new/lock")).unwrap(), b"mark");
        remove_file(&mut anchor, &path("new/lock")).unwrap();
        remove_file(&mut anchor, &path("new/deep/file")).unwrap();
        remove_dir(&mut anchor, &path("new/deep")).unwrap();
        assert!(!exists(&mut anchor, &path("new/deep")));
    }

    #[test]
    fn no_link_is_followed() {
        let (_dir, root, outside) = place();
        let before = listing(&outside);
        let mut anchor = AnchoredDir::open(&root).unwrap();
        for through in ["link/file", "link/new", "link/a/b", "real/file/x"] {
            assert!(write_file(&mut anchor, &path(through), b"ours", 0o644).is_err(), "{through}");
            assert!(replace_file(&mut anchor, &path(through), b"ours", 0o644).is_err(), "{through}");
            assert!(create_link(&mut anchor, &path(through), "mark").is_err(), "{through}");
            assert!(remove_file(&mut anchor, &path(through)).is_err(), "{through}");
            assert!(make_dirs(&mut anchor, &path(through), 0o777).is_err(), "{through}");
            assert!(!exists(&mut anchor, &path(through)), "{through}");
        }
        assert!(write_file(&mut anchor, &path("real/file"), b"ours", 0o644).is_err());
        // A link at the name itself is replaced, not followed.
        replace_file(&mut anchor, &path("real/file"), b"ours", 0o644).unwrap();
        assert!(fs::symlink_metadata(root.join("real/file")).unwrap().is_file());
        assert_eq!(listing(&outside), before);
    }

    #[test]
    fn a_root_that_became_a_link_is_not_opened() {
        let (dir, root, outside) = place();
        let top = dir.path().canonicalize().unwrap();
        fs::rename(&root, top.join("moved")).unwrap();
        symlink(&outside, &root).unwrap();
        let error = AnchoredDir::open(&root).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert!(error.to_string().contains("outside"), "{error}");
        // Nor one below a directory that became a link.
        symlink(top.join("moved"), top.join("alias")).unwrap();
        let error = AnchoredDir::open(&top.join("alias/real")).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert!(AnchoredDir::open_as_given(&root).is_ok());
        assert_eq!(AnchoredDir::open(&top.join("missing")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
