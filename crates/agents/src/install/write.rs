//! Writes a settings file safely: atomically, through links, with its mode and owner kept.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use stepback_store::new_file::{Durability, NewFile};

use super::{InstallError, InstallPlan};

/// What [`carry_out`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteResult {
    /// Nothing: the plan changes nothing.
    Nothing,
    /// The file was created.
    Made,
    /// The file was changed.
    Changed,
    /// The file was removed.
    Removed,
}

/// Carries out `plan`, if the file still is the one that the plan was made for.
pub fn carry_out(plan: &InstallPlan) -> Result<WriteResult, InstallError> {
    if plan.is_nothing() {
        return Ok(WriteResult::Nothing);
    }
    let (target, now) = resolve(&plan.file)?;
    if now != plan.before || target != plan.target {
        return Err(InstallError::Changed(plan.file.clone()));
    }
    match &plan.after {
        None => {
            writable(&target)?;
            stepback_faults::point()
                .and_then(|()| fs::remove_file(&target))
                .map_err(InstallError::io(&target))?;
            for dir in plan.dirs.iter().rev() {
                // Only an empty directory is removed; it is not an error if it has other files.
                if fs::remove_dir(dir).is_err() {
                    break;
                }
            }
            Ok(WriteResult::Removed)
        }
        Some(after) => {
            if now.is_some() {
                writable(&target)?;
            }
            let mut made = Vec::new();
            let written = make_dirs(&plan.dirs, &mut made)
                .and_then(|()| put(&target, after).map_err(InstallError::io(&target)));
            if written.is_err() {
                for dir in made.into_iter().rev() {
                    let _ = fs::remove_dir(dir);
                }
            }
            written?;
            Ok(if now.is_some() { WriteResult::Changed } else { WriteResult::Made })
        }
    }
}

/// Creates the missing directories, and adds them to `made`.
fn make_dirs<'a>(dirs: &'a [PathBuf], made: &mut Vec<&'a Path>) -> Result<(), InstallError> {
    for dir in dirs {
        match stepback_faults::point().and_then(|()| fs::create_dir(dir)) {
            Ok(()) => made.push(dir),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(InstallError::Io { file: dir.clone(), source: error }),
        }
    }
    Ok(())
}

/// Returns the plan that undoes one that was carried out, restoring the exact previous bytes. `None` if the file was changed
/// since; then only a new plan can say what to do.
pub fn take_back(plan: &InstallPlan) -> Result<Option<InstallPlan>, InstallError> {
    let (target, now) = resolve(&plan.file)?;
    if now != plan.after || target != plan.target {
        return Ok(None);
    }
    let back = InstallPlan {
        before: plan.after.clone(),
        after: plan.before.clone(),
        changes: vec![format!("restores {}", plan.file.display())],
        follow_up: Vec::new(),
        ..plan.clone()
    };
    Ok(Some(back))
}

/// Returns the real path of a file, and its content. Users keep their settings elsewhere and link to them, so links are followed.
pub(super) fn resolve(file: &Path) -> Result<(PathBuf, Option<Vec<u8>>), InstallError> {
    match fs::symlink_metadata(file) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((file.to_owned(), None)),
        // A file is where a directory should be: the settings do not exist, and creating them will report the error.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok((file.to_owned(), None)),
        Err(error) => return Err(InstallError::Io { file: file.to_owned(), source: error }),
    }
    let Ok(target) = fs::canonicalize(file) else { return Err(InstallError::NotAFile(file.to_owned())) };
    if !target.is_file() {
        return Err(InstallError::NotAFile(file.to_owned()));
    }
    let bytes = fs::read(&target).map_err(InstallError::io(&target))?;
    Ok((target, Some(bytes)))
}

/// Fails if the owner made the file read-only: a rename could still replace it, but must not.
fn writable(target: &Path) -> Result<(), InstallError> {
    let metadata = fs::metadata(target).map_err(InstallError::io(target))?;
    if metadata.permissions().readonly() {
        return Err(InstallError::ReadOnly(target.to_owned()));
    }
    Ok(())
}

/// Replaces a file atomically: a reader sees the old or the new one, also after a crash. It keeps its mode and its owner.
fn put(target: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = NewFile::create(target, 0o666, Durability::Synced)?;
    new.file().write_all(bytes)?;
    if let Ok(metadata) = fs::metadata(target) {
        new.file().set_permissions(metadata.permissions())?;
        // Matters only to root, who may be editing the settings of another user.
        let _ = fchown(new.file(), Some(metadata.uid()), Some(metadata.gid()));
    }
    new.replace()
}
