//! SQLite databases in a plan: a database and the files beside it change together, and not while a process has them open.
//!
//! The bytes of a database are spread over the file itself, its write-ahead log (`-wal`) or rollback journal (`-journal`),
//! and an index of the log that processes share (`-shm`). A database from one moment beside a log from another is damaged, so
//! a plan changes all of these files or none of them, whatever paths it was limited to. A process that has a database open
//! keeps the replaced files open, continues to write to them, and deletes the log by name when it ends; so an open database
//! is left alone and listed unless the user forces it. For other files that are open for writing, a plan only warns.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::unix::fs::FileExt;

use stepback_model::change::PathChange;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::list;
use stepback_model::object::{ObjectError, ObjectSource};
use stepback_model::path::RelPath;
use stepback_model::plan::{How, PlannedChange, RewindPlan, SkippedPath};
use stepback_model::state::WorkspaceState;
use stepback_model::tree::{Content, TreeNode};
use stepback_worktree::anchored_path::{AnchoredDir, open_file};
use stepback_worktree::apply::ChangeOutcome;
use stepback_worktree::open_files::{FileWriter, find_writers};
use stepback_worktree::scan::single::{Looker, Single};

use crate::changes::NumberedChange;
use crate::error::EngineError;
use crate::path_filter::PathFilter;
use crate::revert::{TreeLookup, is_same_node};
use crate::rewind::PreparedRewind;
use crate::workspace::{StoreSource, Workspace};

/// Suffixes that SQLite appends to the name of a database for the files beside it. The `-shm` file holds nothing that must be
/// restored.
const SUFFIXES: [&[u8]; 3] = [b"-wal", b"-shm", b"-journal"];
const SHARED_MEMORY_SUFFIX: &[u8] = b"-shm";
/// Magic bytes at the start of a database.
const DATABASE_MAGIC: &[u8] = b"SQLite format 3\0";
/// Magic bytes of a write-ahead log (in either byte order) and of a rollback journal.
const LOG_MAGICS: [&[u8]; 3] =
    [b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83", b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"];
/// The smallest page size in bytes. A database consists of whole pages, which few other files do.
const MIN_PAGE_BYTES: u64 = 512;
/// Maximum number of open files that warnings list by name.
const MAX_LISTED_FILES: usize = 10;

/// A planned change that is held back unless the user forces it, because a process has the database open.
#[derive(Clone, Debug)]
pub(crate) struct HeldChange {
    change: PlannedChange,
    database: RelPath,
    /// Why the change is left alone.
    reason: String,
    /// The warning to show if the user forces it.
    warning: String,
}

/// The effect of open files on a plan: changes held back, and warnings.
#[derive(Default)]
pub(crate) struct OpenFileEffects {
    held: Vec<HeldChange>,
    warnings: Vec<String>,
}

/// Returns the database that a file of this name would belong to.
fn database_for_sidecar(path: &RelPath) -> Option<RelPath> {
    let (parent, name) = path.split_last()?;
    let base = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(*suffix))?;
    (!base.is_empty()).then(|| parent.join(base))
}

/// Returns the paths of a database and of the files that may exist beside it.
fn possible_database_files(database: &RelPath) -> Vec<RelPath> {
    let Some((parent, name)) = database.split_last() else { return Vec::new() };
    let sidecars = SUFFIXES.iter().map(|suffix| parent.join(&[name, suffix].concat()));
    std::iter::once(database.clone()).chain(sidecars).collect()
}

/// Returns `paths` and the other possible files of the same databases.
pub(crate) fn add_sidecar_files(paths: Vec<RelPath>) -> Vec<RelPath> {
    let mut seen: BTreeSet<RelPath> = paths.iter().cloned().collect();
    let mut result = paths.clone();
    for path in paths {
        let database = database_for_sidecar(&path).unwrap_or(path);
        result
            .extend(possible_database_files(&database).into_iter().filter(|file| seen.insert(file.clone())));
    }
    result
}

