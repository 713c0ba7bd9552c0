//! Makes an applied plan durable.
//!
//! A few files are synced one by one, with their directories. Syncing the whole file system would be simpler, but it also
//! waits for everything that other processes have written to it.

use std::collections::BTreeSet;
use std::io;

use rustix::fs::{Mode, OFlags};
use stepback_faults as faults;
use stepback_model::plan::PlannedChange;
use stepback_model::tree::TreeNode;

use crate::anchored_path::{AnchoredDir, open_file};

/// Syncing more files than this one by one takes longer than syncing the file system.
const MAX_SINGLE_SYNCS: usize = 8;

/// Makes `changes`, which were applied beneath `root`, durable.
pub(super) fn make_durable(root: &AnchoredDir, changes: &[PlannedChange]) -> io::Result<()> {
    faults::point()?;
    // What cannot be opened (an unreadable file, a directory that is gone again) is synced with the whole file system.
    if only_few_files(changes) && sync_each(&mut root.duplicate(), changes).is_ok() {
        return Ok(());
    }
    Ok(rustix::fs::syncfs(root.root())?)
}

fn only_few_files(changes: &[PlannedChange]) -> bool {
    let is_file = |node: &Option<TreeNode>| matches!(node, None | Some(TreeNode::File { .. }));
    changes.len() <= MAX_SINGLE_SYNCS
        && changes.iter().all(|change| is_file(&change.now) && is_file(&change.then))
}

fn sync_each(anchor: &mut AnchoredDir, changes: &[PlannedChange]) -> io::Result<()> {
    let mut parents = BTreeSet::new();
    for change in changes {
        let Some((parent, _)) = change.path.split_last() else { continue };
        if change.then.is_some()
            && let Some((dir, name)) = anchor.parent(&change.path)?
        {
            open_file(&dir, name)?.0.sync_all()?;
        }
        parents.insert(parent);
    }
    for parent in parents {
        // The cached handle is only for path lookup; syncing needs one that is open for reading.
        let dir = anchor.dir(&parent)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::fsync(rustix::fs::openat(&dir, ".", flags, Mode::empty())?)?;
    }
    Ok(())
}
