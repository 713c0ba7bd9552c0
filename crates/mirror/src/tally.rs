//! How many steps each workspace has, with a digest over all of them: by it, a mirror and its store are compared without
//! reading the mirror.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::step_chain::step_digest;
use stepback_store::port::Mutation;
use stepback_store::{Store, StoreError};

/// Domain of the digest over steps.
const DOMAIN: &str = "stepback mirror 2026-11 tally of steps";
/// Number of steps that are read at a time.
const STEPS: u64 = 2000;

/// The first steps of a workspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StepTally {
    /// How many there are.
    pub steps: u64,
    /// A hash over the digest of each, in order of their numbers.
    pub digest: Hash,
}

impl StepTally {
    /// Before the first step.
    pub const NONE: Self = Self { steps: 0, digest: Hash::from_bytes([0; 32]) };

    /// Adds the next step.
    pub fn add(&mut self, step: Hash) {
        let mut hasher = blake3::Hasher::new_derive_key(DOMAIN);
        hasher.update(self.digest.as_bytes()).update(step.as_bytes());
        *self = Self { steps: self.steps + 1, digest: Hash::from_bytes(*hasher.finalize().as_bytes()) };
    }
}

/// The tallies of all workspaces.
pub type WorkspaceTallies = BTreeMap<WorkspaceId, StepTally>;

/// Keeps tallies up to date with the changes of a log.
#[derive(Debug, Default)]
pub struct TallyCounter {
    /// What was counted so far.
    pub tallies: WorkspaceTallies,
    /// The workspaces of the sessions that were seen.
    sessions: HashMap<SessionId, WorkspaceId>,
}

impl TallyCounter {
    /// Goes on from `tallies`.
    pub fn new(tallies: WorkspaceTallies) -> Self {
        Self { tallies, sessions: HashMap::new() }
    }

    /// Counts what a mutation adds. `store` knows the sessions that were added before counting began. Returns the workspace
    /// and the digest of an appended step; a step of an unknown session is not counted.
    pub fn count(
        &mut self,
        mutation: &Mutation,
        store: Option<&dyn Store>,
    ) -> Result<Option<(WorkspaceId, Hash)>, StoreError> {
        match mutation {
            Mutation::AddWorkspace(workspace) => {
                self.tallies.entry(workspace.id).or_insert(StepTally::NONE);
            }
            Mutation::AddSession(session) => {
                self.sessions.insert(session.id, session.workspace);
            }
            Mutation::AppendStep { step, trigger, .. } => {
                let known = self.sessions.get(&step.session).copied();
                let workspace = match (known, store) {
                    (None, Some(store)) => store.session(step.session)?.map(|session| session.workspace),
                    (known, _) => known,
                };
                let Some(workspace) = workspace else { return Ok(None) };
                self.sessions.insert(step.session, workspace);
                let digest = step_digest(step, *trigger);
                self.tallies.entry(workspace).or_insert(StepTally::NONE).add(digest);
                return Ok(Some((workspace, digest)));
            }
            _ => {}
        }
        Ok(None)
    }
}

/// Compares the steps of a store with tallies from before. Returns what differs, as a sentence; `None` if the store has all
/// of these steps, unchanged.
pub fn find_difference(store: &dyn Store, tallies: &WorkspaceTallies) -> Result<Option<String>, StoreError> {
    for (workspace, expected) in tallies {
        let mut found = StepTally::NONE;
        let mut after = 0;
        while found.steps < expected.steps {
            let most = STEPS.min(expected.steps - found.steps);
            let entries = store.chain_entries(*workspace, after, most)?;
            let Some(last) = entries.last() else { break };
            after = last.number;
            for entry in entries {
                let is_next = entry.number == found.steps + 1;
                let Some(digest) = entry.digest.filter(|_| is_next) else {
                    return Ok(Some(format!(
                        "step #{} of workspace {} is missing, or cannot be read, in the store",
                        found.steps + 1,
                        workspace.short()
                    )));
                };
                found.add(digest);
            }
        }
        if found.steps < expected.steps {
            return Ok(Some(format!(
                "workspace {} has {} steps in the store and {} in the mirror",
                workspace.short(),
                found.steps,
                expected.steps
            )));
        }
        if found.digest != expected.digest {
            return Ok(Some(format!(
                "steps of workspace {} were changed in the store since they were mirrored",
                workspace.short()
            )));
        }
    }
    Ok(None)
}
