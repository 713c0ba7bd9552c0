//! Steps that were found, by what is known of them or by their words.

use std::collections::HashMap;

use serde::Serialize;
use stepback_engine::Engine;
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::search::Snippet;
use stepback_store::port::{Hit, StoredCheckpoint};
use utoipa::ToSchema;

use super::StepDocument;
use crate::problem::Problem;

/// A step, and where it is.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FoundStepDocument {
    /// The step.
    #[serde(flatten)]
    pub step: StepDocument,
    /// The workspace it is in.
    pub workspace: String,
    /// The agent of its session.
    pub agent: Option<String>,
    /// Whether it was deleted or pruned.
    pub hidden: bool,
}

/// A page of steps.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FoundStepsDocument {
    /// What is on it.
    pub items: Vec<FoundStepDocument>,
    /// How many there are in all.
    pub total: u64,
    /// Whether there are just so many; otherwise at least.
    pub total_is_exact: bool,
    /// Where the next page begins; none after the last.
    pub next_cursor: Option<String>,
}

/// A part of a text, with what was found in it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SnippetDocument {
    /// Where it comes from: `error`, `annotation`, `input`, `output`, `message`, `path`, `summary`.
    pub field: String,
    /// The part.
    pub text: String,
    /// What was found: pairs of the first byte and the byte after the last, in the UTF-8 of `text`.
    pub marks: Vec<[usize; 2]>,
    /// Whether the text begins before the part, and goes on after it.
    pub cut: [bool; 2],
}

impl SnippetDocument {
    fn of(snippet: &Snippet) -> Self {
        Self {
            field: snippet.field.as_str().to_owned(),
            text: snippet.text.clone(),
            marks: snippet.marks.iter().map(|(from, to)| [*from, *to]).collect(),
            cut: snippet.cut.into(),
        }
    }
}

/// A step that was found by its words.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct HitDocument {
    /// The step, and where it is.
    #[serde(flatten)]
    pub found: FoundStepDocument,
    /// How well it fits; more is better, 0 where nothing was ranked.
    pub score: f64,
    /// What was found in it.
    pub snippets: Vec<SnippetDocument>,
}

/// A page of what was found.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct HitsDocument {
    /// What is on it.
    pub items: Vec<HitDocument>,
    /// How many there are in all.
    pub total: u64,
    /// Whether there are just so many; otherwise at least.
    pub total_is_exact: bool,
    /// Where the next page begins; none after the last.
    pub next_cursor: Option<String>,
    /// Whether every step was looked at; if not, the newest ones are still being read, and a later search finds more.
    pub complete: bool,
}

/// Agents of sessions, each looked up once.
#[derive(Default)]
pub struct Agents(HashMap<SessionId, Option<String>>);

impl Agents {
    /// A step, and where it is.
    pub fn found(
        &mut self,
        engine: &Engine<'_>,
        workspace: WorkspaceId,
        stored: &StoredCheckpoint,
    ) -> Result<FoundStepDocument, Problem> {
        let session = stored.checkpoint.step.session;
        if let std::collections::hash_map::Entry::Vacant(place) = self.0.entry(session) {
            place.insert(engine.store.session(session)?.map(|session| session.agent));
        }
        Ok(FoundStepDocument {
            step: StepDocument::of(stored),
            workspace: workspace.to_string(),
            agent: self.0.get(&session).cloned().flatten(),
            hidden: stored.checkpoint.hidden_by.is_some(),
        })
    }

    /// A hit.
    pub fn hit(&mut self, engine: &Engine<'_>, hit: &Hit) -> Result<HitDocument, Problem> {
        Ok(HitDocument {
            found: self.found(engine, hit.workspace, &hit.stored)?,
            score: hit.score,
            snippets: hit.snippets.iter().map(SnippetDocument::of).collect(),
        })
    }
}
