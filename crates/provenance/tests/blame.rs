//! Lines and the calls that wrote them, in sessions that are recorded without a process around them.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::fs;

use stepback_engine::Workspace;
use stepback_engine::authorship::Attribution;
use stepback_engine::recorder::{CallFacts, ChangeScope, RecordedStep, ReportedEvent, ScanPolicy};
use stepback_engine::rewind::RewindRequest;
use stepback_model::event::AgentEvent;
use stepback_model::path::RelPath;
use stepback_model::record::{Annotation, StepKind, Trigger};
use stepback_model::time::Timestamp;
use stepback_provenance::{Blame, BlameRequest, OriginKind, ProvenanceError, blame};
use stepback_testkit::TestWorkspace;
use stepback_testkit::test_workspace::START;

/// A workspace in which sessions make calls.
struct Place {
    place: TestWorkspace,
    workspace: Workspace,
    calls: std::cell::Cell<i64>,
}

impl Place {
    fn new() -> Self {
        let place = TestWorkspace::in_memory();
        let workspace = place.engine().open_workspace_root(&place.root).unwrap();
        Self { place, workspace, calls: std::cell::Cell::new(0) }
    }

    fn record(&self, session: &str, kind: StepKind, path: Option<&str>) -> RecordedStep {
        let number = self.calls.get();
        let (policy, call) = match kind {
            StepKind::ToolStart => (ScanPolicy::Before, format!("c{number}")),
            _ => (ScanPolicy::After, format!("c{number}")),
        };
        let event = AgentEvent {
            key: Some(call.clone()),
            call: Some(call),
            tool: Some(if path.is_some() { "Edit" } else { "Bash" }.to_owned()),
            ..AgentEvent::new("test", session, kind, format!("{} {number}", kind.as_str()))
        };
        let at = Timestamp::from_micros(START + number * 1_000_000);
        let call = match path {
            Some(path) => {
                CallFacts { paths: vec![path.into()], scope: ChangeScope::NamedPaths, ..CallFacts::default() }
            }
            None => CallFacts::default(),
        };
        let report = ReportedEvent { scan_policy: policy, call, ..ReportedEvent::new(event, at) };
        let lock = self.workspace.lock_recording().unwrap();
        self.workspace.record(&lock, &report).unwrap()
    }

    /// A call of an editing tool that writes a file.
    fn edit(&self, session: &str, path: &str, text: &str) -> u64 {
        self.calls.set(self.calls.get() + 1);
        self.record(session, StepKind::ToolStart, Some(path));
        self.place.write(path, text);
        self.record(session, StepKind::ToolEnd, Some(path)).number
    }

    /// A call of a shell, which names no path.
    fn shell(&self, session: &str, command: impl FnOnce()) -> u64 {
        self.calls.set(self.calls.get() + 1);
        self.record(session, StepKind::ToolStart, None);
        command();
        self.record(session, StepKind::ToolEnd, None).number
    }

    fn checkpoint(&self) -> u64 {
        let made = self.workspace.create_checkpoint(Annotation::default(), Trigger::Manual).unwrap();
        made.stored.step.number
    }

    fn try_blame(&self, path: &str, at: Option<u64>) -> Result<Blame, ProvenanceError> {
        let at = at.map(|number| {
            let store = self.workspace.store();
            store.step_numbered(self.workspace.record.id, number).unwrap().unwrap()
        });
        let path = RelPath::parse(path.as_bytes()).unwrap();
        blame::blame(&self.workspace, &BlameRequest { path, at, lines: None })
    }

    fn blame(&self, path: &str) -> Blame {
        self.try_blame(path, None).unwrap()
    }

    /// The lines of a file, each with the step that wrote it and who that was.
    fn lines(&self, path: &str) -> Vec<String> {
        let blame = self.blame(path);
        assert_eq!(blame.lines.len(), blame.count);
        blame.lines.iter().map(|line| self.describe(&blame, line.number)).collect()
    }

    fn describe(&self, blame: &Blame, number: usize) -> String {
        let line = &blame.lines[number - 1];
        let origin = &blame.origins[line.origin];
        let who = match (&origin.kind, &origin.who) {
            (OriginKind::BeforeRecording, _) => "before".to_owned(),
            (OriginKind::Restored, _) => "restored".to_owned(),
            (_, Attribution::Unreported) => "you".to_owned(),
            (_, Attribution::Call(author)) => {
                let session = self.workspace.store().session(author.session).unwrap().unwrap();
                let named = if origin.is_named { "" } else { "~" };
                format!("{named}{}", session.info.external.unwrap())
            }
            (_, Attribution::OneOf(authors)) => format!("one of {}", authors.len()),
        };
        let step = origin.step.as_ref().map_or("now".to_owned(), |stored| format!("#{}", stored.step.number));
        format!("{} {who} {step}", String::from_utf8_lossy(&line.text).trim())
    }
}

#[test]
fn each_line_has_its_author() {
    let place = Place::new();
    place.place.write("code", "old\nkept\n");
    let first = place.checkpoint();
    let one = place.edit("one", "code", "old\nby one\nkept\n");
    let two = place.shell("two", || place.place.write("code", "old\nby one\nkept\nby two\n"));
    place.place.write("code", "old\nby one\nkept\nby two\nby me\n");
    let mine = place.checkpoint();
    place.place.write("code", "now\nold\nby one\nkept\nby two\nby me\n");
    assert_eq!(
        place.lines("code"),
        [
            "now you now".to_owned(),
            format!("old before #{first}"),
            format!("by one one #{one}"),
            format!("kept before #{first}"),
            format!("by two ~two #{two}"),
            format!("by me you #{mine}"),
        ]
    );
    // As it was then.
    let then = place.try_blame("code", Some(one)).unwrap();
    assert_eq!(then.count, 3);
    assert_eq!(place.describe(&then, 2), format!("by one one #{one}"));
    // Numbers of lines then, and now.
    let now = place.blame("code");
    assert_eq!((now.lines[2].number, now.lines[2].original), (3, 2));
}

