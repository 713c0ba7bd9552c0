//! The program under test, and where its workspace and store are on the recorded disk.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A command that takes longer hangs.
const TIMEOUT_SECONDS: &str = "120";

/// stepback, with everything it uses on the disk under test.
#[derive(Clone, Debug)]
pub struct Program {
    executable: PathBuf,
    disk: PathBuf,
}

impl Program {
    /// The program, and where the disk is mounted.
    pub fn new(executable: &Path, disk: &Path) -> Self {
        Self { executable: executable.to_owned(), disk: disk.to_owned() }
    }

    /// A path on the disk.
    pub fn on_disk(&self, name: &str) -> PathBuf {
        self.disk.join(name)
    }

    /// The workspace.
    pub fn workspace(&self) -> PathBuf {
        self.on_disk("workspace")
    }

    /// The store.
    pub fn store(&self) -> PathBuf {
        self.on_disk("store")
    }

    /// Runs a command in the workspace.
    pub fn output(&self, args: &[&str], input: Option<&Path>) -> Result<Output> {
        let input = match input {
            Some(path) => Stdio::from(std::fs::File::open(path)?),
            None => Stdio::null(),
        };
        Command::new("timeout")
            .args(["--signal=KILL", TIMEOUT_SECONDS])
            .arg(&self.executable)
            .args(args)
            .current_dir(self.workspace())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.on_disk("home"))
            .env("STEPBACK_HOME", self.store())
            .stdin(input)
            .output()
            .with_context(|| format!("cannot start {}", self.executable.display()))
    }

    /// Runs a command that has to succeed, and returns what it printed.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        let output = self.output(args, None)?;
        if !output.status.success() {
            bail!(
                "stepback {} failed ({}): {}{}",
                args.join(" "),
                output.status,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The same, for a command that prints a document.
    pub fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.run(&[args, &["--json"]].concat())?;
        serde_json::from_str(&text).with_context(|| format!("stepback {} printed no JSON", args.join(" ")))
    }

    /// Numbers of the checkpoints that are listed.
    pub fn checkpoints(&self) -> Result<Vec<u64>> {
        let list = self.json(&["checkpoint", "list"])?;
        let items = list["items"].as_array().context("a list without items")?;
        Ok(items.iter().filter_map(|item| item["number"].as_u64()).collect())
    }
}
