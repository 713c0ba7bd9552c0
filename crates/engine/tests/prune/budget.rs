//! The disk budget: what goes, in which order, what stays, and what happens if that is not enough.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use stepback_engine::budget::starts_at;
use stepback_engine::rewind::RewindRequest;
use stepback_engine::{EngineError, Workspace};
use stepback_model::record::{Annotation, OperationAction, Trigger};
use stepback_testkit::sample::noise;

use super::Fixture;

/// Two workspaces with one store, and what each checkpoint in them must hold.
struct Town {
    fixture: Fixture,
    places: Vec<(PathBuf, Workspace)>,
    files: BTreeMap<(usize, u64), Vec<u8>>,
    seed: u64,
}

impl Town {
    fn new() -> Self {
        let fixture = Fixture::new();
        let other = fixture.files.top().join("other");
        fs::create_dir(&other).unwrap();
        let second = fixture.files.engine().open_workspace(&other).unwrap();
        let places = vec![(fixture.files.root.clone(), fixture.workspace.clone()), (other, second)];
        Self { fixture, places, files: BTreeMap::new(), seed: 1 }
    }

    /// A checkpoint of a file of 20 KB that no other checkpoint has. Returns its number.
    fn checkpoint(&mut self, place: usize, annotation: Annotation, trigger: Trigger) -> u64 {
        self.seed += 1;
        let content = noise(self.seed, 20_000);
        let (root, workspace) = &self.places[place];
        fs::write(root.join("file"), &content).unwrap();
        let number = workspace.create_checkpoint(annotation, trigger).unwrap().stored.step.number;
        self.files.insert((place, number), content);
        number
    }

    fn automatic(&mut self, place: usize, count: usize) {
        for _ in 0..count {
            self.checkpoint(place, Annotation::default(), Trigger::Automatic);
        }
    }

    fn visible(&self, place: usize) -> Vec<u64> {
        let checkpoints = self.places[place].1.checkpoints().unwrap();
        checkpoints.iter().map(|stored| stored.step.number).collect()
    }

    fn size(&self) -> u64 {
        self.fixture.files.store.usage().unwrap().total_bytes
    }

    /// The size without what nothing needs: the database keeps a log of what was written last.
    fn settled_size(&self) -> u64 {
        self.fixture.files.engine().collect_garbage().unwrap();
        self.size()
    }

    fn enforce(&self, budget: u64) -> stepback_engine::budget::BudgetReport {
        self.fixture.files.engine().enforce_budget(budget).unwrap()
    }

    /// Every checkpoint that is listed must come back byte for byte.
    #[track_caller]
    fn expect_whole(&self) {
        self.fixture.expect_sound();
        let into = self.fixture.files.top().join("restored");
        for (place, (_, workspace)) in self.places.iter().enumerate() {
            for stored in workspace.checkpoints().unwrap() {
                let Some(expected) = self.files.get(&(place, stored.step.number)) else { continue };
                let state = workspace.load_state(&stored).unwrap();
                workspace.materialize(&state, &into, false).unwrap();
                assert_eq!(&fs::read(into.join("file")).unwrap(), expected, "#{}", stored.step.number);
                fs::remove_dir_all(&into).unwrap();
            }
        }
    }
}

#[test]
fn below_its_start_nothing_goes_and_the_plan_says_what_would_go_next() {
    let mut town = Town::new();
    town.automatic(0, 60);
    let budget = town.settled_size() * 2;
    let report = town.enforce(budget);
    assert_eq!((report.checkpoints, report.objects, report.fits), (0, 0, true));
    assert_eq!(report.next_at, starts_at(budget));
    let plan = town.fixture.files.engine().plan_budget(budget).unwrap();
    let numbers: Vec<u64> = plan.removals.iter().map(|removal| removal.stored.step.number).collect();
    assert!(numbers.starts_with(&[1, 2, 3]) && numbers.len() < 60, "{numbers:?}");
    assert_eq!(town.visible(0).len(), 60, "a plan changes nothing");
    let outlook = town.fixture.files.engine().budget_outlook().unwrap();
    assert_eq!((outlook.removable, outlook.kept), (59, 1), "the head stays");
    for extreme in [1_000_000_000_000, u64::MAX] {
        assert_eq!(town.enforce(extreme).checkpoints, 0);
    }
}

