//! A watcher's report about itself, for `status`, `doctor` and `watcher`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::wire::{MessageReader, put_bytes};

/// The state of a running watcher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatcherReport {
    /// Its process id in its own PID namespace.
    pub pid: u32,
    /// The version of its program.
    pub version: String,
    /// Whether a hook started it; otherwise it is part of a server.
    pub automatic: bool,
    /// When it started, in seconds since 1970.
    pub since: u64,
    /// Resident memory of its process, in bytes.
    pub memory: u64,
    /// How many questions about changes it was asked.
    pub questions: u64,
    /// The workspaces it knows.
    pub roots: Vec<WatchedRoot>,
}

/// A workspace that a watcher knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchedRoot {
    /// The root of the workspace.
    pub root: PathBuf,
    /// The number of watched directories, or why none are.
    pub sight: Result<u64, String>,
}

impl WatcherReport {
    /// The number of watched directories of a workspace, or why none are.
    pub fn sight_of(&self, root: &Path) -> Result<u64, String> {
        let watched = self.roots.iter().find(|watched| watched.root == root);
        watched.map_or_else(|| Err("no hook has asked about it yet".into()), |watched| watched.sight.clone())
    }

    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self.automatic));
        for word in [u64::from(self.pid), self.since, self.memory, self.questions] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        put_bytes(bytes, self.version.as_bytes());
        bytes.extend_from_slice(&(self.roots.len() as u32).to_le_bytes());
        for WatchedRoot { root, sight } in &self.roots {
            put_bytes(bytes, root.as_os_str().as_bytes());
            bytes.push(u8::from(sight.is_ok()));
            match sight {
                Ok(directories) => bytes.extend_from_slice(&directories.to_le_bytes()),
                Err(reason) => put_bytes(bytes, reason.as_bytes()),
            }
        }
    }

    pub(crate) fn decode(rest: &mut MessageReader<'_>) -> io::Result<Self> {
        let automatic = rest.take_flag()?;
        let pid = rest.take_u64()? as u32;
        let (since, memory, questions) = (rest.take_u64()?, rest.take_u64()?, rest.take_u64()?);
        let version = rest.text()?;
        let mut roots = Vec::new();
        for _ in 0..rest.take_u32()? {
            let root = PathBuf::from(OsStr::from_bytes(rest.bytes()?));
            let sight = if rest.take_flag()? { Ok(rest.take_u64()?) } else { Err(rest.text()?) };
            roots.push(WatchedRoot { root, sight });
        }
        Ok(Self { pid, version, automatic, since, memory, questions, roots })
    }
}

/// Resident memory of this process, in bytes; 0 where the system does not report it.
pub(crate) fn own_memory() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
