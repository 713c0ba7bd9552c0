//! Requests that an agent makes in the background: a title for the session, which model to use, whether there is quota. A
//! run continues whatever the answer is, and whether they are made at all depends on settings.

use serde_json::Value;

use super::normalize::{RequestFingerprint, part_of};
use crate::{ModelRequest, Wire};

/// Whether a request is in the background. `others` says whether requests of the same wire have tools; if none do, a
/// request without tools is nothing special.
pub(super) fn is_background(request: &ModelRequest, outline: &RequestFingerprint, others: bool) -> bool {
    let Some(wire) = outline.wire else {
        // Requests that ask no model: a check whether the server is there, a list of models, a count of tokens.
        return true;
    };
    let body = part_of(wire, &request.body);
    let quota =
        ["max_tokens", "max_completion_tokens", "max_output_tokens"].iter().any(|field| body[*field] == 1);
    if quota {
        return true;
    }
    // Codex makes no background requests.
    if wire == Wire::Responses || outline.tools || !others {
        return false;
    }
    // A summary that replaces a long conversation is requested without tools as well, and everything depends on it. Small
    // questions contain no answers of the model; those that do (Gemini's router shows its model the conversation) ask for
    // a given output format.
    requests_output_format(wire, body) || (outline.messages.len() <= 3 && !outline.model_spoke)
}

fn requests_output_format(wire: Wire, body: &Value) -> bool {
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
