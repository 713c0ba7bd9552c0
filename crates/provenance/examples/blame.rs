//! Records a file with many changes by many sessions, and the same history in git, for `bench ask`.
//!
//! `cargo run --release -p stepback-provenance --example blame -- DIRECTORY [LINES] [CHANGES] [SESSIONS]` makes the
//! workspace `DIRECTORY/work` with the store `DIRECTORY/store`, writes `DIRECTORY/history`, which `git fast-import` reads,
//! and prints one JSON document. The file is `src/code.rs`. A tenth of its lines is older than the recording.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use stepback_engine::Engine;
use stepback_engine::recorder::{CallFacts, ChangeScope, ReportedEvent, ScanPolicy};
use stepback_model::env::FrozenEnv;
use stepback_model::event::AgentEvent;
use stepback_model::path::RelPath;
use stepback_model::record::{Annotation, StepKind, Trigger};
use stepback_model::time::Timestamp;
use stepback_provenance::{BlameRequest, blame, blame_document};
use stepback_store::embedded::EmbeddedStore;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// The file whose lines are asked for.
const FILE: &str = "src/code.rs";
/// The time of the first step, in seconds.
const START: i64 = 1_700_000_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(directory) = arguments.next().map(PathBuf::from) else {
        eprintln!("say where: blame DIRECTORY [LINES] [CHANGES] [SESSIONS]");
        exit(2);
    };
    let mut number = |usual: usize| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (lines, changes, sessions) = (number(5000), number(2000), number(50));
    match record(&directory, lines, changes, sessions.max(1)) {
        Ok(document) => println!("{document}"),
        Err(error) => {
            eprintln!("{error}");
            exit(1);
        }
    }
}

/// Numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

/// A file that is edited as programs are: lines are added and replaced, mostly near one another.
struct EditedFile {
    lines: Vec<String>,
    numbers: Numbers,
}

impl EditedFile {
    fn line(number: usize, change: usize) -> String {
        format!("    let value_{number} = compute(input_{number}, {change}); // change {change}\n")
    }

    fn edit(&mut self, change: usize, goal: usize) {
        let count = 1 + self.numbers.below(6);
        let at = self.numbers.below(self.lines.len() + 1);
        let added = (0..count).map(|number| Self::line(self.numbers.0 as usize % 9973 + number, change));
        let added: Vec<String> = added.collect();
        // It grows to its size, and then as many lines go as come.
        let replaced = if self.lines.len() + count > goal { count } else { self.numbers.below(2) };
        let end = (at + replaced).min(self.lines.len());
        self.lines.splice(at..end, added);
    }

    fn text(&self) -> String {
        self.lines.concat()
    }
}

fn record(directory: &Path, lines: usize, changes: usize, sessions: usize) -> Fallible<Value> {
    let root = directory.join("work");
    fs::create_dir_all(root.join("src"))?;
    let root = root.canonicalize()?;
    let started = Instant::now();
    let env = Arc::new(FrozenEnv::new(Timestamp::from_micros(START * 1_000_000), 1));
    let engine = Engine::new(Arc::new(EmbeddedStore::open(&directory.join("store"))?), env);
    let workspace = engine.open_workspace_root(&root)?;
    let initial = lines.saturating_sub(changes * 2).max(lines / 10).max(1);
    let mut file = EditedFile {
        lines: (0..initial).map(|number| EditedFile::line(number, 0)).collect(),
        numbers: Numbers(7),
    };
    let mut history = String::new();
    let path = root.join(FILE);
    fs::write(&path, file.text())?;
    commit(&mut history, 0, "before", &file.text())?;
    workspace.create_checkpoint(Annotation::default(), Trigger::Manual)?;
    for change in 1..=changes {
        let session = format!("session-{}", file.numbers.below(sessions));
        let call = format!("call-{change}");
        let report = |kind: StepKind, policy: ScanPolicy| -> Fallible<()> {
            let event = AgentEvent {
                key: Some(call.clone()),
                call: Some(call.clone()),
                tool: Some("Edit".to_owned()),
                ..AgentEvent::new("bench", &session, kind, format!("edit {change}"))
            };
            let at = Timestamp::from_micros((START + change as i64) * 1_000_000);
            let call = CallFacts {
                paths: vec![FILE.into()],
                scope: ChangeScope::NamedPaths,
                ..CallFacts::default()
            };
            let lock = workspace.lock_recording()?;
            workspace.record(
                &lock,
                &ReportedEvent { scan_policy: policy, call, ..ReportedEvent::new(event, at) },
            )?;
            Ok(())
        };
        report(StepKind::ToolStart, ScanPolicy::Before)?;
        file.edit(change, lines);
        fs::write(&path, file.text())?;
        report(StepKind::ToolEnd, ScanPolicy::After)?;
        commit(&mut history, change, &session, &file.text())?;
    }
    let recorded = started.elapsed();
    fs::write(directory.join("history"), &history)?;
    // The same answer as a program in the process gets, for the profile of a question.
    let request = BlameRequest { path: RelPath::parse(FILE)?, at: None, lines: None };
    let mut times = Vec::new();
    let mut found = None;
    for _ in 0..5 {
        let started = Instant::now();
        let blamed = blame::blame(&workspace, &request)?;
        let document = blame_document(&workspace, &blamed)?;
        times.push(started.elapsed().as_secs_f64() * 1000.0);
        found = Some(document);
    }
    times.sort_by(f64::total_cmp);
    let found = found.ok_or("nothing was asked")?;
    Ok(json!({
        "lines": found.count,
        "changes": changes,
        "sessions": sessions,
        "origins": found.origins.len(),
        "steps": workspace.newest_step_number()?,
        "record_s": recorded.as_secs_f64(),
        "in_process_p50_ms": times[times.len() / 2],
    }))
}

/// Adds a commit to the stream that `git fast-import` reads.
fn commit(history: &mut String, number: usize, author: &str, text: &str) -> Fallible<()> {
    let seconds = START + i64::try_from(number)?;
    write!(
        history,
        "commit refs/heads/main\ncommitter {author} <{author}@localhost> {seconds} +0000\ndata 6\nchange\n\
         M 644 inline {FILE}\ndata {}\n{text}\n",
        text.len()
    )?;
    Ok(())
}
