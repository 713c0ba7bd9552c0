//! What the recorder's settings leave out, cut, skip and redact, and that files are restored exactly whatever they say.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use serde_json::{Value, json};
use stepback_engine::moves::MoveRequest;
use stepback_engine::recorder::settings::{RecorderSetting, RecorderSettings};
use stepback_engine::recorder::{CallFacts, ChangeScope, NewMessages, ReportedEvent, ScanPolicy};
use stepback_engine::{Engine, Workspace};
use stepback_model::conversation;
use stepback_model::event::{AgentEvent, ReportedError};
use stepback_model::record::{Session, StepKind};
use stepback_model::state::WorkspaceState;
use stepback_store::port::{StepQuery, StepRow};

use crate::session::{TestWorkspace, event, record, report};

fn settings(values: &[(&str, Value)]) -> RecorderSettings {
    let values: BTreeMap<String, Value> =
        values.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let (settings, problems) = RecorderSettings::read(&values);
    assert_eq!(problems, Vec::<String>::new());
    settings
}

/// Opens the workspace as a process with these settings does.
fn open(place: &TestWorkspace, values: &[(&str, Value)]) -> Workspace {
    let engine = Engine { recorder: Arc::new(settings(values)), ..place.engine() };
    engine.open_workspace_root(&place.root).unwrap()
}

/// The steps of the session, oldest first.
fn steps(workspace: &Workspace) -> Vec<StepRow> {
    let mut steps = workspace.store().steps(workspace.record.id, &StepQuery::default()).unwrap();
    steps.sort_by_key(|stored| stored.step.number);
    steps
}

fn detail(workspace: &Workspace, stored: &StepRow) -> Value {
    workspace.load_detail(&stored.step).unwrap().unwrap_or_default()
}

fn last_detail(workspace: &Workspace) -> Value {
    detail(workspace, steps(workspace).last().unwrap())
}

fn session(workspace: &Workspace) -> Session {
    workspace.store().session(Session::id_of(workspace.record.id, "test", "s")).unwrap().unwrap()
}

fn call(kind: StepKind, id: &str, input: Value, output: Option<Value>) -> ReportedEvent {
    report(AgentEvent { input: Some(input), output, ..event("s", kind, id) }, ScanPolicy::None, 1)
}

#[test]
fn an_input_and_an_output_are_cut_and_the_step_says_how_large_they_were() {
    let place = TestWorkspace::in_memory();
    let workspace = open(&place, &[]);
    let long = "0123456789".repeat(20_000);
    let output = json!({ "stdout": long });
    record(&workspace, &call(StepKind::ToolEnd, "c", json!({ "command": "make" }), Some(output)));
    let kept = last_detail(&workspace);
    assert_eq!(kept["truncated"], json!({ "output": { "bytes": 200_007 } }));
    let text = kept["output"]["stdout"].as_str().unwrap();
    assert!(text.len() <= 65_536 && text.contains("of 200000 bytes left out"), "{}", text.len());
    assert!(text.starts_with("0123") && text.ends_with("6789"), "both ends are there");
    assert_eq!(kept["input"]["command"], "make");

    let workspace = open(&place, &[("record.output-bytes", json!("full"))]);
    record(&workspace, &call(StepKind::ToolEnd, "d", json!({}), Some(long.clone().into())));
    let kept = last_detail(&workspace);
    assert_eq!((kept["output"].as_str(), kept.get("truncated")), (Some(&*long), None));
}

#[test]
fn what_a_restore_or_a_rerun_needs_is_never_cut() {
    let place = TestWorkspace::in_memory();
    let workspace = open(&place, &[("record.input-bytes", json!(256)), ("record.output-bytes", json!(256))]);
    let long = "x".repeat(10_000);
    record(&workspace, &call(StepKind::UserInput, "p", json!({ "prompt": long }), None));
    assert_eq!(last_detail(&workspace)["input"]["prompt"], *long);
    let exchange = call(StepKind::ModelStart, "m", json!({ "body": long }), None);
    record(&workspace, &ReportedEvent { is_exchange: true, ..exchange });
    assert_eq!(last_detail(&workspace)["input"]["body"], *long);
    let messages = NewMessages { lines: vec![long.clone()], ..NewMessages::default() };
    let said = report(event("s", StepKind::AgentStep, "a"), ScanPolicy::None, 1);
    record(&workspace, &ReportedEvent { messages: Some(messages), ..said });
    let tip = session(&workspace).info.tip;
    assert_eq!(conversation::texts(workspace.store(), tip).unwrap(), [long]);
}

