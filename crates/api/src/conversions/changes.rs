//! Numbered changes and their authors as documents.

use stepback_engine::authorship::Author;
use stepback_engine::changes::NumberedChange;

use crate::changes::{ChangeAuthorDocument, NumberedChangeDocument};
use crate::files::ChangeDocument;

impl ChangeAuthorDocument {
    /// The document of a call.
    pub fn from_author(author: &Author) -> Self {
        Self {
            session: author.session.to_string(),
            call_step: author.step.to_string(),
            tool: author.tool.clone(),
            prompt_step: author.prompt.map(|prompt| prompt.to_string()),
        }
    }
}

impl NumberedChangeDocument {
    /// The document of a change with its number.
    pub fn from_change(numbered: &NumberedChange) -> Self {
        Self {
            number: numbered.number as u64,
            change: ChangeDocument::from_change(&numbered.change),
            at: numbered.at,
            step: numbered.step.map(|(id, _)| id.to_string()),
            step_number: numbered.step.map(|(_, number)| number),
            taken_back: numbered.taken_back,
            authors: numbered.who.candidates().iter().map(ChangeAuthorDocument::from_author).collect(),
        }
    }
}
