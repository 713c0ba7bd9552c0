//! Resolves the paths that the model writes: relative to the workspace, and never outside of it.
//!
//! This keeps a model from leaving the workspace by mistake. It is not a sandbox: a shell command can reach everything the
//! user can.

use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use stepback_model::path::RelPath;
use stepback_worktree::anchored_path::{self, AnchoredDir};
use stepback_worktree::anchored_write;

/// Returns the path without `.` and `..`, relative to the workspace; fails if its text leads outside.
pub fn relative(root: &Path, path: &str) -> Result<PathBuf, String> {
    let out = || format!("{path} is outside the workspace");
    if path.contains('\0') {
        return Err("a path cannot contain a zero byte".into());
    }
    let given = Path::new(path);
    let given = match given.is_absolute() {
        true => given.strip_prefix(root).map_err(|_| out())?,
        false => given,
    };
    let mut inside = PathBuf::new();
    for part in given.components() {
        match part {
            Component::Normal(name) => inside.push(name),
            Component::CurDir => {}
            Component::ParentDir if inside.pop() => {}
            _ => return Err(out()),
        }
    }
    Ok(inside)
}

/// Returns the real path, with all links followed; fails if it is outside the workspace. For a path that does not exist yet,
/// its nearest existing directory decides.
pub fn resolve_path(root: &Path, path: &str) -> Result<PathBuf, String> {
    let inside = relative(root, path)?;
    let whole = root.join(&inside);
    // The root of a workspace is a canonical path. If it is none, the directory was replaced by a link.
    anchored_path::open_root(root).map_err(|error| format!("cannot open the workspace: {error}"))?;
    let mut missing = PathBuf::new();
    for there in whole.ancestors() {
        match there.canonicalize() {
            Ok(real) if !real.starts_with(root) => {
                return Err(format!("{path} is outside the workspace, through a link"));
            }
            Ok(real) if missing.as_os_str().is_empty() => return Ok(real),
            Ok(real) => return Ok(real.join(missing)),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(format!("{path}: {error}")),
            // It may be a dangling link, and writing through it would create a file at its target.
            Err(_) if there.symlink_metadata().is_ok() => {
                return Err(format!("{path} goes through a dangling link"));
            }
            Err(_) => {
                let name = there.file_name().map(Path::new).unwrap_or(Path::new(""));
                missing =
                    if missing.as_os_str().is_empty() { name.to_path_buf() } else { name.join(&missing) };
            }
        }
    }
    Err(format!("{path} cannot be reached"))
}

/// Writes a file at a path that [`resolve_path`] returned, and creates the directories above it. A link that took the place
/// of a directory since is not followed.
pub fn write_file(root: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let inside = path.strip_prefix(root).map_err(|_| io::Error::other("it is outside the workspace"))?;
    let inside = RelPath::parse(inside.as_os_str().as_bytes()).map_err(io::Error::other)?;
    anchored_write::write_file(&mut AnchoredDir::open(root)?, &inside, bytes, 0o666)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_path_leads_out() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let root = top.join("work");
        fs::create_dir_all(root.join("src")).unwrap();
        fs::write(top.join("secret"), "s").unwrap();
        symlink(&top, root.join("up")).unwrap();
        symlink("../secret", root.join("file")).unwrap();
        symlink("../not-there", root.join("dangling")).unwrap();
        symlink("src", root.join("within")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        for hostile in [
            "../secret",
            "src/../../secret",
            "/etc/passwd",
            "up/secret",
            "up/new",
            "file",
            "dangling",
            "dangling/deep",
            "loop",
            "a\0b",
        ] {
            assert!(resolve_path(&root, hostile).is_err(), "{hostile}");
        }
        assert_eq!(resolve_path(&root, "new/deep/file"), Ok(root.join("new/deep/file")));
        assert_eq!(resolve_path(&root, "./src/../src/a"), Ok(root.join("src/a")));
        assert_eq!(resolve_path(&root, "within/a"), Ok(root.join("src/a")), "a link inside is followed");
        assert_eq!(resolve_path(&root, root.join("src").to_str().unwrap()), Ok(root.join("src")));
        assert_eq!(resolve_path(&root, "."), Ok(root.clone()));
    }

    #[test]
    fn a_directory_that_becomes_a_link_after_the_check_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let root = top.join("work");
        fs::create_dir_all(root.join("src")).unwrap();
        let path = resolve_path(&root, "src/a").unwrap();
        write_file(&root, &path, b"one").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        fs::rename(root.join("src"), top.join("outside")).unwrap();
        symlink(top.join("outside"), root.join("src")).unwrap();
        assert!(write_file(&root, &path, b"two").is_err());
        assert!(write_file(&root, &root.join("src/new"), b"two").is_err());
        assert_eq!(fs::read(top.join("outside/a")).unwrap(), b"one");
        assert!(!top.join("outside/new").exists());
        fs::rename(&root, top.join("moved")).unwrap();
        symlink(top.join("outside"), &root).unwrap();
        assert!(resolve_path(&root, "a").unwrap_err().contains("symbolic link"));
    }
}
