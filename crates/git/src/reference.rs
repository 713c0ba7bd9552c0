//! Reads references, and moves one under the lock that git itself would take.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};

use stepback_faults as faults;
use stepback_model::path::RelPath;
use stepback_worktree::anchored_path::AnchoredDir;
use stepback_worktree::anchored_write::{create_file, make_dirs, remove_file, rename_file, sync_dir};

use crate::error::GitError;
use crate::object::GitOid;
use crate::object_reader::ObjectReader;
use crate::repository::{GitRepository, read_limited, read_small};

/// The largest list of packed references that is read, in bytes.
const MAX_PACKED_BYTES: u64 = 256 << 20;
/// How many references are followed from one to another.
const MAX_SYMBOLIC: usize = 5;

/// Whether git accepts a name for a reference below `refs/`.
pub fn is_valid_name(name: &str) -> bool {
    let is_valid_part = |part: &str| {
        !part.is_empty() && !part.starts_with('.') && !part.ends_with('.') && !part.ends_with(".lock")
    };
    let is_forbidden = |letter: char| letter.is_ascii_control() || " ~^:?*[\\".contains(letter);
    name.len() <= 1000
        && name.starts_with("refs/")
        && name.split('/').count() > 2
        && name.split('/').all(is_valid_part)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.contains(is_forbidden)
}

impl GitRepository {
    /// The commit that is checked out; `None` before the first one.
    pub fn head_commit(&self) -> Result<Option<GitOid>, GitError> {
        self.read_reference("HEAD")
    }

    /// The object that a reference names, through other references; `None` if it does not exist.
    pub fn read_reference(&self, name: &str) -> Result<Option<GitOid>, GitError> {
        let mut name = name.to_owned();
        for _ in 0..MAX_SYMBOLIC {
            if name != "HEAD" && !is_valid_name(&name) {
                return Err(GitError::BadName(name));
            }
            // Only the name of a pseudo reference is not below `refs`, and each work tree has its own.
            let dir = if name == "HEAD" { &self.git_dir } else { &self.common_dir };
            let Some(bytes) = read_reference_file(&dir.join(&name))? else {
                return self.read_packed(&name);
            };
            let text = bytes.trim_ascii_end();
            match text.strip_prefix(b"ref:") {
                Some(target) => name = String::from_utf8_lossy(target.trim_ascii()).into_owned(),
                None => {
                    return GitOid::parse(text)
                        .map(Some)
                        .ok_or_else(|| GitError::damaged(&name, "it is not the id of an object"));
                }
            }
        }
        Err(GitError::damaged(name, "it leads through too many other references"))
    }

    fn read_packed(&self, name: &str) -> Result<Option<GitOid>, GitError> {
        let packed = self.packed_references()?;
        let line = packed
            .split(|byte| *byte == b'\n')
            .find_map(|line| line.strip_suffix(name.as_bytes())?.strip_suffix(b" "));
        let damaged = || GitError::damaged("packed-refs", format!("{name} has no id"));
        line.map(|oid| GitOid::parse(oid).ok_or_else(damaged)).transpose()
    }

    fn packed_references(&self) -> Result<Vec<u8>, GitError> {
        Ok(read_limited(&self.common_dir.join("packed-refs"), MAX_PACKED_BYTES)?.unwrap_or_default())
    }

