//! Replaces texts of an answer in place: the new text goes into the first chunk, the others become empty, and everything
//! else keeps its bytes.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use serde_json::Value;

use super::AnswerText;
use crate::chunks::{Chunk, Chunks};
use crate::documents::{Document, Documents, Form};
use crate::semantics::{self, Kind, Shape, TextPosition};
use crate::{Response, Wire, sse};

pub(super) fn change_texts(
    wire: Wire,
    response: &Response,
    change: &mut dyn FnMut(AnswerText<'_>, &str) -> Option<String>,
) -> Option<Response> {
    let mut documents = Documents::parse(&response.body);
    let mut places: Vec<(TextPosition, String)> = Vec::new();
    let mut texts = 0;
    for slot in semantics::read(wire, &documents).slots {
        let old = slot.text(&documents);
        let part = match &slot.kind {
            Kind::Text | Kind::Thought if old.is_empty() => continue,
            Kind::Text | Kind::Thought => {
                texts += 1;
                AnswerText::Text(texts - 1)
            }
            Kind::Input { id, name, .. } => AnswerText::Input { id: id.as_deref(), name },
        };
        let Some(new) = change(part, &old).filter(|new| *new != old) else { continue };
        let rest = slot.pieces.iter().skip(1).map(|place| (place.clone(), String::new()));
        let full_text_positions = slot.pieces.first().into_iter().chain(&slot.repeats);
        places.extend(full_text_positions.map(|place| (place.clone(), new.clone())).chain(rest));
    }
    let mut written = BTreeSet::new();
    for (place, text) in places {
        if let Some(value) = value_at(&mut documents.list, &place) {
            *value = match place.shape {
                Shape::Text => Value::String(text),
                Shape::Document => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            };
            written.insert(place.document);
        }
    }
    with_documents(response, &documents, written)
}

/// Changes strings that are not text, thought or input.
pub(super) fn change_elsewhere(
    wire: Option<Wire>,
    response: &Response,
    change: &mut dyn FnMut(&str, &str) -> Option<String>,
) -> Option<Response> {
    let mut documents = Documents::parse(&response.body);
    if documents.list.is_empty() {
        let body = change("", &response.body)?;
        let (body, chunks) = replace_spans(response, [(0..response.body.len(), body)].into_iter());
        return Some(Response { body, chunks, ..response.clone() });
    }
    let slots = wire.map(|wire| semantics::read(wire, &documents).slots).unwrap_or_default();
    let places = slots.into_iter().flat_map(|slot| slot.pieces.into_iter().chain(slot.repeats));
    let text_positions: HashSet<(usize, String)> =
        places.map(|place| (place.document, place.pointer)).collect();
    let mut written = BTreeSet::new();
    for (index, document) in documents.list.iter_mut().enumerate() {
        let is_known = |pointer: &str| text_positions.contains(&(index, pointer.to_owned()));
        if change_strings(&mut document.value, &mut String::new(), "", &is_known, change) {
            written.insert(index);
        }
    }
    with_documents(response, &documents, written)
}

/// Changes the strings of a value, except below known places. Returns whether any was changed.
fn change_strings(
    value: &mut Value,
    pointer: &mut String,
    name: &str,
    is_known: &dyn Fn(&str) -> bool,
    change: &mut dyn FnMut(&str, &str) -> Option<String>,
) -> bool {
    if is_known(pointer) {
        return false;
    }
    let length = pointer.len();
    let mut any = false;
    match value {
        Value::String(text) => {
            if let Some(new) = change(name, text).filter(|new| new != text) {
                *text = new;
                any = true;
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                pointer.push_str(&format!("/{index}"));
                any |= change_strings(item, pointer, name, is_known, change);
                pointer.truncate(length);
            }
        }
        Value::Object(fields) => {
            for (field, item) in fields {
                pointer.push('/');
                pointer.push_str(&field.replace('~', "~0").replace('/', "~1"));
                any |= change_strings(item, pointer, field, is_known, change);
                pointer.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    any
}

/// Returns the answer with the changed documents; `None` if none was changed.
fn with_documents(response: &Response, documents: &Documents, written: BTreeSet<usize>) -> Option<Response> {
    if written.is_empty() {
        return None;
    }
    let edits = written.into_iter().map(|index| {
        let Document { value, span } = &documents.list[index];
        let new = match documents.form {
            Form::Whole | Form::Array => value.to_string(),
            Form::Events => rebuild_event(&response.body[span.clone()], value),
        };
        (span.clone(), new)
    });
    let (body, chunks) = replace_spans(response, edits);
    Some(Response { body, chunks, ..response.clone() })
}

fn value_at<'a>(documents: &'a mut [Document], position: &TextPosition) -> Option<&'a mut Value> {
    documents.get_mut(position.document)?.value.pointer_mut(&position.pointer)
}

/// Returns an event with other data and everything else unchanged.
fn rebuild_event(old: &str, value: &Value) -> String {
    let mut new = String::with_capacity(old.len());
    let (mut start, mut replaced) = (0, false);
    let unfinished = old.len();
    let lines = sse::lines(old).map(|line| line.end).chain([unfinished]);
    for end in lines {
        let line = &old[start..end];
        start = end;
        let name = line.trim_start_matches('\u{feff}').split([':', '\r', '\n']).next();
        if name != Some("data") {
            new.push_str(line);
        } else if !replaced {
            replaced = true;
            let text = line.trim_end_matches(['\r', '\n']);
            new.push_str("data: ");
            new.push_str(&value.to_string());
            new.push_str(&line[text.len()..]);
        }
    }
    new
}

/// Returns the body with these spans replaced, and its chunks. A chunk starts where its first byte moved to; the bytes of
/// a replaced span belong to the chunk that had its beginning.
fn replace_spans(
    response: &Response,
    edits: impl Iterator<Item = (Range<usize>, String)>,
) -> (String, Chunks) {
    let old = &response.body;
    let mut body = String::with_capacity(old.len());
    // For every kept or replaced span of the old body, where it begins in the new one.
    let mut stretches: Vec<(Range<usize>, usize, bool)> = Vec::new();
    let mut at = 0;
    for (span, new) in edits {
        stretches.push((at..span.start, body.len(), true));
        body.push_str(&old[at..span.start]);
        stretches.push((span.clone(), body.len(), false));
        body.push_str(&new);
        at = span.end;
    }
    stretches.push((at..old.len(), body.len(), true));
    body.push_str(&old[at..]);
    let ends: Vec<usize> = stretches.iter().skip(1).map(|(_, begin, _)| *begin).chain([body.len()]).collect();
    let moved = |position: usize| {
        let index = stretches.partition_point(|(span, ..)| span.end <= position).min(stretches.len() - 1);
        let (span, begin, is_kept) = &stretches[index];
        if *is_kept {
            begin + (position - span.start)
        } else if position <= span.start {
            *begin
        } else {
            ends[index]
        }
    };
    let (mut chunks, mut position, mut previous_after) = (Chunks::default(), 0usize, 0usize);
    let count = response.chunks.0.len();
    for (index, Chunk { after, bytes }) in response.chunks.0.iter().enumerate() {
        position = position.saturating_add(usize::try_from(*bytes).unwrap_or(usize::MAX)).min(old.len());
        // Chunks that did not match the old body must still match the new one.
        let end = if index + 1 == count { body.len() } else { moved(position).max(previous_after) };
        chunks.push(*after, (end - previous_after) as u64);
        previous_after = end;
    }
    if chunks.0.is_empty() {
        chunks.push(response.took, body.len() as u64);
    }
    (body, chunks)
}
