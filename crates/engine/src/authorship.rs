//! Who changed what: every step that found files changed says which calls were at work meanwhile.
//!
//! Nobody can watch a file being written by a process that was not asked. What is known is which calls had begun and not
//! ended between two looks at the workspace, and which paths a call named. From that follows, for every change: one call
//! did it, one of several did it, or nobody that reports to us, which means the person or another program.

use std::collections::BTreeMap;

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

/// The calls that were at work between two looks at a workspace.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Authors {
    /// The calls.
    pub calls: Vec<Author>,
    /// Paths that one of them named, with its place in `calls`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub named: BTreeMap<String, usize>,
    /// Whether one of them was cut short, so that somebody else may have been at work since.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub unsure: bool,
}

/// Who made a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Who {
    /// The person, or a program that does not report to us.
    Somebody,
    /// This call.
    Call(Author),
    /// One of these calls, of different sessions; or, if it is one that was cut short, perhaps somebody else.
    OneOf(Vec<Author>),
}

impl Authors {
    /// Who changed `path`.
    pub fn of(&self, path: &RelPath) -> Who {
        let named = std::str::from_utf8(path.as_bytes()).ok().and_then(|path| self.named.get(path));
        if let Some(author) = named.and_then(|at| self.calls.get(*at)) {
            return Who::Call(author.clone());
        }
        match self.calls.as_slice() {
            [] => Who::Somebody,
            several if self.unsure => Who::OneOf(several.to_vec()),
            [one] => Who::Call(one.clone()),
            // Calls of one session that ran at once: the last to begin stands for all of them.
            [first, .., last] if self.calls.iter().all(|call| call.session == first.session) => {
                Who::Call(last.clone())
            }
            several => Who::OneOf(several.to_vec()),
        }
    }
}

impl Who {
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
