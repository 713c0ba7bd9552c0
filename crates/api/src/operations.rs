//! What stepback itself did.

use serde::{Deserialize, Serialize};
use stepback_model::record::{OpStatus, Operation};
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

/// An operation of stepback itself, such as a rewind.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct OperationDocument {
    /// The operation id.
    pub id: String,
    /// The number, counting up within the workspace.
    pub number: u64,
    /// `rewind`, `undo`, `checkpoint-create`, …
    pub kind: String,
    /// When it happened.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// One line for people.
    pub summary: String,
    /// `done`, `reverted`, or `applying` while it is in progress.
    pub status: String,
    /// Whether it was undone.
    pub undone: bool,
    /// The step that holds the files before it, if it changed files.
    pub before: Option<String>,
    /// The step that holds the files after it, if it changed files.
    pub after: Option<String>,
}

impl OperationDocument {
    /// The document of an operation.
    pub fn from_operation(operation: &Operation) -> Self {
        let moved = operation.action.moved();
        let status = match operation.status {
            OpStatus::Applying => "applying",
            OpStatus::Done => "done",
            OpStatus::Reverted => "reverted",
        };
        Self {
            id: operation.id.to_string(),
            number: operation.number,
            kind: operation.action.kind().to_owned(),
            at: operation.at,
            summary: operation.summary.clone(),
            status: status.to_owned(),
            undone: operation.undone,
            before: moved.map(|moved| moved.before.to_string()),
            after: moved.map(|moved| moved.after.to_string()),
        }
    }
}
