//! Agents that read a model's stream: the delay of each event, and the duration of the whole answer.
//!
//! Model and agents are threads of one process, so that both read the same clock.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use super::model::{DIGITS, MARK, RequestedAnswer, build_request};

/// An agent waits no longer than this for the next byte.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Paced answers begin within this time.
const START_WINDOW: Duration = Duration::from_secs(1);

/// What one agent saw of one answer.
#[derive(Debug, Default)]
pub struct AnswerTiming {
    /// From the request to the first byte of the body.
    pub first: Duration,
    /// When it asked, and when it had the last byte.
    pub between: Option<(Instant, Instant)>,
    /// How late each piece came, in milliseconds.
    pub lags: Vec<f64>,
}

/// What many agents saw at the same time.
#[derive(Debug, Default)]
pub struct ConcurrentTiming {
    /// From the first request to the last byte of all answers.
    pub took: Duration,
    /// How late each piece came, in milliseconds.
    pub lags: Vec<f64>,
}

/// A connection of an agent.
pub struct TestClient {
    stream: TcpStream,
    epoch: Instant,
}

impl TestClient {
    /// Connects; moments count from `epoch`.
    pub fn connect(addr: SocketAddr, epoch: Instant) -> Result<Self> {
        let stream = TcpStream::connect(addr).with_context(|| format!("cannot connect to {addr}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        Ok(Self { stream, epoch })
    }

    /// Sends the request and reads the whole answer. Delays are only measured in an answer with an interval between
    /// events.
    pub fn send_request(
        &mut self,
        wanted: &RequestedAnswer,
        body: usize,
        buffer: &mut [u8],
    ) -> Result<AnswerTiming> {
        const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";
        let request = build_request(wanted, body);
        let mut timing = AnswerTiming::default();
        let begun = Instant::now();
        self.stream.write_all(&request)?;
        // What may be the beginning of something that the next bytes complete.
        let mut tail: Vec<u8> = Vec::new();
        let mut started = false;
        loop {
            let read = self.stream.read(buffer).context("no answer")?;
            ensure!(read > 0, "the connection was closed in the middle of an answer");
            let now = self.epoch.elapsed().as_micros() as f64;
            tail.extend_from_slice(&buffer[..read]);
            if !started {
                let Some(index) = tail.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
                ensure!(tail.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&tail));
                if tail.len() == index + 4 {
                    continue;
                }
                timing.first = begun.elapsed();
                started = true;
            }
            let mut done = 0;
            if !wanted.interval.is_zero() {
                while let Some(index) =
                    tail[done..].iter().position(|byte| *byte == MARK).map(|index| index + done)
                {
                    let Some(digits) = tail.get(index + 1..index + 1 + DIGITS) else { break };
                    let moment: f64 = std::str::from_utf8(digits)?.parse()?;
                    timing.lags.push((now - moment) / 1e3);
                    done = index + 1 + DIGITS;
                }
            }
            if tail.ends_with(LAST_CHUNK) {
                ensure!(
                    wanted.interval.is_zero() || timing.lags.len() == wanted.pieces,
                    "pieces are missing"
                );
                timing.between = Some((begun, Instant::now()));
                return Ok(timing);
            }
            let tail_length = (LAST_CHUNK.len() + DIGITS).min(tail.len() - done);
            tail.drain(..tail.len() - tail_length);
        }
    }
}

/// Many agents ask at the same moment, each over a connection of its own.
pub fn run_concurrently(
    addr: SocketAddr,
    epoch: Instant,
    streams: usize,
    request: &RequestedAnswer,
    body: usize,
) -> Result<ConcurrentTiming> {
    let all_connected = Barrier::new(streams + 1);
    thread::scope(|scope| {
        let mut running = Vec::new();
        for number in 0..streams {
            let all_connected = &all_connected;
            // Spread over a time: answers do not begin, and so do not end, all at one moment.
            let phase = match request.interval.is_zero() {
                true => Duration::ZERO,
                false => {
                    START_WINDOW * u32::try_from(number).unwrap_or(0) / u32::try_from(streams).unwrap_or(1)
                }
            };
            let request = RequestedAnswer { phase, ..*request };
            let agent = thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, move || {
                let agent = TestClient::connect(addr, epoch);
                let mut buffer = vec![0; 32 << 10];
                all_connected.wait();
                agent?.send_request(&request, body, &mut buffer)
            })?;
            running.push(agent);
        }
        all_connected.wait();
        let (mut lags, mut between) = (Vec::new(), Vec::new());
        for agent in running {
            let timing = agent.join().map_err(|_| anyhow!("an agent panicked"))??;
            lags.extend(timing.lags);
            between.extend(timing.between);
        }
        let started = between.iter().map(|(started, _)| *started).min();
        let ended = between.iter().map(|(_, ended)| *ended).max();
        let duration = ended.zip(started).map_or(Duration::ZERO, |(ended, started)| ended - started);
        Ok(ConcurrentTiming { took: duration, lags })
    })
}
