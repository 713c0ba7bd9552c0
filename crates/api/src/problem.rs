//! Errors as RFC 9457 documents.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::plans::PlanDocument;

/// An error, with hints on how to fix it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemDocument {
    /// A URI that identifies the type of problem.
    #[serde(rename = "type")]
    pub kind: String,
    /// The title, the same for every problem of this status.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What went wrong this time.
    pub detail: String,
    /// The error code, as on the command line: `point`, `nothing`, `busy`, …
    pub code: String,
    /// Hints on how to fix it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
    /// The current plan, if the one to apply is out of date.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Box<PlanDocument>>,
}
