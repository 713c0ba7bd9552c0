//! Starts the process that syncs, if a commit finds none: detached, and without waiting for it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::service;
use crate::settings::MirrorSettings;

/// The argument that makes our program run as this process.
pub const WORD: &str = "mirror-process";

/// Starts the process that syncs the mirrors of one store.
#[derive(Debug)]
pub struct MirrorLauncher {
    /// The path of our own program.
    pub program: PathBuf,
    /// The directory of the store.
    pub dir: PathBuf,
    /// The environment variables that the process gets: those that a client of an object store reads, and no others.
    pub environment: Vec<(OsString, OsString)>,
    /// The process that was started last, to be reaped.
    pub child: Mutex<Option<Child>>,
}

impl MirrorLauncher {
    /// Makes sure that a process syncs. Without mirrors it is one system call; with a running process three. A failure is
    /// ignored: the next commit tries again, and `stepback mirror status` shows how far the mirrors are.
    pub fn wake(&self) {
        if !MirrorSettings::exist(&self.dir) || service::is_running(&self.dir) {
            return;
        }
        let started = Command::new(&self.program)
            .arg(WORD)
            .arg(&self.dir)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // One that found another process running has exited.
        if let Some(mut before) = child.take() {
            let _ = before.try_wait();
        }
        *child = started.ok();
    }
}
