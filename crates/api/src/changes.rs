//! The numbered list of changes, with the author of each.

use serde::{Deserialize, Serialize};
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

use crate::files::ChangeDocument;

/// A call that made a change, or may have made it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ChangeAuthorDocument {
    /// The id of the session.
    pub session: String,
    /// The id of the step at which the call began.
    pub call_step: String,
    /// The name of the tool.
    pub tool: Option<String>,
    /// The id of the step of the prompt that the agent was working on.
    pub prompt_step: Option<String>,
}

/// A change with its number.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct NumberedChangeDocument {
    /// The number to pass to a rewind.
    pub number: u64,
    /// The change.
    #[serde(flatten)]
    pub change: ChangeDocument,
    /// When a scan first found it.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The id of the step that first found it; none if no step has yet.
    pub step: Option<String>,
    /// The number of that step.
    pub step_number: Option<u64>,
    /// Whether a rewind took it back.
    pub taken_back: bool,
    /// The author: the user if it is empty, one of these calls if there are several.
    pub authors: Vec<ChangeAuthorDocument>,
}
