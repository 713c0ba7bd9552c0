//! Schemas of arguments and results: JSON Schema 2020-12 for clients, and the rules that arguments are checked against.
//!
//! One description serves both, so clients see exactly what is checked. Only the few keywords used here are supported, and
//! each of them is enforced. What a name already says is not described again, because every client reads all of this.

use serde_json::{Map, Value, json};
use stepback_model::clip;

/// A string.
pub fn string(description: &str) -> Value {
    with_description(json!({ "type": "string" }), description)
}

/// Adds a description, unless it is empty.
fn with_description(mut schema: Value, description: &str) -> Value {
    if !description.is_empty() {
        schema["description"] = json!(description);
    }
    schema
}

/// One of a few strings.
pub fn string_enum(description: &str, words: &[&str]) -> Value {
    with_description(json!({ "type": "string", "enum": words }), description)
}

/// A number in an inclusive range.
pub fn bounded_number(description: &str, least: f64, most: f64) -> Value {
    with_description(json!({ "type": "number", "minimum": least, "maximum": most }), description)
}

/// A number without bounds.
pub fn any_number(description: &str) -> Value {
    with_description(json!({ "type": "number" }), description)
}

/// An integer in an inclusive range.
pub fn bounded_integer(description: &str, least: u64, most: u64) -> Value {
    with_description(json!({ "type": "integer", "minimum": least, "maximum": most }), description)
}

/// An integer without bounds.
pub fn integer(description: &str) -> Value {
    with_description(json!({ "type": "integer" }), description)
}

/// A number, perhaps with a fraction.
pub fn number(description: &str) -> Value {
    with_description(json!({ "type": "number" }), description)
}

/// A boolean.
pub fn boolean(description: &str) -> Value {
    with_description(json!({ "type": "boolean" }), description)
}

/// A list of strings.
pub fn string_array(description: &str) -> Value {
    array(description, json!({ "type": "string" }))
}

/// A list of `of`.
pub fn array(description: &str, items: Value) -> Value {
    with_description(json!({ "type": "array", "items": items }), description)
}

/// An object with no members besides these.
pub fn object(members: &[(&str, Value)], required: &[&str]) -> Value {
    let properties: Map<String, Value> =
        members.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// An object that may have other members too.
pub fn open_object(members: &[(&str, Value)], required: &[&str]) -> Value {
    let mut schema = object(members, required);
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("additionalProperties");
    }
    schema
}

/// Any value.
pub fn any_value(description: &str) -> Value {
    with_description(json!({}), description)
}

/// Why a value does not match a schema, as text; `None` if it matches.
pub fn find_mismatch(schema: &Value, value: &Value) -> Option<String> {
    mismatch_at("", schema, value)
}

fn mismatch_at(path: &str, schema: &Value, value: &Value) -> Option<String> {
    let name = if path.is_empty() { "the arguments" } else { path };
    let kind = schema.get("type").and_then(Value::as_str);
    let fits = match kind {
        Some("string") => value.is_string(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    };
    if !fits {
        return Some(format!(
            "{name} must be {}, not {}",
            type_phrase(kind.unwrap_or_default()),
            short_value(value)
        ));
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array)
        && !words.contains(value)
    {
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        return Some(format!("{name} must be one of {}, not {}", words.join(", "), short_value(value)));
    }
    if let Some(number) = value.as_f64() {
        let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
        let is_too_small = bound("minimum").is_some_and(|minimum| number < minimum);
        let is_too_large = bound("maximum").is_some_and(|maximum| number > maximum);
        if is_too_small || is_too_large {
            let bounds = ["minimum", "maximum"].map(|keyword| schema[keyword].to_string());
            return Some(format!("{name} must be from {} to {}, not {value}", bounds[0], bounds[1]));
        }
    }
    match value {
        Value::Array(items) => {
            let item_schema = schema.get("items")?;
            items
                .iter()
                .enumerate()
                .find_map(|(index, item)| mismatch_at(&format!("{name}[{index}]"), item_schema, item))
        }
        Value::Object(members) => member_mismatch(path, schema, members),
        _ => None,
    }
}

fn member_mismatch(path: &str, schema: &Value, members: &Map<String, Value>) -> Option<String> {
    let member_path =
        |member: &str| if path.is_empty() { member.to_owned() } else { format!("{path}.{member}") };
    let properties = schema.get("properties").and_then(Value::as_object);
    for required in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
        let required = required.as_str().unwrap_or_default();
        if !members.contains_key(required) {
            return Some(format!("{} is missing", member_path(required)));
        }
    }
    for (member, value) in members {
        match properties.and_then(|properties| properties.get(member)) {
            Some(schema) => {
                if let Some(mismatch) = mismatch_at(&member_path(member), schema, value) {
                    return Some(mismatch);
                }
            }
            None if schema.get("additionalProperties") == Some(&Value::Bool(false)) => {
                let member: String = member.chars().take(60).collect();
                let properties: Vec<&String> = properties.into_iter().flat_map(Map::keys).collect();
                let properties = properties.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
                return Some(format!("unknown field {}; known are {properties}", member_path(&member)));
            }
            None => {}
        }
    }
    None
}

fn type_phrase(kind: &str) -> &'static str {
    match kind {
        "string" => "a text",
        "number" => "a number",
        "integer" => "a whole number",
        "boolean" => "true or false",
        "array" => "a list",
        _ => "an object",
    }
}

/// A value for an error message, cut short because it may be megabytes long.
fn short_value(value: &Value) -> String {
    let text = match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        other => other.to_string(),
    };
    clip::first(&text, 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_named() {
        let schema = object(
            &[
                ("name", string("")),
                ("sure", bounded_number("", 0.0, 1.0)),
                ("how", string_enum("", &["a", "b"])),
                ("many", bounded_integer("", 1, 5)),
                ("tags", string_array("")),
                ("act", array("", object(&[("gap", string(""))], &["gap"]))),
            ],
            &["name"],
        );
        let why = |value: Value| find_mismatch(&schema, &value);
        assert_eq!(why(json!({ "name": "x", "sure": 1, "how": "a", "tags": ["t"] })), None);
        let cases = [
            (json!([]), "the arguments must be an object, not a list"),
            (json!({}), "name is missing"),
            (json!({ "name": 1 }), "name must be a text, not 1"),
            (json!({ "name": null }), "name must be a text, not null"),
            (json!({ "name": "x", "sure": "NaN" }), "sure must be a number, not \"NaN\""),
            (json!({ "name": "x", "sure": 1.5 }), "sure must be from 0.0 to 1.0, not 1.5"),
            (json!({ "name": "x", "how": "c" }), "how must be one of a, b, not \"c\""),
            (json!({ "name": "x", "many": 1.5 }), "many must be a whole number, not 1.5"),
            (json!({ "name": "x", "tags": ["t", 2] }), "tags[1] must be a text, not 2"),
            (json!({ "name": "x", "act": [{}] }), "act[0].gap is missing"),
            (
                json!({ "name": "x", "odd": 1 }),
                "unknown field odd; known are act, how, many, name, sure, tags",
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(why(value).as_deref(), Some(expected));
        }
        let long = why(json!({ "name": "x", "sure": "y".repeat(1 << 20) })).unwrap();
        assert!(long.len() < 200, "{}", long.len());
    }
}
