//! Takes back single changes: some by number, a count of the last ones, or all.
//!
//! Any change can be taken back by its number. Otherwise only changes of agents count, or those of one session: what the user
//! or another session changed stays and is listed with its author, unless the request says `everything`. In a workspace in
//! which no agent has worked, all changes are the user's own, so those are taken back.

use std::collections::HashSet;

use serde_json::{Value, json};
use stepback_model::hash::Hash;
use stepback_model::ids::SessionId;
use stepback_model::plan::RewindPlan;
use stepback_model::record::StepRow;
use stepback_model::state::GitState;

use crate::changes::SelectionError;
use crate::changes::{NumberedChange, encode_taken_back_mark};
use crate::error::EngineError;
use crate::hunks;
use crate::kept::{Audience, KeptChange, KeptChangeContext, RetainedChanges, format_author_list};
use crate::path_filter::PathFilter;
use crate::restore_plan::outside_link_warnings;
use crate::revert::{Reverter, TreeLookup};
use crate::rewind::{PreparedRewind, RewindRequest};
use crate::workspace::{PresentState, StoreSource, Workspace, describe_checkpoint};

/// The authors whose changes a request without numbers takes back.
enum AuthorScope {
    Everyone,
    /// Only the user: no agent has worked here.
    OnlyUser,
    Agents,
    Session(SessionId),
}

impl AuthorScope {
    fn includes(&self, numbered: &NumberedChange) -> bool {
        match self {
            Self::Everyone | Self::OnlyUser => true,
            Self::Agents => numbered.who.session().is_some(),
            Self::Session(session) => numbered.who.is_certainly_by(*session),
        }
    }

    /// Whether a change that `session` may have made could be in scope.
    fn can_include_session(&self, session: SessionId) -> bool {
        match self {
            Self::Session(session_in_scope) => *session_in_scope == session,
            _ => true,
        }
    }
}

/// The changes to take back, and those by other authors that stay, both oldest first.
struct ChangeSelection<'n> {
    chosen: Vec<&'n NumberedChange>,
    others: Vec<&'n NumberedChange>,
}

impl Workspace {
    /// Plans to take back single changes and changes nothing.
    pub(crate) fn prepare_take_back(&self, request: &RewindRequest) -> Result<PreparedRewind, EngineError> {
        let filter = PathFilter::new(&request.paths)?;
        let lock = self.lock_exclusive()?;
        let present = self.scan_and_commit(false)?;
        let since = request.target.as_ref().map(|target| self.nearest_checkpoint(target)).transpose()?;
        let mut listed = self.numbered_changes_against(&present.state, since.as_ref())?;
        let databases = self.find_database_files(&filter, listed.iter().map(|numbered| &numbered.change))?;
        listed.retain(|numbered| {
            filter.matches(&numbered.change.path) || databases.contains(&numbered.change.path)
        });
        let author_scope = self.author_scope(request)?;
        let ChangeSelection { chosen, others } = match request.changes.as_slice() {
            [] => self.select_changes(request, &author_scope, &listed),
            numbers => self.select_changes_by_number(request, numbers, &listed)?,
        };
        let mut plan = self.plan_take_back(&chosen, &present, &request.hunks)?;
        // A change that is taken back only in part stays on the list.
        let marked = if request.hunks.is_empty() { chosen.as_slice() } else { &[] };
        let detail = self.store_taken_back_marks(marked, &plan, None, &HashSet::new())?;
        self.add_conflict_authors(&mut plan, &listed, &chosen, request.audience)?;
        let source = StoreSource(self.store());
        let oldest =
            (chosen.first().into_iter().chain(others.first())).min_by_key(|numbered| numbered.number);
        let against = KeptChangeContext {
            base: TreeLookup::new(&source, oldest.and_then(|numbered| numbered.before)),
            present: TreeLookup::new(&source, present.state.files),
            plan: &plan,
        };
        let concerns = |session| author_scope.can_include_session(session);
        let RetainedChanges { kept, uncertain } =
            self.find_kept_changes(&others, against, request.audience, concerns, true)?;
        let mut everything_changes: Vec<_> = kept.iter().map(|change| change.path.clone()).collect();
        for skipped in uncertain {
            everything_changes.push(skipped.path.clone());
            if !plan.left_alone.iter().any(|skipped_path| skipped_path.path == skipped.path) {
                plan.left_alone.push(skipped);
            }
        }
        everything_changes.sort_by(|a, b| a.cmp_by_components(b));
        everything_changes.dedup();
        let mut warnings = outside_link_warnings(&plan);
        if matches!(author_scope, AuthorScope::OnlyUser) && !chosen.is_empty() && request.changes.is_empty() {
            let own_changes = match request.audience {
                Audience::User => "your own",
                Audience::Agent => "the user's own",
            };
            warnings.push(format!(
                "no agent has worked in this workspace, so this applies to {own_changes} changes"
            ));
        }
        let unchanged_because = match plan.is_empty() {
            true => Some(self.explain_no_change(request, &author_scope, &chosen, &plan, &kept)?),
            false => None,
        };
        let prepared = self.new_prepared_rewind(
            plan,
            warnings,
            summarize_selection(request, &chosen),
            false,
            None,
            detail,
        )?;
        Ok(PreparedRewind {
            present,
            lock: Some(lock),
            kept,
            everything_changes,
            unchanged_because,
            ..prepared
        })
    }

