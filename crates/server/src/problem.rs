//! What goes wrong, as RFC 9457 documents with the codes of the command line.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use stepback_engine::EngineError;
use stepback_engine::bundle::BundleError;
use stepback_engine::diagnostics::{self, Kind};
use stepback_model::object::ObjectError;
use stepback_rerun::RerunError;
use stepback_store::StoreError;
use stepback_worktree::WorktreeError;
use utoipa::ToSchema;

use crate::documents::plans::PlanDocument;

/// What went wrong, and what to do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct Problem {
    /// Where this kind of problem is described.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is, the same for every problem of this kind.
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// What happened this time.
    pub detail: String,
    /// The word for it, as on the command line: `point`, `nothing`, `busy`, …
    pub code: &'static str,
    /// What to do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
    /// The plan as it would be now, when the one that was agreed to is out of date.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Box<PlanDocument>>,
}

impl Problem {
    /// What a problem document says it is.
    pub const CONTENT_TYPE: &str = "application/problem+json";

    /// A problem with a status and a code.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("https://stepback.dev/problems/{code}"),
            title: status.canonical_reason().unwrap_or("Problem"),
            status: status.as_u16(),
            detail: detail.into(),
            code,
            hints: Vec::new(),
            plan: None,
        }
    }

    /// Adds what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds the plan as it would be now.
    #[must_use]
    pub fn plan(mut self, plan: PlanDocument) -> Self {
        self.plan = Some(Box::new(plan));
        self
    }

    /// Something that was asked for is not there.
    pub fn unknown(what: &str, id: &str) -> Self {
        let shown: String = id.chars().filter(|c| !c.is_control()).take(80).collect();
        Self::new(StatusCode::NOT_FOUND, "nothing", format!("there is no {what} {shown}"))
    }

    /// A word that is none of those that can stand there.
    pub fn unknown_word(what: &str, word: &str, known: &[&str]) -> Self {
        let shown: String = word.chars().filter(|c| !c.is_control()).take(80).collect();
        Self::usage(format!("{what}: there is no \"{shown}\""))
            .hint(format!("there are {}", known.join(", ")))
    }

    /// The request does not make sense.
    pub fn usage(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "usage", detail)
    }

    /// A bug.
    pub fn internal(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let kind = [(header::CONTENT_TYPE, Self::CONTENT_TYPE)];
        (status, kind, Json(self)).into_response()
    }
}

impl Problem {
    /// A failure of a kind, and what to do.
    fn of(kind: Kind, detail: String, hint: Option<&str>) -> Self {
        let status = match kind {
            Kind::Usage => StatusCode::BAD_REQUEST,
            Kind::Point | Kind::Nothing => StatusCode::NOT_FOUND,
            Kind::Partial | Kind::Refused => StatusCode::CONFLICT,
            Kind::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Store | Kind::System | Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let problem = Self::new(status, kind.name(), detail);
        match hint {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }

    fn with_status(self, status: StatusCode) -> Self {
        let title = status.canonical_reason().unwrap_or(self.title);
        Self { status: status.as_u16(), title, ..self }
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        let (kind, hint) = diagnostics::of(&error);
        let problem = Self::of(kind, error.to_string(), hint);
        match error {
            EngineError::Bundle(
                BundleError::Damaged(_) | BundleError::Senseless(_) | BundleError::Newer { .. },
            ) => problem.with_status(StatusCode::UNPROCESSABLE_ENTITY),
            EngineError::NotRunning(_) => problem.with_status(StatusCode::CONFLICT),
            // Nothing is wrong with the server: the directory was moved or removed, and its history is still here.
            EngineError::Worktree(WorktreeError::Root { error, .. })
                if error.kind() == std::io::ErrorKind::NotFound =>
            {
                problem.with_status(StatusCode::CONFLICT)
            }
            _ => problem,
        }
    }
}

impl From<RerunError> for Problem {
    fn from(error: RerunError) -> Self {
        let (kind, hint) = error.advice();
        Self::of(kind, error.to_string(), hint)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<ObjectError> for Problem {
    fn from(error: ObjectError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        let (kind, hint) = diagnostics::of_io(&error);
        Self::of(kind, error.to_string(), hint)
    }
}
