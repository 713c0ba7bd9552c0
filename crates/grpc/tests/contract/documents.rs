//! Which messages the services need, according to the OpenAPI description of the HTTP API.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::proto_files::RpcOperation;

/// A message as the HTTP API has it.
pub struct ExpectedMessage {
    pub name: String,
    pub comment: String,
    pub fields: Vec<ExpectedField>,
    /// Where it is added if it is missing; `None` for the file of the documents.
    pub file: Option<PathBuf>,
}

/// A field of a message. `kind` is everything before the name: `optional string`, `repeated Step`.
#[derive(PartialEq, Debug)]
pub struct ExpectedField {
    pub name: String,
    pub kind: String,
    pub comment: String,
}

/// All messages that the operations need.
pub struct ExpectedMessages {
    pub messages: Vec<ExpectedMessage>,
}

/// Goes through the schemas and collects messages.
struct SchemaWalk<'a> {
    schemas: &'a Value,
    seen: BTreeSet<String>,
    messages: Vec<ExpectedMessage>,
}

impl ExpectedMessages {
    pub fn collect(openapi: &Value, rpcs: &[RpcOperation]) -> Self {
        let schemas = &openapi["components"]["schemas"];
        let mut walk = SchemaWalk { schemas, seen: BTreeSet::new(), messages: Vec::new() };
        for rpc in rpcs {
            let (path, query) = rpc.path.split_once('?').unwrap_or((&rpc.path, ""));
            let operation = &openapi["paths"][path][rpc.method.to_lowercase()];
            assert!(operation.is_object(), "{}: there is no {} {}", rpc.name, rpc.method, rpc.path);
            // What has a body must say which fields go into the query.
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let queries = parameters.filter(|parameter| rpc.method != "GET" && parameter["in"] == "query");
            let named: Vec<&str> = query.split('&').filter(|name| !name.is_empty()).collect();
            let expected: Vec<_> = queries.filter_map(|parameter| parameter["name"].as_str()).collect();
            assert_eq!(named, expected, "the query of {}", rpc.name);
            walk.add_request(rpc, operation);
            walk.check_response(rpc, operation);
        }
        walk.add_document("StepEventDocument");
        walk.add_document("Page_StopDocument");
        Self { messages: walk.messages }
    }
}

