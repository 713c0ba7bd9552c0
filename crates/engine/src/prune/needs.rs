//! What every checkpoint that may go needs: the last removable checkpoint that keeps each object in the store.

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::StepId;
use stepback_model::object::ObjectError;
use stepback_model::tree::Content;
use stepback_store::StoreError;
use stepback_store::port::StepRow;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::reachability::{Marker, Visitor};
use crate::workspace::StoreSource;

/// What is needed, each with the number of candidates that have to be removed before it is not. What the kept checkpoints
/// need has a number that is never reached.
#[derive(Default)]
pub struct Needs {
    /// Objects.
    pub objects: Vec<(Hash, usize)>,
    /// Names of files in the vault.
    pub vaulted: Vec<(Vec<u8>, usize)>,
}

/// Collects what a marker reaches for the first time, under the present number.
struct NeedCollector {
    removals: Rc<Cell<usize>>,
    needs: Needs,
}

impl Visitor for NeedCollector {
    fn visit_object(&mut self, _: ObjectKind, hash: Hash) {
        self.needs.objects.push((hash, self.removals.get()));
    }

    fn visit_file(&mut self, _: u64, _: &Content) -> Result<(), ObjectError> {
        Ok(())
    }

    fn vaulted(&mut self, name: &[u8]) {
        self.needs.vaulted.push((name.to_vec(), self.removals.get()));
    }
}

impl Engine {
    /// Determines what every candidate needs; they go in this order. The states of `freed` go in any case. Fails if anything
    /// that is needed is missing or damaged.
    pub(crate) fn collect_needs(
        &self,
        freed: &HashSet<StepId>,
        candidates: &[&StepRow],
    ) -> Result<Needs, EngineError> {
        let last: HashSet<StepId> = candidates.iter().map(|stored| stored.step.id).collect();
        let removals = Rc::new(Cell::new(usize::MAX));
        let mut collector = NeedCollector { removals: Rc::clone(&removals), needs: Needs::default() };
        let source = StoreSource(self.store());
        let mut marker = Marker::new(&source).with_visitor(&mut collector);
        self.push_roots(&mut marker, &|stored| {
            freed.contains(&stored.step.id) || last.contains(&stored.step.id)
        })?;
        marker.run();
        for (index, stored) in candidates.iter().enumerate().rev() {
            removals.set(index + 1);
            marker.push_step(&stored.step, false);
            marker.run();
        }
        if let Some(problem) = marker.problems.first() {
            return Err(StoreError::Corrupt {
                what: format!("{problem}; nothing is freed from a damaged store"),
            }
            .into());
        }
        Ok(collector.needs)
    }
}
