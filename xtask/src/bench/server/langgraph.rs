//! LangGraph's SQLite saver, from PyPI, in an environment of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Puts checkpoints of about a kilobyte into a database, one after the other, and prints how long each took.
const PUTS: &str = r#"
import json, sqlite3, sys, time
from importlib.metadata import version
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

count, path = int(sys.argv[1]), sys.argv[2]
saver = SqliteSaver(sqlite3.connect(path, check_same_thread=False))
saver.setup()
config = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
took = []
for number in range(count):
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"output": f"{number} " + "x" * 700, "input": {"command": f"make test N={number}"}}
    before = time.perf_counter()
    config = saver.put(config, checkpoint, {"source": "loop", "step": number}, {})
    took.append((time.perf_counter() - before) * 1e3)
print(json.dumps({"version": version("langgraph-checkpoint-sqlite"), "took_ms": took}))
"#;

/// A Python that has the saver.
pub struct Saver {
    python: PathBuf,
    /// The saver's version.
    pub version: String,
}

/// Installs the saver, once.
pub fn prepare(cache: &Path) -> Result<Saver> {
    let environment = cache.join("langgraph");
    let python = environment.join("bin/python");
    if !environment.join("installed").exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "langgraph-checkpoint-sqlite"]))?;
        std::fs::write(environment.join("installed"), "")?;
    }
    let mut saver = Saver { python, version: String::new() };
    let scratch = cache.join("langgraph-probe.sqlite");
    saver.version = saver.ask(1, &scratch)?.0;
    Ok(saver)
}

impl Saver {
    /// Puts so many checkpoints into a database of their own below `area`. Returns how long each took, in milliseconds.
    pub fn puts(&self, area: &Path, count: usize) -> Result<Vec<f64>> {
        Ok(self.ask(count, &area.join("langgraph.sqlite"))?.1)
    }

    fn ask(&self, count: usize, database: &Path) -> Result<(String, Vec<f64>)> {
        let out = Command::new(&self.python).args(["-c", PUTS, &count.to_string()]).arg(database).output()?;
        ensure!(out.status.success(), "the saver failed: {}", String::from_utf8_lossy(&out.stderr));
        let document: Value = serde_json::from_slice(&out.stdout).context("the saver said something else")?;
        let took = document["took_ms"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        Ok((document["version"].as_str().unwrap_or_default().to_owned(), took))
    }
}

fn run(command: &mut Command) -> Result<()> {
    let out = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !out.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    }
    Ok(())
}