    fn author_scope(&self, request: &RewindRequest) -> Result<AuthorScope, EngineError> {
        Ok(match request.session {
            _ if request.everything => AuthorScope::Everyone,
            Some(session) => AuthorScope::Session(session),
            None if self.agent_sessions()?.is_empty() => AuthorScope::OnlyUser,
            None => AuthorScope::Agents,
        })
    }

    /// Selects the last `request.last` changes of `author_scope`, or all of them, and what others changed meanwhile.
    fn select_changes<'n>(
        &self,
        request: &RewindRequest,
        author_scope: &AuthorScope,
        listed: &'n [NumberedChange],
    ) -> ChangeSelection<'n> {
        // After the list was cleared, it holds only later changes, unless the request names a point to start from.
        let cleared = match request.target {
            Some(_) => 0,
            None => self.session.info.cleared.unwrap_or(0),
        };
        let is_in_range = |numbered: &&NumberedChange| match request.until {
            Some(until) => numbered.step.is_some_and(|(_, number)| number <= until),
            None => true,
        };
        let open = listed.iter().filter(|numbered| numbered.is_open(cleared));
        let mut candidates: Vec<&NumberedChange> = open.filter(is_in_range).collect();
        if let (Some(last), false) = (request.last, request.all) {
            let own_indexes: Vec<usize> = (candidates.iter().enumerate())
                .filter(|(_, numbered)| author_scope.includes(numbered))
                .map(|(index, _)| index)
                .collect();
            let first_own = match (last, own_indexes.len().checked_sub(last)) {
                (0, _) => candidates.len(),
                (_, Some(skipped)) => own_indexes[skipped],
                (_, None) => 0,
            };
            candidates.drain(..first_own);
        }
        let (chosen, others) = candidates.into_iter().partition(|numbered| author_scope.includes(numbered));
        ChangeSelection { chosen, others }
    }

    /// Selects the changes with these numbers, regardless of their author.
    fn select_changes_by_number<'n>(
        &self,
        request: &RewindRequest,
        numbers: &[usize],
        listed: &'n [NumberedChange],
    ) -> Result<ChangeSelection<'n>, EngineError> {
        let find_numbered = |number: usize| listed.iter().find(|numbered| numbered.number == number);
        for &number in numbers {
            let Some(numbered) = find_numbered(number) else {
                let mut remaining = listed.iter().filter(|numbered| !numbered.taken_back);
                let first = remaining.next();
                let listed = first.zip(remaining.next_back().or(first));
                let listed = listed.map(|(first, last)| (first.number, last.number));
                return Err(SelectionError::NoSuchChange { number, listed }.into());
            };
            if let Some(session) = request.session
                && !numbered.who.is_certainly_by(session)
            {
                let author = self.resolve_change_author(&numbered.who)?.name(request.audience);
                let path = numbered.change.path.clone();
                let expected = self.describe_sessions(&HashSet::from([session]))?;
                return Err(SelectionError::OtherAuthor { number, path, author, expected }.into());
            }
        }
        let chosen = listed.iter().filter(|numbered| numbers.contains(&numbered.number)).collect();
        Ok(ChangeSelection { chosen, others: Vec::new() })
    }

    /// Returns why taking back `chosen` changes no file.
    fn explain_no_change(
        &self,
        request: &RewindRequest,
        author_scope: &AuthorScope,
        chosen: &[&NumberedChange],
        plan: &RewindPlan,
        kept: &[KeptChange],
    ) -> Result<String, EngineError> {
        let since_text =
            request.target.as_ref().map(|target| format!(" after {}", describe_checkpoint(target)));
        let since_text = since_text.unwrap_or_default();
        let authors = match author_scope {
            AuthorScope::Session(session) => self.describe_sessions(&HashSet::from([*session]))?,
            AuthorScope::Agents => "an agent".into(),
            AuthorScope::Everyone | AuthorScope::OnlyUser => {
                return Ok(match (chosen, plan.left_alone.is_empty()) {
                    ([], _) => format!("no change{since_text} is listed"),
                    (_, true) => "the files are already as they were before these changes".into(),
                    (_, false) => "the differences are skipped for the reasons listed".into(),
                });
            }
        };
        let made_by_others = match kept {
            [] => String::new(),
            kept => format!(": what differs was changed by {}", format_author_list(kept, request.audience)),
        };
        Ok(match (chosen, plan.left_alone.is_empty()) {
            ([], true) => format!("no change{since_text} by {authors} is left to take back{made_by_others}"),
            ([], false) => format!("no change{since_text} is known to be by {authors}{made_by_others}"),
            (_, true) => {
                format!("what {authors} changed{since_text} is already as it was before{made_by_others}")
            }
            (_, false) => format!("what {authors} changed{since_text} is skipped for the reasons listed"),
        })
    }

    /// Returns the plan that takes back `chosen`, newest first, merged with later changes.
    pub(crate) fn plan_take_back(
        &self,
        chosen: &[&NumberedChange],
        present: &PresentState,
        hunks: &[usize],
    ) -> Result<RewindPlan, EngineError> {
        let source = StoreSource(self.store());
        let batch = self.store().begin()?;
        let mut reverter = Reverter::new(&source, &*batch, present.state.files);
        match (hunks, chosen) {
            ([], _) => {
                for numbered in chosen.iter().rev() {
                    reverter.take_back_visible(
                        &numbered.change,
                        &mut TreeLookup::new(&source, numbered.before),
                    )?;
                }
            }
            (hunks, [one]) => {
                let part = hunks::restrict_to_hunks(&source, &*batch, &one.change, hunks)?;
                reverter.take_back(&part)?;
            }
            _ => {
                return Err(SelectionError::HunksOfMany.into());
            }
        }
        let oldest = chosen.first().and_then(|numbered| numbered.before);
        let mut plan = reverter.finish(&mut TreeLookup::new(&source, oldest))?;
        let finished = batch.finish()?;
        self.store().commit(Some(finished), &[])?;
        self.complete_databases_for_changes(&mut plan, chosen, &present.state)?;
        Ok(plan)
    }

    /// Stores which changes are taken back, so that they are no longer listed.
    pub(crate) fn store_taken_back_marks(
        &self,
        chosen: &[&NumberedChange],
        plan: &RewindPlan,
        target: Option<&StepRow>,
        sessions: &HashSet<SessionId>,
    ) -> Result<Option<Hash>, EngineError> {
        let is_left_alone = |numbered: &NumberedChange| {
            plan.left_alone.iter().any(|is_left_alone| is_left_alone.path == numbered.change.path)
        };
        let marks: Vec<Value> = (chosen.iter())
            .filter(|numbered| !is_left_alone(numbered))
            .filter_map(|numbered| {
                Some(encode_taken_back_mark(numbered.step?.0, numbered.change.path.as_bytes()))
            })
            .collect();
        if marks.is_empty() && target.is_none() {
            return Ok(None);
        }
        let sessions = sorted_session_ids(sessions);
        let target = target.map(|target| target.step.number);
        let mut value = json!({ "target": target, "sessions": sessions });
        if !marks.is_empty() {
            value["took_back"] = marks.into();
        }
        self.store_detail(&value).map(Some)
    }

    /// Stores which step a rewind goes to and whose steps it takes back. The ancestry alone does not show that: a step without
    /// files of its own is not in it, and other sessions stay where they are. `about` holds the sessions, and whether only
    /// they changed anything; without it, all sessions are meant.
    pub(crate) fn store_rewind_target(
        &self,
        target: &StepRow,
        about: Option<&(HashSet<SessionId>, bool)>,
    ) -> Result<Option<Hash>, EngineError> {
        let mut value = json!({ "target": target.step.number });
        if let Some((sessions, is_everything)) = about {
            value["sessions"] = sorted_session_ids(sessions).into();
            value["whole"] = (*is_everything).into();
        }
        self.store_detail(&value).map(Some)
    }

    pub(crate) fn store_detail(&self, value: &Value) -> Result<Hash, EngineError> {
        let batch = self.store().begin()?;
        let hash = stepback_model::json::store(&*batch, value, None)?;
        self.store().commit(Some(batch.finish()?), &[])?;
        Ok(hash)
    }

    /// Returns a prepared rewind; the caller fills in the present state and the lock.
    pub(crate) fn new_prepared_rewind(
        &self,
        plan: RewindPlan,
        warnings: Vec<String>,
        summary: String,
        git: bool,
        git_target: Option<GitState>,
        detail: Option<Hash>,
    ) -> Result<PreparedRewind, EngineError> {
        Ok(PreparedRewind {
            plan,
            warnings,
            summary,
            git,
            requested_by: None,
            new_parent: None,
            present: PresentState::placeholder(),
            git_target,
            detail,
            branches: None,
            conversation_from: None,
            lock: None,
            kept: Vec::new(),
            everything_changes: Vec::new(),
            conflicts: Vec::new(),
            unchanged_because: None,
            gc_generation: self.store().gc_generation()?,
            held: Vec::new(),
            forced: false,
        })
    }
}

/// Returns the session ids as text, sorted, as they are stored.
fn sorted_session_ids(sessions: &HashSet<SessionId>) -> Vec<String> {
    let mut sessions: Vec<String> = sessions.iter().map(SessionId::to_string).collect();
    sessions.sort();
    sessions
}

fn summarize_selection(request: &RewindRequest, chosen: &[&NumberedChange]) -> String {
    let numbers: Vec<String> = chosen.iter().map(|numbered| numbered.number.to_string()).collect();
    match numbers.as_slice() {
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
    }
}
