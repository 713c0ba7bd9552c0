//! Taking back what agents did keeps what the user and other sessions did, and says whose it is.

use std::fs;

use stepback_engine::Workspace;
use stepback_engine::kept::Audience;
use stepback_engine::recorder::{RecordedStep, ScanPolicy};
use stepback_engine::rewind::{PreparedRewind, RewindRequest};
use stepback_model::record::{Annotation, Session, StepKind, Trigger};

use crate::session::{TestWorkspace, event, record, report};

/// A workspace in which `call` lets an agent write a file.
struct AgentWorkspace<'a> {
    place: &'a TestWorkspace,
    workspace: Workspace,
    clock: std::cell::Cell<i64>,
}

impl AgentWorkspace<'_> {
    fn tick(&self) -> i64 {
        self.clock.set(self.clock.get() + 100);
        self.clock.get()
    }

    fn start(&self, session: &str, call: &str) -> RecordedStep {
        record(
            &self.workspace,
            &report(event(session, StepKind::ToolStart, call), ScanPolicy::Before, self.tick()),
        )
    }

    fn end(&self, session: &str, call: &str) -> RecordedStep {
        record(
            &self.workspace,
            &report(event(session, StepKind::ToolEnd, call), ScanPolicy::After, self.tick()),
        )
    }

    /// A call of `session` that writes a file. Its name must not be used twice.
    fn writes(&self, session: &str, call: &str, path: &str, text: &str) -> RecordedStep {
        let start = self.start(session, call);
        self.place.write(path, text);
        self.end(session, call);
        start
    }

    fn session(&self, external: &str) -> Session {
        self.workspace.find_session(external).unwrap()
    }

    fn plan(&self, request: &RewindRequest) -> PreparedRewind {
        self.workspace.prepare_rewind(request).unwrap()
    }

    fn point(&self, number: u64) -> RewindRequest {
        let target = self.workspace.store().step_numbered(self.workspace.record.id, number).unwrap();
        RewindRequest { target, ..RewindRequest::default() }
    }
}

fn with_desk(test: impl FnOnce(&AgentWorkspace<'_>)) {
    let place = TestWorkspace::in_memory();
    place.write("first", "there from the beginning\n");
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    test(&AgentWorkspace { place: &place, workspace, clock: 0.into() });
}

fn all() -> RewindRequest {
    RewindRequest { all: true, ..RewindRequest::default() }
}

fn last(count: usize) -> RewindRequest {
    RewindRequest { last: Some(count), ..RewindRequest::default() }
}

fn changed(prepared: &PreparedRewind) -> Vec<String> {
    prepared.plan.changes.iter().map(|change| change.path.to_string()).collect()
}

fn kept(prepared: &PreparedRewind) -> Vec<(String, String)> {
    let one =
        |kept: &stepback_engine::kept::KeptChange| (kept.path.to_string(), kept.author.name(Audience::User));
    prepared.kept.iter().map(one).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(path, author)| (path.to_string(), author.to_string())).collect()
}

fn left_alone(prepared: &PreparedRewind) -> Vec<(String, String)> {
    prepared.plan.left_alone.iter().map(|left| (left.path.to_string(), left.reason.clone())).collect()
}

#[test]
fn all_takes_back_what_agents_wrote_and_keeps_the_users_file() {
    with_desk(|desk| {
        desk.writes("s", "c1", "a.txt", "a");
        desk.place.write("notes.txt", "mine");
        desk.writes("s", "c2", "b.txt", "b");
        let prepared = desk.plan(&all());
        assert_eq!(changed(&prepared), ["a.txt", "b.txt"]);
        assert_eq!(kept(&prepared), pairs(&[("notes.txt", "you")]));
        assert_eq!(prepared.kept[0].number, Some(2), "it can be taken back by its number");
        assert_eq!(
            prepared.everything_changes.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["notes.txt"]
        );
        let report = desk.workspace.apply_rewind(prepared).unwrap();
        assert_eq!(report.kept.len(), 1);
        assert!(!desk.place.has("a.txt") && !desk.place.has("b.txt"));
        assert_eq!(desk.place.read("notes.txt"), "mine");
        // By its own number it goes.
        let prepared = desk.plan(&RewindRequest { changes: vec![2], ..RewindRequest::default() });
        assert_eq!(changed(&prepared), ["notes.txt"]);
    });
}

