//! Details that were recorded together stand on pages; a bundle of one session has nothing of the others.

use serde_json::json;
use stepback_engine::recorder::ReportedEvent;
use stepback_model::event::AgentEvent;
use stepback_model::record::StepKind;

use crate::place::{BundleStore, BusyWorkspace};

#[test]
fn a_bundle_of_one_session_has_its_details_and_nothing_of_the_others() {
    let world = BusyWorkspace::new(5);
    let workspace = world.home.engine().open_workspace_root(&world.root).unwrap();
    let report = |at: usize| {
        let session = ["one", "two", "three"][at % 3];
        let text = if at % 10 == 3 { "long ".repeat(1000) } else { format!("{session} did {at}") };
        let mut event = AgentEvent::new("test", session, StepKind::AgentStep, format!("{at}"));
        event.input = Some(json!({ "at": at, "text": text }));
        ReportedEvent::new(event, world.home.env.now())
    };
    let reports: Vec<ReportedEvent> = (0..300).map(report).collect();
    workspace.record_batch(&workspace.lock_recording().unwrap(), &reports).unwrap();

    let sessions = world.sessions();
    let one = sessions.iter().find(|session| session.info.external.as_deref() == Some("one")).unwrap();
    let there = BundleStore::in_memory(6);
    there.import(&world.export(std::slice::from_ref(one))).unwrap();
    assert_eq!(there.view(&there.session(one)), world.home.view(one));
    let mut texts = String::new();
    let mut hashes = Vec::new();
    there.store.for_each_object(&mut |object| hashes.push((object.kind, object.hash))).unwrap();
    for (kind, hash) in hashes {
        texts.push_str(&String::from_utf8_lossy(&there.store.read(kind, hash).unwrap()));
    }
    assert!(texts.contains("one did 0") && !texts.contains("two did") && !texts.contains("three did"));
}
