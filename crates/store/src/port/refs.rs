//! References: names that point to steps.

use stepback_model::ids::StepId;

use crate::error::StoreError;

/// Reads references. A commit moves them by compare-and-swap ([`Mutation::SetRef`]).
///
/// [`Mutation::SetRef`]: super::Mutation::SetRef
pub trait RefStore {
    /// The target of a reference.
    fn reference(&self, name: &str) -> Result<Option<StepId>, StoreError>;
    /// All references whose name starts with `prefix`.
    fn references(&self, prefix: &str) -> Result<Vec<(String, StepId)>, StoreError>;
}
