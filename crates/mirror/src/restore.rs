//! Makes a store from a mirror, in an empty directory: every object, every file of the vault, and the log of one generation.
//!
//! Deleting and pruning do not reach a mirror, so what was pruned comes back: a hidden checkpoint stays hidden, but its files
//! are there again. Only a checkpoint whose files the mirror never had is marked as purged. At the end the new store is
//! verified as `stepback fsck` does.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stepback_engine::Engine;
use stepback_engine::reachability::{Marker, Visitor};
use stepback_model::env::Env;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{OpId, StepId};
use stepback_model::object::ObjectError;
use stepback_model::tree::Content;
use stepback_store::copy::INCOMPLETE;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::port::{ObjectBatch, VAULT};
use stepback_store::prelude::*;
use stepback_store::{Mutation, StoreError};

use crate::archive::MirrorArchive;
use crate::error::MirrorError;
use crate::replay::{ReplayEvent, replay};
use crate::survey::MirrorSurvey;
use crate::sync::parse_mutations;
use crate::vault;

/// A commit is made after this many bytes of objects, or so many objects or changes.
const BATCH_BYTES: usize = 8 << 20;
const BATCH_OBJECTS: usize = 500;
/// Number of changes that are named because they cannot be applied.
const MAX_REFUSED: usize = 50;

/// The result of [`restore`].
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MirrorRestoreReport {
    /// The generation that was restored.
    pub generation: u64,
    /// When the newest part of it was written.
    pub written_at: Option<stepback_model::time::Timestamp>,
    /// Number of workspaces.
    pub workspaces: u64,
    /// Number of steps.
    pub steps: u64,
    /// Number of objects that were read.
    pub objects: u64,
    /// Number of files of the vault.
    pub vault_files: u64,
    /// Checkpoints whose files had been freed by a prune, and are there again. They are still hidden.
    pub unpurged: u64,
    /// What the mirror does not have any more, or cannot be used, as sentences.
    pub missing: Vec<String>,
}

/// Restores a generation of a mirror into `dir`, which must be empty or not exist. `wanted` names the generation; without
/// it, the newest one, if no other has anything that it lacks.
pub fn restore(
    archive: &MirrorArchive,
    dir: &Path,
    wanted: Option<u64>,
    env: &Arc<dyn Env>,
    progress: &AtomicU64,
) -> Result<MirrorRestoreReport, MirrorError> {
    refuse_unless_empty(dir)?;
    let survey = MirrorSurvey::take(archive, false)?;
    let chosen = survey.choose(wanted)?.clone();
    let store = EmbeddedStore::open(dir)?;
    let marker = StepId::from_bytes([0; 16]);
    store.commit(None, &[Mutation::SetRef { name: INCOMPLETE.into(), expected: None, value: marker }])?;
    let mut report = MirrorRestoreReport {
        generation: chosen.number,
        written_at: Some(chosen.written_at),
        missing: survey.report.problems.clone(),
        ..MirrorRestoreReport::default()
    };
    if let Some(obstacle) = &chosen.obstacle {
        report.missing.push(format!(
            "generation {} ends at commit {}: {obstacle}",
            chosen.number, chosen.commit.commit
        ));
    }
    if !chosen.is_complete {
        report.missing.push("the first sync was not finished; checkpoints may lack files".into());
    }
    for manifest in &survey.vault_files {
        let restored = vault::read_manifest(archive.storage(), manifest)
            .and_then(|found| vault::restore_file(archive.storage(), &found, dir));
        match restored {
            Ok(()) => report.vault_files += 1,
            Err(MirrorError::Damaged { what }) => report.missing.push(what),
            Err(error) => return Err(error),
        }
    }
    let rebuilt = rebuild(archive, &store, chosen.number, progress)?;
    report.missing.extend(rebuilt.refused);
    (report.objects, report.steps) = (rebuilt.objects, rebuilt.steps);
    report.unpurged = purge_what_is_missing(&store, &rebuilt.purged)?;
    report.workspaces = store.workspaces()?.len() as u64;
    let differences = survey.differences(&store, chosen.number, 20)?;
    report.missing.extend(differences);
    store.commit(None, &[Mutation::DropRef { name: INCOMPLETE.into() }])?;
    let engine = Engine { progress: None, ..Engine::new(Arc::new(store), env.clone()) };
    report.missing.extend(engine.verify_objects()?.problems);
    Ok(report)
}

