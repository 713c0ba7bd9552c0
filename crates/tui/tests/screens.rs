//! What is on the screen, in every view and at three sizes, and that nothing on it harms a terminal.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use crossterm::event::KeyCode;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use stepback_api::page::Page;
use stepback_api::plans::PlanDocument;
use stepback_api::reasoning::{BoardDocument, BoardPartDocument, ConfidenceDocument};
use stepback_api::search::{SearchHitDocument, SearchResultsDocument};
use stepback_api::state::StateDocument;
use stepback_api::steps::StepDetailDocument;
use stepback_api::timeline::BranchLinesDocument;
use stepback_model::time::Timestamp;
use stepback_tui::app::{App, View};
use stepback_tui::draw::{TerminalCapabilities, draw};
use stepback_tui::effect::{AppEffect, AppMessage, SourceResponse, StepsAround};
use stepback_tui::source::SourceError;

/// 2026-01-02T03:04:05Z.
const NOW: i64 = 1_767_323_045_000_000;
const FULL: TerminalCapabilities = TerminalCapabilities { colors: true, unicode: true };

/// Reads a document; fields that are left out have their defaults.
fn of<T: Default + Serialize + DeserializeOwned>(value: Value) -> T {
    fn fill(whole: &mut Value, value: Value) {
        match (whole, value) {
            (Value::Object(whole), Value::Object(fields)) => {
                fields
                    .into_iter()
                    .for_each(|(name, field)| fill(whole.entry(name).or_insert(Value::Null), field));
            }
            (whole, value) => *whole = value,
        }
    }
    let mut whole = serde_json::to_value(T::default()).unwrap();
    fill(&mut whole, value);
    serde_json::from_value(whole).unwrap()
}

/// Reads a list of documents like [`of`].
fn list<T: Default + Serialize + DeserializeOwned>(values: Value) -> Vec<T> {
    let Value::Array(values) = values else { panic!("{values} is not a list") };
    values.into_iter().map(of).collect()
}

fn page<T: Default + Serialize + DeserializeOwned>(values: Value) -> Page<T> {
    Page::whole(list(values))
}

fn came(app: &mut App, came: SourceResponse) -> Vec<AppEffect> {
    app.update(AppMessage::Response(Box::new(came)))
}

fn press(app: &mut App, key: char) -> Vec<AppEffect> {
    app.update(AppMessage::Key(if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) }, false))
}

fn sessions() -> Value {
    json!([
        { "id": "4f2a91c07d3e", "workspace": "w1", "agent": "claude", "title": "make the tests pass", "started_at": "2026-01-02T03:00:00Z", "status": "stopped", "iterations": 7, "cost_usd": 0.42 },
        { "id": "91c0aa12bb34", "workspace": "w1", "agent": "stepback", "title": "größere Änderung: 日本語のタイトル and a title that is much longer than the line has room for", "started_at": "2026-01-02T02:00:00Z", "status": "active", "iterations": 12, "cost_usd": 0.0 },
        { "id": "0011223344", "workspace": "w2", "agent": "codex", "title": null, "started_at": "2025-12-30T03:00:00Z", "status": "ended", "iterations": 1, "cost_usd": 1.5 },
    ])
}

fn steps() -> Value {
    let step = |number: u64, kind: &str, summary: &str, more: Value| {
        let mut step = json!({
            "id": format!("id{number}"), "number": number, "kind": kind, "summary": summary, "session": "4f2a91c07d3e",
            "at": format!("2026-01-02T03:00:{:02}Z", number), "iteration": 1, "parent": format!("id{}", number - 1),
        });
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        step
    };
    json!([
        step(1, "agent-step", "session started (startup)", json!({})),
        step(2, "user-input", "make the tests pass", json!({})),
        step(3, "model-start", "claude-sonnet", json!({})),
        step(4, "model-end", "calls Bash", json!({ "duration_us": 2_300_000 })),
        step(
            5,
            "tool-start",
            "Bash: make test",
            json!({ "tool": "Bash", "checkpoint": true, "label": "before" })
        ),
        step(
            6,
            "tool-end",
            "Bash: make test \u{1b}[2Jclear",
            json!({ "tool": "Bash", "failed": true, "duration_us": 59_000_000u64, "worker": "tester" })
        ),
        step(
            7,
            "tool-end",
            "Write: made.txt",
            json!({ "tool": "Write", "checkpoint": true, "duration_us": 12_000 })
        ),
    ])
}

