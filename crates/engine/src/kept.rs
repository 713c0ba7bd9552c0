//! What a rewind keeps: changes of the user and of other sessions, each with its author. Also explains why a rewind changes
//! nothing.
//!
//! The texts here contain no relative times, because they are part of plans that are compared when the user confirms them.
//! The command or page that shows a [`KeptChange`] adds how long ago it was.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use stepback_model::ids::SessionId;
use stepback_model::path::RelPath;
use stepback_model::plan::{RewindPlan, SkippedPath};
use stepback_model::time::Timestamp;

use crate::authorship::Attribution;
use crate::changes::NumberedChange;
use crate::error::EngineError;
use crate::revert::{TreeLookup, is_same_node};
use crate::workspace::Workspace;

/// Maximum number of paths that a sentence lists by name.
const MAX_LISTED_PATHS: usize = 5;

/// The reader of a plan's texts, which decides who "you" is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Audience {
    /// The user: changes that no agent reported are theirs.
    #[default]
    User,
    /// An agent, through its tools.
    Agent,
}

/// The id and agent by which messages name a session.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SessionName {
    /// Id of the session.
    pub id: SessionId,
    /// Name of the agent, such as `claude`.
    pub agent: String,
}

/// Who made a change, as far as that is known.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ChangeAuthor {
    /// The sessions that may have made it; empty if no call was open.
    pub sessions: Vec<SessionName>,
    /// Whether the user may have made it: no call was open, or the only one was cut short.
    pub may_be_user: bool,
}

impl ChangeAuthor {
    /// Returns `user`, `session` or, if it is not known which of several, `uncertain`.
    pub fn kind(&self) -> &'static str {
        match (self.sessions.as_slice(), self.may_be_user) {
            ([], _) => "user",
            ([_], false) => "session",
            _ => "uncertain",
        }
    }

    /// Returns the author in words: `you`, `session claude 5c7c0a1b`, `session claude 5c7c0a1b or you`.
    pub fn name(&self, audience: Audience) -> String {
        let mut names: Vec<String> = (self.sessions.iter())
            .map(|session| format!("session {} {}", session.agent, session.id.short()))
            .collect();
        if self.may_be_user {
            names.push(match audience {
                Audience::User => "you".into(),
                Audience::Agent => "the user".into(),
            });
        }
        names.join(" or ")
    }
}

/// A change that a rewind keeps because its author is not among those being rewound.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptChange {
    /// The changed path.
    pub path: RelPath,
    /// Who made the change.
    pub author: ChangeAuthor,
    /// Time at which the newest change by that author was recorded.
    pub at: Timestamp,
    /// Number of the step that recorded it; `None` if no checkpoint contains it yet.
    pub step: Option<u64>,
    /// Number in the list of changes, for `rewind --change N`; `None` where the plan does not count from the beginning.
    pub number: Option<usize>,
}

/// The state that kept changes are compared with, and the plan that keeps them.
pub(crate) struct KeptChangeContext<'a> {
    /// The files before any of the changes.
    pub base: TreeLookup<'a>,
    /// The files as they are now.
    pub present: TreeLookup<'a>,
    /// The plan, with changes sorted by path.
    pub plan: &'a RewindPlan,
}

