//! A process that appends to a store by itself, without a server: an example of the program's own crate.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::measure::clock::run_untimed;
use crate::paths::Paths;

/// The program, and where its stores are.
pub struct Appender {
    program: PathBuf,
    area: PathBuf,
}

impl Appender {
    /// Builds it.
    pub fn build(paths: &Paths, area: &Path) -> Result<Self> {
        let program = paths.build_example("stepback", "append")?.get_program().into();
        Ok(Self { program, area: area.to_owned() })
    }

    /// Appends `count` steps, from number `first` on, to a store: the address of a database, or the name of a directory.
    /// Returns how long each took, in milliseconds.
    pub fn append_steps(&self, store: &str, first: usize, count: usize) -> Result<Vec<f64>> {
        let mut command = Command::new(&self.program);
        match store.contains("://") {
            true => command.arg(store),
            false => command.arg(self.area.join(store)),
        };
        command.arg(self.area.join("appended.local")).arg(first.to_string()).arg(count.to_string());
        let document: Value =
            serde_json::from_slice(&run_untimed(&mut command)?).context("it printed no JSON document")?;
        Ok(document["took_ms"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect())
    }
}