/// The items on the board at the last step, by kind.
fn board_parts() -> Value {
    let item = |id: &str, status: &str, text: &str, more: Value| {
        let mut item = json!({ "id": id, "status": status, "text": text, "origin": { "step": 6 } });
        item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        item
    };
    let link = |to: &str, how: &str| json!([{ "to": to, "how": how }]);
    json!([
        { "name": "hypotheses", "total": 2, "items": [
            item("H1", "testing", "the cache is read before it is written", json!({ "confidence": 0.94, "alone": 0.5, "tags": ["cache"], "change": "changed" })),
            item("H2", "rejected", "the clock is wrong \u{1b}[2J", json!({ "confidence": 0.18, "alone": 0.5, "more": "the test fails with a fixed clock" })),
        ] },
        { "name": "evidence", "total": 2, "items": [
            item("E2", "in-force", "the log has the old value", json!({ "strength": 0.4, "sort": "observation", "links": link("H1", "for"), "source": { "kind": "tool", "text": "Bash", "step": 6 }, "change": "added" })),
            item("E1", "in-force", "it fails without the cache as well", json!({ "strength": -0.5, "sort": "test", "links": link("H2", "for") })),
        ] },
        { "name": "contradictions", "total": 1, "items": [
            item("C1", "open", "a time cannot be 10 and 12", json!({ "weight": "high", "sort": "detected", "more": "measure it again", "links": [{ "to": "B1", "how": "contradicts" }, { "to": "B2", "how": "contradicts" }] })),
        ] },
        { "name": "beliefs", "total": 2, "items": [
            item("B1", "held", "the key has the time", json!({ "confidence": 0.9, "alone": 0.9, "sort": "observation" })),
            item("B2", "held", "so entries of yesterday are not found", json!({ "confidence": 0.72, "alone": 0.8, "sort": "inference", "links": [{ "to": "B1", "how": "derived-from", "strength": 1.0, "reason": "by its code" }] })),
        ] },
        { "name": "gaps", "total": 1, "items": [
            item("G1", "open", "since when does it fail?", json!({ "weight": "high", "sort": "cause", "links": link("H1", "blocks") })),
        ] },
        { "name": "verifications", "total": 1, "items": [item("V1", "failed", "make test", json!({ "more": "exit code 2 instead of 0" }))] },
        { "name": "runs", "total": 1, "items": [] },
        { "name": "notes", "total": 250, "items": [item("N250", "noted", "ask about the format", json!({}))] },
        { "name": "experiments", "total": 0, "items": [] },
    ])
}

/// What was thought by the last step.
fn mind() -> BoardDocument {
    let part = |part: &Value| BoardPartDocument {
        items: list(part["items"].clone()),
        ..of(json!({ "name": part["name"], "total": part["total"] }))
    };
    BoardDocument {
        step: Some(of(json!({ "number": 7, "summary": "E2 was added" }))),
        changed: 2,
        changes: list(json!([
            { "item": "H1", "change": "changed", "sentence": "H1 rose from 0.82 to 0.94 after E2" },
            { "item": "E2", "change": "added", "sentence": "E2 was added for H1 (+0.4): the log has the old value" },
        ])),
        next: list(
            json!([{ "item": "G1", "what": "answer: since when does it fail?", "why": "it is high and blocks H1" }]),
        ),
        parts: board_parts().as_array().unwrap().iter().map(part).collect(),
        ..BoardDocument::default()
    }
}

/// A session is open, and an agent waits.
fn app(columns: u16, rows: u16) -> App {
    let mut app = App::new((columns, rows), Timestamp::from_micros(NOW));
    app.start(None);
    came(&mut app, SourceResponse::Sessions(Ok(page(sessions())), None));
    let stops = json!([{
        "id": "stop1", "workspace": "w1", "session": "4f2a91c07d3e", "agent": "claude", "tool": "Bash",
        "input": { "command": "rm -rf build", "timeout": 60 }, "reason": "breakpoint 1: tool bash", "step": 7,
        "until": "2026-01-02T03:05:00Z",
    }]);
    came(&mut app, SourceResponse::Stops(Ok(page(stops))));
    app
}

fn opened(columns: u16, rows: u16) -> App {
    let mut app = app(columns, rows);
    let session = sessions()[0].clone();
    let around = StepsAround { number: 7, steps: list(steps()), has_first: true, has_last: true };
    press(&mut app, '\n');
    let effects = came(&mut app, SourceResponse::Session(Ok((of(session), around))));
    answer(&mut app, effects);
    let breakpoints = json!([
        { "id": 1, "description": "tool bash", "enabled": true, "hits": 3 },
        { "id": 2, "description": "path src/**", "condition": "rm", "enabled": false, "hits": 0, "log": true },
    ]);
    came(&mut app, SourceResponse::Breakpoints(Ok(page(breakpoints))));
    app
}

