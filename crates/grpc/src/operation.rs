//! One call: a message becomes a request to the HTTP API, and its document becomes the message of the answer.

use std::convert::Infallible;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Method, Request, header};
use http_body_util::BodyExt;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use stepback_api::address::encode_segment;
use stepback_api::problem::ProblemDocument;
use tonic::{Code, Response, Status};
use tower_service::Service;

use crate::status::{from_problem, refusal};

/// The bytes that are escaped in a path that is percent-encoded already.
const IN_ADDRESS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/').remove(b'%');
/// The field of a request that names the fields to remove.
const REMOVE: &str = "remove";
/// Largest error document that is read.
const MAX_PROBLEM_BYTES: usize = 16 << 20;

/// A method and the operation of the HTTP API that it calls.
#[derive(Clone, Copy, Debug)]
pub struct RpcMethod {
    /// The path of the method: `/stepback.v1.Sessions/GetSession`.
    pub rpc: &'static str,
    /// The HTTP method.
    pub method: &'static str,
    /// The path below `/api/v1`, with parameters in braces. Behind `?` are the fields that go into the query although there is
    /// a body; without a body, all fields do.
    pub path: &'static str,
}

/// Performs calls by means of the HTTP API. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ApiCaller {
    router: Router,
}

impl ApiCaller {
    /// Calls the operations of `router`, which has the HTTP API below `/api/v1` and no authentication of its own.
    pub(crate) fn new(router: Router) -> Self {
        Self { router }
    }

    /// Performs an operation that is answered with one document.
    pub(crate) async fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        operation: &RpcMethod,
        message: Q,
    ) -> Result<Response<A>, Status> {
        let document = self.fetch(operation, to_fields(message)?).await?;
        let answer = serde_json::from_slice(&document)
            .map_err(|error| internal(format!("the document has an unexpected form: {error}")))?;
        Ok(Response::new(answer))
    }

    async fn fetch(&self, operation: &RpcMethod, fields: Map<String, Value>) -> Result<Bytes, Status> {
        let body = self.send(operation, fields).await?;
        let bytes = body.collect().await.map_err(|error| internal(error.to_string()))?.to_bytes();
        Ok(if bytes.is_empty() { Bytes::from_static(b"{}") } else { bytes })
    }

    /// Performs an operation and returns the body of its answer.
    pub(crate) async fn open<Q: Serialize>(&self, operation: &RpcMethod, message: Q) -> Result<Body, Status> {
        self.send(operation, to_fields(message)?).await
    }

    async fn send(&self, operation: &RpcMethod, fields: Map<String, Value>) -> Result<Body, Status> {
        let request = build_request(operation, fields)?;
        self.send_request(request).await
    }

    /// Performs a request to any path of the router.
    pub(crate) async fn send_request(&self, request: Request<Body>) -> Result<Body, Status> {
        let answer: Result<_, Infallible> = self.router.clone().call(request).await;
        let (parts, body) = answer.unwrap_or_else(|never| match never {}).into_parts();
        if parts.status.is_success() {
            return Ok(body);
        }
        let body = axum::body::to_bytes(body, MAX_PROBLEM_BYTES).await.unwrap_or_default();
        match serde_json::from_slice::<ProblemDocument>(&body) {
            Ok(problem) => Err(from_problem(problem)),
            Err(_) => Err(internal(format!("the operation failed with status {}", parts.status))),
        }
    }
}

/// The fields of a message that are given, by name.
fn to_fields(message: impl Serialize) -> Result<Map<String, Value>, Status> {
    let mut fields = match serde_json::to_value(message) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) => Map::new(),
        Err(error) => return Err(invalid(error.to_string(), None)),
    };
    fields.retain(|_, value| !value.is_null());
    let removed = match fields.remove(REMOVE) {
        Some(Value::Array(names)) => names,
        _ => Vec::new(),
    };
    for name in removed.iter().filter_map(Value::as_str) {
        if fields.insert(name.to_owned(), Value::Null).is_some() {
            let detail = format!("{name} is both set and removed");
            return Err(invalid(detail, Some("name it in `remove`, or give it a value")));
        }
    }
    Ok(fields)
}

