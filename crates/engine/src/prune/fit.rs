//! Computes the size of the store after a prune, and how many checkpoints have to go to reach a given size.
//!
//! First, the last removable checkpoint that needs each object is determined. The size after the removal of any number of
//! checkpoints is then one query to the store, and the smallest sufficient number a binary search.

use std::collections::HashSet;

use stepback_model::hash::Hash;
use stepback_model::ids::StepId;
use stepback_store::port::StepRow;

use super::needs::Needs;
use crate::error::EngineError;
use crate::workspace::Workspace;

/// Sizes of the store by the number of removed checkpoints.
pub struct PruneSizes<'a> {
    workspace: &'a Workspace,
    /// Hidden whatever the size is, each with its number.
    hide: Vec<(u64, StepId)>,
    /// Freed whatever the size is.
    purge: Vec<StepId>,
    /// In the order in which they go, each with its number.
    candidates: Vec<(u64, StepId)>,
    now: bool,
    needs: Needs,
}

impl<'a> PruneSizes<'a> {
    /// Determines what every candidate needs. `hide` and `purge` happen in any case.
    pub fn measure(
        workspace: &'a Workspace,
        hide: &[&StepRow],
        purge: &[StepId],
        candidates: &[&StepRow],
        now: bool,
    ) -> Result<Self, EngineError> {
        let engine = &workspace.engine;
        let mut freed: HashSet<StepId> = purge.iter().copied().collect();
        for (_, steps) in engine.discardable_reruns(now)? {
            freed.extend(steps);
        }
        let needs = engine.collect_needs(&freed, candidates)?;
        let ids =
            |rows: &[&StepRow]| rows.iter().map(|stored| (stored.step.number, stored.step.id)).collect();
        Ok(Self {
            workspace,
            hide: ids(hide),
            purge: purge.to_vec(),
            candidates: ids(candidates),
            now,
            needs,
        })
    }

    /// The size of the store after the removal of the first `count` candidates.
    pub fn size_after(&self, count: usize) -> Result<u64, EngineError> {
        let live: HashSet<Hash> =
            self.needs.objects.iter().filter(|(_, last)| *last > count).map(|(hash, _)| *hash).collect();
        let removed = &self.candidates[..count];
        // Newest first and each once, as the prune itself does it: the order decides how the database splits its pages.
        let mut hide: Vec<(u64, StepId)> = self.hide.iter().chain(removed).copied().collect();
        hide.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
        hide.dedup();
        let purge = self.purge.iter().copied().chain(removed.iter().map(|(_, step)| *step)).collect();
        let (mutations, _) =
            self.workspace.prune_mutations(hide.into_iter().map(|(_, step)| step).collect(), purge);
        let usage = self.workspace.store().usage_after(&mutations, &live)?;
        Ok(usage.total_bytes.saturating_sub(self.freed_vault_bytes(count)?))
    }

    fn freed_vault_bytes(&self, count: usize) -> Result<u64, EngineError> {
        let Some(vault) = self.workspace.engine.vault()? else { return Ok(0) };
        let names: HashSet<&[u8]> = self
            .needs
            .vaulted
            .iter()
            .filter(|(_, last)| *last > count)
            .map(|(name, _)| name.as_slice())
            .collect();
        let lenders = self.workspace.store().lenders()?;
        let bytes = vault
            .bytes_without(|name| names.contains(name) || lenders.contains(name))
            .map_err(stepback_worktree::WorktreeError::aside("read", "the vault"))?;
        Ok(bytes)
    }

    /// The smallest number of candidates to remove so that the store has at most `limit` bytes, and its size then.
    pub fn smallest_removal(&self, limit: u64) -> Result<(usize, u64), EngineError> {
        let now = self.size_after(0)?;
        if now <= limit {
            return Ok((0, now));
        }
        let total = self.candidates.len();
        let mut best = (total, self.size_after(total)?);
        if best.1 > limit {
            return Err(EngineError::CannotFit { limit, smallest: best.1, freed_at_once: self.now });
        }
        let mut too_few = 0;
        while best.0 - too_few > 1 {
            let middle = too_few + (best.0 - too_few) / 2;
            let size = self.size_after(middle)?;
            if size <= limit {
                best = (middle, size);
            } else {
                too_few = middle;
            }
        }
        Ok(best)
    }
}
