//! Keeps seals in a git repository, below `refs/stepback/seals/`: each is a commit with one file, after the one before.
//!
//! Git itself is not run, because the configuration of a repository can make it run other programs. Three objects and one
//! reference are written, in the way git does; the index, the work tree and every other reference stay as they are. A
//! repository that keeps references or objects in another way than files with SHA-1 names is refused.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use sha1::{Digest as _, Sha1};
use stepback_model::hex;
use stepback_model::path::RelPath;
use stepback_model::time::Timestamp;
use stepback_worktree::anchored_path::AnchoredDir;
use stepback_worktree::anchored_write::{create_link, make_dirs, remove_file, replace_file};

/// The references that this module writes.
pub const PREFIX: &str = "refs/stepback/seals/";
/// The name of the file in the commits.
const FILE: &str = "seal.json";
/// A seal is not larger than this, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// A problem with the repository, as a sentence, or an error of the system.
#[derive(Debug, thiserror::Error)]
pub enum GitRefError {
    /// The repository or the reference cannot be used.
    #[error("{0}")]
    Unusable(String),
    /// A file cannot be read or written.
    #[error("cannot access {}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

/// The id of an object.
type Oid = [u8; 20];

/// Returns the full name of a reference that the user wrote as `NAME`, `git:NAME` or in full; `None` if it is another one,
/// or not a valid name.
pub fn full_name(text: &str) -> Option<String> {
    let name = text.strip_prefix("git:").unwrap_or(text);
    let name = name.strip_prefix(PREFIX).unwrap_or(name);
    let is_valid = |part: &str| {
        let letters = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        letters
            && !part.is_empty()
            && !part.starts_with('.')
            && !part.contains("..")
            && !part.ends_with(".lock")
            && !part.ends_with('.')
    };
    (name != "refs" && !name.starts_with("refs/") && name.split('/').all(is_valid))
        .then(|| format!("{PREFIX}{name}"))
}

/// Commits a seal to the reference `name` of the repository of `root`, and returns the id of the commit.
pub fn write_seal(root: &Path, name: &str, text: &str, at: Timestamp) -> Result<String, GitRefError> {
    let repository = GitRepository::find(root)?;
    let mut anchor = AnchoredDir::open(&repository.dir).map_err(repository.io(""))?;
    let lock = RelPath::parse(format!("{name}.lock").as_bytes()).map_err(|_| bad_name(name))?;
    let target = RelPath::parse(name.as_bytes()).map_err(|_| bad_name(name))?;
    let Some((parent, _)) = target.split_last() else { return Err(bad_name(name)) };
    make_dirs(&mut anchor, &parent, 0o777).map_err(repository.io(name))?;
    create_link(&mut anchor, &lock, "stepback").map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => GitRefError::Unusable(format!(
            "{name} is locked by another process; remove {name}.lock in {} if none is running",
            repository.dir.display()
        )),
        _ => repository.io(name)(error),
    })?;
    let result = repository.commit_seal(&mut anchor, name, &target, text, at);
    let unlocked = remove_file(&mut anchor, &lock).map_err(repository.io(name));
    let commit = result?;
    unlocked?;
    Ok(hex::encode(&commit))
}

/// Returns the full names of the references with seals in the repository of `root`, in order; none if there is no repository.
pub fn list_seals(root: &Path) -> Vec<String> {
    let Ok(repository) = GitRepository::find(root) else { return Vec::new() };
    let packed = fs::read_to_string(repository.dir.join("packed-refs")).unwrap_or_default();
    let packed = packed.lines().filter_map(|line| line.split_once(' ').map(|(_, name)| name.to_owned()));
    let mut names: Vec<String> =
        packed.filter(|name| full_name(name).is_some_and(|full| full == *name)).collect();
    let mut rest = vec![PREFIX.trim_end_matches('/').to_owned()];
    while let Some(below) = rest.pop() {
        for entry in fs::read_dir(repository.dir.join(&below)).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let name = format!("{below}/{name}");
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => rest.push(name),
                Ok(kind) if kind.is_file() && full_name(&name).is_some() => names.push(name),
                _ => {}
            }
        }
    }
    names.sort();
    names.dedup();
    names
}

