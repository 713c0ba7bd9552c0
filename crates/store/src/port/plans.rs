//! Plans that were shown to a user and wait for confirmation, possibly in another process.

use stepback_model::ids::WorkspaceId;
use stepback_model::time::Timestamp;

use crate::error::StoreError;

/// The number of plans that [`PlanStore::prune_plans`] keeps in each workspace.
pub const KEPT_PLANS: usize = 256;

/// A plan as it was shown.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StoredPlan {
    /// The name by which a user confirms it.
    pub id: String,
    /// The workspace that it changes.
    pub workspace: WorkspaceId,
    /// When it was made.
    pub created_at: Timestamp,
    /// The plan, in a form that the store does not interpret.
    pub body: Vec<u8>,
}

/// Keeps plans between showing and applying them.
///
/// A plan is not history: it is neither copied nor exported, a change of plans does not count as a commit
/// ([`CommitLog::commit_seq`]), and a plan does not keep objects from being collected.
///
/// [`CommitLog::commit_seq`]: super::CommitLog::commit_seq
pub trait PlanStore {
    /// Stores a plan, replacing one with the same id.
    fn put_plan(&self, plan: &StoredPlan) -> Result<(), StoreError>;
    /// The plan with this id.
    fn plan(&self, id: &str) -> Result<Option<StoredPlan>, StoreError>;
    /// Removes the plan with this id, and returns whether it was stored. Of several callers that remove the same plan,
    /// exactly one gets `true`.
    fn remove_plan(&self, id: &str) -> Result<bool, StoreError>;
    /// The plans of a workspace, newest first.
    fn plans(&self, workspace: WorkspaceId) -> Result<Vec<StoredPlan>, StoreError>;
    /// Removes the plans of a workspace that were made before `oldest`, and all but the newest [`KEPT_PLANS`].
    fn prune_plans(&self, workspace: WorkspaceId, oldest: Timestamp) -> Result<(), StoreError>;
}
