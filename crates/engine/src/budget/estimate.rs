//! Estimates how many bytes are freed when the first checkpoints of a list go.
//!
//! The sizes of the objects that only they need are added up. The database also gives back the rows of these objects, and a
//! pack is only rewritten when much of it is dead, so the result is measured afterwards.

use std::collections::{HashMap, HashSet};

use stepback_model::hash::Hash;
use stepback_model::ids::StepId;
use stepback_store::port::StepRow;
use stepback_worktree::WorktreeError;
use stepback_worktree::vault::Vault;

use crate::engine::Engine;
use crate::error::EngineError;

/// About what an object costs in the database besides its record: a row and its place in the index.
const ROW_BYTES: u64 = 100;

/// What is freed, by the number of removed checkpoints.
pub struct SizeEstimate {
    /// Bytes of objects that are freed when as many checkpoints as the index says are gone.
    freed: Vec<u64>,
    /// All objects that are needed now.
    needed: HashSet<Hash>,
    vault: Option<Vault>,
    vaulted: Vec<(Vec<u8>, usize)>,
    lenders: HashSet<Vec<u8>>,
}

impl SizeEstimate {
    /// Determines what every candidate needs. The states of `freed` go in any case.
    pub fn new(
        engine: &Engine,
        freed: &HashSet<StepId>,
        candidates: &[&StepRow],
    ) -> Result<Self, EngineError> {
        let needs = engine.collect_needs(freed, candidates)?;
        let mut last: HashMap<Hash, usize> = needs.objects.into_iter().collect();
        let needed = last.keys().copied().collect();
        let mut stored: Vec<(Hash, u64)> = Vec::new();
        let mut bases: HashMap<Hash, Hash> = HashMap::new();
        engine.store.for_each_stored_object(&mut |object, bytes| {
            stored.push((object.hash, bytes));
            if let Some(base) = object.base {
                bases.insert(object.hash, base);
            }
        })?;
        // The base of a delta is needed as long as the delta.
        for hash in bases.keys() {
            let Some(needed) = last.get(hash).copied() else { continue };
            let mut delta = hash;
            while let Some(base) = bases.get(delta) {
                let of_base = last.entry(*base).or_insert(0);
                if *of_base >= needed {
                    break;
                }
                *of_base = needed;
                delta = base;
            }
        }
        let mut sizes = vec![0; candidates.len() + 1];
        for (hash, bytes) in stored {
            if let Some(size) = sizes.get_mut(last.get(&hash).copied().unwrap_or(0)) {
                *size += bytes + ROW_BYTES;
            }
        }
        let mut total = 0;
        // What nothing needs is freed without any removal.
        sizes[0] = 0;
        for size in &mut sizes {
            total += *size;
            *size = total;
        }
        let vault = engine.vault()?;
        Ok(Self { freed: sizes, needed, vault, vaulted: needs.vaulted, lenders: engine.store.lenders()? })
    }

    /// All objects that something needs before any candidate goes.
    pub fn needed(&self) -> &HashSet<Hash> {
        &self.needed
    }

    /// About how many bytes are freed with the first `count` candidates, besides what nothing needs.
    pub fn freed(&self, count: usize) -> Result<u64, EngineError> {
        let objects = self.freed.get(count).copied().unwrap_or(0);
        let Some(vault) = &self.vault else { return Ok(objects) };
        let names: HashSet<&[u8]> =
            self.vaulted.iter().filter(|(_, last)| *last > count).map(|(name, _)| name.as_slice()).collect();
        let bytes = vault
            .bytes_without(|name| names.contains(name) || self.lenders.contains(name))
            .map_err(WorktreeError::aside("read", "the vault"))?;
        Ok(objects + bytes)
    }
}
