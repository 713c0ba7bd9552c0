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
    (recorded, there): (&ModelRequest, &Directories),
    (present, here): (&ModelRequest, &Directories),
    common: usize,
) -> Vec<RequestDifference> {
    let mut found = Vec::new();
    let (Some(old), Some(new)) = (recorded.wire, present.wire) else { return found };
    let mut plainly = |path: &str, old: Option<String>, new: Option<String>| {
        if old != new {
            found.push(RequestDifference { path: path.to_owned(), recorded: old, present: new });
        }
    };
    plainly("model", requested_model(old, recorded), requested_model(new, present));
    plainly("stream", Some(response_format(old, recorded)), Some(response_format(new, present)));
    let olds = conversation_turns(old, part_of(old, &recorded.body));
    let news = conversation_turns(new, part_of(new, &present.body));
    for at in common..olds.len().max(news.len()) {
        let one = olds.get(at).map(|(_, turn)| normalize_message(old, turn, there));
        let two = news.get(at).map(|(_, turn)| normalize_message(new, turn, here));
        // The two sides may have different numbers of instructions at the beginning; the path is that of the present
        // request.
        let path = news.get(at).or(olds.get(at)).map_or("", |(path, _)| path);
        compare(path, one.as_ref(), two.as_ref(), &mut found);
        if found.len() >= MAX_DIFFERENCES {
            break;
        }
    }
    found.truncate(MAX_DIFFERENCES);
    found
}

fn compare(path: &str, old: Option<&Value>, new: Option<&Value>, found: &mut Vec<RequestDifference>) {
    if found.len() >= MAX_DIFFERENCES || old == new {
        return;
    }
    match (old, new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let added = new.keys().filter(|name| !old.contains_key(*name));
            for name in old.keys().chain(added) {
                compare(&format!("{path}.{name}"), old.get(name), new.get(name), found);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            for at in 0..old.len().max(new.len()) {
                compare(&format!("{path}[{at}]"), old.get(at), new.get(at), found);
            }
        }
        _ => {
            let (old, new) = (old.map(value_text), new.map(value_text));
            let parting = match (&old, &new) {
                (Some(old), Some(new)) => {
                    old.chars().zip(new.chars()).take_while(|(one, two)| one == two).count()
                }
                _ => 0,
            };
            let shown = |text: Option<String>| text.map(|text| excerpt_around(&text, parting));
            found.push(RequestDifference {
                path: path.to_owned(),
                recorded: shown(old),
                present: shown(new),
            });
        }
    }
}

fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the part of a text around a position, with a mark where something was left out.
fn excerpt_around(text: &str, at: usize) -> String {
    let from = at.saturating_sub(CHARS_BEFORE_DIFFERENCE);
    let sign = |left_out: bool| if left_out { "…" } else { "" };
    let mut rest = text.chars().skip(from);
    let shown: String = rest.by_ref().take(MAX_EXCERPT_CHARS - 2).collect();
    format!("{}{shown}{}", sign(from > 0), sign(rest.next().is_some()))
}
