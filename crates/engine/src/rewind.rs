//! Rewinds a workspace to an earlier point: plan, show, save the present, journal, apply, verify, report.
//!
//! [`Workspace::prepare_rewind`] scans and plans and changes nothing; [`Workspace::apply_rewind`] carries out the plan. The user may
//! take any amount of time between the two: applying checks every path against the plan again.

use serde::{Deserialize, Serialize};
use stepback_model::change::PathChange;
use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::path::RelPath;
use stepback_model::plan::{PlannedChange, RewindPlan, SkippedPath};
use stepback_model::record::Operation;
use stepback_model::record::StepRow;
use stepback_model::state::{GitState, WorkspaceState};
use stepback_model::tree::TreeNode;
use stepback_worktree::apply::ChangeOutcome;
use stepback_worktree::scan::single::{Looker, Single};

use crate::board::BoardReplacement;
use crate::branch_merge::MergeConflict;
use crate::changes::SelectionError;
use crate::databases::{HeldChange, add_sidecar_files};
use crate::diff;
use crate::error::EngineError;
use crate::kept::{Audience, KeptChange, explain_unchanged};
use crate::moves::{MovedPart, PlannedPart};
use crate::path_filter::PathFilter;
use crate::restore_plan::{filter_changes, is_git_dir, outside_link_warnings, plan_restore};
use crate::retry::{is_race, retry};
use crate::revert::TreeLookup;
use crate::rewind_scope::RewindScope;
use crate::tree_edit;
use crate::workspace::{PresentState, ScanMode, StoreSource, Workspace, WorkspaceLock, describe_checkpoint};

/// What to rewind, and to what.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RewindRequest {
    /// The point to go back to; without one, `changes`, `last` or `all` say what to take back. Stored by its id beside the
    /// request.
    #[serde(skip)]
    pub target: Option<StepRow>,
    /// Only these paths (globs; a directory stands for everything below it). Empty means all paths.
    pub paths: Vec<String>,
    /// Only these changes, numbered as [`Workspace::numbered_changes`] lists them.
    pub changes: Vec<usize>,
    /// This many of the last changes of agents, or of `session`; with `everything`, of any author.
    pub last: Option<usize>,
    /// All changes of agents, or of `session`; with `everything`, of any author.
    pub all: bool,
    /// With `target` and `all`: only changes up to the step of this number.
    #[serde(default)]
    pub until: Option<u64>,
    /// Instead of going back: apply what changed on this branch.
    #[serde(default)]
    pub merge: Option<String>,
    /// With `merge`: whether conflict markers are written into text files that both branches changed in the same lines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub markers: bool,
    /// Whether git directories go back too.
    pub git: bool,
    /// Whether files stay as they are, so that only git, the conversation and what the move request names go back.
    #[serde(default)]
    pub keep_files: bool,
    /// Restore the whole workspace, not only what agents changed.
    pub everything: bool,
    /// Only the changes of this session.
    pub session: Option<SessionId>,
    /// Only these hunks of the single chosen change, counted from 1.
    pub hunks: Vec<usize>,
    /// Who reads the plan; decides how authors are named in it.
    pub audience: Audience,
    /// Whether the conversation goes back too: the new state then has the conversation of the point.
    pub conversation: bool,
}

