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
use crate::changes::{NumberedChange, authors_in};
use crate::error::EngineError;
use crate::kept::{Audience, ChangeAuthor, KeptAgainst, KeptChange, Others, why_unchanged};
use crate::path_filter::PathFilter;
use crate::restore_plan::{direct, links_leading_out};
use crate::revert::Lookup;
use crate::rewind::{PreparedRewind, RewindRequest};
use crate::workspace::{PresentState, StoreSource, Workspace, describe};

/// The changes that a rewind to a point takes back.
pub(crate) struct Scope {
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

impl Scope {
    fn has(&self, numbered: &NumberedChange) -> bool {
        !numbered.taken_back && numbered.who.session().is_some_and(|session| self.sessions.contains(&session))
    }

    /// The sessions whose changes are taken back.
    pub fn sessions(&self) -> &HashSet<SessionId> {
        &self.sessions
    }

    /// Whether only these sessions changed anything, so that the past state can be restored as a whole.
    pub fn is_everything(&self) -> bool {
        self.foreign_git.is_none() && self.changes.iter().all(|numbered| self.has(numbered))
    }
}

impl Workspace {
    /// Returns what a rewind to `target` takes back; `None` if it restores the whole workspace.
    pub(crate) fn scope(
        &self,
        request: &RewindRequest,
        target: &StepRow,
        present: &PresentState,
    ) -> Result<Option<Scope>, EngineError> {
        if request.everything {
            return Ok(None);
        }
        let known = self.agent_sessions()?;
        let agents: HashSet<SessionId> = known.iter().map(|session| session.id).collect();
        if agents.is_empty() {
            return Ok(None);
        }
        let own = target.step.session;
        let sessions = match request.session {
            Some(session) => HashSet::from([session]),
            None if agents.contains(&own) => HashSet::from([own]),
            None => agents.clone(),
        };
        let Some((line, is_on_line)) = self.line_since(target)? else { return Ok(None) };
        let changes = self.attributed(&line, &present.state)?;
        let is_about_agents = request.session.is_some() || agents.contains(&own);
        let was_at_work = |session: &Session| session.info.seen_at > Some(target.step.at);
        let only_user = !known.iter().any(was_at_work);
        if !is_about_agents
            && only_user
            && changes.iter().all(|numbered| numbered.who == Attribution::Unreported)
        {
            return Ok(None);
        }
        let foreign_git = match request.git {
            true => self.git_moved_by_others(&line, present, &sessions)?,
            false => None,
        };
        Ok(Some(Scope { changes, sessions, foreign_git, is_on_line }))
    }

    /// Returns the checkpoints from the one whose files `target` has up to the head, oldest first, and true. If that
    /// checkpoint is not an ancestor of the head: those from the last common checkpoint on, and false. `None` if the two have
    /// no common checkpoint or states in between were freed.
    fn line_since(&self, target: &StepRow) -> Result<Option<(Vec<StepRow>, bool)>, EngineError> {
        let Ok(base) = self.nearest_checkpoint(target) else { return Ok(None) };
        let there: Vec<_> = self.ancestry(&base)?.iter().map(|stored| stored.step.id).collect();
        let known: HashSet<_> = there.iter().collect();
        let mut line = self.ancestry(&self.head()?)?;
        let Some(at) = line.iter().position(|stored| known.contains(&stored.step.id)) else {
            return Ok(None);
        };
        let is_on_line = there.first() == Some(&line[at].step.id);
        line.truncate(at + 1);
        line.reverse();
        if line.iter().any(|stored| stored.purged) {
            return Ok(None);
        }
        Ok(Some((line, is_on_line)))
    }

