//! Pruning: what goes, what stays, how large the store is then, and what undo brings back.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod budget;
mod soak;
mod workspaces;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use stepback_engine::prune::Rules;
use stepback_engine::undo::{Reversal, UndoDirection};
use stepback_engine::{EngineError, Workspace};
use stepback_model::env::{Env, FrozenEnv};
use stepback_model::record::{Annotation, Trigger};
use stepback_model::time::Timestamp;
use stepback_testkit::test_workspace::{START, TestWorkspace};

const HOUR: i64 = 3_600_000_000;

/// A clock that stands still until a test moves it.
struct ManualClock {
    at: AtomicI64,
    ids: FrozenEnv,
}

impl Env for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.at.load(Ordering::Relaxed))
    }

    fn fresh_id(&self) -> [u8; 16] {
        self.ids.fresh_id()
    }
}

struct Fixture {
    files: TestWorkspace,
    clock: Arc<ManualClock>,
    workspace: Workspace,
}

impl Fixture {
    fn new() -> Self {
        let ids = FrozenEnv::new(Timestamp::from_micros(START), 1);
        let clock = Arc::new(ManualClock { at: AtomicI64::new(START), ids });
        let mut files = TestWorkspace::new();
        files.env = clock.clone();
        let workspace = files.engine().open_workspace(&files.root).unwrap();
        Self { files, clock, workspace }
    }

    fn pass_hours(&self, hours: i64) {
        self.clock.at.fetch_add(hours * HOUR, Ordering::Relaxed);
    }

    fn checkpoint(&self, text: &str, annotation: Annotation, trigger: Trigger) {
        self.files.write("file", text);
        self.workspace.create_checkpoint(annotation, trigger).unwrap();
    }

    /// Automatic checkpoints, each of a small file with other content.
    fn automatic(&self, count: usize) {
        for number in 0..count {
            let text = format!("{number} {}", "text of its own ".repeat(30 + number % 7));
            self.checkpoint(&text, Annotation::default(), Trigger::Automatic);
        }
    }

    fn size(&self) -> u64 {
        self.files.store.usage().unwrap().total_bytes
    }

    fn count(&self) -> usize {
        self.workspace.checkpoints().unwrap().len()
    }

    fn undo(&self) {
        let reversal = self.workspace.prepare_undo(None).unwrap();
        assert!(matches!(reversal, Reversal::Log { .. }));
        self.workspace.apply_reversal(reversal, UndoDirection::Undo).unwrap();
    }

