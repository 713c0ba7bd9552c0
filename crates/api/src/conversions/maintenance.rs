//! Prunes and the usage of models as documents.

use stepback_engine::budget::{self, BudgetOutlook};
use stepback_engine::prune::{PrunePlan, Pruned};
use stepback_llm_wire::semantics::TokenUsage;
use stepback_model::path::display_bytes;
use stepback_model::record::WorkspaceRecord;
use stepback_store::{Store, StoreError};

use crate::maintenance::{
    DiskBudgetDocument, ForgottenWorkspaceDocument, LastPruningDocument, ModelUsageDocument,
    PruneReportDocument,
};
use crate::operations::OperationDocument;
use crate::steps::StepDocument;

impl ForgottenWorkspaceDocument {
    /// The document of a forgotten workspace.
    pub fn from_record(record: &WorkspaceRecord) -> Self {
        Self { id: record.id.to_string(), root: display_bytes(record.former_root()).to_string() }
    }
}

impl PruneReportDocument {
    /// The preview of a prune.
    pub fn from_plan(plan: &PrunePlan) -> Self {
        Self {
            items: plan.hide.iter().map(StepDocument::from_row).collect(),
            kept: plan.keep as u64,
            branches: plan.branches.clone(),
            forgotten: plan.forgotten.iter().map(ForgottenWorkspaceDocument::from_record).collect(),
            freed_checkpoints: plan.purge.len() as u64,
            freed_bytes: plan.size_before.saturating_sub(plan.size_after),
            size_before: plan.size_before,
            size_after: plan.size_after,
            ..Self::default()
        }
    }

    /// Adds the result to the preview.
    pub fn with_result(self, store: &dyn Store, pruned: &Pruned) -> Result<Self, StoreError> {
        let operation = pruned.operation.as_ref();
        Ok(Self {
            applied: true,
            kept: pruned.kept as u64,
            branches: pruned.branches.clone(),
            forgotten: pruned.forgotten.iter().map(ForgottenWorkspaceDocument::from_record).collect(),
            reruns: pruned.reruns as u64,
            freed_objects: pruned.swept.objects,
            freed_bytes: pruned.swept.bytes,
            size_after: pruned.size_after,
            operation: operation
                .map(|operation| OperationDocument::from_store(store, operation))
                .transpose()?,
            ..self
        })
    }
}

impl DiskBudgetDocument {
    /// The budget of a store that has `used` bytes.
    pub fn new(budget: u64, used: u64, outlook: &BudgetOutlook, last: Option<LastPruningDocument>) -> Self {
        Self {
            bytes: budget,
            used,
            starts_at: budget::starts_at(budget),
            removable: outlook.removable,
            kept: outlook.kept,
            next: outlook.first.map(|step| step.to_string()),
            next_at: outlook.first_at,
            last,
        }
    }
}

impl ModelUsageDocument {
    /// Adds a model call; `cost` is in millionths of a dollar.
    pub fn add(&mut self, tokens: TokenUsage, cost: Option<u64>) {
        let add = |sum: &mut u64, count: u64| *sum = sum.saturating_add(count);
        add(&mut self.calls, 1);
        add(&mut self.input, tokens.input);
        add(&mut self.output, tokens.output);
        add(&mut self.cache_read, tokens.cache_read);
        add(&mut self.cache_write, tokens.cache_write);
        self.cost_usd += cost.unwrap_or(0) as f64 / 1e6;
    }
}
