//! Applies a plan to the user's files so that no byte is lost, even if other processes write at the same time.
//!
//! New content is written beside its target and *exchanged* with it; what comes out is checked to be what the plan saved,
//! and put back if it is not, so that even an edit in the last microsecond survives. A deletion is a rename, a check, and
//! only then an unlink. Every step can be repeated: a path that already is as planned is left as it is, which is how an
//! interrupted run is completed. Names of temporary files derive from the operation, so that they can be found.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, FileType, Mode, RenameFlags};
use rustix::io::Errno;
use stepback_faults as faults;
use stepback_model::object::ObjectSource;
use stepback_model::path::RelPath;
use stepback_model::plan::PlannedChange;
use stepback_model::tree::{Content, MODE_MASK, TreeNode};

use crate::anchored_path::{AnchoredDir, CompareError, Identity, Present, compare, open_file};
use crate::error::WorktreeError;
use crate::git;
use crate::vault::Vault;
use displaced::DisplacedFiles;
pub use torn::TornFiles;

mod displaced;
mod durable;
mod torn;
mod write;

/// Prefix of the names of temporary files; scans ignore them.
pub const TEMPORARY: &[u8] = b".stepback-tmp-";

/// The result of one planned change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangeOutcome {
    /// The path is as planned now.
    Done,
    /// The path was left as it is, for this reason.
    LeftAlone(String),
}

/// Applies changes beneath one root.
pub struct Applier<'a> {
    anchor: AnchoredDir,
    source: &'a (dyn ObjectSource + Sync),
    vault: Option<&'a Vault>,
    /// Part of the names of this operation's temporary files.
    tag: String,
    threads: usize,
    durable: bool,
    /// Files that may be replaced although they are not what the plan expects.
    torn: TornFiles,
    /// Directories made writable temporarily, with their original permission bits.
    saved_modes: Mutex<BTreeMap<RelPath, u32>>,
    displaced: Mutex<DisplacedFiles>,
}

/// A run that failed part way.
#[derive(Debug)]
pub struct ApplyFailure {
    /// What went wrong, and at which path.
    pub error: WorktreeError,
    /// The result of each change up to then; `None` for those not reached.
    pub outcomes: Vec<Option<ChangeOutcome>>,
}

impl<'a> Applier<'a> {
    /// Prepares to change files beneath `root`. `tag` must be unique to the operation.
    pub fn new(
        root: &Path,
        source: &'a (dyn ObjectSource + Sync),
        vault: Option<&'a Vault>,
        tag: &str,
        threads: usize,
    ) -> Result<Self, WorktreeError> {
        let anchor = AnchoredDir::open(root)
            .map_err(|error| WorktreeError::Root { root: root.to_path_buf(), error })?;
        let tag = tag.to_string();
        let (loosened, displaced) = Default::default();
        let (durable, torn) = (true, TornFiles::new());
        Ok(Self { anchor, source, vault, tag, threads, durable, torn, saved_modes: loosened, displaced })
    }

    /// For files that are not needed after a crash: changes are not made durable.
    pub fn without_sync(self) -> Self {
        Self { durable: false, ..self }
    }

