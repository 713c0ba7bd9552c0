//! Refuses query parameters and body fields that no operation reads: a misspelt one would otherwise be silently ignored.
//!
//! What an operation reads is taken from the OpenAPI description, so there is one list and not two. Queries are checked
//! before the handler runs, bodies where they are read. Events that agents report (ingest, OTLP) are parsed elsewhere and not
//! checked here.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{MatchedPath, Query, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use stepback_model::escape::excerpt;
use stepback_model::nearest::nearest_word;
use utoipa::openapi::OpenApi;

use crate::problem::Problem;

/// Most bytes of a body sent to an operation that takes none.
const MAX_UNREAD_BODY_BYTES: usize = 64 << 10;
/// How deep a body is checked. No operation reads deeper ones.
const MAX_CHECKED_DEPTH: usize = 16;

/// The names that each operation accepts.
#[derive(Debug)]
pub struct KnownNames {
    /// By method and path, as the router has it.
    operations: HashMap<(String, String), Arc<OperationNames>>,
}

/// The names that one operation accepts.
#[derive(Debug)]
struct OperationNames {
    query: Vec<String>,
    body: Option<BodySchema>,
    /// Whether it reads a body, in any format.
    takes_body: bool,
}

/// The fields that the body of a request may have.
#[derive(Clone, Debug)]
pub struct BodySchema {
    schema: Value,
    /// The whole OpenAPI description, which schemas refer to.
    document: Arc<Value>,
}

impl KnownNames {
    /// Collects the names from an OpenAPI description.
    pub fn from_openapi(description: &OpenApi) -> Self {
        let document = Arc::new(serde_json::to_value(description).unwrap_or_default());
        let mut operations = HashMap::new();
        for (path, item) in object_entries(&document["paths"]) {
            for (method, operation) in object_entries(item) {
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                let in_query = parameters.filter(|parameter| parameter["in"] == "query");
                let query = in_query.filter_map(|parameter| Some(parameter["name"].as_str()?.to_owned()));
                let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
                let body = BodySchema { schema: schema.clone(), document: document.clone() };
                let names = OperationNames {
                    query: query.collect(),
                    body: (!schema.is_null()).then_some(body),
                    takes_body: !operation["requestBody"].is_null(),
                };
                operations.insert((method.to_uppercase(), path.clone()), Arc::new(names));
            }
        }
        Self { operations }
    }
}

/// Checks the query of a request, and attaches the schema of its body for the extractor.
pub async fn reject_unknown_names(
    State(known): State<Arc<KnownNames>>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let method = match *request.method() {
        Method::HEAD => Method::GET,
        ref method => method.clone(),
    };
    let names = path.and_then(|path| known.operations.get(&(method.to_string(), path)));
    if let Some(names) = names {
        // A malformed query is refused by the handler that reads it.
        let asked = Query::<Vec<(String, String)>>::try_from_uri(request.uri());
        let asked = asked.map(|Query(asked)| asked).unwrap_or_default();
        if let Some((name, _)) = asked.iter().find(|(name, _)| !names.query.contains(name)) {
            let known = names.query.iter().map(String::as_str).collect::<Vec<_>>();
            return unknown_name_problem("query parameter", name, &known).into_response();
        }
        if let Some(body) = &names.body {
            request.extensions_mut().insert(body.clone());
        }
        if !names.takes_body && method != Method::GET {
            request = match reject_body_fields(request).await {
                Ok(request) => request,
                Err(problem) => return problem.into_response(),
            };
        }
    }
    next.run(request).await
}

/// Refuses a body with fields for an operation that reads no body.
async fn reject_body_fields(request: Request) -> Result<Request, Problem> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, MAX_UNREAD_BODY_BYTES).await;
    let body = body.map_err(|_| Problem::usage("this request must not have a body"))?;
    if let Ok(Value::Object(given)) = serde_json::from_slice(&body)
        && let Some(name) = given.keys().next()
    {
        return Err(unknown_name_problem("field", name, &[]));
    }
    Ok(Request::from_parts(parts, body.into()))
}

impl BodySchema {
    /// The schema of a component of the description.
    pub fn from_component(description: &OpenApi, name: &str) -> Self {
        let document = Arc::new(serde_json::to_value(description).unwrap_or_default());
        Self { schema: document["components"]["schemas"][name].clone(), document }
    }

    /// Refuses a body with a field that no operation reads.
    pub fn check(&self, body: &Value) -> Result<(), Problem> {
        self.find_unknown_field(&self.schema, body, MAX_CHECKED_DEPTH).map_or(Ok(()), Err)
    }

