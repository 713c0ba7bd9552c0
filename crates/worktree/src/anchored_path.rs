//! Opens paths beneath the workspace root, never through a symbolic link.
//!
//! Linux opens several levels at once and refuses links in between (`openat2`). Where it cannot, each component is opened
//! by itself with `O_NOFOLLOW`, which works on every kernel and for paths longer than `PATH_MAX`. Neither can be tricked by
//! a directory that becomes a link between check and use: the directory handle is the check.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

#[cfg(target_os = "linux")]
use rustix::fs::ResolveFlags;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::list::{self, ListItem};
use stepback_model::object::{ObjectError, ObjectSource};
use stepback_model::path::RelPath;
use stepback_model::tree::{Content, MODE_MASK, TreeNode};

use crate::content;

const DIR: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

const ROOT: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens the root of a workspace for reading.
///
/// Roots are registered by their canonical path. If one leads through a link now, the directory was replaced since, and
/// what is behind the link is not the workspace: it is neither read nor written.
pub fn open_root(root: &Path) -> io::Result<OwnedFd> {
    open_without_links(root).map_err(|errno| match root.canonicalize() {
        Ok(real) if matches!(errno, Errno::LOOP | Errno::NOTDIR) && real != root => io::Error::new(
            io::ErrorKind::NotADirectory,
            format!("its path leads through a symbolic link now, to {}", real.display()),
        ),
        _ => errno.into(),
    })
}

#[cfg(target_os = "linux")]
fn open_without_links(root: &Path) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(rustix::fs::CWD, root, ROOT, Mode::empty(), resolve) {
        // As in `open_levels`.
        Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN | Errno::NAMETOOLONG) => open_last_without_link(root),
        opened => opened,
    }
}

#[cfg(not(target_os = "linux"))]
fn open_without_links(root: &Path) -> rustix::io::Result<OwnedFd> {
    open_last_without_link(root)
}

/// Opens a directory if its last component is not a link. The ones above are compared by name, which a process that renames
/// directories meanwhile could evade; only old kernels and other systems need it.
fn open_last_without_link(root: &Path) -> rustix::io::Result<OwnedFd> {
    if root.canonicalize().is_ok_and(|real| real != root) {
        return Err(Errno::LOOP);
    }
    rustix::fs::open(root, ROOT | OFlags::NOFOLLOW, Mode::empty())
}

/// The root, and the open directories down to the one last used below it.
///
/// Paths come in order, so most directories on the way to the next one are open already.
#[derive(Debug)]
pub struct AnchoredDir {
    root: Arc<OwnedFd>,
    /// Names of the directories down to the last one, each with its handle if it was opened by itself.
    open_dirs: Vec<(Vec<u8>, Option<Arc<OwnedFd>>)>,
}

impl AnchoredDir {
    /// Opens the root of a workspace, which must be a canonical path: it fails if a component of it has become a link.
    pub fn open(root: &Path) -> io::Result<Self> {
        Ok(Self::from_fd(open_root(root)?))
    }

    /// Opens a directory that the user named; this one path is resolved as given, through links if it has any.
    pub fn open_as_given(dir: &Path) -> io::Result<Self> {
        Ok(Self::from_fd(rustix::fs::open(dir, ROOT, Mode::empty())?))
    }

    fn from_fd(fd: OwnedFd) -> Self {
        Self { root: Arc::new(fd), open_dirs: Vec::new() }
    }

    /// Another handle to the same root, for another thread.
    pub fn duplicate(&self) -> Self {
        Self { root: self.root.clone(), open_dirs: Vec::new() }
    }

    /// The root directory.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens the directory at `path`.
    pub fn dir(&mut self, path: &RelPath) -> io::Result<Arc<OwnedFd>> {
        let shared = self
            .open_dirs
            .iter()
            .zip(path.components())
            .take_while(|((open_name, _), name)| open_name == name)
            .count();
        self.open_dirs.truncate(shared);
        let first_missing =
            self.open_dirs.iter().rposition(|(_, fd)| fd.is_some()).map_or(0, |index| index + 1);
        let names: Vec<&[u8]> = path.components().skip(first_missing).collect();
        let deepest_open = match first_missing {
            0 => self.root.clone(),
            first_missing => self.open_dirs[first_missing - 1].1.clone().unwrap_or_else(|| self.root.clone()),
        };
        if names.is_empty() {
            return Ok(deepest_open);
        }
        if names.len() > 1
            && let Some(opened) = open_levels(&deepest_open, &names)
        {
            let fd = Arc::new(opened?);
            self.open_dirs.extend(
                names.iter().skip(self.open_dirs.len() - first_missing).map(|name| (name.to_vec(), None)),
            );
            if let Some(last) = self.open_dirs.last_mut() {
                last.1 = Some(fd.clone());
            }
            return Ok(fd);
        }
        self.open_dirs.truncate(first_missing);
        let mut deepest_open = deepest_open;
        for name in names {
            let fd = rustix::fs::openat(&deepest_open, OsStr::from_bytes(name), DIR, Mode::empty())?;
            deepest_open = Arc::new(fd);
            self.open_dirs.push((name.to_vec(), Some(deepest_open.clone())));
        }
        Ok(deepest_open)
    }

