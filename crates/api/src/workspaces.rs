//! The directory trees that agents work in.

use serde::{Deserialize, Serialize};
use stepback_model::path::display_bytes;
use stepback_model::record::WorkspaceRecord;
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

/// A directory tree that agents work in.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WorkspaceDocument {
    /// The workspace id.
    pub id: String,
    /// The path of its root directory.
    pub root: String,
    /// When it was registered.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

impl WorkspaceDocument {
    /// The document of a workspace.
    pub fn from_record(workspace: &WorkspaceRecord) -> Self {
        Self {
            id: workspace.id.to_string(),
            root: display_bytes(&workspace.root).into_owned(),
            created_at: workspace.created_at,
        }
    }
}
