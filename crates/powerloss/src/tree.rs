//! What a user sees of a directory: its files byte for byte, and what git says about it.
//!
//! Deliberately simple and slow: it shares no code with what it checks.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// More would not be read.
const SHOWN_DIFFERENCES: usize = 4;

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Directory { mode: u32 },
    File { mode: u32, bytes: Vec<u8> },
    Link { target: PathBuf },
}

/// A directory tree without `.git`, and the state of the repository in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryTree {
    entries: BTreeMap<PathBuf, Entry>,
    git: Vec<String>,
}

impl DirectoryTree {
    /// Reads a directory.
    pub fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.add(root, Path::new("")).with_context(|| format!("cannot read {}", root.display()))?;
        if root.join(".git").exists() {
            tree.git.push(fs::read_to_string(root.join(".git/HEAD"))?);
            tree.git.push(git(root, &["for-each-ref"])?);
            tree.git.push(git(root, &["--no-optional-locks", "status", "--porcelain"])?);
            tree.git.push(git(root, &["rev-parse", "HEAD^{tree}"])?);
        }
        Ok(tree)
    }

    fn add(&mut self, root: &Path, relative: &Path) -> Result<()> {
        for child in fs::read_dir(root.join(relative))? {
            let child = child?;
            if child.file_name() == ".git" {
                continue;
            }
            let path = relative.join(child.file_name());
            let metadata = child.metadata()?;
            let mode = metadata.permissions().mode() & 0o7777;
            let entry = if metadata.is_symlink() {
                Entry::Link { target: fs::read_link(child.path())? }
            } else if metadata.is_dir() {
                self.add(root, &path)?;
                Entry::Directory { mode }
            } else {
                Entry::File { mode, bytes: fs::read(child.path())? }
            };
            self.entries.insert(path, entry);
        }
        Ok(())
    }

    /// The first few differences to what was expected; empty if there is none.
    pub fn differences(&self, expected: &Self) -> Vec<String> {
        let paths = self.entries.keys().chain(expected.entries.keys());
        let paths: std::collections::BTreeSet<_> = paths.collect();
        let mut differences: Vec<String> = paths
            .into_iter()
            .filter(|path| self.entries.get(*path) != expected.entries.get(*path))
            .map(|path| {
                let describe = |tree: &Self| tree.entries.get(path).map_or("nothing".to_owned(), describe);
                format!("{}: {} instead of {}", path.display(), describe(self), describe(expected))
            })
            .collect();
        if self.git != expected.git {
            differences.push(format!("git: {:?} instead of {:?}", self.git, expected.git));
        }
        if differences.len() > SHOWN_DIFFERENCES {
            let hidden_count = differences.len() - SHOWN_DIFFERENCES;
            differences.truncate(SHOWN_DIFFERENCES);
            differences.push(format!("and {hidden_count} more"));
        }
        differences
    }
}

fn describe(entry: &Entry) -> String {
    match entry {
        Entry::Directory { mode } => format!("a directory {mode:o}"),
        Entry::File { mode, bytes } => {
            let start = bytes[..bytes.len().min(24)].escape_ascii();
            format!("a file {mode:o} of {} bytes \"{start}\"", bytes.len())
        }
        Entry::Link { target } => format!("a link to {}", target.as_os_str().as_bytes().escape_ascii()),
    }
}

/// Runs git in a directory with no settings but the directory's own, and returns its output.
pub fn git(directory: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "-c", "user.name=T", "-c", "user.email=t@example.org"])
        .args(["-c", "gc.auto=0"])
        .args(args)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::null())
        .output()
        .context("cannot start git")?;
    if !output.status.success() {
        bail!("git {} failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