/// A rewind that is planned and not yet applied.
pub struct PreparedRewind {
    /// The changes to make, and the paths left alone.
    pub plan: RewindPlan,
    /// What the user should know before confirming.
    pub warnings: Vec<String>,
    /// A one-line description: `rewind to #3 "before refactoring"`.
    pub summary: String,
    /// Changes that stay because the user or another session made them.
    pub kept: Vec<KeptChange>,
    /// Paths that the same request with `everything` would change and this plan does not, or only in part.
    pub everything_changes: Vec<RelPath>,
    /// Why the plan changes no file; `None` if it changes any.
    pub unchanged_because: Option<String>,
    /// What happens to the parts of sessions.
    pub parts: Vec<PlannedPart>,
    /// Paths that both branches of a merge changed in ways that do not fit together.
    pub conflicts: Vec<MergeConflict>,
    /// Whether git directories take part.
    pub git: bool,
    /// The session that requested the rewind, if an agent did so on its own.
    pub requested_by: Option<SessionId>,
    /// The step that becomes the parent of the new one; `None` for the step that saves the present.
    pub(crate) new_parent: Option<StepId>,
    pub(crate) present: PresentState,
    /// The state to restore git directories to, when they take part.
    pub(crate) git_target: Option<GitState>,
    /// The detail to store with the new step.
    pub(crate) detail: Option<Hash>,
    /// The branch that is left and the one that is entered; `None` if the branch stays the same.
    pub(crate) branches: Option<(String, String)>,
    /// The step whose conversation the new state gets; `None` if the conversation stays as it is.
    pub(crate) conversation_from: Option<StepId>,
    /// The steps that took parts of sessions back along with it.
    pub(crate) part_steps: Vec<StepId>,
    /// The steps that took parts of sessions back, and whose effect is reversed with it.
    pub(crate) reversed_steps: Vec<StepId>,
    pub(crate) lock: Option<WorkspaceLock>,
    pub(crate) gc_generation: u64,
    /// Changes to databases that a process has open; [`PreparedRewind::force`] adds them to the plan.
    pub(crate) held: Vec<HeldChange>,
    /// Whether databases are replaced although a process has them open.
    pub(crate) forced: bool,
}

impl RewindRequest {
    /// Takes back what was changed after one step and up to another one. Fails if the second comes first.
    pub fn between(from: StepRow, to: &StepRow) -> Result<Self, EngineError> {
        if to.step.number < from.step.number {
            let (from, to) = (from.step.number, to.step.number);
            return Err(SelectionError::ReversedRange { from, to }.into());
        }
        Ok(Self { target: Some(from), until: Some(to.step.number), all: true, ..Self::default() })
    }
}

impl PreparedRewind {
    /// Drops the lock so that other processes can use the workspace while the user reads the plan.
    pub fn release_lock(&mut self) {
        self.lock = None;
    }

    /// The branch that the workspace will be on, if it is not the present one.
    pub fn entered_branch(&self) -> Option<&str> {
        self.branches.as_ref().map(|(_, entered)| entered.as_str())
    }
}

/// The result of a rewind.
#[derive(Debug)]
pub struct RewindReport {
    /// The operation, with which the rewind can be undone.
    pub operation: Operation,
    /// The number of the step that holds the state before the rewind.
    pub before: u64,
    /// The number of the step that holds the state after it.
    pub after: u64,
    /// The outcome of each planned change.
    pub outcomes: Vec<(PlannedChange, ChangeOutcome)>,
    /// The paths that the plan left alone from the start.
    pub left_alone: Vec<SkippedPath>,
    /// Changes that stayed because the user or another session made them.
    pub kept: Vec<KeptChange>,
    /// What changed on the board of an agent, if it went back too.
    pub board: Option<BoardReplacement>,
    /// What happened to the memory and the task list of a session.
    pub parts: Vec<MovedPart>,
}

impl RewindReport {
    /// The planned changes that were not made because another process had changed the path.
    pub fn conflicts(&self) -> Vec<SkippedPath> {
        let conflict = |(change, outcome): &(PlannedChange, ChangeOutcome)| match outcome {
            ChangeOutcome::Done => None,
            ChangeOutcome::LeftAlone(reason) => {
                Some(SkippedPath::conflict(change.path.clone(), reason.clone()))
            }
        };
        self.outcomes.iter().filter_map(conflict).collect()
    }

    /// All paths that were left alone: by the plan, then while it was applied.
    pub fn all_left_alone(&self) -> Vec<SkippedPath> {
        [self.left_alone.clone(), self.conflicts()].concat()
    }
}

/// What a rewind does to git directories.
#[derive(Default)]
pub(crate) struct GitPlan {
    /// The git state to restore; `None` if git stays as it is.
    pub target: Option<GitState>,
    pub changes: Vec<PathChange>,
    pub left_alone: Vec<SkippedPath>,
    pub warnings: Vec<String>,
}

