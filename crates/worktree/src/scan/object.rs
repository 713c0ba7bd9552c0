//! Stores one immutable file of a git directory: packs and LFS objects in the vault, loose objects by content.
//!
//! A loose object is small and there can be many of them. By content, it becomes durable together with everything else
//! that a commit stores, and shares no inode with the workspace; in the vault each would need a copy and a sync of its own.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::AtFlags;
use stepback_model::tree::SkipReason;

use super::entry::{
    DEFER_ABOVE_BYTES, ExamineResult, Examiner, NO_HASH, OpenResult, open_regular, skipped_entry, to_stat,
};
use super::node::DirNode;
use crate::error::WorktreeError;
use crate::git;
use crate::statcache::{CachedEntry, CachedKind, DAMAGED, Stat};
use crate::vault::Kept;

impl Examiner<'_, '_> {
    /// Stores the git file `name`, whose name in the vault is `key`.
    pub(super) fn examine_object(
        &mut self,
        dir: &Arc<DirNode>,
        name: &[u8],
        stat_now: Stat,
        previous: Option<&CachedEntry<'_>>,
        key: &[u8],
    ) -> Result<ExamineResult, WorktreeError> {
        let skipped = |reason| Ok(ExamineResult::New(skipped_entry(name, stat_now, reason)));
        let mut flags = 0;
        if let Some(vault) = self.shared.scan.vault.filter(|_| !git::is_loose(key)) {
            match vault.keep(dir.fd.as_fd(), name, key, self.shared.scan.budget.git_copy) {
                Ok(Kept::Yes) => {
                    let stat = stat_after_link(dir, name, stat_now);
                    return Ok(ExamineResult::New(self.entry(name, CachedKind::Vaulted, stat, NO_HASH, 0)));
                }
                Ok(Kept::OverBudget) => return skipped(SkipReason::Budget),
                Ok(Kept::Unreadable) => return skipped(SkipReason::Unreadable),
                Ok(Kept::Damaged(_)) => flags = DAMAGED,
                Ok(Kept::NameTaken) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ExamineResult::Gone),
                Err(error) => return Err(WorktreeError::io("keep", &dir.path().join(name))(error)),
            }
        } else {
            match open_regular(dir, name) {
                OpenResult::File(file, _) => match stepback_store::check_git_file(key, file) {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => flags = DAMAGED,
                    Err(_) => return skipped(SkipReason::Unreadable),
                },
                OpenResult::Gone => return Ok(ExamineResult::Gone),
                OpenResult::Unreadable(_) => return skipped(SkipReason::Unreadable),
                OpenResult::Changed | OpenResult::Failed(_) => return skipped(SkipReason::Unstable),
            }
        }
        if stat_now.size > DEFER_ABOVE_BYTES {
            let old = previous
                .filter(|cached_entry| cached_entry.kind == CachedKind::Chunked)
                .map(|cached_entry| cached_entry.hash);
            let entry = self.entry(name, CachedKind::Chunked, stat_now, NO_HASH, flags);
            return Ok(ExamineResult::Large(entry, old));
        }
        self.store_file(dir, name, previous, flags)
    }
}

/// The `stat` of a kept file. A link, which only large files get, changes the status change time and nothing else.
fn stat_after_link(dir: &DirNode, name: &[u8], stat_before: Stat) -> Stat {
    let now = rustix::fs::statat(&dir.fd, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW);
    let now = now.map_or(stat_before, |stat| to_stat(&stat));
    if (Stat { ctime: stat_before.ctime, ..now }) == stat_before { now } else { stat_before }
}
