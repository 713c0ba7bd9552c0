//! `bench proxy`: what an agent notices of the model proxy, compared with the same connection without it.
//!
//! A scripted model and many agents are threads of this process. Between them is either nothing or the real proxy
//! process, which records the traffic. Both take turns. Each block has its own proxy, so that memory and CPU time are
//! measured per block.

mod agents;
mod model;
mod process;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::report::goals::{Goal, at_most};
use crate::report::markdown::{MarkdownTable, goal_list};
use crate::report::results::{median, ms, percentile};
use crate::run::{Run, flush};
use agents::{TestClient, run_concurrently};
use model::RequestedAnswer;
use process::ProxyProcess;

/// The number of concurrent streams.
const STREAMS: usize = 200;
/// The size of a request, as an agent's after some turns.
const REQUEST_BYTES: usize = 24_000;
/// The size of a request of the many streams at once.
const CONCURRENT_REQUEST_BYTES: usize = 4_000;
/// The size of an event with some words, in bytes.
const EVENT_BYTES: usize = 200;
/// The interval between events of a fast model.
const EVENT_INTERVAL: Duration = Duration::from_millis(20);
/// The interval at which the model, the agents and the proxy together keep a small machine busy.
const SHORT_EVENT_INTERVAL: Duration = Duration::from_millis(10);
/// The size of an event of a large answer, in bytes.
const LARGE_EVENT_BYTES: usize = 60_000;

/// The timings of one route, direct or through the proxy, in a block with many streams.
#[derive(Default)]
struct RouteTimings {
    /// The duration of each round, in seconds.
    took: Vec<f64>,
    lags: Vec<f64>,
}

/// A block with many streams at once.
#[derive(Default)]
struct StreamResults {
    pieces: usize,
    direct: RouteTimings,
    proxied: RouteTimings,
    /// CPU time of the proxy for each piece, in microseconds, recording included.
    cpu_per_piece: Vec<f64>,
    peak: u64,
}

/// The results of this benchmark.
#[derive(Default)]
pub struct ProxyResults {
    first_direct: Vec<f64>,
    first_proxied: Vec<f64>,
    first_peak: u64,
    paced: StreamResults,
    dense: StreamResults,
    fast: StreamResults,
    large: Vec<(u64, u64, f64)>,
    carried: u64,
    recorded: u64,
}

/// Runs this benchmark.
pub fn measure(run: &mut Run<'_>) -> Result<ProxyResults> {
    let epoch = Instant::now();
    let model = model::start(epoch)?;
    let quick = run.options.quick;
    let rounds = if quick { 1 } else { 3 };
    let mut measured = ProxyResults::default();
    first_bytes(run, model, epoch, &mut measured)?;
    let seconds: u64 = if quick { 2 } else { 5 };
    let interval = |interval: Duration| {
        let pieces = (Duration::from_secs(seconds).as_micros() / interval.as_micros()) as usize;
        RequestedAnswer { pieces, size: EVENT_BYTES, interval, phase: Duration::ZERO }
    };
    let paced = interval(EVENT_INTERVAL);
    measured.paced = measure_streams(run, model, epoch, "paced streams", &paced, rounds, &mut measured)?;
    measured.dense = measure_streams(
        run,
        model,
        epoch,
        "dense streams",
        &interval(SHORT_EVENT_INTERVAL),
        rounds,
        &mut measured,
    )?;
    let fast = RequestedAnswer { pieces: 1_000, interval: Duration::ZERO, ..paced };
    measured.fast = measure_streams(run, model, epoch, "fast streams", &fast, rounds, &mut measured)?;
    for megabytes in [100, 300] {
        measure_large_answer(run, model, epoch, megabytes, &mut measured)?;
    }
    if measured.recorded != measured.carried {
        bail!("{} model calls were carried and {} recorded", measured.carried, measured.recorded);
    }
    Ok(measured)
}

/// Ends a proxy and counts what it recorded.
fn end_proxy(proxy: ProxyProcess, carried: usize, measured: &mut ProxyResults) -> Result<()> {
    measured.carried += carried as u64;
    measured.recorded += proxy.stop_and_count()?;
    Ok(())
}

fn first_bytes(
    run: &mut Run<'_>,
    model: SocketAddr,
    epoch: Instant,
    measured: &mut ProxyResults,
) -> Result<()> {
    let proxy = ProxyProcess::start(&run.area, &run.binary, model)?;
    let request = RequestedAnswer {
        pieces: 5,
        size: EVENT_BYTES,
        interval: Duration::from_millis(1),
        phase: Duration::from_millis(1),
    };
    let mut buffer = vec![0; 64 << 10];
    let (mut direct, mut proxied) =
        (TestClient::connect(model, epoch)?, TestClient::connect(proxy.addr, epoch)?);
    let rounds = run.options.runs * 5;
    let warm = 50;
    for number in 0..rounds + warm {
        if number % 100 == warm {
            run.monitor.begin_block("first byte");
        }
        // Let the machine come to rest, as it would between two calls of an agent.
        thread::sleep(Duration::from_millis(2));
        let direct_time = direct.send_request(&request, REQUEST_BYTES, &mut buffer)?;
        thread::sleep(Duration::from_millis(2));
        let proxied_time = proxied.send_request(&request, REQUEST_BYTES, &mut buffer)?;
        if number >= warm {
            measured.first_direct.push(ms(direct_time.first));
            measured.first_proxied.push(ms(proxied_time.first));
        }
    }
    measured.first_peak = proxy.peak_memory()?;
    end_proxy(proxy, rounds + warm, measured)
}

