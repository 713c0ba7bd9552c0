//! Attributes: names with values of any type, and accessors that accept several types.
//!
//! A convention *takes* the attributes it understands. What is left in the end is kept beside the step unchanged, so that
//! nothing a service sends is lost because it is not understood yet, and nothing is kept twice.

use serde_json::{Map, Value};

/// The most attributes of one span or record that are kept. An SDK keeps 128 by default; a long conversation in
/// OpenInference's flattened form has thousands.
pub const MOST: usize = 16_384;

/// The most bytes of one text that are kept.
pub const LONGEST: usize = 1 << 20;

/// The maximum depth of a flattened name.
const DEEPEST: usize = 16;

/// Names with values.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Attributes {
    map: Map<String, Value>,
    /// How many attributes exceeded the limit.
    over_limit: u64,
}

impl Attributes {
    /// Adds an attribute; an existing name gets the new value.
    pub fn put(&mut self, name: String, value: Value) {
        if !self.pass() {
            self.map.insert(name, clipped(value));
        }
    }

    /// Whether the limit is reached; if so, the attribute is counted as dropped.
    pub fn pass(&mut self) -> bool {
        let is_full = self.map.len() >= MOST;
        self.over_limit += u64::from(is_full);
        is_full
    }

    /// Returns how many attributes exceeded the limit.
    pub fn over(&self) -> u64 {
        self.over_limit
    }

    /// Returns the value of a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.map.get(name)
    }

    /// Returns the first of these that is a non-empty text; a number counts as its digits.
    pub fn text(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| as_text(self.map.get(*name)?))
    }

    /// Whether any name begins with `prefix`.
    pub fn has_prefix(&self, prefix: &str) -> bool {
        self.map.keys().any(|name| name.starts_with(prefix))
    }

    /// Takes the first of these that exists.
    pub fn take(&mut self, names: &[&str]) -> Option<Value> {
        names.iter().find_map(|name| self.map.remove(*name))
    }

    /// Takes the first of these that is a non-empty text.
    pub fn take_text(&mut self, names: &[&str]) -> Option<String> {
        let name =
            names.iter().find(|name| self.map.get(**name).is_some_and(|value| as_text(value).is_some()))?;
        as_text(&self.map.remove(*name)?)
    }

    /// Takes the first of these that is an integer, or a text with one.
    pub fn take_count(&mut self, names: &[&str]) -> Option<u64> {
        let name =
            names.iter().find(|name| self.map.get(**name).is_some_and(|value| as_count(value).is_some()))?;
        as_count(&self.map.remove(*name)?)
    }

    /// Takes the first of these that is a number, or a text with one.
    pub fn take_number(&mut self, names: &[&str]) -> Option<f64> {
        let name =
            names.iter().find(|name| self.map.get(**name).is_some_and(|value| as_number(value).is_some()))?;
        as_number(&self.map.remove(*name)?)
    }

    /// Takes the first of these that exists. A text that holds a JSON document is parsed.
    pub fn take_document(&mut self, names: &[&str]) -> Option<Value> {
        self.take(names).map(document)
    }

    /// Takes a text, or all texts of a list.
    pub fn take_texts(&mut self, names: &[&str]) -> Vec<String> {
        match self.take(names) {
            Some(Value::Array(items)) => items.iter().filter_map(as_text).collect(),
            Some(other) => as_text(&other).into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// Takes everything whose name begins with `prefix`, as one value: `a.0.b` and `a.1.b` become a list of objects.
    pub fn take_flattened(&mut self, prefix: &str) -> Option<Value> {
        let names: Vec<String> = (self.map.keys())
            .filter(|name| name.strip_prefix(prefix).is_some_and(|rest| rest.split('.').count() <= DEEPEST))
            .cloned()
            .collect();
        let mut tree = Value::Object(Map::new());
        for name in names {
            if let Some(value) = self.map.remove(&name) {
                insert_at_path(&mut tree, name[prefix.len()..].split('.'), value);
            }
        }
        let tree = objects_to_lists(tree);
        (!is_empty(&tree)).then_some(tree)
    }

    /// Puts back a value that was taken and must not be lost.
    pub fn put_back(&mut self, name: &str, value: Value) {
        self.map.insert(name.to_owned(), value);
    }

    /// Returns the attributes that were not taken.
    pub fn rest(self) -> Option<Value> {
        (!self.map.is_empty()).then_some(Value::Object(self.map))
    }
}

impl FromIterator<(String, Value)> for Attributes {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(pairs: I) -> Self {
        let mut attributes = Self::default();
        pairs.into_iter().for_each(|(name, value)| attributes.put(name, value));
        attributes
    }
}

fn insert_at_path<'a>(target: &mut Value, mut path: impl Iterator<Item = &'a str>, value: Value) {
    let Some(first) = path.next() else {
        *target = value;
        return;
    };
    if !target.is_object() {
        // Both `a` and `a.b` exist: the value of `a` is kept beside.
        let scalar = std::mem::replace(target, Value::Object(Map::new()));
        if let (Value::Object(fields), false) = (&mut *target, scalar.is_null()) {
            fields.insert(String::new(), scalar);
        }
    }
    if let Value::Object(fields) = target {
        insert_at_path(fields.entry(first).or_insert(Value::Null), path, value);
    }
}

