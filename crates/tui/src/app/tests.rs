//! Tests of the state: messages in, effects out, without a terminal or a source.

use crossterm::event::KeyCode;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;
use stepback_api::blame::{BlameDocument, BlamedLineDocument, LineAuthorDocument, LineOriginDocument};
use stepback_api::control::BreakpointDocument;
use stepback_api::files::{FileDocument, NodeDocument};
use stepback_api::operations::OperationDocument;
use stepback_api::page::Page;
use stepback_api::plans::{AppliedPlanDocument, ChangeOutcomeDocument, PlannedChangeDocument};
use stepback_api::problem::ProblemDocument;
use stepback_api::search::{FoundStepDocument, SearchHitDocument};
use stepback_api::state::StateDocument;
use stepback_api::timeline::BranchSpanDocument;

use super::window::WindowSide;
use super::*;
use crate::draw::{TerminalCapabilities, draw};
use crate::effect::{CommandMethod, SourceResponse, StepsAround, TuiCommand};
use crate::source::SourceError;

fn steps(numbers: std::ops::RangeInclusive<u64>) -> Vec<StepDocument> {
    let step = |number: u64| StepDocument {
        id: format!("id{number}"),
        number,
        kind: if number.is_multiple_of(2) { "tool-end" } else { "tool-start" }.into(),
        at: Timestamp::from_micros(1_700_000_000_000_000 + number as i64 * 1_000_000),
        session: "s1".into(),
        failed: number.is_multiple_of(50),
        checkpoint: true,
        parent: Some(format!("id{}", number - 1)),
        ..StepDocument::default()
    };
    numbers.map(step).collect()
}

fn session() -> SessionDocument {
    SessionDocument {
        id: "s1".into(),
        workspace: "w1".into(),
        agent: "claude".into(),
        status: "active".into(),
        ..SessionDocument::default()
    }
}

/// Returns an app with a session of these steps open, at the last of them.
fn app_with_session(numbers: std::ops::RangeInclusive<u64>, ends: bool) -> App {
    let mut app = App::new((80, 24), Timestamp::from_micros(0));
    app.start(Some("s1".into()));
    let around =
        StepsAround { number: *numbers.end(), steps: steps(numbers), has_first: true, has_last: ends };
    respond(&mut app, SourceResponse::Session(Ok((session(), around))));
    app
}

fn respond(app: &mut App, came: SourceResponse) -> Vec<AppEffect> {
    app.update(AppMessage::Response(Box::new(came)))
}

fn press_keys(app: &mut App, keys: &str) -> Vec<AppEffect> {
    let mut effects = Vec::new();
    for c in keys.chars() {
        let key = match c {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\x1b' => KeyCode::Esc,
            c => KeyCode::Char(c),
        };
        effects = app.update(AppMessage::Key(key, false));
    }
    effects
}

/// What is on the screen.
fn screen_text(app: &App) -> String {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let capabilities = TerminalCapabilities { colors: true, unicode: true };
    terminal.draw(|frame| draw(app, frame, capabilities)).unwrap();
    terminal.backend().to_string()
}

fn current_number(app: &App) -> u64 {
    app.current_step().map_or(0, |step| step.number)
}

fn notice_text(app: &App) -> &str {
    app.notice.as_ref().map_or("", |notice| &notice.text)
}

#[test]
fn keys_go_through_the_steps_and_say_where_it_ends() {
    let mut app = app_with_session(1..=120, true);
    assert_eq!((app.view, current_number(&app)), (View::Timeline, 120));
    press_keys(&mut app, "kkh");
    assert_eq!(current_number(&app), 117);
    press_keys(&mut app, "jl");
    assert_eq!(current_number(&app), 119);
    press_keys(&mut app, "ll");
    assert_eq!((current_number(&app), notice_text(&app)), (120, "this is the last step"));
    press_keys(&mut app, "E");
    assert_eq!(current_number(&app), 100);
    press_keys(&mut app, "E");
    press_keys(&mut app, "E");
    assert_eq!((current_number(&app), notice_text(&app)), (50, "no error before this step"));
    app.update(AppMessage::Key(KeyCode::Home, false));
    assert_eq!(current_number(&app), 1);
    press_keys(&mut app, "h");
    assert_eq!(notice_text(&app), "this is the first step");
    app.update(AppMessage::Wheel(true));
    assert_eq!(current_number(&app), 4);
}

