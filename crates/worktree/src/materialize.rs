//! Writes stored trees into a new directory, anchored at its handle.
//!
//! What is written may come from another user's bundle. Every file, directory and link is created by its name in an open
//! directory that was reached without following a link, and nothing that exists is opened or replaced. So whatever the
//! trees say, nothing outside the directory changes.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;
use stepback_faults as faults;
use stepback_model::hash::Hash;
use stepback_model::object::{ObjectError, ObjectSource};
use stepback_model::path::RelPath;
use stepback_model::plan::SkippedPath;
use stepback_model::tree::{Content, MODE_MASK, SkipReason, Tree, TreeNode};

use crate::anchored_path::{AnchoredDir, open_file, same_content};
use crate::anchored_write::make_dirs;
use crate::apply::set_mode;
use crate::error::WorktreeError;
use crate::restore::{clone_into, write_content};
use crate::vault::{self, Vault};

/// The result of writing trees into a directory.
#[derive(Debug, Default)]
pub struct Materialized {
    /// How many files and links were written.
    pub files: u64,
    /// How many of those are files that share their blocks with the workspace.
    pub cloned: u64,
    /// The total size of the files, in bytes.
    pub bytes: u64,
    /// The paths that could not be written, with the reason.
    pub missing: Vec<SkippedPath>,
    /// The paths whose content is damaged in the store, with the reason.
    pub damaged: Vec<SkippedPath>,
}

/// What to do about content that is damaged in the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfDamaged {
    /// Fail: the caller needs all of it.
    Fail,
    /// Write the rest, and list it.
    List,
}

impl IfDamaged {
    /// Whether the rest is written in spite of this error.
    pub fn tolerates(self, error: &ObjectError) -> bool {
        self == Self::List && matches!(error, ObjectError::Missing { .. } | ObjectError::Corrupt { .. })
    }

    fn tolerates_io(self, error: &io::Error) -> bool {
        let inner = error.get_ref().and_then(|error| error.downcast_ref::<ObjectError>());
        inner.is_some_and(|error| self.tolerates(error))
            || (self == Self::List
                && matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData))
    }
}

/// Where content comes from, and how many threads write it.
#[derive(Clone, Copy)]
pub struct ContentSource<'a> {
    /// The stored objects.
    pub objects: &'a (dyn ObjectSource + Sync),
    /// The vault of git files.
    pub vault: Option<&'a Vault>,
    /// A workspace that may still have the same files, to share their blocks.
    pub workspace: Option<&'a Path>,
    /// Number of threads.
    pub threads: usize,
    /// Counts the files that were written.
    pub progress: Option<&'a AtomicU64>,
    /// What happens when some of it is damaged.
    pub if_damaged: IfDamaged,
}

/// Fills one directory, which was empty.
pub struct TreeWriter<'a> {
    into: PathBuf,
    anchor: AnchoredDir,
    source: ContentSource<'a>,
    /// The workspace's own files; `None` if its directory cannot be opened.
    originals: Option<AnchoredDir>,
    /// Modes of directories, parents first. They are set last: a directory may be read-only.
    modes: Vec<(RelPath, u32)>,
    done: Materialized,
}

/// A file that is to be written.
struct FileToWrite {
    path: RelPath,
    mode: u32,
    size: u64,
    content: Content,
}

impl<'a> TreeWriter<'a> {
    /// Opens `into`, creating it if needed. `None` if it is not empty, or not a directory.
    pub fn open(into: &Path, source: ContentSource<'a>) -> Result<Option<Self>, WorktreeError> {
        if !fs::metadata(into).is_ok_and(|metadata| metadata.is_dir()) {
            if fs::symlink_metadata(into).is_ok() {
                return Ok(None);
            }
            faults::point()
                .and_then(|()| fs::create_dir_all(into))
                .map_err(WorktreeError::aside("create", into))?;
        }
        let anchor = AnchoredDir::open_as_given(into).map_err(WorktreeError::aside("open", into))?;
        if !is_empty(&anchor).map_err(WorktreeError::aside("read", into))? {
            return Ok(None);
        }
        let originals = source.workspace.and_then(|root| AnchoredDir::open(root).ok());
        let (modes, report) = Default::default();
        Ok(Some(Self { into: into.to_path_buf(), anchor, source, originals, modes, done: report }))
    }

    /// Writes `tree` as the content of the directory itself.
    pub fn write_files(&mut self, tree: Hash) -> Result<(), WorktreeError> {
        self.write_tree(tree, RelPath::root())
    }