/// Makes the request: what the path names goes there, the rest into the query or the body.
fn build_request(operation: &RpcMethod, mut fields: Map<String, Value>) -> Result<Request<Body>, Status> {
    let mut uri = "/api/v1".to_owned();
    let (path, query) = operation.path.split_once('?').unwrap_or((operation.path, ""));
    for segment in path.split('/').skip(1) {
        uri.push('/');
        match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            None => uri.push_str(segment),
            Some(name) => {
                let value = fields.remove(name).map(|value| to_text(&value)).unwrap_or_default();
                if value.is_empty() {
                    return Err(invalid(format!("{name} is missing"), None));
                }
                match name {
                    "path" => uri.extend(utf8_percent_encode(&value, IN_ADDRESS)),
                    _ => uri.push_str(&encode_segment(&value)),
                }
            }
        }
    }
    let has_body = matches!(operation.method, "POST" | "PATCH" | "PUT");
    let mut separator = '?';
    let in_query = |name: &str| !has_body || query.split('&').any(|known| known == name);
    fields.retain(|name, value| {
        if !in_query(name) {
            return true;
        }
        uri.push(separator);
        uri.push_str(name);
        uri.push('=');
        uri.push_str(&encode_segment(&to_text(value)));
        separator = '&';
        false
    });
    let body = if has_body { Body::from(Value::Object(fields).to_string()) } else { Body::empty() };
    let method =
        Method::from_bytes(operation.method.as_bytes()).map_err(|error| internal(error.to_string()))?;
    let mut request = Request::builder().method(method).uri(uri);
    if has_body {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    request.body(body).map_err(|error| invalid(format!("the request has no valid address: {error}"), None))
}

fn to_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn invalid(detail: String, hint: Option<&str>) -> Status {
    refusal(Code::InvalidArgument, "usage", detail, hint)
}

pub(crate) fn internal(detail: String) -> Status {
    refusal(Code::Internal, "internal", detail, None)
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use serde_json::json;

    use super::*;
    use crate::v1::{AnnotateCheckpointRequest, Empty, JsonDocument, TextList};

    fn operation(method: &'static str, path: &'static str) -> RpcMethod {
        RpcMethod { rpc: "/test/Test", method, path }
    }

    fn fields(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    async fn body_of(request: Request<Body>) -> String {
        let bytes = request.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn fields_go_into_the_path_the_query_and_the_body() {
        let given = fields(json!({"session": "a/b?c", "limit": 5, "find": "x & y", "failed": true}));
        let request = build_request(&operation("GET", "/sessions/{session}/steps"), given).unwrap();
        assert_eq!(
            request.uri().to_string(),
            "/api/v1/sessions/a%2Fb%3Fc/steps?failed=true&find=x%20%26%20y&limit=5"
        );
        let given = fields(json!({"workspace": "w", "name": "x", "number": 3}));
        let request = build_request(&operation("POST", "/workspaces/{workspace}/branches"), given).unwrap();
        assert_eq!(request.uri(), "/api/v1/workspaces/w/branches");
        assert_eq!(request.headers()["content-type"], "application/json");
        assert_eq!(body_of(request).await, r#"{"name":"x","number":3}"#);
        let given = fields(json!({"branch": "a b", "workspace": "w", "n": 1}));
        let request =
            build_request(&operation("POST", "/branches/{branch}/execute?workspace"), given).unwrap();
        assert_eq!(request.uri().to_string(), "/api/v1/branches/a%20b/execute?workspace=w");
        assert_eq!(body_of(request).await, r#"{"n":1}"#);
        let given = fields(json!({"path": "src/a b%25.txt?"}));
        let request = build_request(&operation("GET", "/files/{path}"), given).unwrap();
        assert_eq!(request.uri().to_string(), "/api/v1/files/src/a%20b%25.txt%3F");
        let missing = build_request(&operation("GET", "/files/{path}"), Map::new()).unwrap_err();
        assert_eq!((missing.code(), missing.message()), (Code::InvalidArgument, "path is missing"));
    }

    #[test]
    fn what_is_absent_stays_what_is_empty_is_set_and_what_is_named_is_removed() {
        let message = AnnotateCheckpointRequest {
            checkpoint: "c".into(),
            tags: Some(TextList { items: Vec::new() }),
            remove: vec!["note".into()],
            ..AnnotateCheckpointRequest::default()
        };
        assert_eq!(
            Value::Object(to_fields(message).unwrap()),
            json!({"checkpoint": "c", "tags": [], "note": null})
        );
    }

    #[tokio::test]
    async fn answers_are_read_as_they_are() {
        let number = "123456789012345678901234567890.5000";
        let routes = Router::new()
            .route("/api/v1/nothing", axum::routing::post(|| async { StatusCode::NO_CONTENT }))
            .route("/api/v1/value", axum::routing::get(move || async move { format!("{{\"n\":{number}}}") }))
            .route("/api/v1/odd", axum::routing::get(|| async { "no document" }))
            .route(
                "/api/v1/page",
                axum::routing::get(|| async { (StatusCode::BAD_GATEWAY, "no problem either") }),
            );
        let caller = ApiCaller::new(routes);
        let nothing: Response<Empty> = caller.call(&operation("POST", "/nothing"), json!({})).await.unwrap();
        assert_eq!(nothing.into_inner(), Empty {});
        let value: Response<JsonDocument> =
            caller.call(&operation("GET", "/value"), json!({})).await.unwrap();
        assert_eq!(value.into_inner().json, format!("{{\"n\":{number}}}"), "no number is rounded");
        for path in ["/odd", "/page"] {
            let failed =
                caller.call::<_, JsonDocument>(&operation("GET", path), json!({})).await.unwrap_err();
            assert_eq!(failed.code(), Code::Internal, "{path}");
        }
    }
}