impl SchemaWalk<'_> {
    /// The request of an operation: what its path, its query and its body take.
    fn add_request(&mut self, rpc: &RpcOperation, operation: &Value) {
        let mut fields = Vec::new();
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            if parameter["in"] == "header" {
                continue;
            }
            let name = parameter["name"].as_str().unwrap();
            let is_required = parameter["required"] == true;
            let mut field = self.field(name, &parameter["schema"], is_required);
            field.comment = text(&parameter["description"]);
            fields.push(field);
        }
        let body = &operation["requestBody"]["content"]["application/json"]["schema"];
        let body = self.resolve(without_null(body).0);
        for (name, schema, is_required) in self.properties(&body) {
            fields.push(self.field(&name, &schema, is_required));
        }
        let comment = format!("What {} takes.", rpc.name);
        let file = Some(rpc.file.clone());
        self.messages.push(ExpectedMessage { name: rpc.request.clone(), comment, fields, file });
    }

    /// The answer of an operation is the message that its document is.
    fn check_response(&mut self, rpc: &RpcOperation, operation: &Value) {
        let responses = operation["responses"].as_object().unwrap();
        let (_, success) = responses.iter().find(|(status, _)| status.starts_with('2')).unwrap();
        let content = success["content"].as_object().cloned().unwrap_or_default();
        let expected = match content.get("application/json") {
            _ if content.contains_key("text/event-stream") => "Event".to_owned(),
            // A file, which may be JSON in some formats.
            _ if content.contains_key("application/octet-stream") => "Chunk".to_owned(),
            None if content.is_empty() => "Empty".to_owned(),
            None => "Chunk".to_owned(),
            Some(json) => match json["schema"]["$ref"].as_str() {
                Some(reference) => self.add_document(reference.rsplit('/').next().unwrap()),
                None => "JsonDocument".to_owned(),
            },
        };
        assert_eq!(rpc.response, expected, "the answer of {}", rpc.name);
        assert_eq!(rpc.is_stream, matches!(expected.as_str(), "Event" | "Chunk"), "{}", rpc.name);
    }

    /// Adds a document and all that it contains; returns the name of its message.
    fn add_document(&mut self, schema_name: &str) -> String {
        let base = schema_name.trim_end_matches("Document");
        let (name, item) = match base.strip_prefix("Page_") {
            Some(item) => (format!("{item}Page"), Some(format!("{item}Document"))),
            None => (base.to_owned(), None),
        };
        if !self.seen.insert(name.clone()) {
            return name;
        }
        let schema = self.schemas[schema_name].clone();
        assert!(schema.is_object(), "there is no schema {schema_name}");
        let mut comment = text(&schema["description"]);
        let mut fields = Vec::new();
        for (field, schema, is_required) in self.properties(&schema) {
            // The items of a page are described in place, and are the document that the page is named after.
            fields.push(match &item {
                Some(item) if field == "items" => {
                    let kind = format!("repeated {}", self.add_document(item));
                    ExpectedField { name: field, kind, comment: text(&schema["description"]) }
                }
                _ => self.field(&field, &schema, is_required),
            });
        }
        if comment.is_empty() {
            comment = format!("A {name}.");
        }
        self.messages.push(ExpectedMessage { name: name.clone(), comment, fields, file: None });
        name
    }

    fn resolve(&self, schema: &Value) -> Value {
        match schema["$ref"].as_str() {
            Some(reference) => self.schemas[reference.rsplit('/').next().unwrap()].clone(),
            None => schema.clone(),
        }
    }

    /// The properties of an object, of all parts of a combination, and of all alternatives, with whether each is required.
    fn properties(&self, schema: &Value) -> Vec<(String, Value, bool)> {
        let schema = self.resolve(schema);
        let mut all: Vec<(String, Value, bool)> = Vec::new();
        let mut add = |name: String, schema: Value, is_required: bool| match all
            .iter_mut()
            .find(|(known, _, _)| *known == name)
        {
            Some(known) => known.2 &= is_required,
            None => all.push((name, schema, is_required)),
        };
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.properties(part)
                .into_iter()
                .for_each(|(name, schema, required)| add(name, schema, required));
        }
        let alternatives = schema["oneOf"].as_array().cloned().unwrap_or_default();
        let each: Vec<_> = alternatives.iter().map(|part| self.properties(part)).collect();
        for (name, schema, is_required) in each.iter().flatten() {
            let is_everywhere = each.iter().all(|part| part.iter().any(|(other, _, _)| other == name));
            add(name.clone(), schema.clone(), *is_required && is_everywhere);
        }
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, property) in schema["properties"].as_object().unwrap_or(&Map::new()) {
            add(name.clone(), property.clone(), required.contains(&name.as_str()));
        }
        all
    }

    fn field(&mut self, name: &str, schema: &Value, is_required: bool) -> ExpectedField {
        let comment = text(&schema["description"]);
        let (schema, can_be_null) = without_null(schema);
        let optional = if is_required && !can_be_null { "" } else { "optional " };
        let (kind, name) = match self.kind(schema) {
            Some(FieldKind::Single(kind)) => (format!("{optional}{kind}"), name.to_owned()),
            // A list that can be null is absent then, not empty.
            Some(FieldKind::List(_)) if can_be_null => ("optional TextList".to_owned(), name.to_owned()),
            Some(FieldKind::List(kind)) => (format!("repeated {kind}"), name.to_owned()),
            Some(FieldKind::Table(kind)) => (format!("map<string, {kind}>"), name.to_owned()),
            None => (format!("{optional}string"), format!("{name}_json")),
        };
        ExpectedField { name, kind, comment }
    }

    /// The type of a field; `None` for a value of any shape.
    fn kind(&mut self, schema: &Value) -> Option<FieldKind> {
        if let Some(reference) = schema["$ref"].as_str() {
            let name = reference.rsplit('/').next().unwrap();
            let target = self.schemas[name].clone();
            return match target["type"].as_str() {
                Some("string") => Some(FieldKind::Single("string".into())),
                _ if self.properties(&target).is_empty() || target["oneOf"].is_array() => None,
                _ => Some(FieldKind::Single(self.add_document(name))),
            };
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null"),
            kind => Some(kind),
        };
        let single = |kind: &str| Some(FieldKind::Single(kind.to_owned()));
        match kind.and_then(Value::as_str)? {
            "string" => single("string"),
            "boolean" => single("bool"),
            "number" => single("double"),
            "integer" => match schema["format"].as_str() {
                Some("u-int8" | "u-int16" | "u-int32") => single("uint32"),
                Some("int32" | "int64") => single("int64"),
                _ => single("uint64"),
            },
            "array" => {
                // A message has no lists of lists, and no gaps in a list.
                let (items, can_be_null) = without_null(&schema["items"]);
                match self.kind(items)? {
                    FieldKind::Single(kind) if !can_be_null => Some(FieldKind::List(kind)),
                    _ => None,
                }
            }
            "object" => match self.kind(&schema["additionalProperties"])? {
                FieldKind::Single(kind) => Some(FieldKind::Table(kind)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// What a field holds.
enum FieldKind {
    Single(String),
    List(String),
    Table(String),
}

/// A schema without the alternative `null`, and whether it had one.
fn without_null(schema: &Value) -> (&Value, bool) {
    let null = |schema: &&Value| schema["type"] == "null";
    if let Some(alternatives) = schema["oneOf"].as_array()
        && alternatives.iter().any(|schema| null(&schema))
        && alternatives.len() == 2
    {
        let other = alternatives.iter().find(|schema| !null(schema)).unwrap();
        return (other, true);
    }
    let can_be_null = schema["type"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "null"));
    (schema, can_be_null)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().trim().to_owned()
}
