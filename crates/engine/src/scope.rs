//! Taking back what agents did, and nothing else: which changes a rewind is about, and the plan that takes them back.
//!
//! A rewind to a step of a session is about what that session changed since. A rewind to a step of the person is about what
//! any agent changed since, if one did. Whatever somebody else changed meanwhile stays: it is merged, or the path is left
//! alone and listed. Only where nobody else changed anything is the past state restored as a whole.

use std::collections::HashSet;

use serde_json::{Value, json};
use stepback_model::hash::Hash;
use stepback_model::ids::SessionId;
use stepback_model::plan::{LeftAlone, Plan};
use stepback_model::record::Session;
use stepback_model::state::GitState;
use stepback_store::port::StoredCheckpoint;

use crate::authorship::Who;
use crate::changes::{Numbered, mark};
use crate::diff;
use crate::direct::{direct, links_leading_out};
use crate::error::EngineError;
use crate::hunks;
use crate::path_filter::PathFilter;
use crate::revert::{Lookup, Reverter};
use crate::rewind::{Prepared, Request};
use crate::workspace::{Present, StoreSource, Workspace, describe};

/// What a rewind to a point is about.
pub(crate) struct Scope {
    /// All changes since the point, oldest first.
    changes: Vec<Numbered>,
    /// The sessions whose changes go.
    sessions: HashSet<SessionId>,
    /// Whether somebody else moved git since.
    foreign_git: bool,
}

impl Scope {
    fn has(&self, numbered: &Numbered) -> bool {
        !numbered.taken_back && numbered.who.session().is_some_and(|session| self.sessions.contains(&session))
    }

    /// Whether nobody else changed anything, so that the past state can be restored as a whole.
    pub fn is_everything(&self) -> bool {
        !self.foreign_git && self.changes.iter().all(|numbered| self.has(numbered))
    }
}