#[test]
fn what_lies_beyond_is_asked_for() {
    let mut app = app_with_session(1..=400, false);
    let effects = app.update(AppMessage::Key(KeyCode::End, false));
    assert!(matches!(&effects[0], AppEffect::StepsAround { number, .. } if *number > 1 << 60));
    let effects = press_keys(&mut app, "e");
    assert_eq!(
        effects,
        [AppEffect::FindError { session: "s1".into(), side: WindowSide::After, number: 400 }]
    );
    let found = StepDocument { number: 9000, session: "s1".into(), ..StepDocument::default() };
    let effects = respond(&mut app, SourceResponse::FoundStep(Ok(found)));
    assert_eq!(effects, [AppEffect::StepsAround { session: "s1".into(), number: 9000 }]);
    let around = StepsAround { number: 9000, steps: steps(8910..=9090), has_first: false, has_last: false };
    let effects = respond(&mut app, SourceResponse::StepsAround("s1".into(), Ok(around)));
    assert_eq!(current_number(&app), 9000);
    // It is near both ends of the loaded steps; one side is requested at a time.
    assert_eq!(
        effects,
        [AppEffect::MoreSteps { session: "s1".into(), side: WindowSide::Before, number: 8910 }]
    );
}

#[test]
fn what_was_asked_for_another_step_is_not_shown() {
    let mut app = app_with_session(1..=10, true);
    let effects = press_keys(&mut app, "\n");
    let [AppEffect::Step { key, .. }] = &effects[..] else { panic!("{effects:?}") };
    let old = key.clone();
    press_keys(&mut app, "h");
    respond(&mut app, SourceResponse::Step(old, Ok(Vec::new())));
    assert!(app.step.value().is_none());
    let key = app.step.key().unwrap().to_owned();
    respond(&mut app, SourceResponse::Step(key, Ok(Vec::new())));
    assert!(app.step.value().is_some());
}

#[test]
fn a_rewind_is_planned_shown_agreed_to_and_undone() {
    let mut app = app_with_session(1..=10, true);
    press_keys(&mut app, "h");
    let effects = press_keys(&mut app, "w");
    assert_eq!(
        effects,
        [AppEffect::PlanRewind { workspace: "w1".into(), point: "#9".into(), everything: false }]
    );
    let plan = PlanDocument {
        kind: "rewind".into(),
        summary: "rewind to #9".into(),
        items: vec![PlannedChangeDocument {
            path: "a".into(),
            action: "restore".into(),
            ..PlannedChangeDocument::default()
        }],
        apply: "/api/v1/rewind-plans/p/apply".into(),
        ..PlanDocument::default()
    };
    respond(&mut app, SourceResponse::Plan(Ok(plan.clone()), Some("#9".into())));
    assert!(matches!(app.overlay, Overlay::Plan(_)));
    assert_eq!(press_keys(&mut app, "x"), [], "only y agrees");
    assert_eq!(press_keys(&mut app, "\n"), [], "only y agrees");
    let effects = press_keys(&mut app, "a");
    assert_eq!(
        effects,
        [AppEffect::PlanRewind { workspace: "w1".into(), point: "#9".into(), everything: true }]
    );
    assert_eq!(press_keys(&mut app, "y"), [AppEffect::Apply(plan.apply.clone())]);
    // Another process changed the files first: the new plan is shown and has to be confirmed.
    let problem = ProblemDocument {
        status: 409,
        detail: "something changed".into(),
        plan: Some(Box::new(plan.clone())),
        ..ProblemDocument::default()
    };
    respond(&mut app, SourceResponse::Applied(Err(SourceError::Refused(Box::new(problem)))));
    assert!(matches!(app.overlay, Overlay::Plan(_)));
    assert_eq!(notice_text(&app), "something changed");
    press_keys(&mut app, "y");
    let operation = OperationDocument { summary: "rewind to #9".into(), ..OperationDocument::default() };
    let items = vec![ChangeOutcomeDocument { done: true, ..ChangeOutcomeDocument::default() }];
    let applied = AppliedPlanDocument { operation, items, ..AppliedPlanDocument::default() };
    respond(&mut app, SourceResponse::Applied(Ok(applied)));
    assert_eq!(notice_text(&app), "rewind to #9: 1 path done; press u to undo");
    assert_eq!(press_keys(&mut app, "u"), [AppEffect::PlanUndo("w1".into())]);
    respond(&mut app, SourceResponse::Plan(Ok(plan), None));
    assert_eq!(press_keys(&mut app, "\x1b"), []);
    assert_eq!((&app.overlay, notice_text(&app)), (&Overlay::None, "nothing was changed"));
}