#[test]
fn the_oldest_automatic_checkpoints_of_all_workspaces_go_and_nothing_that_matters() {
    let mut town = Town::new();
    let mut kept = [Vec::new(), Vec::new()];
    for round in 0..10 {
        for (place, kept) in kept.iter_mut().enumerate() {
            town.automatic(place, 8);
            town.fixture.pass_hours(1);
            let tags = |tag: &str| Annotation { tags: vec![tag.into()], ..Annotation::default() };
            let (annotation, trigger) = match round {
                0 => (Annotation::labelled("named"), Trigger::Automatic),
                1 => (Annotation { note: Some("why".into()), ..Annotation::default() }, Trigger::Automatic),
                2 => (tags("mine"), Trigger::Automatic),
                3 => (tags("contradiction"), Trigger::Automatic),
                4 => (Annotation::default(), Trigger::Manual),
                _ => continue,
            };
            kept.push(town.checkpoint(place, annotation, trigger));
        }
    }
    // A branch at an old checkpoint, and a rewind to another one, which undo must be able to take back.
    let first = &town.places[0].1;
    let old = |number| first.store().step_numbered(first.record.id, number).unwrap().unwrap();
    first.create_branch("old", &old(3)).unwrap();
    kept[0].push(3);
    let request = RewindRequest { target: Some(old(6)), everything: true, ..RewindRequest::default() };
    first.apply_rewind(first.prepare_rewind(&request).unwrap()).unwrap();
    let before = town.visible(0).len() + town.visible(1).len();
    let budget = town.settled_size();
    let report = town.enforce(budget);
    assert!(report.fits && report.size_after == town.size(), "{report:?}");
    assert!(town.size() <= budget * 8 / 10, "{} of {budget}", town.size());
    let (zero, one) = (town.visible(0), town.visible(1));
    assert_eq!(report.checkpoints as usize, before - zero.len() - one.len());
    assert!(report.checkpoints > 20 && zero.len() + one.len() > 60, "{report:?}");
    for (place, left) in [(0, &zero), (1, &one)] {
        for number in &kept[place] {
            assert!(left.contains(number), "#{number} of workspace {place} must stay: {left:?}");
        }
        let oldest = left.iter().rev().find(|number| !kept[place].contains(number)).unwrap();
        assert!(*oldest > 12, "the oldest went in both: {left:?}");
    }
    town.expect_whole();
    assert_eq!(town.enforce(budget).checkpoints, 0, "nothing is left to do");
    // What the user did last can be undone; the pruning is in the log and is not undone in its place.
    let first = &town.places[0].1;
    let newest = first.operations().unwrap().remove(0);
    assert!(matches!(newest.action, OperationAction::Prune { freed: true, .. }), "{newest:?}");
    let refused = first.prepare_undo(Some(newest.id));
    assert!(matches!(refused, Err(EngineError::CannotUndo(_))));
    let undo = first.prepare_undo(None).unwrap();
    first.apply_reversal(undo, stepback_engine::undo::UndoDirection::Undo).unwrap();
    let newest = town.files.iter().rfind(|((place, _), _)| *place == 0).unwrap().1;
    assert_eq!(&fs::read(town.fixture.files.path("file")).unwrap(), newest);
}

#[test]
fn a_budget_that_cannot_be_reached_takes_nothing_that_is_marked_and_nothing_of_the_last_day() {
    let mut town = Town::new();
    town.automatic(0, 10);
    town.fixture.pass_hours(30);
    for _ in 0..20 {
        town.checkpoint(0, Annotation::labelled("kept"), Trigger::Automatic);
    }
    town.automatic(1, 10);
    for budget in [0, 1, 100_000] {
        let report = town.enforce(budget);
        assert!(!report.fits && report.next_at > report.size_after, "{report:?}");
        let plan = town.fixture.files.engine().plan_budget(budget).unwrap();
        assert!(!plan.fits && plan.smallest > budget, "{plan:?}");
    }
    assert_eq!((town.visible(0).len(), town.visible(1).len()), (20, 10));
    town.expect_whole();
}

#[test]
fn what_was_deleted_can_come_back_for_a_day_and_is_freed_first_then() {
    let mut town = Town::new();
    town.automatic(0, 40);
    let workspace = town.places[0].1.clone();
    let deleted = workspace.store().step_numbered(workspace.record.id, 5).unwrap().unwrap();
    workspace.delete_checkpoint(&deleted).unwrap();
    let purged = || workspace.store().step(deleted.step.id).unwrap().unwrap().purged;
    let report = town.enforce(town.settled_size());
    assert!(report.checkpoints > 4 && !purged());
    town.fixture.pass_hours(25);
    town.automatic(0, 20);
    town.enforce(town.settled_size());
    assert!(purged());
    town.expect_whole();
}

#[test]
fn files_of_a_marked_step_without_files_of_its_own_stay() {
    let mut town = Town::new();
    town.automatic(0, 4);
    let workspace = town.places[0].1.clone();
    // Creating a branch appends a step without files, whose files are those of the head.
    workspace.create_branch("b", &workspace.head().unwrap()).unwrap();
    workspace.delete_branch("b").unwrap();
    let newest = workspace.store().steps(workspace.record.id, &Default::default()).unwrap().remove(0);
    assert!(!newest.is_checkpoint());
    workspace.annotate(&newest, Annotation::labelled("here")).unwrap();
    town.automatic(0, 60);
    town.enforce(town.settled_size() / 2);
    let left = town.visible(0);
    assert!(left.contains(&4) && !left.contains(&3), "{left:?}");
    let stored = workspace.store().step(newest.step.id).unwrap().unwrap();
    workspace.load_state(&stored).unwrap();
}

#[test]
fn two_prunings_at_once_lose_nothing() {
    let mut town = Town::new();
    town.automatic(0, 60);
    town.automatic(1, 60);
    let budget = town.settled_size();
    std::thread::scope(|scope| {
        let runs: Vec<_> =
            (0..3).map(|_| scope.spawn(|| town.fixture.files.engine().enforce_budget(budget))).collect();
        for run in runs {
            run.join().unwrap().unwrap();
        }
    });
    assert!(town.size() <= budget * 8 / 10);
    assert!(town.visible(0).len() + town.visible(1).len() > 60);
    town.expect_whole();
}
