//! The directories that a scan would walk, for a watcher.
//!
//! The same rules apply as in a scan: a watcher that watches less than a scan walks would miss changes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;
use stepback_model::path::RelPath;
use stepback_model::tree::SkipReason;

use super::node::{DirKind, DirNode, dir_times_tell};
use crate::anchored_path::open_root;
use crate::rules;

/// The directories of a workspace.
#[derive(Debug)]
pub struct Territory {
    root: PathBuf,
    root_id: (u64, u64),
    store_id: Option<(u64, u64)>,
}

/// How a scan treats a directory.
#[derive(Debug)]
pub enum DirTreatment<'a> {
    /// It is walked.
    Walked(BorrowedFd<'a>),
    /// It is skipped because of a file in it; once that file is removed, it is walked.
    Marked(BorrowedFd<'a>),
    /// It would be walked if it could be opened.
    Closed,
}

impl Territory {
    /// Opens the directory at `root`. `None` if its file system does not report all changes: another machine, or a program
    /// outside of the kernel, may make some.
    pub fn open(root: &Path, store_dir: Option<&Path>) -> io::Result<Option<Self>> {
        let fd = open_root(root)?;
        let stat = rustix::fs::fstat(&fd)?;
        if !dir_times_tell(&fd) {
            return Ok(None);
        }
        let id = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let store_id = store_dir.and_then(|dir| rustix::fs::stat(dir).ok()).map(id);
        let root = root.to_path_buf();
        Ok(Some(Self { root, root_id: id(stat), store_id }))
    }

    /// The path of the root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Device and inode of the root.
    pub fn root_id(&self) -> (u64, u64) {
        self.root_id
    }

    /// Visits the directory at `path` and all below it that a scan would walk, each before it is listed: what is created in
    /// a directory after the visit is not visited, but a watch set during the visit reports it.
    pub fn visit(
        &self,
        path: &RelPath,
        on_dir: &mut dyn FnMut(&RelPath, DirTreatment<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        // Not kept open: the file system could not be unmounted, and the rules may have changed.
        let fd = open_root(&self.root)?;
        let stat = rustix::fs::fstat(&fd)?;
        if (stat.st_dev, stat.st_ino) != self.root_id {
            return Err(io::Error::other("the workspace was replaced by another directory"));
        }
        let mut node = Arc::new(DirNode::new(None, Vec::new(), fd, DirKind::Work));
        for name in path.components() {
            let path_here = node.path();
            match self.open_if_walked(&node, name, &path_here.join(name), on_dir)? {
                Some(child) => node = child,
                None => return Ok(()),
            }
        }
        let mut rest = vec![node];
        let mut buffer = vec![std::mem::MaybeUninit::uninit(); 32 << 10];
        while let Some(node) = rest.pop() {
            let path_here = node.path();
            on_dir(&path_here, DirTreatment::Walked(node.fd.as_fd()))?;
            for name in list_subdirectories(&node, &mut buffer)? {
                rest.extend(self.open_if_walked(&node, &name, &path_here.join(&name), on_dir)?);
            }
        }
        Ok(())
    }

    /// Opens a subdirectory if a scan would walk it.
    fn open_if_walked(
        &self,
        parent: &Arc<DirNode>,
        name: &[u8],
        path: &RelPath,
        on_dir: &mut dyn FnMut(&RelPath, DirTreatment<'_>) -> io::Result<()>,
    ) -> io::Result<Option<Arc<DirNode>>> {
        let area = parent.child_area(name, parent.has_head());
        let left_out = if area == DirKind::Work { parent.leave_out(name) } else { None };
        let marked = left_out == Some(SkipReason::HeavyCache) && !rules::is_heavy(parent.fd.as_fd(), name);
        if left_out.is_some() && !marked {
            return Ok(None);
        }
        let fd = match parent.open(name) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(Errno::ACCESS | Errno::PERM) => {
                on_dir(path, DirTreatment::Closed)?;
                return Ok(None);
            }
            Err(errno) => return Err(errno.into()),
        };
        let stat = rustix::fs::fstat(&fd)?;
        if stat.st_dev != self.root_id.0 || self.store_id == Some((stat.st_dev, stat.st_ino)) {
            return Ok(None);
        }
        if marked {
            on_dir(path, DirTreatment::Marked(fd.as_fd()))?;
            return Ok(None);
        }
        Ok(Some(Arc::new(DirNode::new(Some(parent.clone()), name.to_vec(), fd, area))))
    }
}

fn list_subdirectories(node: &DirNode, buffer: &mut [std::mem::MaybeUninit<u8>]) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    let mut reader = RawDir::new(&node.fd, buffer);
    while let Some(item) = reader.next() {
        let item = match item {
            Ok(item) => item,
            Err(Errno::NOENT) => break,
            Err(errno) => return Err(errno.into()),
        };
        let name = item.file_name().to_bytes();
        let may_be_dir = matches!(item.file_type(), FileType::Directory | FileType::Unknown);
        if may_be_dir && name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}
