//! Makes a store with many steps of many sessions and measures the questions about their numbers; `cargo xtask bench ask` runs it.
//!
//! Usage: ask DIR STEPS. Makes the store in DIR, if there is none, and prints one JSON document with times in milliseconds.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use stepback_analysis::cost::{CostGrouping, CostRequest, cost_document};
use stepback_analysis::load::{FactsQuery, load_facts};
use stepback_engine::recorder::{NewMessages, ReportedEvent};
use stepback_engine::{Engine, SystemEnv, Workspace};
use stepback_llm_wire::prices::Prices;
use stepback_model::event::AgentEvent;
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;
use stepback_store::embedded::EmbeddedStore;

/// Steps of a session.
const SESSION_STEPS: usize = 1000;
/// Steps that are recorded by one commit.
const BATCH_STEPS: usize = 500;
/// How often each question is asked.
const REPEATS: usize = 5;
/// 2026-01-01T00:00:00Z
const START: i64 = 1_767_225_600_000_000;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let (Some(dir), Some(steps)) = (args.next(), args.next()) else {
        return Err("usage: ask DIR STEPS".into());
    };
    let (dir, steps) = (Path::new(&dir), steps.parse::<usize>()?);
    let is_new = !dir.join("store").exists();
    std::fs::create_dir_all(dir.join("work"))?;
    let store = Arc::new(EmbeddedStore::open(&dir.join("store"))?);
    let engine = Engine::new(store, Arc::new(SystemEnv));
    let workspace = engine.open_workspace(dir.join("work"))?;
    if is_new {
        for session in 0..steps.div_ceil(SESSION_STEPS) {
            record_session(&workspace, session, SESSION_STEPS.min(steps - session * SESSION_STEPS))?;
        }
    }
    println!("{}", measure(dir, &engine, &workspace, steps)?);
    Ok(())
}

/// Records a session of prompts, answers and calls, with a conversation that has the usage of its answers.
fn record_session(workspace: &Workspace, session: usize, steps: usize) -> Outcome<()> {
    let name = format!("session-{session}");
    let lock = workspace.lock_recording()?;
    let mut made = 0;
    while made < steps {
        let mut lines = Vec::new();
        let count = BATCH_STEPS.min(steps - made);
        let mut reports = Vec::with_capacity(count);
        for number in made..made + count {
            let (event, line) = step(&name, session, number);
            let at = Timestamp::from_micros(START + (session * SESSION_STEPS + number) as i64 * 700_000);
            lines.extend(line.map(|line| line.to_string()));
            reports.push(ReportedEvent::new(event, at));
        }
        if let Some(last) = reports.last_mut() {
            last.messages = Some(NewMessages { lines, ..NewMessages::default() });
        }
        let mut batch = workspace.open_batch(&lock, &reports)?;
        reports.into_iter().try_for_each(|report| batch.add(report))?;
        batch.commit()?;
        made += count;
    }
    Ok(())
}

/// The event of a step, and the line of the conversation if it is an answer: every tenth step is a prompt, an answer of a proxy
/// or one that only the conversation has; the others are calls.
fn step(session: &str, salt: usize, number: usize) -> (AgentEvent, Option<Value>) {
    let turn = number / 10;
    let kind = match number % 10 {
        0 => StepKind::UserInput,
        1 => StepKind::ModelEnd,
        rest if rest % 2 == 0 => StepKind::ToolStart,
        _ => StepKind::ToolEnd,
    };
    let mut event = AgentEvent::new("claude", session, kind, format!("step {number}"));
    event.key = Some(format!("{number}"));
    let read = 2000 + (turn as u64 * 900) % 150_000;
    match kind {
        StepKind::UserInput => event.input = Some(json!(format!("Please change number {number} of {salt}."))),
        StepKind::ModelEnd => {
            event.call = Some(format!("m{number}"));
            event.output = Some(json!("I look at it."));
            event.metadata = Some(json!({ "model": "claude-sonnet-4-5", "first_byte_us": 400_000,
                "usage": { "input": 12, "output": 200 + turn % 90, "cache_read": read, "cache_write": 900, "reasoning": 0 },
                "cost_usd": 0.01 }));
            event.duration = Some(3_000_000);
        }
        _ => {
            let tool = ["Read", "Bash", "Edit", "Grep"][(number / 2 + salt) % 4];
            event.tool = Some(tool.into());
            event.call = Some(format!("c{}", number / 2));
            let command = format!("cargo test -p crate-{} -- case_{}", salt % 7, turn % 13);
            event.input = Some(json!({ "command": command, "description": "Run a test" }));
            if kind == StepKind::ToolEnd {
                let text = format!("running 12 tests\n{}", "test result: ok in 0.3s\n".repeat(5 + turn % 40));
                event.output = Some(json!({ "stdout": text, "stderr": "", "interrupted": false }));
                event.duration = Some(150_000 + (number as u64 * 7919) % 900_000);
            }
        }
    }
    let line = (number % 10 == 5).then(|| {
        json!({ "type": "assistant", "uuid": format!("u{salt}-{number}"),
            "timestamp": Timestamp::from_micros(START + (salt * SESSION_STEPS + number) as i64 * 700_000).to_string(),
            "message": { "role": "assistant", "id": format!("msg-{salt}-{number}"), "model": "claude-haiku-4-5",
                "content": [{ "type": "text", "text": "A few words about the result of the test." }],
                "usage": { "input_tokens": 40 + turn, "output_tokens": 60, "cache_read_input_tokens": read } } })
    });
    (event, line)
}

/// Asks every question with nothing kept, and then from what is kept.
fn measure(dir: &Path, engine: &Engine, workspace: &Workspace, steps: usize) -> Outcome<Value> {
    let kept = dir.join("store/workspaces").join(workspace.record.id.to_string()).join("facts");
    let forget = || drop(std::fs::remove_dir_all(&kept));
    let facts = || -> Outcome<()> {
        load_facts(engine, &Prices::built_in(), &FactsQuery::default())?;
        Ok(())
    };
    let cost = |by| {
        move || -> Outcome<()> {
            cost_document(engine, &CostRequest { by, ..CostRequest::default() })?;
            Ok(())
        }
    };
    let facts_cold = time(|| {
        forget();
        facts()
    })?;
    let facts_kept = time(facts)?;
    let tool = cost(CostGrouping::Tool);
    let cost_cold = time(|| {
        forget();
        tool()
    })?;
    let bytes: u64 =
        std::fs::read_dir(&kept)?.flatten().filter_map(|file| Some(file.metadata().ok()?.len())).sum();
    Ok(json!({
        "steps": steps,
        "facts_cold_ms": facts_cold,
        "facts_kept_ms": facts_kept,
        "cost_cold_ms": cost_cold,
        "cost_by_tool_kept_ms": time(cost(CostGrouping::Tool))?,
        "cost_by_model_kept_ms": time(cost(CostGrouping::Model))?,
        "cost_by_prompt_kept_ms": time(cost(CostGrouping::Prompt))?,
        "cost_by_branch_kept_ms": time(cost(CostGrouping::Branch))?,
        "kept_bytes": bytes,
    }))
}

/// The median of a few runs, in milliseconds.
fn time(mut run: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let mut times = Vec::with_capacity(REPEATS);
    for _ in 0..REPEATS {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[REPEATS / 2])
}
