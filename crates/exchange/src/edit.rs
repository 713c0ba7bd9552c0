//! Changing what a request or an answer says, and nothing else of it: for a rerun with one thing changed, and to take
//! secrets out of answers that arrive in pieces.

mod answer;
mod request;

use serde_json::Value;

use crate::{Response, Wire};

/// Which text of an answer is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part<'a> {
    /// Text or thought number n.
    Text(usize),
    /// The input of a call, by its id (or its place, where there are no ids) and its tool.
    Input {
        /// The call's id.
        id: Option<&'a str>,
        /// The tool.
        name: &'a str,
    },
}

/// Lets `change` look at every text and every call's input of an answer, whole, however it was cut into pieces; what it
/// returns stands in its place. Returns the changed answer, with chunk sizes that fit; `None` if nothing was changed.
///
/// A text is seen once even where the wire says it several times; all of them change. Input is seen as the text of its
/// document. Signatures over a thought are left as they are.
pub fn answer(
    wire: Wire,
    response: &Response,
    change: &mut dyn FnMut(Part<'_>, &str) -> Option<String>,
) -> Option<Response> {
    answer::change(wire, response, change)
}

/// Lets `change` look at every other string of an answer, with the name of its field: messages of errors, names, ids. What it
/// returns stands in its place. An answer that holds no document at all is seen as one text without a name. `None` if nothing
/// was changed.
pub fn elsewhere(
    wire: Option<Wire>,
    response: &Response,
    change: &mut dyn FnMut(&str, &str) -> Option<String>,
) -> Option<Response> {
    answer::change_elsewhere(wire, response, change)
}

/// Replaces the result of the call `id` in a request's body by `text`. Says whether there was one.
pub fn set_result(wire: Wire, body: &mut Value, id: &str, text: &str) -> bool {
    request::set_result(wire, body, id, text)
}

/// Replaces a text that a user said, the first whose text contains or equals `old`. Says whether there was one.
///
/// A text that equals `old` goes before one that only contains it; of the latter, the rest stays as it is.
pub fn set_prompt(wire: Wire, body: &mut Value, old: &str, new: &str) -> bool {
    request::set_prompt(wire, body, old, new)
}

/// Replaces the instructions.
pub fn set_system(wire: Wire, body: &mut Value, text: &str) {
    request::set_system(wire, body, text);
}

/// Replaces the model; where the path names it, the path changes.
pub fn set_model(wire: Wire, path: &mut String, body: &mut Value, model: &str) {
    request::set_model(wire, path, body, model);
}
