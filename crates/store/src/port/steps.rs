//! Steps, and queries for them.

use stepback_model::ids::{StepId, WorkspaceId};
use stepback_model::record::StepRow;

use super::{QueryCursor, StepAt, StepCount, StepPage, StepQuery};
use crate::error::StoreError;

/// Reads steps, which include checkpoints.
///
/// The steps of a workspace are numbered from 1 without gaps, in the order in which they were committed. Every step also has
/// a position in the order of commits across workspaces; positions may have gaps.
pub trait StepStore {
    /// The step with this id, checkpoint or not.
    fn step(&self, step: StepId) -> Result<Option<StepRow>, StoreError>;
    /// The step with this number in a workspace, checkpoint or not.
    fn step_numbered(&self, workspace: WorkspaceId, number: u64) -> Result<Option<StepRow>, StoreError>;
    /// The steps of a workspace that match `query`, newest first.
    fn steps(&self, workspace: WorkspaceId, query: &StepQuery) -> Result<Vec<StepRow>, StoreError>;
    /// The steps that match `query`, in one workspace or in all, with the number of matches beyond its limit.
    fn find(&self, workspace: Option<WorkspaceId>, query: &StepQuery) -> Result<StepPage, StoreError>;
    /// Steps of all workspaces that were committed after the one at `position`, in commit order; at most `most`. A caller
    /// that continues after the last one returned misses none. Like [`Self::find`], without counting all matches.
    fn follow(&self, position: u64, most: u64) -> Result<Vec<StepAt>, StoreError> {
        let from = Some(QueryCursor { value: 0, position });
        let query = StepQuery { oldest_first: true, from, limit: Some(most), ..StepQuery::default() };
        Ok(self.find(None, &query)?.steps)
    }
    /// The position of the newest step; 0 if the store has no steps.
    fn newest_position(&self) -> Result<u64, StoreError> {
        let newest = self.find(None, &StepQuery { limit: Some(1), ..StepQuery::default() })?;
        Ok(newest.steps.first().map_or(0, |placed| placed.position))
    }
    /// Step counts of a workspace by agent and kind, hidden steps included, in order of their names.
    fn tally(&self, workspace: WorkspaceId) -> Result<Vec<StepCount>, StoreError>;
    /// Checkpoints of a workspace, hidden ones included, newest first.
    fn checkpoints(&self, workspace: WorkspaceId) -> Result<Vec<StepRow>, StoreError>;
}