/// Lets what was asked for come.
fn answer(app: &mut App, effects: Vec<AppEffect>) {
    for effect in effects {
        match effect {
            AppEffect::Step { key, step, .. } => {
                let detail = StepDetailDocument {
                    position: None,
                    step: *step,
                    input: Some(json!({ "path": "made.txt", "content": "one\ntwo\n" })),
                    output: Some("\u{1b}]0;evil\u{7}ok".into()),
                    ..StepDetailDocument::default()
                };
                let changes = list(json!([{ "path": "made.txt", "kind": "created" }]));
                came(app, SourceResponse::Step(key, Ok(stepback_tui::write::step_rows(&detail, &changes))));
            }
            AppEffect::State { key, .. } => {
                let git = json!([{ "path": ".git", "branch": "main", "commit": "9c22da7e0123456789", "stashes": 1 }]);
                let items = json!([
                        { "path": "src", "type": "directory" },
                        { "path": "src/main.rs", "type": "file", "size": 1234 },
                        { "path": "made.txt", "type": "file", "size": 8 },
                        { "path": "link", "type": "symlink", "target": "made.txt" },
                        { "path": "big.bin", "type": "excluded", "reason": "too large" },
                ]);
                let state = StateDocument { git: list(git), items: list(items), ..StateDocument::default() };
                let changed = list(json!([{ "path": "made.txt", "kind": "created" }]));
                came(app, SourceResponse::State(key, Ok((Box::new(state), changed))));
            }
            AppEffect::Lines(session) => {
                let stretch = |first: u64, last: u64, branch: &str, left: bool| json!({ "first": first, "last": last, "branch": branch, "rolled_back": left });
                let stretches = list(json!([
                    stretch(1, 3, "main", false),
                    stretch(4, 5, "main", true),
                    stretch(6, 7, "plan-b", false),
                ]));
                let lines = BranchLinesDocument { branches: Vec::new(), stretches };
                came(app, SourceResponse::Lines(session, Ok(lines)));
            }
            AppEffect::Board { key, .. } => {
                let mind = mind();
                let effects = came(
                    app,
                    SourceResponse::Board(key, Ok(stepback_tui::app::BoardView::from_document(&mind))),
                );
                answer(app, effects);
            }
            AppEffect::Confidence { key, .. } => {
                let lines = list(json!([
                    { "hypothesis": "H1", "at": [0, 2, 3], "confidence": [0.5, 0.82, 0.94] },
                    { "hypothesis": "H2", "at": [1, 3], "confidence": [0.5, 0.18] },
                ]));
                let confidence =
                    ConfidenceDocument { number: vec![3, 4, 6, 7], lines, ..ConfidenceDocument::default() };
                came(app, SourceResponse::Confidence(key, Ok(confidence)));
            }
            AppEffect::Diff { key, .. } => {
                let text = "--- a/made.txt\n+++ b/made.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n";
                let changes = list(
                    json!([{ "path": "made.txt", "kind": "modified", "text": text }, { "path": "b.bin", "kind": "modified" }]),
                );
                came(
                    app,
                    SourceResponse::Diff(
                        key,
                        Ok(stepback_tui::write::diff_rows("what #7 changed", &changes, false)),
                    ),
                );
            }
            _ => {}
        }
    }
}

fn screen(app: &App, look: TerminalCapabilities) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(app.size.0, app.size.1)).unwrap();
    terminal.draw(|frame| draw(app, frame, look)).unwrap();
    terminal
}