#[test]
fn an_agent_that_waits_is_answered() {
    let mut app = app_with_session(1..=10, true);
    let stop = StopDocument {
        id: "stop1".into(),
        session: "s1".into(),
        tool: "bash".into(),
        input: json!({ "command": "ls" }),
        ..StopDocument::default()
    };
    assert_eq!(
        app.update(AppMessage::SourceEvent(SourceEvent::Stops)),
        [AppEffect::Stops, AppEffect::Sessions]
    );
    respond(&mut app, SourceResponse::Stops(Ok(Page::whole(vec![stop]))));
    assert!(app.current_stop().is_some());
    let one = BreakpointDocument { id: 7, enabled: true, ..BreakpointDocument::default() };
    respond(&mut app, SourceResponse::Breakpoints(Ok(Page::whole(vec![one]))));
    press_keys(&mut app, "6");
    let sent = |effects: Vec<AppEffect>| match effects.as_slice() {
        [AppEffect::RunCommand(TuiCommand { method, path, body, .. })] => {
            (*method, path.clone(), body.clone())
        }
        other => panic!("{other:?}"),
    };
    let answer = "/stops/stop1/answer".to_owned();
    let resume = sent(press_keys(&mut app, "o"));
    assert_eq!(resume, (CommandMethod::Post, answer.clone(), json!({ "answer": "resume" })));
    assert_eq!(sent(press_keys(&mut app, "s")).2, json!({ "answer": "step" }));
    assert_eq!(sent(press_keys(&mut app, "dno\n")).2, json!({ "answer": "deny", "reason": "no" }));
    // The prompt starts with the present input. Invalid input is not sent, and not lost.
    press_keys(&mut app, "i");
    for _ in 0..5 {
        app.update(AppMessage::Key(KeyCode::Backspace, false));
    }
    assert_eq!(press_keys(&mut app, "\"pwd\n"), []);
    assert!(notice_text(&app).starts_with("invalid input"), "{}", notice_text(&app));
    assert_eq!(
        sent(press_keys(&mut app, "\"}\n")).2,
        json!({ "answer": "edit", "input": { "command": "pwd" } })
    );
    let inject = sent(press_keys(&mut app, "tbe quick\n"));
    assert_eq!(inject, (CommandMethod::Post, "/sessions/s1/inject".into(), json!({ "text": "be quick" })));
    press_keys(&mut app, "j");
    assert_eq!(
        sent(press_keys(&mut app, "\n")),
        (CommandMethod::Patch, "/workspaces/w1/breakpoints/7".into(), json!({ "enabled": false }))
    );
    assert_eq!(sent(press_keys(&mut app, "x")).0, CommandMethod::Delete);
    assert_eq!(press_keys(&mut app, "o"), []);
    assert!(notice_text(&app).contains("select a stopped agent"), "{}", notice_text(&app));
    // The prompt starts with "tool ".
    assert_eq!(sent(press_keys(&mut app, "abash\n")).2, json!({ "on": "tool", "name": "bash" }));
    let effects = press_keys(&mut app, "p");
    assert_eq!(effects, [AppEffect::Pause { session: "s1".into(), stop: false }], "who waits is let go on");
}