fn measure_streams(
    run: &mut Run<'_>,
    model: SocketAddr,
    epoch: Instant,
    name: &str,
    request: &RequestedAnswer,
    rounds: usize,
    measured: &mut ProxyResults,
) -> Result<StreamResults> {
    let mut results = StreamResults { pieces: request.pieces, ..StreamResults::default() };
    for _ in 0..rounds {
        flush(&run.area);
        run.monitor.begin_block(name);
        let direct_run = run_concurrently(model, epoch, STREAMS, request, CONCURRENT_REQUEST_BYTES)?;
        results.direct.add(direct_run);
        let proxy = ProxyProcess::start(&run.area, &run.binary, model)?;
        let proxied_run = run_concurrently(proxy.addr, epoch, STREAMS, request, CONCURRENT_REQUEST_BYTES)?;
        results.proxied.add(proxied_run);
        proxy.wait_until_idle()?;
        results.cpu_per_piece.push(proxy.cpu_time()?.as_secs_f64() * 1e6 / (STREAMS * request.pieces) as f64);
        results.peak = results.peak.max(proxy.peak_memory()?);
        end_proxy(proxy, STREAMS, measured)?;
    }
    Ok(results)
}

fn measure_large_answer(
    run: &mut Run<'_>,
    model: SocketAddr,
    epoch: Instant,
    megabytes: u64,
    measured: &mut ProxyResults,
) -> Result<()> {
    flush(&run.area);
    run.monitor.begin_block("large answer");
    let pieces = megabytes as usize * 1_000_000 / LARGE_EVENT_BYTES;
    let request =
        RequestedAnswer { pieces, size: LARGE_EVENT_BYTES, interval: Duration::ZERO, phase: Duration::ZERO };
    let proxy = ProxyProcess::start(&run.area, &run.binary, model)?;
    let duration = run_concurrently(proxy.addr, epoch, 1, &request, CONCURRENT_REQUEST_BYTES)?.took;
    proxy.wait_until_idle()?;
    measured.large.push((megabytes, proxy.peak_memory()?, duration.as_secs_f64()));
    end_proxy(proxy, 1, measured)
}

impl RouteTimings {
    fn add(&mut self, together: agents::ConcurrentTiming) {
        self.took.push(together.took.as_secs_f64());
        self.lags.extend(together.lags);
    }

    fn took(&self) -> Option<f64> {
        median(self.took.iter().copied())
    }

    fn to_json(&self) -> Value {
        let at = |percent| percentile(&self.lags, percent);
        json!({ "took_s": self.took, "lag_p50_ms": at(50.0), "lag_p99_ms": at(99.0), "lag_max_ms": at(100.0) })
    }
}

impl StreamResults {
    /// Direct and proxied, of the same: how much longer it took.
    fn slowdown_ratio(&self) -> Option<f64> {
        Some(self.proxied.took()? / self.direct.took()?)
    }

    fn per_second(&self, route: &RouteTimings) -> Option<f64> {
        Some((STREAMS * self.pieces) as f64 / route.took()?)
    }

    fn to_json(&self) -> Value {
        json!({
            "streams": STREAMS, "pieces_each": self.pieces, "piece_bytes": EVENT_BYTES, "direct": self.direct.to_json(),
            "proxied": self.proxied.to_json(), "cpu_us_per_piece": self.cpu_per_piece, "peak_memory_bytes": self.peak,
        })
    }
}

impl ProxyResults {
    fn added_latency(&self, percent: f64) -> Option<f64> {
        Some(percentile(&self.first_proxied, percent)? - percentile(&self.first_direct, percent)?)
    }

    /// All numbers.
    pub fn to_json(&self) -> Value {
        let rounded =
            |values: &[f64]| -> Vec<f64> { values.iter().map(|value| (value * 1e3).round() / 1e3).collect() };
        let large = self.large.iter().map(|(megabytes, peak, duration)| {
            json!({ "megabytes": megabytes, "peak_memory_bytes": peak, "took_s": duration })
        });
        json!({
            "first_byte": {
                "direct_ms": rounded(&self.first_direct), "proxied_ms": rounded(&self.first_proxied),
                "peak_memory_bytes": self.first_peak,
            },
            "paced": self.paced.to_json(), "dense": self.dense.to_json(), "fast": self.fast.to_json(), "large": large.collect::<Vec<_>>(),
            "calls_carried": self.carried, "calls_recorded": self.recorded,
        })
    }

