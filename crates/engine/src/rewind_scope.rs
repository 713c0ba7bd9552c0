//! Rewinds to a point by taking back what agents changed since, and nothing else.
//!
//! A rewind to a step of a session takes back what that session changed since. A rewind to a step of the user takes back what
//! any agent changed since or, if no agent was at work since, the user's own changes. What the user or another session changed
//! meanwhile stays and is listed with its author: it is merged, or the path is left alone. Only if every change since is in
//! scope is the past state restored as a whole.

use std::collections::HashSet;

use stepback_model::ids::SessionId;
use stepback_model::path::RelPath;
use stepback_model::plan::{PlannedChange, RewindPlan, SkippedPath};
use stepback_model::record::Session;
use stepback_model::record::StepRow;
use stepback_model::state::{GitState, GitSummary, WorkspaceState};
use stepback_model::tree::TreeNode;

use crate::authorship::Attribution;
use crate::changes::{NumberedChange, parse_authors};
use crate::error::EngineError;
use crate::kept::{
    Audience, ChangeAuthor, KeptChange, KeptChangeContext, RetainedChanges, explain_unchanged,
};
use crate::path_filter::PathFilter;
use crate::restore_plan::{outside_link_warnings, plan_restore};
use crate::revert::TreeLookup;
use crate::rewind::{CAME_LATER, PreparedRewind, RewindRequest};
use crate::workspace::{PresentState, StoreSource, Workspace, describe_checkpoint};

/// The changes that a rewind to a point takes back.
pub(crate) struct RewindScope {
    /// All changes since the point, oldest first.
    changes: Vec<NumberedChange>,
    /// The sessions whose changes are taken back.
    sessions: HashSet<SessionId>,
    /// Who moved git since the point, if it was not one of these sessions.
    pub foreign_git: Option<ChangeAuthor>,
    /// Whether the point is an ancestor of the head. If not, `changes` lists what came after the last common checkpoint, and
    /// the past state can only be restored around what others changed.
    pub is_on_line: bool,
}

impl RewindScope {
    fn has_change(&self, numbered: &NumberedChange) -> bool {
        !numbered.taken_back && numbered.who.session().is_some_and(|session| self.sessions.contains(&session))
    }

    /// The sessions whose changes are taken back.
    pub fn sessions(&self) -> &HashSet<SessionId> {
        &self.sessions
    }

    /// Whether only these sessions changed anything, so that the past state can be restored as a whole.
    pub fn has_all_changes(&self) -> bool {
        self.foreign_git.is_none() && self.changes.iter().all(|numbered| self.has_change(numbered))
    }
}

impl Workspace {
    /// Returns what a rewind to `target` takes back; `None` if it restores the whole workspace.
    pub(crate) fn resolve_rewind_scope(
        &self,
        request: &RewindRequest,
        target: &StepRow,
        present: &PresentState,
    ) -> Result<Option<RewindScope>, EngineError> {
        if request.everything {
            return Ok(None);
        }
        let agent_sessions = self.agent_sessions()?;
        let agents: HashSet<SessionId> = agent_sessions.iter().map(|session| session.id).collect();
        if agents.is_empty() {
            return Ok(None);
        }
        let target_session = target.step.session;
        let sessions = match request.session {
            Some(session) => HashSet::from([session]),
            None if agents.contains(&target_session) => HashSet::from([target_session]),
            None => agents.clone(),
        };
        let Some((line, is_on_line)) = self.checkpoints_since(target)? else { return Ok(None) };
        let changes = self.attribute_changes(&line, &present.state)?;
        let is_about_agents = request.session.is_some() || agents.contains(&target_session);
        let was_at_work = |session: &Session| session.info.seen_at > Some(target.step.at);
        let only_user = !agent_sessions.iter().any(was_at_work);
        if !is_about_agents
            && only_user
            && changes.iter().all(|numbered| numbered.who == Attribution::Unreported)
        {
            return Ok(None);
        }
        let foreign_git = match request.git {
            true => self.find_foreign_git_mover(&line, present, &sessions)?,
            false => None,
        };
        Ok(Some(RewindScope { changes, sessions, foreign_git, is_on_line }))
    }

    /// Returns the checkpoints from the one whose files `target` has up to the head, oldest first, and true. If that
    /// checkpoint is not an ancestor of the head: those from the last common checkpoint on, and false. `None` if the two have
    /// no common checkpoint or states in between were freed.
    fn checkpoints_since(&self, target: &StepRow) -> Result<Option<(Vec<StepRow>, bool)>, EngineError> {
        let Ok(base) = self.nearest_checkpoint(target) else { return Ok(None) };
        let target_line: Vec<_> = self.ancestry(&base)?.iter().map(|stored| stored.step.id).collect();
        let on_target_line: HashSet<_> = target_line.iter().collect();
        let mut line = self.ancestry(&self.head()?)?;
        let Some(index) = line.iter().position(|stored| on_target_line.contains(&stored.step.id)) else {
            return Ok(None);
        };
        let is_on_line = target_line.first() == Some(&line[index].step.id);
        line.truncate(index + 1);
        line.reverse();
        if line.iter().any(|stored| stored.purged) {
            return Ok(None);
        }
        Ok(Some((line, is_on_line)))
    }

