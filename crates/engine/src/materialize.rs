//! Putting a past state into a directory of its own.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use stepback_model::hash::Hash;
use stepback_model::path::RelPath;
use stepback_model::plan::LeftAlone;
use stepback_model::state::{GitState, State};
use stepback_model::tree::{Content, Node, Tree};
use stepback_worktree::WorktreeError;
use stepback_worktree::apply::{Applier, Outcome};
use stepback_worktree::beneath::same_content;
use stepback_worktree::restore;

use crate::diff;
use crate::direct::direct;
use crate::error::EngineError;
use crate::revert::Lookup;
use crate::workspace::{StoreSource, Workspace, is_dir};

/// What was put where.
#[derive(Debug, Default)]
pub struct Materialized {
    /// Files and links written.
    pub files: u64,
    /// Of those, files that share their blocks with the workspace.
    pub cloned: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// What could not be written.
    pub missing: Vec<LeftAlone>,
}

impl Workspace<'_> {
    /// Writes the files of `state` into `into`, which must not exist or be empty. With `git`, git directories too.
    pub fn materialize(&self, state: &State, into: &Path, git: bool) -> Result<Materialized, EngineError> {
        if into.exists() {
            let empty = is_dir(into) && fs::read_dir(into).is_ok_and(|mut entries| entries.next().is_none());
            if !empty {
                return Err(EngineError::Input(format!(
                    "{} exists and is not an empty directory; name a new one",
                    into.display()
                )));
            }
        }
        fs::create_dir_all(into).map_err(WorktreeError::aside("create", into))?;
        let mut done = Materialized::default();
        // Modes of directories come last: one may be read-only.
        let mut modes = Vec::new();
        if let Some(files) = state.files {
            self.write_tree(files, into, RelPath::root(), &mut done, &mut modes)?;
        }
        if git && let Some(git) = state.git {
            for repository in GitState::load(&StoreSource(self.store()), git)?.repositories {
                let Ok(path) = RelPath::parse(repository.path) else { continue };
                let dir = place(into, &path);
                fs::create_dir_all(&dir).map_err(WorktreeError::aside("create", &dir))?;
                self.write_tree(repository.tree, into, path, &mut done, &mut modes)?;
            }
        }
        for (dir, mode) in modes.into_iter().rev() {
            fs::set_permissions(&dir, Permissions::from_mode(mode))
                .map_err(WorktreeError::aside("set the mode of", dir))?;
        }
        Ok(done)
    }

    /// Makes of a directory that holds the files of `from` one that holds those of `to`, by writing what differs; `false` if
    /// something there is not what it should be.
    pub fn carry_over(&self, from: &State, to: &State, dir: &Path) -> Result<bool, EngineError> {
        let source = StoreSource(self.store());
        let plan = direct(diff::trees(&source, from.files, to.files)?);
        if !plan.left_alone.is_empty() {
            return Ok(false);
        }
        let vault = self.vault()?;
        let applier = Applier::new(dir, &source, vault.as_ref(), "carry-over", 1)?;
        match applier.apply(&plan.changes, None) {
            Ok(outcomes) => Ok(outcomes.iter().all(|outcome| *outcome == Outcome::Done)),
            Err(_) => Ok(false),
        }
    }

    fn write_tree(
        &self,
        tree: Hash,
        into: &Path,
        path: RelPath,
        done: &mut Materialized,
        modes: &mut Vec<(PathBuf, u32)>,
    ) -> Result<(), EngineError> {
        let source = StoreSource(self.store());
        let vault = self.vault()?;
        let mut stack = vec![(tree, path)];
        while let Some((tree, path)) = stack.pop() {
            for entry in Tree::load(&source, tree)?.into_entries() {
                let child = path.join(&entry.name);
                let target = place(into, &child);
                let written = match &entry.node {
                    Node::Dir { mode, tree } => {
                        modes.push((target.clone(), *mode));
                        stack.push((*tree, child.clone()));
                        fs::create_dir(&target)
                    }
                    Node::Symlink { target: to } => {
                        done.files += 1;
                        std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(to), &target)
                    }
                    Node::Skipped { reason } => {
                        if *reason != stepback_model::tree::SkipReason::GitDir {
                            let reason = format!("it was not covered ({})", reason.describe());
                            done.missing.push(LeftAlone::uncovered(child.clone(), reason));
                        }
                        Ok(())
                    }
                    Node::File { mode, size, content } => {
                        done.files += 1;
                        done.bytes += size;
                        if let Some(progress) = self.engine.progress {
                            progress.fetch_add(1, Ordering::Relaxed);
                        }
                        match content {
                            Content::Vaulted => {
                                let dir = path.components().next_back().unwrap_or_default();
                                restore::from_vault(vault.as_ref(), dir, &entry.name, &target)
                            }
                            _ => self.write_file(&child, &target, *mode, *size, content, done),
                        }
                    }
                };
                written.map_err(WorktreeError::aside("write", &target))?;
            }
        }
        Ok(())
    }

    /// Shares blocks with the workspace's own file where that has this content and the file system can; writes otherwise.
    fn write_file(
        &self,
        path: &RelPath,
        target: &Path,
        mode: u32,
        size: u64,
        content: &Content,
        done: &mut Materialized,
    ) -> io::Result<()> {
        let source = StoreSource(self.store());
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create_new(true).mode(0o600).open(target)?;
        let original = place(&self.root, path);
        let cloned = size > 0
            && restore::clone_into(&original, &file)
            && same_content(&file, size, content, &source).unwrap_or(false);
        if cloned {
            done.cloned += 1;
        } else {
            file.set_len(0)?;
            restore::write_content(&mut file, content, &source)?;
        }
        File::set_permissions(&file, Permissions::from_mode(mode))
    }

    /// The bytes of a file or the target of a link in `state`.
    pub fn read_path(&self, state: &State, path: &RelPath) -> Result<Option<(Node, Vec<u8>)>, EngineError> {
        let source = StoreSource(self.store());
        let node = Lookup::new(&source, state.files).get(path)?;
        Ok(match node {
            None => None,
            Some(node) => {
                let bytes = self.read_node(&node)?;
                Some((node, bytes))
            }
        })
    }

    /// The bytes of a file, the target of a link, nothing for anything else.
    pub fn read_node(&self, node: &Node) -> Result<Vec<u8>, EngineError> {
        let source = StoreSource(self.store());
        match node {
            Node::File { content, .. } => Ok(restore::read_content(content, &source)?),
            Node::Symlink { target } => Ok(target.clone()),
            Node::Dir { .. } | Node::Skipped { .. } => Ok(Vec::new()),
        }
    }
}

fn place(root: &Path, path: &RelPath) -> PathBuf {
    root.join(std::ffi::OsStr::from_bytes(path.as_bytes()))
}
