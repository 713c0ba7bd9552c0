//! A scripted model on this machine's loopback that sends the requested number of events at the requested interval.
//!
//! Each connection has its own thread with a blocking socket, so that a stream with a slow reader delays no other. Every
//! event is written separately and contains the time at which it was written.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Precedes the timestamp in every event, and occurs nowhere else.
pub const MARK: u8 = b'@';
/// The number of digits of a timestamp, in microseconds.
pub const DIGITS: usize = 12;

/// The answer that a client requests.
#[derive(Clone, Copy, Debug)]
pub struct RequestedAnswer {
    /// The number of events.
    pub pieces: usize,
    /// The approximate size of each event on the wire, in bytes.
    pub size: usize,
    /// The interval between events; zero to send as fast as they are read.
    pub interval: Duration,
    /// The delay of the first event, so that concurrent streams are not synchronized.
    pub phase: Duration,
}

/// Builds a request for this answer, with a body of `body` bytes.
pub fn build_request(request: &RequestedAnswer, body: usize) -> Vec<u8> {
    let text = "What is to be done about the parser? ".repeat(body / 37);
    let body = format!(
        "{{\"model\":\"bench\",\"max_tokens\":1024,\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}]}}"
    );
    let RequestedAnswer { pieces, size, interval, phase } = request;
    format!(
        "POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nx-wanted: {pieces} {size} {} {}\r\n\
         content-length: {}\r\n\r\n{body}",
        interval.as_micros(),
        phase.as_micros(),
        body.len()
    )
    .into_bytes()
}

/// Starts a model; timestamps count from `epoch`. It ends with the process.
pub fn start(epoch: Instant) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on the loopback")?;
    let addr = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serving = thread::Builder::new().stack_size(128 << 10);
            // The reader notices a connection that fails.
            let _ = serving.spawn(move || serve_connection(stream, epoch));
        }
    });
    Ok(addr)
}

fn serve_connection(mut stream: TcpStream, epoch: Instant) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = read(&mut reader)? {
        stream_answer(&mut stream, &request, epoch)?;
    }
    Ok(())
}

/// Reads a request; `None` when there are no more.
fn read(reader: &mut impl BufRead) -> std::io::Result<Option<RequestedAnswer>> {
    let mut length = 0;
    let mut numbers = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().map_err(std::io::Error::other)?;
        } else if let Some(value) = line.strip_prefix("x-wanted: ") {
            numbers = value.split(' ').filter_map(|number| number.parse::<u64>().ok()).collect();
        } else if line.is_empty() {
            break;
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
    let [pieces, size, interval, phase] = numbers[..] else {
        return Err(std::io::Error::other("a request that says not what it wants"));
    };
    let (interval, phase) = (Duration::from_micros(interval), Duration::from_micros(phase));
    Ok(Some(RequestedAnswer { pieces: pieces as usize, size: size as usize, interval, phase }))
}

fn stream_answer(stream: &mut TcpStream, request: &RequestedAnswer, epoch: Instant) -> std::io::Result<()> {
    stream.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    )?;
    let begin = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
                 {\"type\":\"text_delta\",\"text\":\"@";
    let end = "\"}}\n\n";
    let filled = "x".repeat(request.size.saturating_sub(begin.len() + DIGITS + end.len()));
    let mut chunk = encode_chunk(&format!("{begin}{:0DIGITS$}{filled}{end}", 0));
    // The mark occurs only once.
    let stamp = chunk.iter().position(|byte| *byte == MARK).map_or(0, |index| index + 1);
    let first = Instant::now() + request.phase;
    stream.write_all(&encode_chunk(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg\",\"type\":\"message\",\
         \"role\":\"assistant\",\"model\":\"bench\",\"content\":[],\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n\
         event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":\
         {\"type\":\"text\",\"text\":\"\"}}\n\n",
    ))?;
    for number in 0..request.pieces {
        if !request.interval.is_zero() {
            let due = first + request.interval * u32::try_from(number).unwrap_or(u32::MAX);
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let moment = format!("{:0DIGITS$}", epoch.elapsed().as_micros());
        chunk[stamp..stamp + DIGITS].copy_from_slice(&moment.as_bytes()[..DIGITS]);
        stream.write_all(&chunk)?;
    }
    let mut last = encode_chunk(
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
         event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\
         \"usage\":{\"output_tokens\":99}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );
    last.extend_from_slice(b"0\r\n\r\n");
    stream.write_all(&last)
}

fn encode_chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}