    /// The goals, judged.
    pub fn judge_goals(&self) -> Vec<Goal> {
        let longer = self.paced.slowdown_ratio().map(|ratio| (ratio - 1.0) * 100.0);
        let lag = percentile(&self.paced.proxied.lags, 99.0);
        let peak = |size_mb: u64| {
            let row = self.large.iter().find(|(megabytes, ..)| *megabytes == size_mb);
            row.map(|(_, peak, _)| *peak as f64 / 1e6)
        };
        let growth = peak(300).zip(peak(100)).map(|(more, less)| more / less);
        vec![
            at_most(
                "the first byte of an answer, p50: less than 1 ms later".into(),
                self.added_latency(50.0),
                1.0,
                "ms",
            ),
            at_most(format!("{STREAMS} paced streams: at most 3 % longer"), longer, 3.0, "%"),
            at_most(format!("{STREAMS} paced streams, p99: no piece later than 10 ms"), lag, 10.0, "ms"),
            at_most(
                "memory with an answer of 300 MB: as with one of 100 MB, + 10 % at most".into(),
                growth,
                1.1,
                "×",
            ),
        ]
    }

    /// The tables of the report.
    pub fn render_report(&self) -> String {
        let format_value = |value: Option<f64>, digits: usize| {
            value.map_or("–".to_owned(), |value| format!("{value:.digits$}"))
        };
        let mut first = MarkdownTable::new(["first byte, ms", "direct", "proxied", "added"].into_iter());
        for percent in [50.0, 90.0, 99.0] {
            first.rows.push(vec![
                format!("p{percent}"),
                format_value(percentile(&self.first_direct, percent), 3),
                format_value(percentile(&self.first_proxied, percent), 3),
                format_value(self.added_latency(percent), 3),
            ]);
        }
        let mut many = MarkdownTable::new(
            [&*format!("{STREAMS} streams"), "direct", "proxied", "proxied ÷ direct"].into_iter(),
        );
        let mut row =
            |what: &str, value_of: &dyn Fn(&RouteTimings) -> Option<f64>, streams: &StreamResults, digits| {
                let (direct, proxied) = (value_of(&streams.direct), value_of(&streams.proxied));
                let ratio = direct.zip(proxied).map(|(direct, proxied)| proxied / direct);
                let ratio = ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.3} ×"));
                many.rows.push(vec![
                    what.to_owned(),
                    format_value(direct, digits),
                    format_value(proxied, digits),
                    ratio,
                ]);
            };
        let (paced, dense, fast) = (&self.paced, &self.dense, &self.fast);
        for (name, streams) in [("paced", paced), ("dense", dense)] {
            row(&format!("{name}: seconds"), &|route| route.took(), streams, 3);
            row(&format!("{name}: pieces per second"), &|route| streams.per_second(route), streams, 0);
            for percent in [50.0, 99.0, 100.0] {
                let lag = |route: &RouteTimings| percentile(&route.lags, percent);
                row(&format!("{name}: lag of a piece, p{percent}, ms"), &lag, streams, 3);
            }
        }
        row("as fast as possible: seconds", &|route| route.took(), fast, 3);
        row("as fast as possible: pieces per second", &|route| fast.per_second(route), fast, 0);
        let megabytes = |route: &RouteTimings| Some(fast.per_second(route)? * EVENT_BYTES as f64 / 1e6);
        row("as fast as possible: MB per second", &megabytes, fast, 1);
        let mut memory =
            MarkdownTable::new(["the proxy itself", "peak memory, MB", "CPU per piece, µs"].into_iter());
        let size = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
        memory.rows.push(vec!["one stream at a time".into(), size(self.first_peak), "–".into()]);
        for (name, streams) in
            [("paced streams", paced), ("dense streams", dense), ("as fast as possible", fast)]
        {
            let cpu = format_value(median(streams.cpu_per_piece.iter().copied()), 1);
            memory.rows.push(vec![name.into(), size(streams.peak), cpu]);
        }
        for (megabytes, peak, _) in &self.large {
            memory.rows.push(vec![format!("one answer of {megabytes} MB"), size(*peak), "–".into()]);
        }
        let mut text = format!(
            "Every request is {} kB (one stream) or {} kB (many), every piece an event of {EVENT_BYTES} bytes. Paced streams get one \
             every {} ms, dense ones every {} ms, each beginning at another time. All {} calls through the proxy were recorded.\n\n{}\n{}\n{}",
            REQUEST_BYTES / 1_000,
            CONCURRENT_REQUEST_BYTES / 1_000,
            EVENT_INTERVAL.as_millis(),
            SHORT_EVENT_INTERVAL.as_millis(),
            self.recorded,
            first.to_markdown(),
            many.to_markdown(),
            memory.to_markdown(),
        );
        goal_list(&mut text, &self.judge_goals());
        text
    }
}
