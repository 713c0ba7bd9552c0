//! Plans in memory.

use std::cmp::Reverse;

use stepback_model::ids::WorkspaceId;
use stepback_model::time::Timestamp;

use super::MemoryStore;
use crate::error::StoreError;
use crate::port::{KEPT_PLANS, PlanStore, StoredPlan};

impl PlanStore for MemoryStore {
    fn put_plan(&self, plan: &StoredPlan) -> Result<(), StoreError> {
        self.inner().plans.insert(plan.id.clone(), plan.clone());
        Ok(())
    }

    fn plan(&self, id: &str) -> Result<Option<StoredPlan>, StoreError> {
        Ok(self.inner().plans.get(id).cloned())
    }

    fn remove_plan(&self, id: &str) -> Result<bool, StoreError> {
        Ok(self.inner().plans.remove(id).is_some())
    }

    fn plans(&self, workspace: WorkspaceId) -> Result<Vec<StoredPlan>, StoreError> {
        let inner = self.inner();
        let mut plans: Vec<_> =
            inner.plans.values().filter(|plan| plan.workspace == workspace).cloned().collect();
        plans.sort_by(|one, other| {
            Reverse((one.created_at, &one.id)).cmp(&Reverse((other.created_at, &other.id)))
        });
        Ok(plans)
    }

    fn prune_plans(&self, workspace: WorkspaceId, oldest: Timestamp) -> Result<(), StoreError> {
        for (rank, plan) in self.plans(workspace)?.iter().enumerate() {
            if rank >= KEPT_PLANS || plan.created_at < oldest {
                self.inner().plans.remove(&plan.id);
            }
        }
        Ok(())
    }
}
