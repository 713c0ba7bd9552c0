//! Which steps count as rolled back, and how far steps back lead: what a user expects in small cases.

mod generated;

use stepback_engine::Workspace;
use stepback_engine::recorder::ScanPolicy;
use stepback_engine::rewind::{RewindReport, RewindRequest};
use stepback_engine::undo::UndoDirection;
use stepback_model::ids::OpId;
use stepback_model::record::{Annotation, StepKind, Trigger};
use stepback_store::port::{StepQuery, StepRow};

use crate::session::{TestWorkspace, event, record, report};

/// A workspace whose steps are made one after the other.
struct StepScript<'p> {
    place: &'p TestWorkspace,
    workspace: Workspace,
    clock: i64,
}

impl StepScript<'_> {
    fn record(&mut self, session: &str, kind: StepKind, name: &str) -> u64 {
        let effect = match kind {
            StepKind::ToolStart => ScanPolicy::Before,
            StepKind::ToolEnd => ScanPolicy::After,
            _ => ScanPolicy::None,
        };
        // Far apart, so that no two calls run at once.
        self.clock += 60;
        record(&self.workspace, &report(event(session, kind, name), effect, self.clock)).number
    }

    fn prompt(&mut self, session: &str, name: &str) -> u64 {
        self.record(session, StepKind::UserInput, name)
    }

    /// A call that writes a file: the numbers of its start and its end.
    fn call(&mut self, session: &str, name: &str, file: &str, text: &str) -> (u64, u64) {
        let start = self.record(session, StepKind::ToolStart, name);
        self.place.write(file, text);
        (start, self.record(session, StepKind::ToolEnd, name))
    }

    fn step(&self, number: u64) -> StepRow {
        self.workspace.store().step_numbered(self.workspace.record.id, number).unwrap().unwrap()
    }

    fn rewind(&self, number: u64, everything: bool) -> RewindReport {
        let request =
            RewindRequest { target: Some(self.step(number)), everything, ..RewindRequest::default() };
        self.workspace.apply_rewind(self.workspace.prepare_rewind(&request).unwrap()).unwrap()
    }

    fn undo(&self, op: OpId) -> RewindReport {
        let reversal = self.workspace.prepare_undo(Some(op)).unwrap();
        self.workspace.apply_reversal(reversal, UndoDirection::Undo).unwrap().into_files().unwrap()
    }

    fn redo(&self) -> RewindReport {
        let reversal = self.workspace.prepare_redo().unwrap();
        self.workspace.apply_reversal(reversal, UndoDirection::Redo).unwrap().into_files().unwrap()
    }

    fn checkpoint(&self) -> u64 {
        let made = self.workspace.create_checkpoint(Annotation::default(), Trigger::Manual).unwrap();
        made.stored.step.number
    }

    fn steps(&self) -> Vec<StepRow> {
        let query = StepQuery { oldest_first: true, ..StepQuery::default() };
        self.workspace.store().steps(self.workspace.record.id, &query).unwrap()
    }

    fn rolled_back(&self) -> Vec<u64> {
        let lines = self.workspace.load_lines().unwrap();
        let mut steps = self.steps();
        steps.retain(|stored| lines.is_rolled_back(stored));
        steps.iter().map(|stored| stored.step.number).collect()
    }
}

macro_rules! scene {
    ($scene:ident) => {
        let place = $crate::session::TestWorkspace::in_memory();
        let engine = place.engine();
        let workspace = engine.open_workspace(&place.root).unwrap();
        let mut $scene = $crate::lines::StepScript { place: &place, workspace, clock: 0 };
    };
}

pub(crate) use scene;

#[test]
fn a_rewind_rolls_back_what_its_session_did_since_and_nothing_of_another() {
    scene!(scene);
    let (_, base) = scene.call("a", "c1", "a1", "1");
    let (other, _) = scene.call("b", "d1", "b1", "1");
    let asked = scene.prompt("a", "p1");
    let (start, end) = scene.call("a", "c2", "a2", "2");
    let later = scene.prompt("b", "q1");
    scene.rewind(base, false);
    let rolled_back = scene.rolled_back();
    assert_eq!(rolled_back, [asked, start, end], "b is at #{other} to #{later}");
}

#[test]
fn a_rewind_rolls_back_nothing_of_a_session_that_only_read() {
    scene!(scene);
    let (_, base) = scene.call("a", "c1", "a1", "1");
    let asked = scene.prompt("b", "q1");
    let (start, end) = scene.call("a", "c2", "a2", "2");
    let report = scene.rewind(base, false);
    assert_eq!(report.outcomes.len(), 1);
    assert_eq!(scene.rolled_back(), [start, end], "#{asked} is of another session");
}

