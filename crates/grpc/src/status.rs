//! Errors: a problem of the HTTP API as a gRPC status.
//!
//! The status has the code that gRPC clients expect, what went wrong and the hints as its message, and the whole problem as
//! a detail in the form of `google.rpc.Status`, which client libraries decode.

use axum::http::StatusCode;
use prost::Message;
use prost_types::Any;
use stepback_api::problem::ProblemDocument;
use tonic::{Code, Status};

use crate::v1::Problem;

/// The name of [`Problem`] in a detail.
const PROBLEM_TYPE: &str = "type.googleapis.com/stepback.v1.Problem";
/// Longest message and longest hint, in bytes. Clients refuse trailers of more than 8 KB.
const MAX_TEXT_BYTES: usize = 1500;
/// Most hints in a status.
const MAX_HINTS: usize = 3;

/// `google.rpc.Status`: how details of a status are sent.
#[derive(Clone, PartialEq, prost::Message)]
struct StatusDetails {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// Returns the status for a problem.
pub(crate) fn from_problem(problem: ProblemDocument) -> Status {
    status_with_code(code_of(&problem), problem)
}

/// Returns a status with a code that the problem alone does not say.
pub(crate) fn status_with_code(code: Code, problem: ProblemDocument) -> Status {
    let hints: Vec<String> = problem.hints.iter().take(MAX_HINTS).map(|hint| shorten(hint)).collect();
    let detail = shorten(&problem.detail);
    let message = match hints.is_empty() {
        true => detail.clone(),
        false => format!("{detail} (hint: {})", hints.join("; ")),
    };
    let problem = Problem {
        code: problem.code,
        title: problem.title,
        detail,
        hints,
        http_status: problem.status.into(),
        // The plan itself can be too large for a trailer; its id is enough to get it.
        plan: problem.plan.map(|plan| plan.id),
    };
    let any = Any { type_url: PROBLEM_TYPE.to_owned(), value: problem.encode_to_vec() };
    let details = StatusDetails { code: code.into(), message: message.clone(), details: vec![any] };
    Status::with_details(code, message, details.encode_to_vec().into())
}

/// Returns the status for an error of this crate's own.
pub(crate) fn refusal(code: Code, name: &str, detail: String, hint: Option<&str>) -> Status {
    let status = StatusCode::from_u16(http_status_of(code)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let problem = ProblemDocument {
        kind: format!("https://stepback.dev/problems/{name}"),
        title: status.canonical_reason().unwrap_or("Problem").to_owned(),
        status: status.as_u16(),
        detail,
        code: name.to_owned(),
        hints: hint.map(str::to_owned).into_iter().collect(),
        plan: None,
    };
    status_with_code(code, problem)
}

/// Returns the problem that a failed call was answered with; `None` if the status is not of a stepback server.
pub fn problem_of(status: &Status) -> Option<Problem> {
    let details = StatusDetails::decode(status.details()).ok()?;
    let found = details.details.iter().find(|detail| detail.type_url == PROBLEM_TYPE)?;
    Problem::decode(&*found.value).ok()
}

fn code_of(problem: &ProblemDocument) -> Code {
    match problem.status {
        400 | 415 | 422 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        403 | 421 => Code::PermissionDenied,
        404 => Code::NotFound,
        405 => Code::Unimplemented,
        409 if problem.plan.is_some() => Code::Aborted,
        409 => Code::FailedPrecondition,
        413 | 429 => Code::ResourceExhausted,
        503 => Code::Unavailable,
        _ if problem.code == "store" => Code::DataLoss,
        _ => Code::Internal,
    }
}

/// Returns the HTTP status that says the same as a code.
pub(crate) fn http_status_of(code: Code) -> u16 {
    match code {
        Code::Ok => 200,
        Code::InvalidArgument | Code::OutOfRange => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted | Code::FailedPrecondition => 409,
        Code::ResourceExhausted => 429,
        Code::Cancelled => 499,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
        Code::Unknown | Code::Internal | Code::DataLoss => 500,
    }
}

fn shorten(text: &str) -> String {
    match text.len() <= MAX_TEXT_BYTES {
        true => text.to_owned(),
        false => format!("{}…", &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]),
    }
}

#[cfg(test)]
mod tests {
    use stepback_api::plans::PlanDocument;

    use super::*;

    fn problem(status: u16, code: &str) -> ProblemDocument {
        ProblemDocument { status, code: code.into(), detail: "it is so".into(), ..ProblemDocument::default() }
    }

    #[test]
    fn a_status_carries_the_whole_problem() {
        let mut given = problem(404, "point");
        given.hints = vec!["look again".into()];
        let status = from_problem(given);
        assert_eq!((status.code(), status.message()), (Code::NotFound, "it is so (hint: look again)"));
        let found = problem_of(&status).unwrap();
        assert_eq!((found.code.as_str(), found.http_status, found.hints.len()), ("point", 404, 1));
        assert_eq!(problem_of(&Status::internal("of another server")), None);
    }

    #[test]
    fn an_outdated_plan_is_told_from_other_conflicts() {
        assert_eq!(from_problem(problem(409, "refused")).code(), Code::FailedPrecondition);
        let mut outdated = problem(409, "refused");
        outdated.plan = Some(Box::new(PlanDocument { id: "p1".into(), ..PlanDocument::default() }));
        let status = from_problem(outdated);
        assert_eq!(status.code(), Code::Aborted);
        assert_eq!(problem_of(&status).unwrap().plan.as_deref(), Some("p1"));
    }

    #[test]
    fn the_longest_problem_fits_into_the_trailers_that_every_client_accepts() {
        let mut given = problem(400, "usage");
        given.detail = "é".repeat(100_000);
        given.hints = vec!["x".repeat(100_000); 50];
        let status = from_problem(given);
        let mut headers = axum::http::HeaderMap::new();
        status.add_header(&mut headers).unwrap();
        let size: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        assert!(size < 32_000, "{size}");
        assert!(problem_of(&status).unwrap().detail.ends_with('…'));
    }
}
