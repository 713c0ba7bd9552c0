//! Rewinds of single parts of the state: each alone, several together, and their undo.

use serde_json::{Value, json};
use stepback_engine::board::{BoardEditor, BoardMoment};
use stepback_engine::moves::{MoveAction, MoveReport, MoveRequest, PartsError, PlannedMove, RewindParts};
use stepback_engine::recorder::{NewMessages, ReportedEvent, SessionMilestone};
use stepback_engine::rewind::{RewindReport, RewindRequest};
use stepback_engine::{EngineError, Workspace};
use stepback_model::conversation;
use stepback_model::record::{Annotation, Session, StepKind, StepRow, Trigger};
use stepback_model::state::WorkspaceState;
use stepback_reasoning::BoardMutation;

use crate::session::{TestWorkspace, event};

/// A workspace in memory in which agents report what they know.
struct Desk<'p> {
    place: &'p TestWorkspace,
    workspace: Workspace,
}

impl<'p> Desk<'p> {
    fn new(place: &'p TestWorkspace) -> Self {
        let workspace = place.engine().open_workspace_root(&place.root).unwrap();
        Self { place, workspace }
    }

    fn report(&self, session: &str, edit: impl FnOnce(&mut ReportedEvent)) {
        let now = self.workspace.engine.env.now();
        let mut report = ReportedEvent::new(event(session, StepKind::AgentStep, ""), now);
        edit(&mut report);
        let lock = self.workspace.lock_recording().unwrap();
        self.workspace.record(&lock, &report).unwrap();
    }

    /// The session remembers, plans, says and writes something.
    fn work(&self, session: &str, word: &str) {
        self.report(session, |report| {
            report.update.memory = Some(json!({ "plan": word, "always": 1 }));
            report.update.tasks = Some(json!([{ "subject": word }]));
            let lines = vec![format!("{{\"text\":\"{word}\"}}")];
            report.messages = Some(NewMessages { lines, ..NewMessages::default() });
        });
        self.note(session, word);
        self.place.write("file", word);
    }

    fn note(&self, session: &str, text: &str) {
        let note = json!({ "do": "add-note", "text": text });
        let mutation: BoardMutation = serde_json::from_value(note).unwrap();
        BoardEditor::new(&self.workspace, &self.session(session)).apply(&mutation).unwrap();
    }

    fn session(&self, external: &str) -> Session {
        self.workspace.find_session(external).unwrap()
    }

    fn checkpoint(&self, label: &str) -> StepRow {
        self.workspace.create_checkpoint(Annotation::labelled(label), Trigger::Manual).unwrap().stored
    }

    fn value(&self, session: &str, part: &str) -> Value {
        let slots = self.session(session).info.slots;
        let hash = if part == "task" { slots.task } else { slots.memory };
        hash.map_or(Value::Null, |hash| stepback_model::json::load(self.workspace.store(), hash).unwrap())
    }

    fn notes(&self, session: &str) -> usize {
        let board = self.workspace.board_at(&self.session(session), &BoardMoment::Now).unwrap().board;
        board.document()["notes"].as_array().map_or(0, Vec::len)
    }

    /// The memory, task list, number of notes and file that a session has.
    fn all(&self) -> (Value, Value, usize, String) {
        let memory = self.value("one", "memory")["plan"].clone();
        (memory, self.value("one", "task")[0]["subject"].clone(), self.notes("one"), self.place.read("file"))
    }

    fn head_state(&self) -> WorkspaceState {
        self.workspace.load_state(&self.workspace.head().unwrap()).unwrap()
    }

    fn plan(&self, target: &StepRow, parts: &[&str]) -> Result<PlannedMove, EngineError> {
        // The file is the user's, which a rewind otherwise keeps.
        let everything = parts.contains(&"files");
        let rewind = RewindRequest { target: Some(target.clone()), everything, ..RewindRequest::default() };
        self.plan_of(rewind, parts)
    }

    fn plan_of(&self, rewind: RewindRequest, parts: &[&str]) -> Result<PlannedMove, EngineError> {
        let parts = RewindParts::parse(parts)?;
        self.workspace.plan_move(&self.workspace.request_parts(rewind, parts)?)
    }

    fn rewind(&self, target: &StepRow, parts: &[&str]) -> RewindReport {
        self.apply(self.plan(target, parts).unwrap())
    }

    fn apply(&self, planned: PlannedMove) -> RewindReport {
        assert!(!planned.is_empty(), "{}", planned.summary);
        self.workspace.apply_move(planned).unwrap().into_files().unwrap()
    }

