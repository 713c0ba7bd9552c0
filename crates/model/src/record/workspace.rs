//! Workspaces, and what the form of a root says about one.

use crate::ids::WorkspaceId;
use crate::time::Timestamp;

/// A directory tree that agents work in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workspace {
    /// Its id.
    pub id: WorkspaceId,
    /// Absolute path of the root, raw bytes.
    pub root: Vec<u8>,
    /// When stepback first saw it.
    pub created_at: Timestamp,
}

impl Workspace {
    /// How the root of a workspace begins that is no directory of any machine that stepback runs on: agents elsewhere report
    /// to it. The root of every other one is an absolute path.
    pub const REMOTE: &'static [u8] = b"remote:";

    /// How the name of the directory begins in which a rerun takes place.
    pub const RERUN_PREFIX: &'static str = "stepback-rerun-";

    /// Whether it is the scratch directory of a rerun: `…/stepback-rerun-XYZ/XYZ`. It is not a project of the
    /// user: lists of workspaces, totals and default choices leave it out.
    pub fn is_rerun(&self) -> bool {
        let mut parts = self.root.rsplit(|byte| *byte == b'/');
        let (Some(name), Some(parent)) = (parts.next(), parts.next()) else { return false };
        !name.is_empty() && parent.strip_prefix(Self::RERUN_PREFIX.as_bytes()) == Some(name)
    }

    /// The name of a workspace that is no directory here.
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
            Workspace { id, root: root.into(), created_at: Timestamp::from_micros(0) }.is_rerun()
        };
        assert!(is_rerun("/tmp/stepback-rerun-Ab12Cd/Ab12Cd"));
        assert!(!is_rerun("/tmp/stepback-rerun-Ab12Cd"));
        assert!(!is_rerun("/home/me/stepback-rerun-notes/src"));
        assert!(!is_rerun("remote:stepback-rerun-"));
        assert!(!is_rerun("/"));
    }
}
