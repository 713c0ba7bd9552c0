//! Stored content as bytes: into an open file, or into memory.

use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use stepback_faults as faults;
use stepback_model::hash::ObjectKind;
use stepback_model::list;
use stepback_model::object::{ObjectError, ObjectSource};
use stepback_model::tree::Content;

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
        Content::Vaulted => Err(io::Error::other("a vaulted file is linked, not written")),
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

/// Makes `into` share the blocks of the regular file `from`. Returns `false` where the file system cannot.
pub fn clone_into(from: &File, into: &File) -> bool {
    static REFLINK_AVAILABLE: AtomicBool = AtomicBool::new(true);
    if !REFLINK_AVAILABLE.load(Ordering::Relaxed) {
        return false;
    }
    match rustix::fs::ioctl_ficlone(into, from) {
        Ok(()) => true,
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::XDEV) => {
            // The whole file system cannot; do not try again for every file.
            REFLINK_AVAILABLE.store(false, Ordering::Relaxed);
            false
        }
        Err(_) => false,
    }
}
