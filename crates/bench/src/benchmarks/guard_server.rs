//! A server that guards a store on a Unix socket, for hooks that use it by address.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

/// A running server. Dropping it ends it.
pub struct GuardServer {
    child: Child,
    socket: PathBuf,
}

impl GuardServer {
    /// Starts a server over an empty store in `area`.
    pub fn start(area: &Path, binary: &Path) -> Result<Self> {
        let store = area.join("guarded-store");
        fs::create_dir_all(area)?;
        let socket = area.join("guard.sock");
        let mut child = Command::new(binary)
            .env("STEPBACK_HOME", &store)
            .args(["serve", "--guard", "--no-watcher", "--listen", "127.0.0.1:0", "--json", "--socket"])
            .arg(&socket)
            .current_dir(area)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the server that guards the store")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("the server has no stdout")?).read_line(&mut line)?;
        let server = Self { child, socket };
        ensure!(line.contains("unix:"), "the server does not guard its store: {line}");
        Ok(server)
    }

    /// The address of the store.
    pub fn address(&self) -> String {
        format!("unix:{}", self.socket.display())
    }
}

impl Drop for GuardServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
