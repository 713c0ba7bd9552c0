//! Changes what a request or an answer says, and nothing else in it: for a rerun with one change, and to remove secrets
//! from answers that arrive in chunks.

mod answer;
mod request;

use serde_json::Value;

use crate::{Response, Wire};

/// A text of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnswerText<'a> {
    /// The text or thought with this index.
    Text(usize),
    /// The input of a call, by its id (or its index, if there are no ids) and its tool.
    Input {
        /// The id of the call.
        id: Option<&'a str>,
        /// The name of the tool.
        name: &'a str,
    },
}

/// Calls `change` with every text and every call's input of an answer, complete, however it was split into chunks, and
/// replaces it by what `change` returns. Returns the changed answer, with matching chunk sizes; `None` if nothing was
/// changed.
///
/// A text is passed once even if the wire repeats it; all repetitions change. Input is passed as the text of its
/// document. Signatures over a thought are left unchanged.
pub fn answer(
    wire: Wire,
    response: &Response,
    change: &mut dyn FnMut(AnswerText<'_>, &str) -> Option<String>,
) -> Option<Response> {
    answer::change_texts(wire, response, change)
}

/// Calls `change` with every other string of an answer, with the name of its field: error messages, names, ids. Replaces
/// it by what `change` returns. An answer without any document is passed as one text without a name. Returns `None` if
/// nothing was changed.
pub fn elsewhere(
    wire: Option<Wire>,
    response: &Response,
    change: &mut dyn FnMut(&str, &str) -> Option<String>,
) -> Option<Response> {
    answer::change_elsewhere(wire, response, change)
}

/// Replaces the result of the call `id` in a request's body by `text`. Returns whether there was one.
pub fn set_result(wire: Wire, body: &mut Value, id: &str, text: &str) -> bool {
    request::set_result(wire, body, id, text)
}

/// Replaces the first user message whose text contains or equals `old`. Returns whether there was one.
///
/// A text that equals `old` takes precedence over one that only contains it; of the latter, the rest is unchanged.
pub fn set_prompt(wire: Wire, body: &mut Value, old: &str, new: &str) -> bool {
    request::set_prompt(wire, body, old, new)
}

/// Returns the messages of a request's body, in order; `None` if it has no list of messages.
pub fn messages(wire: Wire, body: &mut Value) -> Option<&mut Vec<Value>> {
    request::messages(wire, body)
}

/// Replaces the text of a message; parts that are not text (an image, a call, a result) stay. Returns whether it had a text.
pub fn set_message_text(wire: Wire, message: &mut Value, text: &str) -> bool {
    request::set_message_text(wire, message, text)
}

/// Replaces the system instructions.
pub fn set_system(wire: Wire, body: &mut Value, text: &str) {
    request::set_system(wire, body, text);
}

/// Replaces the model. On wires whose path names the model, it is replaced in the path.
pub fn set_model(wire: Wire, path: &mut String, body: &mut Value, model: &str) {
    request::set_model(wire, path, body, model);
}