#[test]
fn a_rewind_that_changes_no_file_rolls_nothing_back() {
    scene!(scene);
    let (_, base) = scene.call("a", "c1", "a1", "1");
    scene.prompt("a", "p1");
    scene.prompt("b", "q1");
    let report = scene.rewind(base, false);
    assert!(report.outcomes.is_empty());
    assert_eq!(scene.rolled_back(), [] as [u64; 0]);
}

#[test]
fn the_person_s_edits_in_between_do_not_keep_steps_from_being_rolled_back() {
    scene!(scene);
    let (_, base) = scene.call("a", "c1", "a1", "1");
    scene.place.write("notes", "mine");
    let kept = scene.checkpoint();
    let asked = scene.prompt("a", "p1");
    let (start, end) = scene.call("a", "c2", "a2", "2");
    scene.rewind(base, false);
    assert_eq!(std::fs::read_to_string(scene.place.root.join("notes")).unwrap(), "mine");
    assert_eq!(scene.rolled_back(), [asked, start, end], "#{kept} stays on the line");
}

#[test]
fn light_steps_between_checkpoints_are_rolled_back_with_them() {
    scene!(scene);
    scene.call("a", "c1", "a1", "1");
    let target = scene.prompt("a", "p1");
    let after = scene.prompt("a", "p2");
    let (start, end) = scene.call("a", "c2", "a2", "2");
    let last = scene.prompt("a", "p3");
    scene.rewind(target, false);
    assert_eq!(scene.rolled_back(), [after, start, end, last]);
    let again = scene.prompt("a", "p4");
    assert!(!scene.rolled_back().contains(&again));
}

#[test]
fn start_and_end_of_a_call_are_rolled_back_together() {
    scene!(scene);
    scene.call("a", "c1", "a1", "1");
    let (start, end) = scene.call("a", "c2", "a2", "2");
    // The moment before the call: its end is gone, so the call is.
    scene.rewind(start, false);
    assert_eq!(scene.rolled_back(), [start, end]);
    // A call that goes on while the rewind happens, and ends after it.
    let (_, base) = scene.call("a", "c3", "a3", "3");
    scene.call("a", "c4", "a4", "4");
    let running = scene.record("b", StepKind::ToolStart, "d1");
    scene.rewind(base, true);
    assert!(scene.rolled_back().contains(&running), "nothing is known of its end yet");
    scene.place.write("b1", "1");
    let ended = scene.record("b", StepKind::ToolEnd, "d1");
    let rolled_back = scene.rolled_back();
    assert!(!rolled_back.contains(&running) && !rolled_back.contains(&ended), "{rolled_back:?}");
}

#[test]
fn an_undo_takes_the_marks_away_and_a_redo_brings_them_back() {
    scene!(scene);
    let (_, base) = scene.call("a", "c1", "a1", "1");
    let (start, end) = scene.call("a", "c2", "a2", "2");
    let rewind = scene.rewind(base, false);
    let op = rewind.operation.id;
    assert_eq!(scene.rolled_back(), [start, end]);
    scene.undo(op);
    assert_eq!(scene.rolled_back(), [rewind.after], "only the rewind itself counts no more");
    let redone = scene.redo();
    let rolled_back = scene.rolled_back();
    assert!(rolled_back.contains(&start) && rolled_back.contains(&end), "{rolled_back:?}");
    assert!(!rolled_back.contains(&redone.after));
    // What came after the redo stays when the rewind is undone again.
    let (more, done) = scene.call("a", "c5", "a5", "5");
    scene.undo(op);
    let rolled_back = scene.rolled_back();
    for number in [start, end, more, done] {
        assert!(!rolled_back.contains(&number), "#{number} of {rolled_back:?}");
    }
}

#[test]
fn a_switch_rolls_nothing_back() {
    scene!(scene);
    let (_, base) = scene.call("a", "c1", "a1", "1");
    scene.call("a", "c2", "a2", "2");
    scene.workspace.create_branch("alt", &scene.step(base)).unwrap();
    let switch = |name: &str| {
        let prepared = scene.workspace.prepare_switch(name).unwrap();
        scene.workspace.switch(name, prepared).unwrap()
    };
    switch("alt");
    assert_eq!(scene.rolled_back(), [] as [u64; 0]);
    switch("main");
    assert_eq!(scene.rolled_back(), [] as [u64; 0]);
    let lines = scene.workspace.load_lines().unwrap();
    let alt = lines.branches.iter().find(|line| line.name == "alt").unwrap();
    assert_eq!(alt.from, Some((0, base)), "it leaves where it was made, not at the newest step");
}