/// Reads the newest seal of the reference `name`.
pub fn read_seal(root: &Path, name: &str) -> Result<Vec<u8>, GitRefError> {
    let repository = GitRepository::find(root)?;
    let absent = || GitRefError::Unusable(format!("the repository has no {name}"));
    let commit = repository.reference(name)?.ok_or_else(absent)?;
    let damaged = || GitRefError::Unusable(format!("{name} does not point to a commit with a seal"));
    let body = repository.read_object(commit, b"commit", name)?;
    let tree = body.strip_prefix(b"tree ").and_then(|rest| rest.get(..40)).ok_or_else(damaged)?;
    let tree = hex::decode_array(tree).ok_or_else(damaged)?;
    let listing = repository.read_object(tree, b"tree", name)?;
    let entry = format!("100644 {FILE}\0");
    let blob = listing.strip_prefix(entry.as_bytes()).and_then(|rest| rest.get(..20));
    let blob = blob.and_then(|bytes| bytes.try_into().ok()).ok_or_else(damaged)?;
    repository.read_object(blob, b"blob", name)
}

/// The directory with the objects and references of a repository.
struct GitRepository {
    dir: PathBuf,
}

impl GitRepository {
    fn find(root: &Path) -> Result<Self, GitRefError> {
        let unusable = |what: &str| GitRefError::Unusable(format!("{}: {what}", root.display()));
        let dot = root.join(".git");
        let dir = match fs::symlink_metadata(&dot) {
            Ok(metadata) if metadata.is_dir() => dot,
            // A linked work tree, or a submodule.
            Ok(metadata) if metadata.is_file() => {
                let text = fs::read(&dot).map_err(|error| GitRefError::Io { path: dot.clone(), error })?;
                let target =
                    text.strip_prefix(b"gitdir: ").ok_or_else(|| unusable(".git is no git directory"))?;
                let linked_dir = root.join(OsStr::from_bytes(target.trim_ascii_end()));
                match fs::read(linked_dir.join("commondir")) {
                    Ok(common) => linked_dir.join(OsStr::from_bytes(common.trim_ascii_end())),
                    Err(_) => linked_dir,
                }
            }
            _ => return Err(unusable("there is no git repository")),
        };
        let dir = dir.canonicalize().map_err(|error| GitRefError::Io { path: dir.clone(), error })?;
        if !dir.join("objects").is_dir() || !dir.join("refs").is_dir() {
            return Err(unusable("there is no git repository"));
        }
        let config = fs::read_to_string(dir.join("config")).unwrap_or_default().to_ascii_lowercase();
        for (setting, value) in [("objectformat", "sha256"), ("refstorage", "reftable")] {
            let is_set = |line: &str| line.trim_start().starts_with(setting) && line.contains(value);
            if config.lines().any(is_set) {
                return Err(unusable(&format!("a repository with {setting} {value} is not supported")));
            }
        }
        Ok(Self { dir })
    }

    fn commit_seal(
        &self,
        anchor: &mut AnchoredDir,
        name: &str,
        target: &RelPath,
        text: &str,
        at: Timestamp,
    ) -> Result<Oid, GitRefError> {
        let parent = self.reference(name)?;
        let blob = self.write_object(anchor, "blob", text.as_bytes())?;
        let tree =
            self.write_object(anchor, "tree", &[format!("100644 {FILE}\0").as_bytes(), &blob].concat())?;
        let parent = parent.map_or(String::new(), |parent| format!("parent {}\n", hex::encode(&parent)));
        let identity =
            format!("stepback <stepback@localhost> {} +0000", at.as_micros().div_euclid(1_000_000));
        let body = format!(
            "tree {}\n{parent}author {identity}\ncommitter {identity}\n\nSeal of the record\n",
            hex::encode(&tree)
        );
        let commit = self.write_object(anchor, "commit", body.as_bytes())?;
        let line = format!("{}\n", hex::encode(&commit));
        replace_file(anchor, target, line.as_bytes(), 0o666).map_err(self.io(name))?;
        Ok(commit)
    }