    /// Writes `tree` as a new git directory at `path`. The directories above it are created if they are missing; anything
    /// else in its way, such as a link, is an error.
    pub fn write_git_dir(&mut self, tree: Hash, path: &RelPath) -> Result<(), WorktreeError> {
        let target = self.place(path);
        let create = |anchor: &mut AnchoredDir| -> io::Result<()> {
            let Some((parent, name)) = path.split_last() else {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "a git directory has no name"));
            };
            let dir = make_dirs(anchor, &parent, 0o777)?;
            faults::point()?;
            Ok(rustix::fs::mkdirat(&dir, OsStr::from_bytes(name), Mode::from_raw_mode(0o777))?)
        };
        create(&mut self.anchor).map_err(WorktreeError::aside("create", target))?;
        self.write_tree(tree, path.clone())
    }

    /// Sets the modes of directories, and returns what was written. Unless `durable`, a power failure can take it back.
    pub fn finish(mut self, durable: bool) -> Result<Materialized, WorktreeError> {
        for (path, mode) in std::mem::take(&mut self.modes).into_iter().rev() {
            let set = match self.anchor.parent(&path) {
                Ok(Some((dir, name))) => set_mode(&dir, name, mode & MODE_MASK),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            set.map_err(WorktreeError::aside("set the mode of", self.place(&path)))?;
        }
        if durable {
            faults::point()
                .and_then(|()| Ok(rustix::fs::syncfs(self.anchor.root())?))
                .map_err(WorktreeError::aside("sync", &self.into))?;
        }
        Ok(self.done)
    }

    fn place(&self, path: &RelPath) -> PathBuf {
        self.into.join(OsStr::from_bytes(path.as_bytes()))
    }

    fn write_tree(&mut self, tree: Hash, path: RelPath) -> Result<(), WorktreeError> {
        let in_git = !path.is_root();
        let mut files = Vec::new();
        let mut stack = vec![(tree, path)];
        while let Some((tree, path)) = stack.pop() {
            let entries = match Tree::load(self.source.objects, tree) {
                Err(error) if self.source.if_damaged.tolerates(&error) => {
                    self.list_damaged(
                        path,
                        format!("the list of its entries is damaged in the store: {error}"),
                    );
                    continue;
                }
                loaded => loaded?.into_entries(),
            };
            let dir = self.anchor.dir(&path).map_err(WorktreeError::aside("open", self.place(&path)))?;
            for entry in entries {
                let child = path.join(&entry.name);
                let name = OsStr::from_bytes(&entry.name);
                let entry_result = match entry.node {
                    TreeNode::Dir { .. } if !in_git && entry.name == b".git" => {
                        // A scan keeps git directories apart; one among the files was put there by hand.
                        let reason = "a git directory is not part of the files".to_owned();
                        self.done.missing.push(SkippedPath::uncovered(child.clone(), reason));
                        Ok(())
                    }
                    TreeNode::Dir { mode, tree } => {
                        self.modes.push((child.clone(), mode));
                        stack.push((tree, child.clone()));
                        // Closed to others until it has its own mode.
                        faults::point()
                            .and_then(|()| Ok(rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o700))?))
                    }
                    TreeNode::Symlink { target } => {
                        self.done.files += 1;
                        faults::point()
                            .and_then(|()| Ok(rustix::fs::symlinkat(OsStr::from_bytes(&target), &dir, name)?))
                    }
                    TreeNode::Skipped { reason } => {
                        if reason != SkipReason::GitDir {
                            let reason = format!("it was not covered ({})", reason.describe());
                            self.done.missing.push(SkippedPath::uncovered(child.clone(), reason));
                        }
                        Ok(())
                    }
                    TreeNode::File { mode, size, content } => {
                        self.done.files += 1;
                        self.done.bytes += size;
                        files.push(FileToWrite { path: child.clone(), mode, size, content });
                        Ok(())
                    }
                };
                entry_result.map_err(|error| WorktreeError::aside("write", self.place(&child))(error))?;
            }
        }
        let entry_result = self.write_all(&files)?;
        self.done.cloned += entry_result.cloned;
        self.done.files -= (entry_result.missing.len() + entry_result.damaged.len()) as u64;
        self.done.missing.extend(entry_result.missing);
        for (index, reason) in entry_result.damaged {
            self.done.bytes -= files[index].size;
            self.list_damaged(files[index].path.clone(), format!("it is damaged in the store: {reason}"));
        }
        Ok(())
    }

    /// Lists a path that is not written because its content is damaged in the store.
    pub fn list_damaged(&mut self, path: RelPath, reason: String) {
        self.done.damaged.push(SkippedPath::uncovered(path, reason));
    }

    /// Writes files into existing directories, on all threads.
    fn write_all(&self, files: &[FileToWrite]) -> Result<WrittenFiles, WorktreeError> {
        const FILES_PER_CHUNK: usize = 16;
        let (missing, damaged) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let (next, cloned, failure) = (AtomicUsize::new(0), AtomicU64::new(0), Mutex::new(None));
        let work = || {
            let mut anchor = self.anchor.duplicate();
            let mut originals = self.originals.as_ref().map(AnchoredDir::duplicate);
            loop {
                let first = next.fetch_add(FILES_PER_CHUNK, Ordering::Relaxed);
                if first >= files.len() {
                    return;
                }
                for (index, file) in files.iter().enumerate().skip(first).take(FILES_PER_CHUNK) {
                    match self.write_file(&mut anchor, originals.as_mut(), file) {
                        Ok(is_clone) => {
                            cloned.fetch_add(u64::from(is_clone), Ordering::Relaxed);
                        }
                        Err(error) if self.source.if_damaged.tolerates_io(&error) => {
                            // An empty or partial file would look like the content.
                            if let Ok(Some((dir, name))) = anchor.parent(&file.path) {
                                let _ = rustix::fs::unlinkat(&dir, name, rustix::fs::AtFlags::empty());
                            }
                            let reason = (index, error.to_string());
                            damaged.lock().unwrap_or_else(PoisonError::into_inner).push(reason);
                        }
                        Err(error) if file.content == Content::Vaulted && is_lost(&error) => {
                            let lost_path = SkippedPath::conflict(file.path.clone(), error.to_string());
                            missing.lock().unwrap_or_else(PoisonError::into_inner).push(lost_path);
                        }
                        Err(error) => {
                            let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                            failure
                                .get_or_insert(WorktreeError::aside("write", self.place(&file.path))(error));
                            // Makes the other threads stop as well.
                            next.fetch_max(files.len(), Ordering::Relaxed);
                            return;
                        }
                    }
                    if let Some(progress) = self.source.progress {
                        progress.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        };
        let threads = if files.len() < 64 { 1 } else { self.source.threads.max(1) };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => {
                let mut missing = missing.into_inner().unwrap_or_else(PoisonError::into_inner);
                missing.sort_unstable_by(|a: &SkippedPath, b| a.path.cmp(&b.path));
                let mut damaged = damaged.into_inner().unwrap_or_else(PoisonError::into_inner);
                damaged.sort_unstable();
                Ok(WrittenFiles { cloned: cloned.into_inner(), missing, damaged })
            }
        }
    }

    /// Shares blocks with the workspace's own file if that has this content and the file system supports it; writes the
    /// content otherwise. Returns whether blocks are shared.
    fn write_file(
        &self,
        anchor: &mut AnchoredDir,
        originals: Option<&mut AnchoredDir>,
        file: &FileToWrite,
    ) -> io::Result<bool> {
        let FileToWrite { path, mode, size, content } = file;
        let Some((dir, name)) = anchor.parent(path)? else { return Err(io::ErrorKind::InvalidInput.into()) };
        if *content == Content::Vaulted {
            let parent = path.split_last().map(|(parent, _)| parent).unwrap_or_default();
            let parent_name = parent.components().next_back().unwrap_or_default();
            let (Some(vault), Some(key)) = (self.source.vault, vault::name_of(parent_name, name.as_bytes()))
            else {
                return Err(io::Error::new(io::ErrorKind::NotFound, "its content is not in the vault"));
            };
            return vault.bring_back(&key, dir.as_fd(), name, *mode).map(|()| false);
        }
        faults::point()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut new = File::from(rustix::fs::openat(&dir, name, flags, Mode::from_raw_mode(0o600))?);
        let original = originals.filter(|_| *size > 0).and_then(|originals| {
            let (dir, name) = originals.parent(path).ok()??;
            Some(open_file(&dir, name).ok()?.0)
        });
        let shares = original.is_some_and(|original| clone_into(&original, &new));
        let cloned = shares && same_content(&new, *size, content, self.source.objects).unwrap_or(false);
        if !cloned {
            // Only if there is something to truncate: ext4 takes even a truncation that changes nothing for the start of a
            // replacement and flushes the file when it is closed, which made this ten times slower.
            if shares {
                new.set_len(0)?;
            }
            write_content(&mut new, content, self.source.objects)?;
        }
        rustix::fs::fchmod(&new, Mode::from_raw_mode(mode & MODE_MASK))?;
        Ok(cloned)
    }
}

/// What became of the files of a tree.
struct WrittenFiles {
    /// How many share their blocks with the workspace.
    cloned: u64,
    /// The git objects that the vault does not have intact: they do not keep the others from being written.
    missing: Vec<SkippedPath>,
    /// The positions of the files whose content is damaged, with reasons.
    damaged: Vec<(usize, String)>,
}

/// Whether a git object could not be written because the vault does not have it intact.
fn is_lost(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData)
}

fn is_empty(anchor: &AnchoredDir) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(anchor.root(), ".", flags, Mode::empty())?;
    for entry in Dir::new(dir)? {
        match entry {
            Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
            Ok(_) => return Ok(false),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(true)
}