    /// Applies `changes` (sorted by path) and makes them durable, unless this is [`Applier::without_sync`]. On failure,
    /// what was done stays done and is reported.
    pub fn apply(
        &self,
        changes: &[PlannedChange],
        progress: Option<&AtomicU64>,
    ) -> Result<Vec<ChangeOutcome>, Box<ApplyFailure>> {
        let outcomes = Mutex::new(vec![None; changes.len()]);
        let run = || -> Result<(), WorktreeError> {
            let count = || {
                if let Some(progress) = progress {
                    progress.fetch_add(1, Ordering::Relaxed);
                }
            };
            let set_outcome = |index: usize, outcome: ChangeOutcome| lock(&outcomes)[index] = Some(outcome);
            self.remove_phase(changes, &set_outcome)?;
            self.make_dirs_phase(changes, &set_outcome)?;
            self.write_phase(changes, &set_outcome, &count)?;
            self.discard_all(changes)?;
            self.dir_modes_phase(changes, &set_outcome)
        };
        let result = run();
        if result.is_err() {
            // Best effort; files that remain are found by their names.
            let _ = self.discard_all(changes);
        }
        let tightened = self.restore_modes();
        let result = result.and(tightened).and_then(|()| match self.durable {
            true => durable::make_durable(&self.anchor, changes)
                .map_err(WorktreeError::io("sync", &RelPath::root())),
            false => Ok(()),
        });
        let outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) => {
                Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or(ChangeOutcome::Done)).collect())
            }
            Err(error) => Err(Box::new(ApplyFailure { error, outcomes })),
        }
    }

    /// Removes what must go: deepest first, so that directories are empty when their turn comes.
    fn remove_phase(
        &self,
        changes: &[PlannedChange],
        set: &dyn Fn(usize, ChangeOutcome),
    ) -> Result<(), WorktreeError> {
        let mut anchor = self.anchor.duplicate();
        for (index, change) in changes.iter().enumerate().rev() {
            let Some(now) = &change.now else { continue };
            let replaced = match &change.then {
                None => true,
                // A directory and anything else cannot be exchanged in one step.
                Some(then) => now.is_dir() != then.is_dir(),
            };
            if !replaced {
                continue;
            }
            let outcome = if now.is_dir() {
                self.discard_in(&mut anchor, changes, &change.path)?;
                anchor.close_cached();
                self.remove_dir(&mut anchor, &change.path, change.then.as_ref())?
            } else {
                self.remove_file(&mut anchor, change, index)?
            };
            if change.then.is_none() || outcome != ChangeOutcome::Done {
                set(index, outcome);
            }
        }
        Ok(())
    }

    fn remove_dir(
        &self,
        anchor: &mut AnchoredDir,
        path: &RelPath,
        then: Option<&TreeNode>,
    ) -> Result<ChangeOutcome, WorktreeError> {
        let Some((dir, name)) = existing_parent(anchor.parent(path), path)? else {
            return Ok(ChangeOutcome::Done);
        };
        let remove = || {
            faults::point()?;
            Ok(rustix::fs::unlinkat(&dir, name, AtFlags::REMOVEDIR)?)
        };
        match self.with_access(path, remove) {
            Ok(()) => Ok(ChangeOutcome::Done),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT) => Ok(ChangeOutcome::Done),
                // Not a directory any more: fine if it already is what the plan wants.
                Some(Errno::NOTDIR) => match then.map(|then| compare(&dir, name, then, self.source)) {
                    Some(Ok(Present::Matches(_) | Present::OtherMode(_))) => Ok(ChangeOutcome::Done),
                    _ => Ok(ChangeOutcome::LeftAlone("it is no longer a directory".into())),
                },
                Some(Errno::NOTEMPTY | Errno::EXIST) => Ok(ChangeOutcome::LeftAlone(
                    "the directory contains files that are not part of the rewind".into(),
                )),
                _ => Err(WorktreeError::io("remove", path)(error)),
            },
        }
    }

    fn remove_file(
        &self,
        anchor: &mut AnchoredDir,
        change: &PlannedChange,
        index: usize,
    ) -> Result<ChangeOutcome, WorktreeError> {
        let path = &change.path;
        let Some(now) = &change.now else { return Ok(ChangeOutcome::Done) };
        let Some((dir, name)) = existing_parent(anchor.parent(path), path)? else {
            return Ok(ChangeOutcome::Done);
        };
        let identity = match self.compare_present(&dir, name, now, path)? {
            Present::Nothing => return Ok(ChangeOutcome::Done),
            Present::Matches(identity) | Present::OtherMode(identity) => identity,
            Present::Differs if change.then.as_ref().is_some_and(TreeNode::is_dir) && is_dir(&dir, name) => {
                return Ok(ChangeOutcome::Done);
            }
            Present::Differs => match self.torn_at(&dir, name, path) {
                Some(torn) => torn,
                None => return Ok(changed_meanwhile()),
            },
        };
        let temporary = self.temporary_name(index);
        let moved = self.with_access(path, || {
            faults::point()?;
            rename(&dir, name, &temporary, RenameFlags::NOREPLACE)
        });
        match moved {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ChangeOutcome::Done),
            other => other.map_err(WorktreeError::io("remove", path))?,
        }
        if !is_identical(&dir, &temporary, identity) {
            // Another process wrote to it after the check: put it back.
            rename(&dir, &temporary, name, RenameFlags::NOREPLACE)
                .map_err(WorktreeError::io("put back", path))?;
            return Ok(changed_meanwhile());
        }
        self.discard(&dir, &temporary, index, Some(now)).map_err(WorktreeError::io("remove", path))?;
        Ok(ChangeOutcome::Done)
    }

    fn make_dirs_phase(
        &self,
        changes: &[PlannedChange],
        set: &dyn Fn(usize, ChangeOutcome),
    ) -> Result<(), WorktreeError> {
        let mut anchor = self.anchor.duplicate();
        for (index, change) in changes.iter().enumerate() {
            let Some(TreeNode::Dir { mode, .. }) = &change.then else { continue };
            let path = &change.path;
            let Some((dir, name)) = existing_parent(anchor.parent(path), path)? else {
                set(index, missing_parent());
                continue;
            };
            if is_dir(&dir, name) {
                continue;
            }
            // Writable until its files are written; the planned bits come last.
            let result = self.with_access(path, || {
                faults::point()?;
                Ok(rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(mode | 0o700))?)
            });
            match result {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    set(index, ChangeOutcome::LeftAlone("something else is in its place".into()));
                }
                Err(error) => return Err(WorktreeError::io("create", path)(error)),
            }
        }
        Ok(())
    }

    /// Writes files and links, on all threads.
    fn write_phase(
        &self,
        changes: &[PlannedChange],
        set: &(dyn Fn(usize, ChangeOutcome) + Sync),
        count: &(dyn Fn() + Sync),
    ) -> Result<(), WorktreeError> {
        let failure = Mutex::new(None);
        on_threads(self.threads, changes.len(), &failure, || {
            let mut anchor = self.anchor.duplicate();
            move |index| {
                let change = &changes[index];
                if matches!(&change.then, Some(TreeNode::File { .. } | TreeNode::Symlink { .. })) {
                    set(index, self.write(&mut anchor, change, index)?);
                    count();
                }
                Ok(())
            }
        });
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Sets permission bits of directories, deepest first: a directory may be about to become read-only.
    fn dir_modes_phase(
        &self,
        changes: &[PlannedChange],
        set: &dyn Fn(usize, ChangeOutcome),
    ) -> Result<(), WorktreeError> {
        let mut anchor = self.anchor.duplicate();
        for (index, change) in changes.iter().enumerate().rev() {
            let Some(TreeNode::Dir { mode, .. }) = &change.then else { continue };
            let Some((dir, name)) = existing_parent(anchor.parent(&change.path), &change.path)? else {
                continue;
            };
            if !is_dir(&dir, name) {
                continue;
            }
            lock(&self.saved_modes).remove(&change.path);
            set_mode(&dir, name, *mode).map_err(WorktreeError::io("set the mode of", &change.path))?;
            set(index, ChangeOutcome::Done);
        }
        Ok(())
    }

    fn compare_present(
        &self,
        dir: &impl AsFd,
        name: &OsStr,
        node: &TreeNode,
        path: &RelPath,
    ) -> Result<Present, WorktreeError> {
        match compare(dir, name, node, self.source) {
            Ok(present @ (Present::Matches(_) | Present::OtherMode(_))) => {
                match is_intact(dir, name, node, path) {
                    true => Ok(present),
                    false => Ok(Present::Differs),
                }
            }
            Ok(present) => Ok(present),
            Err(CompareError::Object(error)) => Err(error.into()),
            // A file that cannot be read cannot have been saved, so it must not be replaced.
            Err(CompareError::Io(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                Ok(Present::Differs)
            }
            Err(CompareError::Io(error)) => Err(WorktreeError::io("look at", path)(error)),
        }
    }

    fn temporary_name(&self, index: usize) -> OsString {
        let mut name = TEMPORARY.to_vec();
        name.extend_from_slice(format!("{}-{index}", self.tag).as_bytes());
        OsString::from_vec(name)
    }

    /// Runs an action in the directory that holds `path`; if that is read-only but owned by the user, makes it writable
    /// temporarily.
    fn with_access<T>(&self, path: &RelPath, action: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match action() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                if !self.make_writable(path)? {
                    return Err(error);
                }
                action()
            }
            other => other,
        }
    }

    fn make_writable(&self, path: &RelPath) -> io::Result<bool> {
        let Some((parent, _)) = path.split_last() else { return Ok(false) };
        let mut anchor = self.anchor.duplicate();
        let Some((parent_dir, name)) = anchor.parent(&parent)? else { return Ok(false) };
        let stat = rustix::fs::statat(&parent_dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let mode = stat.st_mode & MODE_MASK;
        if mode & 0o300 == 0o300 {
            return Ok(false);
        }
        lock(&self.saved_modes).entry(parent.clone()).or_insert(mode);
        set_mode(&parent_dir, name, mode | 0o700)?;
        Ok(true)
    }

    /// Restores the original permission bits of directories.
    fn restore_modes(&self) -> Result<(), WorktreeError> {
        let loosened = std::mem::take(&mut *lock(&self.saved_modes));
        let mut anchor = self.anchor.duplicate();
        for (path, mode) in loosened.iter().rev() {
            if let Some((dir, name)) = existing_parent(anchor.parent(path), path)?
                && is_dir(&dir, name)
            {
                set_mode(&dir, name, *mode).map_err(WorktreeError::io("set the mode of", path))?;
            }
        }
        Ok(())
    }

    /// Cleans up after an interrupted run: removes temporary files that hold only planned or saved content, and puts a file
    /// that another process had just written back under its name.
    pub fn clean_up(&self, changes: &[PlannedChange]) -> Result<(), WorktreeError> {
        let mut anchor = self.anchor.duplicate();
        for (index, change) in changes.iter().enumerate() {
            let path = &change.path;
            let Some((dir, name)) = existing_parent(anchor.parent(path), path)? else { continue };
            let temporary = self.temporary_name(index);
            if rustix::fs::statat(&dir, &temporary, AtFlags::SYMLINK_NOFOLLOW).is_err() {
                continue;
            }
            let is_present = |node: &Option<TreeNode>| -> Result<bool, WorktreeError> {
                let Some(node) = node else { return Ok(false) };
                let present = self.compare_present(&dir, &temporary, node, path)?;
                Ok(matches!(present, Present::Matches(_) | Present::OtherMode(_)))
            };
            let expected_there = match &change.then {
                Some(then) => {
                    let present = self.compare_present(&dir, name, then, path)?;
                    matches!(present, Present::Matches(_) | Present::OtherMode(_))
                }
                None => rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).is_err(),
            };
            if expected_there && !is_present(&change.now)? && !is_present(&change.then)? {
                // Exchanged out, but not what was saved: an edit by another process.
                let put_back = if change.then.is_some() {
                    rename(&dir, &temporary, name, RenameFlags::EXCHANGE)
                } else {
                    rename(&dir, &temporary, name, RenameFlags::NOREPLACE)
                };
                put_back.map_err(WorktreeError::io("put back", path))?;
            }
            // Now it is planned content, saved content, or a half-written copy of planned content.
            let _ = rustix::fs::unlinkat(&dir, &temporary, AtFlags::empty());
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a worker for each of `count` items, in batches of neighbours, on up to `threads` threads, until one fails.
fn on_threads<W: FnMut(usize) -> Result<(), WorktreeError>>(
    threads: usize,
    count: usize,
    failure: &Mutex<Option<WorktreeError>>,
    worker: impl Fn() -> W + Sync,
) {
    const ITEMS_PER_CHUNK: usize = 16;
    let next = AtomicUsize::new(0);
    let work = || {
        let mut worker = worker();
        loop {
            let first = next.fetch_add(ITEMS_PER_CHUNK, Ordering::Relaxed);
            if first >= count || lock(failure).is_some() {
                return;
            }
            if let Err(error) = (first..count.min(first + ITEMS_PER_CHUNK)).try_for_each(&mut worker) {
                lock(failure).get_or_insert(error);
                return;
            }
        }
    };
    let threads = if count < 64 { 1 } else { threads.max(1) };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
}

fn changed_meanwhile() -> ChangeOutcome {
    ChangeOutcome::LeftAlone("another process changed it meanwhile".into())
}

fn missing_parent() -> ChangeOutcome {
    ChangeOutcome::LeftAlone("its directory is missing or is not a directory any more".into())
}

type Parent<'p> = Option<(std::sync::Arc<std::os::fd::OwnedFd>, &'p OsStr)>;

/// The parent directory, or `None` if it does not exist or its path leads through something that is not a directory.
fn existing_parent<'p>(parent: io::Result<Parent<'p>>, path: &RelPath) -> Result<Parent<'p>, WorktreeError> {
    match parent {
        Ok(parent) => Ok(parent),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            _ => Err(WorktreeError::io("reach", path)(error)),
        },
    }
}