    /// Removes from `plan`, which restores a point that is not an ancestor of the head, the paths that others than the
    /// sessions of `scope` changed since the last common checkpoint. Returns the changes kept and the paths removed.
    pub(crate) fn exclude_foreign_changes(
        &self,
        plan: &mut RewindPlan,
        scope: &RewindScope,
        filter: &PathFilter,
        target: &WorkspaceState,
        present: &PresentState,
        audience: Audience,
    ) -> Result<(Vec<KeptChange>, Vec<RelPath>), EngineError> {
        let others: Vec<&NumberedChange> = (scope.changes.iter())
            .filter(|numbered| {
                !numbered.taken_back && !scope.has_change(numbered) && filter.matches(&numbered.change.path)
            })
            .collect();
        let foreign: Vec<&RelPath> = (others.iter())
            .flat_map(|numbered| [Some(&numbered.change.path), numbered.change.from.as_ref()])
            .flatten()
            .collect();
        let foreign_paths: HashSet<&RelPath> = foreign.iter().copied().collect();
        // A directory is removed only with everything in it, and nothing is restored below a path that stays as it is.
        let stays = |change: &PlannedChange| {
            let mut ancestor = Some(change.path.clone());
            while let Some(path) = ancestor {
                if foreign_paths.contains(&path) {
                    return true;
                }
                ancestor = path.split_last().map(|(parent, _)| parent);
            }
            let was_dir = change.now.as_ref().is_some_and(TreeNode::is_dir);
            let is_dir = change.then.as_ref().is_some_and(TreeNode::is_dir);
            was_dir && !is_dir && foreign.iter().any(|path| path.starts_with(&change.path))
        };
        let mut dropped = Vec::new();
        plan.changes.retain(|change| {
            let stays = stays(change);
            if stays {
                dropped.push(change.path.clone());
            }
            !stays
        });
        let source = StoreSource(self.store());
        let against = KeptChangeContext {
            base: TreeLookup::new(&source, target.files),
            present: TreeLookup::new(&source, present.state.files),
            plan,
        };
        let concerns = |session| scope.sessions.contains(&session);
        let RetainedChanges { kept, uncertain } =
            self.find_kept_changes(&others, against, audience, concerns, false)?;
        plan.left_alone.extend(uncertain);
        Ok((kept, dropped))
    }

    /// Returns who moved git while none of `sessions` was at work; the first one if there are several.
    fn find_foreign_git_mover(
        &self,
        line: &[StepRow],
        present: &PresentState,
        sessions: &HashSet<SessionId>,
    ) -> Result<Option<ChangeAuthor>, EngineError> {
        for pair in line.windows(2) {
            if self.load_state(&pair[0])?.git == self.load_state(&pair[1])?.git {
                continue;
            }
            let authors = parse_authors(self.load_detail(&pair[1].step)?.as_ref()).calls;
            let others: Vec<_> =
                authors.iter().filter(|call| !sessions.contains(&call.session)).cloned().collect();
            let mover = match (authors.as_slice(), others.as_slice()) {
                ([], _) => Attribution::Unreported,
                (_, []) => continue,
                _ => Attribution::OneOf(authors),
            };
            return self.resolve_change_author(&mover).map(Some);
        }
        let head = line.last().map(|head| self.load_state(head)).transpose()?;
        match head.is_some_and(|head| head.git != present.state.git) {
            true => self.resolve_change_author(&Attribution::Unreported).map(Some),
            false => Ok(None),
        }
    }

