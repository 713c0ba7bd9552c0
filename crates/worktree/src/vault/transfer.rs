//! Copies and checks git files in one pass.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use rustix::io::Errno;
use stepback_faults as faults;
use stepback_store::GitFileCheck;

use super::Kept;

/// Bytes that are read and written at a time.
const PIECE_BYTES: usize = 1 << 20;

/// What a checked file turned out to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CopyOutcome {
    /// Its content has the hash that it should have.
    Intact,
    /// It has not; the text says what is wrong.
    Damaged(String),
    /// It could not be read to its end.
    Unreadable,
}

impl CopyOutcome {
    pub fn into_kept(self) -> Kept {
        match self {
            Self::Intact => Kept::Yes,
            Self::Damaged(problem) => Kept::Damaged(problem),
            Self::Unreadable => Kept::Unreadable,
        }
    }
}

/// Checks an open file against its name in the vault.
pub(super) fn check_open_file(file: &File, key: &[u8]) -> CopyOutcome {
    // Nothing is written, so nothing but reading can fail.
    read_through(file, key, |_| Ok(())).unwrap_or(CopyOutcome::Unreadable)
}

/// Copies `from` into the empty file `into` and checks what it copies. An error is one of writing.
pub(super) fn copy_checked(from: &File, mut into: &File, key: &[u8]) -> io::Result<CopyOutcome> {
    read_through(from, key, |piece| {
        faults::point()?;
        into.write_all(piece)
    })
}

/// Makes the empty file `into` share the blocks of `from`, and checks them; `None` if the file system cannot do that.
pub(super) fn clone_checked(from: &File, into: &File, key: &[u8]) -> io::Result<Option<CopyOutcome>> {
    faults::point()?;
    match rustix::fs::ioctl_ficlone(into, from) {
        Ok(()) => Ok(Some(check_open_file(into, key))),
        Err(errno @ (Errno::NOSPC | Errno::DQUOT)) => Err(errno.into()),
        Err(_) => Ok(None),
    }
}

fn read_through(
    file: &File,
    key: &[u8],
    mut visit: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<CopyOutcome> {
    let mut check = GitFileCheck::new(key);
    let size = file.metadata().map_or(PIECE_BYTES, |metadata| metadata.len() as usize);
    let mut piece = vec![0; size.clamp(1, PIECE_BYTES)];
    let mut position = 0;
    loop {
        match file.read_at(&mut piece, position) {
            Ok(0) => break,
            Ok(count) => {
                check.update(&piece[..count]);
                visit(&piece[..count])?;
                position += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Ok(CopyOutcome::Unreadable),
        }
    }
    Ok(match check.finish() {
        Ok(()) => CopyOutcome::Intact,
        Err(problem) => CopyOutcome::Damaged(problem),
    })
}
