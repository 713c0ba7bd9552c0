//! Checks a value against a JSON schema: as much of draft 7 as speedscope's schema uses. An unknown keyword is an error.
//!
//! `speedscope-schema.json` is from the package `speedscope` 1.25.0 (MIT licence).

use serde_json::Value;

/// Returns where the value does not match, if anywhere.
pub fn mismatch(root: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    let rules = schema.as_object()?;
    for (keyword, rule) in rules {
        let wrong = match keyword.as_str() {
            "$schema" | "definitions" | "title" | "description" => None,
            "$ref" => {
                let target =
                    root.pointer(rule.as_str()?.trim_start_matches('#')).expect("a reference to nothing");
                mismatch(root, target, value, at)
            }
            "type" => (!has_type(rule.as_str()?, value)).then(|| format!("{at}: not of type {rule}")),
            "const" => (rule != value).then(|| format!("{at}: not {rule}")),
            "enum" => (!rule.as_array()?.contains(value)).then(|| format!("{at}: not one of {rule}")),
            "required" => rule.as_array()?.iter().find_map(|name| {
                let missing = value.is_object() && value.get(name.as_str()?).is_none();
                missing.then(|| format!("{at}: {name} is missing"))
            }),
            "properties" => rule
                .as_object()?
                .iter()
                .find_map(|(name, inner)| mismatch(root, inner, value.get(name)?, &format!("{at}/{name}"))),
            "items" => value
                .as_array()
                .into_iter()
                .flatten()
                .enumerate()
                .find_map(|(index, item)| mismatch(root, rule, item, &format!("{at}/{index}"))),
            "anyOf" => {
                let wrong: Vec<String> =
                    rule.as_array()?.iter().map_while(|one| mismatch(root, one, value, at)).collect();
                (wrong.len() == rule.as_array()?.len()).then(|| wrong.join(", or "))
            }
            other => panic!("the schema uses {other}, which this check does not know"),
        };
        if wrong.is_some() {
            return wrong;
        }
    }
    None
}

fn has_type(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("the schema has type {other}, which this check does not know"),
    }
}

#[test]
fn the_check_finds_what_is_wrong() {
    let schema: Value = serde_json::from_str(include_str!("speedscope-schema.json")).unwrap();
    let check = |value: &Value| mismatch(&schema, &schema, value, "");
    assert!(check(&serde_json::json!({})).is_some(), "everything is missing");
    let mut file = serde_json::json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json", "shared": { "frames": [{ "name": "a" }] },
        "profiles": [{
            "type": "evented", "name": "x", "unit": "microseconds", "startValue": 0, "endValue": 5,
            "events": [{ "type": "O", "frame": 0, "at": 1 }],
        }],
    });
    assert_eq!(check(&file), None);
    file["profiles"][0]["unit"] = serde_json::json!("hours");
    assert!(check(&file).is_some());
    file["profiles"][0]["unit"] = serde_json::json!("seconds");
    file["profiles"][0]["events"][0]["at"] = serde_json::json!("1");
    assert!(check(&file).is_some());
}