fn text(app: &App, look: TerminalCapabilities) -> String {
    let terminal = screen(app, look);
    let buffer = terminal.backend().buffer();
    let mut out = String::new();
    for y in 0..buffer.area.height {
        let mut skip = 0;
        let mut line = String::new();
        for x in 0..buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            if skip == 0 {
                line.push_str(symbol);
                skip = unicode_width::UnicodeWidthStr::width(symbol).saturating_sub(1);
            } else {
                skip -= 1;
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Every view, one after another.
fn views(columns: u16, rows: u16) -> String {
    let mut all = String::new();
    let mut app = opened(columns, rows);
    for view in View::ALL {
        let effects = app.update(AppMessage::Key(KeyCode::Char(char::from(b'1' + view as u8)), false));
        answer(&mut app, effects);
        all.push_str(&format!("== {view:?}\n{}", text(&app, FULL)));
    }
    press(&mut app, '?');
    all.push_str(&format!("== Help\n{}", text(&app, FULL)));
    press(&mut app, 'z');
    let plan = PlanDocument {
        kind: "rewind".into(),
        summary: "Rewind to #5 \"before\"".into(),
        items: list(
            json!([{ "path": "made.txt", "action": "delete" }, { "path": "src/main.rs", "action": "restore" }]),
        ),
        left_alone: list(json!([{ "path": "notes", "reason": "it was edited since (by you)" }])),
        kept: list(json!([{ "path": "todo.md", "by": "you" }])),
        everything_changes: vec!["todo.md".into()],
        ..PlanDocument::default()
    };
    came(&mut app, SourceResponse::Plan(Ok(plan), Some("#5".into())));
    all.push_str(&format!("== Plan\n{}", text(&app, FULL)));
    app.update(AppMessage::Key(KeyCode::Esc, false));
    press(&mut app, '/');
    all.push_str(&format!("== Prompt\n{}", text(&app, FULL)));
    app.update(AppMessage::Key(KeyCode::Esc, false));
    let mut hits: Vec<SearchHitDocument> = list(
        json!([{ "number": 6, "kind": "tool-end", "session": "4f2a91c07d3e", "agent": "claude", "summary": "Bash" }]),
    );
    hits[0].snippets = list(json!([{ "text": "make test failed" }]));
    let hits =
        SearchResultsDocument { items: hits, total: 1, complete: true, ..SearchResultsDocument::default() };
    came(&mut app, SourceResponse::SearchHits("test".into(), Ok(hits)));
    all.push_str(&format!("== Found\n{}", text(&app, FULL)));
    all
}

#[test]
fn every_view_at_80_by_24() {
    insta::assert_snapshot!(views(80, 24));
}

#[test]
fn every_view_at_120_by_40() {
    insta::assert_snapshot!(views(120, 40));
}

#[test]
fn every_view_at_40_by_12() {
    insta::assert_snapshot!(views(40, 12));
}

#[test]
fn a_terminal_that_is_too_small_says_so_and_none_is_too_small_to_draw() {
    for (columns, rows) in [(20, 6), (1, 1), (0, 0), (35, 24), (200, 3)] {
        let small = text(&opened(columns, rows), FULL);
        if columns >= 20 {
            assert!(small.replace('\n', " ").contains("Too small"), "{columns}x{rows}: {small}");
        }
    }
}

#[test]
fn without_colours_and_unicode_everything_is_still_said() {
    let plain = TerminalCapabilities { colors: false, unicode: false };
    let mut app = opened(120, 40);
    for view in View::ALL {
        let effects = app.update(AppMessage::Key(KeyCode::Char(char::from(b'1' + view as u8)), false));
        answer(&mut app, effects);
        let terminal = screen(&app, plain);
        for cell in &terminal.backend().buffer().content {
            assert!(cell.symbol().is_ascii(), "{view:?}: {:?}", cell.symbol());
            assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset), "{view:?}");
        }
    }
    app.update(AppMessage::Key(KeyCode::Char('2'), false));
    let shown = text(&app, plain);
    assert!(shown.contains("> * #7") && shown.contains("! #6") && shown.contains("failed:"), "{shown}");
}

#[test]
fn nothing_that_was_recorded_acts_on_the_terminal() {
    let hostile = "\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m\r\u{202e}\u{200b}\u{e0041}";
    let mut app = App::new((100, 30), Timestamp::from_micros(NOW));
    let mut session = sessions()[0].clone();
    session["title"] = hostile.into();
    session["agent"] = hostile.into();
    came(&mut app, SourceResponse::Sessions(Ok(page(json!([session]))), None));
    let mut hostile_steps = steps();
    for step in hostile_steps.as_array_mut().unwrap() {
        for name in ["summary", "kind", "label", "worker", "tool", "note"] {
            step[name] = hostile.into();
        }
    }
    let around = StepsAround { number: 7, steps: list(hostile_steps), has_first: true, has_last: true };
    let effects = came(&mut app, SourceResponse::Session(Ok((of(session), around))));
    answer(&mut app, effects);
    let stops = json!([{ "id": "x", "session": "4f2a91c07d3e", "agent": hostile, "tool": hostile, "reason": hostile, "input": { hostile: hostile } }]);
    came(&mut app, SourceResponse::Stops(Ok(page(stops))));
    came(
        &mut app,
        SourceResponse::Breakpoints(Ok(page(
            json!([{ "id": 1, "description": hostile, "condition": hostile }]),
        ))),
    );
    for view in View::ALL {
        let effects = app.update(AppMessage::Key(KeyCode::Char(char::from(b'1' + view as u8)), false));
        answer(&mut app, effects);
        came(&mut app, SourceResponse::CommandDone(Err(SourceError::NoResponse(hostile.into()))));
        for cell in &screen(&app, FULL).backend().buffer().content {
            assert!(
                !cell.symbol().chars().any(stepback_model::escape::is_hidden),
                "{view:?}: {:?}",
                cell.symbol()
            );
        }
        press(&mut app, 'z');
    }
    let hits =
        json!([{ "number": 6, "kind": hostile, "session": hostile, "agent": hostile, "summary": hostile }]);
    let hits = SearchResultsDocument { items: list(hits), total: 1, ..SearchResultsDocument::default() };
    came(&mut app, SourceResponse::SearchHits(hostile.into(), Ok(hits)));
    for cell in &screen(&app, FULL).backend().buffer().content {
        assert!(!cell.symbol().chars().any(stepback_model::escape::is_hidden), "{:?}", cell.symbol());
    }
}
