//! Starts the process that syncs, if a commit finds none: detached, and without waiting for it.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::service;
use crate::settings::MirrorSettings;

/// The argument that makes our program run as this process.
pub const WORD: &str = "mirror-process";

/// Starts the process that syncs the mirrors of one store.
pub struct MirrorLauncher {
    /// The directory of the store.
    dir: PathBuf,
    /// Makes the command that runs our own program, with the environment variables that the process gets.
    command: Box<dyn Fn() -> Option<Command> + Send + Sync>,
    /// The process that was started last, to be reaped.
    child: Mutex<Option<Child>>,
}

impl std::fmt::Debug for MirrorLauncher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MirrorLauncher").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl MirrorLauncher {
    /// A launcher for the store in `dir`. `command` is only called to start a process.
    pub fn new(dir: PathBuf, command: impl Fn() -> Option<Command> + Send + Sync + 'static) -> Self {
        Self { dir, command: Box::new(command), child: Mutex::new(None) }
    }

    /// Makes sure that a process syncs. Without mirrors it is one system call; with a running process a few. A failure is
    /// ignored: the next commit tries again, and `stepback mirror status` shows how far the mirrors are.
    pub fn wake(&self) {
        if !MirrorSettings::exist(&self.dir) || service::is_running(&self.dir) {
            return;
        }
        let Some(mut command) = (self.command)() else { return };
        command.arg(WORD).arg(&self.dir).current_dir("/");
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // One that found another process running has exited.
        if let Some(mut before) = child.take() {
            let _ = before.try_wait();
        }
        *child = started.ok();
    }
}