#[test]
fn last_counts_only_changes_of_agents_or_of_the_session() {
    with_desk(|desk| {
        desk.writes("one", "c1", "a.txt", "a");
        desk.writes("two", "c2", "b.txt", "b");
        desk.writes("one", "c3", "c.txt", "c");
        desk.place.write("notes.txt", "mine");
        desk.writes("two", "c4", "d.txt", "d");
        desk.place.write("late.txt", "mine, too");
        let two = format!("session test {}", desk.session("two").id.short());
        let prepared = desk.plan(&last(2));
        assert_eq!(changed(&prepared), ["c.txt", "d.txt"]);
        assert_eq!(kept(&prepared), pairs(&[("late.txt", "you"), ("notes.txt", "you")]));
        drop(prepared);
        let session = Some(desk.session("one").id);
        let prepared = desk.plan(&RewindRequest { session, ..last(2) });
        assert_eq!(changed(&prepared), ["a.txt", "c.txt"]);
        let expected = [("b.txt", &*two), ("d.txt", &two), ("late.txt", "you"), ("notes.txt", "you")];
        assert_eq!(kept(&prepared), pairs(&expected));
        drop(prepared);
        let prepared = desk.plan(&RewindRequest { everything: true, ..last(2) });
        assert_eq!(changed(&prepared), ["d.txt", "late.txt"], "everything counts changes of anyone");
        drop(prepared);
        let prepared = desk.plan(&RewindRequest { everything: true, ..all() });
        assert_eq!(changed(&prepared).len(), 6);
        assert!(prepared.kept.is_empty());
    });
}

#[test]
fn an_agents_edit_above_the_users_is_merged_away_and_no_byte_of_the_user_goes() {
    with_desk(|desk| {
        let lines = |marks: [&str; 3]| {
            let part = |mark: &str| format!("{mark}\n-\n-\n-\n-\n-\n-\n");
            marks.map(part).concat()
        };
        desk.place.write("f", &lines(["1", "2", "3"]));
        desk.writes("s", "c1", "f", &lines(["agent", "2", "3"]));
        desk.place.write("f", &lines(["agent", "user", "3"]));
        desk.writes("s", "c2", "f", &lines(["agent", "user", "agent"]));
        let prepared = desk.plan(&all());
        assert_eq!(changed(&prepared), ["f"]);
        assert_eq!(kept(&prepared), pairs(&[("f", "you")]));
        desk.workspace.apply_rewind(prepared).unwrap();
        assert_eq!(desk.place.read("f"), lines(["1", "user", "3"]));
    });
}

#[test]
fn a_file_of_an_agent_that_the_user_edited_is_left_alone_and_the_reason_names_the_user() {
    with_desk(|desk| {
        desk.writes("s", "c1", "f", "agent\n");
        desk.place.write("f", "agent\nuser\n");
        desk.writes("s", "c2", "g", "agent\n");
        let prepared = desk.plan(&all());
        assert_eq!(changed(&prepared), ["g"]);
        assert_eq!(left_alone(&prepared), pairs(&[("f", "it was edited since (by you)")]));
        drop(prepared);
        let prepared = desk.plan(&RewindRequest { audience: Audience::Agent, ..all() });
        assert_eq!(left_alone(&prepared), pairs(&[("f", "it was edited since (by the user)")]));
    });
}

#[test]
fn a_change_whose_author_is_uncertain_stays_with_the_reason() {
    with_desk(|desk| {
        desk.start("one", "c1");
        desk.start("two", "c2");
        desk.place.write("built", "by one of them");
        desk.end("one", "c1");
        desk.end("two", "c2");
        let prepared = desk.plan(&all());
        assert!(changed(&prepared).is_empty());
        let [(path, reason)] = &left_alone(&prepared)[..] else { panic!("{:?}", left_alone(&prepared)) };
        let names = ["one", "two"].map(|name| format!("session test {}", desk.session(name).id.short()));
        assert_eq!(path, "built");
        assert!(names.iter().all(|name| reason.contains(name)), "{reason}");
        assert_eq!(prepared.everything_changes.len(), 1);
        drop(prepared);
        let prepared = desk.plan(&RewindRequest { everything: true, ..all() });
        assert_eq!(changed(&prepared), ["built"]);
    });
}

#[test]
fn where_no_agent_has_worked_the_users_own_changes_are_meant() {
    with_desk(|desk| {
        desk.workspace.create_checkpoint(Annotation::default(), Trigger::Manual).unwrap();
        desk.place.write("a.txt", "a");
        let prepared = desk.plan(&all());
        assert_eq!(changed(&prepared), ["a.txt"]);
        assert_eq!(
            prepared.warnings,
            ["no agent has worked in this workspace, so this applies to your own changes"]
        );
    });
}

