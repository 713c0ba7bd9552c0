//! Documents are read as they were written, also those whose parts are written beside their own fields.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use stepback_api::branches::{BranchDocument, NewRerun};
use stepback_api::changes::NumberedChangeDocument;
use stepback_api::checkpoints::{AnnotatedCheckpointDocument, AnnotationChange, CreatedCheckpointDocument};
use stepback_api::control::{BreakpointKind, LiveCommand, LiveRequest, NewAnswer, NewBreakpoint};
use stepback_api::files::{ChangedFileDocument, DiffDocument, FileDocument, NodeDocument};
use stepback_api::page::Page;
use stepback_api::plans::{AppliedPlanDocument, NewRewind, PlanDocument};
use stepback_api::problem::ProblemDocument;
use stepback_api::reasoning::{BoardEdgeDocument, BoardItemDocument};
use stepback_api::search::{FoundStepDocument, SearchHitDocument, SearchResultsDocument};
use stepback_api::sessions::SessionDocument;
use stepback_api::steps::{StepDetailDocument, StepDocument, StepEventDocument, StepPositionDocument};
use stepback_api::timeline::TimelineStepDocument;

/// Returns how a document is written, after checking that it is read as it was.
fn written<T: Serialize + DeserializeOwned + PartialEq + Debug>(document: &T) -> Value {
    let text = serde_json::to_string(document).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), *document, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn documents_are_read_as_they_were_written() {
    let step = StepDocument { number: 7, duration_us: Some(u64::MAX), ..StepDocument::default() };
    let found = FoundStepDocument { step: step.clone(), ..FoundStepDocument::default() };
    let hit = SearchHitDocument { found: found.clone(), score: 0.25, ..SearchHitDocument::default() };
    assert_eq!(written(&hit)["number"], 7);
    written(&SearchResultsDocument { items: vec![hit], ..SearchResultsDocument::default() });
    written(&StepDetailDocument {
        position: Some(StepPositionDocument::new(2, 3)),
        step: step.clone(),
        input: Some(json!([1])),
        ..StepDetailDocument::default()
    });
    written(&StepEventDocument { position: 3, step: step.clone(), ..StepEventDocument::default() });
    written(&TimelineStepDocument { step: step.clone(), lane: 2, ..TimelineStepDocument::default() });
    written(&CreatedCheckpointDocument { checkpoint: step.clone(), ..CreatedCheckpointDocument::default() });
    written(&AnnotatedCheckpointDocument {
        checkpoint: step.clone(),
        ..AnnotatedCheckpointDocument::default()
    });
    written(&BranchDocument { tip: Some(step.clone()), ..BranchDocument::default() });
    written(&Page { items: vec![step], next_cursor: Some("x".into()), total: Some(7) });
    let node = NodeDocument { kind: "file".into(), size: Some(1), ..NodeDocument::default() };
    let file = FileDocument { path: "a".into(), address: "a".into(), node };
    assert_eq!(written(&file), json!({ "path": "a", "address": "a", "type": "file", "size": 1 }));
    written(&ChangedFileDocument { text: Some("+x".into()), ..ChangedFileDocument::default() });
    written(&DiffDocument::default());
    written(&NumberedChangeDocument::default());
    written(&AppliedPlanDocument::default());
    written(&SessionDocument { cost_usd: 0.1, steps: Some(2), ..SessionDocument::default() });
    written(&BoardItemDocument { confidence: Some(0.5), ..BoardItemDocument::default() });
    written(&BoardEdgeDocument::default());
    written(&ProblemDocument { plan: Some(Box::new(PlanDocument::default())), ..ProblemDocument::default() });
}

#[test]
fn requests_say_only_what_is_wanted() {
    assert_eq!(written(&AnnotationChange::default()), json!({}), "a field that is null is removed");
    let removed = AnnotationChange { label: Some(None), ..AnnotationChange::default() };
    assert_eq!(written(&removed), json!({ "label": null }));
    let breakpoint = NewBreakpoint::new(BreakpointKind::Error);
    assert_eq!(written(&breakpoint), json!({ "on": "error" }));
    assert_eq!(written(&NewRerun::default()), json!({ "set": [] }));
    written(&NewRewind { point: Some("#1".into()), ..NewRewind::default() });
    let say = NewAnswer::Deny { reason: None };
    let what = LiveCommand::Answer { stop: "s".into(), say };
    let request = json!({ "id": 1, "do": "answer", "stop": "s", "answer": "deny", "reason": null });
    assert_eq!(written(&LiveRequest { id: json!(1), what }), request);
    let what = LiveCommand::AddBreakpoint { workspace: "w".into(), breakpoint };
    written(&LiveRequest { id: Value::Null, what });
}