/// Why a repository that the target does not have stays.
pub(crate) const CAME_LATER: &str = "the repository did not exist at that point; it is kept";

impl Workspace {
    /// Plans a rewind and changes nothing. Takes the workspace lock, which the returned plan holds.
    pub fn prepare_rewind(&self, request: &RewindRequest) -> Result<PreparedRewind, EngineError> {
        self.check_open_files(self.plan_rewind(request)?)
    }

    fn plan_rewind(&self, request: &RewindRequest) -> Result<PreparedRewind, EngineError> {
        if let Some(branch) = &request.merge {
            return self.prepare_merge(branch, request.markers);
        }
        if !request.changes.is_empty() || request.last.is_some() || request.all {
            return self.prepare_take_back(request);
        }
        let Some(target) = &request.target else {
            return Err(EngineError::NoTarget);
        };
        let filter = PathFilter::new(&request.paths)?;
        let lock = self.lock_exclusive()?;
        if request.keep_files {
            return self.plan_without_files(request, target, &filter, lock);
        }
        let past = self.load_state(target)?;
        let narrow = match filter.literal_paths() {
            Some(paths) if !request.git => self.scan_paths(&add_sidecar_files(paths), &past)?,
            _ => None,
        };
        let present = narrow.map_or_else(|| self.scan_and_commit(request.git), Ok)?;
        let scope = self.resolve_rewind_scope(request, target, &present)?;
        let source = StoreSource(self.store());
        let changes = diff::compare_trees(&source, present.state.files, past.files)?;
        let mut changes = match filter.is_empty() {
            true => changes,
            false => {
                let databases = self.find_database_files(&filter, &changes)?;
                filter_changes(changes, &|change| {
                    filter.matches(&change.path) || databases.contains(&change.path)
                })
            }
        };
        let matched = !changes.is_empty();
        let extent = scope.as_ref().map(|scope| (scope.sessions().clone(), scope.has_all_changes()));
        let scope = scope.filter(|scope| !scope.has_all_changes());
        if let Some(scope) = scope.as_ref().filter(|scope| scope.is_on_line) {
            let full = plan_restore(changes);
            let scoped = self.prepare_scoped_rewind(request, target, scope, &filter, &present, &full)?;
            let conversation_from = self.conversation_of_rewind(request, target)?;
            return Ok(PreparedRewind { present, lock: Some(lock), conversation_from, ..scoped });
        }
        let git = self.plan_git(request, scope.as_ref(), &filter, &present, &past)?;
        changes.extend(git.changes);
        let mut warnings = git.warnings;
        if !filter.is_empty() && !matched && !self.has_match(&filter, &present.state, &past)? {
            let (name, patterns) = (describe_checkpoint(target), request.paths.clone());
            return Err(EngineError::NothingMatches { what: name, patterns });
        }
        let mut plan = plan_restore(changes);
        plan.left_alone.extend(git.left_alone);
        self.check_git_objects(&mut plan, &mut warnings)?;
        plan.changes.sort_by(|a, b| a.path.cmp_by_components(&b.path));
        let (kept, everything_changes) = match &scope {
            Some(scope) => {
                self.exclude_foreign_changes(&mut plan, scope, &filter, &past, &present, request.audience)?
            }
            None => Default::default(),
        };
        let is_kept = |path: &RelPath| everything_changes.contains(path);
        self.complete_databases(&mut plan, present.state.files, &|_| past.files, &is_kept)?;
        warnings.extend(outside_link_warnings(&plan));
        let phrase =
            if filter.is_empty() { String::new() } else { format!(" of {}", request.paths.join(", ")) };
        let with_git = if request.git { " with git" } else { "" };
        let summary = format!("rewind{phrase} to {}{with_git}", describe_checkpoint(target));
        // The new step continues from the checkpoint whose files the target has.
        let (onto, detail) = match filter.is_empty() {
            true => {
                let detail = self.store_rewind_target(target, extent.as_ref())?;
                (Some(self.nearest_checkpoint(target)?.step.id), detail)
            }
            false => (None, None),
        };
        let unchanged_because = plan.is_empty().then(|| {
            let already =
                format!("the files{phrase} are already as they were at {}", describe_checkpoint(target));
            explain_unchanged(&describe_checkpoint(target), &kept, &plan.left_alone, request.audience)
                .unwrap_or(already)
        });
        let prepared = self.new_prepared_rewind(plan, warnings, summary, request.git, git.target, detail)?;
        Ok(PreparedRewind {
            kept,
            everything_changes,
            unchanged_because,
            new_parent: onto,
            present,
            conversation_from: self.conversation_of_rewind(request, target)?,
            lock: Some(lock),
            ..prepared
        })
    }

