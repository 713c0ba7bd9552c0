//! What this process knows of the store because it was told or did it itself, so that it need not ask before every step.
//!
//! An agent that reports as it goes belongs to one session, and nobody else changes that. So what was last committed here is
//! most likely what is there. Whether it is, the server finds out when something is committed that relies on it: the row of a
//! session has to be the one that was seen or written, known by the transaction that wrote it, and references have to point
//! where they did. If not, nothing happens, all is forgotten, and whoever recorded looks. Nothing is recalled across
//! connections: a server that took over, or was brought back from a copy, may not have all that was stored.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::Session;
use stepback_store::port::{Answers, Mutation, Questions};

/// How many sessions and references are remembered, and how many objects.
const MOST: usize = 1000;
const MOST_OBJECTS: usize = 10_000;

/// The transaction that wrote a row, as the server says it.
pub(crate) type Version = String;

/// What must be as it was.
pub(crate) struct ReliedOn {
    sessions: HashMap<SessionId, Version>,
    pub references: Vec<(String, Option<StepId>)>,
    /// Of when it is recalled, as [`Pool::dialed`] says; then it has to be compared. None, if it was looked at right before.
    ///
    /// [`Pool::dialed`]: crate::pool::Pool::dialed
    pub recalled: Option<u64>,
}

impl ReliedOn {
    /// What was just seen.
    pub fn seen(
        sessions: impl Iterator<Item = (SessionId, Version)>,
        references: Vec<(String, Option<StepId>)>,
    ) -> Self {
        Self { sessions: sessions.collect(), references, recalled: None }
    }

    /// The version that a session has to have.
    pub fn version(&self, session: SessionId) -> Option<&Version> {
        self.sessions.get(&session)
    }
}

/// What is remembered.
#[derive(Default)]
pub(crate) struct Recall(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    /// How many connections there had been.
    dialed: u64,
    /// The epoch that all of it is of.
    epoch: Option<u64>,
    sessions: HashMap<SessionId, (Session, Version)>,
    references: HashMap<String, Option<StepId>>,
    /// Objects that are stored.
    objects: HashSet<Hash>,
}

impl Recall {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answers, if all of it is known. Nothing is known of steps: that they are new is what is believed.
    pub fn answers(&self, dialed: u64, questions: &Questions<'_>) -> Option<Answers> {
        let memory = self.memory();
        if memory.dialed != dialed {
            return None;
        }
        let (mut sessions, mut versions) = (Vec::with_capacity(questions.sessions.len()), HashMap::new());
        for id in questions.sessions {
            let (session, version) = memory.sessions.get(id)?;
            sessions.push(Some(session.clone()));
            versions.insert(*id, version.clone());
        }
        let mut references = Vec::with_capacity(questions.references.len());
        for name in questions.references {
            references.push((name.clone(), *memory.references.get(name)?));
        }
        Some(Answers {
            epoch: memory.epoch?,
            stored: HashSet::new(),
            references: references.iter().map(|(_, value)| *value).collect(),
            sessions,
            relied_on: Some(Arc::new(ReliedOn { sessions: versions, references, recalled: Some(dialed) })),
        })
    }

    /// Takes in what was seen.
    pub fn saw(
        &self,
        dialed: u64,
        epoch: u64,
        sessions: impl Iterator<Item = (Session, Version)>,
        references: impl Iterator<Item = (String, Option<StepId>)>,
    ) {
        let mut memory = self.memory();
        let is_of_then = memory.dialed == dialed && memory.epoch == Some(epoch);
        if !is_of_then || memory.sessions.len() + memory.references.len() > MOST {
            *memory = Memory { dialed, epoch: Some(epoch), ..Memory::default() };
        }
        memory.sessions.extend(sessions.map(|(session, version)| (session.id, (session, version))));
        memory.references.extend(references);
    }

    /// Takes in what was committed by steps being appended, in a transaction of this number.
    pub fn committed(
        &self,
        dialed: u64,
        epoch: Option<u64>,
        objects: impl Iterator<Item = Hash>,
        mutations: &[Mutation],
        version: &Version,
    ) {
        let mut memory = self.memory();
        if epoch.is_none() || memory.epoch != epoch || memory.dialed != dialed {
            return;
        }
        if memory.objects.len() > MOST_OBJECTS {
            memory.objects.clear();
        }
        memory.objects.extend(objects);
        for mutation in mutations {
            match mutation {
                Mutation::AddSession(session) => {
                    memory.sessions.insert(session.id, (session.clone(), version.clone()));
                }
                Mutation::SetSessionInfo { session, info } => {
                    if let Some((known, last)) = memory.sessions.get_mut(session) {
                        known.info.clone_from(info);
                        last.clone_from(version);
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether an object is stored, for somebody who relies on this epoch.
    pub fn has(&self, dialed: u64, epoch: u64, hash: Hash) -> bool {
        let memory = self.memory();
        memory.dialed == dialed && memory.epoch == Some(epoch) && memory.objects.contains(&hash)
    }

    /// Forgets everything: something else was committed, or something failed.
    pub fn forget(&self) {
        *self.memory() = Memory::default();
    }
}
