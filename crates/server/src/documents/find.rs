//! Documents of search results.

use std::collections::HashMap;

use serde::Serialize;
use stepback_engine::Engine;
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::search::TextSnippet;
use stepback_store::port::{SearchHit, StepRow};
use utoipa::ToSchema;

use super::StepDocument;
use crate::problem::Problem;

/// A step that was found.
#[derive(Clone, Debug, Serialize, ToSchema)]
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
#[derive(Clone, Debug, Serialize, ToSchema)]
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
#[derive(Clone, Debug, Serialize, ToSchema)]
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

impl SnippetDocument {
    fn of(snippet: &TextSnippet) -> Self {
        Self {
            field: snippet.field.as_str().to_owned(),
            text: snippet.text.clone(),
            marks: snippet.marks.iter().map(|(from, to)| [*from, *to]).collect(),
            cut: snippet.cut.into(),
        }
    }
}

/// A match of a full-text search.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct HitDocument {
    /// The step.
    #[serde(flatten)]
    pub found: FoundStepDocument,
    /// The rank; higher is better, 0 if the results are not ranked.
    pub score: f64,
    /// Excerpts with the matches.
    pub snippets: Vec<SnippetDocument>,
}

/// A page of matches.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct HitsDocument {
    /// The matches of the page.
    pub items: Vec<HitDocument>,
    /// Total number of matches.
    pub total: u64,
    /// Whether `total` is exact; otherwise there are at least so many.
    pub total_is_exact: bool,
    /// Where the next page begins; none after the last.
    pub next_cursor: Option<String>,
    /// Whether every step was searched; if not, the newest are still being indexed, and a later search finds more.
    pub complete: bool,
}

/// A cache of the agents of sessions.
#[derive(Default)]
pub struct Agents(HashMap<SessionId, Option<String>>);

impl Agents {
    /// The document of a step that was found.
    pub fn found(
        &mut self,
        engine: &Engine,
        workspace: WorkspaceId,
        stored: &StepRow,
    ) -> Result<FoundStepDocument, Problem> {
        let session = stored.step.session;
        if let std::collections::hash_map::Entry::Vacant(place) = self.0.entry(session) {
            place.insert(engine.store.session(session)?.map(|session| session.agent));
        }
        Ok(FoundStepDocument {
            step: StepDocument::of(stored),
            workspace: workspace.to_string(),
            agent: self.0.get(&session).cloned().flatten(),
            hidden: stored.hidden_by.is_some(),
        })
    }

    /// The document of a match.
    pub fn hit(&mut self, engine: &Engine, hit: &SearchHit) -> Result<HitDocument, Problem> {
        Ok(HitDocument {
            found: self.found(engine, hit.workspace, &hit.stored)?,
            score: hit.score,
            snippets: hit.snippets.iter().map(SnippetDocument::of).collect(),
        })
    }
}
