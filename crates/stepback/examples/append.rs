//! Measures what it takes to append one step and have it durable, in the process that has the store open: what a saver's put
//! is for LangGraph.
//!
//! `cargo run --release -p stepback --example append -- STORE DIRECTORY FIRST COUNT` prints one JSON document. STORE is a
//! directory or the address of a database, DIRECTORY is for what a database keeps on this machine.

use std::path::Path;
use std::process::exit;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use stepback_engine::Engine;
use stepback_engine::recorder::{EventSource, ReportedEvent, WorkspaceEvents};
use stepback_model::env::{Env, FrozenEnv};
use stepback_model::event::AgentEvent;
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;
use stepback_postgres::PostgresStore;
use stepback_store::Store;
use stepback_store::embedded::EmbeddedStore;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, directory, first, count] = arguments.as_slice() else {
        eprintln!("say what: append STORE DIRECTORY FIRST COUNT");
        exit(2);
    };
    match measure(store, Path::new(directory), first, count) {
        Ok(document) => println!("{document}"),
        Err(error) => {
            eprintln!("{error}");
            exit(1);
        }
    }
}

/// The event with this number: about as many bytes as LangGraph's savers are given.
fn event(number: u64) -> AgentEvent {
    AgentEvent {
        key: Some(number.to_string()),
        tool: Some("t".into()),
        input: Some(json!({ "command": format!("make test N={number}") })),
        output: Some(Value::String(format!("{number} {}", "x".repeat(700)))),
        ..AgentEvent::new("bench", "single", StepKind::ToolEnd, "t")
    }
}

fn measure(store: &str, directory: &Path, first: &str, count: &str) -> Fallible<Value> {
    let (first, count): (u64, u64) = (first.parse()?, count.parse()?);
    let store: Arc<dyn Store> = match store.starts_with("postgres") {
        true => Arc::new(PostgresStore::open(store, directory)?),
        false => Arc::new(EmbeddedStore::open(Path::new(store))?),
    };
    // What time it is does not matter, what another process made does: numbers at random, not those of another.
    let env = Arc::new(FrozenEnv::new(Timestamp::from_micros(1_700_000_000_000_000), first + 1));
    let engine = Engine::new(store, env.clone());
    let workspace = engine.open_remote_workspace("appended")?;
    let mut took = Vec::new();
    for number in first..first + count {
        let event = event(number);
        let begun = Instant::now();
        let report = ReportedEvent { source: EventSource::Keyed, ..ReportedEvent::new(event, env.now()) };
        let lock = workspace.lock_recording()?;
        let reports = [report];
        let done = engine.record_workspaces(&[WorkspaceEvents {
            workspace: &workspace,
            lock: &lock,
            reports: &reports,
        }])?;
        took.push(begun.elapsed().as_secs_f64() * 1e3);
        assert!(done[0][0].number > 0, "it has no number");
    }
    Ok(json!({ "took_ms": took }))
}
