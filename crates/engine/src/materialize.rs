//! Writes a past state into a directory of its own.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use stepback_model::hash::Hash;
use stepback_model::object::ObjectError;
use stepback_model::path::RelPath;
use stepback_model::plan::{PlannedChange, SkippedPath};
use stepback_model::state::{GitState, WorkspaceState};
use stepback_model::tree::{Content, Tree, TreeNode};
use stepback_worktree::WorktreeError;
use stepback_worktree::anchored_path::same_content;
use stepback_worktree::apply::{Applier, ChangeOutcome};
/// Where to write it: a directory away from everything around it.
pub use stepback_worktree::dir_placement::{apart, make_apart};
use stepback_worktree::restore;

use crate::diff;
use crate::error::EngineError;
use crate::restore_plan::direct;
use crate::revert::Lookup;
use crate::workspace::{StoreSource, Workspace, is_dir};

/// The result of writing a state into a directory.
#[derive(Debug, Default)]
pub struct Materialized {
    /// How many files and links were written.
    pub files: u64,
    /// How many of those are files that share their blocks with the workspace.
    pub cloned: u64,
    /// The total size of the files, in bytes.
    pub bytes: u64,
    /// The paths that could not be written, with the reason.
    pub missing: Vec<SkippedPath>,
    /// The paths whose content is damaged in the store, with the reason.
    pub damaged: Vec<SkippedPath>,
}

/// What to do about content that is damaged in the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfDamaged {
    /// Fail: the caller needs all of it.
    Fail,
    /// Write the rest, and list it.
    List,
}

impl IfDamaged {
    fn tolerates(self, error: &ObjectError) -> bool {
        self == Self::List && matches!(error, ObjectError::Missing { .. } | ObjectError::Corrupt { .. })
    }

    fn tolerates_io(self, error: &io::Error) -> bool {
        let inner = error.get_ref().and_then(|error| error.downcast_ref::<ObjectError>());
        inner.is_some_and(|error| self.tolerates(error))
            || (self == Self::List && error.kind() == io::ErrorKind::NotFound)
    }
}

/// A file that is to be written.
struct ToWrite {
    path: RelPath,
    mode: u32,
    size: u64,
    content: Content,
}

impl Workspace {
    /// Writes the files of `state` into `into`, which must not exist or be empty. With `git`, git directories too.
    pub fn materialize(
        &self,
        state: &WorkspaceState,
        into: &Path,
        git: bool,
    ) -> Result<Materialized, EngineError> {
        self.materialize_into(state, into, git, IfDamaged::Fail)
    }

    /// Like [`Self::materialize`], but writes everything that is intact, and lists what is damaged in
    /// [`Materialized::damaged`].
    pub fn materialize_intact(
        &self,
        state: &WorkspaceState,
        into: &Path,
        git: bool,
    ) -> Result<Materialized, EngineError> {
        self.materialize_into(state, into, git, IfDamaged::List)
    }

    fn materialize_into(
        &self,
        state: &WorkspaceState,
        into: &Path,
        git: bool,
        if_damaged: IfDamaged,
    ) -> Result<Materialized, EngineError> {
        if into.exists() {
            let empty = is_dir(into) && fs::read_dir(into).is_ok_and(|mut entries| entries.next().is_none());
            if !empty {
                return Err(EngineError::NotEmpty { path: into.to_path_buf() });
            }
        }
        fs::create_dir_all(into).map_err(WorktreeError::aside("create", into))?;
        let mut done = Materialized::default();
        // Directory modes are set last: a directory may be read-only.
        let mut modes = Vec::new();
        if let Some(files) = state.files {
            self.write_tree(files, into, RelPath::root(), &mut done, &mut modes, if_damaged)?;
        }
        if git && let Some(git) = state.git {
            let loaded = match GitState::load(&StoreSource(self.store()), git) {
                Err(error) if if_damaged.tolerates(&error) => {
                    let reason = format!("its git directories are damaged in the store: {error}");
                    done.damaged.push(SkippedPath::uncovered(RelPath::root(), reason));
                    GitState::default()
                }
                loaded => loaded?,
            };
            for repository in loaded.repositories {
                let Ok(path) = RelPath::parse(repository.path) else { continue };
                let dir = place(into, &path);
                fs::create_dir_all(&dir).map_err(WorktreeError::aside("create", &dir))?;
                self.write_tree(repository.tree, into, path, &mut done, &mut modes, if_damaged)?;
            }
        }
        for (dir, mode) in modes.into_iter().rev() {
            fs::set_permissions(&dir, Permissions::from_mode(mode))
                .map_err(WorktreeError::aside("set the mode of", dir))?;
        }
        Ok(done)
    }

