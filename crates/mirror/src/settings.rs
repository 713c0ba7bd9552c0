//! Which mirrors a store has, and what each of them was like at the last sync: small files in the store's directory.
//!
//! `mirrors.json` is written by the user's commands. A file for each mirror in `mirrors/` is written by the process that
//! syncs, so that `stepback status` need not reach the mirror. None of them is needed to restore.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stepback_faults as faults;
use stepback_model::hex;
use stepback_model::time::Timestamp;
use stepback_store::new_file::{Durability, replace_file};

use crate::error::MirrorError;
use crate::sync::SyncReport;

/// The file that lists the mirrors of a store.
const FILE: &str = "mirrors.json";
/// The directory of the states of mirrors, and of the lock.
const DIRECTORY: &str = "mirrors";
/// The file that the process locks which syncs the mirrors of a store.
const LOCK: &str = "lock";

/// The mirrors of a store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MirrorSettings {
    /// The id that the store's mirrors share.
    pub id: String,
    /// The mirrors, in the order in which they were added.
    pub mirrors: Vec<ConfiguredMirror>,
}

/// A mirror that a store is copied to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConfiguredMirror {
    /// Its address, without credentials.
    pub address: String,
    /// When it was added.
    pub added_at: Timestamp,
}

impl MirrorSettings {
    /// Reads the mirrors of the store in `dir`; `None` if it has no list.
    pub fn load(dir: &Path) -> Result<Option<Self>, MirrorError> {
        let path = dir.join(FILE);
        let failed = |reason: String| MirrorError::Settings { path: path.clone(), reason };
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| failed(error.to_string())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Writes them; without mirrors, the list is removed.
    pub fn save(&self, dir: &Path) -> Result<(), MirrorError> {
        let path = dir.join(FILE);
        let written = match self.mirrors.is_empty() {
            true => faults::point().and_then(|()| fs::remove_file(&path)),
            false => {
                let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
                text.push(b'\n');
                replace_file(&path, &text, 0o600, Durability::Synced)
            }
        };
        match written {
            Err(error) if error.kind() != io::ErrorKind::NotFound || !self.mirrors.is_empty() => {
                Err(MirrorError::io("write", path.display())(error))
            }
            _ => Ok(()),
        }
    }

    /// Whether the store in `dir` has a list of mirrors: one system call, for every commit of a hook.
    pub fn exist(dir: &Path) -> bool {
        dir.join(FILE).exists()
    }
}

/// What a mirror was like after the last sync.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MirrorState {
    /// The newest commit that it has.
    pub commit: u64,
    /// Its generation.
    pub generation: u64,
    /// When the last sync succeeded.
    pub synced_at: Option<Timestamp>,
    /// Number of steps in it.
    pub steps: u64,
    /// Number of segments.
    pub segments: u64,
    /// Bytes of these, without files of the vault.
    pub bytes: u64,
    /// Why the last sync failed, and since when none has succeeded.
    pub failure: Option<SyncFailure>,
    /// What in the store contradicts the mirror.
    pub contradiction: Option<String>,
    /// What the store has and the mirror could not get.
    pub problems: Vec<String>,
}

/// Why a mirror cannot be synced.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SyncFailure {
    /// The error.
    pub message: String,
    /// When the first of the consecutive failed syncs happened.
    pub since: Timestamp,
}

impl MirrorState {
    /// Reads the state of a mirror; the default if there is none, or if it cannot be read.
    pub fn load(dir: &Path, address: &str) -> Self {
        let read = fs::read(path_of(dir, address)).ok();
        read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    /// Writes it. A failure is ignored: it is only shown.
    pub fn save(&self, dir: &Path, address: &str) {
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        let _ = replace_file(&path_of(dir, address), &text, 0o600, Durability::Unsynced);
    }

    /// Removes the state of a mirror.
    pub fn remove(dir: &Path, address: &str) {
        let _ = fs::remove_file(path_of(dir, address));
    }

    /// The state after a sync.
    pub fn after(
        self,
        outcome: &Result<SyncReport, MirrorError>,
        archive: Option<&crate::archive::MirrorArchive>,
        now: Timestamp,
    ) -> Self {
        let mut state = self;
        if let Some(archive) = archive {
            (state.commit, state.generation) = (archive.cursor.commit.commit, archive.cursor.generation);
            (state.segments, state.bytes) = (archive.segments, archive.bytes);
            state.steps = archive.cursor.steps();
        }
        match outcome {
            Ok(report) => {
                (state.failure, state.synced_at) = (None, Some(now));
                if report.contradiction.is_some() {
                    state.contradiction.clone_from(&report.contradiction);
                }
                for problem in &report.problems {
                    if !state.problems.contains(problem) && state.problems.len() < 20 {
                        state.problems.push(problem.clone());
                    }
                }
            }
            Err(error) => {
                let since = state.failure.map_or(now, |failure| failure.since);
                state.failure = Some(SyncFailure { message: error.to_string(), since });
            }
        }
        state
    }
}

fn path_of(dir: &Path, address: &str) -> PathBuf {
    let hash = hex::encode(&blake3::hash(address.as_bytes()).as_bytes()[..8]);
    dir.join(DIRECTORY).join(format!("{hash}.json"))
}

/// Creates the directory of states, if the store is still there. Returns the path of the lock.
pub fn prepare_directory(dir: &Path) -> io::Result<PathBuf> {
    let path = dir.join(DIRECTORY);
    match faults::point().and_then(|()| DirBuilder::new().mode(0o700).create(&path)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(path.join(LOCK)),
    }
}

/// A mirror, for displays: where it is, and how far behind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MirrorOverview {
    /// Its address.
    pub address: String,
    /// How many commits of the store it may lack.
    pub commits_behind: u64,
    /// What it was like after the last sync.
    #[serde(flatten)]
    pub state: MirrorState,
}

impl MirrorOverview {
    /// Whether something is wrong: the mirror cannot be synced, or the store contradicts it.
    pub fn is_failing(&self) -> bool {
        self.state.failure.is_some() || self.state.contradiction.is_some()
    }
}

/// The mirrors of the store in `dir`, with their lag and last error; `newest` is the number of the store's newest commit.
/// Reads small local files only.
pub fn list_mirrors(dir: &Path, newest: u64) -> Result<Vec<MirrorOverview>, MirrorError> {
    let Some(settings) = MirrorSettings::load(dir)? else { return Ok(Vec::new()) };
    Ok(settings
        .mirrors
        .into_iter()
        .map(|mirror| {
            let state = MirrorState::load(dir, &mirror.address);
            let commits_behind = newest.saturating_sub(state.commit);
            MirrorOverview { address: mirror.address, commits_behind, state }
        })
        .collect())
}

/// Says to the store up to which commit all its mirrors have it, so that its record keeps what they need.
pub fn note_progress(dir: &Path) -> Result<(), MirrorError> {
    let mirrors = list_mirrors(dir, 0)?;
    let commit = mirrors.iter().map(|mirror| mirror.state.commit).min();
    Ok(stepback_store::embedded::EmbeddedStore::note_mirrored(dir, commit)?)
}
