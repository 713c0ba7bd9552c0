//! `bench server`: what a server takes in and how fast it answers, beside LangGraph's savers in the same run.
//!
//! The server is the release binary as a process of its own, with a store of its own on the disk of the target directory.
//! Everything it acknowledges is durable; that as many steps are stored as were acknowledged is checked, or nothing counts.

pub mod asking;
mod langgraph;
pub mod process;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::files::{Run, flush};
use super::goals::{Goal, above, below};
use super::report::{Table, goal_list};
use super::results::{ms, percentile};
use asking::{Batch, Connection};
use process::Serving;

/// So many clients send at once.
const CLIENTS: usize = 16;
/// So many steps are in a batch.
pub const TOGETHER: usize = 100;
/// So many sessions each client has, one after the other.
const SESSIONS: u64 = 20;

/// What was measured.
#[derive(Default)]
pub struct Measured {
    /// Steps that were taken in, and how many of them in each second.
    ingested: u64,
    rates: Vec<f64>,
    bytes_each: usize,
    single_ms: Vec<f64>,
    langgraph_ms: Vec<f64>,
    langgraph: String,
    stored: u64,
    /// What was asked with so much stored, and how long each answer took.
    answers: Vec<(&'static str, Vec<f64>)>,
    peak: u64,
    disk: u64,
}

/// Measures all of it.
pub fn measure(run: &mut Run<'_>, cache: &std::path::Path) -> Result<Measured> {
    let quick = run.options.quick;
    let mut measured = Measured { bytes_each: Batch::new(0, 0).bytes() / TOGETHER, ..Measured::default() };
    let server = Serving::start(&run.area, &run.binary)?;
    let rounds: u64 = if quick { 2 } else { 5 };
    let each: u64 = if quick { 40_000 } else { 200_000 };
    for round in 0..rounds {
        flush(&run.area);
        run.monitor.sample("ingest");
        measured.rates.push(ingest(&server, round, each)?);
        measured.ingested += each;
    }
    singles(run, &server, cache, &mut measured)?;
    measured.stored = server.steps()?;
    let expected = measured.ingested + measured.single_ms.len() as u64;
    ensure!(measured.stored == expected, "{expected} were acknowledged and {} are stored", measured.stored);
    run.monitor.sample("answers");
    measured.answers = answers(&server, run.options.runs)?;
    measured.peak = server.peak()?;
    measured.disk = server.disk()?;
    server.end()?;
    Ok(measured)
}

/// Sends so many steps from all clients at once. Returns how many were acknowledged in a second.
fn ingest(server: &Serving, round: u64, steps: u64) -> Result<f64> {
    let batches = steps / TOGETHER as u64;
    let next = AtomicU64::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let clients: Vec<_> = (0..CLIENTS as u64)
            .map(|client| {
                let next = &next;
                scope.spawn(move || -> Result<()> {
                    let mut connection = Connection::open(server)?;
                    let mut batch = Batch::new(round, client);
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= batches {
                            return Ok(());
                        }
                        batch.renew(number, number * SESSIONS / batches);
                        let answer = connection.post_until_taken(batch.body())?;
                        ensure!(answer["accepted"] == TOGETHER, "not all were taken: {answer}");
                    }
                })
            })
            .collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().unwrap_or_else(|_| anyhow::bail!("a client failed")))
    })?;
    Ok((batches * TOGETHER as u64) as f64 / started.elapsed().as_secs_f64())
}

/// Single appends, each durable before the next, in turns with a saver's puts.
fn singles(
    run: &mut Run<'_>,
    server: &Serving,
    cache: &std::path::Path,
    measured: &mut Measured,
) -> Result<()> {
    let mut connection = Connection::open(server)?;
    let peer = langgraph::prepare(cache);
    if let Err(error) = &peer {
        eprintln!("LangGraph's saver takes no part: {error:#}");
    }
    let turns = 4;
    let each = run.options.runs.div_ceil(turns);
    let one = |number: u64| {
        let text = "x".repeat(700);
        json!({ "workspace": "single", "agent": "bench", "events": [{
            "session": "single", "kind": "tool-end", "id": number.to_string(), "tool": "t", "output": format!("{number} {text}"),
            "input": { "command": format!("make test N={number}") } }] })
        .to_string()
    };
    for turn in 0..turns {
        flush(&run.area);
        run.monitor.sample("single appends");
        for at in 0..each {
            let body = one((turn * each + at) as u64);
            let before = Instant::now();
            let answer = connection.post_until_taken(body.as_bytes())?;
            measured.single_ms.push(ms(before.elapsed()));
            ensure!(answer["accepted"] == 1, "it was not taken: {answer}");
        }
        if let Ok(peer) = &peer {
            flush(&run.area);
            measured.langgraph_ms.extend(peer.puts(&run.area, each)?);
            measured.langgraph.clone_from(&peer.version);
        }
    }
    Ok(())
}