#[test]
fn parts_that_are_not_captured_are_left_out_and_named() {
    let place = TestWorkspace::in_memory();
    let workspace = open(&place, &[("record.capture", json!("all,no-outputs,no-commands,no-environment"))]);
    let read = call(StepKind::ToolEnd, "r", json!({ "file_path": "a.rs" }), Some(json!("secret text")));
    record(&workspace, &read);
    let kept = last_detail(&workspace);
    assert_eq!((&kept["input"]["file_path"], kept.get("output")), (&json!("a.rs"), None));
    assert_eq!(kept["not_recorded"], json!(["outputs"]));

    let mut shell =
        call(StepKind::ToolEnd, "b", json!({ "command": "cat plan" }), Some(json!("secret text")));
    shell.event.summary = "Bash cat plan".into();
    shell.event.error =
        Some(ReportedError { message: "cat: plan: no such file".into(), ..ReportedError::default() });
    shell.update.environment = Some(json!({ "variables": ["HOME"] }));
    record(&workspace, &shell);
    let last = steps(&workspace).pop().unwrap();
    let kept = detail(&workspace, &last);
    assert_eq!(kept["not_recorded"], json!(["commands", "environment"]));
    assert!(!kept.to_string().contains("plan") && !last.step.summary.contains("plan"), "{kept}");
    assert!(last.step.meta.failed, "that it failed is not a secret");
    assert_eq!(session(&workspace).info.slots.env, None);
}

/// What a reader of a transcript reports: lines, and where it stopped.
fn said(number: u64, all: &[&str], from: Option<Value>) -> ReportedEvent {
    let read = from.as_ref().and_then(Value::as_u64).unwrap_or(0);
    let messages = NewMessages {
        keep: Some(read),
        lines: all[read as usize..].iter().map(|line| (*line).to_owned()).collect(),
        start_cursor: from,
        cursor: Some(json!(all.len())),
        turn: None,
    };
    let event = event("s", StepKind::AgentStep, &format!("said {number}"));
    ReportedEvent { messages: Some(messages), ..report(event, ScanPolicy::None, number as i64) }
}

/// Records what a transcript with these lines adds.
fn read(workspace: &Workspace, number: u64, all: &[&str]) {
    let lock = workspace.lock_recording().unwrap();
    let step = workspace.open_step(&lock, &said(number, &[], None)).unwrap();
    let from = step.conversation().and_then(|recorded| recorded.cursor().cloned());
    step.record(&said(number, all, from)).unwrap();
}

#[test]
fn a_conversation_that_was_not_recorded_for_a_while_has_no_hole_afterwards() {
    let place = TestWorkspace::in_memory();
    let texts = |workspace: &Workspace| {
        let last = steps(workspace).pop().unwrap();
        let state = WorkspaceState::load(workspace.store(), last.step.state).unwrap();
        conversation::texts(workspace.store(), state.conversation).unwrap()
    };
    let with = open(&place, &[]);
    read(&with, 1, &["a"]);
    assert_eq!(texts(&with), ["a"]);
    let without = open(&place, &[("record.capture", json!("no-conversation"))]);
    read(&without, 2, &["a", "b"]);
    read(&without, 3, &["a", "b", "c"]);
    assert!(texts(&without).is_empty(), "no state claims a conversation that it does not have");
    let with = open(&place, &[]);
    read(&with, 4, &["a", "b", "c", "d"]);
    assert_eq!(texts(&with), ["a", "b", "c", "d"]);
    read(&with, 5, &["a", "b", "c", "d", "e"]);
    assert_eq!(texts(&with), ["a", "b", "c", "d", "e"]);
}

#[test]
fn one_in_so_many_calls_is_recorded_with_its_end_and_the_others_are_counted() {
    let place = TestWorkspace::in_memory();
    let workspace = open(&place, &[("record.sample", json!(4))]);
    for number in 0..10 {
        let id = format!("c{number}");
        // Where hooks are installed twice, every event arrives twice.
        for _ in 0..2 {
            record(&workspace, &call(StepKind::ToolStart, &id, json!({}), None));
        }
        record(&workspace, &call(StepKind::ToolEnd, &id, json!({}), None));
    }
    let all = steps(&workspace);
    let calls: Vec<_> = all.iter().map(|stored| stored.step.meta.call.clone().unwrap()).collect();
    assert_eq!(calls, ["c0", "c0", "c4", "c4", "c8", "c8"]);
    let skipped = |at: usize| detail(&workspace, &all[at])["skipped"].clone();
    assert_eq!(skipped(2), json!({ "tool-start": 6, "tool-end": 3 }));
    assert_eq!((skipped(1), skipped(3)), (Value::Null, Value::Null));
    let info = session(&workspace).info;
    assert_eq!(info.pending_skipped(), 3, "c9 was reported three times");
    assert_eq!(info.iteration, 10, "turns are counted as if every call were recorded");
    assert!(info.open.is_empty());
}

