//! Writes one file or link: beside its target, then exchanged with it, then read back.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use stepback_faults as faults;
use stepback_model::path::RelPath;
use stepback_model::plan::PlannedChange;
use stepback_model::tree::{Content, MODE_MASK, TreeNode};

use super::{
    Applier, ChangeOutcome, changed_meanwhile, existing_parent, is_identical, missing_parent, rename,
    set_mode,
};
use crate::anchored_path::{AnchoredDir, Identity, Present, same_content};
use crate::error::WorktreeError;
use crate::git;
use crate::restore::write_content;

/// Whether a file has only one hard link; with more, a chmod would change the other names too.
fn has_one_name(dir: &impl AsFd, name: &OsStr) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| stat.st_nlink == 1)
}

impl Applier<'_> {
    /// Makes `change.path` the planned file or link.
    pub(super) fn write(
        &self,
        anchor: &mut AnchoredDir,
        change: &PlannedChange,
        index: usize,
    ) -> Result<ChangeOutcome, WorktreeError> {
        let path = &change.path;
        let Some(then) = &change.then else { return Ok(ChangeOutcome::Done) };
        let Some((dir, name)) = existing_parent(anchor.parent(path), path)? else {
            return Ok(missing_parent());
        };
        // Normally the saved content is there; after a crash perhaps the planned content already, or a part of it.
        let torn = self.torn_at(&dir, name, path);
        let replaced = match &change.now {
            _ if torn.is_some() => torn,
            Some(now) if !now.is_dir() => match self.compare_present(&dir, name, now, path)? {
                Present::Matches(identity) => Some(identity),
                Present::OtherMode(_) | Present::Differs => {
                    return self.settle_mismatch(&dir, name, then, path, changed_meanwhile());
                }
                Present::Nothing => {
                    return Ok(ChangeOutcome::LeftAlone("another process deleted it meanwhile".into()));
                }
            },
            _ => None,
        };
        if replaced.is_some()
            && torn.is_none()
            && let (Some(TreeNode::File { content: old, .. }), TreeNode::File { content: new, mode, .. }) =
                (&change.now, then)
            && old == new
            && change.now != change.then
            && has_one_name(&dir, name)
        {
            set_mode(&dir, name, *mode).map_err(WorktreeError::io("set the mode of", path))?;
            return Ok(ChangeOutcome::Done);
        }
        if !self.durable
            && replaced.is_some()
            && let (Some(TreeNode::File { .. }), TreeNode::File { mode, content, .. }) = (&change.now, then)
            && *content != Content::Vaulted
            && has_one_name(&dir, name)
        {
            self.with_access(path, || self.write_over(&dir, name, content, *mode))
                .map_err(WorktreeError::io("write", path))?;
            return self.verify(&dir, name, then, path);
        }
        let temporary = self.temporary_name(index);
        let opened_file =
            match self.with_access(path, || self.create_temporary(&dir, &temporary, name, then, path)) {
                Ok(opened_file) => opened_file,
                Err(error) => {
                    let _ = rustix::fs::unlinkat(&dir, &temporary, AtFlags::empty());
                    return Err(WorktreeError::io("write", path)(error));
                }
            };
        let Some(identity) = replaced else {
            return match faults::point().and_then(|()| rename(&dir, &temporary, name, RenameFlags::NOREPLACE))
            {
                Ok(()) => self.verify_made(&dir, name, then, path, opened_file),
                Err(error) => {
                    let _ = rustix::fs::unlinkat(&dir, &temporary, AtFlags::empty());
                    if error.kind() == io::ErrorKind::AlreadyExists {
                        let outcome = ChangeOutcome::LeftAlone("another process created it meanwhile".into());
                        return self.settle_mismatch(&dir, name, then, path, outcome);
                    }
                    Err(WorktreeError::io("write", path)(error))
                }
            };
        };
        match faults::point().and_then(|()| rename(&dir, &temporary, name, RenameFlags::EXCHANGE)) {
            Ok(()) if is_identical(&dir, &temporary, identity) => {
                self.discard(&dir, &temporary, index, change.now.as_ref())
                    .map_err(WorktreeError::io("replace", path))?;
            }
            Ok(()) => {
                // Another process wrote to it after the check: its version goes back, ours is removed.
                rename(&dir, &temporary, name, RenameFlags::EXCHANGE)
                    .map_err(WorktreeError::io("put back", path))?;
                let _ = rustix::fs::unlinkat(&dir, &temporary, AtFlags::empty());
                return Ok(changed_meanwhile());
            }
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::INVAL | Errno::NOSYS)) => {
                // This file system has no exchange: only the check above, made a moment ago, guards against a race.
                rustix::fs::renameat(&dir, &temporary, &dir, name)
                    .map_err(|errno| WorktreeError::io("replace", path)(errno.into()))?;
            }
            Err(error) => {
                let _ = rustix::fs::unlinkat(&dir, &temporary, AtFlags::empty());
                if error.kind() == io::ErrorKind::NotFound {
                    return Ok(ChangeOutcome::LeftAlone("another process deleted it meanwhile".into()));
                }
                return Err(WorktreeError::io("replace", path)(error));
            }
        }
        self.verify_made(&dir, name, then, path, opened_file)
    }

    /// Overwrites a file that is not needed after a crash in place: ext4 creates new files slowly for minutes after old
    /// ones were removed.
    fn write_over(&self, dir: &impl AsFd, name: &OsStr, content: &Content, mode: u32) -> io::Result<()> {
        let open = || {
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(dir, name, flags, Mode::empty())
        };
        let opened = match open() {
            Err(Errno::ACCESS) => {
                set_mode(dir, name, mode | 0o200)?;
                open()
            }
            opened => opened,
        };
        let mut file = File::from(opened?);
        write_content(&mut file, content, self.source)?;
        let size = file.stream_position()?;
        file.set_len(size)?;
        Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?)
    }

    /// Decides about a path that is not what the plan saved: done if it already is what the plan wants, else left alone.
    fn settle_mismatch(
        &self,
        dir: &impl AsFd,
        name: &OsStr,
        then: &TreeNode,
        path: &RelPath,
        otherwise: ChangeOutcome,
    ) -> Result<ChangeOutcome, WorktreeError> {
        match (self.compare_present(dir, name, then, path)?, then) {
            (Present::Matches(_), _) => Ok(ChangeOutcome::Done),
            (Present::OtherMode(_), TreeNode::File { mode, .. }) => {
                set_mode(dir, name, *mode).map_err(WorktreeError::io("set the mode of", path))?;
                Ok(ChangeOutcome::Done)
            }
            _ => Ok(otherwise),
        }
    }

    /// Reads back what was written.
    fn verify(
        &self,
        dir: &impl AsFd,
        name: &OsStr,
        then: &TreeNode,
        path: &RelPath,
    ) -> Result<ChangeOutcome, WorktreeError> {
        match self.compare_present(dir, name, then, path)? {
            Present::Matches(_) => Ok(ChangeOutcome::Done),
            _ => {
                let error = io::Error::other("what was read back is not what was written");
                Err(WorktreeError::io("verify", path)(error))
            }
        }
    }

    /// The same, if the file that was written is still open: it is read back if the name leads to it.
    fn verify_made(
        &self,
        dir: &impl AsFd,
        name: &OsStr,
        then: &TreeNode,
        path: &RelPath,
        written_file: Option<File>,
    ) -> Result<ChangeOutcome, WorktreeError> {
        if let (Some(file), TreeNode::File { mode, size, content }) = (written_file, then)
            && let (Ok(named_stat), Ok(opened_stat)) =
                (rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW), rustix::fs::fstat(&file))
            && Identity::of(&named_stat) == Identity::of(&opened_stat)
            && (named_stat.st_mode & MODE_MASK, named_stat.st_size as u64) == (*mode, *size)
            && same_content(&file, *size, content, self.source).is_ok_and(|is_same| is_same)
        {
            return Ok(ChangeOutcome::Done);
        }
        self.verify(dir, name, then, path)
    }

    /// Creates the planned file or link under a temporary name; returns the file if it is open.
    fn create_temporary(
        &self,
        dir: &impl AsFd,
        temporary: &OsStr,
        name: &OsStr,
        then: &TreeNode,
        path: &RelPath,
    ) -> io::Result<Option<File>> {
        faults::point()?;
        match then {
            TreeNode::Symlink { target } => {
                let _ = rustix::fs::unlinkat(dir, temporary, AtFlags::empty());
                rustix::fs::symlinkat(OsStr::from_bytes(target), dir, temporary)?;
                Ok(None)
            }
            TreeNode::File { content: Content::Vaulted, size, mode } => {
                let parent = path.split_last().map(|(parent, _)| parent).unwrap_or_default();
                let parent_name = parent.components().next_back().unwrap_or_default();
                let key = git::vault_name(parent_name, name.as_bytes());
                let (Some(key), Some(vault)) = (key, self.vault) else {
                    return Err(io::Error::new(io::ErrorKind::NotFound, "its content is not in the vault"));
                };
                let _ = rustix::fs::unlinkat(dir, temporary, AtFlags::empty());
                vault.bring_back(&key, dir.as_fd(), temporary, *mode)?;
                // Before it takes its place: removing a damaged file afterwards would look like removing another process's
                // edit.
                let written_size = rustix::fs::statat(dir, temporary, AtFlags::SYMLINK_NOFOLLOW)?.st_size;
                if written_size as u64 != *size {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "its copy in the store is damaged",
                    ));
                }
                Ok(None)
            }
            TreeNode::File { mode, content, .. } => {
                let flags =
                    OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = rustix::fs::openat(dir, temporary, flags, Mode::from_raw_mode(0o600))?;
                let mut file = File::from(fd);
                write_content(&mut file, content, self.source)?;
                rustix::fs::fchmod(&file, Mode::from_raw_mode(*mode))?;
                Ok(Some(file))
            }
            TreeNode::Dir { .. } | TreeNode::Skipped { .. } => Ok(None),
        }
    }
}
