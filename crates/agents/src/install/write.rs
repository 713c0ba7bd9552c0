//! Writing a settings file the way its owner would want it: all or nothing, through links, with its mode and owner kept.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::{InstallError, Plan};

/// What [`carry_out`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    /// Nothing: there was nothing to do.
    Nothing,
    /// The file was made.
    Made,
    /// The file was changed.
    Changed,
    /// The file was removed.
    Removed,
}

/// Does what `plan` says, if the file still is what the plan was made for.
pub fn carry_out(plan: &Plan) -> Result<Done, InstallError> {
    if plan.is_nothing() {
        return Ok(Done::Nothing);
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
                // Only an empty folder goes; that others have put something there is no failure.
                if fs::remove_dir(dir).is_err() {
                    break;
                }
            }
            Ok(Done::Removed)
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
            Ok(if now.is_some() { Done::Changed } else { Done::Made })
        }
    }
}

/// Makes the folders that are missing, and says which.
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

/// The way back from a plan that was carried out, if the file still is as it was left: to the very bytes of before.
/// `None` if someone has changed the file since; then only a new plan can say what to do.
pub fn take_back(plan: &Plan) -> Result<Option<Plan>, InstallError> {
    let (target, now) = resolve(&plan.file)?;
    if now != plan.after || target != plan.target {
        return Ok(None);
    }
    let back = Plan {
        before: plan.after.clone(),
        after: plan.before.clone(),
        changes: vec![format!("puts {} back as it was", plan.file.display())],
        follow_up: Vec::new(),
        ..plan.clone()
    };
    Ok(Some(back))
}

/// Where a file really is, and what is in it. People keep their settings elsewhere and link to them, so a link is followed.
pub(super) fn resolve(file: &Path) -> Result<(PathBuf, Option<Vec<u8>>), InstallError> {
    match fs::symlink_metadata(file) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((file.to_owned(), None)),
        // A file stands where a folder should be: the settings are not there, and making them will say why not.
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

/// A file that its owner has made read-only is not replaced, though a rename could.
fn writable(target: &Path) -> Result<(), InstallError> {
    let metadata = fs::metadata(target).map_err(InstallError::io(target))?;
    if metadata.permissions().readonly() {
        return Err(InstallError::ReadOnly(target.to_owned()));
    }
    Ok(())
}

/// Puts a whole file in the place of the old one: whoever reads sees the one or the other, after a crash too.
fn put(target: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(format!(".stepback-{}", std::process::id()));
    let temporary = target.with_file_name(name);
    let written = write_new(&temporary, target, bytes).and_then(|()| {
        stepback_faults::point()?;
        fs::rename(&temporary, target)
    });
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
        return written;
    }
    if let Some(dir) = target.parent().and_then(|dir| fs::File::open(dir).ok()) {
        // Some file systems cannot sync a folder. The file itself is safe either way.
        let _ = dir.sync_all();
    }
    Ok(())
}

fn write_new(temporary: &Path, like: &Path, bytes: &[u8]) -> io::Result<()> {
    stepback_faults::point()?;
    // One that a process of the same number left behind when it was killed.
    let _ = fs::remove_file(temporary);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(temporary)?;
    file.write_all(bytes)?;
    if let Ok(metadata) = fs::metadata(like) {
        file.set_permissions(metadata.permissions())?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            // Matters only to root, who may be editing someone else's settings.
            let _ = std::os::unix::fs::fchown(&file, Some(metadata.uid()), Some(metadata.gid()));
        }
    }
    file.sync_all()
}