#[test]
fn what_a_branch_was_made_of_is_on_it_with_all_its_light_steps() {
    scene!(scene);
    let (_, base) = scene.call("a", "c1", "a1", "1");
    scene.prompt("a", "p1");
    scene.call("a", "c2", "a2", "2");
    let last = scene.prompt("a", "p2");
    scene.workspace.create_branch("plan-a", &scene.workspace.head().unwrap()).unwrap();
    let report = scene.rewind(base, false);
    assert!(!report.outcomes.is_empty());
    assert_eq!(scene.rolled_back(), [] as [u64; 0], "#{last} and all before it are on plan-a");
    let lines = scene.workspace.load_lines().unwrap();
    for number in base + 1..=last {
        let branch = lines.branch_of(&scene.step(number));
        assert_eq!(lines.branches[branch].name, "plan-a", "#{number}");
    }
    // From an earlier step without files of its own, what came after it is not on the branch.
    let from = scene.prompt("a", "p3");
    let after = scene.prompt("a", "p4");
    scene.workspace.create_branch("plan-b", &scene.step(from)).unwrap();
    let (start, end) = scene.call("a", "c3", "a3", "3");
    scene.rewind(base, true);
    assert_eq!(scene.rolled_back(), [after, start, end]);
}

#[test]
fn a_rewind_to_where_the_workspace_stands_rolls_nothing_back_but_what_it_saved() {
    scene!(scene);
    let (_, head) = scene.call("a", "c1", "a1", "1");
    scene.prompt("a", "p1");
    scene.prompt("b", "q1");
    std::fs::remove_file(scene.place.root.join("a1")).unwrap();
    let report = scene.rewind(head, true);
    assert_eq!(report.outcomes.len(), 1);
    assert_eq!(scene.rolled_back(), [report.before], "only the damage that was saved");
}

#[test]
fn an_undo_on_another_branch_stays_there() {
    scene!(scene);
    let (_, base) = scene.call("a", "c1", "a1", "1");
    let (start, end) = scene.call("a", "c2", "a2", "2");
    let rewind = scene.rewind(base, false).operation.id;
    scene.workspace.create_branch("alt", &scene.step(base)).unwrap();
    scene.workspace.switch("alt", scene.workspace.prepare_switch("alt").unwrap()).unwrap();
    let (_, other) = scene.call("b", "d1", "b1", "1");
    scene.undo(rewind);
    assert!(scene.place.root.join("a2").exists() && scene.place.root.join("b1").exists());
    let rolled_back = scene.rolled_back();
    assert!(!rolled_back.contains(&other), "alt has its own steps still: {rolled_back:?}");
    assert!(rolled_back.contains(&start) && rolled_back.contains(&end), "main is where it was");
    let line = scene.workspace.ancestry(&scene.workspace.head().unwrap()).unwrap();
    assert!(line.iter().any(|stored| stored.step.number == other));
}

#[test]
fn steps_back_lead_to_no_state_that_a_rewind_took_back() {
    let point = |scene: &StepScript<'_>, text: &str| {
        let now = stepback_model::time::Timestamp::from_micros(crate::session::START + 1_000_000_000_000);
        let found = scene.workspace.resolve(text, now, &|| jiff::tz::TimeZone::UTC);
        found.map(|stored| stored.step.number).map_err(|error| error.to_string())
    };
    scene!(scene);
    scene.place.write(".env", "secret");
    let base = scene.checkpoint();
    let (_, one) = scene.call("a", "c1", "a1", "1");
    // The damage, and what another session does while it is there.
    let start = scene.record("a", StepKind::ToolStart, "c2");
    std::fs::remove_file(scene.place.root.join(".env")).unwrap();
    scene.record("a", StepKind::ToolEnd, "c2");
    scene.call("b", "d1", "b1", "1");
    let report = scene.rewind(start, false);
    assert_eq!(report.outcomes.len(), 1, "only .env comes back");
    assert_eq!(point(&scene, "@-1"), Ok(one));
    assert_eq!(point(&scene, "@-2"), Ok(base));
    assert!(point(&scene, "@-3").unwrap_err().contains("only 2"));
    // The same with what the person had not saved: the step that saves it does not count.
    scene.place.write("notes", "mine");
    let (_, two) = scene.call("a", "c3", "a3", "3");
    scene.place.write("notes", "more");
    let report = scene.rewind(two, true);
    assert_ne!(report.before, two, "the notes were saved in a step of their own");
    let two_back = point(&scene, "@-1").unwrap();
    assert!(two_back < two, "#{two_back} is before #{two}, and not #{}", report.before);
}

#[test]
fn a_whole_id_of_a_session_wins_over_those_that_start_with_it() {
    scene!(scene);
    scene.prompt("s1", "p1");
    scene.prompt("s10", "q1");
    let named = |text: &str| scene.workspace.find_session(text).map(|session| session.info.external.unwrap());
    assert_eq!(named("s1").unwrap(), "s1");
    assert_eq!(named("s10").unwrap(), "s10");
    let refused = named("s").unwrap_err().to_string();
    assert!(refused.contains("2 sessions") && refused.matches("test ").count() == 2, "{refused}");
    assert!(named("").is_err());
}