    /// Writes an object, unless it is there.
    fn write_object(&self, anchor: &mut AnchoredDir, kind: &str, body: &[u8]) -> Result<Oid, GitRefError> {
        let mut content = format!("{kind} {}\0", body.len()).into_bytes();
        content.extend_from_slice(body);
        let oid: Oid = Sha1::digest(&content).into();
        let (dir, file) = object_path(oid);
        if self.dir.join(&dir).join(&file).exists() {
            return Ok(oid);
        }
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        let compressed =
            encoder.write_all(&content).and_then(|()| encoder.finish()).map_err(self.io(&dir))?;
        let parent = RelPath::parse(dir.as_bytes()).map_err(|_| bad_name(&dir))?;
        make_dirs(anchor, &parent, 0o777).map_err(self.io(&dir))?;
        replace_file(anchor, &parent.join(file.as_bytes()), &compressed, 0o444).map_err(self.io(&dir))?;
        Ok(oid)
    }

    /// The target of a reference; `None` if it does not exist.
    fn reference(&self, name: &str) -> Result<Option<Oid>, GitRefError> {
        let read = |path: &str| match fs::read_to_string(self.dir.join(path)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.io(path)(error)),
        };
        let unreadable = || GitRefError::Unusable(format!("{name} cannot be read"));
        if let Some(text) = read(name)? {
            return hex::decode_array(text.trim_ascii_end().as_bytes()).map(Some).ok_or_else(unreadable);
        }
        let packed = read("packed-refs")?.unwrap_or_default();
        let line = packed.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix(' '));
        line.map(|oid| hex::decode_array(oid.as_bytes()).ok_or_else(unreadable)).transpose()
    }

    /// Reads an object that is a file of its own, and verifies its name.
    fn read_object(&self, oid: Oid, kind: &[u8], name: &str) -> Result<Vec<u8>, GitRefError> {
        let (dir, file) = object_path(oid);
        let path = self.dir.join(dir).join(file);
        let packed = || {
            GitRefError::Unusable(format!(
                "{name} is in a pack; run: git show {name}:{FILE} | stepback seal --verify -"
            ))
        };
        let file = File::open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => packed(),
            _ => GitRefError::Io { path: path.clone(), error },
        })?;
        let mut content = Vec::new();
        let read = ZlibDecoder::new(file).take(MAX_BYTES).read_to_end(&mut content);
        read.map_err(|error| GitRefError::Io { path: path.clone(), error })?;
        let damaged = || GitRefError::Unusable(format!("{} is damaged", path.display()));
        if Oid::from(Sha1::digest(&content)) != oid || !content.starts_with(kind) {
            return Err(damaged());
        }
        let end = content.iter().position(|byte| *byte == 0).ok_or_else(damaged)?;
        Ok(content.split_off(end + 1))
    }

    fn io(&self, path: &str) -> impl Fn(io::Error) -> GitRefError {
        let path = self.dir.join(path);
        move |error| GitRefError::Io { path: path.clone(), error }
    }
}

fn object_path(oid: Oid) -> (String, String) {
    let name = hex::encode(&oid);
    (format!("objects/{}", &name[..2]), name[2..].to_owned())
}

fn bad_name(name: &str) -> GitRefError {
    GitRefError::Unusable(format!("{name} is not a valid name of a reference"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_references_of_seals_are_named() {
        for text in ["main", "git:main", "refs/stepback/seals/main", "git:refs/stepback/seals/main"] {
            assert_eq!(full_name(text).as_deref(), Some("refs/stepback/seals/main"), "{text}");
        }
        assert!(full_name("git:2026/week-47").is_some());
        for text in [
            "refs/heads/main",
            "git:refs/heads/main",
            "",
            "../x",
            "a/../../heads/main",
            "a..b",
            "x.lock",
            "-/",
            "a b",
        ] {
            assert_eq!(full_name(text), None, "{text}");
        }
    }
}
