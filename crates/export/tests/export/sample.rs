//! Sessions to export: an ordinary one, a hostile one, and a long one.

use std::cell::Cell;

use serde_json::{Value, json};
use stepback_engine::Workspace;
use stepback_engine::recorder::{NewMessages, ReportedEvent, ScanPolicy};
use stepback_model::event::{AgentEvent, ReportedError};
use stepback_model::record::{Session, StepKind, Trigger};
use stepback_model::time::Timestamp;
use stepback_testkit::TestWorkspace;
use stepback_testkit::test_workspace::START;

/// The agent's own id of every session here.
pub const NAME: &str = "6f2d1c7e-0000-4000-8000-000000000001";

/// A workspace with one session of Claude Code, which grows by what is reported.
pub struct SampleSession {
    pub world: TestWorkspace,
    pub workspace: Workspace,
    micros: Cell<i64>,
    lines: Cell<u64>,
}

impl SampleSession {
    pub fn new() -> Self {
        let world = TestWorkspace::in_memory();
        world.write("src/lib.rs", "pub fn add(a: i32, b: i32) -> i32 {\n    a - b\n}\n");
        let workspace = world.engine().open_workspace_root(&world.root).unwrap();
        Self { world, workspace, micros: Cell::new(START), lines: Cell::new(0) }
    }

    /// The session as it is stored now.
    pub fn session(&self) -> Session {
        self.workspace.find_session(NAME).unwrap()
    }

    /// Lets time pass.
    pub fn wait(&self, millis: i64) -> Timestamp {
        self.micros.set(self.micros.get() + millis * 1000);
        Timestamp::from_micros(self.micros.get())
    }

    pub fn event(kind: StepKind, summary: &str) -> AgentEvent {
        AgentEvent::new("claude", NAME, kind, summary)
    }

    /// Records an event, perhaps with new lines of the conversation.
    pub fn record(&self, event: AgentEvent, scan_policy: ScanPolicy, lines: &[Value]) {
        let at = self.wait(1);
        let key = event.key.clone().or_else(|| Some(format!("{at}")));
        let messages = (!lines.is_empty()).then(|| NewMessages {
            lines: lines.iter().map(Value::to_string).collect(),
            ..NewMessages::default()
        });
        let event = AgentEvent { key, at: Some(at), ..event };
        let report = ReportedEvent { scan_policy, messages, ..ReportedEvent::new(event, at) };
        let lock = self.workspace.lock_recording().unwrap();
        self.workspace.record(&lock, &report).unwrap();
    }

    pub fn begin(&self) {
        let keep = ScanPolicy::Checkpoint(Trigger::Automatic);
        self.record(Self::event(StepKind::AgentStep, "session started (startup)"), keep, &[]);
    }

    pub fn prompt(&self, text: &str) {
        let event =
            AgentEvent { input: Some(json!({ "prompt": text })), ..Self::event(StepKind::UserInput, text) };
        let line = self.line("user", json!({ "role": "user", "content": text }));
        self.record(event, ScanPolicy::None, &[line]);
    }

    /// A line of the conversation.
    pub fn line(&self, kind: &str, message: Value) -> Value {
        let number = self.lines.get() + 1;
        self.lines.set(number);
        let at = Timestamp::from_micros(self.micros.get());
        json!({ "type": kind, "uuid": format!("line-{number}"), "sessionId": NAME, "timestamp": at.to_string(), "message": message })
    }

    /// A line with an answer of the model.
    pub fn answer(&self, content: Value) -> Value {
        let id = format!("msg_{}", self.lines.get());
        let usage = json!({ "input_tokens": 1200, "output_tokens": 340, "cache_read_input_tokens": 15_000, "cache_creation_input_tokens": 90 });
        self.line(
            "assistant",
            json!({ "id": id, "role": "assistant", "model": "claude-sonnet-4-5", "content": content, "usage": usage }),
        )
    }