#[test]
fn a_batch_is_sampled_like_single_events() {
    let place = TestWorkspace::in_memory();
    let workspace = open(&place, &[("record.sample", json!("tool-start=5"))]);
    let reports: Vec<ReportedEvent> =
        (0..20).map(|number| call(StepKind::ToolStart, &format!("c{number}"), json!({}), None)).collect();
    let lock = workspace.lock_recording().unwrap();
    let recorded = workspace.record_batch(&lock, &reports[..18]).unwrap();
    let numbers: Vec<u64> = recorded.iter().map(|step| step.number).filter(|number| *number > 0).collect();
    assert_eq!((recorded.len(), numbers), (18, vec![1, 2, 3, 4]));
    // A batch in which everything is skipped is a commit too.
    workspace.record_batch(&lock, &reports[18..]).unwrap();
    let info = session(&workspace).info;
    assert_eq!((info.skipped.total, info.pending_skipped()), (16, 4));
}

#[test]
fn failures_and_ends_of_prompts_are_never_sampled_away() {
    let place = TestWorkspace::in_memory();
    let workspace = open(&place, &[("record.sample", json!(1000))]);
    for number in 0..3 {
        let id = format!("c{number}");
        record(&workspace, &call(StepKind::ToolStart, &id, json!({}), None));
        let mut end = call(StepKind::ToolEnd, &id, json!({}), None);
        end.event.error = Some(ReportedError { message: "no".into(), ..ReportedError::default() });
        record(&workspace, &end);
    }
    let failed = steps(&workspace).iter().filter(|stored| stored.step.meta.failed).count();
    assert_eq!(failed, 3);
}

#[test]
fn kinds_that_are_off_leave_no_step_and_still_update_the_session() {
    let place = TestWorkspace::in_memory();
    place.write("file", "one");
    let workspace = open(&place, &[("record.kinds", json!(["tool-start", "tool_call_end"]))]);
    let mut prompt = report(
        AgentEvent { input: Some(json!({ "prompt": "do it" })), ..event("s", StepKind::UserInput, "p") },
        ScanPolicy::None,
        1,
    );
    prompt.messages = Some(NewMessages { lines: vec!["do it".into()], ..NewMessages::default() });
    prompt.update.model = Some("large".into());
    record(&workspace, &prompt);
    record(&workspace, &call(StepKind::ToolStart, "c", json!({}), None));
    let all = steps(&workspace);
    assert_eq!(all.len(), 1);
    assert_eq!(detail(&workspace, &all[0])["skipped"], json!({ "user-input": 1 }));
    let info = session(&workspace).info;
    assert_eq!((info.model.as_deref(), info.prompt), (Some("large"), None));
    let state = WorkspaceState::load(workspace.store(), all[0].step.state).unwrap();
    assert_eq!(conversation::texts(workspace.store(), state.conversation).unwrap(), ["do it"]);
}

#[test]
fn own_patterns_reach_everything_that_is_stored() {
    let place = TestWorkspace::in_memory();
    let workspace = open(&place, &[("record.redact", json!(["ACME-[0-9]+", "Project (Hush|Quiet)"]))]);
    let mut event = call(
        StepKind::ToolEnd,
        "c",
        json!({ "text": "for ACME-77" }),
        Some(json!({ "list": ["Project Hush"] })),
    );
    event.event.summary = "note ACME-77".into();
    event.event.metadata = Some(json!({ "about": "ACME-77" }));
    event.update.memory = Some(json!({ "customer": "ACME-77" }));
    let line = r#"{"role":"user","content":"ask ACME-77"}"#.to_owned();
    event.messages = Some(NewMessages { lines: vec![line], ..NewMessages::default() });
    record(&workspace, &event);
    let last = steps(&workspace).pop().unwrap();
    let state = WorkspaceState::load(workspace.store(), last.step.state).unwrap();
    let said = conversation::texts(workspace.store(), state.conversation).unwrap();
    let memory = stepback_model::json::load(workspace.store(), state.memory.unwrap()).unwrap();
    let all = format!("{} {} {said:?} {memory}", last.step.summary, detail(&workspace, &last));
    assert!(!all.contains("ACME") && !all.contains("Hush"), "{all}");
    assert_eq!(all.matches("[redacted:own-pattern]").count(), 6, "{all}");
    assert!(said[0].contains("\"role\":\"user\""), "the form of the conversation stays");
}