impl Workspace {
    /// Returns the paths of `changes` that `filter` excludes although it includes another file of the same database.
    pub(crate) fn find_database_files<'c>(
        &self,
        filter: &PathFilter,
        changes: impl IntoIterator<Item = &'c PathChange>,
    ) -> Result<HashSet<RelPath>, EngineError> {
        let mut excluded = HashSet::new();
        for PathChange { path, before, after, .. } in changes {
            let related_files = add_sidecar_files(vec![path.clone()]);
            if filter.matches(path) || !related_files.iter().any(|path| filter.matches(path)) {
                continue;
            }
            let (path, present_node, planned_node) = (path.clone(), before.clone(), after.clone());
            let change = PlannedChange { path, now: present_node, then: planned_node, how: How::Restored };
            if self.find_database(&change.path, std::slice::from_ref(&change))?.is_some() {
                excluded.insert(change.path);
            }
        }
        Ok(excluded)
    }

    /// Makes `plan` change every database whole or not at all. `target_tree_of` returns the tree that a planned path goes back to;
    /// `is_foreign` returns whether a path that the plan does not name must stay as it is.
    pub(crate) fn complete_databases(
        &self,
        plan: &mut RewindPlan,
        present: Option<Hash>,
        target_tree_of: &dyn Fn(&RelPath) -> Option<Hash>,
        is_foreign: &dyn Fn(&RelPath) -> bool,
    ) -> Result<(), EngineError> {
        let source = StoreSource(self.store());
        let databases = self.find_databases(&plan.changes)?;
        if databases.is_empty() {
            return Ok(());
        }
        let mut present = TreeLookup::new(&source, present);
        for database in databases {
            let files = possible_database_files(&database);
            let planned = |path: &RelPath| plan.changes.iter().any(|change| change.path == *path);
            let mut added = Vec::new();
            let mut stays = files.iter().find(|file| {
                !is_shared_index(file) && plan.left_alone.iter().any(|skipped| skipped.path == **file)
            });
            let target = files.iter().find(|file| planned(file)).and_then(target_tree_of);
            let mut target = TreeLookup::new(&source, target);
            for file in files.iter().filter(|file| !planned(file)) {
                let (now, then) = (present.get(file)?, target.get(file)?);
                if is_same_node(&now, &then) {
                    continue;
                }
                let is_stored = |node: &Option<TreeNode>| node.as_ref().is_none_or(TreeNode::is_stored);
                if is_foreign(file) || !is_stored(&now) || !is_stored(&then) {
                    stays = stays.or((!is_shared_index(file)).then_some(file));
                } else {
                    added.push(PlannedChange { path: file.clone(), now, then, how: How::Restored });
                }
            }
            match stays {
                None => plan.changes.extend(added),
                Some(stays) => {
                    let reason = format!("it is useless without {stays}, which does not change");
                    skip_planned_changes(plan, &files, |_| reason.clone());
                }
            }
        }
        plan.changes.sort_by(|a, b| a.path.cmp_by_components(&b.path));
        Ok(())
    }

    /// Like [`Self::complete_databases`] for a plan that takes back the changes `chosen`, oldest first: later changes by
    /// other authors stay.
    pub(crate) fn complete_databases_for_changes(
        &self,
        plan: &mut RewindPlan,
        chosen: &[&NumberedChange],
        present: &WorkspaceState,
    ) -> Result<(), EngineError> {
        if self.find_databases(&plan.changes)?.is_empty() {
            return Ok(());
        }
        let numbered_changes = self.numbered_changes_against(present, None)?;
        let since = chosen.iter().filter_map(|numbered| numbered.step).map(|(_, number)| number).min();
        let sessions: HashSet<_> = chosen.iter().map(|numbered| numbered.who.session()).collect();
        let is_foreign = |path: &RelPath| {
            numbered_changes.iter().any(|numbered| {
                let later =
                    numbered.step.is_none_or(|(_, number)| since.is_some_and(|since| number >= since));
                later
                    && numbered.change.path == *path
                    && !numbered.taken_back
                    && !sessions.contains(&numbered.who.session())
            })
        };
        let tree_before =
            |path: &RelPath| chosen.iter().find(|numbered| numbered.change.path == *path)?.before;
        self.complete_databases(plan, present.files, &tree_before, &is_foreign)
    }

    /// Removes databases from `prepared` that a process has open, and warns about other files that are open for writing.
    pub(crate) fn check_open_files(
        &self,
        mut prepared: PreparedRewind,
    ) -> Result<PreparedRewind, EngineError> {
        let OpenFileEffects { mut held, warnings } = self.hold_open_databases(&mut prepared.plan)?;
        let source = StoreSource(self.store());
        let mut present = TreeLookup::new(&source, prepared.present.state.files);
        // A log belongs to one database file: the process must not write its own log back into the database that is kept.
        let databases: BTreeMap<RelPath, HeldChange> =
            held.iter().map(|held| (held.database.clone(), held.clone())).collect();
        for (path, held_change) in databases {
            let planned = held.iter().any(|held| held.change.path == path);
            if let (false, Some(node @ TreeNode::File { .. })) = (planned, present.get(&path)?) {
                let (now, then) = (Some(node.clone()), Some(node));
                held.push(HeldChange {
                    change: PlannedChange { path, now, then, how: How::Restored },
                    ..held_change
                });
            }
        }
        if !held.is_empty() && prepared.plan.is_empty() {
            let reason = "the differences are skipped for the reasons listed";
            prepared.unchanged_because.get_or_insert_with(|| reason.into());
        }
        prepared.held = held;
        prepared.warnings.extend(warnings);
        Ok(prepared)
    }

    /// Repeats [`Self::check_open_files`] right before the plan is applied. Returns the changes removed now, with their
    /// outcomes.
    pub(crate) fn recheck_open_files(
        &self,
        prepared: &mut PreparedRewind,
    ) -> Result<Vec<(PlannedChange, ChangeOutcome)>, EngineError> {
        self.reread_shared_indexes(&mut prepared.plan)?;
        if prepared.forced {
            return Ok(Vec::new());
        }
        let held = self.hold_open_databases(&mut prepared.plan)?.held;
        Ok(held.into_iter().map(|held| (held.change, ChangeOutcome::LeftAlone(held.reason))).collect())
    }

    /// Reads shared indexes again: processes write them through memory maps, which does not update their times, so the scan
    /// may have stale content.
    fn reread_shared_indexes(&self, plan: &mut RewindPlan) -> Result<(), EngineError> {
        let is_read = |change: &PlannedChange| {
            is_shared_index(&change.path) && matches!(change.now, Some(TreeNode::File { .. }))
        };
        if !plan.changes.iter().any(is_read) {
            return Ok(());
        }
        let source = StoreSource(self.store());
        let batch = self.store().begin()?;
        let mut looker = Looker::new(&self.root, &source, &*batch)?;
        for change in plan.changes.iter_mut().filter(|change| is_read(change)) {
            if let Single::Node(node @ TreeNode::File { .. }) = looker.look(&change.path)? {
                change.now = Some(node);
            }
        }
        let finished = batch.finish()?;
        self.store().commit(Some(finished), &[])?;
        Ok(())
    }

    fn hold_open_databases(&self, plan: &mut RewindPlan) -> Result<OpenFileEffects, EngineError> {
        let mut open = OpenFileEffects::default();
        let mut paths = BTreeSet::new();
        for change in plan.changes.iter().filter(|change| replaces_file(change)) {
            if can_be_database(change) || database_for_sidecar(&change.path).is_some() {
                paths.extend(add_sidecar_files(vec![change.path.clone()]));
            } else {
                paths.insert(change.path.clone());
            }
        }
        let writers = find_writers(&self.root, &paths);
        if writers.is_empty() {
            return Ok(open);
        }
        let mut other_writers = Vec::new();
        let mut databases: BTreeMap<RelPath, BTreeSet<&FileWriter>> = BTreeMap::new();
        for (path, writers_of_path) in &writers {
            match self.find_database(path, &plan.changes)? {
                Some(database) => databases.entry(database).or_default().extend(writers_of_path),
                None if plan.changes.iter().any(|change| change.path == *path) => {
                    other_writers.push((path, writers_of_path))
                }
                None => {}
            }
        }
        for (database, writers_of_path) in databases {
            let writer_list = format_writers(writers_of_path.into_iter());
            let reason = |path: &RelPath| match *path == database {
                true => format!("it is open in {writer_list}; --force replaces it anyway"),
                false => format!("{database} is open in {writer_list}; --force replaces it anyway"),
            };
            let skipped = skip_planned_changes(plan, &possible_database_files(&database), reason);
            if skipped.iter().all(|change| is_shared_index(&change.path)) {
                continue;
            }
            let warning = format!(
                "{database} is open in {writer_list}, which keeps using the replaced file: stop it before you use the restored one"
            );
            open.held.extend(skipped.into_iter().map(|change| {
                let (reason, warning) = (reason(&change.path), warning.clone());
                HeldChange { change, database: database.clone(), reason, warning }
            }));
        }
        other_writers.sort();
        open.warnings.extend(other_writers.iter().take(MAX_LISTED_FILES).map(|(path, writers_of_path)| {
            format!(
                "{path} is open for writing in {}, which keeps using the replaced file",
                format_writers(writers_of_path.iter())
            )
        }));
        if other_writers.len() > MAX_LISTED_FILES {
            open.warnings
                .push(format!("{} more files are open for writing", other_writers.len() - MAX_LISTED_FILES));
        }
        Ok(open)
    }

    /// Takes back the changes to databases that were changed only in part because a file was written to meanwhile.
    pub(crate) fn keep_databases_whole(
        &self,
        changes: &[PlannedChange],
        outcomes: &mut [ChangeOutcome],
        take_back: impl FnOnce(&[PlannedChange]) -> Result<Vec<ChangeOutcome>, EngineError>,
    ) -> Result<(), EngineError> {
        if outcomes.iter().all(|outcome| *outcome == ChangeOutcome::Done) {
            return Ok(());
        }
        let index_of: HashMap<&RelPath, usize> =
            changes.iter().enumerate().map(|(index_of, change)| (&change.path, index_of)).collect();
        let mut halves = Vec::new();
        for database in self.find_databases(changes)? {
            let files = possible_database_files(&database);
            let (applied, not_applied): (Vec<usize>, Vec<usize>) = files
                .iter()
                .filter_map(|file| index_of.get(file).copied())
                .partition(|index_of| outcomes[*index_of] == ChangeOutcome::Done);
            if !not_applied.is_empty() {
                halves.extend(applied);
            }
        }
        if halves.is_empty() {
            return Ok(());
        }
        halves.sort_unstable();
        let inverse: Vec<PlannedChange> =
            halves.iter().map(|index_of| changes[*index_of].inverted()).collect();
        for (index_of, outcome) in halves.into_iter().zip(take_back(&inverse)?) {
            if outcome == ChangeOutcome::Done {
                outcomes[index_of] =
                    ChangeOutcome::LeftAlone("another process wrote to its database meanwhile".into());
            }
        }
        Ok(())
    }

    /// Returns the databases that have a file among `changes`.
    fn find_databases(&self, changes: &[PlannedChange]) -> Result<BTreeSet<RelPath>, EngineError> {
        let mut databases = BTreeSet::new();
        for change in changes {
            if can_be_database(change) || database_for_sidecar(&change.path).is_some() {
                databases.extend(self.find_database(&change.path, changes)?);
            }
        }
        Ok(databases)
    }

    /// Returns the database that `path` belongs to, judged by the planned and the present content.
    fn find_database(
        &self,
        path: &RelPath,
        changes: &[PlannedChange],
    ) -> Result<Option<RelPath>, EngineError> {
        if let Some(database) = database_for_sidecar(path)
            && (self.starts_with_any(path, changes, &LOG_MAGICS)?
                || self.starts_with_any(&database, changes, &[DATABASE_MAGIC])?)
        {
            return Ok(Some(database));
        }
        if self.starts_with_any(path, changes, &[DATABASE_MAGIC])? {
            return Ok(Some(path.clone()));
        }
        // An encrypted database has no magic bytes and an empty one has no bytes; the log beside it identifies it.
        for file in possible_database_files(path).iter().skip(1) {
            if self.starts_with_any(file, changes, &LOG_MAGICS)? {
                return Ok(Some(path.clone()));
            }
        }
        Ok(None)
    }

    /// Whether the file at `path`, in its present or planned content, begins with one of `starts`.
    fn starts_with_any(
        &self,
        path: &RelPath,
        changes: &[PlannedChange],
        starts: &[&[u8]],
    ) -> Result<bool, EngineError> {
        let source = StoreSource(self.store());
        if let Ok(index) = changes.binary_search_by(|change| change.path.cmp_by_components(path)) {
            for node in [&changes[index].now, &changes[index].then].into_iter().flatten() {
                let bytes = read_first_bytes(&source, node)?;
                if starts.iter().any(|start| bytes.starts_with(start)) {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        let mut bytes = [0; DATABASE_MAGIC.len()];
        let read = AnchoredDir::open(&self.root)
            .and_then(|mut anchor| anchor.parent(path))
            .ok()
            .flatten()
            .and_then(|(dir, name)| open_file(&dir, name).ok())
            .and_then(|(file, _)| file.read_at(&mut bytes, 0).ok());
        Ok(read.is_some_and(|read| starts.iter().any(|start| bytes[..read].starts_with(start))))
    }
}

impl PreparedRewind {
    /// Forces the replacement of databases that a process has open.
    pub fn force(&mut self) {
        self.forced = true;
        if !self.held.is_empty() {
            self.unchanged_because = None;
        }
        for held in std::mem::take(&mut self.held) {
            self.plan.left_alone.retain(|left| left.path != held.change.path || left.reason != held.reason);
            self.plan.changes.push(held.change);
            if !self.warnings.contains(&held.warning) {
                self.warnings.push(held.warning);
            }
        }
        self.plan.changes.sort_by(|a, b| a.path.cmp_by_components(&b.path));
    }
}

fn is_shared_index(path: &RelPath) -> bool {
    path.as_bytes().ends_with(SHARED_MEMORY_SUFFIX)
}

/// Whether an existing file is removed or replaced, or a file beside a database comes back.
fn replaces_file(change: &PlannedChange) -> bool {
    match (&change.now, &change.then) {
        (Some(TreeNode::File { content: now, .. }), Some(TreeNode::File { content: then, .. })) => {
            now != then
        }
        (Some(TreeNode::File { .. }), _) => true,
        // A restored log affects the processes that have its database open.
        (None, Some(TreeNode::File { .. })) => database_for_sidecar(&change.path).is_some(),
        _ => false,
    }
}

/// Whether the size of the present or the planned file allows it to be a database.
fn can_be_database(change: &PlannedChange) -> bool {
    let has_whole_pages =
        |node: &TreeNode| matches!(node, TreeNode::File { size, .. } if size % MIN_PAGE_BYTES == 0);
    [&change.now, &change.then].into_iter().flatten().any(has_whole_pages)
}

/// Moves `files` from the planned changes to those left alone; returns the changes that were planned for them.
fn skip_planned_changes(
    plan: &mut RewindPlan,
    files: &[RelPath],
    reason: impl Fn(&RelPath) -> String,
) -> Vec<PlannedChange> {
    let (skipped, changes): (Vec<_>, Vec<_>) =
        std::mem::take(&mut plan.changes).into_iter().partition(|change| files.contains(&change.path));
    plan.changes = changes;
    // A process that has a database open changes the shared index without changing the database.
    let matters = skipped.iter().any(|change| !is_shared_index(&change.path));
    plan.left_alone.extend(skipped.iter().map(|PlannedChange { path, .. }| match matters {
        true => SkippedPath::conflict(path.clone(), reason(path)),
        false => SkippedPath::uncovered(path.clone(), reason(path)),
    }));
    skipped
}

fn format_writers<'w>(writers: impl Iterator<Item = &'w FileWriter>) -> String {
    let names: Vec<String> = writers.map(FileWriter::to_string).collect();
    names.join(", ")
}

/// Returns the first bytes of a stored file: its first chunk, or all of it.
fn read_first_bytes(source: &dyn ObjectSource, node: &TreeNode) -> Result<Vec<u8>, ObjectError> {
    match node {
        TreeNode::File { size: 0, .. } => Ok(Vec::new()),
        TreeNode::File { content: Content::Whole(hash), .. } => source.read(ObjectKind::Blob, *hash),
        TreeNode::File { content: Content::Chunked(hash), .. } => match list::iter(source, *hash).next() {
            Some(item) => source.read(ObjectKind::Blob, item?.hash),
            None => Ok(Vec::new()),
        },
        _ => Ok(Vec::new()),
    }
}