    /// The names of all references that begin with `prefix`, which ends with a slash, in order.
    pub fn list_references(&self, prefix: &str) -> Result<Vec<String>, GitError> {
        let packed = self.packed_references()?;
        let packed = packed.split(|byte| *byte == b'\n').filter_map(|line| {
            let name = std::str::from_utf8(line.get(41..)?).ok()?;
            name.starts_with(prefix).then(|| name.to_owned())
        });
        let mut names: BTreeSet<String> = packed.filter(|name| is_valid_name(name)).collect();
        let mut rest = vec![prefix.trim_end_matches('/').to_owned()];
        while let Some(below) = rest.pop() {
            for entry in fs::read_dir(self.common_dir.join(&below)).into_iter().flatten().flatten() {
                let Ok(name) = entry.file_name().into_string() else { continue };
                let name = format!("{below}/{name}");
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => rest.push(name),
                    Ok(kind) if kind.is_file() && is_valid_name(&name) => {
                        names.insert(name);
                    }
                    _ => {}
                }
            }
        }
        Ok(names.into_iter().collect())
    }

    /// The commit that a user means: an id or its beginning, a reference, a branch or a tag, with `~N` or `^` behind it.
    /// `None` if there is none.
    pub fn resolve_commit(&self, reader: &ObjectReader, text: &str) -> Result<Option<GitOid>, GitError> {
        let (name, steps) = split_ancestor(text);
        let Some(steps) = steps else { return Ok(None) };
        let mut candidates = vec![name.to_owned()];
        candidates.extend(
            ["refs/", "refs/tags/", "refs/heads/", "refs/remotes/"].map(|prefix| format!("{prefix}{name}")),
        );
        let mut found = None;
        if name == "HEAD" || name == "@" {
            found = self.head_commit()?;
        } else {
            for candidate in candidates.iter().filter(|candidate| is_valid_name(candidate)) {
                found = self.read_reference(candidate)?;
                if found.is_some() {
                    break;
                }
            }
            if found.is_none() {
                found = reader.find_by_prefix(name);
            }
        }
        let Some(found) = found else { return Ok(None) };
        let mut commit = reader.peel_to_commit(found)?;
        for _ in 0..steps {
            match reader.commit(commit)?.parents.first() {
                Some(parent) => commit = *parent,
                None => return Ok(None),
            }
        }
        Ok(Some(commit))
    }

    /// Sets a reference to an object, as git does: under its lock file, which becomes the reference. Nothing is changed if
    /// it is no longer `expected`.
    pub fn move_reference(
        &self,
        anchor: &mut AnchoredDir,
        name: &str,
        expected: Option<GitOid>,
        target: GitOid,
    ) -> Result<(), GitError> {
        if !is_valid_name(name) {
            return Err(GitError::BadName(name.to_owned()));
        }
        self.check_conflicts(name)?;
        let bad_name = |_| GitError::BadName(name.to_owned());
        let path = RelPath::parse(name.as_bytes()).map_err(bad_name)?;
        let lock = RelPath::parse(format!("{name}.lock").as_bytes()).map_err(bad_name)?;
        let Some((parent, _)) = path.split_last() else { return Err(GitError::BadName(name.to_owned())) };
        make_dirs(anchor, &parent, 0o777).map_err(self.io(name))?;
        let mut file = create_file(anchor, &lock, 0o666).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                GitError::Locked { name: name.to_owned(), dir: self.common_dir.clone() }
            }
            _ => self.io(name)(error),
        })?;
        let moved = self.read_reference(name).and_then(|current| {
            if current != expected {
                return Err(GitError::Moved(name.to_owned()));
            }
            let mut write = || -> io::Result<()> {
                file.write_all(format!("{target}\n").as_bytes())?;
                faults::point()?;
                file.sync_all()?;
                rename_file(anchor, &lock, &path)
            };
            write().map_err(self.io(name))
        });
        match moved {
            Ok(()) => sync_dir(anchor, &parent).map_err(self.io(name)),
            Err(error) => {
                let _ = remove_file(anchor, &lock);
                Err(error)
            }
        }
    }

    /// A reference is a file, so it cannot be where another one has a directory, also where git has packed both.
    fn check_conflicts(&self, name: &str) -> Result<(), GitError> {
        let conflict =
            |other: &str| GitError::NameConflict { name: name.to_owned(), other: other.to_owned() };
        if let Some(other) = self.list_references(&format!("{name}/"))?.first() {
            return Err(conflict(other));
        }
        for (slash, _) in name.match_indices('/').skip(1) {
            if matches!(self.read_reference(&name[..slash]), Ok(Some(_))) {
                return Err(conflict(&name[..slash]));
            }
        }
        Ok(())
    }
}

/// Reads the file of a reference; `None` if there is none, or if it is a directory of references.
fn read_reference_file(path: &std::path::Path) -> Result<Option<Vec<u8>>, GitError> {
    match path.is_dir() {
        true => Ok(None),
        false => read_small(path),
    }
}

/// Splits `NAME~3` and `NAME^^` into the name and the number of commits to go back; `None` if that is not a number.
fn split_ancestor(text: &str) -> (&str, Option<usize>) {
    let end = text.find(['~', '^']).unwrap_or(text.len());
    let mut steps = 0usize;
    let mut rest = &text[end..];
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('^') {
            (steps, rest) = (steps.saturating_add(1), after);
        } else if let Some(after) = rest.strip_prefix('~') {
            let digits = after.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(after.len());
            let count = if digits == 0 { Some(1) } else { after[..digits].parse().ok() };
            let Some(count) = count else { return (&text[..end], None) };
            (steps, rest) = (steps.saturating_add(count), &after[digits..]);
        } else {
            return (&text[..end], None);
        }
    }
    (&text[..end], Some(steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_git_accepts_are_valid() {
        for name in ["refs/heads/main", "refs/stepback/sessions/4f2a", "refs/heads/a/b", "refs/heads/zurück"]
        {
            assert!(is_valid_name(name), "{name}");
        }
        for name in [
            "main",
            "refs/heads",
            "refs/heads/",
            "refs/heads/../x",
            "refs/heads/a..b",
            "refs/heads/a.lock",
            "refs/heads/.a",
            "refs/heads/a b",
            "refs/heads/a\n",
            "refs/heads/a@{1}",
            "refs/heads/a:b",
            "refs/heads/a\\b",
            "refs/heads/a*",
            "refs/heads/a~1",
            "/etc/passwd",
            "refs/heads//x",
            "refs/heads/x.",
        ] {
            assert!(!is_valid_name(name), "{name}");
        }
    }

    #[test]
    fn ancestors_are_counted() {
        assert_eq!(split_ancestor("main"), ("main", Some(0)));
        assert_eq!(split_ancestor("main~3"), ("main", Some(3)));
        assert_eq!(split_ancestor("main^^~2"), ("main", Some(4)));
        assert_eq!(split_ancestor("main~x"), ("main", None));
        assert_eq!(split_ancestor("main^{tree}"), ("main", None));
    }
}
