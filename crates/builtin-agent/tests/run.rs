//! The agent without a process around it: what it records, what stops it, and what it makes of models that misbehave.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::fs;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Map, Value, json};
use stepback_agents::transcript::parse_agent_messages;
use stepback_builtin_agent::provider::Scripted;
use stepback_builtin_agent::{
    ExitReason, NAME, Provider, RunEvent, RunOptions, RunOutcome, ToolPolicy, ToolResult, run,
};
use stepback_engine::recorder::CheckpointSchedule;
use stepback_engine::recorder::settings::RecorderSettings;
use stepback_engine::{Engine, Workspace};
use stepback_llm_wire::matching::{MatchResult, Places, Recording};
use stepback_llm_wire::{AnswerEnd, Chunks, Exchange, ModelRequest, Response};
use stepback_model::event::ReportedError;
use stepback_model::record::{StepKind, Trigger};
use stepback_model::state::WorkspaceState;
use stepback_model::{conversation, json as stored_json};
use stepback_store::port::{StepQuery, StepRow};
use stepback_testkit::TestWorkspace;

struct AgentWorkspace(TestWorkspace);

impl Deref for AgentWorkspace {
    type Target = TestWorkspace;

    fn deref(&self) -> &TestWorkspace {
        &self.0
    }
}

impl AgentWorkspace {
    fn new() -> Self {
        let test = TestWorkspace::in_memory();
        test.write("a.txt", "one\n");
        Self(test)
    }