    /// A call with the answer that requests it. `act` is what the tool does.
    pub fn call(&self, call: &SampleCall<'_>, act: impl FnOnce(&TestWorkspace)) {
        let (id, tool) = (call.id, call.tool);
        let mut content = Vec::new();
        if !call.thought.is_empty() {
            content.push(json!({ "type": "thinking", "thinking": call.thought, "signature": "x" }));
        }
        if !call.text.is_empty() {
            content.push(json!({ "type": "text", "text": call.text }));
        }
        content.push(json!({ "type": "tool_use", "id": id, "name": tool, "input": call.input }));
        self.wait(2500);
        let line = self.answer(Value::Array(content));
        let summary = stepback_agents::import::describe_call(tool, &call.input);
        let event = |kind| AgentEvent {
            key: Some(id.to_owned()),
            call: Some(id.to_owned()),
            tool: Some(tool.to_owned()),
            ..Self::event(kind, &summary)
        };
        let scan = |policy| if call.changes { policy } else { ScanPolicy::None };
        let started = AgentEvent { input: Some(call.input.clone()), ..event(StepKind::ToolStart) };
        self.record(started, scan(ScanPolicy::Before), &[line]);
        act(&self.world);
        self.wait(call.millis);
        let ended = AgentEvent {
            output: Some(call.output.clone()).filter(|output| !output.is_null()),
            error: call
                .error
                .map(|message| ReportedError { message: message.into(), ..ReportedError::default() }),
            duration: Some(u64::try_from(call.millis * 1000).unwrap()),
            ..event(StepKind::ToolEnd)
        };
        self.record(ended, scan(ScanPolicy::After), &[]);
    }

    /// The end of a turn.
    pub fn done(&self, text: &str) {
        self.wait(1500);
        let line = self.answer(json!([{ "type": "text", "text": text }]));
        let event = AgentEvent {
            output: Some(json!(text)),
            ..Self::event(StepKind::AgentStep, &format!("done: {text}"))
        };
        self.record(event, ScanPolicy::None, &[line]);
    }
}

/// A call of a tool.
#[derive(Clone)]
pub struct SampleCall<'a> {
    pub id: &'a str,
    pub tool: &'a str,
    pub thought: &'a str,
    pub text: &'a str,
    pub input: Value,
    pub output: Value,
    pub error: Option<&'a str>,
    pub millis: i64,
    pub changes: bool,
}

impl Default for SampleCall<'_> {
    fn default() -> Self {
        Self {
            id: "",
            tool: "",
            thought: "",
            text: "",
            input: Value::Null,
            output: Value::Null,
            error: None,
            millis: 20,
            changes: false,
        }
    }
}

/// A session as they often are: a failing test, a look at the code, an edit, a passing test, a question.
pub fn ordinary() -> SampleSession {
    let session = SampleSession::new();
    session.begin();
    session.prompt("`add` returns the wrong result.\nFix it, and tell me why the tests did not notice.");
    let test = SampleCall {
        tool: "Bash",
        input: json!({ "command": "cargo test --quiet", "description": "Run the tests" }),
        changes: true,
        ..SampleCall::default()
    };
    let output = "\u{1b}[1mrunning 1 test\u{1b}[0m\ntest tests::adds ... \u{1b}[31mFAILED\u{1b}[0m\n\nassertion `left == right` failed\n  left: -1\n right: 3\n";
    session.call(
        &SampleCall {
            id: "toolu_1",
            thought: "The user says that **add** is wrong. I run the tests first.",
            text: "I'll run the tests to see what happens now.",
            output: json!({ "stdout": output, "stderr": "error: test failed, to rerun pass `--lib`\n", "exit_code": 101 }),
            error: Some("Exit code 101"),
            millis: 4200,
            ..test.clone()
        },
        |_| {},
    );
    session.call(
        &SampleCall {
            id: "toolu_2",
            tool: "Read",
            input: json!({ "file_path": "src/lib.rs" }),
            output: json!({ "type": "text", "file": { "filePath": "src/lib.rs", "content": "pub fn add(a: i32, b: i32) -> i32 {\n    a - b\n}\n", "numLines": 3 } }),
            ..SampleCall::default()
        },
        |_| {},
    );
    session.call(
        &SampleCall {
            id: "toolu_3",
            tool: "Edit",
            text: "The sign is wrong:",
            input: json!({ "file_path": "src/lib.rs", "old_string": "    a - b\n", "new_string": "    a + b\n" }),
            output: json!({ "filePath": "src/lib.rs", "type": "update" }),
            changes: true,
            ..SampleCall::default()
        },
        |world| world.write("src/lib.rs", "pub fn add(a: i32, b: i32) -> i32 {\n    a + b\n}\n"),
    );
    session.call(
        &SampleCall {
            id: "toolu_4",
            output: json!({ "stdout": "running 1 test\n.\ntest result: ok. 1 passed\n", "stderr": "", "exit_code": 0 }),
            millis: 3100,
            ..test
        },
        |_| {},
    );
    session.done("Fixed: `add` subtracted.\n\n| test | before | after |\n|---|---|---|\n| `adds` | failed | passes |\n\nThe test existed, but **CI did not run it**:\n\n1. `ci.yml` builds only.\n2. No job calls `cargo test`.\n\n```yaml\n- run: cargo test --quiet\n```\n\nSee [the manual](https://doc.example/ci).");
    session.wait(3_600_000);
    session.prompt("Add that line to CI.");
    session.call(
        &SampleCall {
            id: "toolu_5",
            tool: "Write",
            input: json!({ "file_path": ".ci/ci.yml", "content": "jobs:\n  test:\n    steps:\n      - run: cargo test --quiet\n" }),
            output: json!({ "type": "create", "filePath": ".ci/ci.yml" }),
            changes: true,
            ..SampleCall::default()
        },
        |world| world.write(".ci/ci.yml", "jobs:\n  test:\n    steps:\n      - run: cargo test --quiet\n"),
    );
    session.record(
        AgentEvent {
            output: Some(json!("breakpoint b1: tool:bash")),
            ..SampleSession::event(StepKind::BreakpointHit, "stopped before Bash: git push")
        },
        ScanPolicy::None,
        &[],
    );
    let mut error = SampleSession::event(StepKind::Error, "overloaded");
    error.error = Some(ReportedError {
        name: Some("overloaded_error".into()),
        message: "The model is overloaded, retry later".into(),
        ..ReportedError::default()
    });
    session.record(error, ScanPolicy::None, &[]);
    session.done("Done: every push runs the tests now.");
    session
}

