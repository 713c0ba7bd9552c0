//! Resolves a point to the step it names. All user interfaces share this resolver.

use jiff::tz::TimeZone;
use stepback_model::nearest::edit_distance;
use stepback_model::point::{Anchor, Nth, PointError, PointExpr, is_id_prefix};
use stepback_model::record::{Session, StepKind, Trigger};
use stepback_model::time::Timestamp;
use stepback_model::time_expr;
use stepback_store::port::{StepQuery, StepRow};

use crate::error::EngineError;
use crate::workspace::{Workspace, describe_checkpoint};

/// How many candidates an error lists.
const MAX_LISTED_CANDIDATES: usize = 5;

impl Workspace {
    /// Returns the step that `text` names, relative to `now`. `zone` is called only if the point is a time: finding out the
    /// time zone takes longer than resolving any other point.
    pub fn resolve(
        &self,
        text: &str,
        now: Timestamp,
        zone: &dyn Fn() -> TimeZone,
    ) -> Result<StepRow, EngineError> {
        let invalid_point = |error: PointError| EngineError::Point(error.to_string());
        let point = PointExpr::parse(text).map_err(invalid_point)?;
        let checkpoints = self.store().checkpoints(self.record.id)?;
        if checkpoints.is_empty() {
            return Err(EngineError::NothingRecorded { root: self.root.clone() });
        }
        let session = match &point.session {
            Some(prefix) => Some(self.find_session(prefix).map_err(|error| match error {
                EngineError::Point(reason) => invalid_point(PointError::new(text, 0..prefix.len(), reason)),
                other => other,
            })?),
            None => None,
        };
        let resolver = Resolver { workspace: self, text, all: &checkpoints, session, now, zone };
        let step = resolver.resolve(&point).map_err(invalid_point)?;
        resolver.step_back(step, point.back)
    }

    /// Returns `from` and its ancestors back to the first checkpoint, newest first.
    pub fn ancestry(&self, from: &StepRow) -> Result<Vec<StepRow>, EngineError> {
        let checkpoints = self.store().checkpoints(self.record.id)?;
        Ok(collect_ancestors(&checkpoints, from))
    }
}

/// Returns `from` and its ancestors, newest first.
fn collect_ancestors(checkpoints: &[StepRow], from: &StepRow) -> Vec<StepRow> {
    let by_id: std::collections::HashMap<_, _> =
        checkpoints.iter().map(|stored| (stored.step.id, stored)).collect();
    let mut steps = vec![from.clone()];
    let mut ancestor = from.step.parent;
    while let Some(stored) = ancestor.and_then(|id| by_id.get(&id)) {
        steps.push((*stored).clone());
        ancestor = stored.step.parent;
    }
    steps
}

struct Resolver<'s> {
    workspace: &'s Workspace,
    text: &'s str,
    /// Checkpoints, newest first, hidden ones included.
    all: &'s [StepRow],
    /// The session the point is limited to.
    session: Option<Session>,
    now: Timestamp,
    zone: &'s dyn Fn() -> TimeZone,
}

