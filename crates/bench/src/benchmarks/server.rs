//! `bench server`: what a server takes in and how fast it answers, over both kinds of store, beside LangGraph's savers in the same run.
//!
//! The server is the release binary as a process of its own, with a store of its own on the disk of the target directory.
//! Everything it acknowledges is durable; that as many steps are stored as were acknowledged is checked, or nothing counts.

mod appending;
pub mod asking;
mod langgraph;
pub mod process;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::report::goals::{Goal, at_least, at_most};
use crate::report::markdown::{MarkdownTable, goal_list};
use crate::report::results::{ms, percentile};
use crate::run::{Run, flush};
use appending::Appender;
use asking::{Batch, HttpConnection};
use langgraph::{Python, Saver};
use process::{Database, ServerProcess};

/// So many clients send at once.
const CLIENTS: usize = 16;
/// So many steps are in a batch.
pub const TOGETHER: usize = 100;
/// How long the words of everything may take to be sorted.
const INDEXING_TIMEOUT: Duration = Duration::from_secs(1200);
/// So many sessions each client has, one after the other.
const SESSIONS: u64 = 20;

/// What was measured of one kind of store.
pub struct IngestResults {
    /// The store.
    store: &'static str,
    /// How many steps a second it has to take.
    goal: f64,
    /// Steps that were taken in, and how many of them in each second.
    ingested: u64,
    rates: Vec<f64>,
    single_ms: Vec<f64>,
    /// The same in the process that has the store open, which is what the saver does.
    direct_ms: Vec<f64>,
    /// The saver over the same kind of database.
    saver: Saver,
    saver_version: String,
    saver_ms: Vec<f64>,
}

/// What was measured.
pub struct ServerResults {
    bytes_each: usize,
    taken: Vec<IngestResults>,
    stored: u64,
    /// What was asked with so much stored, and how long each answer took.
    answers: Vec<(&'static str, Vec<f64>)>,
    peak: u64,
    disk: u64,
}

/// Measures all of it.
pub fn measure(run: &mut Run<'_>) -> Result<ServerResults> {
    let quick = run.options.quick;
    let appender = Appender::build(run.paths, &run.area)?;
    let peer = langgraph::install_savers(&run.paths.target.join("bench-peers"));
    if let Err(error) = &peer {
        eprintln!("LangGraph's savers take no part: {error:#}");
    }
    let peer = peer.ok();
    let server = ServerProcess::start(&run.area, &run.binary, None)?;
    let (rounds, each) = if quick { (2, 40_000) } else { (5, 200_000) };
    let database = run.area.join("langgraph.sqlite").display().to_string();
    let saver = peer.as_ref().map(|python| (python, database.as_str()));
    let beside = IngestPeers { saver: Saver::Sqlite, peer: saver, appender: &appender, own: "appended" };
    let embedded = take_in(run, &server, ("embedded", 50_000.0), (rounds, each), &beside)?;
    let stored = server.count_steps()?;
    run.monitor.begin_block("answers");
    let answers = measure_answers(&server, run.options.runs)?;
    let (peak, disk) = (server.peak_memory()?, server.disk_usage()?);
    server.stop()?;
    let mut measured = ServerResults {
        bytes_each: Batch::new(0, 0).bytes() / TOGETHER,
        taken: vec![embedded],
        stored,
        answers,
        peak,
        disk,
    };
    match Database::start(run.paths) {
        Ok(database) => {
            let server = ServerProcess::start(&run.area, &run.binary, Some(&database.address))?;
            let (rounds, each) = if quick { (2, 10_000) } else { (5, 40_000) };
            let other = database.default_database();
            let saver = peer.as_ref().map(|python| (python, other.as_str()));
            let beside =
                IngestPeers { saver: Saver::Postgres, peer: saver, appender: &appender, own: &other };
            let postgres = take_in(run, &server, ("PostgreSQL", 15_000.0), (rounds, each), &beside)?;
            measured.taken.push(postgres);
            server.stop()?;
        }
        Err(error) => eprintln!("PostgreSQL takes no part: {error:#}"),
    }
    Ok(measured)
}

/// What single appends over HTTP are measured beside.
struct IngestPeers<'a> {
    saver: Saver,
    /// The saver and its database, if it takes part.
    peer: Option<(&'a Python, &'a str)>,
    appender: &'a Appender,
    /// The store of the process that appends by itself.
    own: &'a str,
}

