//! What a mirror has: its generations, whether they contradict each other, and whether the store still has the same.

use std::collections::{BTreeMap, BTreeSet};

use stepback_model::hash::Hash;
use stepback_model::ids::WorkspaceId;
use stepback_model::quantity;
use stepback_store::{Store, StoreError};

use crate::archive::MirrorArchive;
use crate::error::MirrorError;
use crate::replay::{GenerationState, ReplayEvent, ReplayReport, replay};
use crate::sync::parse_mutations;
use crate::tally::TallyCounter;
use crate::vault;

/// Number of steps that are read at a time.
const STEPS: u64 = 2000;

/// The digests of the steps of each workspace, in order of their numbers.
type StepDigests = BTreeMap<WorkspaceId, Vec<Hash>>;

/// Everything that was read from a mirror, except the objects themselves.
#[derive(Debug)]
pub struct MirrorSurvey {
    /// What was read, and what is damaged.
    pub report: ReplayReport,
    /// The manifests of the files of the vault.
    pub vault_files: BTreeSet<String>,
    /// The steps of each generation.
    digests: BTreeMap<u64, StepDigests>,
}

impl MirrorSurvey {
    /// Reads a mirror and verifies every checksum; with `reads_files`, those of the vault's files too.
    pub fn take(archive: &MirrorArchive, reads_files: bool) -> Result<Self, MirrorError> {
        let mut vault_files = BTreeSet::new();
        let mut counters: BTreeMap<u64, TallyCounter> = BTreeMap::new();
        let mut digests: BTreeMap<u64, StepDigests> = BTreeMap::new();
        let mut report = replay(archive, &mut |event| {
            match event {
                ReplayEvent::VaultFile(manifest) => {
                    vault_files.insert(manifest.to_owned());
                }
                ReplayEvent::Changes { generation, mutations } => {
                    let counter = counters.entry(generation).or_default();
                    // What cannot be read was not written by a store; restoring names it.
                    for mutation in parse_mutations(mutations).unwrap_or_default() {
                        if let Some((workspace, digest)) = counter.count(&mutation, None)? {
                            let of_generation = digests.entry(generation).or_default();
                            of_generation.entry(workspace).or_default().push(digest);
                        }
                    }
                }
                ReplayEvent::Object { .. } => {}
            }
            Ok(())
        })?;
        if reads_files {
            for manifest in &vault_files {
                let read = vault::read_manifest(archive.storage(), manifest)
                    .and_then(|found| vault::read_pieces(archive.storage(), &found, &mut |_| Ok(())));
                match read {
                    Ok(()) => {}
                    Err(MirrorError::Damaged { what }) => report.problems.push(what),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Self { report, vault_files, digests })
    }

    /// Number of steps of a generation.
    pub fn steps(&self, generation: u64) -> u64 {
        self.digests.get(&generation).map_or(0, |all| all.values().map(|of| of.len() as u64).sum())
    }

    /// Whether `later` has every step that `earlier` has, unchanged and in the same place.
    fn continues(&self, later: u64, earlier: u64) -> bool {
        let (none, empty) = (StepDigests::new(), Vec::new());
        let (later, earlier) =
            (self.digests.get(&later).unwrap_or(&none), self.digests.get(&earlier).unwrap_or(&none));
        earlier.iter().all(|(workspace, steps)| later.get(workspace).unwrap_or(&empty).starts_with(steps))
    }

    /// The generations that have steps which `chosen` does not have.
    pub fn contradictions(&self, chosen: u64) -> Vec<&GenerationState> {
        let others = self.report.generations.iter().filter(|other| other.number != chosen);
        others.filter(|other| !self.continues(chosen, other.number)).collect()
    }

    /// The generation to restore: the newest that is complete, else the newest that has a log. Fails if others have steps
    /// that it does not have, unless `wanted` names one.
    pub fn choose(&self, wanted: Option<u64>) -> Result<&GenerationState, MirrorError> {
        let usable = || self.report.generations.iter().rev().filter(|generation| generation.has_log);
        if let Some(number) = wanted {
            let found = usable().find(|generation| generation.number == number);
            return found.ok_or(MirrorError::NoGeneration { number });
        }
        let chosen = usable().find(|generation| generation.is_complete).or_else(|| usable().next());
        let Some(chosen) = chosen else {
            return Err(MirrorError::Damaged { what: "it has no generation with a whole log".into() });
        };
        let others = self.contradictions(chosen.number);
        if others.is_empty() {
            return Ok(chosen);
        }
        let mut all: Vec<&GenerationState> = others.into_iter().filter(|other| other.has_log).collect();
        if all.is_empty() {
            return Ok(chosen);
        }
        all.push(chosen);
        all.sort_by_key(|generation| generation.number);
        let generations: Vec<String> = all.into_iter().map(|generation| self.describe(generation)).collect();
        Err(MirrorError::Contradiction { count: generations.len(), generations })
    }

    /// A generation in one line.
    pub fn describe(&self, generation: &GenerationState) -> String {
        format!(
            "generation {}: {}, written {} to {}; it was begun because {}",
            generation.number,
            quantity::count(self.steps(generation.number), "step"),
            generation.began_at,
            generation.written_at,
            generation.reason
        )
    }

    /// Compares the store with a generation, step by step. Returns each difference as a sentence, at most `most` of them.
    pub fn differences(
        &self,
        store: &dyn Store,
        generation: u64,
        most: usize,
    ) -> Result<Vec<String>, StoreError> {
        let mut differences = Vec::new();
        for (workspace, digests) in self.digests.get(&generation).into_iter().flatten() {
            let mut after = 0;
            while after < digests.len() as u64 {
                let entries = store.chain_entries(*workspace, after, STEPS)?;
                let end = entries.last().map_or(digests.len() as u64, |last| last.number);
                let stored: BTreeMap<u64, Option<Hash>> =
                    entries.iter().map(|entry| (entry.number, entry.digest)).collect();
                for number in after + 1..=end.min(digests.len() as u64) {
                    let what = match stored.get(&number) {
                        None => "is missing in the store",
                        Some(digest) if *digest != Some(digests[number as usize - 1]) => {
                            "was changed in the store since it was mirrored"
                        }
                        Some(_) => continue,
                    };
                    if differences.len() < most {
                        differences.push(format!("step #{number} of workspace {} {what}", workspace.short()));
                    }
                }
                after = end.max(after + 1);
            }
        }
        Ok(differences)
    }
}
