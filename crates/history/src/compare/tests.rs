//! Tests of equal runs, of runs that diverge, and of runs where one has an extra step.

use proptest::prelude::*;
use serde_json::{Value, json};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{SessionId, StepId};
use stepback_model::object::ObjectSink;
use stepback_model::record::StepMeta;
use stepback_model::state::WorkspaceState;
use stepback_model::time::Timestamp;
use stepback_model::{conversation, json as value};
use stepback_store::memory::MemoryStore;
use stepback_store::prelude::*;

use super::*;

/// Builds sides whose objects are in one store.
struct Maker {
    store: MemoryStore,
}

/// A step as a test describes it: kind, tool, input, output.
type Told = (StepKind, &'static str, Value, Value);

impl Maker {
    fn new() -> Self {
        Self { store: MemoryStore::new(1 << 28) }
    }

    fn write<T>(&self, write: impl FnOnce(&dyn stepback_store::ObjectBatch) -> T) -> T {
        let batch = self.store.begin().unwrap();
        let written = write(&*batch);
        self.store.commit(Some(batch.finish().unwrap()), &[]).unwrap();
        written
    }

    fn side(&self, name: &str, told: &[Told]) -> ComparedRun {
        let directory = format!("/somewhere/{name}");
        let in_place = |value: &Value| -> Value {
            serde_json::from_str(&value.to_string().replace("HERE", &directory)).unwrap()
        };
        let details: Vec<Hash> = self.write(|batch| {
            let store = |(at, (_, _, input, output)): (usize, &Told)| {
                let detail = json!({
                    "input": in_place(input), "output": in_place(output), "prompt": format!("{name} {at}"),
                    "metadata": output.get("metadata"),
                });
                value::store(batch, &detail, None).unwrap()
            };
            told.iter().enumerate().map(store).collect()
        });
        let steps = told.iter().zip(details).enumerate().map(|(at, ((kind, tool, _, output), detail))| {
            let number = at as u64 + 1;
            let mut id = [name.len() as u8; 16];
            id[..8].copy_from_slice(&number.to_le_bytes());
            let call = matches!(kind, StepKind::ModelStart | StepKind::ModelEnd).then(|| "m1".to_string());
            Step {
                id: StepId::from_bytes(id),
                session: SessionId::from_bytes([0; 16]),
                number,
                parent: None,
                kind: *kind,
                at: Timestamp::from_micros(at as i64 * 1_000_000),
                state: Hash::of(ObjectKind::State, b""),
                summary: format!("{tool} in {directory}"),
                meta: StepMeta {
                    tool: (!tool.is_empty()).then(|| (*tool).to_string()),
                    failed: output == "failed",
                    detail: Some(detail.into()),
                    call,
                    ..StepMeta::default()
                },
            }
        });
        ComparedRun {
            name: name.to_string(),
            steps: steps.collect(),
            start: Some(state()),
            end: Some(state()),
            directories: vec![directory.clone()],
            ..ComparedRun::default()
        }
    }

    #[track_caller]
    fn compare(&self, a: &ComparedRun, b: &ComparedRun) -> Comparison {
        compare(&self.store, a, b).unwrap()
    }
}

/// A state with files, the same for all tests.
fn state() -> WorkspaceState {
    WorkspaceState { files: Some(Hash::of(ObjectKind::Tree, b"")), ..WorkspaceState::default() }
}

fn bash(command: &str, output: &str) -> [Told; 2] {
    let input = json!({ "command": command });
    [
        (StepKind::ToolStart, "Bash", input.clone(), Value::Null),
        (StepKind::ToolEnd, "Bash", input, json!(output)),
    ]
}

fn told(calls: &[[Told; 2]]) -> Vec<Told> {
    calls.iter().flatten().cloned().collect()
}

/// Formats rows as step numbers of both sides, with `!` where they differ.
fn rows(comparison: &Comparison) -> Vec<String> {
    let number =
        |entry: &Option<ComparedStep>| entry.as_ref().map_or("-".into(), |entry| entry.number.to_string());
    let row = |row: &ComparisonRow| {
        format!("{}{}{}", number(&row.a), if row.is_same() { "=" } else { "!" }, number(&row.b))
    };
    comparison.rows.iter().map(row).collect()
}

#[test]
fn a_step_more_does_not_make_the_others_differ() {
    let maker = Maker::new();
    let a = maker.side("a", &told(&[bash("ls", "x"), bash("make", "ok"), bash("git diff", "")]));
    let b = maker
        .side("bb", &told(&[bash("ls", "x"), bash("pwd", "/"), bash("make", "ok"), bash("git diff", "")]));
    let found = maker.compare(&a, &b);
    assert_eq!(rows(&found), ["1=1", "2=2", "-!3", "-!4", "3=5", "4=6", "5=7", "6=8"]);
    assert_eq!(found.counts, RowCounts { same: 6, differ: 0, only_a: 0, only_b: 2 });
    let first = found.first_difference.unwrap();
    assert_eq!((first.row, first.a, first.b), (2, None, Some(3)));
    assert_eq!(first.differs, [StepDifference::OnlyB]);
    assert!(found.summary[0].contains("only B has #3"), "{:?}", found.summary);
    assert_eq!(found.summary[1], "B runs 1 tool call more and takes 2 s longer.");
    assert_eq!(found.summary[2], "They end with the same files.");
}

#[test]
fn another_input_is_found_with_its_place() {
    let maker = Maker::new();
    let a = maker.side("a", &told(&[bash("ls", "x"), bash("make test", "ok")]));
    let b = maker.side("b", &told(&[bash("ls", "x"), bash("make check", "ok")]));
    let found = maker.compare(&a, &b);
    assert_eq!(rows(&found), ["1=1", "2=2", "3!3", "4!4"]);
    let first = found.first_difference.clone().unwrap();
    assert_eq!((first.a, first.b, first.differs), (Some(3), Some(3), vec![StepDifference::Input]));
    let part = &first.parts[0];
    assert_eq!(part.pointer, "/input/command");
    assert_eq!((&part.before, &part.after), (&Some(json!("make test")), &Some(json!("make check"))));
    assert_eq!(
        found.summary[0],
        "They diverge at #3 after 2 steps in common: Bash got a different input at /input/command."
    );
}

#[test]
fn the_directory_of_a_run_makes_no_difference_and_its_output_does() {
    let maker = Maker::new();
    let a = maker.side("a", &told(&[bash("cd HERE && ls HERE/src", "HERE/src/x")]));
    let b = maker.side("elsewhere", &told(&[bash("cd HERE && ls HERE/src", "HERE/src/x")]));
    assert!(maker.compare(&a, &b).first_difference.is_none());
    let c = maker.side("c", &told(&[bash("cd HERE && ls HERE/src", "failed")]));
    let found = maker.compare(&a, &c);
    assert_eq!(rows(&found), ["1=1", "2!2"]);
    assert_eq!(found.rows[1].differs, [StepDifference::Output, StepDifference::Outcome]);
    assert!(found.summary[0].contains("gave a different output at /output"), "{:?}", found.summary);
    assert_eq!((found.a.failed, found.b.failed), (0, 1));
}

#[test]
fn steps_about_the_same_thing_stand_for_each_other() {
    let maker = Maker::new();
    let mut a = maker.side("a", &told(&[bash("echo one", "")]));
    let mut b = maker.side("b", &told(&[bash("git stash", ""), bash("echo two", "")]));
    for step in a.steps.iter_mut().chain(&mut b.steps[2..]) {
        step.summary = "Bash: echo something".into();
    }
    let found = maker.compare(&a, &b);
    assert_eq!(rows(&found), ["-!1", "-!2", "1!3", "2!4"]);
}

#[test]
fn another_tool_stands_in_its_place() {
    let maker = Maker::new();
    let other: Told = (StepKind::ToolStart, "Write", json!({ "file_path": "x" }), Value::Null);
    let a = maker.side("a", &told(&[bash("ls", "x"), bash("pwd", "/")]));
    let mut steps = told(&[bash("ls", "x"), bash("pwd", "/")]);
    steps[2] = other;
    let found = maker.compare(&a, &maker.side("b", &steps));
    assert_eq!(rows(&found), ["1=1", "2=2", "3!3", "4=4"]);
    assert!(found.summary[0].contains("Write instead of Bash"), "{:?}", found.summary);
    assert_eq!(found.b.tools["Write"], 1);
}

#[test]
fn model_calls_are_compared_by_what_they_say() {
    let maker = Maker::new();
    let call = |id: &str, text: &str, cost: f64| -> Vec<Told> {
        let request = json!({
            "wire": "messages", "method": "POST", "path": "/v1/messages",
            "body": { "model": "m", "messages": [{ "role": "user", "content": id }] }, "bytes": 5,
        });
        let body = json!({
            "id": id, "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "content": [{ "type": "text", "text": text }], "usage": { "input_tokens": 5, "output_tokens": 7 },
        });
        let answer = json!({
            "status": 200, "headers": [], "body": body.to_string(), "chunks": "", "ended": "complete", "took": id.len(),
            "metadata": { "model": "m", "usage": { "input": 5, "output": 7 }, "cost_usd": cost },
        });
        vec![
            (StepKind::ModelStart, "m", request, Value::Null),
            (StepKind::ModelEnd, "m", Value::Null, answer),
        ]
    };
    let a = maker.side("a", &call("msg_1", "All done.", 0.25));
    let again = maker.side("b", &call("msg_22", "All done.", 0.25));
    let found = maker.compare(&a, &again);
    assert_eq!(rows(&found), ["1=1", "2=2"], "ids and times make no difference: {:?}", found.rows);
    assert_eq!(found.a.last_words.as_deref(), Some("All done."));
    assert_eq!((found.a.model_calls, found.a.tokens.output, found.a.cost_usd), (1, 7, Some(0.25)));
    let other = maker.side("c", &call("msg_3", "I give up.", 0.5));
    let found = maker.compare(&a, &other);
    assert_eq!(rows(&found), ["1=1", "2!2"]);
    assert!(found.summary[1].contains("costs $0.25 more"), "{:?}", found.summary);
}

#[test]
fn ends_tell_memory_and_conversation_apart() {
    let maker = Maker::new();
    let (mut a, mut b) = (maker.side("a", &[]), maker.side("b", &[]));
    let slot = |value: Value| Some(maker.write(|batch| value::store(batch, &value, None).unwrap()));
    let memory = |value| WorkspaceState { memory: slot(value), ..state() };
    a.end = Some(memory(json!({ "plan": "one", "seen": 1 })));
    b.end =
        Some(WorkspaceState { task: slot(json!("new")), ..memory(json!({ "plan": "two", "more": true })) });
    let talk = |texts: &[&str]| {
        maker.write(|batch| {
            let sink: &dyn ObjectSink = batch;
            conversation::append(sink, None, 0, texts.iter().copied()).unwrap()
        })
    };
    (a.conversation, b.conversation) = (talk(&["one", "two"]), talk(&["one", "other", "more"]));
    let found = maker.compare(&a, &b);
    let [memory, task] = &found.ends.slots[..] else { panic!("{:?}", found.ends.slots) };
    assert_eq!((memory.slot, memory.added, memory.removed, memory.changed), ("memory", 1, 1, 1));
    assert!(memory.differences.iter().any(|part| part.pointer == "/plan"));
    assert_eq!((task.slot, task.added), ("task", 1));
    assert_eq!(found.ends.conversation, Conversations { shared: 1, a: 2, b: 3 });
    assert!(found.rows.is_empty() && found.first_difference.is_none());
    assert_eq!(
        found.summary,
        [
            "They have the same files.",
            "Their memory differs in 3 places.",
            "Their task differs in 1 place.",
            "They have 1 message in common; then A has 1 more and B 2."
        ]
    );
    b.end = Some(WorkspaceState { files: None, ..state() });
    let unknown = maker.compare(&a, &b);
    assert!(
        unknown.ends.files.is_none() && unknown.summary[0].contains("not known"),
        "{:?}",
        unknown.summary
    );
    // The whole comparison serialises to JSON.
    assert_eq!(json!(found)["slots"][0]["slot"], "memory");
}

/// What a run did before it was forked is not missing in the fork.
#[test]
fn a_rerun_is_compared_from_the_step_at_which_it_began() {
    let maker = Maker::new();
    let start = (StepKind::StateChange, "", Value::Null, Value::Null);
    let prompt = |text: &str| (StepKind::UserInput, "", json!({ "prompt": text }), Value::Null);
    let [one_a, one_b] = bash("one", "1");
    let [two_a, two_b] = bash("two", "2");
    let original = maker.side(
        "a",
        &[start.clone(), prompt("first"), one_a, one_b, prompt("second"), two_a.clone(), two_b.clone()],
    );
    let session = stepback_model::record::Session {
        id: SessionId::from_bytes([1; 16]),
        workspace: stepback_model::ids::WorkspaceId::from_bytes([2; 16]),
        agent: "claude".into(),
        started_at: Timestamp::from_micros(0),
        info: Default::default(),
    };
    let original = ComparedRun { session: Some(session.clone()), ..original };
    let again = maker.side("bb", &[start, prompt("second"), two_a, two_b]);
    assert!(maker.compare(&original, &again).first_difference.is_some());
    let fork = |number, repeats| Some(RunFork { of: session.id, number, repeats });
    let rerun = ComparedRun { fork: fork(5, true), ..again.clone() };
    let found = maker.compare(&original, &rerun);
    assert_eq!((found.first_difference.is_none(), found.a.name.as_str()), (true, "a from #5"));
    assert_eq!(found.counts.same, 4);
    // The other way round, too; and a continued conversation has only what came after its step.
    assert!(maker.compare(&rerun, &original).first_difference.is_none());
    let after = ComparedRun { steps: again.steps[2..].to_vec(), fork: fork(5, false), ..again };
    assert!(maker.compare(&original, &after).first_difference.is_none());
}

#[test]
fn long_runs_that_have_nothing_in_common_are_compared_too() {
    let maker = Maker::new();
    let run =
        |word: &str| -> Vec<Told> { (0..2500).flat_map(|at| bash(&format!("{word} {at}"), word)).collect() };
    let (a, b) = (maker.side("a", &run("one")), maker.side("b", &run("two")));
    let found = maker.compare(&a, &b);
    assert_eq!(found.counts, RowCounts { same: 0, differ: 5000, only_a: 0, only_b: 0 });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A run equals itself, and aligning any two keeps all steps in order, none lost and none duplicated.
    #[test]
    fn steps_stay_in_order(
        a in proptest::collection::vec((0usize..5, 0usize..4), 0..30),
        b in proptest::collection::vec((0usize..5, 0usize..4), 0..30),
    ) {
        let maker = Maker::new();
        let run = |steps: &[(usize, usize)]| -> Vec<Told> {
            let kinds = [StepKind::ToolStart, StepKind::ToolEnd, StepKind::UserInput, StepKind::AgentStep, StepKind::ModelEnd];
            let tools = ["Bash", "Write", "Read", "Bash"];
            steps.iter().map(|(kind, what)| (kinds[*kind], tools[*what], json!({ "n": what }), json!(what))).collect()
        };
        let (one, other) = (maker.side("a", &run(&a)), maker.side("b", &run(&b)));
        let same = maker.compare(&one, &one);
        prop_assert!(same.first_difference.is_none() && same.counts.same == a.len() as u64);
        let found = maker.compare(&one, &other);
        let of = |pick: fn(&ComparisonRow) -> &Option<ComparedStep>| -> Vec<u64> {
            found.rows.iter().filter_map(|row| pick(row).as_ref().map(|entry| entry.number)).collect()
        };
        prop_assert_eq!(of(|row| &row.a), (1..=a.len() as u64).collect::<Vec<_>>());
        prop_assert_eq!(of(|row| &row.b), (1..=b.len() as u64).collect::<Vec<_>>());
        prop_assert!(found.rows.iter().all(|row| row.a.is_some() || row.b.is_some()));
        let counts = found.counts;
        prop_assert_eq!(counts.same + counts.differ + counts.only_a, a.len() as u64);
    }
}