    /// Plans a rewind that leaves files as they are: of git directories, or of nothing in the workspace.
    fn plan_without_files(
        &self,
        request: &RewindRequest,
        target: &StepRow,
        filter: &PathFilter,
        lock: WorkspaceLock,
    ) -> Result<PreparedRewind, EngineError> {
        let present = self.scan_and_commit(request.git)?;
        let (mut git, mut warnings) = (GitPlan::default(), Vec::new());
        let mut plan = RewindPlan::default();
        if request.git {
            let past = self.load_state(target)?;
            let scope = self.resolve_rewind_scope(request, target, &present)?;
            git = self.plan_git(request, scope.as_ref(), filter, &present, &past)?;
            plan = plan_restore(std::mem::take(&mut git.changes));
            plan.left_alone.append(&mut git.left_alone);
            warnings.append(&mut git.warnings);
            self.check_git_objects(&mut plan, &mut warnings)?;
            plan.changes.sort_by(|a, b| a.path.cmp_by_components(&b.path));
        }
        let unchanged_because = plan.is_empty().then(|| match request.git {
            true if !plan.left_alone.is_empty() => "git directories stay for the reasons listed".to_owned(),
            true => format!("git is already as it was at {}", describe_checkpoint(target)),
            false => "files stay as they are".to_owned(),
        });
        let summary = format!("rewind to {}", describe_checkpoint(target));
        let prepared = self.new_prepared_rewind(plan, warnings, summary, request.git, git.target, None)?;
        let conversation_from = self.conversation_of_rewind(request, target)?;
        Ok(PreparedRewind { present, lock: Some(lock), unchanged_because, conversation_from, ..prepared })
    }

    /// Plans what happens to git directories. They stay as they are if another session moved them, or if git was not asked for.
    fn plan_git(
        &self,
        request: &RewindRequest,
        scope: Option<&RewindScope>,
        filter: &PathFilter,
        present: &PresentState,
        target: &WorkspaceState,
    ) -> Result<GitPlan, EngineError> {
        if let Some(mover) = scope.and_then(|scope| scope.foreign_git.as_ref()) {
            let left_alone = self.list_skipped_git_dirs(present, target, mover, request.audience)?;
            return Ok(GitPlan { left_alone, ..GitPlan::default() });
        }
        if !request.git {
            let warnings = self.git_head_warnings(&present.state, target)?;
            return Ok(GitPlan { warnings, ..GitPlan::default() });
        }
        self.git_changes(filter, present, target)
    }

    /// Returns what restoring the git directories of `target` changes.
    pub(crate) fn git_changes(
        &self,
        filter: &PathFilter,
        present: &PresentState,
        target: &WorkspaceState,
    ) -> Result<GitPlan, EngineError> {
        let source = StoreSource(self.store());
        let mut changes = diff::compare_git(&source, &present.state, target)?;
        // A repository that was created later is not removed: restoring only a part of it would be worse than leaving it or
        // removing it.
        let came_later: Vec<RelPath> = (changes.iter())
            .filter(|change| change.after.is_none() && is_git_dir(&change.path))
            .map(|change| change.path.clone())
            .collect();
        let stays = |path: &RelPath| came_later.iter().any(|root| path.starts_with(root));
        changes.retain(|change| filter.matches(&change.path) && !stays(&change.path));
        let left_alone = came_later
            .iter()
            .filter(|root| filter.matches(root))
            .map(|root| SkippedPath::conflict((*root).clone(), CAME_LATER));
        Ok(GitPlan {
            target: target.git.map(|hash| GitState::load(&source, hash)).transpose()?,
            left_alone: left_alone.collect(),
            changes,
            warnings: Vec::new(),
        })
    }

