//! Writes a settings file safely: atomically, with its mode and owner kept, and in a workspace only below its root.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use stepback_model::path::RelPath;
use stepback_store::new_file::{Durability, NewFile};
use stepback_worktree::anchored_path::AnchoredDir;
use stepback_worktree::anchored_write;

use super::{InstallError, InstallPlan};

/// What [`apply_plan`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteResult {
    /// Nothing: the plan changes nothing.
    Unchanged,
    /// The file was created.
    Created,
    /// The file was changed.
    Changed,
    /// The file was removed.
    Removed,
}

/// Carries out `plan`, if the file still is the one that the plan was made for.
pub fn apply_plan(plan: &InstallPlan) -> Result<WriteResult, InstallError> {
    if plan.is_unchanged() {
        return Ok(WriteResult::Unchanged);
    }
    let (target, now) = resolve_and_read(&plan.file)?;
    if now != plan.before || target != plan.target {
        return Err(InstallError::Changed(plan.file.clone()));
    }
    let mut writer = SettingsWriter::open(plan.within.as_deref())?;
    match &plan.after {
        None => {
            ensure_writable(&target)?;
            writer.remove_file(&target)?;
            for dir in plan.dirs.iter().rev() {
                // Only an empty directory is removed; it is not an error if it has other files.
                if writer.remove_dir(dir).is_err() {
                    break;
                }
            }
            Ok(WriteResult::Removed)
        }
        Some(after) => {
            if now.is_some() {
                ensure_writable(&target)?;
            }
            let mut made = Vec::new();
            let written =
                create_dirs(&mut writer, &plan.dirs, &mut made).and_then(|()| writer.put(&target, after));
            if written.is_err() {
                for dir in made.into_iter().rev() {
                    let _ = writer.remove_dir(dir);
                }
            }
            written?;
            Ok(if now.is_some() { WriteResult::Changed } else { WriteResult::Created })
        }
    }
}

/// Creates the missing directories, and adds them to `made`.
fn create_dirs<'a>(
    writer: &mut SettingsWriter,
    dirs: &'a [PathBuf],
    made: &mut Vec<&'a Path>,
) -> Result<(), InstallError> {
    for dir in dirs {
        if writer.create_dir(dir)? {
            made.push(dir);
        }
    }
    Ok(())
}

/// Writes settings: those of a workspace beneath its root and never through a link, because a repository may contain links to
/// anywhere; those of the user wherever they are.
enum SettingsWriter {
    User,
    Workspace { root: PathBuf, beneath: AnchoredDir },
}

impl SettingsWriter {
    fn open(within: Option<&Path>) -> Result<Self, InstallError> {
        let Some(workspace) = within else { return Ok(Self::User) };
        let root = workspace.canonicalize().map_err(InstallError::io_error(workspace))?;
        let beneath = AnchoredDir::open(&root).map_err(InstallError::io_error(workspace))?;
        Ok(Self::Workspace { root, beneath })
    }

    /// Returns whether the directory was created.
    fn create_dir(&mut self, dir: &Path) -> Result<bool, InstallError> {
        let made = match self {
            Self::User => stepback_faults::point().and_then(|()| fs::create_dir(dir)),
            Self::Workspace { root, beneath } => {
                let path = inside(root, dir)?;
                match beneath.dir(&path) {
                    Ok(_) => return Ok(false),
                    Err(_) => anchored_write::make_dirs(beneath, &path, 0o777).map(drop),
                }
            }
        };
        match made {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(InstallError::Io { file: dir.to_owned(), source: error }),
        }
    }

    fn remove_dir(&mut self, dir: &Path) -> Result<(), InstallError> {
        let removed = match self {
            Self::User => fs::remove_dir(dir),
            Self::Workspace { root, beneath } => anchored_write::remove_dir(beneath, &inside(root, dir)?),
        };
        removed.map_err(InstallError::io_error(dir))
    }

    fn remove_file(&mut self, target: &Path) -> Result<(), InstallError> {
        stepback_faults::point().map_err(InstallError::io_error(target))?;
        let removed = match self {
            Self::User => fs::remove_file(target),
            Self::Workspace { root, beneath } => anchored_write::remove_file(beneath, &inside(root, target)?),
        };
        removed.map_err(InstallError::io_error(target))
    }

    fn put(&mut self, target: &Path, bytes: &[u8]) -> Result<(), InstallError> {
        let written = match self {
            Self::User => replace_file(target, bytes),
            Self::Workspace { root, beneath } => {
                anchored_write::replace_file(beneath, &inside(root, target)?, bytes, 0o666)
            }
        };
        written.map_err(InstallError::io_error(target))
    }
}

/// Returns the path of a file relative to the canonical path of its workspace, with links resolved. Fails if a link leads
/// out of the workspace. The file need not exist.
pub(super) fn inside(root: &Path, file: &Path) -> Result<RelPath, InstallError> {
    let out = || InstallError::Outside(file.to_owned());
    let existing = file.ancestors().find(|path| fs::symlink_metadata(path).is_ok()).ok_or_else(out)?;
    let rest = file.strip_prefix(existing).map_err(|_| out())?;
    // Joining an empty path would leave a slash at the end.
    let real = match existing.canonicalize().map_err(|_| out())? {
        real if rest.as_os_str().is_empty() => real,
        real => real.join(rest),
    };
    let inside = real.strip_prefix(root).map_err(|_| out())?;
    RelPath::parse(inside.as_os_str().as_bytes()).map_err(|_| out())
}

/// Returns the plan that undoes one that was carried out, restoring the exact previous bytes. `None` if the file was changed
/// since; then only a new plan can say what to do.
pub fn plan_undo(plan: &InstallPlan) -> Result<Option<InstallPlan>, InstallError> {
    let (target, now) = resolve_and_read(&plan.file)?;
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

/// Returns the real path of a file, and its content. Users keep their settings elsewhere and link to them, so links are
/// followed; [`inside`] limits them in a workspace.
pub(super) fn resolve_and_read(file: &Path) -> Result<(PathBuf, Option<Vec<u8>>), InstallError> {
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
    let bytes = fs::read(&target).map_err(InstallError::io_error(&target))?;
    Ok((target, Some(bytes)))
}

/// Fails if the owner made the file read-only: a rename could still replace it, but must not.
fn ensure_writable(target: &Path) -> Result<(), InstallError> {
    let metadata = fs::metadata(target).map_err(InstallError::io_error(target))?;
    if metadata.permissions().readonly() {
        return Err(InstallError::ReadOnly(target.to_owned()));
    }
    Ok(())
}

/// Replaces a file atomically: a reader sees the old or the new one, also after a crash. It keeps its mode and its owner.
fn replace_file(target: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = NewFile::create(target, 0o666, Durability::Synced)?;
    new.file().write_all(bytes)?;
    if let Ok(metadata) = fs::metadata(target) {
        new.file().set_permissions(metadata.permissions())?;
        // Matters only to root, who may be editing the settings of another user.
        let _ = fchown(new.file(), Some(metadata.uid()), Some(metadata.gid()));
    }
    new.replace()
}
