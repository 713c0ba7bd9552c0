//! Steps that were found as documents.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::record::StepRow;
use stepback_model::search::TextSnippet;
use stepback_store::port::{SearchHit, StepAt};
use stepback_store::{Store, StoreError};

use crate::search::{FoundStepDocument, SearchHitDocument, SnippetDocument};
use crate::steps::{StepDocument, StepEventDocument};

impl StepEventDocument {
    /// The document of a step at its position in the log.
    pub fn from_step(placed: &StepAt) -> Self {
        Self {
            position: placed.position,
            workspace: placed.workspace.to_string(),
            step: StepDocument::from_row(&placed.stored),
        }
    }
}

impl SnippetDocument {
    /// The document of an excerpt.
    pub fn from_snippet(snippet: &TextSnippet) -> Self {
        Self {
            field: snippet.field.as_str().to_owned(),
            text: snippet.text.clone(),
            marks: snippet.marks.iter().map(|(from, to)| [*from, *to]).collect(),
            cut: snippet.cut.into(),
        }
    }
}

/// Turns steps that were found into documents. Caches the agents of their sessions.
pub struct StepDescriber<'s> {
    store: &'s dyn Store,
    agents: HashMap<SessionId, Option<String>>,
}

impl<'s> StepDescriber<'s> {
    /// Looks up sessions in this store.
    pub fn new(store: &'s dyn Store) -> Self {
        Self { store, agents: HashMap::new() }
    }

    /// The document of a step that was found.
    pub fn describe_step(
        &mut self,
        workspace: WorkspaceId,
        stored: &StepRow,
    ) -> Result<FoundStepDocument, StoreError> {
        let session = stored.step.session;
        if let Entry::Vacant(place) = self.agents.entry(session) {
            place.insert(self.store.session(session)?.map(|session| session.agent));
        }
        Ok(FoundStepDocument {
            step: StepDocument::from_row(stored),
            workspace: workspace.to_string(),
            agent: self.agents.get(&session).cloned().flatten(),
            hidden: stored.hidden_by.is_some(),
        })
    }

    /// The document of a match.
    pub fn describe_hit(&mut self, hit: &SearchHit) -> Result<SearchHitDocument, StoreError> {
        Ok(SearchHitDocument {
            found: self.describe_step(hit.workspace, &hit.stored)?,
            score: hit.score,
            snippets: hit.snippets.iter().map(SnippetDocument::from_snippet).collect(),
        })
    }
}
