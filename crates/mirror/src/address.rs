//! Addresses of mirrors, as users write them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::MirrorError;
use crate::storage::bucket::BucketStorage;
use crate::storage::directory::DirectoryStorage;
use crate::storage::{MirrorStorage, StorageAccess};

/// Where a mirror is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MirrorAddress {
    /// A directory of this machine.
    Directory(PathBuf),
    /// A bucket of an S3-compatible service.
    Bucket {
        /// The name of the bucket.
        bucket: String,
        /// What the names of all files begin with, without a slash at the end; may be empty.
        prefix: String,
    },
}

/// Whether a missing directory is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateDirectory {
    /// It is created.
    Yes,
    /// It must exist: a disk that is not mounted must not be taken for an empty mirror.
    No,
}

impl MirrorAddress {
    /// Reads `s3://BUCKET/PREFIX`, `file:///PATH`, or a path, which is relative to `directory`.
    pub fn parse(text: &str, directory: &Path) -> Result<Self, MirrorError> {
        let wrong = |shown: &str, reason: &str| MirrorError::Address {
            address: shown.to_owned(),
            reason: reason.to_owned(),
        };
        if let Some(path) = text.strip_prefix("file://") {
            return match path.starts_with('/') {
                true => Ok(Self::Directory(path.into())),
                false => Err(wrong(text, "write file:///PATH, with three slashes")),
            };
        }
        if let Some(rest) = text.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            let prefix = prefix.trim_end_matches('/');
            let is_name = |name: &str, more: &[u8]| {
                name.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
            };
            if bucket.is_empty() || !is_name(bucket, b"-.") {
                return Err(wrong("s3://…", "the name of a bucket has letters, digits, \"-\" and \".\""));
            }
            if !is_name(prefix, b"-._/") || prefix.starts_with('/') || prefix.contains("//") {
                return Err(wrong(
                    text,
                    "a prefix has letters, digits, \"-\", \"_\", \".\" and single slashes",
                ));
            }
            return Ok(Self::Bucket { bucket: bucket.to_owned(), prefix: prefix.to_owned() });
        }
        if let Some((scheme, _)) = text.split_once("://") {
            return Err(wrong(
                &format!("{scheme}://…"),
                "a mirror is a directory, file:///PATH or s3://BUCKET/PREFIX",
            ));
        }
        if text.is_empty() {
            return Err(wrong(text, "it is empty"));
        }
        Ok(Self::Directory(directory.join(text)))
    }

    /// Connects to the place.
    pub fn open(
        &self,
        create: CreateDirectory,
        access: &StorageAccess,
    ) -> Result<Arc<dyn MirrorStorage>, MirrorError> {
        match (self, create) {
            (Self::Directory(path), CreateDirectory::Yes) => Ok(Arc::new(DirectoryStorage::create(path)?)),
            (Self::Directory(path), CreateDirectory::No) => Ok(Arc::new(DirectoryStorage::open(path)?)),
            (Self::Bucket { bucket, prefix }, _) => match &access.bucket {
                Some(access) => Ok(Arc::new(BucketStorage::new(access.clone(), bucket, prefix)?)),
                None => Err(MirrorError::Storage {
                    what: "connect to",
                    place: self.to_string(),
                    why: "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set".into(),
                }),
            },
        }
    }
}

impl fmt::Display for MirrorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "{}", path.display()),
            Self::Bucket { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::Bucket { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_the_same() {
        let parse = |text| MirrorAddress::parse(text, Path::new("/home/ann")).unwrap().to_string();
        for same in ["/mnt/backup", "s3://bucket", "s3://bucket.example/a/b-1"] {
            assert_eq!(parse(same), same);
        }
        assert_eq!(parse("backup"), "/home/ann/backup");
        assert_eq!(parse("file:///mnt/x"), "/mnt/x");
        assert_eq!(parse("s3://bucket/a/"), "s3://bucket/a");
        for wrong in ["", "s3://", "s3:///x", "s3://b/a//b", "s3://key:secret@b/x", "ftp://x/y", "file://x"] {
            let error = MirrorAddress::parse(wrong, Path::new("/")).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
