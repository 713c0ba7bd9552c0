//! Replaced files, kept under temporary names until all changes are written.
//!
//! For every new file, ext4 looks for a free inode near the directory and steps over each one that was freed within the
//! last minutes. Deleting each replaced file right after its exchange makes every file that follows slower; deleting all of
//! them after the last one was made costs the same as deleting alone. Until then they take up space, so their total size is
//! limited.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::sync::Mutex;

use rustix::fs::AtFlags;
use rustix::io::Errno;
use stepback_faults as faults;
use stepback_model::path::RelPath;
use stepback_model::plan::PlannedChange;
use stepback_model::tree::TreeNode;

use super::{Applier, existing_parent, lock, on_threads};
use crate::anchored_path::AnchoredDir;
use crate::error::WorktreeError;

/// The most bytes that are kept.
const MAX_KEPT_BYTES: u64 = 256 << 20;

/// Files under temporary names that hold only what the plan saved.
#[derive(Debug, Default)]
pub(super) struct DisplacedFiles {
    /// Their indices in the plan.
    at: Vec<usize>,
    bytes: u64,
}

impl Applier<'_> {
    /// Deletes the file that the change at `index` displaced, now or later.
    pub(super) fn discard(
        &self,
        dir: &impl AsFd,
        temporary: &OsStr,
        index: usize,
        now: Option<&TreeNode>,
    ) -> io::Result<()> {
        let size = match now {
            Some(TreeNode::File { size, .. }) => *size,
            _ => 0,
        };
        let mut displaced = lock(&self.displaced);
        if displaced.bytes.saturating_add(size) <= MAX_KEPT_BYTES {
            displaced.bytes += size;
            displaced.at.push(index);
            return Ok(());
        }
        drop(displaced);
        unlink(dir, temporary)
    }

    /// Deletes the files kept in `parent`, which is about to be removed.
    pub(super) fn discard_in(
        &self,
        anchor: &mut AnchoredDir,
        changes: &[PlannedChange],
        parent: &RelPath,
    ) -> Result<(), WorktreeError> {
        let is_inside = |at: &usize| changes[*at].path.split_last().is_some_and(|(dir, _)| dir == *parent);
        let (inside, others) = std::mem::take(&mut lock(&self.displaced).at).into_iter().partition(is_inside);
        lock(&self.displaced).at = others;
        Vec::into_iter(inside).try_for_each(|at| self.delete(anchor, changes, at))
    }

    /// Deletes all files that are kept.
    pub(super) fn discard_all(&self, changes: &[PlannedChange]) -> Result<(), WorktreeError> {
        let mut displaced_indexes = std::mem::take(&mut *lock(&self.displaced)).at;
        displaced_indexes.sort_unstable();
        let failure = Mutex::new(None);
        on_threads(self.threads, displaced_indexes.len(), &failure, || {
            let mut anchor = self.anchor.duplicate();
            let displaced_indexes = &displaced_indexes;
            move |number| self.delete(&mut anchor, changes, displaced_indexes[number])
        });
        failure.into_inner().unwrap_or_default().map_or(Ok(()), Err)
    }

    fn delete(
        &self,
        anchor: &mut AnchoredDir,
        changes: &[PlannedChange],
        index: usize,
    ) -> Result<(), WorktreeError> {
        let path = &changes[index].path;
        let Some((dir, _)) = existing_parent(anchor.parent(path), path)? else { return Ok(()) };
        unlink(&dir, &self.temporary_name(index)).map_err(WorktreeError::io("remove the replaced", path))
    }
}

fn unlink(dir: &impl AsFd, temporary: &OsStr) -> io::Result<()> {
    faults::point()?;
    match rustix::fs::unlinkat(dir, temporary, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
