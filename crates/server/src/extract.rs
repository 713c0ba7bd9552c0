//! Extractors whose errors are a [`Problem`] like every other, never the framework's own text.

use axum::body::Bytes;
use axum::extract::path::ErrorKind;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde::de::DeserializeOwned;
use stepback_model::escape::excerpt;
use stepback_model::path::RelPath;

use crate::problem::Problem;
use crate::strict::BodySchema;

/// A JSON body.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

/// An optional JSON body.
#[derive(Clone, Copy, Debug)]
pub struct OptionalJson<T>(pub T);

/// The query string.
#[derive(Clone, Copy, Debug)]
pub struct QueryString<T>(pub T);

/// The named parameters of the path.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let body = Bytes::from_request(Request::from_parts(parts.clone(), body), state).await;
        let body = body.map_err(|rejection| body_problem(&rejection.into()))?;
        // serde would also accept a list of the values in the order of the fields.
        if body.trim_ascii_start().first() == Some(&b'[') {
            return Err(Problem::usage("the body must be a JSON object, not a list"));
        }
        let is_json = parts
            .headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
        if let (true, Some(schema)) = (is_json, parts.extensions.get::<BodySchema>())
            && let Ok(value) = serde_json::from_slice(&body)
        {
            schema.check(&value)?;
        }
        let request = Request::from_parts(parts, body.into());
        match axum::Json::<T>::from_request(request, state).await {
            Ok(axum::Json(value)) => Ok(Self(value)),
            Err(rejection) => Err(body_problem(&rejection)),
        }
    }
}

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let body = Bytes::from_request(Request::from_parts(parts.clone(), body), state).await;
        let body = body.map_err(|rejection| body_problem(&rejection.into()))?;
        if body.is_empty() {
            return Ok(Self(T::default()));
        }
        let Json(value) = Json::from_request(Request::from_parts(parts, body.into()), state).await?;
        Ok(Self(value))
    }
}

fn body_problem(rejection: &JsonRejection) -> Problem {
    let detail = rejection.body_text();
    match rejection {
        JsonRejection::MissingJsonContentType(_) => {
            Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "usage", "the Content-Type is not JSON")
                .with_hint("send \"Content-Type: application/json\"")
        }
        _ if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "usage", "the body is too large")
        }
        _ => Problem::usage(in_plain_words(&detail)),
    }
}

impl<T: Serialize> axum::response::IntoResponse for Json<T> {
    fn into_response(self) -> axum::response::Response {
        axum::Json(self.0).into_response()
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryString<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Query::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(query_problem(&rejection)),
        }
    }
}

fn query_problem(rejection: &QueryRejection) -> Problem {
    Problem::usage(in_plain_words(&rejection.body_text()))
}

/// Rewrites what the framework says of a value into words that do not need Rust to be understood.
fn in_plain_words(detail: &str) -> String {
    let mut text = detail.to_owned();
    for (theirs, ours) in [
        ("Failed to deserialize the JSON body into the target type: ", "the body is not valid: "),
        ("Failed to parse the request body as JSON: ", "the body is not valid JSON: "),
        ("Failed to deserialize query string: ", "the query is not valid: "),
        ("invalid digit found in string", "not a whole number of 0 or more"),
        ("number too large to fit in target type", "too large"),
        ("cannot parse integer from empty string", "empty, not a number"),
        ("invalid float literal", "not a number"),
        ("provided string was not `true` or `false`", "neither true nor false"),
        ("expected a boolean", "expected true or false"),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected an object"),
    ] {
        text = text.replace(theirs, ours);
    }
    for (kind, words) in NUMBER_TYPES {
        text = text.replace(&format!("expected {kind}"), &format!("expected {words}"));
    }
    text
}

/// Rust's types of numbers, as far as documents have them, and what they are called for a reader.
const NUMBER_TYPES: [(&str, &str); 7] = [
    ("u64", "a whole number of 0 or more"),
    ("u32", "a whole number of 0 or more"),
    ("u16", "a whole number of 0 or more"),
    ("usize", "a whole number of 0 or more"),
    ("i64", "a whole number"),
    ("i32", "a whole number"),
    ("f64", "a number"),
];

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(rejection) => Err(path_problem(&rejection)),
        }
    }
}

fn path_problem(rejection: &PathRejection) -> Problem {
    if let PathRejection::FailedToDeserializePathParams(failed) = rejection {
        let (value, expected) = match failed.kind() {
            ErrorKind::ParseErrorAtKey { value, expected_type, .. }
            | ErrorKind::ParseErrorAtIndex { value, expected_type, .. }
            | ErrorKind::ParseError { value, expected_type } => (value.as_str(), *expected_type),
            _ => ("", ""),
        };
        if let Some((_, words)) = NUMBER_TYPES.iter().find(|(kind, _)| *kind == expected) {
            return Problem::usage(format!("\"{}\" in the address is not {words}", excerpt(value, 80)));
        }
    }
    match rejection.status() {
        // A route without the parameter that its handler takes is a bug in this server.
        StatusCode::INTERNAL_SERVER_ERROR => Problem::internal(rejection.body_text()),
        _ => Problem::usage(rejection.body_text()),
    }
}

/// Parses a path inside a workspace, as a client wrote it.
pub fn parse_relative_path(bytes: impl Into<Vec<u8>>) -> Result<RelPath, Problem> {
    let bytes = bytes.into();
    let shown = stepback_model::path::display_bytes(&bytes).chars().take(200).collect::<String>();
    RelPath::parse(bytes).map_err(|error| {
        Problem::usage(format!("{shown}: {error}")).with_hint("use a path inside the workspace, with /")
    })
}

/// Decodes a percent-encoded part of a URL. Names of files are bytes, and need not be UTF-8.
pub fn percent_decode(text: &str) -> Result<Vec<u8>, Problem> {
    let is_escape =
        |rest: &str| matches!(rest.as_bytes(), [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    match text.split('%').skip(1).all(is_escape) {
        true => Ok(percent_decode_str(text).collect()),
        false => Err(Problem::usage("after % two hex digits must follow")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_value_is_said_in_plain_words() {
        for (theirs, ours) in [
            (
                "Failed to deserialize query string: limit: invalid digit found in string",
                "the query is not valid: limit: not a whole number of 0 or more",
            ),
            (
                "Failed to deserialize the JSON body into the target type: hits: invalid type: string \"x\", expected u64 at line 1 column 9",
                "the body is not valid: hits: invalid type: string \"x\", expected a whole number of 0 or more at line 1 column 9",
            ),
        ] {
            assert_eq!(in_plain_words(theirs), ours);
        }
    }

    #[test]
    fn every_name_survives_an_address() {
        let all: Vec<u8> = (1..=255).collect();
        assert_eq!(percent_decode(&stepback_api::address::encode_path(&all)).unwrap(), all);
        for wrong in ["%", "a%2", "%zz", "%+1", "%é"] {
            assert!(percent_decode(wrong).is_err(), "{wrong}");
        }
    }
}