/// A secret that the redactor knows.
pub const SECRET: &str = concat!("ghp_", "16C7e42F292c6912E7710c838347Ae178B4a");

/// What a page must not run, load or show as it is.
pub const HOSTILE: &str = "</script><script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\"><svg onload=\"document.title='pwned'\"></svg><iframe src=\"https://evil.example/\"></iframe><style>*{display:none}</style><!-- --><a href=\"javascript:document.title='pwned'\">x</a><link rel=stylesheet href=https://evil.example/x.css>]]>";

/// A session whose every text is hostile.
pub fn hostile() -> SampleSession {
    let session = SampleSession::new();
    session.begin();
    session.prompt(HOSTILE);
    let texts = format!(
        "{HOSTILE}\n\n![pixel](https://evil.example/pixel.png)\n\n[x](javascript:alert(1)) [y](data:text/html;base64,PHNjcmlwdD4=)\n\n\u{202e}evil\u{2066} \u{1b}[2J\u{1b}]0;title\u{7} \u{0}\n\n> > > > deep\n\n{}",
        "a".repeat(300_000)
    );
    session.call(
        &SampleCall {
            id: "toolu_\"><script>document.title='pwned'</script>",
            tool: "mcp__<script>document.title='pwned'</script>",
            thought: &texts,
            text: &texts,
            input: json!({ HOSTILE: HOSTILE, "nested": { "a": [HOSTILE, 1, null] }, "token": SECRET }),
            output: json!(texts),
            error: Some(HOSTILE),
            changes: true,
            ..SampleCall::default()
        },
        |world| {
            world.write("<img src=x onerror=alert(1)>.txt", HOSTILE);
            world.write("secret.env", &format!("GITHUB_TOKEN={SECRET}\n"));
            world.write("\u{202e}cod.exe", "x\n");
            std::fs::write(world.path("binary"), [0u8, 159, 146, 150]).unwrap();
            use std::os::unix::ffi::OsStrExt as _;
            let name = std::ffi::OsStr::from_bytes(b"not-\xff-utf8");
            std::fs::write(world.root.join(name), "text\n").unwrap();
        },
    );
    session.done(&texts);
    session
}

/// A session of a thousand steps, with large outputs and changed files.
pub fn long() -> SampleSession {
    let session = SampleSession::new();
    session.begin();
    let output: String =
        (0..600).map(|n| format!("line {n}: the quick <brown> fox & the lazy dog\n")).collect();
    for turn in 0..50 {
        session.prompt(&format!("Task {turn}: {}", "please do the next part of the work. ".repeat(20)));
        for call in 0..9 {
            let id = format!("toolu_{turn}_{call}");
            let edits = call % 3 == 0;
            let file = format!("src/part{}.rs", turn % 7);
            let (tool, input) = match edits {
                true => (
                    "Write",
                    json!({ "file_path": file, "content": format!("// {turn} {call}\n{}", &output[..8000]) }),
                ),
                false => ("Bash", json!({ "command": format!("cargo test part{turn}_{call}") })),
            };
            session.call(
                &SampleCall {
                    id: &id,
                    tool,
                    text: "Now the next part.",
                    input,
                    output: json!({ "stdout": output, "stderr": "" }),
                    changes: edits,
                    ..SampleCall::default()
                },
                |world| {
                    if edits {
                        world.write(&file, &format!("// {turn} {call}\n{}", &output[..8000]));
                    }
                },
            );
        }
        session.done(&format!("Part {turn} is **done**."));
    }
    session
}