    fn play(&self, script: &Value, change: impl FnOnce(&mut RunOptions<'_>)) -> RunOutcome {
        let mut provider = Scripted::parse(&script.to_string(), Arc::default()).unwrap();
        self.ask(&mut provider, change)
    }

    fn ask(&self, provider: &mut dyn Provider, change: impl FnOnce(&mut RunOptions<'_>)) -> RunOutcome {
        let engine = self.engine();
        let workspace = engine.open_workspace_root(&self.root).unwrap();
        let mut watch = |_: RunEvent<'_>| ();
        let mut options =
            RunOptions { prompt: Some("go".into()), ..RunOptions::new("scripted-1", &mut watch) };
        change(&mut options);
        run(&workspace, provider, options).unwrap()
    }

    fn steps(&self, outcome: &RunOutcome) -> Vec<StepRow> {
        let engine = self.engine();
        let workspace = engine.open_workspace_root(&self.root).unwrap();
        let query = StepQuery { session: Some(outcome.session), ..StepQuery::default() };
        let mut steps = workspace.store().steps(workspace.record.id, &query).unwrap();
        steps.sort_by_key(|stored| stored.step.number);
        steps
    }

    fn kinds(&self, outcome: &RunOutcome) -> Vec<&'static str> {
        self.steps(outcome).iter().map(|stored| stored.step.kind.as_str()).collect()
    }

    fn detail(&self, step: &StepRow) -> Value {
        let engine = self.engine();
        let workspace = engine.open_workspace_root(&self.root).unwrap();
        stored_json::load(workspace.store(), step.step.meta.detail.unwrap()).unwrap()
    }

    fn with_workspace<T>(&self, look: impl FnOnce(&Workspace) -> T) -> T {
        let engine = self.engine();
        look(&engine.open_workspace_root(&self.root).unwrap())
    }
}

fn one_call(tool: &str, input: Value) -> Value {
    json!({ "turns": [{ "calls": [{ "tool": tool, "input": input }] }, { "text": "finished" }] })
}

/// A model that gives these answers one after another.
struct Answers(Vec<(u16, Value)>);

impl Provider for Answers {
    fn ask(&mut self, _: &ModelRequest) -> Result<Response, ReportedError> {
        let (status, body) = self.0.remove(0);
        Ok(Response {
            status,
            headers: Vec::new(),
            body: body.to_string(),
            chunks: Chunks::default(),
            ended: AnswerEnd::Complete,
            first_byte: None,
            took: 1,
            left_out: 0,
        })
    }
}

fn said(content: Value) -> (u16, Value) {
    (200, json!({ "type": "message", "role": "assistant", "model": "m", "content": content }))
}

#[test]
fn everything_is_a_step() {
    let place = AgentWorkspace::new();
    let outcome = place.play(&one_call("write", json!({ "path": "b.txt", "content": "new\n" })), |_| ());
    assert_eq!(
        (outcome.ended.clone(), outcome.turns, outcome.text.as_str()),
        (ExitReason::Done, 2, "finished")
    );
    assert_eq!(fs::read_to_string(place.root.join("b.txt")).unwrap(), "new\n");
    let expected = [
        "agent-step", // session started
        "user-input",
        "model-start",
        "model-end",
        "tool-start",
        "tool-end",
        "model-start",
        "model-end",
        "agent-step", // done
        "agent-step", // session ended
    ];
    assert_eq!(place.kinds(&outcome), expected);
    assert_eq!(outcome.steps, expected.len() as u64);
    let steps = place.steps(&outcome);
    let summary = |at: usize| steps[at].step.summary.as_str();
    assert_eq!((summary(2), summary(3)), ("scripted-1: 1 message", "calls write"));
    assert_eq!((summary(4), summary(7)), ("write: b.txt", "finished"));
    assert_eq!((summary(8), summary(9)), ("done: finished", "session ended"));
    assert!(steps[5].is_checkpoint(), "what the call did is a checkpoint");
    let request: ModelRequest = serde_json::from_value(place.detail(&steps[6])["input"].clone()).unwrap();
    assert_eq!(request.body["messages"].as_array().unwrap().len(), 3);
    let response: Response = serde_json::from_value(place.detail(&steps[7])["output"].clone()).unwrap();
    assert!(response.body.contains("finished"));
    assert_eq!(steps[6].step.meta.call, steps[7].step.meta.call);
    let authors = &place.detail(&steps[5])["authors"]["calls"][0];
    assert_eq!(authors["tool"], "write");
    place.with_workspace(|workspace| {
        let session = workspace.store().session(outcome.session).unwrap().unwrap();
        assert_eq!(session.agent, NAME);
        assert!(session.info.ended_at.is_some() && session.info.open.is_empty());
        assert_eq!(session.info.title.as_deref(), Some("go"));
        assert_eq!(session.info.iteration, 2);
        // Before the call, the model had not asked for it yet; at the end, everything was said.
        let lines = |at: usize| {
            let state = WorkspaceState::load(workspace.store(), steps[at].step.state).unwrap();
            conversation::texts(workspace.store(), state.conversation).unwrap()
        };
        assert_eq!(parse_agent_messages(NAME, &lines(4)).len(), 1);
        assert_eq!(parse_agent_messages(NAME, &lines(9)).len(), 4);
    });
}

#[test]
fn a_conversation_that_goes_on_is_answered_as_it_would_have_been() {
    let script = json!({ "turns": [
        { "calls": [{ "tool": "bash", "input": { "command": "echo 1 >> log" } }] },
        { "calls": [{ "tool": "bash", "input": { "command": "echo 2 >> log" } }] },
        { "text": "finished" },
    ] });
    let place = AgentWorkspace::new();
    let first = place.play(&script, |options| options.max_turns = 1);
    assert_eq!(first.ended, ExitReason::MaxTurns);
    let history: Vec<Value> = place.with_workspace(|workspace| {
        let session = workspace.store().session(first.session).unwrap().unwrap();
        let lines = conversation::texts(workspace.store(), session.info.tip).unwrap();
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    });
    let second = place.play(&script, |options| {
        options.prompt = None;
        options.history = history;
    });
    assert_eq!((second.ended, second.text.as_str()), (ExitReason::Done, "finished"));
    assert_eq!(fs::read_to_string(place.root.join("log")).unwrap(), "1\n2\n");
}

#[test]
fn a_worker_has_tasks_and_steps_of_its_own() {
    let place = AgentWorkspace::new();
    let script = json!({
        "turns": [
            { "calls": [{ "tool": "delegate", "input": { "worker": "tester", "task": "test it" } }] },
            { "text": "tested" },
        ],
        "workers": { "tester": [
            { "calls": [{ "tool": "bash", "input": { "command": "echo ok > result" } }] },
            { "text": "all green" },
        ] },
    });
    let outcome = place.play(&script, |_| ());
    let steps = place.steps(&outcome);
    let kinds: Vec<&str> = place.kinds(&outcome);
    let tasks: Vec<&&str> = kinds.iter().filter(|kind| kind.starts_with("task")).collect();
    assert_eq!(tasks, [&"task-created", &"task-assigned", &"task-started", &"task-completed"]);
    let messages: Vec<&str> = (steps.iter())
        .filter(|stored| stored.step.kind == StepKind::Message)
        .map(|stored| stored.step.summary.as_str())
        .collect();
    assert_eq!(
        messages,
        ["main → tester call_1_1: achieve: test it", "tester call_1_1 → main: reply: all green"]
    );
    for stored in steps.iter().filter(|stored| stored.step.meta.worker.is_some()) {
        assert_eq!(stored.step.meta.context.task.as_deref(), Some("call_1_1"), "{}", stored.step.summary);
    }
    let of_worker = |kind: StepKind| {
        let found = steps.iter().find(|stored| {
            stored.step.kind == kind && stored.step.meta.worker.as_deref() == Some("tester call_1_1")
        });
        found.unwrap_or_else(|| panic!("no {kind:?} of the worker"))
    };
    of_worker(StepKind::ModelStart);
    assert!(of_worker(StepKind::ToolEnd).is_checkpoint(), "what the worker did is a checkpoint");
    let end = steps.iter().rfind(|stored| stored.step.kind == StepKind::ToolEnd).unwrap();
    assert_eq!(place.detail(end)["output"]["text"], "all green");
    place.with_workspace(|workspace| {
        let session = workspace.store().session(outcome.session).unwrap().unwrap();
        let task = stored_json::load(workspace.store(), session.info.slots.task.unwrap()).unwrap();
        assert_eq!(task[0]["status"], "completed");
        let lines = conversation::texts(workspace.store(), session.info.tip).unwrap();
        assert_eq!(lines.len(), 4, "the worker's conversation is not part of the agent's");
    });
}

#[test]
fn a_worker_that_fails_fails_its_task_and_not_the_agent() {
    let place = AgentWorkspace::new();
    let script = json!({
        "turns": [
            { "calls": [{ "tool": "delegate", "input": { "worker": "w", "task": "t" } }] },
            { "text": "so be it" },
        ],
        "workers": { "w": [{ "fails": "out of order" }] },
    });
    let outcome = place.play(&script, |_| ());
    assert_eq!(outcome.ended, ExitReason::Done);
    assert!(place.kinds(&outcome).contains(&"task-failed"));
}

#[test]
fn what_it_remembers_is_told_to_the_model_and_kept_in_the_state() {
    let place = AgentWorkspace::new();
    let script = one_call("remember", json!({ "key": "port", "value": "8080" }));
    let memory: Map<String, Value> = [("style".to_string(), json!("tabs"))].into_iter().collect();
    let outcome = place.play(&script, |options| options.memory = memory);
    let steps = place.steps(&outcome);
    let asked: Vec<Value> = (steps.iter())
        .filter(|stored| stored.step.kind == StepKind::ModelStart)
        .map(|stored| place.detail(stored)["input"]["body"]["system"].clone())
        .collect();
    assert!(asked[0].as_str().unwrap().contains("style: tabs") && !asked[0].to_string().contains("8080"));
    assert!(asked[1].as_str().unwrap().contains("port: 8080"));
    place.with_workspace(|workspace| {
        let memory_at = |at: usize| {
            let state = WorkspaceState::load(workspace.store(), steps[at].step.state).unwrap();
            stored_json::load(workspace.store(), state.memory.unwrap()).unwrap()
        };
        assert_eq!(memory_at(0), json!({ "style": "tabs" }));
        assert_eq!(memory_at(steps.len() - 1), json!({ "style": "tabs", "port": "8080" }));
    });
}

#[test]
fn calls_run_are_refused_or_recalled() {
    let script = one_call("bash", json!({ "command": "touch ran" }));
    let place = AgentWorkspace::new();
    let denied = place.play(&script, |options| options.tools = ToolPolicy::Deny);
    assert_eq!((denied.ended, place.root.join("ran").exists()), (ExitReason::Done, false));
    let mut asked = Vec::new();
    let recall = |tool: &str, input: &Value| {
        asked.push(format!("{tool} {input}"));
        Some(ToolResult { text: "as it was".into(), failed: false })
    };
    let mut provider = Scripted::parse(&script.to_string(), Arc::default()).unwrap();
    let outcome = {
        let engine = place.engine();
        let workspace = engine.open_workspace_root(&place.root).unwrap();
        let mut watch = |_: RunEvent<'_>| ();
        let options = RunOptions {
            prompt: Some("go".into()),
            tools: ToolPolicy::Recorded(Box::new(recall)),
            ..RunOptions::new("scripted-1", &mut watch)
        };
        run(&workspace, &mut provider, options).unwrap()
    };
    assert_eq!(asked, [r#"bash {"command":"touch ran"}"#]);
    assert!(!place.root.join("ran").exists());
    let steps = place.steps(&outcome);
    let end = steps.iter().find(|stored| stored.step.kind == StepKind::ToolEnd).unwrap();
    assert_eq!(place.detail(end)["output"]["text"], "as it was");
}

#[test]
fn it_ends_where_it_is_told_to() {
    let script = one_call("bash", json!({ "command": "touch ran" }));
    let place = AgentWorkspace::new();
    let outcome = place.play(&script, |options| options.until = Some(StepKind::ToolStart));
    assert_eq!((outcome.ended, place.root.join("ran").exists()), (ExitReason::Until, false));
    let outcome = place.play(&script, |options| options.max_steps = Some(3));
    assert_eq!(outcome.ended, ExitReason::MaxSteps);
    assert_eq!(outcome.steps, 4, "and the step that says that it is over");
    let stop = Arc::new(AtomicBool::new(true));
    let outcome = place.play(&script, |options| options.stop = stop);
    assert_eq!(outcome.ended, ExitReason::Interrupted);
    assert_eq!(place.steps(&outcome).last().unwrap().step.summary, "session ended: interrupted");
    let slow = one_call("bash", json!({ "command": "sleep 300" }));
    let outcome = place.play(&slow, |options| options.timeout = Some(Duration::from_millis(500)));
    assert_eq!(outcome.ended, ExitReason::TimedOut);
    place.with_workspace(|workspace| {
        let session = workspace.store().session(outcome.session).unwrap().unwrap();
        assert!(session.info.open.is_empty() && session.info.ended_at.is_some());
    });
}

#[test]
fn a_model_that_misbehaves_is_told_or_ends_the_run() {
    let place = AgentWorkspace::new();
    let unknown = json!([{ "type": "tool_use", "id": "x", "name": "fly", "input": {} }]);
    let outcome = place
        .ask(&mut Answers(vec![said(unknown), said(json!([{ "type": "text", "text": "I see" }]))]), |_| ());
    assert_eq!((outcome.ended, outcome.text.as_str()), (ExitReason::Done, "I see"));
    let refused =
        json!({ "type": "error", "error": { "type": "invalid_request_error", "message": "too long" } });
    let outcome = place.ask(&mut Answers(vec![(400, refused)]), |_| ());
    let ExitReason::Failed(trouble) = &outcome.ended else { panic!("{:?}", outcome.ended) };
    assert!(trouble.message.contains("too long"), "{trouble:?}");
    let kinds = place.kinds(&outcome);
    assert_eq!(kinds[kinds.len() - 3..], ["model-end", "error", "agent-step"]);
    let outcome = place.ask(&mut Answers(vec![(200, json!("<html>"))]), |_| ());
    assert!(matches!(outcome.ended, ExitReason::Failed(_)));
    let busy = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "busy" } });
    let fine = said(json!([{ "type": "text", "text": "now" }]));
    let outcome = place.ask(&mut Answers(vec![(529, busy.clone()), fine]), |_| ());
    assert_eq!((outcome.ended, outcome.text.as_str()), (ExitReason::Done, "now"));
    let outcome = place.ask(&mut Answers(vec![(529, busy)]), |options| options.retries = 0);
    assert!(matches!(outcome.ended, ExitReason::Failed(_)));
}

