//! Checkpoints that are created or annotated on request.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::files::SkippedPathDocument;
use crate::operations::OperationDocument;
use crate::state::RepositoryDocument;
use crate::steps::StepDocument;

/// The annotation of a new checkpoint.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCheckpoint {
    /// A short name that points can use.
    pub label: Option<String>,
    /// Free text.
    pub note: Option<String>,
    /// The tags, at most 100.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// Changes to the annotation of a checkpoint. A missing field stays as it is; `null` removes it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AnnotationChange {
    /// A short name that points can use.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub label: Option<Option<String>>,
    /// Free text.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub note: Option<Option<String>>,
    /// All tags; replaces the earlier ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
}

/// Tells `null` (`Some(None)`) from a missing field (`None`).
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// A new checkpoint.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CreatedCheckpointDocument {
    /// The checkpoint.
    #[serde(flatten)]
    pub checkpoint: StepDocument,
    /// Files that were read because they are new or changed.
    pub files_read: u64,
    /// Paths that could not be saved, and why.
    pub not_covered: Vec<SkippedPathDocument>,
}

/// A checkpoint after its annotation was changed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct AnnotatedCheckpointDocument {
    /// The checkpoint as it is now.
    #[serde(flatten)]
    pub checkpoint: StepDocument,
    /// The operation, which undo takes.
    pub operation: OperationDocument,
}

/// A checkpoint of a session: one that was made at its own steps, or that the user made by hand while it was at work.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SessionCheckpointDocument {
    /// The checkpoint.
    #[serde(flatten)]
    pub checkpoint: StepDocument,
    /// How many files its state names.
    pub files: u64,
    /// The size of these files, in bytes; equal files of several checkpoints are stored once.
    pub size_bytes: u64,
    /// The git repositories. What is staged and changed is only looked up for a single checkpoint.
    pub git: Vec<RepositoryDocument>,
    /// The message index: how many messages the conversation of the session had then.
    pub messages: u64,
    /// The agent's id of the newest call of the session that had begun; none if there was none.
    pub call: Option<String>,
}
