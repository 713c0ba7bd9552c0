//! Shows where two requests diverge, as text that a user can compare.

use serde_json::Value;

use super::RequestDifference;
use super::normalize::{conversation_turns, normalize_message, part_of, requested_model, response_format};
use super::text_normalizer::Directories;
use crate::ModelRequest;

/// The most differences reported: the first one is the cause of most others.
const MAX_DIFFERENCES: usize = 5;
/// The most characters shown of a text.
const MAX_EXCERPT_CHARS: usize = 300;
/// How many of them come before the difference.
const CHARS_BEFORE_DIFFERENCE: usize = 80;

/// Returns the first differences of two requests whose first `common` messages are equal.
pub(super) fn between(
    (recorded, recorded_directories): (&ModelRequest, &Directories),
    (present, present_directories): (&ModelRequest, &Directories),
    common: usize,
) -> Vec<RequestDifference> {
    let mut differences = Vec::new();
    let (Some(old), Some(new)) = (recorded.wire, present.wire) else { return differences };
    let mut plainly = |path: &str, old: Option<String>, new: Option<String>| {
        if old != new {
            differences.push(RequestDifference { path: path.to_owned(), recorded: old, present: new });
        }
    };
    plainly("model", requested_model(old, recorded), requested_model(new, present));
    plainly("stream", Some(response_format(old, recorded)), Some(response_format(new, present)));
    let old_turns = conversation_turns(old, part_of(old, &recorded.body));
    let new_turns = conversation_turns(new, part_of(new, &present.body));
    for index in common..old_turns.len().max(new_turns.len()) {
        let old_message =
            old_turns.get(index).map(|(_, turn)| normalize_message(old, turn, recorded_directories));
        let new_message =
            new_turns.get(index).map(|(_, turn)| normalize_message(new, turn, present_directories));
        // The two sides may have different numbers of instructions at the beginning; the path is that of the present
        // request.
        let path = new_turns.get(index).or(old_turns.get(index)).map_or("", |(path, _)| path);
        compare(path, old_message.as_ref(), new_message.as_ref(), &mut differences);
        if differences.len() >= MAX_DIFFERENCES {
            break;
        }
    }
    differences.truncate(MAX_DIFFERENCES);
    differences
}

fn compare(path: &str, old: Option<&Value>, new: Option<&Value>, differences: &mut Vec<RequestDifference>) {
    if differences.len() >= MAX_DIFFERENCES || old == new {
        return;
    }
    match (old, new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let added = new.keys().filter(|name| !old.contains_key(*name));
            for name in old.keys().chain(added) {
                compare(&format!("{path}.{name}"), old.get(name), new.get(name), differences);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            for index in 0..old.len().max(new.len()) {
                compare(&format!("{path}[{index}]"), old.get(index), new.get(index), differences);
            }
        }
        _ => {
            let (old, new) = (old.map(value_text), new.map(value_text));
            let common_chars = match (&old, &new) {
                (Some(old), Some(new)) => old.chars().zip(new.chars()).take_while(|(a, b)| a == b).count(),
                _ => 0,
            };
            let excerpt = |text: Option<String>| text.map(|text| excerpt_around(&text, common_chars));
            differences.push(RequestDifference {
                path: path.to_owned(),
                recorded: excerpt(old),
                present: excerpt(new),
            });
        }
    }
}

fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the part of a text around a position, with a mark where something was left out.
fn excerpt_around(text: &str, position: usize) -> String {
    let start = position.saturating_sub(CHARS_BEFORE_DIFFERENCE);
    let sign = |left_out: bool| if left_out { "…" } else { "" };
    let mut rest = text.chars().skip(start);
    let visible: String = rest.by_ref().take(MAX_EXCERPT_CHARS - 2).collect();
    format!("{}{visible}{}", sign(start > 0), sign(rest.next().is_some()))
}
