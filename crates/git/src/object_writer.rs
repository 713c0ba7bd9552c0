//! Adds single objects, each as a file of its own.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use stepback_model::path::RelPath;
use stepback_worktree::anchored_path::AnchoredDir;
use stepback_worktree::anchored_write::{make_dirs, replace_file};

use crate::error::GitError;
use crate::object::{GitObjectKind, GitOid};
use crate::repository::GitRepository;

impl GitRepository {
    /// Opens the directory with the objects and references for writing.
    pub fn open_for_writing(&self) -> Result<AnchoredDir, GitError> {
        AnchoredDir::open(&self.common_dir).map_err(self.io(""))
    }

    /// Writes an object durably, unless it is there.
    pub fn write_object(
        &self,
        anchor: &mut AnchoredDir,
        kind: GitObjectKind,
        body: &[u8],
    ) -> Result<GitOid, GitError> {
        let oid = GitOid::of(kind, body);
        let name = oid.to_string();
        let dir = format!("objects/{}", &name[..2]);
        if self.common_dir.join(&dir).join(&name[2..]).is_file() {
            return Ok(oid);
        }
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        let header = format!("{} {}\0", kind.name(), body.len());
        let written = encoder.write_all(header.as_bytes()).and_then(|()| encoder.write_all(body));
        let compressed = written.and_then(|()| encoder.finish()).map_err(self.io(&dir))?;
        let parent = RelPath::parse(dir.as_bytes()).map_err(|_| GitError::BadName(dir.clone()))?;
        make_dirs(anchor, &parent, 0o777).map_err(self.io(&dir))?;
        replace_file(anchor, &parent.join(&name.as_bytes()[2..]), &compressed, 0o444)
            .map_err(self.io(&dir))?;
        Ok(oid)
    }
}