#[test]
fn secrets_are_not_recorded_and_costs_add_up() {
    let place = AgentWorkspace::new();
    let token = ["ghp_", "a1B2c3D4e5", "F6g7H8i9J0", "k1L2m3N4o5", "P6q7R8"].concat();
    let script = json!({ "turns": [
        { "calls": [{ "tool": "bash", "input": { "command": format!("echo {token} > used") } }],
          "usage": { "input": 100, "output": 20 }, "cost_usd": 0.25 },
        { "text": "done", "usage": { "input": 10, "output": 1 } },
    ] });
    let prompt = format!("use {token}");
    let price = |model: &str, usage: &stepback_llm_wire::semantics::TokenUsage| {
        (model == "scripted-1").then_some(usage.input * 1000)
    };
    let mut provider = Scripted::parse(&script.to_string(), Arc::default()).unwrap();
    let outcome = {
        let engine = place.engine();
        let workspace = engine.open_workspace_root(&place.root).unwrap();
        let mut watch = |_: RunEvent<'_>| ();
        let new = RunOptions::new("scripted-1", &mut watch);
        run(&workspace, &mut provider, RunOptions { prompt: Some(prompt), price: &price, ..new }).unwrap()
    };
    assert_eq!(
        fs::read_to_string(place.root.join("used")).unwrap().trim(),
        token,
        "what runs is what was said"
    );
    assert_eq!(outcome.cost, 250_000 + 10_000);
    for step in place.steps(&outcome) {
        assert!(!step.step.summary.contains(&token));
        if step.step.meta.detail.is_some() {
            assert!(!place.detail(&step).to_string().contains(&token), "{:?}", step.step.kind);
        }
    }
    place.with_workspace(|workspace| {
        let session = workspace.store().session(outcome.session).unwrap().unwrap();
        assert_eq!(session.info.cost, 260_000);
        let lines = conversation::texts(workspace.store(), session.info.tip).unwrap();
        assert!(!lines.join("").contains(&token));
    });
}

