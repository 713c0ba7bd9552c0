//! JSON values that stepback writes, with a fixed member order.

use super::parse::{NodeKind, SpannedNode};

/// A value to insert into a document. Objects keep the order of their members, which `serde_json` would not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// An object.
    Object(Vec<(&'static str, Self)>),
    /// An array.
    Array(Vec<Self>),
    /// A string.
    Text(String),
    /// A whole number.
    Number(u64),
}

/// Returns `text` in double quotes, escaped as JSON.
pub(super) fn quote_json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl Value {
    /// Formats the value on one line.
    pub(super) fn to_compact_string(&self, spaced: bool) -> String {
        let space = if spaced { " " } else { "" };
        let separator = format!(",{space}");
        match self {
            Self::Object(members) => {
                let members: Vec<_> = members
                    .iter()
                    .map(|(name, value)| {
                        format!("{}:{space}{}", quote_json(name), value.to_compact_string(spaced))
                    })
                    .collect();
                format!("{{{}}}", members.join(&separator))
            }
            Self::Array(elements) => {
                let elements: Vec<_> = elements.iter().map(|value| value.to_compact_string(spaced)).collect();
                format!("[{}]", elements.join(&separator))
            }
            Self::Text(text) => quote_json(text),
            Self::Number(number) => number.to_string(),
        }
    }

    /// Formats the value on several lines, as the agents format their settings. `indent` is that of the line it begins on.
    pub(super) fn to_pretty_string(&self, newline: &str, unit: &str, indent: &str) -> String {
        let deeper = format!("{indent}{unit}");
        let entries: Vec<_> = match self {
            Self::Object(members) => members
                .iter()
                .map(|(name, value)| {
                    format!("{}: {}", quote_json(name), value.to_pretty_string(newline, unit, &deeper))
                })
                .collect(),
            Self::Array(elements) => {
                elements.iter().map(|value| value.to_pretty_string(newline, unit, &deeper)).collect()
            }
            Self::Text(_) | Self::Number(_) => return self.to_compact_string(true),
        };
        let (open, close) = if matches!(self, Self::Object(_)) { ('{', '}') } else { ('[', ']') };
        if entries.is_empty() {
            return format!("{open}{close}");
        }
        let body = entries.join(&format!(",{newline}{deeper}"));
        format!("{open}{newline}{deeper}{body}{newline}{indent}{close}")
    }

    /// Whether `node` has the same content, in any order and spacing.
    pub(super) fn matches_node(&self, node: &SpannedNode) -> bool {
        match (self, &node.kind) {
            (Self::Object(members), NodeKind::Object(found)) => {
                members.len() == found.len()
                    && members
                        .iter()
                        .all(|(name, value)| node.member(name).is_some_and(|node| value.matches_node(node)))
            }
            (Self::Array(elements), NodeKind::Array(found)) => {
                elements.len() == found.len()
                    && elements.iter().zip(found).all(|(value, node)| value.matches_node(node))
            }
            (Self::Text(text), NodeKind::Text(found)) => text == found,
            (Self::Number(number), NodeKind::Plain(found)) => *found == number.to_string(),
            _ => false,
        }
    }
}
