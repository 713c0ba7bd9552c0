//! Requests that an agent makes on the side: a title for the session, which model to use, whether there is quota. A run goes
//! on whatever they are answered, and whether they are made at all depends on settings.

use serde_json::Value;

use super::normalize::{RequestFingerprint, part_of};
use crate::{Request, Wire};

/// Whether a request is one of them. `others` says whether requests of the same wire carry tools; where none do, a program
/// that asks without tools does nothing special.
pub(super) fn is(request: &Request, outline: &RequestFingerprint, others: bool) -> bool {
    let Some(wire) = outline.wire else {
        // What asks no model: a look whether the server is there, a list of models, a count of tokens.
        return true;
    };
    let body = part_of(wire, &request.body);
    let quota =
        ["max_tokens", "max_completion_tokens", "max_output_tokens"].iter().any(|field| body[*field] == 1);
    if quota {
        return true;
    }
    // Codex asks nothing on the side.
    if wire == Wire::Responses || outline.tools || !others {
        return false;
    }
    // A summary that replaces a long conversation is made without tools as well, and everything hangs on it. Small questions
    // carry no answers of the model; those that do (Gemini's router shows its model the conversation) want a given form.
    wants_a_form(wire, body) || (outline.messages.len() <= 3 && !outline.model_spoke)
}

fn wants_a_form(wire: Wire, body: &Value) -> bool {
    match wire {
        Wire::Messages => !body["output_config"]["format"].is_null() || !body["output_format"].is_null(),
        Wire::Chat => body["response_format"]["type"] == "json_schema",
        Wire::Responses => false,
        Wire::Gemini => {
            let config = &body["generationConfig"];
            ["responseSchema", "responseJsonSchema"].iter().any(|field| !config[*field].is_null())
        }
    }
}
