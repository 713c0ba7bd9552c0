//! Workspaces, and what the form of a workspace's root tells about it.

use serde::{Deserialize, Serialize};

use crate::ids::WorkspaceId;
use crate::time::Timestamp;

/// A directory tree that agents work in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkspaceRecord {
    /// Id of the workspace.
    pub id: WorkspaceId,
    /// Absolute path of the root, raw bytes.
    pub root: Vec<u8>,
    /// When stepback first saw it.
    pub created_at: Timestamp,
}

impl WorkspaceRecord {
    /// Prefix of the root of a remote workspace: agents on other machines report to it, and no directory of a machine that
    /// runs stepback belongs to it. The root of every other workspace is an absolute path.
    pub const REMOTE: &'static [u8] = b"remote:";

    /// Prefix of the name of the directory in which a rerun takes place.
    pub const RERUN_PREFIX: &'static str = "stepback-rerun-";

    /// Whether this is the scratch directory of a rerun: `…/stepback-rerun-XYZ/XYZ`. It is not a project of the user: lists
    /// of workspaces, totals and default choices leave it out.
    pub fn is_rerun(&self) -> bool {
        let mut parts = self.root.rsplit(|byte| *byte == b'/');
        let (Some(name), Some(parent)) = (parts.next(), parts.next()) else { return false };
        !name.is_empty() && parent.strip_prefix(Self::RERUN_PREFIX.as_bytes()) == Some(name)
    }

    /// The name of a remote workspace; `None` for a local directory.
    pub fn remote_name(&self) -> Option<&[u8]> {
        self.root.strip_prefix(Self::REMOTE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scratch_directory_of_a_rerun_is_known_by_its_path() {
        let is_rerun = |root: &str| {
            let id = WorkspaceId::from_bytes([1; 16]);
            WorkspaceRecord { id, root: root.into(), created_at: Timestamp::from_micros(0) }.is_rerun()
        };
        assert!(is_rerun("/tmp/stepback-rerun-Ab12Cd/Ab12Cd"));
        assert!(!is_rerun("/tmp/stepback-rerun-Ab12Cd"));
        assert!(!is_rerun("/home/me/stepback-rerun-notes/src"));
        assert!(!is_rerun("remote:stepback-rerun-"));
        assert!(!is_rerun("/"));
    }
}