#[test]
fn a_stopped_thought_is_an_interruption() {
    let place = AgentWorkspace::new();
    let stop = Arc::new(AtomicBool::new(false));
    let script = json!({ "turns": [{ "text": "late", "thinks_ms": 600_000 }] });
    let mut provider = Scripted::parse(&script.to_string(), stop.clone()).unwrap();
    let ends = stop.clone();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            ends.store(true, Ordering::Relaxed);
        });
        place.ask(&mut provider, |options| options.stop = stop)
    });
    assert_eq!(outcome.ended, ExitReason::Interrupted);
}

/// A model that answers from what was recorded.
struct Replay(Recording);

impl Provider for Replay {
    fn ask(&mut self, request: &ModelRequest) -> Result<Response, ReportedError> {
        match self.0.find(request) {
            MatchResult::Same(at) => Ok(self.0.exchanges()[at].response.clone()),
            other => Err(ReportedError { message: format!("{other:?}"), ..ReportedError::default() }),
        }
    }
}

#[test]
fn a_recorded_run_is_run_once_more_from_its_record() {
    let script = json!({
        "turns": [
            { "calls": [
                { "tool": "bash", "input": { "command": "pwd; echo 1 >> log" } },
                { "tool": "remember", "input": { "key": "k", "value": "v" } },
            ] },
            { "calls": [{ "tool": "delegate", "input": { "worker": "w", "task": "t" } }] },
            { "text": "finished" },
        ],
        "workers": { "w": [{ "calls": [{ "tool": "read", "input": { "path": "log" } }] }, { "text": "read" }] },
    });
    let (first, second) = (AgentWorkspace::new(), AgentWorkspace::new());
    let recorded = first.play(&script, |_| ());
    let steps = first.steps(&recorded);
    let of_kind = |kind: StepKind| steps.iter().filter(move |stored| stored.step.kind == kind);
    let answers = |call: &Option<String>| {
        let end = of_kind(StepKind::ModelEnd).find(|stored| stored.step.meta.call == *call).unwrap();
        serde_json::from_value(first.detail(end)["output"].clone()).unwrap()
    };
    let exchanges = of_kind(StepKind::ModelStart).map(|stored| {
        let call = &stored.step.meta.call;
        let request = serde_json::from_value(first.detail(stored)["input"].clone()).unwrap();
        Exchange { id: call.clone().unwrap(), request, response: answers(call) }
    });
    let places = Places {
        recorded: vec![(first.root.clone(), "workspace")],
        present: vec![(second.root.clone(), "workspace")],
    };
    let mut provider = Replay(Recording::new(exchanges.collect(), places));
    let mut results: Vec<(Value, ToolResult)> = of_kind(StepKind::ToolEnd)
        .map(|stored| first.detail(stored))
        .map(|detail| (detail["input"].clone(), serde_json::from_value(detail["output"].clone()).unwrap()))
        .collect();
    let recall = move |_: &str, input: &Value| {
        let at = results.iter().position(|(known, _)| known == input)?;
        Some(results.remove(at).1)
    };
    let engine = second.engine();
    let workspace = engine.open_workspace_root(&second.root).unwrap();
    let mut watch = |_: RunEvent<'_>| ();
    let options = RunOptions {
        prompt: Some("go".into()),
        tools: ToolPolicy::Recorded(Box::new(recall)),
        ..RunOptions::new("scripted-1", &mut watch)
    };
    let again = run(&workspace, &mut provider, options).unwrap();
    assert_eq!(
        (again.ended, again.text, again.steps),
        (ExitReason::Done, recorded.text.clone(), recorded.steps)
    );
    assert_eq!(
        second.kinds(&RunOutcome { session: again.session, ..recorded.clone() }),
        first.kinds(&recorded)
    );
    assert!(!second.root.join("log").exists(), "nothing was run");
}