impl KeptChangeContext<'_> {
    /// Whether any effect of `numbered` remains after the plan is applied.
    fn has_effect(&mut self, numbered: &NumberedChange) -> Result<bool, EngineError> {
        for path in [Some(&numbered.change.path), numbered.change.from.as_ref()].into_iter().flatten() {
            let planned = self.plan.changes.binary_search_by(|change| change.path.cmp_by_components(path));
            let resulting_node = match planned {
                Ok(index) => self.plan.changes[index].then.clone(),
                Err(_) => self.present.get(path)?,
            };
            if !is_same_node(&resulting_node, &self.base.get(path)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Changes that a plan does not take back.
#[derive(Default)]
pub(crate) struct RetainedChanges {
    /// Kept because their authors are not being rewound.
    pub kept: Vec<KeptChange>,
    /// Left alone because it is unknown whether their authors are among those being rewound.
    pub uncertain: Vec<SkippedPath>,
}

impl Workspace {
    /// Returns the author of a change with the names of the sessions.
    pub fn resolve_change_author(&self, attribution: &Attribution) -> Result<ChangeAuthor, EngineError> {
        let authors = match attribution {
            Attribution::Unreported => return Ok(ChangeAuthor { sessions: Vec::new(), may_be_user: true }),
            Attribution::Call(author) => std::slice::from_ref(author),
            Attribution::OneOf(authors) => authors.as_slice(),
        };
        let mut sessions: Vec<SessionName> = Vec::new();
        for author in authors {
            if sessions.iter().any(|candidate| candidate.id == author.session) {
                continue;
            }
            let agent = self.store().session(author.session)?.map(|session| session.agent);
            let agent = agent.unwrap_or_else(|| "unknown".into());
            sessions.push(SessionName { id: author.session, agent });
        }
        let may_be_user = matches!(attribution, Attribution::OneOf(_)) && sessions.len() == 1;
        Ok(ChangeAuthor { sessions, may_be_user })
    }

    /// Returns what remains of `others`, by path. Changes whose author is uncertain are left alone, with the reason, if
    /// `concerns` holds for one of the possible sessions.
    pub(crate) fn find_kept_changes(
        &self,
        others: &[&NumberedChange],
        mut against: KeptChangeContext<'_>,
        audience: Audience,
        concerns: impl Fn(SessionId) -> bool,
        has_numbers: bool,
    ) -> Result<RetainedChanges, EngineError> {
        let mut retained = RetainedChanges::default();
        let mut index_of: HashMap<(RelPath, ChangeAuthor), usize> = HashMap::new();
        for numbered in others {
            if !against.has_effect(numbered)? {
                continue;
            }
            let path = &numbered.change.path;
            let author = self.resolve_change_author(&numbered.who)?;
            if author.kind() == "uncertain" && author.sessions.iter().any(|session| concerns(session.id)) {
                if !retained.uncertain.iter().any(|skipped| skipped.path == *path) {
                    retained.uncertain.push(SkippedPath::conflict(
                        path.clone(),
                        describe_uncertain_author(&author, audience),
                    ));
                }
                continue;
            }
            let change = KeptChange {
                path: path.clone(),
                author: author.clone(),
                at: numbered.at,
                step: numbered.step.map(|(_, number)| number),
                number: has_numbers.then_some(numbered.number),
            };
            match index_of.get(&(path.clone(), author.clone())) {
                Some(index) => retained.kept[*index] = change,
                None => {
                    index_of.insert((path.clone(), author), retained.kept.len());
                    retained.kept.push(change);
                }
            }
        }
        retained.kept.sort_by(|a, b| a.path.cmp_by_components(&b.path));
        Ok(retained)
    }

    /// Adds to the reason of each conflict who made the later change that is in the way.
    pub(crate) fn add_conflict_authors(
        &self,
        plan: &mut RewindPlan,
        listed: &[NumberedChange],
        chosen: &[&NumberedChange],
        audience: Audience,
    ) -> Result<(), EngineError> {
        for skipped in plan.left_alone.iter_mut().filter(|skipped| skipped.is_conflict()) {
            let oldest = chosen.iter().find(|numbered| numbered.change.path == skipped.path);
            let later = listed.iter().rev().find(|numbered| {
                let touches = numbered.change.path == skipped.path
                    || numbered.change.from.as_ref().is_some_and(|from| *from == skipped.path);
                touches
                    && !numbered.taken_back
                    && oldest.is_none_or(|oldest| numbered.number > oldest.number)
                    && !chosen.iter().any(|chosen| chosen.number == numbered.number)
            });
            if let Some(later) = later {
                let author = self.resolve_change_author(&later.who)?.name(audience);
                skipped.reason = format!("{} (by {author})", skipped.reason);
            }
        }
        Ok(())
    }
}

fn describe_uncertain_author(author: &ChangeAuthor, audience: Audience) -> String {
    match author.may_be_user {
        true => {
            let user = if audience == Audience::User { "you" } else { "the user" };
            let sessions = ChangeAuthor { may_be_user: false, ..author.clone() }.name(audience);
            format!("a call of {sessions} was interrupted, so {user} may have changed it since")
        }
        false => format!("several sessions ran at the same time: it was {}", author.name(audience)),
    }
}

/// Formats paths for a sentence: the first few, and how many more.
pub fn format_path_list<'a>(paths: impl ExactSizeIterator<Item = &'a RelPath>) -> String {
    let hidden_count = paths.len().saturating_sub(MAX_LISTED_PATHS);
    let listed: Vec<String> = paths.take(MAX_LISTED_PATHS).map(ToString::to_string).collect();
    match hidden_count {
        0 => listed.join(", "),
        hidden_count => format!("{} and {hidden_count} more", listed.join(", ")),
    }
}

/// Explains why going back to `point` changes no file; `None` if nothing differs from it.
pub(crate) fn explain_unchanged(
    point: &str,
    kept: &[KeptChange],
    left_alone: &[SkippedPath],
    audience: Audience,
) -> Option<String> {
    let authors = format_author_list(kept, audience);
    Some(match (kept, left_alone) {
        ([], []) => return None,
        ([], _) => format!("what differs from {point} is skipped for the reasons listed"),
        (_, []) => format!("what differs from {point} was changed by {authors}"),
        _ => format!(
            "what differs from {point} was changed by {authors}, or is skipped for the reasons listed"
        ),
    })
}

/// Formats the authors of kept changes for a sentence, each once.
pub(crate) fn format_author_list(kept: &[KeptChange], audience: Audience) -> String {
    let mut names: Vec<String> = Vec::new();
    for change in kept {
        let name = change.author.name(audience);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    }
}
