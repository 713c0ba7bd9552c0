//! Branches: named lines of steps. The workspace stands on one of them; the others wait where they were left.

use stepback_store::port::StoredCheckpoint;

use crate::error::EngineError;
use crate::workspace::Workspace;

/// The first branch.
pub const MAIN: &str = "main";

impl Workspace<'_> {
    /// The newest step of a branch.
    pub fn branch_tip(&self, name: &str) -> Result<Option<StoredCheckpoint>, EngineError> {
        let Some(step) = self.store().reference(&self.branch_ref(name))? else { return Ok(None) };
        Ok(self.store().step(step)?)
    }

    /// Names of all branches.
    pub fn branch_names(&self) -> Result<Vec<String>, EngineError> {
        let prefix = self.branch_ref("");
        let references = self.store().references(&prefix)?;
        Ok(references
            .into_iter()
            .filter_map(|(name, _)| Some(name.strip_prefix(&prefix)?.to_string()))
            .collect())
    }

    pub(crate) fn branch_ref(&self, name: &str) -> String {
        format!("head/{}/{name}", self.record.id)
    }
}
