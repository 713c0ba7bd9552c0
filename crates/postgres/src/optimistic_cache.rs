//! A cache of what this process last read or wrote, so that it need not ask the server before every step.
//!
//! An agent that reports live belongs to one session, which no other process usually changes. So what this process
//! committed last is most likely still current. The server checks that when a commit relies on it: the row of a session
//! must be the one that was read or written here, identified by the transaction that wrote it, and references must have the
//! same targets. If not, the commit fails without effect, the cache is cleared, and the recorder looks the values up.
//! Nothing is kept across connections: after a failover, or a restore from a backup, the server may lack some of what was
//! stored.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::Session;
use stepback_store::port::{BatchAnswers, Mutation, Questions};

/// Maximum number of cached sessions and references, and of cached objects.
const MOST: usize = 1000;
const MOST_OBJECTS: usize = 10_000;

/// The transaction that wrote a row, as the server reports it in `xmin`.
pub(crate) type Version = String;

/// What a commit relies on to be unchanged.
pub(crate) struct ReliedOn {
    sessions: HashMap<SessionId, Version>,
    pub references: Vec<(String, Option<StepId>)>,
    /// The value of [`Pool::dialed`] at which it was cached, if it comes from the cache; the commit has to compare it then.
    /// `None` if it was just looked up.
    ///
    /// [`Pool::dialed`]: crate::pool::Pool::dialed
    pub recalled: Option<u64>,
}

impl ReliedOn {
    /// Creates one from answers that were just looked up.
    pub fn seen(
        sessions: impl Iterator<Item = (SessionId, Version)>,
        references: Vec<(String, Option<StepId>)>,
    ) -> Self {
        Self { sessions: sessions.collect(), references, recalled: None }
    }

    /// The version that the row of a session must have.
    pub fn version(&self, session: SessionId) -> Option<&Version> {
        self.sessions.get(&session)
    }
}

/// The cache.
#[derive(Default)]
pub(crate) struct Recall(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    /// The number of connections opened when it was filled.
    dialed: u64,
    /// The epoch to which all entries belong.
    epoch: Option<u64>,
    sessions: HashMap<SessionId, (Session, Version)>,
    references: HashMap<String, Option<StepId>>,
    /// Objects known to be stored.
    objects: HashSet<Hash>,
}

impl Recall {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answers, if all of them are cached. Steps are not cached: they are assumed to be new.
    pub fn answers(&self, dialed: u64, questions: &Questions<'_>) -> Option<BatchAnswers> {
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
        Some(BatchAnswers {
            epoch: memory.epoch?,
            stored: HashSet::new(),
            references: references.iter().map(|(_, value)| *value).collect(),
            sessions,
            relied_on: Some(Arc::new(ReliedOn { sessions: versions, references, recalled: Some(dialed) })),
        })
    }

    /// Adds what was read from the server.
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

    /// Adds what a commit that appended steps wrote, in the transaction with this number.
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

    /// Whether an object is known to be stored, for a caller that relies on this epoch.
    pub fn has(&self, dialed: u64, epoch: u64, hash: Hash) -> bool {
        let memory = self.memory();
        memory.dialed == dialed && memory.epoch == Some(epoch) && memory.objects.contains(&hash)
    }

    /// Clears the cache: something else was committed, or something failed.
    pub fn forget(&self) {
        *self.memory() = Memory::default();
    }
}
