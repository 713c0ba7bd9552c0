//! Errors of operations: RFC 9457 documents with the error codes of the command line.

use std::borrow::Cow;
use std::io::ErrorKind;
use std::ops::Deref;

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use stepback_analysis::AnalysisError;
use stepback_api::failure::{self, FailureKind};
use stepback_api::plans::PlanDocument;
use stepback_api::problem::ProblemDocument;
use stepback_board::BoardError;
use stepback_bundle::BundleError;
use stepback_engine::EngineError;
use stepback_engine::branch::BranchError;
use stepback_export::ExportError;
use stepback_history::HistoryError;
use stepback_model::escape::excerpt;
use stepback_model::object::ObjectError;
use stepback_provenance::ProvenanceError;
use stepback_rerun::RerunError;
use stepback_store::StoreError;
use stepback_worktree::WorktreeError;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// The error of an operation: a document, which is the answer.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(transparent)]
pub struct Problem(pub Box<ProblemDocument>);

impl Deref for Problem {
    type Target = ProblemDocument;

    fn deref(&self) -> &ProblemDocument {
        &self.0
    }
}

impl PartialSchema for Problem {
    fn schema() -> RefOr<Schema> {
        ProblemDocument::schema()
    }
}

impl ToSchema for Problem {
    fn name() -> Cow<'static, str> {
        ProblemDocument::name()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        ProblemDocument::schemas(schemas);
    }
}

impl Problem {
    /// The media type of problem documents.
    pub const CONTENT_TYPE: &str = "application/problem+json";

    /// Creates a problem with a status and a code.
    pub fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        Self(Box::new(ProblemDocument {
            kind: format!("https://stepback.dev/problems/{code}"),
            title: status.canonical_reason().unwrap_or("Problem").to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            code: code.to_owned(),
            hints: Vec::new(),
            plan: None,
        }))
    }

    /// Adds a hint on how to fix it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hints.push(hint.into());
        self
    }

    /// Adds the current plan.
    #[must_use]
    pub fn with_plan(mut self, plan: PlanDocument) -> Self {
        self.0.plan = Some(Box::new(plan));
        self
    }

    /// The requested object was not found.
    pub fn not_found(what: &str, id: &str) -> Self {
        let shown = excerpt(id, 80);
        Self::new(StatusCode::NOT_FOUND, "nothing", format!("there is no {what} {shown}"))
    }

    /// A word that is not one of the known ones.
    pub fn unknown_word(what: &str, word: &str, known: &[&str]) -> Self {
        let shown = excerpt(word, 80);
        Self::usage(format!("{what}: there is no \"{shown}\""))
            .with_hint(format!("there are {}", known.join(", ")))
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
    fn from_kind(kind: FailureKind, detail: String, hint: Option<&str>) -> Self {
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
            Some(hint) => problem.with_hint(hint),
            None => problem,
        }
    }

    /// Replaces the status.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.0.title = status.canonical_reason().map_or(self.0.title, str::to_owned);
        self.0.status = status.as_u16();
        self
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        let (kind, hint) = failure::classify_engine_error(&error);
        let problem = Self::from_kind(kind, error.to_string(), hint);
        match error {
            EngineError::NotRunning(_) => problem.with_status(StatusCode::CONFLICT),
            EngineError::Branch(BranchError::Exists(_)) => {
                Self::from_kind(FailureKind::Refused, problem.detail.clone(), None)
            }
            // Not an error of the server: the directory was moved, removed or replaced by a link, and its history is still
            // here.
            EngineError::Worktree(WorktreeError::Root { error, .. })
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                problem.with_status(StatusCode::CONFLICT)
            }
            _ => problem,
        }
    }
}

impl From<BundleError> for Problem {
    fn from(error: BundleError) -> Self {
        let (kind, hint) = failure::classify_bundle_error(&error);
        let problem = Self::from_kind(kind, error.to_string(), hint);
        match error {
            BundleError::Engine(error) => error.into(),
            BundleError::Damaged(_) | BundleError::Inconsistent(_) | BundleError::Newer { .. } => {
                problem.with_status(StatusCode::UNPROCESSABLE_ENTITY)
            }
            _ => problem,
        }
    }
}

impl From<ExportError> for Problem {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Engine(error) => error.into(),
            ExportError::Provenance(error) => error.into(),
            error => {
                let (kind, hint) = error.classify();
                Self::from_kind(kind, error.to_string(), hint)
            }
        }
    }
}

impl From<HistoryError> for Problem {
    fn from(error: HistoryError) -> Self {
        let (kind, hint) = failure::classify_history_error(&error);
        match error {
            HistoryError::Engine(error) => error.into(),
            error => Self::from_kind(kind, error.to_string(), hint),
        }
    }
}

impl From<BoardError> for Problem {
    fn from(error: BoardError) -> Self {
        match error {
            BoardError::Engine(error) => error.into(),
            error => {
                let (kind, hint) = failure::classify_board_error(&error);
                Self::from_kind(kind, error.to_string(), hint)
            }
        }
    }
}

impl From<AnalysisError> for Problem {
    fn from(error: AnalysisError) -> Self {
        match error {
            AnalysisError::Engine(error) => error.into(),
            error => {
                let (kind, hint) = error.classify();
                Self::from_kind(kind, error.to_string(), hint)
            }
        }
    }
}

impl From<ProvenanceError> for Problem {
    fn from(error: ProvenanceError) -> Self {
        match error {
            ProvenanceError::Engine(error) => error.into(),
            error => {
                let (kind, hint) = error.classify();
                Self::from_kind(kind, error.to_string(), hint)
            }
        }
    }
}

impl From<RerunError> for Problem {
    fn from(error: RerunError) -> Self {
        let (kind, hint) = error.kind_and_hint();
        let problem = Self::from_kind(kind, error.to_string(), hint);
        match error {
            RerunError::Engine(error) => error.into(),
            _ => problem,
        }
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
        let (kind, hint) = failure::classify_io_error(&error);
        Self::from_kind(kind, error.to_string(), hint)
    }
}
