//! The proxy under measurement: the release binary in its own process and with its own store, recording as in daily use.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::measure::clock::run_untimed;
use crate::systems::SystemDirs;

/// A running proxy.
pub struct ProxyProcess {
    child: Child,
    binary: PathBuf,
    dirs: SystemDirs,
    /// Where agents find it.
    pub addr: SocketAddr,
}

impl ProxyProcess {
    /// Starts a proxy in front of the model at `upstream`.
    pub fn start(area: &Path, binary: &Path, upstream: SocketAddr) -> Result<Self> {
        let dirs = SystemDirs::new(area, "proxy");
        for directory in [&dirs.tree, &dirs.store] {
            crate::input::trees::remove(directory)?;
            fs::create_dir_all(directory)?;
        }
        let mut child = stepback_command(binary, &dirs)
            .args(["proxy", "--upstream", &format!("http://{upstream}"), "--json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the proxy")?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("the proxy has no stdout")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let document: Value = serde_json::from_str(&line).context("the proxy said not where it listens")?;
        let url = document["url"].as_str().unwrap_or_default();
        let addr =
            url.trim_start_matches("http://").parse().with_context(|| format!("\"{url}\" is no address"))?;
        Ok(Self { child, binary: binary.to_owned(), dirs, addr })
    }

    /// The CPU time it has used so far.
    pub fn cpu_time(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The program name may contain any character, so fields are counted from the end; user and system time are the
        // 14th and 15th.
        let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
        let ticks: u64 =
            behind.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Ok(Duration::from_millis(ticks * 10))
    }

    /// Its largest resident set so far, in bytes.
    pub fn peak_memory(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no peak is known")?;
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").trim().parse()?;
        Ok(kilobytes * 1024)
    }

    /// Waits until all traffic is recorded: the inbox is empty and the process uses no CPU time.
    pub fn wait_until_idle(&self) -> Result<()> {
        let mut cpu_before = self.cpu_time()?;
        for _ in 0..600 {
            std::thread::sleep(Duration::from_millis(100));
            let now = self.cpu_time()?;
            if now == cpu_before {
                break;
            }
            cpu_before = now;
        }
        Ok(())
    }

    /// Stops it, and returns how many model calls are in its record.
    pub fn stop_and_count(mut self) -> Result<u64> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the proxy failed: {status}");
        let stdout = run_untimed(stepback_command(&self.binary, &self.dirs).args(["sessions", "--json"]))?;
        let document: Value = serde_json::from_slice(&stdout)?;
        // A recorded call is two steps, one for the request and one for the answer.
        let steps = |session: &Value| session["steps"].as_u64().unwrap_or_default();
        let steps: u64 = document["items"].as_array().map_or(0, |items| items.iter().map(steps).sum());
        Ok(steps / 2)
    }
}

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        // It still exists only if a measurement failed.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn stepback_command(binary: &Path, dirs: &SystemDirs) -> Command {
    let mut command = Command::new(binary);
    // Does not use the user's own store or the settings of their agents.
    command.env("STEPBACK_HOME", &dirs.store).env_remove("ANTHROPIC_BASE_URL").arg("-C").arg(&dirs.tree);
    command
}