/// Settings of every kind, some of which contradict each other.
fn any_settings(random: &mut dyn FnMut(usize) -> usize) -> Vec<(&'static str, Value)> {
    let capture = [json!("all"), json!("none"), json!("inputs,tasks"), json!("no-conversation,no-commands")];
    let kinds = [json!("all"), json!("none"), json!("model-start"), json!("tool-end,user-input")];
    let sample = [json!(1), json!(7), json!({ "tool-start": 1000, "tool-end": 3 }), json!("0.01")];
    let bytes = [json!(256), json!("full"), json!(65536)];
    let redact = [json!("none"), json!([".+"]), json!(["[a-z]+", "[0-9]"])];
    let mut pick = |values: &[Value]| values[random(values.len())].clone();
    let mut chosen = vec![
        ("record.capture", pick(&capture)),
        ("record.kinds", pick(&kinds)),
        ("record.sample", pick(&sample)),
        ("record.input-bytes", pick(&bytes)),
        ("record.output-bytes", pick(&bytes)),
    ];
    chosen.push(("record.redact", pick(&redact)));
    chosen
}

#[test]
fn with_any_settings_a_rewind_restores_every_file_exactly() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    for case in 0..20 {
        let place = TestWorkspace::in_memory();
        place.write("kept", "from the beginning");
        let mut was = Vec::new();
        for number in 0..6 {
            let values = any_settings(&mut random);
            let workspace = open(&place, &values);
            let id = format!("c{number}");
            let input = json!({ "command": "x".repeat(400), "password": "y" });
            let facts = || CallFacts { scope: ChangeScope::Anything, ..CallFacts::default() };
            let start = AgentEvent { input: Some(input), ..event("s", StepKind::ToolStart, &id) };
            let start = ReportedEvent { call: facts(), ..report(start, ScanPolicy::Before, number) };
            was.push((place.copy(), record(&workspace, &start)));
            match random(3) {
                0 => place.write(&format!("new{number}"), &"z".repeat(random(100_000))),
                1 => place.write("kept", &format!("changed {number}")),
                _ => drop(fs::remove_file(place.path(&format!("new{}", number - 1)))),
            }
            let end = event("s", StepKind::ToolEnd, &id);
            record(&workspace, &ReportedEvent { call: facts(), ..report(end, ScanPolicy::After, number) });
        }
        let values = any_settings(&mut random);
        let workspace = open(&place, &values);
        for (copy, step) in was.iter().rev() {
            assert!(step.number > 0, "case {case}: a call that can change something is a step");
            let stored = workspace.store().step(step.id).unwrap().unwrap();
            let plan = workspace.plan_move(&MoveRequest::restore(&stored)).unwrap();
            workspace.apply_move(plan).unwrap();
            place.expect(copy);
        }
    }
}

#[test]
fn a_bad_file_of_settings_gives_defaults_and_says_so() {
    let values: BTreeMap<String, Value> = [
        ("record.capture", json!("outptus")),
        ("record.kinds", json!(["tool-start", "tool-edn"])),
        ("record.sample", json!(0)),
        ("record.input-bytes", json!(0)),
        ("record.output-bytes", json!(1_000_000_000)),
        ("record.redact", json!(["(", "fine[0-9]"])),
        ("record.sampel", json!(3)),
        ("checkpoint.calls", json!("not ours")),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    let (settings, problems) = RecorderSettings::read(&values);
    assert_eq!(problems.len(), 7, "{problems:#?}");
    for (key, says) in [
        ("record.capture", "did you mean \"outputs\"?"),
        ("record.kinds", "did you mean \"tool-end\"?"),
        ("record.sample", "a sample of 0 would record nothing"),
        ("record.input-bytes", "0 bytes are not between"),
        ("record.output-bytes", "1000000000 bytes are not between"),
        ("record.redact", "the pattern \"(\" is not a valid regular expression"),
        ("record.sampel", "did you mean \"record.sample\"?"),
    ] {
        assert!(
            problems.iter().any(|text| text.contains(key) && text.contains(says)),
            "{key}: {problems:#?}"
        );
    }
    for setting in RecorderSetting::ALL {
        let expected = if setting == RecorderSetting::Redact { "fine[0-9]" } else { setting.default_text() };
        assert_eq!(settings.text(setting), expected, "{}", setting.key());
    }
}
