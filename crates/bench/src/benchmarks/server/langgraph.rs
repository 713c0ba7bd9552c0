//! LangGraph's savers, from PyPI, in an environment of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// A Python program that puts checkpoints of about a kilobyte into a database, one after the other, and prints how long
/// each took. It passes the versions of the changed channels, as LangGraph does, and reads the last checkpoint back:
/// without versions, the saver over PostgreSQL stores only texts and numbers.
const PUTS: &str = r#"
import json, sqlite3, sys, time
from importlib.metadata import version
from langgraph.checkpoint.base import empty_checkpoint

count, kind, database = int(sys.argv[1]), sys.argv[2], sys.argv[3]

def put_all(saver):
    saver.setup()
    config = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
    took, versions = [], {"output": None, "input": None}
    for number in range(count):
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"output": f"{number} " + "x" * 700, "input": {"command": f"make test N={number}"}}
        versions = {name: saver.get_next_version(version, None) for name, version in versions.items()}
        checkpoint["channel_versions"] = versions
        before = time.perf_counter()
        config = saver.put(config, checkpoint, {"source": "loop", "step": number}, versions)
        took.append((time.perf_counter() - before) * 1e3)
    stored = saver.get_tuple(config).checkpoint["channel_values"]
    assert stored == checkpoint["channel_values"], f"{stored} is stored"
    return took

if kind == "sqlite":
    from langgraph.checkpoint.sqlite import SqliteSaver
    took = put_all(SqliteSaver(sqlite3.connect(database, check_same_thread=False)))
else:
    from langgraph.checkpoint.postgres import PostgresSaver
    with PostgresSaver.from_conn_string(database) as saver:
        took = put_all(saver)
print(json.dumps({"version": version(f"langgraph-checkpoint-{kind}"), "took_ms": took}))
"#;

/// What is installed.
const PACKAGES: [&str; 3] =
    ["langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres", "psycopg[binary]"];

/// A saver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saver {
    /// The one over SQLite.
    Sqlite,
    /// The one over PostgreSQL.
    Postgres,
}

impl Saver {
    /// Its name in the name of its package.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

/// A Python that has the savers.
pub struct Python(PathBuf);

/// Installs the savers, once.
pub fn install_savers(cache: &Path) -> Result<Python> {
    let environment = cache.join("langgraph-savers");
    let python = environment.join("bin/python");
    if !environment.join("installed").exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES))?;
        std::fs::write(environment.join("installed"), "")?;
    }
    Ok(Python(python))
}

impl Python {
    /// Runs a saver that puts `count` checkpoints into a database. Returns its version and the duration of each put, in
    /// milliseconds.
    pub fn put_checkpoints(&self, saver: Saver, database: &str, count: usize) -> Result<(String, Vec<f64>)> {
        let mut command = Command::new(&self.0);
        let out = command.args(["-c", PUTS, &count.to_string(), saver.name(), database]).output()?;
        ensure!(out.status.success(), "the saver failed: {}", String::from_utf8_lossy(&out.stderr));
        let document: Value = serde_json::from_slice(&out.stdout).context("the saver said something else")?;
        let durations_ms =
            document["took_ms"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        Ok((document["version"].as_str().unwrap_or_default().to_owned(), durations_ms))
    }
}

fn run(command: &mut Command) -> Result<()> {
    let out = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !out.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    }
    Ok(())
}
