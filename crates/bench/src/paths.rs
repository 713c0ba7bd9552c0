//! Where the workspace is, where cargo puts its results, and programs built from it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The two directories that benchmarks need.
#[derive(Debug)]
pub struct Paths {
    /// The directory of the root manifest.
    pub root: PathBuf,
    /// Where cargo puts build results.
    pub target: PathBuf,
}

impl Paths {
    /// Finds both: this crate is two levels below the root, this program two levels below the target directory.
    pub fn find() -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let target = program.ancestors().nth(2).context("this program is not in a target directory")?;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = root.canonicalize().with_context(|| format!("cannot find {}", root.display()))?;
        Ok(Self { root, target: target.to_path_buf() })
    }

    /// The cargo that started this program, or the one on the path.
    pub fn cargo_command(&self) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&self.root);
        cargo
    }

    /// Builds stepback itself, optimised.
    pub fn build_stepback(&self) -> Result<PathBuf> {
        self.cargo_build(&["--package", "stepback"])?;
        Ok(self.target.join("release/stepback"))
    }

    /// Builds a program that can look into a store.
    pub fn build_example(&self, package: &str, name: &str) -> Result<Command> {
        self.cargo_build(&["--package", package, "--example", name])?;
        Ok(Command::new(self.target.join("release/examples").join(name)))
    }

    fn cargo_build(&self, arguments: &[&str]) -> Result<()> {
        let mut cargo = self.cargo_command();
        cargo.args(["build", "--release", "--quiet"]).args(arguments);
        if !cargo.status().context("cannot start cargo")?.success() {
            bail!("cannot build {}", arguments.join(" "));
        }
        Ok(())
    }
}
