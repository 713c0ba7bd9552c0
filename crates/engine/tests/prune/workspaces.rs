//! Workspaces that are moved, forgotten, brought back and freed.

use std::fs;

use stepback_engine::EngineError;
use stepback_engine::prune::Rules;
use stepback_engine::workspace_admin::WorkspaceError;
use stepback_model::record::{Annotation, Trigger, WorkspaceRecord};
use stepback_store::port::StepQuery;
use stepback_testkit::sample::noise;

use super::Fixture;

fn filled() -> Fixture {
    let fixture = Fixture::new();
    for number in 0..20 {
        fs::write(fixture.files.path("file"), noise(number + 1, 50_000)).unwrap();
        fixture.workspace.create_checkpoint(Annotation::default(), Trigger::Automatic).unwrap();
    }
    fixture
}

#[test]
fn a_moved_workspace_goes_on_where_it_is_now() {
    let fixture = filled();
    let engine = fixture.files.engine();
    let (old, new) = (fixture.files.root.clone(), fixture.files.top().join("elsewhere"));
    fs::rename(&old, &new).unwrap();
    let moved = engine.move_workspace(&fixture.workspace, new.as_os_str().as_encoded_bytes()).unwrap();
    assert_eq!(moved.id, fixture.workspace.record.id);
    let workspace = engine.open_workspace(&new).unwrap();
    assert_eq!((workspace.record.id, workspace.checkpoints().unwrap().len()), (moved.id, 20));
    fs::write(new.join("file"), "after the move").unwrap();
    let next = workspace.create_checkpoint(Annotation::default(), Trigger::Manual).unwrap();
    assert_eq!(next.stored.step.number, 21);
    // The old path is free for another one, and not for two.
    fs::create_dir(&old).unwrap();
    let other = engine.open_workspace(&old).unwrap();
    assert_ne!(other.record.id, moved.id);
    let taken = engine.move_workspace(&other, new.as_os_str().as_encoded_bytes());
    assert!(matches!(taken, Err(EngineError::Workspace(WorkspaceError::Taken(_)))), "{taken:?}");
    fixture.expect_sound();
}

#[test]
fn a_forgotten_workspace_is_in_no_list_and_comes_back_until_a_collection() {
    let fixture = filled();
    let engine = fixture.files.engine();
    let record = fixture.workspace.record.clone();
    let state = fixture.workspace.load_state(&fixture.workspace.head().unwrap()).unwrap();
    engine.forget_workspace(&fixture.workspace).unwrap();
    let store = &fixture.files.store;
    assert!(store.workspaces().unwrap().is_empty());
    assert!(engine.find_workspace(&fixture.files.root).unwrap().is_none());
    assert!(store.find(None, &StepQuery::default()).unwrap().steps.is_empty());
    fixture.expect_sound();
    // What happens in the directory now is another history.
    let fresh = engine.open_workspace(&fixture.files.root).unwrap();
    assert_ne!(fresh.record.id, record.id);
    let taken = engine.restore_workspace(&record);
    assert!(matches!(taken, Err(EngineError::Workspace(WorkspaceError::Taken(_)))), "{taken:?}");
    engine.forget_workspace(&fresh).unwrap();
    let restored = engine.restore_workspace(&record).unwrap();
    assert_eq!(restored, record);
    let workspace = engine.open_workspace(&fixture.files.root).unwrap();
    assert_eq!((workspace.record.id, workspace.checkpoints().unwrap().len()), (record.id, 20));
    assert!(engine.restore_workspace(&record).is_err(), "it is not forgotten any more");
    workspace.materialize(&state, &fixture.files.top().join("restored"), false).unwrap();
    assert_eq!(fs::read(fixture.files.top().join("restored/file")).unwrap(), noise(20, 50_000));
    fixture.expect_sound();
}

#[test]
fn the_next_collection_frees_a_forgotten_workspace_for_good_and_nothing_of_others() {
    let fixture = filled();
    let engine = fixture.files.engine();
    let other = fixture.files.top().join("other");
    fs::create_dir(&other).unwrap();
    // The other one shares a file with it.
    fs::write(other.join("file"), noise(5, 50_000)).unwrap();
    let kept = engine.open_workspace(&other).unwrap();
    kept.create_checkpoint(Annotation::default(), Trigger::Manual).unwrap();
    let record = fixture.workspace.record.clone();
    let before = fixture.size();
    engine.forget_workspace(&fixture.workspace).unwrap();
    engine.update_index().unwrap();
    engine.collect_garbage().unwrap();
    assert!(fixture.size() + 900_000 < before, "{before} {}", fixture.size());
    let refused = engine.restore_workspace(&record);
    assert!(matches!(refused, Err(EngineError::Workspace(WorkspaceError::Freed(_)))), "{refused:?}");
    let state = kept.load_state(&kept.head().unwrap()).unwrap();
    kept.materialize(&state, &fixture.files.top().join("restored"), false).unwrap();
    assert_eq!(fs::read(fixture.files.top().join("restored/file")).unwrap(), noise(5, 50_000));
    // Searching, checking and collecting again still work.
    engine.update_index().unwrap();
    engine.collect_garbage().unwrap();
    fixture.expect_sound();
}

#[test]
fn a_prune_says_which_forgotten_workspaces_it_makes_final() {
    let fixture = filled();
    let engine = fixture.files.engine();
    let other = fixture.files.top().join("other");
    fs::create_dir(&other).unwrap();
    let forgotten = engine.open_workspace(&other).unwrap();
    forgotten.create_checkpoint(Annotation::default(), Trigger::Manual).unwrap();
    engine.forget_workspace(&forgotten).unwrap();
    let ids = |records: &[WorkspaceRecord]| records.iter().map(|record| record.id).collect::<Vec<_>>();
    let plan = fixture.workspace.plan_prune(Rules::default()).unwrap();
    assert_eq!(ids(&plan.forgotten), [forgotten.record.id]);
    let pruned = fixture.workspace.prune(plan).unwrap();
    assert_eq!(ids(&pruned.forgotten), [forgotten.record.id]);
    // The next one has nothing to say about it.
    let plan = fixture.workspace.plan_prune(Rules::default()).unwrap();
    assert!(plan.forgotten.is_empty());
    assert!(fixture.workspace.prune(plan).unwrap().forgotten.is_empty());
}