fn refuse_unless_empty(dir: &Path) -> Result<(), MirrorError> {
    match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(MirrorError::NotEmpty { path: dir.to_path_buf() }),
        },
        Err(error) => Err(MirrorError::io("open", dir.display())(error)),
    }
}

/// What was written into a new store.
struct RebuiltLog {
    objects: u64,
    steps: u64,
    /// The steps that were purged.
    purged: Vec<StepId>,
    /// Changes that cannot be applied, as sentences.
    refused: Vec<String>,
}

/// Writes all objects, and the log of a generation.
fn rebuild(
    archive: &MirrorArchive,
    store: &EmbeddedStore,
    number: u64,
    progress: &AtomicU64,
) -> Result<RebuiltLog, MirrorError> {
    let mut rebuilder = LogRebuilder::new(store, progress);
    replay(archive, &mut |event| match event {
        ReplayEvent::Object { kind, base, bytes } => rebuilder.add_object(kind, base, bytes),
        ReplayEvent::Changes { generation, mutations } if generation == number => {
            rebuilder.add_changes(mutations)
        }
        ReplayEvent::Changes { .. } | ReplayEvent::VaultFile(_) => Ok(()),
    })?;
    rebuilder.flush()?;
    let LogRebuilder { objects, steps, purged, refused, .. } = rebuilder;
    Ok(RebuiltLog { objects, steps, purged, refused })
}

/// Writes what a mirror has into a new store.
struct LogRebuilder<'a> {
    store: &'a EmbeddedStore,
    progress: &'a AtomicU64,
    batch: Option<Box<dyn ObjectBatch + 'a>>,
    batch_bytes: usize,
    batch_objects: usize,
    mutations: Vec<Mutation>,
    objects: u64,
    steps: u64,
    /// The steps that are hidden, with the operation that hid them.
    hidden: HashMap<StepId, OpId>,
    /// The steps that were purged.
    purged: Vec<StepId>,
    refused: Vec<String>,
}

impl<'a> LogRebuilder<'a> {
    fn new(store: &'a EmbeddedStore, progress: &'a AtomicU64) -> Self {
        Self {
            store,
            progress,
            batch: None,
            batch_bytes: 0,
            batch_objects: 0,
            mutations: Vec::new(),
            objects: 0,
            steps: 0,
            hidden: HashMap::new(),
            purged: Vec::new(),
            refused: Vec::new(),
        }
    }

    fn add_object(&mut self, kind: ObjectKind, base: Option<Hash>, bytes: &[u8]) -> Result<(), MirrorError> {
        let batch = match &self.batch {
            Some(batch) => batch,
            None => self.batch.insert(self.store.begin()?),
        };
        batch.write(kind, bytes, base).map_err(StoreError::from)?;
        self.objects += 1;
        self.progress.fetch_add(1, Ordering::Relaxed);
        self.batch_bytes += bytes.len();
        self.batch_objects += 1;
        if self.batch_bytes >= BATCH_BYTES || self.batch_objects >= BATCH_OBJECTS {
            self.flush_objects()?;
        }
        Ok(())
    }

    fn add_changes(&mut self, mutations: &[u8]) -> Result<(), MirrorError> {
        let mutations = match parse_mutations(mutations) {
            Ok(mutations) => mutations,
            Err(error) => {
                self.refuse(error.to_string());
                return Ok(());
            }
        };
        for mutation in mutations {
            match &mutation {
                Mutation::Purge { steps } => {
                    self.purged.extend(steps.iter().filter(|step| self.hidden.contains_key(step)));
                    continue;
                }
                Mutation::SetHidden { steps, by } => {
                    for step in steps {
                        match by {
                            Some(by) => self.hidden.insert(*step, *by),
                            None => self.hidden.remove(step),
                        };
                    }
                }
                _ => {}
            }
            self.mutations.push(mutation);
        }
        if self.mutations.len() >= BATCH_OBJECTS { self.flush_changes() } else { Ok(()) }
    }

