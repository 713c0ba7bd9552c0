//! Steps that were found, by their fields or by full text.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::steps::StepDocument;

/// A step that was found.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct FoundStepDocument {
    /// The step.
    #[serde(flatten)]
    pub step: StepDocument,
    /// The id of its workspace.
    pub workspace: String,
    /// The agent of its session.
    pub agent: Option<String>,
    /// Whether it was deleted or pruned.
    pub hidden: bool,
}

/// A page of steps that were found.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct FoundStepsDocument {
    /// The steps of the page.
    pub items: Vec<FoundStepDocument>,
    /// Total number of matches.
    pub total: u64,
    /// Whether `total` is exact; otherwise there are at least so many.
    pub total_is_exact: bool,
    /// Where the next page begins; none after the last.
    pub next_cursor: Option<String>,
}

/// An excerpt of a text, with the matches in it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SnippetDocument {
    /// The field it comes from: `error`, `annotation`, `input`, `output`, `message`, `path`, `summary`.
    pub field: String,
    /// The excerpt.
    pub text: String,
    /// The matches: pairs of the first byte and the byte after the last, in the UTF-8 of `text`.
    pub marks: Vec<[usize; 2]>,
    /// Whether the text was cut before the excerpt, and after it.
    pub cut: [bool; 2],
}

/// A match of a full-text search.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SearchHitDocument {
    /// The step.
    #[serde(flatten)]
    pub found: FoundStepDocument,
    /// The rank; higher is better, 0 if the results are not ranked.
    pub score: f64,
    /// Excerpts with the matches.
    pub snippets: Vec<SnippetDocument>,
}

/// A page of matches.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SearchResultsDocument {
    /// The matches of the page.
    pub items: Vec<SearchHitDocument>,
    /// Total number of matches.
    pub total: u64,
    /// Whether `total` is exact; otherwise there are at least so many.
    pub total_is_exact: bool,
    /// Where the next page begins; none after the last.
    pub next_cursor: Option<String>,
    /// Whether every step was searched; if not, the newest are still being indexed, and a later search finds more.
    pub complete: bool,
}
