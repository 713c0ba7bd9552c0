//! Compares the messages of two conversations.
//!
//! A recorded conversation is a chain of lines in the agent's own format. Two runs of the same task have no identical lines:
//! lines contain ids, times and directories, and agents put notes of their own between the messages. This module drops the
//! notes and reduces each message to its role and content, in the normal form by which a rerun finds recorded answers.

use std::path::Path;

use serde_json::{Map, Value, json};
use stepback_llm_wire::matching::TextNormalizer;
use stepback_model::conversation;
use stepback_model::hash::Hash;
use stepback_model::object::ObjectSource;

use super::align::hash_value;
use super::ends::Conversations;
use super::side::ComparedRun;
use crate::error::HistoryError;

/// Fields in messages that differ between any two runs, or that are only counts and measurements.
const VOLATILE_FIELDS: [&str; 16] = [
    "id",
    "uuid",
    "tool_use_id",
    "toolUseID",
    "tool_call_id",
    "call_id",
    "callID",
    "callId",
    "cache_control",
    "signature",
    "timestamp",
    "time",
    "usage",
    "tokens",
    "duration",
    "internal_chat_message_metadata_passthrough",
];

/// Counts the messages of two runs, and how many of them are equal from the beginning.
pub fn compare_conversations(
    source: &dyn ObjectSource,
    a: &ComparedRun,
    b: &ComparedRun,
) -> Result<Conversations, HistoryError> {
    let directories = || a.directories.iter().chain(&b.directories).map(Path::new);
    let normalizer = TextNormalizer::new(directories());
    let message_hashes = |tip: Option<Hash>| -> Result<Vec<u64>, HistoryError> {
        let lines = conversation::texts(source, tip)?;
        Ok(hash_messages(&lines, &normalizer))
    };
    let left = message_hashes(a.conversation)?;
    let right = if a.conversation == b.conversation { left.clone() } else { message_hashes(b.conversation)? };
    let shared = left.iter().zip(&right).take_while(|(left, right)| left == right).count();
    Ok(Conversations { shared: shared as u64, a: left.len() as u64, b: right.len() as u64 })
}

/// Returns a hash for each message.
fn hash_messages(lines: &[String], normalizer: &TextNormalizer) -> Vec<u64> {
    let key = |value: &Value| hash_value(&normalizer.value(value).to_string());
    let hashes: Vec<u64> =
        lines.iter().filter_map(|line| parse_message(line)).map(|value| key(&value)).collect();
    match hashes.is_empty() {
        // Unknown format: each line counts as a message.
        true => lines.iter().map(|line| key(&json!(line))).collect(),
        false => hashes,
    }
}

/// Returns the role and content of a line; `None` for a note of the agent.
fn parse_message(line: &str) -> Option<Value> {
    let Ok(Value::Object(line)) = serde_json::from_str(line) else { return None };
    let inner = |name: &str| line.get(name).and_then(Value::as_object);
    // The message itself, or a wrapper around it.
    let candidates = [inner("message"), inner("payload"), inner("info"), Some(&line)].into_iter().flatten();
    candidates.into_iter().find_map(|candidates| {
        let role =
            candidates.get("role").or_else(|| candidates.get("type").filter(|kind| is_message_kind(kind)))?;
        let mut fields: Map<String, Value> =
            ["content", "text", "parts", "name", "arguments", "input", "output"]
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), candidates.get(*name)?.clone())))
                .collect();
        if fields.is_empty() {
            return None;
        }
        fields.insert("role".into(), role.clone());
        let mut value = Value::Object(fields);
        strip_volatile_fields(&mut value);
        Some(value)
    })
}

/// Whether a line of this kind is a message; formats without roles mark messages this way.
fn is_message_kind(kind: &Value) -> bool {
    let turns = [
        "user",
        "assistant",
        "gemini",
        "model",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "local_shell_call",
    ];
    kind.as_str().is_some_and(|kind| turns.contains(&kind))
}

fn strip_volatile_fields(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(strip_volatile_fields),
        Value::Object(fields) => {
            fields.retain(|name, _| !VOLATILE_FIELDS.contains(&name.as_str()));
            fields.values_mut().for_each(strip_volatile_fields);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(directory: &str, id: &str, second: &str) -> Vec<String> {
        let wrap = |message: Value| {
            json!({
                "type": message["role"], "message": message, "uuid": id, "sessionId": id, "cwd": directory,
                "timestamp": format!("2026-11-17T04:36:{second}Z"),
            })
            .to_string()
        };
        vec![
            json!({ "type": "queue-operation", "content": second, "sessionId": id }).to_string(),
            wrap(json!({ "role": "user", "content": "go" })),
            wrap(json!({ "role": "assistant", "id": id, "content": [
                { "type": "tool_use", "id": id, "name": "Read", "input": { "path": format!("{directory}/a") } },
            ]})),
            wrap(json!({ "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": id, "content": format!("read {directory}/a") },
            ]})),
        ]
    }

    #[test]
    fn ids_times_directories_and_notes_make_no_difference_and_words_do() {
        let normalizer = TextNormalizer::new([Path::new("/w/shop"), Path::new("/tmp/x/y")].into_iter());
        let a = hash_messages(&lines("/w/shop", "f7ff3d99-476a-45e4-8ffc-eb4ea24cc6d9", "59"), &normalizer);
        let mut other = lines("/tmp/x/y", "11111111-1111-4111-8111-111111111111", "01");
        let b = hash_messages(&other, &normalizer);
        assert_eq!((a.len(), &a), (3, &b));
        other[3] = other[3].replace("read ", "no ");
        assert_eq!(hash_messages(&other, &normalizer)[..2], a[..2]);
        assert_ne!(hash_messages(&other, &normalizer)[2], a[2]);
    }

    #[test]
    fn lines_of_a_format_that_is_not_known_are_compared_as_they_are() {
        let normalizer = TextNormalizer::new(std::iter::empty());
        let said = |lines: &[&str]| {
            hash_messages(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>(), &normalizer)
        };
        assert_eq!(said(&["one", "two"])[0], said(&["one", "three"])[0]);
        assert_ne!(said(&["one", "two"])[1], said(&["one", "three"])[1]);
    }
}
