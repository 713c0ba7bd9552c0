//! Operations: what stepback did itself.

use stepback_model::ids::{OpId, WorkspaceId};
use stepback_model::record::Operation;

use crate::error::StoreError;

/// Reads operations, which are numbered from 1 without gaps in each workspace.
pub trait OperationStore {
    /// The operation with this id.
    fn operation(&self, op: OpId) -> Result<Option<Operation>, StoreError>;
    /// Operations of a workspace, newest first.
    fn operations(&self, workspace: WorkspaceId) -> Result<Vec<Operation>, StoreError>;
    /// Operations of a workspace that were begun and neither finished nor reverted.
    fn unfinished(&self, workspace: WorkspaceId) -> Result<Vec<Operation>, StoreError>;
}