    /// Opens the directory that holds `path`; returns it with the name in it. `None` for the root.
    pub fn parent<'p>(&mut self, path: &'p RelPath) -> io::Result<Option<(Arc<OwnedFd>, &'p OsStr)>> {
        let Some((parent, name)) = path.split_last() else { return Ok(None) };
        Ok(Some((self.dir(&parent)?, OsStr::from_bytes(name))))
    }

    /// Closes the cached directories; call it after directories were renamed or removed.
    pub fn close_cached(&mut self) {
        self.open_dirs.clear();
    }
}

/// Opens the directory at `names` below `above` with one call; `None` if that has to be done level by level.
#[cfg(target_os = "linux")]
fn open_levels(start: &OwnedFd, names: &[&[u8]]) -> Option<rustix::io::Result<OwnedFd>> {
    use std::sync::atomic::{AtomicBool, Ordering};

    static OPENAT2_AVAILABLE: AtomicBool = AtomicBool::new(true);
    if !OPENAT2_AVAILABLE.load(Ordering::Relaxed) {
        return None;
    }
    let path = names.join(&b'/');
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(start, OsStr::from_bytes(&path), DIR, Mode::empty(), resolve) {
        Err(Errno::NOSYS | Errno::PERM) => {
            // An old kernel, or a sandbox that does not allow the call.
            OPENAT2_AVAILABLE.store(false, Ordering::Relaxed);
            None
        }
        // Something on the way was renamed meanwhile, or the path is too long.
        Err(Errno::AGAIN | Errno::NAMETOOLONG) => None,
        opened => Some(opened),
    }
}

/// Not available on this system.
#[cfg(not(target_os = "linux"))]
fn open_levels(_: &OwnedFd, _: &[&[u8]]) -> Option<rustix::io::Result<OwnedFd>> {
    None
}

/// Opens a regular file for reading, without following links.
pub fn open_file(dir: &impl AsFd, name: &OsStr) -> rustix::io::Result<(File, rustix::fs::Stat)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    Ok((File::from(fd), stat))
}

/// What identifies a file well enough to notice that another one took its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    ino: u64,
    size: i64,
    mtime: (i64, u64),
}

impl Identity {
    /// The identity from a `stat` result.
    pub fn of(stat: &rustix::fs::Stat) -> Self {
        Self { ino: stat.st_ino, size: stat.st_size, mtime: (stat.st_mtime, stat.st_mtime_nsec) }
    }
}

/// What is at a name, compared with what a plan expects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Present {
    /// Exactly the expected content.
    Matches(Identity),
    /// The expected content with other permission bits.
    OtherMode(Identity),
    /// Other content, or another type.
    Differs,
    /// The name does not exist.
    Nothing,
}

/// Compares what is at `name` with `expected`, by content.
pub fn compare(
    dir: &impl AsFd,
    name: &OsStr,
    expected: &TreeNode,
    source: &dyn ObjectSource,
) -> Result<Present, CompareError> {
    let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Present::Nothing),
        Err(errno) => return Err(io::Error::from(errno).into()),
    };
    let identity = Identity::of(&stat);
    let same_mode = |mode: u32| stat.st_mode & MODE_MASK == mode;
    let by_mode =
        |mode: u32| if same_mode(mode) { Present::Matches(identity) } else { Present::OtherMode(identity) };
    match (FileType::from_raw_mode(stat.st_mode), expected) {
        (FileType::RegularFile, TreeNode::File { mode, size, content }) => {
            if stat.st_size as u64 != *size {
                return Ok(Present::Differs);
            }
            let is_same = match content {
                // A file of the vault has the hash of its content in its name or at its end; the caller checks it.
                Content::Vaulted => true,
                Content::Whole(_) | Content::Chunked(_) => {
                    let (file, opened) = open_file(dir, name).map_err(io::Error::from)?;
                    Identity::of(&opened) == identity && same_content(&file, *size, content, source)?
                }
            };
            Ok(if is_same { by_mode(*mode) } else { Present::Differs })
        }
        (FileType::Symlink, TreeNode::Symlink { target }) => {
            let actual_target = rustix::fs::readlinkat(dir, name, Vec::new()).map_err(io::Error::from)?;
            Ok(if actual_target.as_bytes() == target { Present::Matches(identity) } else { Present::Differs })
        }
        (FileType::Directory, TreeNode::Dir { mode, .. }) => Ok(by_mode(*mode)),
        _ => Ok(Present::Differs),
    }
}

/// Why a comparison failed.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The file system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The store failed.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

/// Whether an open file of `size` bytes has `content`.
pub fn same_content(
    file: &File,
    size: u64,
    content: &Content,
    source: &dyn ObjectSource,
) -> Result<bool, CompareError> {
    match content {
        Content::Whole(hash) => {
            let mut bytes = vec![0; size as usize];
            match file.read_exact_at(&mut bytes, 0) {
                Ok(()) => Ok(Hash::of(ObjectKind::Blob, &bytes) == *hash),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
                Err(error) => Err(error.into()),
            }
        }
        Content::Chunked(hash) => {
            let items = list::iter(source, *hash).collect::<Result<Vec<ListItem>, ObjectError>>()?;
            match content::matches_chunks(file, size, &items) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
                other => Ok(other?),
            }
        }
        Content::Vaulted => Ok(true),
    }
}
