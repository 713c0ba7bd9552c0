//! Reads objects, loose or in packs, also those that a repository borrows from others.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use gix_object::{Exists as _, Find as _};
use gix_odb::Header as _;

use crate::error::GitError;
use crate::object::{GitCommit, GitEntry, GitObject, GitObjectKind, GitOid, parse_tree, require_commit};
use crate::repository::{GitRepository, read_limited};

/// The largest object that is read, in bytes.
pub const MAX_OBJECT_BYTES: u64 = 256 << 20;
/// How many steps from one repository to another are followed to borrowed objects.
const MAX_BORROWED: usize = 5;

/// Reads the objects of a repository.
pub struct ObjectReader {
    objects: PathBuf,
    handle: gix_odb::Handle,
}

impl ObjectReader {
    /// Opens the objects of a repository.
    pub fn open(repository: &GitRepository) -> Result<Self, GitError> {
        let objects = repository.common_dir.join("objects");
        check_regular(&objects, MAX_BORROWED)?;
        let limit = usize::try_from(MAX_OBJECT_BYTES).unwrap_or(usize::MAX);
        let options = gix_odb::store::init::Options { alloc_limit_bytes: Some(limit), ..Default::default() };
        let opened = gix_odb::at_opts(objects.clone(), gix_hash::Kind::Sha1, None, options);
        let handle = opened.map_err(|error| GitError::Io { path: objects.clone(), error })?;
        Ok(Self { objects, handle })
    }

    /// Whether an object exists.
    pub fn contains(&self, oid: GitOid) -> bool {
        self.handle.exists(&gix_hash::ObjectId::Sha1(oid.0))
    }

    /// Reads an object; `None` if it does not exist.
    pub fn find(&self, oid: GitOid) -> Result<Option<GitObject>, GitError> {
        let damaged = |reason: &dyn ToString| GitError::damaged(format!("object {oid}"), reason.to_string());
        let name = oid.to_string();
        let loose = self.objects.join(&name[..2]).join(&name[2..]);
        if fs::metadata(&loose).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(damaged(&"it is not a regular file"));
        }
        let id = gix_hash::ObjectId::Sha1(oid.0);
        let header = self.handle.try_header(&id).map_err(|error| damaged(&error))?;
        let Some(header) = header else { return Ok(None) };
        if header.size() > MAX_OBJECT_BYTES {
            return Err(damaged(&format!("it has {} bytes", header.size())));
        }
        let mut body = Vec::new();
        let found = self.handle.try_find(&id, &mut body).map_err(|error| damaged(&error))?;
        let Some(kind) = found.map(|data| data.kind) else { return Ok(None) };
        let kind = match kind {
            gix_object::Kind::Blob => GitObjectKind::Blob,
            gix_object::Kind::Tree => GitObjectKind::Tree,
            gix_object::Kind::Commit => GitObjectKind::Commit,
            gix_object::Kind::Tag => GitObjectKind::Tag,
        };
        Ok(Some(GitObject { kind, body }))
    }

    /// Reads an object that has to exist.
    pub fn require(&self, oid: GitOid) -> Result<GitObject, GitError> {
        self.find(oid)?.ok_or(GitError::NoObject(oid))
    }

    /// Reads a commit.
    pub fn commit(&self, oid: GitOid) -> Result<GitCommit, GitError> {
        require_commit(oid, &self.require(oid)?)
    }

    /// Reads a tree.
    pub fn tree(&self, oid: GitOid) -> Result<Vec<GitEntry>, GitError> {
        let object = self.require(oid)?;
        let entries = (object.kind == GitObjectKind::Tree).then(|| parse_tree(&object.body)).flatten();
        entries.ok_or_else(|| GitError::damaged(format!("object {oid}"), "it is not a tree"))
    }

    /// Reads the content of a file.
    pub fn blob(&self, oid: GitOid) -> Result<Vec<u8>, GitError> {
        let object = self.require(oid)?;
        match object.kind {
            GitObjectKind::Blob => Ok(object.body),
            _ => Err(GitError::damaged(format!("object {oid}"), "it is not the content of a file")),
        }
    }

    /// The object whose id begins with some hexadecimal digits, at least four; `None` if there is none, or several.
    pub fn find_by_prefix(&self, digits: &str) -> Option<GitOid> {
        let prefix = gix_hash::Prefix::from_hex(digits).ok().filter(|_| digits.len() >= 4)?;
        let found = self.handle.lookup_prefix(prefix, None).ok()??.ok()?;
        found.as_slice().try_into().ok().map(GitOid)
    }

    /// Follows annotated tags to the commit that they name.
    pub fn peel_to_commit(&self, mut oid: GitOid) -> Result<GitOid, GitError> {
        for _ in 0..10 {
            let object = self.require(oid)?;
            match object.kind {
                GitObjectKind::Commit => return Ok(oid),
                GitObjectKind::Tag => {
                    let target = object.body.strip_prefix(b"object ").and_then(|rest| rest.get(..40));
                    let target = target.and_then(GitOid::parse);
                    oid = target
                        .ok_or_else(|| GitError::damaged(format!("tag {oid}"), "it names no object"))?;
                }
                _ => break,
            }
        }
        Err(GitError::damaged(format!("object {oid}"), "it is not a commit"))
    }

    /// The entry at a path below a tree, whose components are separated by slashes; `None` if it does not exist.
    pub fn entry_at(&self, tree: GitOid, path: &[u8]) -> Result<Option<GitEntry>, GitError> {
        let mut tree = tree;
        let mut names = path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            let entry = self.tree(tree)?.into_iter().find(|entry| entry.name == name);
            match (entry, names.peek()) {
                (entry, None) => return Ok(entry),
                (Some(entry), Some(_)) if entry.is_dir() => tree = entry.oid,
                _ => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// Refuses packs and lists of other repositories that are not regular files: to open a pipe would wait forever.
fn check_regular(objects: &Path, depth: usize) -> Result<(), GitError> {
    for entry in fs::read_dir(objects.join("pack")).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_readable = fs::metadata(&path).is_ok_and(|metadata| metadata.is_file() || metadata.is_dir());
        if !is_readable {
            return Err(GitError::damaged(path.display(), "it is not a regular file"));
        }
    }
    let alternates = read_limited(&objects.join("info/alternates"), 1 << 20)?.unwrap_or_default();
    for line in alternates.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        if depth == 0 {
            return Err(GitError::damaged(
                objects.display(),
                "it borrows objects through too many repositories",
            ));
        }
        check_regular(&objects.join(OsStr::from_bytes(line)), depth - 1)?;
    }
    Ok(())
}
