//! Measures what a board costs: a change with its step, the board at any past moment, and bytes beside full copies.
//!
//! `cargo run --release -p stepback-board --example board -- DIRECTORY [CHANGES]` prints one JSON document.

use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepback_engine::Engine;
use stepback_engine::board::{BoardEditor, BoardMoment};
use stepback_model::env::FrozenEnv;
use stepback_model::time::Timestamp;
use stepback_reasoning::BoardMutation;
use stepback_reasoning::ids::{BeliefId, GapId, HypothesisId};
use stepback_reasoning::item::{
    BeliefKind, Criticality, DependencyKind, EvidenceKind, EvidenceOrigin, GapKind, HypothesisStatus,
};
use stepback_store::embedded::EmbeddedStore;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(directory) = arguments.next().map(PathBuf::from) else {
        eprintln!("say where: board DIRECTORY [CHANGES]");
        exit(2);
    };
    let changes = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(10_000);
    match measure(&directory, changes) {
        Ok(document) => println!("{document}"),
        Err(error) => {
            eprintln!("{error}");
            exit(1);
        }
    }
}

/// The change with this number: mostly evidence, as in a long hunt.
fn make_mutation(number: u32) -> BoardMutation {
    let newest = number / 20 + 1;
    match number % 20 {
        0 => BoardMutation::ProposeHypothesis {
            statement: format!("request {number} fails because the pool behind it is exhausted"),
            prior: 0.3,
            parents: Vec::new(),
            excludes: Vec::new(),
            tags: vec!["pool".into()],
        },
        1 => BoardMutation::AddBelief {
            statement: format!("host {number} answers within the limit that is set for it"),
            kind: BeliefKind::Inference,
            confidence: 0.8,
            subject: None,
            value: None,
            hypothesis: Some(HypothesisId(newest)),
            tags: Vec::new(),
        },
        2 if newest > 1 => BoardMutation::Depend {
            belief: BeliefId(newest),
            on: BeliefId(newest - 1),
            kind: DependencyKind::SupportedBy,
            strength: 0.5,
            reason: None,
        },
        3 => BoardMutation::AddGap {
            question: format!("what does host {number} do between two requests?"),
            kind: GapKind::Behavior,
            criticality: Criticality::Medium,
            blocks: vec![HypothesisId(newest).into()],
            after: Vec::new(),
            strategy: Some("read its log".into()),
            minutes: None,
        },
        4 => BoardMutation::FillGap { gap: GapId(newest), answer: "it waits for a lock".into() },
        5 => BoardMutation::AddNote {
            text: format!("note {number} about the host"),
            about: Vec::new(),
            tags: Vec::new(),
        },
        6 => BoardMutation::SetHypothesis {
            hypothesis: HypothesisId(newest),
            status: HypothesisStatus::Testing,
            reason: None,
        },
        _ => BoardMutation::AddEvidence {
            hypothesis: HypothesisId(newest),
            strength: f64::from(number % 7) / 10.0 - 0.3,
            text: format!("line {number} of the log shows a wait of {} ms", number % 900),
            kind: EvidenceKind::Observation,
            source: EvidenceOrigin::Code { file: format!("src/host_{}.rs", number % 50), line: Some(number) },
        },
    }
}

/// Records `changes` changes of one board and returns how long writing and loading took, and the bytes stored.
fn measure(directory: &Path, changes: u32) -> Fallible<Value> {
    let root = directory.join("work");
    std::fs::create_dir_all(&root)?;
    for number in 0..10 {
        std::fs::write(root.join(format!("file{number}")), "some text\n")?;
    }
    let root = root.canonicalize()?;
    let start = Timestamp::from_micros(1_700_000_000_000_000);
    let env = Arc::new(FrozenEnv::new(start, 1));
    let (mut times, mut full_copy_bytes) = (Vec::new(), 0u64);
    let usage = {
        let store = Arc::new(EmbeddedStore::open(&directory.join("store"))?);
        let engine = Engine::new(store, env.clone());
        let workspace = engine.open_workspace_root(&root)?;
        let session = workspace.session.clone();
        let mut editor = BoardEditor::new(&workspace, &session);
        for number in 0..changes {
            let mutation = make_mutation(number);
            let started = Instant::now();
            editor.apply(&mutation)?;
            times.push(started.elapsed());
            // Baseline: storing the whole board for each version, sampled at every 100th and multiplied by 100.
            if number % 100 == 99 {
                full_copy_bytes += 100 * editor.board()?.document().to_string().len() as u64;
            }
        }
        engine.store().usage()?
    };
    // Reopened, so that the measured loads do not use a warm cache.
    let store = Arc::new(EmbeddedStore::open(&directory.join("store"))?);
    let engine = Engine::new(store, env);
    let workspace = engine.open_workspace_root(&root)?;
    let session = workspace.session.clone();
    let newest = workspace.newest_step_number()?;
    let (mut loads, mut seed) = (Vec::new(), 0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..200 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = (seed >> 33) % newest + 1;
        let started = Instant::now();
        let past_board = workspace.board_at(&session, &BoardMoment::Step(number))?;
        loads.push(started.elapsed());
        std::hint::black_box(past_board.board.count());
    }
    let started = Instant::now();
    let last = workspace.board_at(&session, &BoardMoment::Now)?;
    let newest_ms = milliseconds(started.elapsed());
    let started = Instant::now();
    let page = stepback_board::build_recovery_page(&workspace, &session, &BoardMoment::Now, 2000, start)?;
    let recovery_ms = milliseconds(started.elapsed());
    let sample = times.len().min(100);
    Ok(json!({
        "changes": changes,
        "items": last.board.count(),
        "change_p50_ms": percentile(&times, 50),
        "change_p99_ms": percentile(&times, 99),
        "change_first_hundred_p50_ms": percentile(&times[..sample], 50),
        "change_last_hundred_p50_ms": percentile(&times[times.len() - sample..], 50),
        "load_past_p50_ms": percentile(&loads, 50),
        "load_past_p99_ms": percentile(&loads, 99),
        "load_newest_ms": newest_ms,
        "recovery_ms": recovery_ms,
        "recovery_bytes": page.page.len(),
        "stored_bytes": usage.stored_bytes,
        "store_bytes": usage.total_bytes,
        "full_copies_bytes": full_copy_bytes,
        "stored_of_full_copies": usage.stored_bytes as f64 / full_copy_bytes.max(1) as f64,
        "store_of_full_copies": usage.total_bytes as f64 / full_copy_bytes.max(1) as f64,
    }))
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn percentile(times: &[Duration], percent: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort();
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).map_or(0.0, |time| milliseconds(*time))
}
