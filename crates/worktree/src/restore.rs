//! Writes stored content back into files outside of a workspace's own tree.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use stepback_faults as faults;
use stepback_model::hash::ObjectKind;
use stepback_model::list;
use stepback_model::object::{ObjectError, ObjectSource};
use stepback_model::tree::Content;

use crate::vault::{self, Vault};

/// Writes stored content to an open file.
pub fn write_content(file: &mut File, content: &Content, source: &dyn ObjectSource) -> io::Result<()> {
    match content {
        Content::Whole(hash) => {
            let bytes = source.read(ObjectKind::Blob, *hash).map_err(io::Error::other)?;
            faults::point()?;
            file.write_all(&bytes)
        }
        Content::Chunked(hash) => {
            for item in list::iter(source, *hash) {
                let item = item.map_err(io::Error::other)?;
                let bytes = source.read(ObjectKind::Blob, item.hash).map_err(io::Error::other)?;
                faults::point()?;
                file.write_all(&bytes)?;
            }
            Ok(())
        }
        Content::Vaulted => Err(io::Error::other("a file of the vault is copied from there")),
    }
}

/// Reads stored content into memory.
pub fn read_content(content: &Content, source: &dyn ObjectSource) -> Result<Vec<u8>, ObjectError> {
    match content {
        Content::Whole(hash) => source.read(ObjectKind::Blob, *hash),
        Content::Chunked(hash) => {
            let mut bytes = Vec::new();
            for item in list::iter(source, *hash) {
                bytes.extend_from_slice(&source.read(ObjectKind::Blob, item?.hash)?);
            }
            Ok(bytes)
        }
        Content::Vaulted => Ok(Vec::new()),
    }
}

/// Restores a git object from the vault as `target`, with these permission bits.
pub fn from_vault(
    vault: Option<&Vault>,
    dir: &[u8],
    name: &[u8],
    target: &Path,
    mode: u32,
) -> io::Result<()> {
    let (Some(vault), Some(key), Some(parent), Some(file)) =
        (vault, vault::name_of(dir, name), target.parent(), target.file_name())
    else {
        return Err(io::Error::new(io::ErrorKind::NotFound, "its content is not in the vault"));
    };
    let parent = File::open(parent)?;
    vault.bring_back(&key, parent.as_fd(), OsStr::new(file), mode)
}

/// Makes `into` share the blocks of the regular file `from`. Returns `false` where the file system cannot, or `from` is not
/// a regular file.
pub fn clone_into(from: &Path, into: &File) -> bool {
    static REFLINK_AVAILABLE: AtomicBool = AtomicBool::new(true);
    if !REFLINK_AVAILABLE.load(Ordering::Relaxed) {
        return false;
    }
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32;
    let Ok(source) = File::options().read(true).custom_flags(flags).open(from) else { return false };
    match rustix::fs::ioctl_ficlone(into, &source) {
        Ok(()) => true,
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::XDEV) => {
            // The whole file system cannot; do not try again for every file.
            REFLINK_AVAILABLE.store(false, Ordering::Relaxed);
            false
        }
        Err(_) => false,
    }
}
