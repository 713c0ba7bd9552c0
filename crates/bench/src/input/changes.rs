//! Change scripts: what an agent might do to a tree between two checkpoints, the same for every system.
//!
//! A script is made once from the list of files and applied to each system's copy, so all copies stay
//! identical. Ten changes are five edits, two additions, a deletion, a rename and a mode change; a single
//! change is an edit. Modes only gain or lose the executable bit, the only part of a mode git records.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};

use crate::input::git;
use crate::input::text::{self, Random};
use crate::measure::clock::run_untimed;

/// Larger files are left alone: the cost of one large file has its own measurement.
const MAX_SIZE: u64 = 64 * 1024;

/// The files scripts may change; follows along as scripts are made.
#[derive(Clone, Debug)]
pub struct Candidates {
    files: Vec<String>,
    random: Random,
    added: usize,
}

/// One change to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FileChange {
    Edit { path: String, seed: u64 },
    Add { path: String, seed: u64 },
    Delete { path: String },
    Rename { from: String, to: String },
    Mode { path: String },
}

/// A list of changes.
#[derive(Clone, Debug)]
pub struct ChangeScript(Vec<FileChange>);

impl Candidates {
    /// Finds the files of a copy that scripts may change: regular, not too large, not ignored by git.
    pub fn find(root: &Path, seed: u64) -> Result<Self> {
        let mut files = if root.join(".git").exists() {
            git::split_nul(&run_untimed(git::command().args(["ls-files", "-z"]).current_dir(root))?)
        } else {
            let mut files = Vec::new();
            list_files(root, "", &mut files)?;
            files
        };
        files.retain(|file| {
            fs::symlink_metadata(root.join(file))
                .is_ok_and(|found| found.is_file() && (1..=MAX_SIZE).contains(&found.len()))
        });
        files.sort();
        Ok(Self { files, random: Random::new(seed), added: 0 })
    }

    /// Whether a script of `count` changes leaves most of the tree unchanged.
    pub fn has_enough(&self, count: usize) -> bool {
        self.files.len() >= count * 2
    }

    /// Makes a script that will be followed by a checkpoint: its results are candidates afterwards.
    pub fn next_script(&mut self, count: usize) -> ChangeScript {
        let mut steps = Vec::with_capacity(count);
        let mut returned = Vec::with_capacity(count);
        for number in 0..count {
            let seed = self.random.next();
            let chosen = self.random.below(self.files.len());
            let kind = number % 10;
            if matches!(kind, 5 | 6) {
                self.added += 1;
                let path = sibling_path(&self.files[chosen], &format!("added{}.rs", self.added));
                returned.push(path.clone());
                steps.push(FileChange::Add { path, seed });
                continue;
            }
            // Removed from the candidates until the script is complete, so that no file is changed twice.
            let path = self.files.swap_remove(chosen);
            match kind {
                7 => steps.push(FileChange::Delete { path }),
                8 => {
                    self.added += 1;
                    let new_path = sibling_path(&path, &format!("renamed{}.rs", self.added));
                    returned.push(new_path.clone());
                    steps.push(FileChange::Rename { from: path, to: new_path });
                }
                9 => {
                    returned.push(path.clone());
                    steps.push(FileChange::Mode { path });
                }
                _ => {
                    returned.push(path.clone());
                    steps.push(FileChange::Edit { path, seed });
                }
            }
        }
        self.files.append(&mut returned);
        ChangeScript(steps)
    }

    /// Makes a script that will be taken back: the candidates stay as they are.
    pub fn passing_script(&mut self, count: usize) -> ChangeScript {
        let files = self.files.clone();
        let script = self.next_script(count);
        self.files = files;
        script
    }

    /// Two different files to edit, for the restore of only one of them.
    pub fn edit_pair(&mut self) -> (String, ChangeScript) {
        let script = self.passing_script(2);
        let first = script.0[0].paths()[0].to_owned();
        (first, script)
    }
}

impl FileChange {
    fn paths(&self) -> Vec<&str> {
        match self {
            Self::Edit { path, .. }
            | Self::Add { path, .. }
            | Self::Delete { path }
            | Self::Mode { path } => {
                vec![path]
            }
            Self::Rename { from, to } => vec![from, to],
        }
    }