    /// Removes from `plan`, which restores a point that is not an ancestor of the head, the paths that others than the
    /// sessions of `scope` changed since the last common checkpoint. Returns the changes kept and the paths removed.
    pub(crate) fn keep_foreign(
        &self,
        plan: &mut RewindPlan,
        scope: &Scope,
        filter: &PathFilter,
        wanted: &WorkspaceState,
        present: &PresentState,
        audience: Audience,
    ) -> Result<(Vec<KeptChange>, Vec<RelPath>), EngineError> {
        let others: Vec<&NumberedChange> = (scope.changes.iter())
            .filter(|numbered| {
                !numbered.taken_back && !scope.has(numbered) && filter.matches(&numbered.change.path)
            })
            .collect();
        let foreign: Vec<&RelPath> = (others.iter())
            .flat_map(|numbered| [Some(&numbered.change.path), numbered.change.from.as_ref()])
            .flatten()
            .collect();
        let known: HashSet<&RelPath> = foreign.iter().copied().collect();
        // A directory is removed only with everything in it, and nothing is restored below a path that stays as it is.
        let stays = |change: &PlannedChange| {
            let mut above = Some(change.path.clone());
            while let Some(path) = above {
                if known.contains(&path) {
                    return true;
                }
                above = path.split_last().map(|(parent, _)| parent);
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
        let against = KeptAgainst {
            base: Lookup::new(&source, wanted.files),
            present: Lookup::new(&source, present.state.files),
            plan,
        };
        let concerns = |session| scope.sessions.contains(&session);
        let Others { kept, uncertain } = self.kept_of(&others, against, audience, concerns, false)?;
        plan.left_alone.extend(uncertain);
        Ok((kept, dropped))
    }

    /// Returns who moved git while none of `sessions` was at work; the first one if there are several.
    fn git_moved_by_others(
        &self,
        line: &[StepRow],
        present: &PresentState,
        sessions: &HashSet<SessionId>,
    ) -> Result<Option<ChangeAuthor>, EngineError> {
        for pair in line.windows(2) {
            if self.state_of(&pair[0])?.git == self.state_of(&pair[1])?.git {
                continue;
            }
            let authors = authors_in(self.detail_of(&pair[1].step)?.as_ref()).calls;
            let others: Vec<_> =
                authors.iter().filter(|call| !sessions.contains(&call.session)).cloned().collect();
            let who = match (authors.as_slice(), others.as_slice()) {
                ([], _) => Attribution::Unreported,
                (_, []) => continue,
                _ => Attribution::OneOf(authors),
            };
            return self.change_author(&who).map(Some);
        }
        let head = line.last().map(|head| self.state_of(head)).transpose()?;
        match head.is_some_and(|head| head.git != present.state.git) {
            true => self.change_author(&Attribution::Unreported).map(Some),
            false => Ok(None),
        }
    }

    /// Plans to take back the changes in `scope`. `whole` is the plan that restores `target` as a whole. The caller fills in
    /// the present and the lock.
    pub(crate) fn prepare_scoped(
        &self,
        request: &RewindRequest,
        target: &StepRow,
        scope: &Scope,
        filter: &PathFilter,
        present: &PresentState,
        whole: &RewindPlan,
    ) -> Result<PreparedRewind, EngineError> {
        let audience = request.audience;
        let databases = self.database_files(filter, scope.changes.iter().map(|numbered| &numbered.change))?;
        let matches = |path: &RelPath| filter.matches(path) || databases.contains(path);
        let (chosen, others): (Vec<&NumberedChange>, Vec<&NumberedChange>) = (scope.changes.iter())
            .filter(|numbered| !numbered.taken_back && matches(&numbered.change.path))
            .partition(|numbered| scope.has(numbered));
        let mut plan = self.plan_to_take_back(&chosen, present, &[])?;
        // If only some paths go back, the sessions stay where they are.
        let reached = Some(target).filter(|_| filter.is_empty());
        let detail = self.store_marks(&chosen, &plan, reached, &scope.sessions)?;
        self.name_conflicts(&mut plan, &scope.changes, &chosen, audience)?;
        let wanted = self.state_of(target)?;
        let source = StoreSource(self.store());
        let against = KeptAgainst {
            base: Lookup::new(&source, wanted.files),
            present: Lookup::new(&source, present.state.files),
            plan: &plan,
        };
        let concerns = |session| scope.sessions.contains(&session);
        let Others { kept, uncertain } = self.kept_of(&others, against, audience, concerns, false)?;
        for left in uncertain {
            if !plan.left_alone.iter().any(|known| known.path == left.path) {
                plan.left_alone.push(left);
            }
        }
        let everything_changes = differing(whole, &plan);
        let mut git_target = None;
        let mut warnings = links_leading_out(&plan);
        if let Some(mover) = &scope.foreign_git {
            plan.left_alone.extend(self.moved_git(present, mover, audience)?);
        } else if request.git {
            let git = self.git_changes(filter, present, &wanted)?;
            git_target = git.target;
            let mut planned = direct(git.changes);
            self.check_git_objects(&mut planned, &mut warnings)?;
            plan.changes.extend(planned.changes);
            plan.left_alone.extend(planned.left_alone.into_iter().chain(git.left_alone));
        } else {
            warnings.extend(self.head_moves(&present.state, &wanted)?);
        }
        plan.changes.sort_by(|a, b| a.path.cmp_by_components(&b.path));
        let paths =
            if filter.is_empty() { String::new() } else { format!(" of {}", request.paths.join(", ")) };
        let whose = self.whose(&scope.sessions)?;
        let point = describe(target);
        let summary = format!("rewind{paths} to {point}, only what {whose} changed");
        let unchanged_because = plan.is_empty().then(|| {
            let nothing = format!("no change of {whose} since {point} is left to take back");
            why_unchanged(&point, &kept, &plan.left_alone, audience).unwrap_or(nothing)
        });
        let prepared = self.prepared(plan, warnings, summary, request.git, git_target, detail)?;
        Ok(PreparedRewind { kept, everything_changes, unchanged_because, ..prepared })
    }

    /// Returns the git directories, which stay as they are because `mover` moved them.
    pub(crate) fn moved_git(
        &self,
        present: &PresentState,
        mover: &ChangeAuthor,
        audience: Audience,
    ) -> Result<Vec<SkippedPath>, EngineError> {
        let reason = format!("it was moved since (by {})", mover.name(audience));
        let stays = |path| SkippedPath::conflict(path, reason.clone());
        Ok(git_dirs(self, present)?.into_iter().map(stays).collect())
    }

    /// Returns the name of a set of sessions for messages: that of a single session, otherwise `agents`.
    pub(crate) fn whose(&self, sessions: &HashSet<SessionId>) -> Result<String, EngineError> {
        let known = self.agent_sessions()?;
        let mut named: Vec<&Session> =
            known.iter().filter(|session| sessions.contains(&session.id)).collect();
        Ok(match (named.pop(), named.len()) {
            (Some(one), 0) => format!("session {} {}", one.agent, one.id.short()),
            _ => "agents".into(),
        })
    }
}

/// Returns the paths that `whole` changes and `plan` does not, or not to the same content.
fn differing(whole: &RewindPlan, plan: &RewindPlan) -> Vec<RelPath> {
    let is_same = |change: &&PlannedChange| {
        let found = plan.changes.binary_search_by(|other| other.path.cmp_by_components(&change.path));
        found.is_ok_and(|at| plan.changes[at].then == change.then)
    };
    whole.changes.iter().filter(|change| !is_same(change)).map(|change| change.path.clone()).collect()
}

/// Returns the git directories of the present state.
fn git_dirs(workspace: &Workspace, present: &PresentState) -> Result<Vec<RelPath>, EngineError> {
    let Some(git) = present.state.git else { return Ok(Vec::new()) };
    let git = GitState::load(&StoreSource(workspace.store()), git)?;
    let parse = |repository: &GitSummary| RelPath::parse(repository.path.clone()).ok();
    Ok(git.repositories.iter().filter_map(parse).collect())
}
