//! Errors as RFC 9457 problem documents, with the error codes of the command line.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use stepback_bundle::BundleError;
use stepback_engine::EngineError;
use stepback_engine::diagnostics::{self, FailureKind};
use stepback_history::HistoryError;
use stepback_model::escape::excerpt;
use stepback_model::object::ObjectError;
use stepback_rerun::RerunError;
use stepback_store::StoreError;
use stepback_worktree::WorktreeError;
use utoipa::ToSchema;

use crate::documents::plans::PlanDocument;

/// An error, with hints on how to fix it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct Problem {
    /// A URI that identifies the type of problem.
    #[serde(rename = "type")]
    pub kind: String,
    /// The title, the same for every problem of this status.
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// What went wrong this time.
    pub detail: String,
    /// The error code, as on the command line: `point`, `nothing`, `busy`, …
    pub code: &'static str,
    /// Hints on how to fix it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
    /// The current plan, if the one to apply is out of date.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Box<PlanDocument>>,
}

impl Problem {
    /// The media type of problem documents.
    pub const CONTENT_TYPE: &str = "application/problem+json";

    /// Creates a problem with a status and a code.
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

    /// Adds a hint on how to fix it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds the current plan.
    #[must_use]
    pub fn plan(mut self, plan: PlanDocument) -> Self {
        self.plan = Some(Box::new(plan));
        self
    }

    /// The requested object was not found.
    pub fn unknown(what: &str, id: &str) -> Self {
        let shown = excerpt(id, 80);
        Self::new(StatusCode::NOT_FOUND, "nothing", format!("there is no {what} {shown}"))
    }

    /// A word that is not one of the known ones.
    pub fn unknown_word(what: &str, word: &str, known: &[&str]) -> Self {
        let shown = excerpt(word, 80);
        Self::usage(format!("{what}: there is no \"{shown}\""))
            .hint(format!("there are {}", known.join(", ")))
    }

    /// The request is invalid.
    pub fn usage(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "usage", detail)
    }

    /// An internal error: a bug.
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
    /// Creates a problem for an error of a kind, with a hint.
    fn of(kind: FailureKind, detail: String, hint: Option<&str>) -> Self {
        let status = match kind {
            FailureKind::Usage => StatusCode::BAD_REQUEST,
            FailureKind::Point | FailureKind::Nothing => StatusCode::NOT_FOUND,
            FailureKind::Partial | FailureKind::Refused => StatusCode::CONFLICT,
            FailureKind::Busy => StatusCode::SERVICE_UNAVAILABLE,
            FailureKind::Store | FailureKind::System | FailureKind::Internal => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
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
            EngineError::NotRunning(_) => problem.with_status(StatusCode::CONFLICT),
            // Not an error of the server: the directory was moved or removed, and its history is still here.
            EngineError::Worktree(WorktreeError::Root { error, .. })
                if error.kind() == std::io::ErrorKind::NotFound =>
            {
                problem.with_status(StatusCode::CONFLICT)
            }
            _ => problem,
        }
    }
}

impl From<BundleError> for Problem {
    fn from(error: BundleError) -> Self {
        let (kind, hint) = error.failure();
        let problem = Self::of(kind, error.to_string(), hint);
        match error {
            BundleError::Engine(error) => error.into(),
            BundleError::Damaged(_) | BundleError::Inconsistent(_) | BundleError::Newer { .. } => {
                problem.with_status(StatusCode::UNPROCESSABLE_ENTITY)
            }
            _ => problem,
        }
    }
}

impl From<HistoryError> for Problem {
    fn from(error: HistoryError) -> Self {
        let (kind, hint) = error.failure();
        match error {
            HistoryError::Engine(error) => error.into(),
            error => Self::of(kind, error.to_string(), hint),
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
