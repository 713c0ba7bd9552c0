//! Attribution of file changes: every step that finds changed files records which tool calls were running at the time.
//!
//! The engine cannot observe which process writes a file. It knows which calls had begun and not ended between two scans of
//! the workspace, which paths a call named, and which tools change only the paths they name. From these it concludes for
//! every change that one call made it, that one of several calls made it, or that no agent did, which means the user or
//! another program.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use stepback_model::ids::{SessionId, StepId};
use stepback_model::path::RelPath;
use stepback_model::record::{SessionInfo, Step};

use crate::calls;
use crate::changes::parse_authors;
use crate::error::EngineError;
use crate::workspace::Workspace;

/// A tool call of a session, as the author of a change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Author {
    /// The session that made the call.
    pub session: SessionId,
    /// The step at which the call began.
    pub step: StepId,
    /// Name of the tool; `None` if the agent did not report it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tool: Option<String>,
    /// The step of the prompt that the session was working on; `None` if none was recorded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub prompt: Option<StepId>,
}

/// The calls that were running between two scans of a workspace.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Authors {
    /// The calls. The other fields refer to them by index.
    pub calls: Vec<Author>,
    /// Paths that calls named, with the indexes of those calls in `calls`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub named: BTreeMap<String, Vec<usize>>,
    /// Indexes of calls that change nothing but the paths they name.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
    pub only_named: BTreeSet<usize>,
    /// Indexes of calls that may not have run, or not to their end, so that the user may have made the change.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
    pub uncertain: BTreeSet<usize>,
}

/// Who made a change, as far as the recorded calls tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Attribution {
    /// The user, or a program that does not report to stepback.
    Unreported,
    /// Exactly this call.
    Call(Author),
    /// One of these calls, of different sessions. If none of them is certain to have run, the user may have made the change.
    OneOf(Vec<Author>),
}

impl Attribution {
    /// Returns the calls that may have made the change: none for the user, several if it is one of them.
    pub fn candidates(&self) -> &[Author] {
        match self {
            Self::Unreported => &[],
            Self::Call(author) => std::slice::from_ref(author),
            Self::OneOf(authors) => authors,
        }
    }
}

/// Who changed a path, and what that rests on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttributedChange {
    /// Who made the change.
    pub who: Attribution,
    /// Whether a call named the path. Otherwise it is concluded from which calls were running.
    pub is_named: bool,
}

impl Workspace {
    /// Returns who made the change of `path` that the checkpoint `step` found.
    pub fn attribute_change(&self, step: &Step, path: &RelPath) -> Result<AttributedChange, EngineError> {
        self.attribute_change_with(step, path, &mut BTreeMap::new())
    }

    /// Like [`Self::attribute_change`], for many changes: `sessions` keeps the sessions that were read.
    pub fn attribute_change_with(
        &self,
        step: &Step,
        path: &RelPath,
        sessions: &mut BTreeMap<SessionId, SessionInfo>,
    ) -> Result<AttributedChange, EngineError> {
        let mut authors = parse_authors(self.load_detail(step)?.as_ref());
        for call in &authors.calls {
            if let std::collections::btree_map::Entry::Vacant(entry) = sessions.entry(call.session) {
                let session = self.store().session(call.session)?;
                entry.insert(session.map(|session| session.info).unwrap_or_default());
            }
        }
        authors.update_uncertain(|call| calls::late_end_status(&sessions[&call.session], call.step));
        Ok(authors.attribute(path))
    }

    /// Returns who is changing `path` now, if it differs from the newest checkpoint.
    pub fn attribute_present(&self, path: &RelPath) -> Result<AttributedChange, EngineError> {
        Ok(self.collect_active_authors(self.engine.env.now())?.attribute(path))
    }
}

impl Authors {
    /// Returns who changed `path`, and whether a call named it.
    fn attribute(&self, path: &RelPath) -> AttributedChange {
        let is_named = self.calls_naming(path).iter().any(|index| self.is_certain(*index));
        AttributedChange { who: self.attribute_path(path), is_named }
    }

    /// Returns who changed `path`.
    pub fn attribute_path(&self, path: &RelPath) -> Attribution {
        let naming_calls = self.calls_naming(path);
        if naming_calls.iter().any(|index| self.is_certain(*index)) {
            return self.choose_author(&naming_calls);
        }
        let mut candidates: Vec<usize> = (0..self.calls.len())
            .filter(|index| !self.only_named.contains(index) || naming_calls.contains(index))
            .collect();
        candidates.dedup();
        self.choose_author(&candidates)
    }

    /// Updates `uncertain` with what became known about the calls after the checkpoint: `has_ended` returns `true` if the end
    /// of a call was reported, `false` if it was closed without one.
    pub(crate) fn update_uncertain(&mut self, has_ended: impl Fn(&Author) -> Option<bool>) {
        for (index, call) in self.calls.iter().enumerate() {
            match has_ended(call) {
                Some(true) => self.uncertain.remove(&index),
                Some(false) => self.uncertain.insert(index),
                None => false,
            };
        }
    }

    /// Returns the calls that named `path` or a path below it: a tool that writes a file creates the directories above it.
    fn calls_naming(&self, path: &RelPath) -> Vec<usize> {
        let Ok(path) = std::str::from_utf8(path.as_bytes()) else { return Vec::new() };
        let prefix = format!("{path}/");
        let inside = self.named.range(prefix.clone()..).take_while(|(name, _)| name.starts_with(&prefix));
        let mut indexes: Vec<usize> = self
            .named
            .get(path)
            .into_iter()
            .chain(inside.map(|(_, calls)| calls))
            .flatten()
            .copied()
            .collect();
        indexes.sort_unstable();
        indexes.dedup();
        indexes
    }

    fn is_certain(&self, index: usize) -> bool {
        !self.uncertain.contains(&index)
    }

    /// Chooses among several calls. Parallel calls of one session count as one: the last to begin stands for them.
    fn choose_author(&self, candidates: &[usize]) -> Attribution {
        let author_of = |index: &usize| self.calls.get(*index).cloned();
        let authors: Vec<Author> = candidates.iter().filter_map(author_of).collect();
        let certain: Vec<Author> =
            candidates.iter().filter(|index| self.is_certain(**index)).filter_map(author_of).collect();
        match (authors.first(), certain.last()) {
            (None, _) => Attribution::Unreported,
            (Some(first), Some(last)) if authors.iter().all(|call| call.session == first.session) => {
                Attribution::Call(last.clone())
            }
            _ => Attribution::OneOf(authors),
        }
    }
}

impl Attribution {
    /// Whether `session` certainly made the change.
    pub fn is_certainly_by(&self, session: SessionId) -> bool {
        matches!(self, Self::Call(author) if author.session == session)
    }

    /// The session that made the change, if it is certain.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Self::Call(author) => Some(author.session),
            _ => None,
        }
    }
}
