//! Workspaces that are moved, forgotten, brought back and freed.

use std::fs;

use stepback_engine::EngineError;
use stepback_engine::prune::Rules;
use stepback_engine::workspace_admin::WorkspaceError;
use stepback_model::record::{Annotation, StepKind, Trigger, WorkspaceRecord};
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
fn the_store_is_no_workspace_and_nothing_is_restored_into_it() {
    let fixture = filled();
    let engine = fixture.files.engine();
    let store = fixture.files.store.local_dir().unwrap().to_path_buf();
    let is_refused = |result: Result<(), EngineError>| {
        let refused = result.unwrap_err();
        assert!(matches!(refused, EngineError::Workspace(WorkspaceError::InStore { .. })), "{refused}");
    };
    fs::create_dir(store.join("inner")).unwrap();
    for dir in [store.clone(), store.join("inner")] {
        is_refused(engine.open_workspace(&dir).map(drop));
        is_refused(engine.move_workspace(&fixture.workspace, dir.as_os_str().as_encoded_bytes()).map(drop));
    }
    let state = fixture.workspace.load_state(&fixture.workspace.head().unwrap()).unwrap();
    is_refused(fixture.workspace.materialize(&state, &store.join("new/deeper"), false).map(drop));
    assert!(!store.join("new").exists());
    fixture.expect_sound();
}

/// What records a branch or a switch is needed from the commit on; a collection must not come in between.
#[test]
fn branches_are_made_and_switched_while_the_store_is_collected() {
    let fixture = filled();
    let (workspace, engine) = (&fixture.workspace, fixture.files.engine());
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let collector = scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                engine.collect_garbage().unwrap();
            }
        });
        for round in 0..30 {
            let name = format!("branch-{round}");
            let head = workspace.head().unwrap();
            workspace.create_branch(&name, &head).unwrap();
            // A plan that a collection made outdated is planned again, as after a look at it.
            for to in [name.as_str(), "main"] {
                while let Err(error) =
                    workspace.prepare_switch(to).and_then(|prepared| workspace.switch(to, prepared))
                {
                    assert!(matches!(error, EngineError::PlanOutdated), "{error}");
                }
            }
        }
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        collector.join().unwrap();
    });
    let query =
        StepQuery { kinds: vec![StepKind::BranchCreated, StepKind::BranchSwitched], ..StepQuery::default() };
    let steps = workspace.store().steps(workspace.record.id, &query).unwrap();
    assert_eq!(steps.len(), 90);
    for stored in steps {
        workspace.load_detail(&stored.step).unwrap();
        workspace.load_state(&stored).unwrap();
    }
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