    fn apply(&self, root: &Path) -> Result<()> {
        match self {
            Self::Edit { path, seed } => {
                let file = root.join(path);
                let mut content = fs::read(&file)?;
                let middle = content.len() / 2;
                let index = content[middle..]
                    .iter()
                    .position(|byte| *byte == b'\n')
                    .map_or(middle, |p| middle + p + 1);
                let line = format!("    // Changed by step {seed:016x}.\n");
                content.splice(index..index, line.into_bytes());
                fs::write(&file, content)?;
            }
            Self::Add { path, seed } => {
                let mut random = Random::new(*seed);
                let size = 500 + random.below(8_000);
                fs::write(root.join(path), text::source(&mut random, size))?;
            }
            Self::Delete { path } => fs::remove_file(root.join(path))?,
            Self::Rename { from, to } => fs::rename(root.join(from), root.join(to))?,
            Self::Mode { path } => {
                let mode = fs::metadata(root.join(path))?.permissions().mode();
                let flipped = if mode & 0o100 == 0 { 0o755 } else { 0o644 };
                fs::set_permissions(root.join(path), fs::Permissions::from_mode(flipped))?;
            }
        }
        Ok(())
    }
}

impl ChangeScript {
    /// Changes the copy under `root`.
    pub fn apply(&self, root: &Path) -> Result<()> {
        self.0.iter().try_for_each(|step| {
            step.apply(root).with_context(|| format!("cannot apply {step:?} in {}", root.display()))
        })
    }

    /// Every path the script changes; both names of a rename.
    pub fn touched_paths(&self) -> Vec<String> {
        let paths: BTreeSet<&str> = self.0.iter().flat_map(FileChange::paths).collect();
        paths.into_iter().map(str::to_owned).collect()
    }
}

/// The content of some paths before a script, to repair a copy that a system did not restore.
#[derive(Debug)]
pub struct SavedFiles(Vec<(String, Option<Content>)>);

/// The bytes and the mode of a file.
type Content = (Vec<u8>, fs::Permissions);

impl SavedFiles {
    /// Reads the present content of the paths.
    pub fn read(root: &Path, paths: &[String]) -> Result<Self> {
        let read = |path: &String| -> Result<_> {
            let file = root.join(path);
            let content = match fs::read(&file) {
                Ok(content) => Some((content, fs::metadata(&file)?.permissions())),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
            };
            Ok((path.clone(), content))
        };
        Ok(Self(paths.iter().map(read).collect::<Result<_>>()?))
    }

    /// Writes the saved content back.
    pub fn put_back(&self, root: &Path) -> Result<()> {
        for (path, content) in &self.0 {
            let file = root.join(path);
            match content {
                Some((content, permissions)) => {
                    if let Some(parent) = file.parent() {
                        fs::create_dir_all(parent)?;
                    }
                    fs::write(&file, content)?;
                    fs::set_permissions(&file, permissions.clone())?;
                }
                None if file.exists() => fs::remove_file(&file)?,
                None => {}
            }
        }
        Ok(())
    }
}

fn sibling_path(path: &str, name: &str) -> String {
    path.rsplit_once('/').map_or_else(|| name.to_owned(), |(directory, _)| format!("{directory}/{name}"))
}

fn list_files(root: &Path, prefix: &str, files: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(root.join(prefix))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
        if !entry.file_type()?.is_dir() {
            files.push(path);
        } else if name != ".git" {
            list_files(root, &path, files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::manifest::Manifest;

    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("bench-changes-{name}-{}", std::process::id()));
            fs::create_dir_all(path.join("sub")).unwrap();
            for index in 0..60 {
                let folder = if index % 2 == 0 { "" } else { "sub/" };
                fs::write(path.join(format!("{folder}f{index}")), format!("one\ntwo {index}\nthree\n"))
                    .unwrap();
            }
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_same_script_gives_the_same_tree() {
        let (a, b) = (Scratch::new("a"), Scratch::new("b"));
        let mut candidates = Candidates::find(&a.0, 5).unwrap();
        for _ in 0..4 {
            let script = candidates.next_script(10);
            script.apply(&a.0).unwrap();
            script.apply(&b.0).unwrap();
        }
        let (a, b) = (Manifest::read(&a.0).unwrap(), Manifest::read(&b.0).unwrap());
        assert_eq!(a.differences(&b), Vec::<String>::new());
    }

    #[test]
    fn ten_changes_are_a_mix_and_saved_content_takes_them_back() {
        let scratch = Scratch::new("mix");
        let before = Manifest::read(&scratch.0).unwrap();
        let script = Candidates::find(&scratch.0, 9).unwrap().passing_script(10);
        let touched = script.touched_paths();
        assert_eq!(touched.len(), 11, "a rename touches two names: {touched:?}");
        let saved = SavedFiles::read(&scratch.0, &touched).unwrap();
        script.apply(&scratch.0).unwrap();
        let after = Manifest::read(&scratch.0).unwrap();
        assert_eq!(before.differences(&after).len(), 11);
        saved.put_back(&scratch.0).unwrap();
        assert!(before.differences(&Manifest::read(&scratch.0).unwrap()).is_empty());
    }
}