    fn expect_sound(&self) {
        assert_eq!(self.files.engine().verify_objects().unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn a_size_is_reached_with_as_few_checkpoints_as_possible_and_the_plan_says_it() {
    let fixture = Fixture::new();
    fixture.automatic(400);
    fixture.pass_hours(48);
    fixture.checkpoint("mine", Annotation::default(), Trigger::Manual);
    let size_after = |rules| fixture.workspace.plan_prune(rules).unwrap().size_after;
    let least = size_after(Rules { keep_last: Some(1), now: true, ..Rules::default() });
    let most = size_after(Rules { max_size: Some(u64::MAX), ..Rules::default() });
    let limit = (least + most) / 2;
    let rules = Rules { max_size: Some(limit), ..Rules::default() };
    let plan = fixture.workspace.plan_prune(rules).unwrap();
    let (hidden, expected) = (plan.hide.len(), plan.size_after);
    assert!(expected <= limit && plan.size_before == fixture.size(), "{expected} {limit}");
    assert!(hidden > 10 && hidden < 390, "{hidden} of 400 go");
    assert_eq!(fixture.count(), 401, "a plan changes nothing");
    let pruned = fixture.workspace.prune(plan).unwrap();
    assert_eq!((pruned.hidden, pruned.undoable, fixture.count()), (hidden, 0, 401 - hidden));
    assert_eq!((pruned.size_after, fixture.size()), (expected, expected), "the plan was exact");
    assert!(fixture.size() <= limit);
    fixture.expect_sound();
    // One checkpoint less would not have been enough.
    let numbers: Vec<u64> =
        fixture.workspace.checkpoints().unwrap().iter().map(|row| row.step.number).collect();
    assert_eq!(numbers.last().copied(), Some(hidden as u64 + 1), "the oldest went");
    let again = fixture.workspace.plan_prune(rules).unwrap();
    assert_eq!((again.hide.len(), again.purge.len()), (0, 0), "it fits now");
}

#[test]
fn a_size_that_cannot_be_reached_is_refused_before_anything_goes() {
    let fixture = Fixture::new();
    fixture.automatic(60);
    let count = fixture.count();
    // All of them are younger than the undo window.
    let rules = Rules { max_size: Some(10_000), ..Rules::default() };
    let refused = fixture.workspace.plan_prune(rules);
    assert!(matches!(refused, Err(EngineError::CannotFit { freed_at_once: false, .. })), "{refused:?}");
    let rules = Rules { max_size: Some(10_000), now: true, ..Rules::default() };
    let refused = fixture.workspace.plan_prune(rules);
    let Err(EngineError::CannotFit { limit, smallest, freed_at_once }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((limit, freed_at_once), (10_000, true));
    assert_eq!(fixture.count(), count);
    // The size that it names can be reached.
    let rules = Rules { max_size: Some(smallest), now: true, ..Rules::default() };
    let plan = fixture.workspace.plan_prune(rules).unwrap();
    assert!(fixture.workspace.prune(plan).unwrap().size_after <= smallest);
    assert!(fixture.size() <= smallest);
    fixture.expect_sound();
}

#[test]
fn labelled_noted_tagged_and_manual_checkpoints_do_not_go_by_size() {
    let fixture = Fixture::new();
    let (label, note, tag) = (
        Annotation::labelled("named"),
        Annotation { note: Some("noted".into()), ..Annotation::default() },
        Annotation { tags: vec!["tagged".into()], ..Annotation::default() },
    );
    for (index, annotation) in [label, note, tag].into_iter().enumerate() {
        fixture.checkpoint(&format!("annotated {index}"), annotation, Trigger::Automatic);
    }
    fixture.checkpoint("by hand", Annotation::default(), Trigger::Manual);
    fixture.automatic(30);
    fixture.pass_hours(48);
    fixture.automatic(1);
    let rules = Rules { max_size: Some(1), now: true, ..Rules::default() };
    let Err(EngineError::CannotFit { smallest, .. }) = fixture.workspace.plan_prune(rules) else {
        panic!("one byte cannot be enough")
    };
    let plan = fixture.workspace.plan_prune(Rules { max_size: Some(smallest), ..rules }).unwrap();
    fixture.workspace.prune(plan).unwrap();
    let left: Vec<u64> = fixture.workspace.checkpoints().unwrap().iter().map(|row| row.step.number).collect();
    assert_eq!(left[left.len() - 4..], [4, 3, 2, 1]);
    assert!(left.len() < 15, "most of the others went: {left:?}");
}

#[test]
fn what_was_hidden_within_the_undo_window_comes_back_however_often_is_pruned() {
    let fixture = Fixture::new();
    fixture.automatic(20);
    let rules = Rules { keep_last: Some(5), ..Rules::default() };
    let plan = fixture.workspace.plan_prune(rules).unwrap();
    assert_eq!(plan.hide.len(), 15);
    assert_eq!(fixture.workspace.prune(plan).unwrap().undoable, 15);
    fixture.pass_hours(23);
    // A second prune, as a timer would do it.
    let plan = fixture.workspace.plan_prune(rules).unwrap();
    assert_eq!((plan.hide.len(), plan.purge.len()), (0, 0));
    fixture.workspace.prune(plan).unwrap();
    fixture.undo();
    assert_eq!(fixture.count(), 20);
    fixture.expect_sound();
    // Hidden again, and longer than the window.
    fixture.workspace.prune(fixture.workspace.plan_prune(rules).unwrap()).unwrap();
    fixture.pass_hours(25);
    let plan = fixture.workspace.plan_prune(rules).unwrap();
    assert_eq!((plan.hide.len(), plan.purge.len()), (0, 15));
    let size = plan.size_after;
    let pruned = fixture.workspace.prune(plan).unwrap();
    assert_eq!((pruned.size_after, fixture.size()), (size, size));
    assert!(matches!(fixture.workspace.prepare_undo(None), Err(EngineError::CannotUndo(_))));
    fixture.expect_sound();
}

#[test]
fn keep_rules_hold_against_a_size() {
    let fixture = Fixture::new();
    fixture.automatic(40);
    fixture.pass_hours(48);
    fixture.automatic(1);
    let rules = Rules { keep_last: Some(30), max_size: Some(1), now: true, ..Rules::default() };
    let Err(EngineError::CannotFit { smallest, .. }) = fixture.workspace.plan_prune(rules) else {
        panic!("one byte cannot be enough")
    };
    let plan = fixture.workspace.plan_prune(Rules { max_size: Some(smallest), ..rules }).unwrap();
    assert_eq!(plan.keep, 30);
}

#[test]
fn a_store_made_without_movable_pages_shrinks_too() {
    let fixture = Fixture::new();
    let database = fixture.files.top().join("store/log.sqlite");
    {
        let connection = rusqlite::Connection::open(&database).unwrap();
        connection.execute_batch("PRAGMA auto_vacuum = NONE; VACUUM;").unwrap();
    }
    fixture.automatic(150);
    let rules = Rules { keep_last: Some(1), now: true, ..Rules::default() };
    let plan = fixture.workspace.plan_prune(rules).unwrap();
    let before = fixture.size();
    let pruned = fixture.workspace.prune(plan).unwrap();
    assert!(pruned.size_after < before / 2, "{before} {}", pruned.size_after);
    fixture.expect_sound();
}

#[test]
fn the_default_rules_keep_significant_checkpoints_and_other_rules_do_on_request() {
    let fixture = Fixture::new();
    let tagged = |tag: &str| Annotation { tags: vec![tag.into()], ..Annotation::default() };
    // Several in one hour: the first of the hour would be kept anyway.
    fixture.automatic(1);
    for tag in ["hypothesis-status", "contradiction", "verification", "time-passed", "gap-filled"] {
        fixture.checkpoint(tag, tagged(tag), Trigger::Automatic);
    }
    fixture.automatic(2);
    fixture.pass_hours(48);
    fixture.automatic(1);
    let hidden = |rules| -> Vec<u64> {
        let plan = fixture.workspace.plan_prune(rules).unwrap();
        plan.hide.iter().map(|row| row.step.number).collect()
    };
    assert_eq!(
        hidden(Rules::default()),
        [7, 6, 5, 1],
        "only the newest of the old hour and the significant stay"
    );
    let last = Rules { keep_last: Some(1), ..Rules::default() };
    assert_eq!(hidden(last), [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(hidden(Rules { keep_significant: true, ..last }), [8, 7, 6, 5, 1]);
}

#[test]
fn the_branches_with_the_oldest_tips_go_and_come_back() {
    let fixture = Fixture::new();
    for name in ["a", "b", "c"] {
        fixture.automatic(1);
        fixture.pass_hours(1);
        let head = fixture.workspace.head().unwrap();
        fixture.workspace.create_branch(name, &head).unwrap();
    }
    let names = || fixture.workspace.branch_names().unwrap();
    let plan = |most| {
        let rules = Rules { keep_last: Some(99), max_branches: Some(most), ..Rules::default() };
        fixture.workspace.plan_prune(rules).unwrap()
    };
    assert_eq!(plan(0).branches, ["a", "b", "c"], "main is the current branch and stays");
    assert_eq!(plan(1_000_000_000).branches, Vec::<String>::new());
    assert_eq!(plan(2).branches, ["a", "b"]);
    assert_eq!(names(), ["a", "b", "c", "main"], "a plan changes nothing");
    let pruned = fixture.workspace.prune(plan(2)).unwrap();
    assert_eq!((pruned.branches, names()), (vec!["a".into(), "b".into()], vec!["c".into(), "main".into()]));
    fixture.undo();
    fixture.undo();
    assert_eq!(names(), ["a", "b", "c", "main"]);
}

#[test]
fn the_manual_checkpoint_beyond_the_limit_is_refused_until_one_is_deleted() {
    let fixture = Fixture::new();
    let create = |trigger| fixture.workspace.create_checkpoint(Annotation::default(), trigger);
    for _ in 0..50 {
        create(Trigger::Manual).unwrap();
    }
    let refused = create(Trigger::Manual);
    let Err(EngineError::TooManyManual { count: 50, limit: 50, .. }) = refused else { panic!("{refused:?}") };
    for trigger in [Trigger::Automatic, Trigger::Scheduled] {
        create(trigger).unwrap();
    }
    let oldest = fixture.workspace.checkpoints().unwrap().pop().unwrap();
    fixture.workspace.delete_checkpoint(&oldest).unwrap();
    create(Trigger::Manual).unwrap();
    assert!(matches!(create(Trigger::Manual), Err(EngineError::TooManyManual { .. })));
    // The same with other limits.
    let limited = |max_manual| {
        let engine = stepback_engine::Engine { max_manual, ..fixture.files.engine() };
        let workspace = engine.open_workspace(&fixture.files.root).unwrap();
        workspace.create_checkpoint(Annotation::default(), Trigger::Manual).map(|_| ())
    };
    assert!(matches!(limited(Some(0)), Err(EngineError::TooManyManual { limit: 0, .. })));
    limited(Some(1_000_000_000)).unwrap();
    limited(None).unwrap();
}

#[test]
fn manual_checkpoints_at_the_same_time_stay_within_the_limit() {
    let fixture = Fixture::new();
    fixture.files.write("file", "content");
    let created: Vec<_> = std::thread::scope(|scope| {
        let create = || {
            let engine = stepback_engine::Engine { max_manual: Some(3), ..fixture.files.engine() };
            let workspace = engine.open_workspace(&fixture.files.root).unwrap();
            workspace.create_checkpoint(Annotation::default(), Trigger::Manual).map(|_| ())
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let is_refused = |result: &&Result<(), _>| matches!(result, Err(EngineError::TooManyManual { .. }));
    assert_eq!(created.iter().filter(|result| result.is_ok()).count(), 3, "{created:?}");
    assert_eq!(created.iter().filter(is_refused).count(), 5, "{created:?}");
    assert_eq!(fixture.workspace.checkpoints().unwrap().len(), 3);
}