#[test]
fn a_rewind_that_changes_nothing_says_why_and_what_everything_would_do() {
    with_desk(|desk| {
        let start = desk.start("s", "c1");
        desk.end("s", "c1");
        desk.place.write("notes.txt", "mine");
        desk.writes("other", "c2", "api.ts", "theirs");
        let other = format!("session test {}", desk.session("other").id.short());
        let prepared = desk.plan(&desk.point(start.number));
        assert!(prepared.plan.is_empty());
        assert_eq!(kept(&prepared), pairs(&[("api.ts", &other), ("notes.txt", "you")]));
        let because = prepared.unchanged_because.as_deref().unwrap();
        assert_eq!(because, format!("what differs from #1 was changed by {other} and you"));
        let everything: Vec<_> = prepared.everything_changes.iter().map(ToString::to_string).collect();
        assert_eq!(everything, ["api.ts", "notes.txt"]);
        drop(prepared);
        let session = Some(desk.session("s").id);
        let prepared = desk.plan(&RewindRequest { session, ..all() });
        let because = prepared.unchanged_because.as_deref().unwrap();
        assert!(because.starts_with("no change by session test "), "{because}");
        assert!(because.ends_with(&format!("what differs was changed by {other} and you")), "{because}");
        drop(prepared);
        let now = desk.workspace.newest_step_number().unwrap();
        let prepared = desk.plan(&desk.point(now));
        let because = prepared.unchanged_because.as_deref().unwrap();
        assert_eq!(because, format!("the files are already as they were at #{now}"));
    });
}

#[test]
fn what_was_taken_back_or_changed_back_is_not_listed_as_kept() {
    with_desk(|desk| {
        desk.writes("s", "c1", "a.txt", "a");
        desk.place.write("notes.txt", "mine");
        desk.start("s", "c2");
        fs::remove_file(desk.place.root.join("notes.txt")).unwrap();
        desk.end("s", "c2");
        // The agent deleted the user's file: taking that back brings it back, and it stays.
        let prepared = desk.plan(&all());
        assert_eq!(changed(&prepared), ["a.txt", "notes.txt"]);
        assert_eq!(kept(&prepared), pairs(&[("notes.txt", "you")]));
        desk.workspace.apply_rewind(prepared).unwrap();
        assert_eq!(desk.place.read("notes.txt"), "mine");
        // The user deletes it again: nothing of theirs is left to keep.
        fs::remove_file(desk.place.root.join("notes.txt")).unwrap();
        desk.writes("s", "c3", "b.txt", "b");
        let prepared = desk.plan(&all());
        assert_eq!(changed(&prepared), ["b.txt"]);
        assert_eq!(kept(&prepared), []);
    });
}

#[test]
fn a_change_of_another_author_is_refused_with_the_name_of_its_author() {
    with_desk(|desk| {
        desk.writes("s", "c1", "a.txt", "a");
        desk.place.write("notes.txt", "mine");
        let session = Some(desk.session("s").id);
        let request = RewindRequest { session, changes: vec![2], ..RewindRequest::default() };
        let error = desk.workspace.prepare_rewind(&request).err().unwrap().to_string();
        assert!(error.contains("change 2 (notes.txt) was made by you, not by session test"), "{error}");
    });
}

#[test]
fn a_cleared_list_limits_all_and_last() {
    with_desk(|desk| {
        desk.writes("s", "c1", "a.txt", "a");
        desk.workspace.clear_changes().unwrap();
        let engine = desk.place.engine();
        let workspace = engine.open_workspace_root(&desk.place.root).unwrap();
        let desk = AgentWorkspace { place: desk.place, workspace, clock: desk.clock.clone() };
        desk.writes("s", "c2", "b.txt", "b");
        assert_eq!(changed(&desk.plan(&all())), ["b.txt"]);
        assert_eq!(changed(&desk.plan(&last(5))), ["b.txt"]);
    });
}

#[test]
fn a_rewind_to_a_line_that_was_left_keeps_what_the_user_wrote_since() {
    with_desk(|desk| {
        let start = desk.writes("s", "c1", "a.txt", "a");
        desk.writes("s", "c2", "b.txt", "b");
        let left = desk.workspace.newest_step_number().unwrap();
        let back = desk.plan(&desk.point(start.number));
        desk.workspace.apply_rewind(back).unwrap();
        assert!(!desk.place.has("a.txt") && !desk.place.has("b.txt"));
        desk.writes("s", "c3", "other.txt", "another try");
        fs::create_dir(desk.place.root.join("mine")).unwrap();
        desk.place.write("mine/notes.txt", "mine");
        let prepared = desk.plan(&desk.point(left));
        assert_eq!(changed(&prepared), ["a.txt", "b.txt", "other.txt"]);
        assert_eq!(kept(&prepared), pairs(&[("mine/notes.txt", "you")]));
        desk.workspace.apply_rewind(prepared).unwrap();
        assert_eq!(desk.place.read("b.txt"), "b");
        assert_eq!(desk.place.read("mine/notes.txt"), "mine");
        // The line goes on from there: the agent's changes are its own again, and the user's file is still the user's.
        let prepared = desk.plan(&all());
        assert_eq!(changed(&prepared), ["a.txt", "b.txt"]);
        assert_eq!(kept(&prepared), pairs(&[("mine/notes.txt", "you")]));
        drop(prepared);
        let prepared = desk.plan(&RewindRequest { everything: true, ..desk.point(left) });
        assert_eq!(changed(&prepared), ["mine", "mine/notes.txt"]);
    });
}