#[test]
fn settings_and_scheduled_checkpoints_apply_to_it_as_to_every_agent() {
    let place = AgentWorkspace::new();
    place.write("long.txt", &"for ACME-7\n".repeat(500));
    let values = [
        ("record.capture", json!("no-model-bodies")),
        ("record.output-bytes", json!(300)),
        ("record.redact", json!(["ACME-[0-9]+"])),
    ];
    let values = values.map(|(key, value)| (key.to_owned(), value)).into();
    let (recorder, problems) = RecorderSettings::read(&values);
    assert_eq!(problems, Vec::<String>::new());
    let engine = Engine { recorder: Arc::new(recorder), ..place.engine() };
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let mut turns = vec![json!({ "calls": [{ "tool": "read", "input": { "path": "long.txt" } }] }); 6];
    turns.push(json!({ "text": "finished" }));
    let mut provider = Scripted::parse(&json!({ "turns": turns }).to_string(), Arc::default()).unwrap();
    let mut watch = |_: RunEvent<'_>| ();
    let schedule = CheckpointSchedule { iterations: Some(5), ..CheckpointSchedule::default() };
    let options =
        RunOptions { prompt: Some("go".into()), schedule, ..RunOptions::new("scripted-1", &mut watch) };
    let outcome = run(&workspace, &mut provider, options).unwrap();
    let steps = place.steps(&outcome);
    let scheduled: Vec<&StepRow> =
        steps.iter().filter(|stored| stored.trigger == Some(Trigger::Scheduled)).collect();
    assert_eq!(scheduled.len(), 1);
    assert_eq!(scheduled[0].step.summary, "5 iterations since the last checkpoint");
    let of = |kind: StepKind| steps.iter().find(|stored| stored.step.kind == kind).unwrap();
    let read = place.detail(of(StepKind::ToolEnd));
    assert!(read["truncated"]["output"]["bytes"].as_u64().unwrap() > 5000, "{read}");
    assert!(read["output"].to_string().len() < 500 && !read.to_string().contains("ACME"), "{read}");
    let answer = place.detail(of(StepKind::ModelEnd));
    assert_eq!((answer.get("output"), &answer["not_recorded"]), (None, &json!(["model-bodies"])));
    let last = steps.last().unwrap();
    let state = WorkspaceState::load(workspace.store(), last.step.state).unwrap();
    let texts = conversation::texts(workspace.store(), state.conversation).unwrap();
    assert!(texts.iter().any(|text| text.len() > 5000), "the conversation is whole");
    assert!(texts.iter().all(|text| !text.contains("ACME")), "and redacted");
}
