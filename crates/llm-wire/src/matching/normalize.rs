//! Normalizes a request to what two runs of the same task have in common.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use serde_json::{Map, Value, json};

use super::text_normalizer::{Directories, normalize_instructions, normalize_text};
use crate::{ModelRequest, Wire};

/// Fields of a request that say who asks and how it is billed, not what is asked.
const METADATA: [&str; 12] = [
    "client_metadata",
    "metadata",
    "model",
    "project",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "session_id",
    "store",
    "user",
    "user_prompt_id",
];

/// A request reduced to hashes.
#[derive(Debug)]
pub(super) struct RequestFingerprint {
    pub(super) wire: Option<Wire>,
    /// Method and path. For a known wire, only whether a stream is wanted and in which format.
    pub(super) method_and_path: String,
    pub(super) model: Option<String>,
    /// A hash of each message of the conversation.
    pub(super) messages: Vec<u64>,
    /// A hash of instructions, tools and settings.
    pub(super) rest: u64,
    /// Whether there are tools.
    pub(super) tools: bool,
    /// Whether the conversation contains any message of a model.
    pub(super) model_spoke: bool,
}

impl RequestFingerprint {
    /// Normalizes a request and returns its hashes.
    pub(super) fn from_request(
        request: &ModelRequest,
        directories: &Directories,
        hash_cache: &mut HashMap<u64, u64>,
    ) -> Self {
        let Some(wire) = request.wire else {
            let path = normalize_text(&request.path, directories);
            let body = map_texts(&request.body, &mut |text| normalize_text(text, directories));
            return Self {
                wire: None,
                method_and_path: format!("{} {path}", request.method),
                model: None,
                messages: vec![hash(&body)],
                rest: 0,
                tools: false,
                model_spoke: false,
            };
        };
        let mut once = |value: &Value, message: bool, make: &dyn Fn(&Value) -> Value| {
            *hash_cache.entry(hash(&(wire, message, value))).or_insert_with(|| hash(&make(value)))
        };
        let body = part_of(wire, &request.body);
        let turns = conversation_turns(wire, body);
        let messages = turns
            .iter()
            .map(|(_, turn)| once(turn, true, &|turn| normalize_message(wire, turn, directories)))
            .collect();
        let mut rest = DefaultHasher::new();
        for (name, value) in other_fields(wire, body) {
            name.hash(&mut rest);
            once(value, false, &|value| normalize_setting(value, directories)).hash(&mut rest);
        }
        Self {
            wire: Some(wire),
            method_and_path: response_format(wire, request),
            model: requested_model(wire, request),
            messages,
            rest: rest.finish(),
            tools: body["tools"].as_array().is_some_and(|tools| !tools.is_empty()),
            model_spoke: turns
                .iter()
                .any(|(_, turn)| matches!(turn["role"].as_str(), Some("assistant" | "model" | "tool"))),
        }
    }

    /// Whether two requests ask the same, regardless of the rest.
    pub(super) fn asks_the_same(&self, other: &Self) -> bool {
        self.wire == other.wire
            && self.method_and_path == other.method_and_path
            && self.model == other.model
            && self.messages == other.messages
    }

    /// Returns how many messages two conversations have in common at their beginning.
    pub(super) fn in_common(&self, other: &Self) -> usize {
        self.messages.iter().zip(&other.messages).take_while(|(a, b)| a == b).count()
    }
}

/// Returns the part of a body with the request: Google's Code Assist wraps it.
pub(super) fn part_of(wire: Wire, body: &Value) -> &Value {
    if wire == Wire::Gemini && body["request"].is_object() { &body["request"] } else { body }
}

/// Returns the format of the answer that the request asks for. The agent would not understand another one.
pub(super) fn response_format(wire: Wire, request: &ModelRequest) -> String {
    if wire == Wire::Gemini {
        let (address, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let method = address.rsplit(':').next().unwrap_or_default();
        let events = query.split('&').any(|pair| pair == "alt=sse");
        return format!("{method}{}", if events { " as events" } else { "" });
    }
    let stream = request.body["stream"] == true;
    (if stream { "stream" } else { "document" }).to_owned()
}

/// Returns the model that is asked.
pub(super) fn requested_model(wire: Wire, request: &ModelRequest) -> Option<String> {
    let body_model = || request.body["model"].as_str().map(str::to_owned);
    if wire != Wire::Gemini {
        return body_model();
    }
    let address = request.path.split('?').next().unwrap_or_default();
    let (path_prefix, _) = address.rsplit_once(':').unwrap_or((address, ""));
    path_prefix.rsplit_once("models/").map(|(_, model)| model.to_owned()).or_else(body_model)
}

/// Returns the field that holds the conversation.
fn conversation_field(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages | Wire::Chat => "messages",
        Wire::Responses => "input",
        Wire::Gemini => "contents",
    }
}