fn is_dir(dir: &impl AsFd, name: &OsStr) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Whether a file that should be one of the vault is intact. Other files were compared by their content.
fn is_intact(dir: &impl AsFd, name: &OsStr, node: &TreeNode, path: &RelPath) -> bool {
    if !matches!(node, TreeNode::File { content: Content::Vaulted, .. }) {
        return true;
    }
    let Some(key) = git::object_key(path) else { return true };
    let opened = open_file(dir, name).map_err(io::Error::from);
    opened
        .and_then(|(file, _)| stepback_store::check_git_file(&key, file))
        .is_ok_and(|checked| checked.is_ok())
}

fn is_identical(dir: &impl AsFd, name: &OsStr, identity: Identity) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| Identity::of(&stat) == identity)
}

fn rename(dir: &impl AsFd, old_name: &OsStr, new_name: &OsStr, flags: RenameFlags) -> io::Result<()> {
    match rustix::fs::renameat_with(dir, old_name, dir, new_name, flags) {
        Ok(()) => Ok(()),
        // File systems without these flags: only the check before guards against a race.
        Err(Errno::INVAL | Errno::NOSYS) if flags == RenameFlags::NOREPLACE => {
            if rustix::fs::statat(dir, new_name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            Ok(rustix::fs::renameat(dir, old_name, dir, new_name)?)
        }
        Err(errno) => Err(errno.into()),
    }
}

pub(crate) fn set_mode(dir: &impl AsFd, name: &OsStr, mode: u32) -> io::Result<()> {
    faults::point()?;
    // The name was just seen to be a directory or a file of ours; `fchmodat` follows links, so check once more.
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if stat.st_mode & MODE_MASK == mode {
        return Ok(());
    }
    Ok(rustix::fs::chmodat(dir, name, Mode::from_raw_mode(mode), AtFlags::empty())?)
}
