//! Who changed what: every step that found files changed says which calls were at work meanwhile.
//!
//! A file that another process writes cannot be observed. What is known is which calls had begun and not ended between two
//! scans of the workspace, which paths a call named, and which tools change only those. From that follows, for every change:
//! one call made it, one of several made it, or no agent did, which means the person or another program.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use stepback_model::ids::{SessionId, StepId};
use stepback_model::path::RelPath;

/// A call of a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Author {
    /// The session.
    pub session: SessionId,
    /// The step at which the call began.
    pub step: StepId,
    /// The tool.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tool: Option<String>,
    /// The prompt that was being worked on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub prompt: Option<StepId>,
}

/// The calls that were at work between two scans of a workspace.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Authors {
    /// The calls.
    pub calls: Vec<Author>,
    /// Paths that calls named, with the places of those calls in `calls`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub named: BTreeMap<String, Vec<usize>>,
    /// Places of calls that change nothing but the paths they name.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
    pub only_named: BTreeSet<usize>,
    /// Places of calls that may not have run, or not to their end, so that the person may have made the change.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
    pub uncertain: BTreeSet<usize>,
}

/// Who made a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Attribution {
    /// The person, or a program that does not report to us.
    Somebody,
    /// This call.
    Call(Author),
    /// One of these calls, of different sessions; or, if all of them may not have run, perhaps the person.
    OneOf(Vec<Author>),
}

impl Authors {
    /// Who changed `path`.
    pub fn of(&self, path: &RelPath) -> Attribution {
        let named = self.naming(path);
        if named.iter().any(|at| self.is_certain(*at)) {
            return self.decide(&named);
        }
        let mut candidates: Vec<usize> =
            (0..self.calls.len()).filter(|at| !self.only_named.contains(at) || named.contains(at)).collect();
        candidates.dedup();
        self.decide(&candidates)
    }

    /// Takes into account what became known of the calls after the checkpoint was made: `has_ended` says that the end of one
    /// was reported (`true`) or that it was closed without one (`false`).
    pub(crate) fn revise(&mut self, has_ended: impl Fn(&Author) -> Option<bool>) {
        for (at, call) in self.calls.iter().enumerate() {
            match has_ended(call) {
                Some(true) => self.uncertain.remove(&at),
                Some(false) => self.uncertain.insert(at),
                None => false,
            };
        }
    }

    /// The calls that named `path`, or something below it: a tool that writes a file makes the directories above it.
    fn naming(&self, path: &RelPath) -> Vec<usize> {
        let Ok(path) = std::str::from_utf8(path.as_bytes()) else { return Vec::new() };
        let below = format!("{path}/");
        let inside = self.named.range(below.clone()..).take_while(|(name, _)| name.starts_with(&below));
        let mut found: Vec<usize> = self
            .named
            .get(path)
            .into_iter()
            .chain(inside.map(|(_, calls)| calls))
            .flatten()
            .copied()
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    fn is_certain(&self, at: usize) -> bool {
        !self.uncertain.contains(&at)
    }

    /// Who of several calls it was. Calls of one session that ran in parallel count as one: the last to begin stands for them.
    fn decide(&self, candidates: &[usize]) -> Attribution {
        let call = |at: &usize| self.calls.get(*at).cloned();
        let all: Vec<Author> = candidates.iter().filter_map(call).collect();
        let certain: Vec<Author> =
            candidates.iter().filter(|at| self.is_certain(**at)).filter_map(call).collect();
        match (all.first(), certain.last()) {
            (None, _) => Attribution::Somebody,
            (Some(first), Some(last)) if all.iter().all(|call| call.session == first.session) => {
                Attribution::Call(last.clone())
            }
            _ => Attribution::OneOf(all),
        }
    }
}

impl Attribution {
    /// Whether `session` made the change, and nobody else could have.
    pub fn is_session(&self, session: SessionId) -> bool {
        matches!(self, Self::Call(author) if author.session == session)
    }

    /// The session, if it was one.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Self::Call(author) => Some(author.session),
            _ => None,
        }
    }
}
