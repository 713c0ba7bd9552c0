//! `bench server`: how many steps a server ingests and how fast it responds, with both kinds of store, compared with
//! LangGraph's savers in the same run.
//!
//! The server is the release binary in its own process, with its own store on the disk of the target directory.
//! Everything it acknowledges is durable; a run is only valid if as many steps are stored as were acknowledged.

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

/// The number of clients that send concurrently.
const CLIENTS: usize = 16;
/// The number of steps in a batch.
pub const BATCH_SIZE: usize = 100;
/// How long the server may take to build its word index.
const INDEXING_TIMEOUT: Duration = Duration::from_secs(1200);
/// The number of sessions of each client, one after the other.
const SESSIONS: u64 = 20;

/// What was measured of one kind of store.
pub struct IngestResults {
    /// The store.
    store: &'static str,
    /// How many steps a second it has to take.
    goal: f64,
    /// The number of ingested steps, and the rate of each round in steps per second.
    ingested: u64,
    rates: Vec<f64>,
    single_ms: Vec<f64>,
    /// Single appends in the process that has the store open, which is how the saver works.
    direct_ms: Vec<f64>,
    /// The saver over the same kind of database.
    saver: Saver,
    saver_version: String,
    saver_ms: Vec<f64>,
}

/// The results of this benchmark.
pub struct ServerResults {
    bytes_each: usize,
    ingest_results: Vec<IngestResults>,
    stored: u64,
    /// The queries that were measured with everything stored, and how long each took, in milliseconds.
    answers: Vec<(&'static str, Vec<f64>)>,
    peak: u64,
    disk: u64,
}

/// Runs this benchmark.
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
    let peers = IngestPeers { saver: Saver::Sqlite, peer: saver, appender: &appender, own: "appended" };
    let embedded = take_in(run, &server, ("embedded", 50_000.0), (rounds, each), &peers)?;
    let stored = server.count_steps()?;
    run.monitor.begin_block("answers");
    let answers = measure_answers(&server, run.options.runs)?;
    let (peak, disk) = (server.peak_memory()?, server.disk_usage()?);
    server.stop()?;
    let mut measured = ServerResults {
        bytes_each: Batch::new(0, 0).bytes() / BATCH_SIZE,
        ingest_results: vec![embedded],
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
            let peers = IngestPeers { saver: Saver::Postgres, peer: saver, appender: &appender, own: &other };
            let postgres = take_in(run, &server, ("PostgreSQL", 15_000.0), (rounds, each), &peers)?;
            measured.ingest_results.push(postgres);
            server.stop()?;
        }
        Err(error) => eprintln!("PostgreSQL takes no part: {error:#}"),
    }
    Ok(measured)
}

/// What single appends over HTTP are compared with.
struct IngestPeers<'a> {
    saver: Saver,
    /// The saver and its database, if it takes part.
    peer: Option<(&'a Python, &'a str)>,
    appender: &'a Appender,
    /// The store of the process that appends by itself.
    own: &'a str,
}

/// Measures ingestion: rounds of many steps in batches, and single appends compared with a saver.
fn take_in(
    run: &mut Run<'_>,
    server: &ServerProcess,
    (store, goal): (&'static str, f64),
    (rounds, each): (u64, u64),
    peers: &IngestPeers<'_>,
) -> Result<IngestResults> {
    let mut ingest_results = IngestResults {
        store,
        goal,
        ingested: 0,
        rates: Vec::new(),
        single_ms: Vec::new(),
        direct_ms: Vec::new(),
        saver: peers.saver,
        saver_version: String::new(),
        saver_ms: Vec::new(),
    };
    // First: after the rounds, a database has hundreds of megabytes to reorganize, which slows every append.
    measure_single_appends(run, server, peers, &mut ingest_results)?;
    for round in 0..rounds {
        flush(&run.area);
        run.monitor.begin_block("ingest");
        ingest_results.rates.push(measure_ingest(server, round, each)?);
        ingest_results.ingested += each;
    }
    let (stored, expected) =
        (server.count_steps()?, ingest_results.ingested + ingest_results.single_ms.len() as u64);
    ensure!(stored == expected, "{expected} were acknowledged and {stored} are stored");
    Ok(ingest_results)
}

/// Sends `each` steps from all clients at once. Returns how many were acknowledged per second.
fn measure_ingest(server: &ServerProcess, round: u64, steps: u64) -> Result<f64> {
    let batches = steps / BATCH_SIZE as u64;
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
                        let response = connection.post_until_taken(batch.body())?;
                        ensure!(response["accepted"] == BATCH_SIZE, "not all were taken: {response}");
                    }
                })
            })
            .collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().unwrap_or_else(|_| anyhow::bail!("a client failed")))
    })?;
    Ok((batches * BATCH_SIZE as u64) as f64 / started.elapsed().as_secs_f64())
}

/// Single appends, each durable before the next: over HTTP, in the process that has a store open, and a saver's puts,
/// which are in-process too. They take turns.
fn measure_single_appends(
    run: &mut Run<'_>,
    server: &ServerProcess,
    peers: &IngestPeers<'_>,
    ingest_results: &mut IngestResults,
) -> Result<()> {
    let mut connection = HttpConnection::open(server)?;
    let turns = 4;
    let each = run.options.runs.div_ceil(turns);
    let make_event = |number: u64| {
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
            let body = make_event((turn * each + at) as u64);
            let sent = Instant::now();
            let response = connection.post_until_taken(body.as_bytes())?;
            ingest_results.single_ms.push(ms(sent.elapsed()));
            ensure!(response["accepted"] == 1, "it was not taken: {response}");
        }
        flush(&run.area);
        ingest_results.direct_ms.extend(peers.appender.append_steps(peers.own, turn * each, each)?);
        if let Some((python, database)) = peers.peer {
            flush(&run.area);
            let (version, put_times) = python.put_checkpoints(ingest_results.saver, database, each)?;
            ingest_results.saver_ms.extend(put_times);
            ingest_results.saver_version = version;
        }
    }
    Ok(())
}