    /// Plans to take back the changes in `scope`. `full_plan` is the plan that restores `target` as a whole. The caller fills in
    /// the present and the lock.
    pub(crate) fn prepare_scoped_rewind(
        &self,
        request: &RewindRequest,
        target: &StepRow,
        scope: &RewindScope,
        filter: &PathFilter,
        present: &PresentState,
        full_plan: &RewindPlan,
    ) -> Result<PreparedRewind, EngineError> {
        let audience = request.audience;
        let databases =
            self.find_database_files(filter, scope.changes.iter().map(|numbered| &numbered.change))?;
        let matches = |path: &RelPath| filter.matches(path) || databases.contains(path);
        let (chosen, others): (Vec<&NumberedChange>, Vec<&NumberedChange>) = (scope.changes.iter())
            .filter(|numbered| !numbered.taken_back && matches(&numbered.change.path))
            .partition(|numbered| scope.has_change(numbered));
        let mut plan = self.plan_take_back(&chosen, present, &[])?;
        // If only some paths go back, the sessions stay where they are.
        let reached = Some(target).filter(|_| filter.is_empty());
        let detail = self.store_taken_back_marks(&chosen, &plan, reached, &scope.sessions)?;
        self.add_conflict_authors(&mut plan, &scope.changes, &chosen, audience)?;
        let target_state = self.load_state(target)?;
        let source = StoreSource(self.store());
        let against = KeptChangeContext {
            base: TreeLookup::new(&source, target_state.files),
            present: TreeLookup::new(&source, present.state.files),
            plan: &plan,
        };
        let concerns = |session| scope.sessions.contains(&session);
        let RetainedChanges { kept, uncertain } =
            self.find_kept_changes(&others, against, audience, concerns, false)?;
        for skipped in uncertain {
            if !plan.left_alone.iter().any(|listed| listed.path == skipped.path) {
                plan.left_alone.push(skipped);
            }
        }
        let everything_changes = differing_paths(full_plan, &plan);
        let mut git_target = None;
        let mut warnings = outside_link_warnings(&plan);
        if let Some(mover) = &scope.foreign_git {
            plan.left_alone.extend(self.list_skipped_git_dirs(present, &target_state, mover, audience)?);
        } else if request.git {
            let git = self.git_changes(filter, present, &target_state)?;
            git_target = git.target;
            let mut planned = plan_restore(git.changes);
            self.check_git_objects(&mut planned, &mut warnings)?;
            plan.changes.extend(planned.changes);
            plan.left_alone.extend(planned.left_alone.into_iter().chain(git.left_alone));
        } else {
            warnings.extend(self.git_head_warnings(&present.state, &target_state)?);
        }
        plan.changes.sort_by(|a, b| a.path.cmp_by_components(&b.path));
        let paths =
            if filter.is_empty() { String::new() } else { format!(" of {}", request.paths.join(", ")) };
        let session_name = self.describe_sessions(&scope.sessions)?;
        let point = describe_checkpoint(target);
        let summary = format!("rewind{paths} to {point}, only what {session_name} changed");
        let unchanged_because = plan.is_empty().then(|| {
            let nothing = format!("no change of {session_name} since {point} is left to take back");
            explain_unchanged(&point, &kept, &plan.left_alone, audience).unwrap_or(nothing)
        });
        let prepared = self.new_prepared_rewind(plan, warnings, summary, request.git, git_target, detail)?;
        Ok(PreparedRewind { kept, everything_changes, unchanged_because, ..prepared })
    }

    /// Returns the git directories, which stay as they are because `mover` moved them, or because `target` has none there.
    pub(crate) fn list_skipped_git_dirs(
        &self,
        present: &PresentState,
        target: &WorkspaceState,
        mover: &ChangeAuthor,
        audience: Audience,
    ) -> Result<Vec<SkippedPath>, EngineError> {
        let past = target.git.map(|hash| GitState::load(&StoreSource(self.store()), hash)).transpose()?;
        let moved = format!("it was moved since (by {})", mover.name(audience));
        let stays = |path: RelPath| {
            let existed = past.as_ref().is_some_and(|past| past.get(path.as_bytes()).is_some());
            SkippedPath::conflict(path, if existed { moved.as_str() } else { CAME_LATER })
        };
        Ok(list_git_dirs(self, present)?.into_iter().map(stays).collect())
    }

    /// Returns the name of a set of sessions for messages: that of a single session, otherwise `agents`.
    pub(crate) fn describe_sessions(&self, sessions: &HashSet<SessionId>) -> Result<String, EngineError> {
        let agent_sessions = self.agent_sessions()?;
        let mut members: Vec<&Session> =
            agent_sessions.iter().filter(|session| sessions.contains(&session.id)).collect();
        Ok(match (members.pop(), members.len()) {
            (Some(only_member), 0) => format!("session {} {}", only_member.agent, only_member.id.short()),
            _ => "agents".into(),
        })
    }
}

/// Returns the paths that `whole` changes and `plan` does not, or not to the same content.
fn differing_paths(whole: &RewindPlan, plan: &RewindPlan) -> Vec<RelPath> {
    let is_same = |change: &&PlannedChange| {
        let position = plan.changes.binary_search_by(|planned| planned.path.cmp_by_components(&change.path));
        position.is_ok_and(|index| plan.changes[index].then == change.then)
    };
    whole.changes.iter().filter(|change| !is_same(change)).map(|change| change.path.clone()).collect()
}

/// Returns the git directories of the present state.
fn list_git_dirs(workspace: &Workspace, present: &PresentState) -> Result<Vec<RelPath>, EngineError> {
    let Some(git) = present.state.git else { return Ok(Vec::new()) };
    let git = GitState::load(&StoreSource(workspace.store()), git)?;
    let parse = |repository: &GitSummary| RelPath::parse(repository.path.clone()).ok();
    Ok(git.repositories.iter().filter_map(parse).collect())
}
