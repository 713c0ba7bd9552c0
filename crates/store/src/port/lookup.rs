//! The lookups that a recorder needs before it writes, as one batch.

use std::collections::{HashMap, HashSet};

use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::Session;

use super::{ObjectStore, RefStore, SessionStore, StepStore};
use crate::error::StoreError;

/// Answers several questions at once, for a store that is a round trip away.
pub trait BatchLookup: ObjectStore + SessionStore + StepStore + RefStore {
    /// Answers several questions in one round trip, where a server is involved.
    fn look(&self, questions: &Questions<'_>) -> Result<BatchAnswers, StoreError> {
        // Read the epoch first, so that a collection during the lookups is noticed.
        let epoch = self.gc_generation()?;
        let mut stored = HashSet::new();
        for step in questions.steps {
            if self.step(*step)?.is_some() {
                stored.insert(*step);
            }
        }
        let references = questions.references.iter().map(|name| self.reference(name));
        let references = references.collect::<Result<_, _>>()?;
        let sessions = questions.sessions.iter().map(|session| self.session(*session));
        let sessions = sessions.collect::<Result<_, _>>()?;
        Ok(BatchAnswers { epoch, stored, references, sessions, versions: ReadVersions::default() })
    }
}

/// The lookups that a recorder needs before it writes, as one batch.
#[derive(Clone, Copy, Debug)]
pub struct Questions<'a> {
    /// Steps to check for existence.
    pub steps: &'a [StepId],
    /// References to resolve.
    pub references: &'a [String],
    /// Sessions to read.
    pub sessions: &'a [SessionId],
}

/// The answers to [`Questions`].
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct BatchAnswers {
    /// The collection epoch in which they were read; they hold from then on.
    pub epoch: u64,
    /// Those of the requested steps that are stored.
    pub stored: HashSet<StepId>,
    /// The target of each requested reference, in the order asked; `None` if it does not exist.
    pub references: Vec<Option<StepId>>,
    /// Each requested session, in the order asked; `None` if it does not exist.
    pub sessions: Vec<Option<Session>>,
    /// What must be unchanged when a commit relies on these answers.
    pub versions: ReadVersions,
}

/// The versions of what was read, for a commit that fails if another process has changed it since.
///
/// Empty in a store whose writers exclude each other by other means.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct ReadVersions {
    /// The version of each session that was read, as the store writes it.
    pub sessions: HashMap<SessionId, String>,
    /// The references that were read, with their targets.
    pub references: Vec<(String, Option<StepId>)>,
}
