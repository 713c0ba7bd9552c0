//! Examines single paths without scanning the tree, for undoing one file at once.

use std::path::Path;

use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;
use stepback_model::hash::ObjectKind;
use stepback_model::object::ObjectSource;
use stepback_model::path::RelPath;
use stepback_model::tree::{Content, MODE_MASK, SkipReason, TreeNode};
use stepback_store::ObjectBatch;

use crate::anchored_path::{AnchoredDir, Identity, open_file};
use crate::content::{self, ChunkError, WHOLE_LIMIT};
use crate::error::WorktreeError;
use crate::scan::entry::skip_reason;

/// What is at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Single {
    /// The path does not exist.
    Nothing,
    /// A file or link (stored now), or something that is only noted.
    Node(TreeNode),
    /// A directory with these permission bits; its entries were not read.
    Dir(u32),
}

/// Examines single paths.
pub struct Looker<'a> {
    anchor: AnchoredDir,
    source: &'a (dyn ObjectSource + Sync),
    batch: &'a dyn ObjectBatch,
}

impl<'a> Looker<'a> {
    /// Opens the root.
    pub fn new(
        root: &Path,
        source: &'a (dyn ObjectSource + Sync),
        batch: &'a dyn ObjectBatch,
    ) -> Result<Self, WorktreeError> {
        let anchor = AnchoredDir::open(root)
            .map_err(|error| WorktreeError::Root { root: root.to_path_buf(), error })?;
        Ok(Self { anchor, source, batch })
    }

    /// Examines `path` and stores its content.
    pub fn look(&mut self, path: &RelPath) -> Result<Single, WorktreeError> {
        let fail = |errno: Errno| WorktreeError::io("look at", path)(errno.into());
        let (dir, name) = match self.anchor.parent(path) {
            Ok(Some(parent)) => parent,
            Ok(None) => return Ok(Single::Dir(0o755)),
            Err(error) => {
                return match Errno::from_io_error(&error) {
                    Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(Single::Nothing),
                    _ => Err(WorktreeError::io("reach", path)(error)),
                };
            }
        };
        for _ in 0..4 {
            let stat = match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // A name that is too long for the file system cannot exist in it.
                Err(Errno::NOENT | Errno::NAMETOOLONG) => return Ok(Single::Nothing),
                Err(errno) => return Err(fail(errno)),
            };
            let mode = stat.st_mode & MODE_MASK;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => return Ok(Single::Dir(mode)),
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(&dir, name, Vec::new()).map_err(fail)?.into_bytes();
                    return Ok(Single::Node(TreeNode::Symlink { target }));
                }
                FileType::RegularFile => {}
                other => {
                    let reason = skip_reason(other).unwrap_or(SkipReason::Device);
                    return Ok(Single::Node(TreeNode::Skipped { reason }));
                }
            }
            let (file, stat_before) = match open_file(&dir, name) {
                Ok(opened) => opened,
                Err(Errno::ACCESS) => {
                    return Ok(Single::Node(TreeNode::Skipped { reason: SkipReason::Unreadable }));
                }
                Err(Errno::NOENT | Errno::INVAL | Errno::LOOP) => continue,
                Err(errno) => return Err(fail(errno)),
            };
            let size = stat_before.st_size as u64;
            let stored = if size > WHOLE_LIMIT {
                content::store_chunked(&file, size, None, self.source, self.batch, 1).map(Content::Chunked)
            } else {
                let mut bytes = vec![0; size as usize];
                std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0)
                    .map_err(ChunkError::Read)
                    .and_then(|()| Ok(Content::Whole(self.batch.write(ObjectKind::Blob, &bytes, None)?)))
            };
            match stored {
                Ok(content) => {
                    let stat_after = rustix::fs::fstat(&file).map_err(fail)?;
                    if Identity::of(&stat_after) == Identity::of(&stat_before) {
                        return Ok(Single::Node(TreeNode::File { mode, size, content }));
                    }
                }
                Err(ChunkError::Read(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
                Err(ChunkError::Read(error)) => return Err(WorktreeError::io("read", path)(error)),
                Err(ChunkError::Store(error)) => return Err(error.into()),
            }
        }
        Ok(Single::Node(TreeNode::Skipped { reason: SkipReason::Unstable }))
    }
}