/// Turns objects whose names are all numbers into lists in that order.
fn objects_to_lists(value: Value) -> Value {
    let Value::Object(fields) = value else { return value };
    let fields = fields.into_iter().map(|(name, value)| (name, objects_to_lists(value)));
    let (names, values): (Vec<String>, Vec<Value>) = fields.unzip();
    let numbers: Option<Vec<u64>> = names.iter().map(|name| name.parse().ok()).collect();
    match numbers.filter(|numbers| !numbers.is_empty()) {
        Some(numbers) => {
            let mut items: Vec<(u64, Value)> = numbers.into_iter().zip(values).collect();
            items.sort_by_key(|(number, _)| *number);
            items.into_iter().map(|(_, value)| value).collect()
        }
        None => Value::Object(names.into_iter().zip(values).collect()),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Parses a text that holds a JSON document.
pub fn document(value: Value) -> Value {
    match &value {
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => {
            serde_json::from_str(text).unwrap_or(value)
        }
        _ => value,
    }
}

/// Returns a non-empty text, or the digits of a number.
pub fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn as_count(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| {
            // Some languages have no integers.
            let number = number.as_f64()?;
            (number >= 0.0 && number.fract() == 0.0 && number < 1e15).then_some(number as u64)
        }),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn as_number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite())
}

/// Returns a value with long texts truncated, with a visible mark.
pub fn clipped(value: Value) -> Value {
    match value {
        Value::String(text) if text.len() > LONGEST => Value::String(clip_text(&text)),
        Value::Array(items) => items.into_iter().map(clipped).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, clipped(value))).collect(),
        other => other,
    }
}

fn clip_text(text: &str) -> String {
    let head = text.floor_char_boundary(LONGEST * 3 / 4);
    let tail = text.ceil_char_boundary(text.len() - LONGEST / 8);
    format!("{}\n[… {} bytes left out …]\n{}", &text[..head], tail - head, &text[tail..])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(pairs: &[(&str, Value)]) -> Attributes {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    #[test]
    fn flattened_lists_come_back_in_their_order() {
        let mut attributes = of(&[
            ("m.10.text", json!("eleventh")),
            ("m.2.text", json!("third")),
            ("m.2.parts.0.kind", json!("a")),
            ("other", json!(1)),
        ]);
        let messages = attributes.take_flattened("m.").unwrap();
        assert_eq!(
            messages,
            json!([{ "text": "third", "parts": [{ "kind": "a" }] }, { "text": "eleventh" }])
        );
        assert_eq!(attributes.take_flattened("m."), None);
        assert_eq!(attributes.rest(), Some(json!({ "other": 1 })));
    }

    #[test]
    fn names_that_contradict_each_other_lose_nothing() {
        let mut attributes = of(&[("m.0", json!("whole")), ("m.0.text", json!("part"))]);
        assert_eq!(attributes.take_flattened("m."), Some(json!([{ "": "whole", "text": "part" }])));
    }

    #[test]
    fn a_name_of_dots_does_not_nest_without_end() {
        let name = format!("m.{}", "0.".repeat(10_000));
        let mut attributes = of(&[(&name, json!(1)), ("m.0", json!(2))]);
        assert_eq!(attributes.take_flattened("m."), Some(json!([2])));
        assert!(attributes.rest().is_some());
    }

    #[test]
    fn numbers_are_taken_from_whatever_they_came_as() {
        let mut attributes = of(&[
            ("a", json!("42")),
            ("b", json!(42.0)),
            ("c", json!(-1)),
            ("d", json!([1])),
            ("e", json!("x")),
        ]);
        assert_eq!(attributes.take_count(&["e", "a"]), Some(42));
        assert_eq!(attributes.take_count(&["b"]), Some(42));
        assert_eq!(attributes.take_count(&["c", "d", "e"]), None);
        assert_eq!(attributes.rest(), Some(json!({ "c": -1, "d": [1], "e": "x" })));
    }

    #[test]
    fn what_is_too_much_is_counted_and_what_is_too_long_is_cut_visibly() {
        let many = (0..MOST + 5).map(|index| (format!("a{index}"), json!(index)));
        let attributes: Attributes = many.collect();
        assert_eq!(attributes.over(), 5);
        let long = "é".repeat(LONGEST);
        let Value::String(cut) = clipped(json!(long)) else { panic!("a text") };
        assert!(cut.len() < LONGEST && cut.contains("bytes left out"));
    }
}