impl<'s> Resolver<'s> {
    fn visible_checkpoints(&self) -> impl DoubleEndedIterator<Item = &'s StepRow> {
        self.all.iter().filter(|stored| stored.hidden_by.is_none())
    }

    fn point_error(&self, what: impl Into<String>) -> PointError {
        PointError::new(self.text, 0..self.text.len(), what)
    }

    /// Returns the steps that match `query`, in the session the point is limited to; none if the store fails.
    fn query_steps(&self, query: StepQuery) -> Vec<StepRow> {
        let query = StepQuery { session: self.session.as_ref().map(|session| session.id), ..query };
        self.workspace.store().steps(self.workspace.record.id, &query).unwrap_or_default()
    }

    fn resolve(&self, point: &PointExpr) -> Result<StepRow, PointError> {
        match &point.anchor {
            Anchor::Now => match &self.session {
                Some(_) => self
                    .query_steps(StepQuery { limit: Some(1), ..StepQuery::default() })
                    .pop()
                    .ok_or_else(|| self.point_error("the session has no step yet")),
                None => self.resolve_head(),
            },
            Anchor::Step(number) => self.resolve_step(*number),
            Anchor::Label(name) => {
                self.expect_one(self.find_by_label(name), &format!("the label \"{name}\""))
            }
            Anchor::Id(prefix) => {
                self.expect_one(self.find_by_id_prefix(prefix), &format!("an id starting with {prefix}"))
            }
            Anchor::Branch(name) => self.resolve_branch(name),
            Anchor::Time(text) => self.resolve_time(text),
            Anchor::Tag { tag, nth } => {
                let tagged = |stored: &&StepRow| stored.annotation.tags.contains(tag);
                let matches = self.visible_checkpoints().filter(tagged).cloned().collect();
                self.select_nth(matches, *nth, &format!("checkpoint has the tag {tag}"), self.suggest_tags())
            }
            Anchor::Text { name, is_time } => self.resolve_text(name, *is_time),
            Anchor::Error(nth) => {
                let mut matches = self.query_steps(StepQuery { failed: Some(true), ..StepQuery::default() });
                // A gap in the recording is not an error of the agent.
                matches.retain(|stored| stored.step.kind != StepKind::Gap);
                self.select_nth(matches, *nth, "error is recorded", Vec::new())
            }
            Anchor::Tool { name, nth } => {
                let query = StepQuery {
                    kinds: vec![StepKind::ToolStart],
                    tool: Some(name.clone()),
                    ..StepQuery::default()
                };
                self.select_nth(
                    self.query_steps(query),
                    *nth,
                    &format!("call of {name} is recorded"),
                    self.suggest_tools(),
                )
            }
            Anchor::Iteration(number) => {
                let query = StepQuery {
                    iteration: Some(*number),
                    oldest_first: true,
                    session: None,
                    limit: Some(1),
                    ..StepQuery::default()
                };
                // Without a session, the newest one that reached this iteration is meant.
                let newest = match &self.session {
                    Some(_) => None,
                    None => self.query_steps(StepQuery { oldest_first: false, ..query.clone() }).pop(),
                };
                let session = newest.map(|stored| stored.step.session);
                let matches = match session {
                    Some(session) => {
                        let query = StepQuery { session: Some(session), ..query };
                        let workspace = self.workspace;
                        workspace.store().steps(workspace.record.id, &query).unwrap_or_default().pop()
                    }
                    None => self.query_steps(query).pop(),
                };
                matches.ok_or_else(|| self.point_error(format!("no iteration {number} is recorded")))
            }
        }
    }

    fn resolve_head(&self) -> Result<StepRow, PointError> {
        let head = self.workspace.head_id().ok().flatten();
        self.all
            .iter()
            .find(|stored| Some(stored.step.id) == head)
            .cloned()
            .ok_or_else(|| self.point_error("the workspace has no checkpoint yet"))
    }

    fn resolve_branch(&self, name: &str) -> Result<StepRow, PointError> {
        let tip = self.workspace.branch_tip(name).ok().flatten();
        tip.ok_or_else(|| {
            let names = self.workspace.branch_names().unwrap_or_default();
            let names = names.into_iter().take(MAX_LISTED_CANDIDATES).map(|name| format!("branch:{name}"));
            self.point_error(format!("branch {name} not found")).suggest(names.collect::<Vec<_>>())
        })
    }

    fn resolve_step(&self, number: u64) -> Result<StepRow, PointError> {
        let workspace = self.workspace;
        let step = workspace.store().step_numbered(workspace.record.id, number).ok().flatten();
        match step {
            Some(stored) if stored.hidden_by.is_some() => Err(self
                .point_error(format!("step #{number} was deleted or pruned"))
                .suggest(["stepback op log", "stepback undo"])),
            Some(stored)
                if self.session.as_ref().is_some_and(|session| session.id != stored.step.session) =>
            {
                Err(self
                    .point_error(format!("step #{number} belongs to another session"))
                    .suggest([format!("#{number}")]))
            }
            Some(stored) => Ok(stored),
            None => {
                let query = StepQuery { limit: Some(1), ..StepQuery::default() };
                let newest = workspace.store().steps(workspace.record.id, &query).unwrap_or_default().pop();
                let newest = newest.map_or(0, |stored| stored.step.number);
                let mut error =
                    self.point_error(step_not_found_message(number, newest)).suggest([format!("#{newest}")]);
                // Digits alone may have been copied from an id.
                if self.text.trim_start().starts_with(|c: char| c.is_ascii_digit()) {
                    error.what.push_str(&format!("; \"id:{number}\" selects the step by its id"));
                }
                if !self.find_by_id_prefix(&number.to_string()).is_empty() {
                    error.suggestions.push(format!("id:{number}"));
                }
                Err(error)
            }
        }
    }

    fn find_by_label(&self, name: &str) -> Vec<StepRow> {
        let has_label = |stored: &&StepRow| stored.annotation.label.as_deref() == Some(name);
        self.visible_checkpoints().filter(has_label).cloned().collect()
    }

    /// Returns the checkpoints whose id starts with `prefix`, or other steps if there are none.
    fn find_by_id_prefix(&self, prefix: &str) -> Vec<StepRow> {
        let prefix = prefix.to_ascii_lowercase();
        let has_prefix = |stored: &StepRow| stored.step.id.to_string().starts_with(&prefix);
        let matches: Vec<_> =
            self.visible_checkpoints().filter(|stored| has_prefix(stored)).cloned().collect();
        if !matches.is_empty() {
            return matches;
        }
        let light = |stored: &StepRow| !stored.is_checkpoint() && has_prefix(stored);
        self.query_steps(StepQuery::default()).into_iter().filter(light).collect()
    }

    fn expect_one(&self, matches: Vec<StepRow>, what: &str) -> Result<StepRow, PointError> {
        match matches.as_slice() {
            [only_match] => Ok(only_match.clone()),
            [] => Err(self
                .point_error(format!("no checkpoint has {what}"))
                .suggest(self.suggest_similar_labels())),
            many => {
                let candidates = many.iter().take(MAX_LISTED_CANDIDATES).map(|stored| {
                    let step = &stored.step;
                    format!("#{} ({}, {})", step.number, step.id.short(), step.at.ago(self.now))
                });
                let count = many.len();
                Err(self
                    .point_error(format!("{count} checkpoints have {what}"))
                    .suggest(candidates.collect::<Vec<_>>()))
            }
        }
    }

    /// Resolves bare text: an exact label, an id or its prefix, a branch, or a time, in this order.
    fn resolve_text(&self, name: &str, is_time: bool) -> Result<StepRow, PointError> {
        let labelled = self.find_by_label(name);
        if !labelled.is_empty() {
            return self.expect_one(labelled, &format!("the label \"{name}\""));
        }
        if is_id_prefix(name) {
            let matching = self.find_by_id_prefix(name);
            if !matching.is_empty() {
                return self.expect_one(matching, &format!("an id starting with {name}"));
            }
        }
        if let Ok(Some(tip)) = self.workspace.branch_tip(name) {
            return Ok(tip);
        }
        if is_time {
            return self.resolve_time(name);
        }
        let message = format!("no checkpoint has the label, id or branch \"{name}\"");
        Err(PointError::unknown_text(self.text, message).suggest(self.suggest_similar_labels()))
    }

    /// Resolves a time: the newest checkpoint at or before it.
    fn resolve_time(&self, text: &str) -> Result<StepRow, PointError> {
        let moment = time_expr::parse(text, self.now, &(self.zone)()).map_err(|error| {
            let offset = self.text.find(text).unwrap_or(0);
            PointError::from_time(self.text, offset, error)
        })?;
        self.visible_checkpoints().find(|stored| stored.step.at <= moment).cloned().ok_or_else(|| {
            let oldest = self.visible_checkpoints().next_back();
            let since = oldest.map_or_else(String::new, |stored| {
                let step = &stored.step;
                format!("; the oldest checkpoint, #{}, is from {}", step.number, step.at)
            });
            self.point_error(format!("nothing was recorded at that time{since}"))
        })
    }

    fn select_nth(
        &self,
        newest_first: Vec<StepRow>,
        nth: Nth,
        what: &str,
        suggestions: Vec<String>,
    ) -> Result<StepRow, PointError> {
        let count = newest_first.len();
        let selected = match nth {
            Nth::Last => newest_first.first(),
            Nth::First => newest_first.last(),
            Nth::Number(number) => usize::try_from(number)
                .ok()
                .and_then(|n| count.checked_sub(n))
                .and_then(|index| newest_first.get(index)),
        };
        selected.cloned().ok_or_else(|| {
            let message = match count {
                0 => format!("no {what}"),
                _ => format!("there are only {count}; no further {what}"),
            };
            self.point_error(message).suggest(suggestions)
        })
    }

    fn suggest_tags(&self) -> Vec<String> {
        let mut tags: Vec<String> =
            self.visible_checkpoints().flat_map(|stored| stored.annotation.tags.clone()).collect();
        tags.sort();
        tags.dedup();
        tags.into_iter().take(MAX_LISTED_CANDIDATES).map(|tag| format!("tag:{tag}")).collect()
    }

    /// Returns suggestions: tools whose calls are recorded.
    fn suggest_tools(&self) -> Vec<String> {
        let calls = self.query_steps(StepQuery {
            kinds: vec![StepKind::ToolStart],
            limit: Some(1000),
            ..StepQuery::default()
        });
        let mut tools: Vec<String> = calls.into_iter().filter_map(|stored| stored.step.meta.tool).collect();
        tools.sort();
        tools.dedup();
        tools.into_iter().take(MAX_LISTED_CANDIDATES).map(|tool| format!("tool:{tool}:last")).collect()
    }

    /// Returns suggestions: existing labels, the most similar first, and the newest checkpoint.
    fn suggest_similar_labels(&self) -> Vec<String> {
        let lower_text = self.text.to_lowercase();
        let mut names: Vec<(usize, String)> = self
            .visible_checkpoints()
            .filter_map(|stored| stored.annotation.label.clone())
            .map(|label| (edit_distance(&label.to_lowercase(), &lower_text), label))
            .collect();
        names.sort_by_key(|(distance, _)| *distance);
        names.dedup_by(|a, b| a.1 == b.1);
        let mut suggestions: Vec<String> = names.into_iter().take(3).map(|(_, label)| label).collect();
        if let Some(newest) = self.visible_checkpoints().next() {
            suggestions.push(format!("#{}", newest.step.number));
        }
        suggestions
    }

    /// Goes back `count` states along the line of steps that led to `from`. Not counted are steps that only save the present
    /// before a move, and steps that changed nothing: a rewind to a point stands for that point.
    fn step_back(&self, from: StepRow, count: u64) -> Result<StepRow, EngineError> {
        if count == 0 {
            return Ok(from);
        }
        let graph = self.workspace.line_graph(self.all, &self.workspace.operations()?)?;
        let by_id = self.all.iter().map(|stored| (stored.step.id, stored)).collect();
        let line = graph.states_on_line_to(&from, &by_id);
        let mut counted: Vec<&StepRow> = Vec::new();
        let needed = usize::try_from(count).unwrap_or(usize::MAX);
        for stored in line {
            let is_start = counted.is_empty();
            if stored.hidden_by.is_some() && !is_start {
                continue;
            }
            match counted.last().copied() {
                Some(newer) if self.is_same_state(newer, stored) => {
                    // Of several checkpoints with the same state, count the first one that reached it, or the manual ones.
                    let is_named = |stored: &StepRow| stored.trigger == Some(Trigger::Manual);
                    if is_named(newer) && is_named(stored) {
                        counted.push(stored);
                    } else if counted.len() > 1 && !is_named(newer) {
                        counted.pop();
                        counted.push(stored);
                    }
                }
                _ => counted.push(stored),
            }
            // One more than needed, because the last may still be replaced by one with the same state.
            if counted.len() > needed.saturating_add(1) {
                break;
            }
        }
        counted.get(needed).map(|stored| (*stored).clone()).ok_or_else(|| {
            let max_steps = counted.len().saturating_sub(1);
            let error = self.point_error(format!(
                "there are only {max_steps} steps before {}",
                describe_checkpoint(&from)
            ));
            EngineError::Point(error.to_string())
        })
    }

    /// Whether a step and an earlier one have the same state. For a rewind only the files are compared: it may have left git
    /// as it was.
    fn is_same_state(&self, newer: &StepRow, older: &StepRow) -> bool {
        if newer.step.kind != StepKind::Rewind {
            return self.workspace.has_equal_files(newer, older);
        }
        let files = |stored| self.workspace.load_state(stored).ok().map(|state| state.files);
        files(newer).is_some_and(|newer| Some(newer) == files(older))
    }
}

/// Returns the error message for a step number that does not exist.
pub fn step_not_found_message(number: u64, newest: u64) -> String {
    format!("there is no step {number} (the last is {newest})")
}
