//! Offers a repository's packs to the store before its files are read, so that committed content is not stored twice.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Dir, Mode, OFlags};
use stepback_store::ObjectBatch;

use crate::anchored_path::AnchoredDir;
use crate::git;
use crate::rules::Budget;
use crate::vault::{Kept, Vault};
use stepback_model::path::RelPath;

/// Keeps the packs of the repository at `root` in the vault and offers them to `batch`. An error here only costs space:
/// what the packs do not provide is stored.
pub(super) fn offer(root: &Path, vault: &Vault, budget: &Budget, batch: &dyn ObjectBatch) {
    let Ok(path) = RelPath::parse(".git/objects/pack") else { return };
    let Ok(dir) = AnchoredDir::open(root).and_then(|mut anchor| anchor.dir(&path)) else { return };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(listing) = rustix::fs::openat(&dir, ".", flags, Mode::empty()).and_then(Dir::new) else { return };
    let names: Vec<Vec<u8>> =
        listing.filter_map(|entry| Some(entry.ok()?.file_name().to_bytes().to_vec())).collect();
    let keep = |name: &[u8]| {
        let key = git::vault_name(b"pack", name)?;
        let result = vault.keep(dir.as_fd(), name, &key, budget.git_copy).ok()?;
        (result == Kept::Yes).then_some(key)
    };
    let mut packs = Vec::new();
    for name in names {
        let Some(stem) = name.strip_suffix(b".pack") else { continue };
        let idx = [stem, b".idx"].concat();
        if let (Some(key), Some(_)) = (keep(&name), keep(&idx)) {
            packs.push(key);
        }
    }
    // Copies get their names when they are durable.
    if vault.sync().is_ok() {
        batch.reuse_packs(&packs);
    }
}