/// How long answers take with everything stored.
fn answers(server: &Serving, runs: usize) -> Result<Vec<(&'static str, Vec<f64>)>> {
    let mut connection = Connection::open(server)?;
    let sessions = connection.get("/sessions?limit=200")?;
    let ids: Vec<&str> = sessions["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|session| session["id"].as_str())
        .collect();
    ensure!(!ids.is_empty(), "there are no sessions");
    let mut all = Vec::new();
    for what in ["timeline page", "state at a point", "query", "search"] {
        let mut took = Vec::new();
        for run in 0..runs {
            let session = ids[run * 7919 % ids.len()];
            let first = connection.get(&format!("/sessions/{session}/steps?limit=1"))?;
            let number = first["items"][0]["number"].as_u64().context("a session has no step")?;
            let path = match what {
                "timeline page" => format!("/sessions/{session}/timeline?limit=100"),
                "state at a point" => format!("/sessions/{session}/steps/{number}/state"),
                "query" => format!("/sessions/{session}/steps?tool=bash&failed=true&limit=100"),
                _ => "/search?q=refactor".to_owned(),
            };
            let before = Instant::now();
            let answer = connection.get(&path);
            if answer.is_err() && what == "search" {
                break;
            }
            answer?;
            took.push(ms(before.elapsed()));
        }
        all.push((what, took));
    }
    Ok(all)
}

impl Measured {
    /// All numbers.
    pub fn json(&self) -> Value {
        let answers: Vec<Value> = (self.answers.iter())
            .map(|(what, took)| json!({ "what": what, "p50_ms": percentile(took, 50.0), "p99_ms": percentile(took, 99.0) }))
            .collect();
        let both = |values: &[f64]| json!({ "p50_ms": percentile(values, 50.0), "p99_ms": percentile(values, 99.0), "count": values.len() });
        json!({
            "ingest": { "clients": CLIENTS, "batch": TOGETHER, "bytes_each": self.bytes_each, "steps": self.ingested, "steps_per_second": self.rates },
            "single": { "stepback": both(&self.single_ms), "langgraph_sqlite": both(&self.langgraph_ms), "langgraph_version": self.langgraph },
            "stored_steps": self.stored, "answers": answers, "peak_memory_bytes": self.peak, "disk_bytes": self.disk,
        })
    }

    /// The goals, judged.
    pub fn goals(&self) -> Vec<Goal> {
        let ours = percentile(&self.single_ms, 50.0);
        let theirs = percentile(&self.langgraph_ms, 50.0);
        let ratio = ours.zip(theirs).map(|(ours, theirs)| ours / theirs);
        let rate = percentile(&self.rates, 50.0);
        let mut goals = vec![
            above(
                "ingest, durable, batches of 100: at least 50,000 steps a second".into(),
                rate,
                50_000.0,
                "steps/s",
            ),
            below(
                "a single durable append: no slower than LangGraph's SQLite saver's put".into(),
                ratio,
                1.0,
                "×",
            ),
        ];
        // With less stored they would say nothing.
        let enough = self.stored >= 1_000_000;
        for (what, took) in &self.answers {
            let p99 = percentile(took, 99.0).filter(|_| enough);
            goals.push(below(format!("{what} with a million steps, p99: under 50 ms"), p99, 50.0, "ms"));
        }
        let peak = Some(self.peak as f64 / 1e6).filter(|_| enough);
        goals.push(below(
            "memory of the server with a million steps: under 300 MB".into(),
            peak,
            300.0,
            "MB",
        ));
        goals
    }

    /// The tables of the report.
    pub fn report(&self) -> String {
        let shown = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
        let rates: Vec<String> = self.rates.iter().map(|rate| format!("{rate:.0}")).collect();
        let mut times = Table::new(["ms", "count", "p50", "p99"].into_iter());
        let langgraph = format!("LangGraph's SQLite saver, put ({})", self.langgraph);
        let singles = [("single durable append", &self.single_ms), (langgraph.as_str(), &self.langgraph_ms)];
        for (what, took) in singles.into_iter().chain(self.answers.iter().map(|(what, took)| (*what, took))) {
            let (p50, p99) = (percentile(took, 50.0), percentile(took, 99.0));
            times.rows.push(vec![what.to_owned(), took.len().to_string(), shown(p50), shown(p99)]);
        }
        let mut text = format!(
            "{CLIENTS} clients send batches of {TOGETHER} steps of {} bytes over HTTP; each is acknowledged when it is durable. \
             {} steps were stored, in rounds at {} steps a second. In the end there are {} steps in the store, which has {:.0} MB; \
             the server's memory was {:.0} MB at most.\n\n{}\n",
            self.bytes_each,
            self.ingested,
            rates.join(", "),
            self.stored,
            self.disk as f64 / 1e6,
            self.peak as f64 / 1e6,
            times.markdown(),
        );
        goal_list(&mut text, &self.goals());
        text
    }
}