    fn undo(&self) -> MoveReport {
        self.workspace.apply_move(self.workspace.plan_move(&MoveRequest::undo()).unwrap()).unwrap()
    }

    fn redo(&self) -> MoveReport {
        let request = MoveRequest::from_user(MoveAction::Redo);
        self.workspace.apply_move(self.workspace.plan_move(&request).unwrap()).unwrap()
    }

    fn refusal(&self, target: &StepRow, parts: &[&str]) -> String {
        self.plan(target, parts).err().expect("it is refused").to_string()
    }
}

fn state(memory: &str, task: &str, notes: usize, file: &str) -> (Value, Value, usize, String) {
    (json!(memory), json!(task), notes, file.to_owned())
}

/// The session worked before and after a checkpoint of the user.
fn with_desk(test: impl Fn(&Desk<'_>, &StepRow)) {
    let place = TestWorkspace::in_memory();
    let desk = Desk::new(&place);
    desk.work("one", "old");
    let target = desk.checkpoint("before refactor");
    desk.work("one", "new");
    desk.checkpoint("after");
    test(&desk, &target);
}

#[test]
fn each_part_goes_back_alone_and_comes_back_with_undo() {
    let (old, new) = ("old", "new");
    for (part, reached) in [
        ("memory", state(old, new, 2, new)),
        ("task", state(new, old, 2, new)),
        ("reasoning", state(new, new, 1, new)),
        ("files", state(new, new, 2, old)),
    ] {
        with_desk(|desk, target| {
            desk.rewind(target, &[part]);
            assert_eq!(desk.all(), reached, "{part}");
            desk.undo();
            assert_eq!(desk.all(), state(new, new, 2, new), "undo of {part}");
            desk.redo();
            assert_eq!(desk.all(), reached, "redo of {part}");
            desk.undo();
            assert_eq!(desk.all(), state(new, new, 2, new), "second undo of {part}");
        });
    }
}

#[test]
fn several_parts_go_back_together_as_one_operation() {
    with_desk(|desk, target| {
        let report = desk.rewind(target, &["files", "memory", "task", "reasoning"]);
        assert_eq!(desk.all(), state("old", "old", 1, "old"));
        assert_eq!(
            report.operation.summary,
            "rewind to #3 \"before refactor\" with memory, task list and reasoning board"
        );
        assert_eq!(
            report.parts.iter().map(|part| part.part.as_str()).collect::<Vec<_>>(),
            ["memory", "task"]
        );
        assert_eq!(report.parts[0].changes, ["plan becomes \"old\" instead of \"new\""]);
        desk.undo();
        assert_eq!(desk.all(), state("new", "new", 2, "new"));
    });
}

#[test]
fn the_state_that_a_rewind_reaches_has_the_parts_that_went_back() {
    with_desk(|desk, target| {
        let before = desk.head_state();
        let past = desk.workspace.load_state(target).unwrap();
        desk.rewind(target, &["memory"]);
        let now = desk.head_state();
        assert_eq!((now.memory, now.files), (past.memory, before.files));
        assert_eq!((now.task, now.conversation), (before.task, before.conversation));
        desk.undo();
        assert_eq!(desk.head_state().memory, before.memory);
    });
}

#[test]
fn the_conversation_goes_back_alone_and_nothing_that_was_said_is_lost() {
    with_desk(|desk, target| {
        let (store, before) = (desk.workspace.store(), desk.head_state());
        let planned = desk.plan(target, &["conversation"]).unwrap();
        assert_eq!(planned.parts()[0].changes, ["1 of 2 recorded messages"]);
        assert_eq!(planned.summary, "rewind conversation to #3 \"before refactor\"");
        desk.apply(planned);
        let now = desk.head_state();
        assert_eq!(conversation::len(store, now.conversation).unwrap(), 1);
        assert_eq!(now.files, before.files);
        assert_eq!(conversation::len(store, desk.session("one").info.tip).unwrap(), 2, "the session has all");
        desk.undo();
        assert_eq!(desk.head_state().conversation, before.conversation);
    });
}

#[test]
fn a_plan_changes_nothing_and_one_that_would_not_is_empty() {
    with_desk(|desk, target| {
        let planned = desk.plan(target, &["memory", "task"]).unwrap();
        assert_eq!(planned.summary, "rewind memory and task list to #3 \"before refactor\"");
        assert!(planned.parts().iter().all(|part| part.is_live && part.session.agent == "test"));
        drop(planned);
        assert_eq!(desk.all(), state("new", "new", 2, "new"));
        desk.rewind(target, &["memory"]);
        let again = desk.plan(target, &["memory"]).unwrap();
        assert!(again.is_empty() && again.parts()[0].changes.is_empty());
    });
}

#[test]
fn an_undo_keeps_what_the_agent_remembered_since() {
    with_desk(|desk, target| {
        desk.rewind(target, &["memory"]);
        desk.report("one", |report| {
            report.update.memory = Some(json!({ "plan": "old", "always": 1, "fresh": true }));
        });
        desk.undo();
        assert_eq!(desk.value("one", "memory"), json!({ "plan": "new", "always": 1, "fresh": true }));
    });
}

#[test]
fn a_part_that_was_empty_then_becomes_empty() {
    let place = TestWorkspace::in_memory();
    let desk = Desk::new(&place);
    desk.report("one", |_| {});
    let target = desk.checkpoint("start");
    desk.work("one", "new");
    desk.rewind(&target, &["memory", "task", "reasoning"]);
    assert_eq!(desk.value("one", "memory"), json!({}));
    assert_eq!(desk.value("one", "task"), json!([]));
    assert_eq!(desk.notes("one"), 0);
    desk.undo();
    assert_eq!(desk.all(), state("new", "new", 1, "new"));
}

#[test]
fn a_session_that_ended_goes_back_and_stays_ended() {
    with_desk(|desk, target| {
        desk.report("one", |report| report.update.milestone = Some(SessionMilestone::Ended));
        let ended = desk.session("one").info.ended_at;
        let planned = desk.plan(target, &["memory", "task"]).unwrap();
        assert!(!planned.parts()[0].is_live);
        desk.apply(planned);
        assert_eq!(desk.session("one").info.ended_at, ended);
        assert_eq!(desk.value("one", "memory")["plan"], "old");
    });
}

#[test]
fn of_two_sessions_at_work_only_one_goes_back() {
    with_desk(|desk, _| {
        desk.work("two", "old");
        let target = desk.checkpoint("both");
        desk.work("one", "newer");
        desk.work("two", "newer");
        // The session that was active last by then, unless another one is asked for.
        desk.rewind(&target, &["memory"]);
        assert_eq!(desk.value("two", "memory")["plan"], "old");
        assert_eq!(desk.value("one", "memory")["plan"], "newer");
        let session = Some(desk.session("one").id);
        let rewind = RewindRequest { target: Some(target), session, ..RewindRequest::default() };
        desk.apply(desk.plan_of(rewind, &["memory"]).unwrap());
        assert_eq!(desk.value("one", "memory")["plan"], "new");
    });
}

#[test]
fn what_cannot_go_back_is_refused_with_the_reason() {
    let place = TestWorkspace::in_memory();
    let desk = Desk::new(&place);
    desk.place.write("file", "1");
    let first = desk.checkpoint("first");
    assert_eq!(
        desk.refusal(&first, &["memory"]),
        "no agent had been recorded before #1 \"first\", so only files and git can go back to it"
    );
    desk.report("quiet", |_| {});
    let target = desk.checkpoint("quiet");
    assert!(
        desk.refusal(&target, &["task"])
            .contains("has no recorded task list, neither at #3 \"quiet\" nor now")
    );
    assert_eq!(desk.refusal(&target, &["reasoning"]), "no reasoning board is recorded in this workspace");
    desk.work("other", "x");
    let refused = desk.refusal(&target, &["memory"]);
    assert!(refused.contains("these sessions have one: test "), "{refused}");
    let wanted = Some(desk.session("other").id);
    let late = RewindRequest { target: Some(target.clone()), session: wanted, ..RewindRequest::default() };
    assert!(desk.plan_of(late, &["memory"]).err().unwrap().to_string().contains("had not started at #3"));
    assert!(
        desk.refusal(&target, &["mind"]).contains("the parts are files, git, conversation, memory, task")
    );
    let refused = |rewind: RewindRequest, parts: &[&str]| match desk.plan_of(rewind, parts).err() {
        Some(EngineError::Parts(error)) => error,
        other => panic!("{other:?}"),
    };
    let all = RewindRequest { all: true, ..RewindRequest::default() };
    assert_eq!(refused(all, &["files", "memory"]), PartsError::NeedsPoint("memory"));
    let point = || RewindRequest { target: Some(target.clone()), ..RewindRequest::default() };
    let paths = RewindRequest { paths: vec!["a".into()], ..point() };
    assert_eq!(refused(paths.clone(), &["memory"]), PartsError::NeedsFiles("a path"));
    // A part of a repository would be worse than all of it or nothing.
    assert_eq!(refused(paths, &["git"]), PartsError::NeedsFiles("a path"));
    let everything = RewindRequest { everything: true, ..point() };
    assert_eq!(refused(everything, &["task"]), PartsError::NeedsFiles("\"everything\""));
}

/// How many messages the conversation of the newest checkpoint has.
fn said(desk: &Desk<'_>) -> u64 {
    conversation::len(desk.workspace.store(), desk.head_state().conversation).unwrap()
}

#[test]
fn an_undo_and_a_redo_restore_every_part_that_went_back() {
    for parts in [
        &["conversation", "reasoning"][..],
        &["conversation", "memory"],
        &["conversation", "task", "files"],
        &["conversation", "memory", "task", "reasoning", "files"],
    ] {
        with_desk(|desk, target| {
            let expect = |went: bool, what: &str| {
                let slots = desk.session("one").info.slots;
                let (now, has) = (desk.head_state(), |part: &str| went && parts.contains(&part));
                let word = |part| if has(part) { "old" } else { "new" };
                let notes = if has("reasoning") { 1 } else { 2 };
                let expected = state(word("memory"), word("task"), notes, word("files"));
                assert_eq!(desk.all(), expected, "{what} of {parts:?}");
                assert_eq!(said(desk), if went { 1 } else { 2 }, "{what} of {parts:?}");
                for (part, of_state, of_session) in [
                    ("memory", now.memory, slots.memory),
                    ("task", now.task, slots.task),
                    ("reasoning", now.reasoning, slots.reasoning),
                ] {
                    if !went || has(part) {
                        assert_eq!(of_state, of_session, "{part} after {what} of {parts:?}");
                    }
                }
            };
            desk.rewind(target, parts);
            expect(true, "rewind");
            for _ in 0..2 {
                desk.undo();
                expect(false, "undo");
                desk.redo();
                expect(true, "redo");
            }
        });
    }
}

#[test]
fn rewinds_of_a_conversation_are_undone_one_after_the_other() {
    with_desk(|desk, first| {
        let second = desk.checkpoint("second");
        // Something is said, and no file changes.
        desk.report("one", |report| {
            let lines = vec!["{\"text\":\"more\"}".to_owned()];
            report.messages = Some(NewMessages { lines, ..NewMessages::default() });
        });
        desk.rewind(&second, &["conversation"]);
        desk.rewind(first, &["conversation", "reasoning"]);
        assert_eq!(said(desk), 1);
        desk.undo();
        assert_eq!(said(desk), 2, "as the first rewind left it");
        desk.undo();
        assert_eq!(said(desk), 3, "as the agent left it");
        desk.redo();
        assert_eq!(said(desk), 2);
        desk.redo();
        assert_eq!(said(desk), 1);
    });
}

#[test]
fn the_plan_of_an_undo_or_redo_says_what_happens_to_each_part() {
    with_desk(|desk, target| {
        desk.rewind(target, &["conversation", "memory", "task", "reasoning"]);
        let planned = |request: &MoveRequest| {
            let planned = desk.workspace.plan_move(request).unwrap();
            let parts = planned.parts().iter();
            parts.map(|part| (part.part.as_str(), part.changes.join("; "))).collect::<Vec<_>>()
        };
        let (reached, undo) = (desk.all(), planned(&MoveRequest::undo()));
        assert_eq!(undo[0], ("conversation", "2 of 2 recorded messages".to_owned()));
        assert_eq!(undo[1].0, "reasoning");
        assert!(undo[1].1.contains("new"), "{undo:?}");
        assert_eq!(undo[2].0, "task");
        assert_eq!(undo[3], ("memory", "plan becomes \"new\" instead of \"old\"".to_owned()));
        assert_eq!(desk.all(), reached, "a plan changes nothing");
        desk.undo();
        let redo = planned(&MoveRequest::from_user(MoveAction::Redo));
        assert_eq!(redo[0], ("conversation", "1 of 2 recorded messages".to_owned()));
        assert_eq!(redo.len(), 4, "{redo:?}");
        assert!(redo.contains(&("memory", "plan becomes \"old\" instead of \"new\"".to_owned())), "{redo:?}");
    });
}