impl Workspace<'_> {
    /// What a rewind to `target` is about; `None` if it is about the whole workspace.
    pub(crate) fn scope(
        &self,
        request: &Request,
        target: &StoredCheckpoint,
        present: &Present,
    ) -> Result<Option<Scope>, EngineError> {
        if request.everything {
            return Ok(None);
        }
        let agents: HashSet<SessionId> =
            self.agent_sessions()?.into_iter().map(|session| session.id).collect();
        if agents.is_empty() {
            return Ok(None);
        }
        let own = target.checkpoint.step.session;
        let sessions = match request.session {
            Some(session) => HashSet::from([session]),
            None if agents.contains(&own) => HashSet::from([own]),
            None => agents.clone(),
        };
        let Some(line) = self.line_from(target)? else {
            // The point lies on a line that was left: there is no list of changes from there to here.
            return Ok(None);
        };
        let changes = self.attributed(&line, &present.state)?;
        let asked = request.session.is_some() || agents.contains(&own);
        if !asked && !changes.iter().any(|numbered| numbered.who != Who::Somebody) {
            return Ok(None);
        }
        let foreign_git = request.git && self.somebody_else_moved_git(&line, present, &sessions)?;
        Ok(Some(Scope { changes, sessions, foreign_git }))
    }

    /// The checkpoints from the one whose files `target` has up to the head, oldest first; `None` if it is not on the line.
    fn line_from(&self, target: &StoredCheckpoint) -> Result<Option<Vec<StoredCheckpoint>>, EngineError> {
        let mut base = target.clone();
        while base.checkpoint.trigger.is_none() {
            let Some(parent) = base.checkpoint.step.parent else { return Ok(None) };
            let Some(stored) = self.store().step(parent)? else { return Ok(None) };
            base = stored;
        }
        let mut line = self.ancestry(&self.head()?)?;
        let Some(at) = line.iter().position(|stored| stored.checkpoint.step.id == base.checkpoint.step.id)
        else {
            return Ok(None);
        };
        line.truncate(at + 1);
        line.reverse();
        if line.iter().any(|stored| stored.purged) {
            return Ok(None);
        }
        Ok(Some(line))
    }

    /// Whether git moved while none of `sessions` was at work.
    fn somebody_else_moved_git(
        &self,
        line: &[StoredCheckpoint],
        present: &Present,
        sessions: &HashSet<SessionId>,
    ) -> Result<bool, EngineError> {
        for pair in line.windows(2) {
            if self.state_of(&pair[0])?.git == self.state_of(&pair[1])?.git {
                continue;
            }
            let detail = self.detail_of(&pair[1].checkpoint.step)?;
            let calls = detail.as_ref().and_then(|detail| detail.pointer("/authors/calls")?.as_array());
            let ours = calls.is_some_and(|calls| {
                !calls.is_empty()
                    && calls.iter().all(|call| {
                        let id = call.get("session").and_then(Value::as_str).and_then(SessionId::from_hex);
                        id.is_some_and(|id| sessions.contains(&id))
                    })
            });
            if !ours {
                return Ok(true);
            }
        }
        let head = line.last().map(|head| self.state_of(head)).transpose()?;
        Ok(head.is_some_and(|head| head.git != present.state.git))
    }

    /// Plans to take back what `scope` is about. The present and the lock are filled in by the caller.
    pub(crate) fn prepare_scoped(
        &self,
        request: &Request,
        target: &StoredCheckpoint,
        scope: &Scope,
        filter: &PathFilter,
        present: &Present,
    ) -> Result<Prepared, EngineError> {
        let chosen: Vec<&Numbered> = (scope.changes.iter())
            .filter(|numbered| scope.has(numbered) && filter.matches(&numbered.change.path))
            .collect();
        let mut plan = self.plan_to_take_back(&chosen, present, &[])?;
        // What several sessions may have changed is nobody's to take back.
        for numbered in &scope.changes {
            if let Who::OneOf(authors) = &numbered.who
                && authors.iter().any(|author| scope.sessions.contains(&author.session))
                && filter.matches(&numbered.change.path)
                && !plan.left_alone.iter().any(|left| left.path == numbered.change.path)
            {
                let alone = authors.iter().all(|author| scope.sessions.contains(&author.session));
                let reason = match alone {
                    true => {
                        "a call was cut short, and somebody else may have changed it; --everything takes it back"
                    }
                    false => "another session was at work at the same time; --everything takes it back",
                };
                plan.left_alone.push(LeftAlone::conflict(numbered.change.path.clone(), reason));
            }
        }
        let mut git_target = None;
        let mut warnings = links_leading_out(&plan);
        if request.git {
            let wanted = self.state_of(target)?;
            if scope.foreign_git {
                let reason = "somebody else moved it since; --everything takes it back";
                plan.left_alone.extend(
                    git_dirs(self, present)?.into_iter().map(|path| LeftAlone::conflict(path, reason)),
                );
            } else {
                let source = StoreSource(self.store());
                git_target = wanted.git.map(|hash| GitState::load(&source, hash)).transpose()?;
                let git = diff::git(&source, &present.state, &wanted)?;
                let planned = direct(git);
                plan.changes.extend(planned.changes);
                plan.left_alone.extend(planned.left_alone);
            }
        } else {
            warnings.extend(self.head_moves(&present.state, &self.state_of(target)?)?);
        }
        plan.changes.sort_by(|a, b| a.path.cmp_by_components(&b.path));
        let stays =
            scope.changes.iter().filter(|numbered| !numbered.taken_back && !scope.has(numbered)).count();
        if stays > 0 {
            let what = if stays == 1 {
                "1 other change stays".into()
            } else {
                format!("{stays} other changes stay")
            };
            warnings.push(format!(
                "{what}, made by somebody else; --everything goes back to {} as a whole",
                describe(target)
            ));
        }
        let detail = self.store_marks(&chosen, &plan, Some(target), &scope.sessions)?;
        let paths =
            if filter.is_empty() { String::new() } else { format!(" of {}", request.paths.join(", ")) };
        let summary = format!(
            "rewind{paths} to {}, only what {} changed",
            describe(target),
            self.whose(&scope.sessions)?
        );
        self.prepared(plan, warnings, summary, request.git, git_target, detail)
    }

    /// Plans to take back single changes.
    pub(crate) fn prepare_changes(&self, request: &Request) -> Result<Prepared, EngineError> {
        let filter = PathFilter::new(&request.paths)?;
        let lock = self.lock_exclusive()?;
        let present = self.committed_present()?;
        let mut listed = self.numbered_changes_against(&present.state, request.target.as_ref())?;
        listed.retain(|numbered| {
            filter.matches(&numbered.change.path)
                && request.session.is_none_or(|session| numbered.who.is_session(session))
                && (!numbered.taken_back || request.changes.contains(&numbered.number))
        });
        let known: Vec<usize> = listed.iter().map(|numbered| numbered.number).collect();
        if let Some(unknown) = request.changes.iter().find(|number| !known.contains(number)) {
            let range = match (known.first(), known.last()) {
                (Some(first), Some(last)) => {
                    format!("changes {first} to {last} are listed by \"stepback changes\"")
                }
                _ => "no changes are recorded".into(),
            };
            return Err(EngineError::Input(format!("there is no change {unknown}: {range}")));
        }
        let skip = match (request.last, request.all) {
            (Some(last), false) => listed.len().saturating_sub(last),
            _ => 0,
        };
        let chosen: Vec<&Numbered> = listed
            .iter()
            .skip(skip)
            .filter(|numbered| request.changes.is_empty() || request.changes.contains(&numbered.number))
            .collect();
        let plan = self.plan_to_take_back(&chosen, &present, &request.hunks)?;
        let numbers: Vec<String> = chosen.iter().map(|numbered| numbered.number.to_string()).collect();
        let summary = match numbers.as_slice() {
            [] => "take back no change".to_string(),
            [one] if !request.hunks.is_empty() => {
                let hunks: Vec<String> = request.hunks.iter().map(usize::to_string).collect();
                format!("take back hunk {} of change {one}", hunks.join(", "))
            }
            [one] => format!("take back change {one}"),
            [first, .., last] if numbers.len() > 8 => {
                format!("take back {} changes, {first} to {last}", numbers.len())
            }
            _ => format!("take back changes {}", numbers.join(", ")),
        };
        // A part of a change that goes leaves the change on the list.
        let marked = if request.hunks.is_empty() { chosen.as_slice() } else { &[] };
        let detail = self.store_marks(marked, &plan, None, &HashSet::new())?;
        let warnings = links_leading_out(&plan);
        let prepared = self.prepared(plan, warnings, summary, false, None, detail)?;
        Ok(Prepared { present, lock: Some(lock), ..prepared })
    }

    fn plan_to_take_back(
        &self,
        chosen: &[&Numbered],
        present: &Present,
        hunks: &[usize],
    ) -> Result<Plan, EngineError> {
        let source = StoreSource(self.store());
        let batch = self.store().begin()?;
        let mut reverter = Reverter::new(&source, &*batch, present.state.files);
        match (hunks, chosen) {
            ([], _) => {
                for numbered in chosen.iter().rev() {
                    reverter
                        .take_back_visible(&numbered.change, &mut Lookup::new(&source, numbered.before))?;
                }
            }
            (hunks, [one]) => {
                let part = hunks::without(&source, &*batch, &one.change, hunks)?;
                reverter.take_back(&part)?;
            }
            _ => {
                return Err(EngineError::Input(
                    "--hunk needs exactly one change: name it with --change N".into(),
                ));
            }
        }
        let oldest = chosen.first().and_then(|numbered| numbered.before);
        let plan = reverter.finish(&mut Lookup::new(&source, oldest))?;
        let finished = batch.finish()?;
        self.store().commit(Some(finished), &[])?;
        Ok(plan)
    }

    /// Remembers which changes go, so that they are not listed as changes any more.
    fn store_marks(
        &self,
        chosen: &[&Numbered],
        plan: &Plan,
        target: Option<&StoredCheckpoint>,
        sessions: &HashSet<SessionId>,
    ) -> Result<Option<Hash>, EngineError> {
        let left = |numbered: &Numbered| plan.left_alone.iter().any(|left| left.path == numbered.change.path);
        let marks: Vec<Value> = (chosen.iter())
            .filter(|numbered| !left(numbered))
            .filter_map(|numbered| Some(mark(numbered.step?.0, numbered.change.path.as_bytes())))
            .collect();
        if marks.is_empty() {
            return Ok(None);
        }
        let sessions: Vec<String> = sessions.iter().map(SessionId::to_string).collect();
        let target = target.map(|target| target.checkpoint.step.number);
        let value = json!({ "took_back": marks, "target": target, "sessions": sessions });
        self.store_detail(&value).map(Some)
    }

    /// Remembers which step a rewind goes to, where the line cannot tell: a step without files of its own is not on it.
    pub(crate) fn store_target(&self, target: &StoredCheckpoint) -> Result<Option<Hash>, EngineError> {
        if target.checkpoint.trigger.is_some() {
            return Ok(None);
        }
        self.store_detail(&json!({ "target": target.checkpoint.step.number })).map(Some)
    }

    fn store_detail(&self, value: &Value) -> Result<Hash, EngineError> {
        let batch = self.store().begin()?;
        let hash = stepback_model::json::store(&*batch, value, None)
            .map_err(|error| EngineError::Input(error.to_string()))?;
        self.store().commit(Some(batch.finish()?), &[])?;
        Ok(hash)
    }

    /// A prepared rewind without its present, which the caller has.
    fn prepared(
        &self,
        plan: Plan,
        warnings: Vec<String>,
        summary: String,
        git: bool,
        git_target: Option<GitState>,
        detail: Option<Hash>,
    ) -> Result<Prepared, EngineError> {
        Ok(Prepared {
            plan,
            warnings,
            summary,
            git,
            by: None,
            onto: None,
            present: Present::nothing(),
            git_target,
            detail,
            branches: None,
            lock: None,
            epoch: self.store().epoch()?,
        })
    }

    /// How a set of sessions is called.
    fn whose(&self, sessions: &HashSet<SessionId>) -> Result<String, EngineError> {
        let known = self.agent_sessions()?;
        let mut named: Vec<&Session> =
            known.iter().filter(|session| sessions.contains(&session.id)).collect();
        Ok(match (named.pop(), named.len()) {
            (Some(one), 0) => format!("{} {}", one.agent, one.id.short()),
            _ => "agents".into(),
        })
    }
}

/// The git directories that are there.
fn git_dirs(
    workspace: &Workspace<'_>,
    present: &Present,
) -> Result<Vec<stepback_model::path::RelPath>, EngineError> {
    let Some(git) = present.state.git else { return Ok(Vec::new()) };
    let git = GitState::load(&StoreSource(workspace.store()), git)?;
    let parse = |repository: &stepback_model::state::Repository| {
        stepback_model::path::RelPath::parse(repository.path.clone()).ok()
    };
    Ok(git.repositories.iter().filter_map(parse).collect())
}
