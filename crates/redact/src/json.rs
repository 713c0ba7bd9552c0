//! Redacts JSON values, where the name of a value is known for certain.

use crate::names::{self, SecretName};
use crate::redact_counting;
use crate::values::{self, ValueNotation};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Removes the secrets from every string in `value`, and returns how many there were.
///
/// The name of a string counts: `{"password": "hunter2"}` is replaced, `{"answer": "hunter2"}` is not.
/// So do a name beside it (`{"name": "DB_PASSWORD", "value": …}`) and a flag before it
/// (`["--password", …]`).
///
/// ```
/// let mut value = serde_json::json!({"user": "me", "password": "hunter2"});
/// assert_eq!(stepback_redact::redact_value(&mut value), 1);
/// assert_eq!(value, serde_json::json!({"user": "me", "password": "[redacted:password]"}));
/// ```
pub fn redact_value(value: &mut Value) -> usize {
    redact_nested(value, None)
}

fn redact_nested(value: &mut Value, name: Option<&SecretName>) -> usize {
    match value {
        Value::String(text) => redact_string(text, name),
        Value::Array(items) => {
            let mut replaced = 0;
            let mut flag = None;
            for item in items {
                let next = item.as_str().and_then(flag_name);
                replaced += redact_nested(item, flag.as_ref().or(name));
                flag = next;
            }
            replaced
        }
        Value::Object(map) => redact_object(map),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

fn flag_name(text: &str) -> Option<SecretName> {
    names::classify_name(text.strip_prefix("--")?.as_bytes())
}

fn redact_object(map: &mut Map<String, Value>) -> usize {
    let sibling = ["name", "key", "Name", "Key"]
        .iter()
        .find_map(|name| map.get(*name)?.as_str())
        .and_then(|name| names::classify_name(name.as_bytes()));
    let mut replaced = 0;
    for (name, value) in map.iter_mut() {
        let own_name = names::classify_name(name.as_bytes());
        let is_value = matches!(name.as_str(), "value" | "Value");
        let own_name = own_name.or(if is_value { sibling } else { None });
        replaced += redact_nested(value, own_name.as_ref());
    }
    // Names are text too, but hardly ever a secret, so the object is rebuilt only if one is.
    if map.keys().any(|name| matches!(redact_counting(name).0, Cow::Owned(_))) {
        *map = std::mem::take(map)
            .into_iter()
            .map(|(name, value)| {
                let (clean, count) = redact_counting(&name);
                replaced += count;
                (clean.into_owned(), value)
            })
            .collect();
    }
    replaced
}

fn redact_string(text: &mut String, name: Option<&SecretName>) -> usize {
    if let Some(name) = name.filter(|name| !is_only_context(name))
        && values::is_secret(name, text.as_bytes(), ValueNotation::QuotedData)
    {
        *text = format!("[redacted:{}]", name.kind);
        return 1;
    }
    if let Some(SecretName { family: names::Family::SetCookie | names::Family::Authorization, .. }) = name {
        return redact_header(text, name.map_or("", |name| name.kind));
    }
    let (clean, replaced) = redact_counting(text);
    if let Cow::Owned(clean) = clean {
        *text = clean;
    }
    replaced
}

fn is_only_context(name: &SecretName) -> bool {
    matches!(name.family, names::Family::SetCookie | names::Family::Authorization)
}

/// Passes a header's value to the text scanner in the form it has in a request.
fn redact_header(text: &mut String, kind: &str) -> usize {
    let name = if kind == "cookie" { "Set-Cookie: " } else { "Authorization: " };
    let line = format!("{name}{text}");
    let (clean, replaced) = redact_counting(&line);
    if replaced > 0 {
        *text = clean.strip_prefix(name).unwrap_or(&clean).to_owned();
    }
    replaced
}
