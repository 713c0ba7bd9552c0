//! The root of the workspace and its crates, as cargo reports them.
//!
//! `cargo metadata` is the only source: guessing crate edges from manifests by hand would miss renames,
//! target-specific and build dependencies.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// How a dependency is used; the layer rules differ by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependencyKind {
    /// Linked into the crate itself.
    Normal,
    /// Used by the crate's build script.
    Build,
    /// Used only by the crate's tests, examples and benches.
    Dev,
}

/// One workspace crate and its dependencies on other workspace crates.
#[derive(Clone, Debug)]
pub struct Crate {
    /// The folder name, which is how ARCHITECTURE.md names a crate.
    pub folder: String,
    /// The package name in the manifest.
    pub package: String,
    /// The crate's directory.
    pub directory: PathBuf,
    /// Edges to other workspace crates, by package name.
    pub dependencies: Vec<(String, DependencyKind)>,
}

/// The workspace as cargo sees it.
#[derive(Clone, Debug)]
pub struct CargoWorkspace {
    /// The directory of the root manifest.
    pub root: PathBuf,
    /// Where cargo puts build results.
    pub target: PathBuf,
    /// All member crates.
    pub crates: Vec<Crate>,
}

/// The root directory, known since this crate was compiled in it.
pub fn root() -> PathBuf {
    // The manifest of this crate is one level below the root. A moved checkout keeps working because
    // `cargo run` sets the variable again at run time.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or(manifest.clone(), Path::to_path_buf)
}

/// The cargo that runs this task, or the one on the path.
pub fn cargo_command() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Queries cargo for the workspace's crates.
pub fn load() -> Result<CargoWorkspace> {
    parse(&cargo_metadata(&["--no-deps"])?)
}

/// The output of `cargo metadata` with these arguments.
pub fn cargo_metadata(args: &[&str]) -> Result<Value> {
    let mut cargo = cargo_command();
    cargo.args(["metadata", "--format-version", "1"]).args(args).current_dir(root());
    let output = cargo.output().context("cannot start cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")
}

fn parse(metadata: &Value) -> Result<CargoWorkspace> {
    let text = |value: &Value, key: &str| -> Result<String> {
        Ok(value[key].as_str().with_context(|| format!("cargo metadata has no `{key}`"))?.to_owned())
    };
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut crates = Vec::new();
    for package in packages {
        let manifest = PathBuf::from(text(package, "manifest_path")?);
        let directory = manifest.parent().context("a manifest without a directory")?.to_path_buf();
        let folder = directory.file_name().context("a crate at the file system root")?;
        let mut dependencies = Vec::new();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let name = text(dependency, "name")?;
            let kind = match dependency["kind"].as_str() {
                None => DependencyKind::Normal,
                Some("build") => DependencyKind::Build,
                Some("dev") => DependencyKind::Dev,
                Some(other) => bail!("cargo metadata reports an unknown dependency kind `{other}`"),
            };
            if names.contains(&name.as_str()) {
                dependencies.push((name, kind));
            }
        }
        crates.push(Crate {
            folder: folder.to_string_lossy().into_owned(),
            package: text(package, "name")?,
            directory,
            dependencies,
        });
    }
    crates.sort_by(|a, b| a.folder.cmp(&b.folder));
    Ok(CargoWorkspace {
        root: PathBuf::from(text(metadata, "workspace_root")?),
        target: PathBuf::from(text(metadata, "target_directory")?),
        crates,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_keeps_only_edges_inside_the_workspace() {
        let metadata = serde_json::json!({
            "workspace_root": "/w", "target_directory": "/w/target",
            "packages": [
                { "name": "app-b", "manifest_path": "/w/crates/b/Cargo.toml", "dependencies": [] },
                { "name": "app-a", "manifest_path": "/w/crates/a/Cargo.toml", "dependencies": [
                    { "name": "serde", "kind": null },
                    { "name": "app-b", "kind": null },
                    { "name": "app-b", "kind": "dev" },
                ] },
            ],
        });
        let workspace = parse(&metadata).unwrap();
        assert_eq!(workspace.crates[0].folder, "a");
        assert_eq!(
            workspace.crates[0].dependencies,
            [("app-b".to_owned(), DependencyKind::Normal), ("app-b".to_owned(), DependencyKind::Dev)]
        );
    }
}