/// Measures how long queries take with everything stored.
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
    // The first search waits for the word index; the measurement starts after that.
    let started = Instant::now();
    while connection.get("/search?q=refactor")?["complete"] == false {
        ensure!(started.elapsed() < INDEXING_TIMEOUT, "the index is still not complete");
        std::thread::sleep(Duration::from_secs(1));
    }
    eprintln!("  the index was complete after {:.0} s", started.elapsed().as_secs_f64());
    let mut results = Vec::new();
    for query in ["timeline page", "state at a point", "query", "search"] {
        let mut times = Vec::new();
        for run in 0..runs {
            let session = ids[run * 7919 % ids.len()];
            let first = connection.get(&format!("/sessions/{session}/steps?limit=1"))?;
            let number = first["items"][0]["number"].as_u64().context("a session has no step")?;
            let path = match query {
                "timeline page" => format!("/sessions/{session}/timeline?limit=100"),
                "state at a point" => format!("/sessions/{session}/steps/{number}/state"),
                "query" => format!("/sessions/{session}/steps?tool=bash&failed=true&limit=100"),
                _ => "/search?q=refactor".to_owned(),
            };
            let sent = Instant::now();
            connection.get(&path)?;
            times.push(ms(sent.elapsed()));
        }
        results.push((query, times));
    }
    Ok(results)
}

impl ServerResults {
    /// All measurements, as JSON.
    pub fn to_json(&self) -> Value {
        let answers: Vec<Value> = (self.answers.iter())
            .map(|(query, times)| json!({ "what": query, "p50_ms": percentile(times, 50.0), "p99_ms": percentile(times, 99.0) }))
            .collect();
        let summarize = |values: &[f64]| json!({ "p50_ms": percentile(values, 50.0), "p99_ms": percentile(values, 99.0), "count": values.len() });
        let results: Vec<Value> = (self.ingest_results.iter())
            .map(|results| {
                json!({
                    "store": results.store, "steps": results.ingested, "steps_per_second": results.rates,
                    "single": summarize(&results.single_ms), "single_in_process": summarize(&results.direct_ms), "langgraph": summarize(&results.saver_ms), "langgraph_version": results.saver_version,
                })
            })
            .collect();
        json!({
            "clients": CLIENTS, "batch": BATCH_SIZE, "bytes_each": self.bytes_each, "ingest": results,
            "stored_steps": self.stored, "answers": answers, "peak_memory_bytes": self.peak, "disk_bytes": self.disk,
        })
    }

    /// Compares the measurements with the goals.
    pub fn judge_goals(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        for ingest_results in &self.ingest_results {
            let IngestResults { store, goal, .. } = ingest_results;
            let description =
                format!("{store}: durable ingest in batches of 100 reaches {goal:.0} steps a second");
            goals.push(at_least(description, percentile(&ingest_results.rates, 50.0), *goal, "steps/s"));
            for (interface, times) in
                [("in the process", &ingest_results.direct_ms), ("over HTTP", &ingest_results.single_ms)]
            {
                let (own_p50, saver_p50) =
                    (percentile(times, 50.0), percentile(&ingest_results.saver_ms, 50.0));
                let ratio = own_p50.zip(saver_p50).map(|(own_p50, saver_p50)| own_p50 / saver_p50);
                let description = format!(
                    "{store}: a single durable append {interface}, no slower than a put of LangGraph's saver, which is in the process"
                );
                goals.push(at_most(description, ratio, 1.0, "×"));
            }
        }
        // Goals for a million steps cannot be judged with fewer.
        let is_large_enough = self.stored >= 1_000_000;
        for (description, times) in &self.answers {
            let p99 = percentile(times, 99.0).filter(|_| is_large_enough);
            goals.push(at_most(
                format!("{description} with a million steps, p99: under 50 ms"),
                p99,
                50.0,
                "ms",
            ));
        }
        let peak = Some(self.peak as f64 / 1e6).filter(|_| is_large_enough);
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
        let format_ms = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
        let mut rates = MarkdownTable::new(["store", "steps", "steps a second, in rounds"].into_iter());
        let mut times = MarkdownTable::new(["ms", "count", "p50", "p99"].into_iter());
        let mut time = |name: String, samples: &[f64]| {
            let (p50, p99) = (percentile(samples, 50.0), percentile(samples, 99.0));
            times.rows.push(vec![name, samples.len().to_string(), format_ms(p50), format_ms(p99)]);
        };
        for ingest_results in &self.ingest_results {
            let each: Vec<String> = ingest_results.rates.iter().map(|rate| format!("{rate:.0}")).collect();
            rates.rows.push(vec![
                ingest_results.store.to_owned(),
                ingest_results.ingested.to_string(),
                each.join(", "),
            ]);
            time(
                format!("{}: single durable append over HTTP", ingest_results.store),
                &ingest_results.single_ms,
            );
            time(
                format!("{}: single durable append in the process", ingest_results.store),
                &ingest_results.direct_ms,
            );
            let (saver, version) = (ingest_results.saver.name(), &ingest_results.saver_version);
            time(format!("LangGraph's {saver} saver {version}: put"), &ingest_results.saver_ms);
        }
        for (name, times) in &self.answers {
            time((*name).to_owned(), times);
        }
        let mut text = format!(
            "{CLIENTS} clients send batches of {BATCH_SIZE} steps of {} bytes over HTTP; each is acknowledged when it is durable.\n\n{}\n\
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