#[test]
fn what_is_typed_goes_where_it_belongs() {
    let mut app = app_with_session(1..=10, true);
    assert_eq!(
        press_keys(&mut app, "gerror:last\n"),
        [AppEffect::Resolve { session: "s1".into(), workspace: "w1".into(), point: "error:last".into() }]
    );
    press_keys(&mut app, "gfirst\n");
    assert_eq!(current_number(&app), 1);
    assert_eq!(press_keys(&mut app, "/rm q\n"), [AppEffect::Search("rm q".into())]);
    assert_eq!(press_keys(&mut app, "g\n"), []);
    let deed = |effects: Vec<AppEffect>| match effects.into_iter().next() {
        Some(AppEffect::RunCommand(deed)) => (deed.path, deed.body),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        deed(press_keys(&mut app, "btry\n")),
        ("/workspaces/w1/branches".into(), json!({ "name": "try", "from": "#1" }))
    );
    assert_eq!(
        deed(press_keys(&mut app, "c\n")),
        ("/workspaces/w1/checkpoints".into(), json!({ "label": null }))
    );
    assert_eq!(
        deed(press_keys(&mut app, "rmodel=x\n")),
        ("/sessions/s1/reruns".into(), json!({ "set": ["model=x"] }))
    );
    // While text is typed, keys insert themselves, q included.
    press_keys(&mut app, "bq");
    assert!(matches!(&app.overlay, Overlay::Prompt(prompt) if prompt.text() == "q"));
    press_keys(&mut app, "\x1b");
    assert_eq!(press_keys(&mut app, "q"), [AppEffect::Quit]);
    assert_eq!(app.update(AppMessage::Key(KeyCode::Char('c'), true)), [AppEffect::Quit]);
}

#[test]
fn what_was_found_is_opened_where_it_is() {
    let mut app = app_with_session(1..=10, true);
    let hit = |number| {
        let step = StepDocument { number, session: "s2".into(), ..StepDocument::default() };
        SearchHitDocument {
            found: FoundStepDocument { step, ..FoundStepDocument::default() },
            ..SearchHitDocument::default()
        }
    };
    let hits = SearchResultsDocument {
        items: vec![hit(3), hit(7)],
        total: 2,
        complete: true,
        ..SearchResultsDocument::default()
    };
    respond(&mut app, SourceResponse::SearchHits("x".into(), Ok(hits)));
    assert_eq!(press_keys(&mut app, "j\n"), [AppEffect::Open { session: "s2".into(), number: Some(7) }]);
    respond(&mut app, SourceResponse::SearchHits("x".into(), Ok(SearchResultsDocument::default())));
    assert_eq!(notice_text(&app), "no matches for x");
}

#[test]
fn new_steps_appear_and_a_source_that_goes_away_comes_back() {
    let mut app = app_with_session(1..=10, true);
    let more = AppEffect::MoreSteps { session: "s1".into(), side: WindowSide::After, number: 10 };
    assert_eq!(app.update(AppMessage::SourceEvent(SourceEvent::Step { session: "s1".into() })), [more]);
    assert_eq!(app.update(AppMessage::SourceEvent(SourceEvent::Step { session: "s2".into() })), []);
    respond(
        &mut app,
        SourceResponse::MoreSteps("s1".into(), WindowSide::After, Ok(Page::whole(steps(11..=12)))),
    );
    assert_eq!(current_number(&app), 12);
    app.update(AppMessage::SourceEvent(SourceEvent::Disconnected("it is gone".into())));
    assert!(app.source_error.is_some());
    let effects = app.update(AppMessage::SourceEvent(SourceEvent::Connected));
    assert!(app.source_error.is_none());
    assert!(
        effects.contains(&AppEffect::MoreSteps { session: "s1".into(), side: WindowSide::After, number: 12 }),
        "{effects:?}"
    );
    let missing =
        SourceError::Refused(Box::new(ProblemDocument { status: 404, ..ProblemDocument::default() }));
    respond(&mut app, SourceResponse::MoreSteps("s1".into(), WindowSide::After, Err(missing)));
    assert!(notice_text(&app).contains("no longer exists"), "{}", notice_text(&app));
    assert_eq!(current_number(&app), 12, "what was known stays");
}

