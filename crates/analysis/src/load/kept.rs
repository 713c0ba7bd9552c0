//! Files with the facts of sessions, beside the store: one for each session, and an index for each workspace.
//!
//! They are caches: what cannot be read is ignored, and what cannot be written is read from the steps the next time. A file is
//! used only if the store still has the last step that it is about, so that a store that was put back to an older state, or is
//! another one, is noticed. `docs/spec/facts.md` specifies the bytes.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, StepId, WorkspaceId};
use stepback_store::Store;
use stepback_store::new_file::{Durability, replace_file};
use stepback_store::port::StepQuery;

use super::LoadedSession;
use super::encoding::{decode_facts, decode_index, encode_facts, encode_index};
use crate::error::AnalysisError;
use crate::facts::SessionFacts;

/// The name of the directory in that of the workspace.
const DIRECTORY: &str = "facts";
const INDEX: &str = "index";
/// A larger file is not read: no session has so many steps.
const MAX_FILE_BYTES: u64 = 4 << 30;

/// The facts of a session as they were last read.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct KeptFacts {
    /// The last message of the conversation.
    pub tip: Option<Hash>,
    /// The facts, without prices and without what the session's record says.
    pub facts: SessionFacts,
}

impl KeptFacts {
    /// Whether the store has the last step of these facts, so that they can be continued.
    pub(super) fn continues_in(&self, store: &dyn Store) -> bool {
        match self.facts.steps.last() {
            None => true,
            Some(last) => store
                .step(last.id)
                .ok()
                .flatten()
                .is_some_and(|stored| (stored.step.number, stored.step.at) == (last.number, last.at)),
        }
    }
}

/// Up to which step the facts of all sessions of a workspace were read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeptIndex {
    /// The number of the last step.
    pub until: u64,
    /// The id of that step.
    pub last: Option<StepId>,
    /// The number of the last step of each session.
    pub sessions: HashMap<SessionId, u64>,
}

impl KeptIndex {
    /// The index after a load: what was known of other sessions still holds.
    pub(super) fn of(
        until: u64,
        store: &dyn Store,
        workspace: WorkspaceId,
        mut sessions: HashMap<SessionId, u64>,
        loaded: &[LoadedSession],
    ) -> Result<Self, AnalysisError> {
        let last = store.step_numbered(workspace, until)?.map(|stored| stored.step.id);
        sessions.extend(loaded.iter().filter_map(|loaded| {
            let last = loaded.facts.steps.last().map_or(0, |step| step.number);
            Some((loaded.facts.session?, last))
        }));
        Ok(Self { until, last, sessions })
    }

    /// Whether the store has the last step.
    pub(super) fn continues_in(&self, store: &dyn Store, workspace: WorkspaceId) -> bool {
        if self.until == 0 {
            return true;
        }
        let stored = store.step_numbered(workspace, self.until).ok().flatten();
        stored.map(|stored| stored.step.id) == self.last
    }

    /// Whether a session's file can be used: it is at least as new as this index, or the store has its last step.
    pub(super) fn allows(&self, session: SessionId, kept: &KeptFacts, store: &dyn Store) -> bool {
        let last = kept.facts.steps.last().map_or(0, |step| step.number);
        match self.sessions.get(&session) {
            Some(known) => *known <= last,
            None => kept.continues_in(store),
        }
    }

    pub(super) fn has_all(&self, loaded: &[LoadedSession]) -> bool {
        loaded
            .iter()
            .all(|loaded| loaded.facts.session.is_some_and(|session| self.sessions.contains_key(&session)))
    }
}

/// The files of one workspace. A store without a directory on this machine has none.
pub struct WorkspaceCache {
    directory: Option<PathBuf>,
}

impl WorkspaceCache {
    /// The cache of a workspace in the local directory of its store.
    pub fn new(store: Option<&Path>, workspace: WorkspaceId) -> Self {
        Self {
            directory: store
                .map(|store| store.join("workspaces").join(workspace.to_string()).join(DIRECTORY)),
        }
    }

    /// Reads the facts of a session; `None` if there are none, or they cannot be used.
    pub(super) fn read(&self, session: SessionId) -> Option<KeptFacts> {
        decode_facts(&self.read_file(&session.to_string())?)
    }

    /// Keeps the facts of a session, and returns whether that was possible.
    pub(super) fn write(&self, session: SessionId, kept: &KeptFacts) -> bool {
        self.write_file(&session.to_string(), &encode_facts(kept))
    }

    pub(super) fn read_index(&self) -> Option<KeptIndex> {
        decode_index(&self.read_file(INDEX)?)
    }

    pub(super) fn write_index(&self, index: &KeptIndex) -> bool {
        self.write_file(INDEX, &encode_index(index))
    }

    /// Reads a file of the cache; `None` if there is none.
    pub(crate) fn read_file(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.directory.as_ref()?.join(name);
        // Whatever is there may not be ours: a pipe would be waited for.
        let metadata = fs::symlink_metadata(&path).ok()?;
        if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
            return None;
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).ok()?);
        File::open(&path).ok()?.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Writes a file of the cache, and returns whether that was possible.
    pub(crate) fn write_file(&self, name: &str, bytes: &[u8]) -> bool {
        let Some(directory) = &self.directory else { return false };
        let write = || {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
            stepback_faults::point()?;
            replace_file(&directory.join(name), bytes, 0o600, Durability::Unsynced)
        };
        write().is_ok()
    }
}

/// The number of the newest step of a workspace.
pub(crate) fn newest_number(store: &dyn Store, workspace: WorkspaceId) -> Result<u64, AnalysisError> {
    let newest = store.steps(workspace, &StepQuery { limit: Some(1), ..StepQuery::default() })?;
    Ok(newest.first().map_or(0, |stored| stored.step.number))
}
