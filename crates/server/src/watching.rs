//! Runs the file watcher inside the server, for workspaces that are in use.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use stepback_store::Store;
use stepback_watcher::client::WatcherClient;
use stepback_watcher::server::{Watcher, WatcherConfig};

use crate::state::AppState;

/// A workspace that was not scanned for this long is only watched once a client asks about it.
const MAX_SCAN_AGE: Duration = Duration::from_secs(24 * 3600);
/// Smallest stat cache, in bytes, of a workspace that is worth watching from the start.
const WORTH_WATCHING: u64 = 100 << 10;

/// Starts to watch the workspaces of a store whose local files are in `dir`. Returns `Ok(None)` if another process does so
/// already.
pub fn start_watcher(state: &AppState, dir: &Path) -> io::Result<Option<Watcher>> {
    let recent = recent_workspaces(state.store(), dir);
    let watcher = Watcher::start(WatcherConfig { recent, ..WatcherConfig::new(dir) })?;
    state.set_watcher(WatcherClient::new(dir));
    Ok(watcher)
}

/// Returns workspaces that were scanned recently, the latest first.
fn recent_workspaces(store: &dyn Store, dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<(SystemTime, PathBuf)> = (store.workspaces().unwrap_or_default().iter())
        .filter(|workspace| !workspace.is_rerun())
        .filter_map(|workspace| {
            let cache = dir.join("workspaces").join(workspace.id.to_string()).join("statcache");
            let cache = fs::metadata(cache).ok().filter(|cache| cache.len() >= WORTH_WATCHING)?;
            let looked = cache.modified().ok()?;
            let root = Path::new(OsStr::from_bytes(&workspace.root)).to_path_buf();
            looked.elapsed().is_ok_and(|age| age < MAX_SCAN_AGE).then_some((looked, root))
        })
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, root)| root).collect()
}