    /// Scans the whole workspace and commits the objects, so that plans can refer to them. With `git`, for a plan that restores
    /// git directories.
    pub(crate) fn scan_and_commit(&self, git: bool) -> Result<PresentState, EngineError> {
        let look = if git { ScanMode::EverythingWithObjects } else { ScanMode::Everything };
        retry("save the present files", is_race, || {
            let mut present = self.scan_present_with(look, &mut |_, state| self.fill_session_slots(state))?;
            self.store().commit(present.batch.take(), &[])?;
            present.save_stat_cache();
            Ok(present)
        })
    }

    /// Returns the state at the head with only `paths` scanned again; `None` if a full scan is needed, for example because one
    /// of them is or was a directory.
    pub(crate) fn scan_paths(
        &self,
        paths: &[RelPath],
        target_tree: &WorkspaceState,
    ) -> Result<Option<PresentState>, EngineError> {
        let Ok(head) = self.head() else { return Ok(None) };
        let state = self.load_state(&head)?;
        let source = StoreSource(self.store());
        let mut target_tree = TreeLookup::new(&source, target_tree.files);
        let mut head_tree = TreeLookup::new(&source, state.files);
        let batch = self.store().begin()?;
        let mut looker = Looker::new(&self.root, &source, &*batch)?;
        let mut edits = Vec::new();
        for path in paths {
            let was_dir = |node: Option<TreeNode>| node.is_some_and(|node| node.is_dir());
            let (then, now) = (target_tree.get(path)?, head_tree.get(path)?);
            let deletes = then.is_none();
            if was_dir(then) || was_dir(now.clone()) {
                return Ok(None);
            }
            // Only a full scan knows the ignore rules, and excluded files must not be deleted or replaced.
            if matches!(now, Some(TreeNode::Skipped { .. })) {
                return Ok(None);
            }
            match looker.look(path)? {
                Single::Dir(_) => return Ok(None),
                Single::Node(_) if deletes => return Ok(None),
                Single::Nothing => edits.push((path.clone(), None)),
                Single::Node(node) => edits.push((path.clone(), Some(node))),
            }
            // If a directory above the path is not what it was at the head, a full scan is needed.
            let mut ancestor = path.split_last().map(|(parent, _)| parent);
            while let Some(dir) = ancestor.filter(|dir| !dir.is_root()) {
                let is_dir = matches!(looker.look(&dir)?, Single::Dir(_));
                if !is_dir || !was_dir(head_tree.get(&dir)?) {
                    return Ok(None);
                }
                ancestor = dir.split_last().map(|(parent, _)| parent);
            }
        }
        let files = tree_edit::apply_edits(&source, &*batch, state.files, edits)?;
        let mut state = WorkspaceState { files: Some(files), git: state.git, ..WorkspaceState::default() };
        self.fill_session_slots(&mut state)?;
        let hash = batch.write(stepback_model::ObjectKind::State, &state.encode(), None)?;
        let batch = batch.finish()?;
        self.store().commit(Some(batch), &[])?;
        let hashed = paths.len() as u64;
        Ok(Some(PresentState { state, hash, hashed, skipped_paths: Vec::new(), batch: None, snapshot: None }))
    }

    fn has_match(
        &self,
        filter: &PathFilter,
        now: &WorkspaceState,
        then: &WorkspaceState,
    ) -> Result<bool, EngineError> {
        let source = StoreSource(self.store());
        for state in [now, then] {
            let changes = diff::compare_trees(&source, None, state.files)?;
            if changes.iter().any(|change| filter.matches(&change.path)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