    fn flush_objects(&mut self) -> Result<(), MirrorError> {
        (self.batch_bytes, self.batch_objects) = (0, 0);
        if let Some(batch) = self.batch.take() {
            self.store.commit(Some(batch.finish()?), &[])?;
        }
        Ok(())
    }

    fn flush_changes(&mut self) -> Result<(), MirrorError> {
        let mutations = std::mem::take(&mut self.mutations);
        if mutations.is_empty() {
            return Ok(());
        }
        match self.store.commit(None, &mutations) {
            Ok(_) => {
                self.steps += count_steps(&mutations);
                return Ok(());
            }
            Err(error) if !is_about_content(&error) => return Err(error.into()),
            Err(_) => {}
        }
        // A store applied all that it acknowledged; what cannot be applied was forged, and must not hide the rest.
        for mutation in mutations {
            let mutation = [mutation];
            match self.store.commit(None, &mutation) {
                Ok(_) => self.steps += count_steps(&mutation),
                Err(error) if is_about_content(&error) => {
                    self.refuse(format!("a change that cannot be applied: {error}"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn refuse(&mut self, what: String) {
        if self.refused.len() < MAX_REFUSED {
            self.refused.push(what);
        }
    }

    fn flush(&mut self) -> Result<(), MirrorError> {
        self.flush_objects()?;
        self.flush_changes()
    }
}

fn count_steps(mutations: &[Mutation]) -> u64 {
    mutations.iter().filter(|mutation| matches!(mutation, Mutation::AppendStep { .. })).count() as u64
}

/// Whether a commit failed because of what it changes, and not because the store could not be written to.
fn is_about_content(error: &StoreError) -> bool {
    matches!(error, StoreError::Exists { .. } | StoreError::Moved { .. } | StoreError::Corrupt { .. })
}

/// Marks checkpoints as purged whose files the mirror never had. Returns how many of `purged` have all their files.
fn purge_what_is_missing(store: &EmbeddedStore, purged: &[StepId]) -> Result<u64, MirrorError> {
    let mut whole = 0;
    let mut seen = HashSet::new();
    for id in purged.iter().filter(|id| seen.insert(**id)) {
        let Some(found) = store.step(*id)? else { continue };
        let mut needed = NeededObjects::default();
        let problems = {
            let mut marker = Marker::new(store).with_visitor(&mut needed);
            marker.push_step(&found.step, false);
            marker.run();
            marker.problems.len()
        };
        if problems == 0 && needed.are_all_in(store)? {
            whole += 1;
            continue;
        }
        // Only hidden steps can be purged, and this one may have been shown again since.
        let (steps, by) = (vec![*id], found.hidden_by);
        let hide = |by| Mutation::SetHidden { steps: steps.clone(), by };
        let purge = Mutation::Purge { steps: steps.clone() };
        store.commit(None, &[hide(by.or(Some(OpId::from_bytes([0; 16])))), purge, hide(by)])?;
    }
    Ok(whole)
}

/// What a checkpoint needs.
#[derive(Default)]
struct NeededObjects {
    objects: Vec<(ObjectKind, Hash)>,
    vault_files: Vec<Vec<u8>>,
}

impl Visitor for NeededObjects {
    fn visit_object(&mut self, kind: ObjectKind, hash: Hash) {
        self.objects.push((kind, hash));
    }

    fn visit_file(&mut self, _size: u64, _content: &Content) -> Result<(), ObjectError> {
        Ok(())
    }

    fn vaulted(&mut self, name: &[u8]) {
        self.vault_files.push(name.to_vec());
    }
}

impl NeededObjects {
    fn are_all_in(&self, store: &EmbeddedStore) -> Result<bool, StoreError> {
        for (kind, hash) in &self.objects {
            if !store.contains(*kind, *hash)? {
                return Ok(false);
            }
        }
        let Some(dir) = store.local_dir() else { return Ok(true) };
        let vault = dir.join(VAULT);
        Ok(self.vault_files.iter().all(|name| vault.join(OsStr::from_bytes(name)).exists()))
    }
}