/// Returns how many messages at the beginning are instructions.
fn count_instructions(wire: Wire, messages: &[Value]) -> usize {
    if !matches!(wire, Wire::Chat | Wire::Responses) {
        return 0;
    }
    let instructs = |message: &&Value| matches!(message["role"].as_str(), Some("system" | "developer"));
    messages.iter().take_while(instructs).count()
}

/// Returns the conversation, each message with its path. Leading instructions are not part of it.
pub(super) fn conversation_turns(wire: Wire, body: &Value) -> Vec<(String, &Value)> {
    let name = conversation_field(wire);
    match &body[name] {
        Value::Null => Vec::new(),
        Value::Array(messages) => {
            let path = |(at, message)| (format!("{name}[{at}]"), message);
            messages.iter().enumerate().skip(count_instructions(wire, messages)).map(path).collect()
        }
        other => vec![(name.to_owned(), other)],
    }
}

/// Returns everything besides the conversation that affects the answer.
fn other_fields(wire: Wire, body: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let name = conversation_field(wire);
    let messages = body[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let instructing =
        messages[..count_instructions(wire, messages)].iter().map(move |message| (name, message));
    let fields = body.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value));
    let fields = fields.filter(move |(field, _)| *field != name && !METADATA.contains(field));
    fields.chain(instructing)
}

/// Returns the normal form of a message.
pub(super) fn normalize_message(wire: Wire, message: &Value, directories: &Directories) -> Value {
    let mut normal = map_texts(message, &mut |text| normalize_text(text, directories));
    let Value::Object(fields) = &mut normal else { return normal };
    fields.retain(|_, value| !value.is_null());
    match wire {
        Wire::Messages | Wire::Chat => {
            if let Some(blocks) = fields.get_mut("content") {
                without_cache_marks(blocks);
            }
            without_cache_marks_here(fields);
            unify_text(fields, "content");
        }
        Wire::Responses => {
            // The agent generated it for itself. A result refers to its call by `call_id`, which came from the server.
            fields.remove("id");
            fields.remove("internal_chat_message_metadata_passthrough");
            unify_text(fields, "content");
        }
        Wire::Gemini => {
            for part in fields.get_mut("parts").and_then(Value::as_array_mut).into_iter().flatten() {
                for holder in ["functionCall", "functionResponse"] {
                    if let Some(holder) = part.get_mut(holder).and_then(Value::as_object_mut)
                        && holder.get("id").and_then(Value::as_str).is_some_and(|id| id.contains("<time>"))
                    {
                        // The agent generated it from the clock, because the server gave none.
                        holder.remove("id");
                    }
                }
            }
        }
    }
    normal
}

/// Returns the normal form of instructions, tools and settings.
fn normalize_setting(value: &Value, directories: &Directories) -> Value {
    let mut normal = map_texts(value, &mut |text| normalize_instructions(text, directories));
    without_cache_marks(&mut normal);
    if let Value::Array(blocks) = &mut normal {
        // Claude Code's first block is a line about billing, with a number that changes.
        blocks.retain(|block| block["text"] != "");
    }
    normal
}

/// Removes cache marks, which move from message to message. Inside a call's input they would be content.
fn without_cache_marks(value: &mut Value) {
    match value {
        Value::Array(blocks) => blocks.iter_mut().for_each(without_cache_marks),
        Value::Object(fields) => without_cache_marks_here(fields),
        _ => {}
    }
}

fn without_cache_marks_here(fields: &mut Map<String, Value>) {
    fields.remove("cache_control");
    if let Some(content @ Value::Array(_)) = fields.get_mut("content") {
        without_cache_marks(content);
    }
}

/// Unifies a single text and a list with a single text: agents switch between the two when they add a cache mark.
fn unify_text(fields: &mut Map<String, Value>, name: &str) {
    let Some(Value::Array(parts)) = fields.get(name) else { return };
    let [Value::Object(part)] = parts.as_slice() else { return };
    let kind = part.get("type").and_then(Value::as_str);
    if let Some(text @ Value::String(_)) = part.get("text")
        && part.len() == 2
        && matches!(kind, Some("text" | "input_text" | "output_text"))
    {
        let text = text.clone();
        fields.insert(name.to_owned(), text);
    }
}

/// Returns a value with all its texts converted by `text`.
pub(super) fn map_texts(value: &Value, text: &mut dyn FnMut(&str) -> String) -> Value {
    match value {
        Value::String(string) => Value::String(text(string)),
        Value::Array(values) => values.iter().map(|value| map_texts(value, text)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), map_texts(value, text)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Number(number) if number.as_u64().is_some_and(super::text_normalizer::is_time) => {
            json!("<time>")
        }
        other => other.clone(),
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
