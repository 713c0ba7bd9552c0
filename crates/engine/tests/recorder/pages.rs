//! What is known of many steps that are recorded together stands on pages.

use serde_json::{Value, json};
use stepback_engine::Workspace;
use stepback_engine::recorder::{ReportedEvent, ScanPolicy};
use stepback_model::event::AgentEvent;
use stepback_model::record::{Session, StepKind};
use stepback_store::port::StepQuery;

use crate::session::{TestWorkspace, event, report};

/// An event with something that must be found again, and sometimes more than a page takes.
fn numbered_event(session: &str, at: usize) -> ReportedEvent {
    let text = if at % 10 == 3 { "long ".repeat(1000) } else { format!("{session} did {at}") };
    let input = json!({ "at": at, "text": text });
    report(
        AgentEvent { input: Some(input), ..event(session, StepKind::AgentStep, &format!("{at}")) },
        ScanPolicy::None,
        at as i64,
    )
}

fn inputs(workspace: &Workspace, session: &Session) -> Vec<Value> {
    let query = StepQuery { session: Some(session.id), oldest_first: true, ..StepQuery::default() };
    let steps = workspace.store().steps(workspace.record.id, &query).unwrap();
    let detail = |step| workspace.load_detail(step).unwrap().unwrap()["input"].take();
    steps.iter().map(|stored| detail(&stored.step)).collect()
}

#[test]
fn every_step_has_its_own_detail_and_a_session_has_pages_of_its_own() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let reports: Vec<ReportedEvent> =
        (0..300).map(|at| numbered_event(["one", "two", "three"][at % 3], at)).collect();
    let before = engine.store.usage().unwrap().objects;
    let recorded = workspace.record_batch(&workspace.lock_recording().unwrap(), &reports).unwrap();
    assert_eq!(recorded.len(), 300);
    let objects = engine.store.usage().unwrap().objects - before;
    assert!(objects < 100, "300 steps of which 30 are large took {objects} objects");

    let sessions = workspace.agent_sessions().unwrap();
    assert_eq!(sessions.len(), 3);
    for session in &sessions {
        let name = session.info.external.as_deref().unwrap();
        let own = reports.iter().filter(|report| report.event.session == name);
        let expected: Vec<Value> = own.map(|report| report.event.input.clone().unwrap()).collect();
        assert!(expected.len() == 100 && inputs(&workspace, session) == expected, "{name}");
    }

    // Delivered again, nothing is stored again.
    let again = workspace.record_batch(&workspace.lock_recording().unwrap(), &reports).unwrap();
    assert_eq!(again, recorded);

    engine.collect_garbage().unwrap();
    assert_eq!(engine.verify_objects().unwrap().problems, [""; 0], "a collection keeps the pages");
}
