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

    /// Prefix of the root of a forgotten workspace. It is in no list, and its former root can be that of another workspace.
    pub const FORGOTTEN: &'static [u8] = b"forgotten:";
    /// What follows the prefix as long as nothing was freed.
    const WHOLE: &'static [u8] = b"whole:";
    /// What follows the prefix once a prune has freed what it held.
    const FREED: &'static [u8] = b"freed:";

    /// Whether the user forgot this workspace.
    pub fn is_forgotten(&self) -> bool {
        self.root.starts_with(Self::FORGOTTEN)
    }

    /// Whether a prune has freed what a forgotten workspace held, so that it cannot come back.
    pub fn is_freed(&self) -> bool {
        self.root.strip_prefix(Self::FORGOTTEN).is_some_and(|rest| rest.starts_with(Self::FREED))
    }

    /// The root that a forgotten workspace had; the root of any other one.
    pub fn former_root(&self) -> &[u8] {
        let rest = self.root.strip_prefix(Self::FORGOTTEN);
        let rest =
            rest.and_then(|rest| rest.strip_prefix(Self::WHOLE).or_else(|| rest.strip_prefix(Self::FREED)));
        // The id in hex and a colon.
        rest.and_then(|rest| rest.get(33..)).unwrap_or(&self.root)
    }

    /// The root that it gets when it is forgotten.
    pub fn forgotten_root(&self) -> Vec<u8> {
        self.root_with(Self::WHOLE)
    }

    /// The root that it gets when a prune has freed what it held.
    pub fn freed_root(&self) -> Vec<u8> {
        self.root_with(Self::FREED)
    }

    fn root_with(&self, state: &[u8]) -> Vec<u8> {
        [Self::FORGOTTEN, state, self.id.to_string().as_bytes(), b":", self.former_root()].concat()
    }

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
    fn a_forgotten_workspace_knows_where_it_was() {
        let id = WorkspaceId::from_bytes([0xab; 16]);
        for root in [&b"/home/me/shop"[..], b"remote:box", b"/", b"/tmp/forgotten:x", b"/\xff:"] {
            let known = WorkspaceRecord { id, root: root.to_vec(), created_at: Timestamp::from_micros(0) };
            assert!(!known.is_forgotten() && !known.is_freed());
            assert_eq!(known.former_root(), root);
            let forgotten = WorkspaceRecord { root: known.forgotten_root(), ..known.clone() };
            assert!(forgotten.is_forgotten() && !forgotten.is_freed() && !forgotten.is_rerun());
            assert_eq!((forgotten.former_root(), forgotten.remote_name()), (root, None));
            let freed = WorkspaceRecord { root: forgotten.freed_root(), ..known };
            assert!(freed.is_forgotten() && freed.is_freed());
            assert_eq!(freed.former_root(), root);
        }
    }

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