    /// Turns a directory that holds the files of `from` into one that holds those of `to` by writing the differences, and
    /// returns them; `None` if a path there is not as expected. Nothing is synced to disk.
    pub fn carry_over(
        &self,
        from: &WorkspaceState,
        to: &WorkspaceState,
        dir: &Path,
    ) -> Result<Option<Vec<PlannedChange>>, EngineError> {
        let source = StoreSource(self.store());
        let plan = direct(diff::trees(&source, from.files, to.files)?);
        if !plan.left_alone.is_empty() {
            return Ok(None);
        }
        let vault = self.vault()?;
        let threads = self.engine.threads;
        let applier = Applier::new(dir, &source, vault.as_ref(), "carry-over", threads)?.without_sync();
        let done = applier.apply(&plan.changes, None);
        let all = done.is_ok_and(|outcomes| outcomes.iter().all(|outcome| *outcome == ChangeOutcome::Done));
        Ok(all.then_some(plan.changes))
    }

    fn write_tree(
        &self,
        tree: Hash,
        into: &Path,
        path: RelPath,
        done: &mut Materialized,
        modes: &mut Vec<(PathBuf, u32)>,
        if_damaged: IfDamaged,
    ) -> Result<(), EngineError> {
        let source = StoreSource(self.store());
        let mut files = Vec::new();
        let mut stack = vec![(tree, path)];
        while let Some((tree, path)) = stack.pop() {
            let loaded = match Tree::load(&source, tree) {
                Err(error) if if_damaged.tolerates(&error) => {
                    let reason = format!("the list of its entries is damaged in the store: {error}");
                    done.damaged.push(SkippedPath::uncovered(path, reason));
                    continue;
                }
                loaded => loaded?,
            };
            for entry in loaded.into_entries() {
                let child = path.join(&entry.name);
                let target = place(into, &child);
                let written = match entry.node {
                    TreeNode::Dir { mode, tree } => {
                        modes.push((target.clone(), mode));
                        stack.push((tree, child.clone()));
                        fs::create_dir(&target)
                    }
                    TreeNode::Symlink { target: to } => {
                        done.files += 1;
                        std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(&to), &target)
                    }
                    TreeNode::Skipped { reason } => {
                        if reason != stepback_model::tree::SkipReason::GitDir {
                            let reason = format!("it was not covered ({})", reason.describe());
                            done.missing.push(SkippedPath::uncovered(child.clone(), reason));
                        }
                        Ok(())
                    }
                    TreeNode::File { mode, size, content } => {
                        done.files += 1;
                        done.bytes += size;
                        files.push(ToWrite { path: child, mode, size, content });
                        Ok(())
                    }
                };
                written.map_err(WorktreeError::aside("write", &target))?;
            }
        }
        let (cloned, mut damaged) = self.write_files(into, &files, if_damaged)?;
        done.cloned += cloned;
        for (at, _) in &damaged {
            done.files -= 1;
            done.bytes -= files[*at].size;
        }
        damaged.sort_by_key(|(at, _)| *at);
        done.damaged.extend(damaged.into_iter().map(|(at, reason)| {
            SkippedPath::uncovered(files[at].path.clone(), format!("it is damaged in the store: {reason}"))
        }));
        Ok(())
    }

    /// Writes files into existing directories, on all threads. Returns how many share their blocks with the workspace, and
    /// the positions of those whose content is damaged, with reasons.
    fn write_files(
        &self,
        into: &Path,
        files: &[ToWrite],
        if_damaged: IfDamaged,
    ) -> Result<(u64, Vec<(usize, String)>), EngineError> {
        let vault = self.vault()?;
        let (next, cloned, failure) = (AtomicUsize::new(0), AtomicU64::new(0), Mutex::new(None));
        let damaged = Mutex::new(Vec::new());
        let work = || {
            const FILES_PER_CHUNK: usize = 16;
            loop {
                let from = next.fetch_add(FILES_PER_CHUNK, Ordering::Relaxed);
                for (at, file) in files.iter().enumerate().skip(from).take(FILES_PER_CHUNK) {
                    let target = place(into, &file.path);
                    let written = match (&file.content, file.path.split_last()) {
                        (Content::Vaulted, Some((parent, name))) => {
                            let dir = parent.components().next_back().unwrap_or_default();
                            restore::from_vault(vault.as_ref(), dir, name, &target).map(|()| false)
                        }
                        _ => self.write_file(file, &target),
                    };
                    match written {
                        Ok(is_clone) => {
                            cloned.fetch_add(u64::from(is_clone), Ordering::Relaxed);
                        }
                        Err(error) if if_damaged.tolerates_io(&error) => {
                            // An empty or partial file would look like the content.
                            let _ = fs::remove_file(&target);
                            damaged
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .push((at, error.to_string()));
                        }
                        Err(error) => {
                            let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                            failure.get_or_insert(WorktreeError::aside("write", &target)(error));
                            // Makes the other threads stop as well.
                            next.fetch_max(files.len(), Ordering::Relaxed);
                            return;
                        }
                    }
                    if let Some(progress) = &self.engine.progress {
                        progress.fetch_add(1, Ordering::Relaxed);
                    }
                }
                if from >= files.len() {
                    return;
                }
            }
        };
        let threads = if files.len() < 64 { 1 } else { self.engine.threads.max(1) };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error.into()),
            None => Ok((cloned.into_inner(), damaged.into_inner().unwrap_or_else(PoisonError::into_inner))),
        }
    }

    /// Shares blocks with the workspace's own file if that has this content and the file system supports it; writes the
    /// content otherwise. Returns whether blocks are shared.
    fn write_file(&self, file: &ToWrite, target: &Path) -> io::Result<bool> {
        let ToWrite { path, mode, size, content } = file;
        let source = StoreSource(self.store());
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create_new(true).mode(0o600).open(target)?;
        let original = place(&self.root, path);
        let shares = *size > 0 && restore::clone_into(&original, &file);
        let cloned = shares && same_content(&file, *size, content, &source).unwrap_or(false);
        if !cloned {
            // Only if there is something to truncate: ext4 takes even a truncation that changes nothing for the start of a
            // replacement and flushes the file when it is closed, which made this ten times slower.
            if shares {
                file.set_len(0)?;
            }
            restore::write_content(&mut file, content, &source)?;
        }
        File::set_permissions(&file, Permissions::from_mode(*mode))?;
        Ok(cloned)
    }

    /// Returns the node at `path` in `state` with its bytes: the content of a file or the target of a link. `None` if the path
    /// does not exist there.
    pub fn read_path(
        &self,
        state: &WorkspaceState,
        path: &RelPath,
    ) -> Result<Option<(TreeNode, Vec<u8>)>, EngineError> {
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

    /// Returns the content of a file or the target of a link; empty for any other node.
    pub fn read_node(&self, node: &TreeNode) -> Result<Vec<u8>, EngineError> {
        let source = StoreSource(self.store());
        match node {
            TreeNode::File { content, .. } => Ok(restore::read_content(content, &source)?),
            TreeNode::Symlink { target } => Ok(target.clone()),
            TreeNode::Dir { .. } | TreeNode::Skipped { .. } => Ok(Vec::new()),
        }
    }
}

fn place(root: &Path, path: &RelPath) -> PathBuf {
    root.join(std::ffi::OsStr::from_bytes(path.as_bytes()))
}