#[test]
fn playing_takes_the_time_it_took_and_no_longer() {
    let mut app = app_with_session(1..=3, true);
    app.update(AppMessage::Key(KeyCode::Home, false));
    assert_eq!(app.time_until_next_step(), None);
    press_keys(&mut app, " ");
    assert_eq!(app.time_until_next_step(), Some(Duration::from_secs(1)));
    press_keys(&mut app, "+");
    assert_eq!(app.time_until_next_step(), Some(Duration::from_millis(500)));
    let tick = |app: &mut App, millis| app.update(AppMessage::Tick(app.now, Duration::from_millis(millis)));
    tick(&mut app, 499);
    assert_eq!(current_number(&app), 1);
    tick(&mut app, 500);
    assert_eq!((current_number(&app), app.time_until_next_step()), (2, Some(Duration::from_millis(500))));
    press_keys(&mut app, " ");
    assert_eq!(app.time_until_next_step(), None);
}

#[test]
fn a_state_is_gone_through_and_files_are_opened() {
    let mut app = app_with_session(1..=10, true);
    let effects = press_keys(&mut app, "4");
    let [AppEffect::State { key, .. }] = &effects[..] else { panic!("{effects:?}") };
    let entry = |path: &str, kind: &str| FileDocument {
        path: path.into(),
        address: path.into(),
        node: NodeDocument { kind: kind.into(), ..NodeDocument::default() },
    };
    let state = StateDocument {
        items: vec![entry("src", "directory"), entry("src/a", "file")],
        ..StateDocument::default()
    };
    respond(&mut app, SourceResponse::State(key.clone(), Ok((Box::new(state), Vec::new()))));
    press_keys(&mut app, "j");
    let effects = press_keys(&mut app, "\n");
    assert!(
        matches!(&effects[..], [AppEffect::File { number: 10, address, .. }] if address == "src/a"),
        "{effects:?}"
    );
    // Who wrote its lines.
    let effects = press_keys(&mut app, "o");
    let [AppEffect::Origins { key, number: 10, workspace, path }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((workspace.as_str(), path.as_str()), ("w1", "src/a"));
    let author = |session: &str| LineAuthorDocument {
        session: session.into(),
        agent: "cl\u{1b}[31maude".into(),
        ..LineAuthorDocument::default()
    };
    let origin = |step: u64, author: Option<LineAuthorDocument>| LineOriginDocument {
        kind: "change".into(),
        step: Some(step),
        author,
        ..LineOriginDocument::default()
    };
    let line = |number: u64, origin: u64| BlamedLineDocument {
        number,
        origin,
        text: format!("line {number}"),
        ..BlamedLineDocument::default()
    };
    let blame = BlameDocument {
        lines: vec![line(1, 0), line(2, 0), line(3, 1), line(4, 2)],
        origins: vec![origin(3, Some(author("s1"))), origin(5, None), origin(7, Some(author("s2")))],
        ..BlameDocument::default()
    };
    respond(&mut app, SourceResponse::File(key.clone(), Ok(crate::write::origin_rows(&blame))));
    let screen = screen_text(&app);
    assert!(screen.contains("#3 cl\\u{1b}[31maude s1    │ line 1"), "{screen}");
    assert!(screen.contains("                              │ line 2"), "{screen}");
    assert!(screen.contains("#5 you                    │ line 3"), "{screen}");
    assert!(screen.contains("s2    │ line 4"), "{screen}");
    // Scrolled into a block, the first row says whose it is.
    press_keys(&mut app, "j");
    let screen = screen_text(&app);
    assert!(screen.contains("#3 cl\\u{1b}[31maude s1    │ line 2"), "{screen}");
    press_keys(&mut app, "o");
    // Moving in time while a file is open shows the file of that step.
    let effects = press_keys(&mut app, "h");
    assert!(matches!(&effects[..], [AppEffect::File { number: 9, .. }]), "{effects:?}");
    press_keys(&mut app, "\x1b");
    assert!(app.inspector.file.is_none() && app.view == View::State);
    let effects = press_keys(&mut app, "]");
    assert!(
        matches!(&effects[..], [AppEffect::Part { part: StatePart::Conversation, number: 9, .. }]),
        "{effects:?}"
    );
    press_keys(&mut app, "[");
    assert_eq!(app.inspector.part, StatePart::Files);
}

#[test]
fn without_a_session_nothing_is_done_and_it_is_said() {
    let mut app = App::new((80, 24), Timestamp::from_micros(0));
    assert_eq!(app.start(None), [AppEffect::Sessions, AppEffect::Stops]);
    for key in ["w", "b", "c", "r", "g", "p", "h", "l", "e", " ", "u"] {
        assert_eq!(press_keys(&mut app, key), [], "{key}");
        assert!(notice_text(&app).contains("no session is open"), "{key}: {}", notice_text(&app));
    }
    press_keys(&mut app, "~");
    assert_eq!(notice_text(&app), "~ does nothing here; ? shows the keys");
    for view in View::ALL {
        app.view = view;
        for key in ["j", "k", "\n", "\x1b", "]", "[", "m", "n", "o", "x", "?", "?"] {
            press_keys(&mut app, key);
        }
    }
}

#[test]
fn the_mouse_selects_opens_and_goes_to_views() {
    let mut app = app_with_session(1..=10, true);
    app.update(AppMessage::Click(5, 3));
    assert_eq!(current_number(&app), 2);
    app.update(AppMessage::Click(5, 3));
    assert_eq!(app.view, View::Step);
    app.update(AppMessage::Click(2, 0));
    assert_eq!(app.view, View::Sessions);
    app.update(AppMessage::Click(200, 200));
    app.update(AppMessage::Resize(1, 1));
    app.update(AppMessage::Click(0, 0));
}

#[test]
fn what_was_left_behind_is_asked_for_again_after_a_rewind() {
    let mut app = app_with_session(1..=10, true);
    let stretch = |first, last, branch: &str, rolled_back| BranchSpanDocument {
        first,
        last,
        branch: Some(branch.into()),
        rolled_back,
    };
    let lines = BranchLinesDocument {
        stretches: vec![stretch(1, 3, "main", false), stretch(5, 8, "main", true), stretch(9, 9, "b", false)],
        branches: Vec::new(),
    };
    respond(&mut app, SourceResponse::Lines("another".into(), Ok(lines.clone())));
    assert_eq!(app.open.as_ref().unwrap().lines, BranchLinesDocument::default(), "it is of another session");
    respond(&mut app, SourceResponse::Lines("s1".into(), Ok(lines)));
    let lines = &app.open.as_ref().unwrap().lines;
    let left = |number| lines.find_span(number).map(|stretch| stretch.rolled_back);
    assert_eq!(
        [left(3), left(4), left(5), left(8), left(9), left(10)],
        [Some(false), None, Some(true), Some(true), Some(false), None]
    );
    assert!(lines.is_branched());
    let effects = respond(
        &mut app,
        SourceResponse::Applied(Ok(AppliedPlanDocument {
            operation: OperationDocument::default(),
            ..AppliedPlanDocument::default()
        })),
    );
    assert!(effects.contains(&AppEffect::Lines("s1".into())), "{effects:?}");
    let effects = app.update(AppMessage::SourceEvent(SourceEvent::Changed));
    assert!(effects.contains(&AppEffect::Lines("s1".into())), "{effects:?}");
}

#[test]
fn unusual_steps_are_marked_in_the_timeline_of_their_session() {
    let mut app = app_with_session(1..=10, true);
    let anomaly = stepback_api::anomalies::AnomalyDocument {
        kind: "loop".into(),
        steps: vec![2, 3],
        ..Default::default()
    };
    let found = stepback_api::anomalies::AnomaliesDocument { items: vec![anomaly], ..Default::default() };
    respond(&mut app, SourceResponse::Anomalies("another".into(), Ok(found.clone())));
    let labels = |app: &App| [1, 2, 3, 4].map(|number| app.open.as_ref().unwrap().anomaly_labels(number));
    assert_eq!(labels(&app), ["", "", "", ""], "it is of another session");
    respond(&mut app, SourceResponse::Anomalies("s1".into(), Ok(found)));
    assert_eq!(labels(&app), ["", "[! loop] ", "[!] ", ""]);
}
