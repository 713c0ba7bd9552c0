//! The server under measurement: the release binary as a process of its own, with a store of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::asking::HttpConnection;
use crate::paths::Paths;
use crate::systems::SystemDirs;

/// A running server.
pub struct ServerProcess {
    child: Child,
    store: PathBuf,
    /// Where it listens.
    pub address: SocketAddr,
    /// What proves that we may ask.
    pub token: String,
}

impl ServerProcess {
    /// Starts a server over an empty store: an embedded one, or one in a database.
    pub fn start(area: &Path, binary: &Path, database: Option<&str>) -> Result<Self> {
        let place = SystemDirs::new(area, "server");
        for directory in [&place.tree, &place.store] {
            crate::input::trees::remove(directory)?;
            fs::create_dir_all(directory)?;
        }
        let mut child = Command::new(binary)
            .env("STEPBACK_HOME", &place.store)
            .args(["serve", "--listen", "127.0.0.1:0", "--json"])
            .args(database.into_iter().flat_map(|database| ["--store", database]))
            .current_dir(&place.tree)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the server")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("the server has no stdout")?).read_line(&mut line)?;
        let document: Value = serde_json::from_str(&line).context("the server said not where it listens")?;
        let url = document["url"].as_str().unwrap_or_default();
        let address =
            url.trim_start_matches("http://").parse().with_context(|| format!("\"{url}\" is no address"))?;
        let token =
            fs::read_to_string(document["token_file"].as_str().unwrap_or_default())?.trim().to_owned();
        Ok(Self { child, store: place.store, address, token })
    }

    /// Its store.
    pub fn store(&self) -> &Path {
        &self.store
    }

    /// How many steps it has.
    pub fn count_steps(&self) -> Result<u64> {
        let statistics = HttpConnection::open(self)?.get("/statistics")?;
        let steps = statistics["steps"].as_object().context("the server does not count steps")?;
        Ok(steps.values().filter_map(Value::as_u64).sum())
    }

    /// Its largest resident set so far, in bytes.
    pub fn peak_memory(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no peak is known")?;
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").trim().parse()?;
        Ok(kilobytes * 1024)
    }

    /// What the store occupies, in bytes.
    pub fn disk_usage(&self) -> Result<u64> {
        fn count_bytes_below(path: &Path) -> Result<u64> {
            let mut bytes = 0;
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                let metadata = entry.metadata()?;
                bytes += if metadata.is_dir() { count_bytes_below(&entry.path())? } else { metadata.len() };
            }
            Ok(bytes)
        }
        count_bytes_below(&self.store)
    }

    /// Ends it.
    pub fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the server failed: {status}");
        Ok(())
    }
}

/// A PostgreSQL server that ends with this.
pub struct Database {
    child: Child,
    /// The address of an empty database.
    pub address: String,
}

impl Database {
    /// Starts a server with its default settings, except for memory.
    pub fn start(paths: &Paths) -> Result<Self> {
        let mut cargo = paths.cargo_command();
        cargo.args(["run", "--quiet", "-p", "stepback-testkit", "--bin", "postgres-server", "--"]);
        cargo.arg("shared_buffers=128MB");
        let mut child = cargo.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut address = String::new();
        BufReader::new(child.stdout.take().context("the database has no output")?).read_line(&mut address)?;
        let address = address.trim().to_owned();
        ensure!(!address.is_empty(), "PostgreSQL does not start; `cargo xtask postgres install` installs it");
        Ok(Self { child, address })
    }

    /// The address of the database that always exists.
    pub fn default_database(&self) -> String {
        self.address.rsplit_once('/').map_or_else(String::new, |(server, _)| format!("{server}/postgres"))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // The server ends when no process holds its standard input open any more.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It still exists only if a measurement failed.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