    fn find_unknown_field(&self, schema: &Value, value: &Value, depth: usize) -> Option<Problem> {
        let depth = depth.checked_sub(1)?;
        match value {
            Value::Object(given) => {
                let mut known = AcceptedFields::default();
                self.collect_fields(schema, value, &mut known, MAX_CHECKED_DEPTH);
                for (name, value) in given {
                    match known.fields.get(name.as_str()) {
                        Some(schema) => {
                            if let Some(problem) = self.find_unknown_field(schema, value, depth) {
                                return Some(problem);
                            }
                        }
                        None if known.allows_other_fields || known.fields.is_empty() => {}
                        None => {
                            let names = known.fields.keys().copied().collect::<Vec<_>>();
                            return Some(unknown_name_problem("field", name, &names));
                        }
                    }
                }
                None
            }
            Value::Array(items) => {
                let of = self.resolve_reference(schema).get("items")?;
                items.iter().find_map(|item| self.find_unknown_field(of, item, depth))
            }
            _ => None,
        }
    }

    /// Collects the fields that a schema accepts for an object like this one.
    fn collect_fields<'a>(
        &'a self,
        schema: &'a Value,
        value: &Value,
        names: &mut AcceptedFields<'a>,
        depth: usize,
    ) {
        let Some(depth) = depth.checked_sub(1) else { return };
        let schema = self.resolve_reference(schema);
        names.allows_other_fields |=
            schema.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false));
        names
            .fields
            .extend(object_entries(&schema["properties"]).map(|(name, schema)| (name.as_str(), schema)));
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.collect_fields(part, value, names, depth);
        }
        let choices = ["oneOf", "anyOf"].into_iter().filter_map(|word| schema[word].as_array()).flatten();
        for choice in choices.filter(|choice| self.can_apply(choice, value, depth)) {
            self.collect_fields(choice, value, names, depth);
        }
    }

    /// Whether one of several schemas can apply to this object: it has every constant that the schema fixes.
    fn can_apply(&self, schema: &Value, value: &Value, depth: usize) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return true };
        let schema = self.resolve_reference(schema);
        let own = object_entries(&schema["properties"]).all(|(name, field)| {
            let words = self.resolve_reference(field)["enum"].as_array();
            words.is_none_or(|words| value.get(name).is_none_or(|given| words.contains(given)))
        });
        let parts = schema["allOf"].as_array().into_iter().flatten();
        own && parts.into_iter().all(|part| self.can_apply(part, value, depth))
    }

    fn resolve_reference<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let place = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        place.and_then(|place| self.document.pointer(place)).unwrap_or(schema)
    }
}

/// Names of accepted fields, and whether others are accepted too.
#[derive(Default)]
struct AcceptedFields<'a> {
    fields: BTreeMap<&'a str, &'a Value>,
    allows_other_fields: bool,
}

fn object_entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// The error for an unknown name, with the nearest known one as a hint.
fn unknown_name_problem(what: &str, name: &str, known: &[&str]) -> Problem {
    let shown = excerpt(name, 80);
    let problem = Problem::usage(format!("there is no {what} \"{shown}\" here"));
    if known.is_empty() {
        return problem.with_hint(format!("there is no {what} at all"));
    }
    let problem = match nearest_word(name, known.iter().copied()) {
        Some(nearest) => problem.with_hint(format!("did you mean \"{nearest}\"?")),
        None => problem,
    };
    problem.with_hint(format!("there are {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(name: &str) -> BodySchema {
        BodySchema::from_component(&crate::api::router().1, name)
    }

    #[test]
    fn an_unknown_field_is_named_with_the_nearest_one() {
        let branch = schema("NewBranch");
        branch.check(&json!({ "name": "x" })).unwrap();
        let problem = branch.check(&json!({ "nmae": "x" })).unwrap_err();
        assert_eq!((problem.status, problem.detail.as_str()), (400, "there is no field \"nmae\" here"));
        assert_eq!(problem.hints[0], "did you mean \"name\"?");
    }

    #[test]
    fn what_one_answer_takes_is_unknown_to_another() {
        let say = schema("NewAnswer");
        say.check(&json!({ "answer": "deny", "reason": "no" })).unwrap();
        say.check(&json!({ "answer": "edit", "input": { "anything": { "goes": 1 } } })).unwrap();
        assert!(say.check(&json!({ "answer": "resume", "reason": "no" })).is_err());
        // The same applies to a live connection.
        let request = schema("LiveRequest");
        request
            .check(&json!({ "id": 1, "do": "answer", "stop": "s", "answer": "deny", "reason": "no" }))
            .unwrap();
        assert!(request.check(&json!({ "id": 1, "do": "pause", "sesion": "s" })).is_err());
    }
}