#[test]
fn lines_are_followed_through_renames_formatters_and_moves() {
    let place = Place::new();
    place.checkpoint();
    let body = "fn answer(first: u64) {\n    let sum_of_everything = first + 42;\n    return sum_of_everything;\n}\n";
    let written = place.edit("one", "a.rs", &format!("// head\n{body}// tail\n"));
    // Renamed without a change, then with one.
    place.shell("two", || fs::rename(place.place.path("a.rs"), place.place.path("b.rs")).unwrap());
    place.shell("two", || {
        fs::rename(place.place.path("b.rs"), place.place.path("c.rs")).unwrap();
        place.place.write("c.rs", &format!("// head\n{body}// other tail\n"));
    });
    let by_one = |line: &String| line.ends_with(&format!(" one #{written}"));
    let lines = place.lines("c.rs");
    assert!(lines[..5].iter().all(by_one), "{lines:#?}");
    assert!(lines[5].contains("two"), "{lines:#?}");
    // Formatted.
    let formatted = place.shell("two", || {
        let text =
            place.place.read("c.rs").replace("    ", "\t").replace("(first: u64)", "(\n\tfirst: u64,\n)");
        place.place.write("c.rs", &text);
    });
    let blame = place.blame("c.rs");
    let lines = place.lines("c.rs");
    assert!(lines[..7].iter().all(by_one), "{lines:#?}");
    assert_eq!(blame.lines[2].formatted, Some(formatted));
    assert_eq!(blame.lines[0].formatted, None);
    // The block is cut from one file and pasted into another, by one call and by two.
    let text = place.place.read("c.rs");
    let block: String = text.split_inclusive('\n').skip(1).take(6).collect();
    place.place.write("d.rs", "");
    let moved = place.shell("two", || {
        place.place.write("c.rs", &text.replace(&block, ""));
        place.place.write("d.rs", &format!("// moved\n{block}"));
    });
    let lines = place.lines("d.rs");
    assert!(lines[1..].iter().all(by_one) && lines[0].contains("two"), "{lines:#?}");
    assert_eq!(place.blame("d.rs").lines[1].moved, Some(moved));
    place.edit("three", "d.rs", "// moved\n");
    place.edit("three", "e.rs", &block);
    let lines = place.lines("e.rs");
    assert!(lines.iter().all(by_one), "{lines:#?}");
    // Another session that writes the same text wrote it.
    place.edit("three", "e.rs", "gone\n");
    let again = place.edit("four", "f.rs", &block);
    let lines = place.lines("f.rs");
    assert!(lines.iter().all(|line| line.ends_with(&format!("four #{again}"))), "{lines:#?}");
}

#[test]
fn a_rewind_writes_no_line() {
    let place = Place::new();
    place.place.write("code", "base\n");
    place.checkpoint();
    let written = place.edit("one", "code", "base\nby one\n");
    let good = place.workspace.head().unwrap();
    place.edit("two", "code", "spoiled\n");
    let request = RewindRequest { target: Some(good), everything: true, ..RewindRequest::default() };
    place.workspace.apply_rewind(place.workspace.prepare_rewind(&request).unwrap()).unwrap();
    assert_eq!(place.place.read("code"), "base\nby one\n");
    let lines = place.lines("code");
    assert!(lines[0].contains("before") && lines[1] == format!("by one one #{written}"), "{lines:#?}");
}

#[test]
fn what_has_no_lines_says_why() {
    let place = Place::new();
    place.place.write("text", "one\r\ntwo");
    place.place.write("binary", "a\0b");
    place.place.write("empty", "");
    place.place.write("dir/file", "x\n");
    std::os::unix::fs::symlink("text", place.place.path("link")).unwrap();
    let first = place.checkpoint();
    assert_eq!(place.lines("text").len(), 2);
    assert_eq!(place.lines("empty").len(), 0);
    assert!(matches!(place.try_blame("binary", None), Err(ProvenanceError::NotText(_))));
    assert!(matches!(
        place.try_blame("dir", None),
        Err(ProvenanceError::NotAFile { what: "a directory", .. })
    ));
    assert!(matches!(place.try_blame("link", Some(first)), Err(ProvenanceError::NotAFile { .. })));
    assert!(matches!(place.try_blame("never", None), Err(ProvenanceError::NoFile { last: None, .. })));
    fs::remove_file(place.place.path("text")).unwrap();
    let gone = place.checkpoint();
    match place.try_blame("text", None) {
        Err(ProvenanceError::NoFile { last, .. }) => assert_eq!(last, Some(first)),
        other => panic!("{other:?}"),
    }
    assert!(matches!(place.try_blame("text", Some(gone)), Err(ProvenanceError::NoFile { .. })));
    assert_eq!(place.try_blame("text", Some(first)).unwrap().count, 2);
    let path = RelPath::parse("empty".as_bytes()).unwrap();
    let request = BlameRequest { path, at: None, lines: Some(1..=1) };
    assert!(matches!(blame::blame(&place.workspace, &request), Err(ProvenanceError::NoLine { .. })));
}