/// What a server takes in, in rounds of so many steps, and one by one beside a saver.
fn take_in(
    run: &mut Run<'_>,
    server: &ServerProcess,
    (store, goal): (&'static str, f64),
    (rounds, each): (u64, u64),
    beside: &IngestPeers<'_>,
) -> Result<IngestResults> {
    let mut taken = IngestResults {
        store,
        goal,
        ingested: 0,
        rates: Vec::new(),
        single_ms: Vec::new(),
        direct_ms: Vec::new(),
        saver: beside.saver,
        saver_version: String::new(),
        saver_ms: Vec::new(),
    };
    // First: after the rounds, a database has hundreds of megabytes to reorganize, which slows every append.
    measure_single_appends(run, server, beside, &mut taken)?;
    for round in 0..rounds {
        flush(&run.area);
        run.monitor.begin_block("ingest");
        taken.rates.push(measure_ingest(server, round, each)?);
        taken.ingested += each;
    }
    let (stored, expected) = (server.count_steps()?, taken.ingested + taken.single_ms.len() as u64);
    ensure!(stored == expected, "{expected} were acknowledged and {stored} are stored");
    Ok(taken)
}

/// Sends so many steps from all clients at once. Returns how many were acknowledged in a second.
fn measure_ingest(server: &ServerProcess, round: u64, steps: u64) -> Result<f64> {
    let batches = steps / TOGETHER as u64;
    let next = AtomicU64::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let clients: Vec<_> = (0..CLIENTS as u64)
            .map(|client| {
                let next = &next;
                scope.spawn(move || -> Result<()> {
                    let mut connection = HttpConnection::open(server)?;
                    let mut batch = Batch::new(round, client);
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= batches {
                            return Ok(());
                        }
                        batch.renumber(number, number * SESSIONS / batches);
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

/// Single appends, each durable before the next: over HTTP, in the process that has a store open, and a saver's puts, which
/// are in a process too. They take turns.
fn measure_single_appends(
    run: &mut Run<'_>,
    server: &ServerProcess,
    beside: &IngestPeers<'_>,
    taken: &mut IngestResults,
) -> Result<()> {
    let mut connection = HttpConnection::open(server)?;
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
        run.monitor.begin_block("single appends");
        for at in 0..each {
            let body = one((turn * each + at) as u64);
            let before = Instant::now();
            let answer = connection.post_until_taken(body.as_bytes())?;
            taken.single_ms.push(ms(before.elapsed()));
            ensure!(answer["accepted"] == 1, "it was not taken: {answer}");
        }
        flush(&run.area);
        taken.direct_ms.extend(beside.appender.append_steps(beside.own, turn * each, each)?);
        if let Some((python, database)) = beside.peer {
            flush(&run.area);
            let (version, took) = python.put_checkpoints(taken.saver, database, each)?;
            taken.saver_ms.extend(took);
            taken.saver_version = version;
        }
    }
    Ok(())
}

/// How long answers take with everything stored.
fn measure_answers(server: &ServerProcess, runs: usize) -> Result<Vec<(&'static str, Vec<f64>)>> {
    let mut connection = HttpConnection::open(server)?;
    let sessions = connection.get("/sessions?agent=bench&limit=200")?;
    let ids: Vec<&str> = sessions["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|session| session["id"].as_str())
        .collect();
    ensure!(!ids.is_empty(), "there are no sessions");
    // The words of a million steps are sorted at the first search; what is measured comes after that.
    let begun = Instant::now();
    while connection.get("/search?q=refactor")?["complete"] == false {
        ensure!(begun.elapsed() < INDEXING_TIMEOUT, "the index is still not complete");
        std::thread::sleep(Duration::from_secs(1));
    }
    eprintln!("  the index was complete after {:.0} s", begun.elapsed().as_secs_f64());
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
            connection.get(&path)?;
            took.push(ms(before.elapsed()));
        }
        all.push((what, took));
    }
    Ok(all)
}

impl ServerResults {
    /// All numbers.
    pub fn to_json(&self) -> Value {
        let answers: Vec<Value> = (self.answers.iter())
            .map(|(what, took)| json!({ "what": what, "p50_ms": percentile(took, 50.0), "p99_ms": percentile(took, 99.0) }))
            .collect();
        let both = |values: &[f64]| json!({ "p50_ms": percentile(values, 50.0), "p99_ms": percentile(values, 99.0), "count": values.len() });
        let taken: Vec<Value> = (self.taken.iter())
            .map(|taken| {
                json!({
                    "store": taken.store, "steps": taken.ingested, "steps_per_second": taken.rates,
                    "single": both(&taken.single_ms), "single_in_process": both(&taken.direct_ms), "langgraph": both(&taken.saver_ms), "langgraph_version": taken.saver_version,
                })
            })
            .collect();
        json!({
            "clients": CLIENTS, "batch": TOGETHER, "bytes_each": self.bytes_each, "ingest": taken,
            "stored_steps": self.stored, "answers": answers, "peak_memory_bytes": self.peak, "disk_bytes": self.disk,
        })
    }

    /// The goals, judged.
    pub fn judge_goals(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        for taken in &self.taken {
            let IngestResults { store, goal, .. } = taken;
            let what = format!("{store}: ingest, durable, batches of 100: at least {goal:.0} steps a second");
            goals.push(at_least(what, percentile(&taken.rates, 50.0), *goal, "steps/s"));
            for (how, took) in [("in the process", &taken.direct_ms), ("over HTTP", &taken.single_ms)] {
                let (ours, theirs) = (percentile(took, 50.0), percentile(&taken.saver_ms, 50.0));
                let ratio = ours.zip(theirs).map(|(ours, theirs)| ours / theirs);
                let what = format!(
                    "{store}: a single durable append {how}, no slower than a put of LangGraph's saver, which is in the process"
                );
                goals.push(at_most(what, ratio, 1.0, "×"));
            }
        }
        // With less stored they would say nothing.
        let enough = self.stored >= 1_000_000;
        for (what, took) in &self.answers {
            let p99 = percentile(took, 99.0).filter(|_| enough);
            goals.push(at_most(format!("{what} with a million steps, p99: under 50 ms"), p99, 50.0, "ms"));
        }
        let peak = Some(self.peak as f64 / 1e6).filter(|_| enough);
        goals.push(at_most(
            "memory of the server with a million steps: under 300 MB".into(),
            peak,
            300.0,
            "MB",
        ));
        goals
    }

    /// The tables of the report.
    pub fn render_report(&self) -> String {
        let shown = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
        let mut rates = MarkdownTable::new(["store", "steps", "steps a second, in rounds"].into_iter());
        let mut times = MarkdownTable::new(["ms", "count", "p50", "p99"].into_iter());
        let mut time = |what: String, took: &[f64]| {
            let (p50, p99) = (percentile(took, 50.0), percentile(took, 99.0));
            times.rows.push(vec![what, took.len().to_string(), shown(p50), shown(p99)]);
        };
        for taken in &self.taken {
            let each: Vec<String> = taken.rates.iter().map(|rate| format!("{rate:.0}")).collect();
            rates.rows.push(vec![taken.store.to_owned(), taken.ingested.to_string(), each.join(", ")]);
            time(format!("{}: single durable append over HTTP", taken.store), &taken.single_ms);
            time(format!("{}: single durable append in the process", taken.store), &taken.direct_ms);
            let (saver, version) = (taken.saver.name(), &taken.saver_version);
            time(format!("LangGraph's {saver} saver {version}: put"), &taken.saver_ms);
        }
        for (what, took) in &self.answers {
            time((*what).to_owned(), took);
        }
        let mut text = format!(
            "{CLIENTS} clients send batches of {TOGETHER} steps of {} bytes over HTTP; each is acknowledged when it is durable.\n\n{}\n\
             Answers are of the embedded store with {} steps, which has {:.0} MB; the server's memory was {:.0} MB at most.\n\n{}\n",
            self.bytes_each,
            rates.to_markdown(),
            self.stored,
            self.disk as f64 / 1e6,
            self.peak as f64 / 1e6,
            times.to_markdown(),
        );
        goal_list(&mut text, &self.judge_goals());
        text
    }
}
