//! Workspaces and the sessions in them.

use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::record::{Session, WorkspaceRecord};

use crate::error::StoreError;

/// Reads workspaces and sessions. They are added by commits, and never removed. A forgotten workspace is in no list of
/// workspaces, and its steps are in no list of the steps of all workspaces.
pub trait SessionStore {
    /// The workspace with this root.
    fn workspace_at(&self, root: &[u8]) -> Result<Option<WorkspaceRecord>, StoreError>;
    /// All workspaces, oldest first, without forgotten ones.
    fn workspaces(&self) -> Result<Vec<WorkspaceRecord>, StoreError>;
    /// The forgotten workspaces, oldest first. Only the process that holds a store knows them.
    fn forgotten_workspaces(&self) -> Result<Vec<WorkspaceRecord>, StoreError> {
        Ok(Vec::new())
    }
    /// The sessions of a workspace, oldest first.
    fn sessions(&self, workspace: WorkspaceId) -> Result<Vec<Session>, StoreError>;
    /// The sessions of a workspace that have an open call, oldest first.
    fn working_sessions(&self, workspace: WorkspaceId) -> Result<Vec<Session>, StoreError> {
        let mut sessions = self.sessions(workspace)?;
        sessions.retain(|session| !session.info.open.is_empty());
        Ok(sessions)
    }
    /// The session with this id.
    fn session(&self, session: SessionId) -> Result<Option<Session>, StoreError>;
}
