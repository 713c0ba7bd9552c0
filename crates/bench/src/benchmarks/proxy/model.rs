//! A scripted model on this machine's loopback that says what it is told to, as fast or as slowly as it is told.
//!
//! Each connection has a thread of its own with a blocking socket: a stream that waits for its reader keeps no other one from
//! going on. Every piece is an event of its own, written by itself, and carries the moment it was written.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Stands before the moment in every piece, and nowhere else.
pub const MARK: u8 = b'@';
/// So many digits has a moment, in microseconds.
pub const DIGITS: usize = 12;

/// What a model is asked to say.
#[derive(Clone, Copy, Debug)]
pub struct RequestedAnswer {
    /// So many pieces.
    pub pieces: usize,
    /// So many bytes each, as they are carried, about.
    pub size: usize,
    /// One so often; zero for as fast as they are read.
    pub every: Duration,
    /// When the first one comes, so that streams do not speak all at the same moment.
    pub phase: Duration,
}

/// A request for it, with a body of `body` bytes.
pub fn build_request(wanted: &RequestedAnswer, body: usize) -> Vec<u8> {
    let text = "What is to be done about the parser? ".repeat(body / 37);
    let body = format!(
        "{{\"model\":\"bench\",\"max_tokens\":1024,\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}]}}"
    );
    let RequestedAnswer { pieces, size, every, phase } = wanted;
    format!(
        "POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nx-wanted: {pieces} {size} {} {}\r\n\
         content-length: {}\r\n\r\n{body}",
        every.as_micros(),
        phase.as_micros(),
        body.len()
    )
    .into_bytes()
}

/// Starts a model; moments count from `epoch`. It ends with the process.
pub fn start(epoch: Instant) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on the loopback")?;
    let addr = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serving = thread::Builder::new().stack_size(128 << 10);
            // A connection that fails is noticed by its reader.
            let _ = serving.spawn(move || serve_connection(stream, epoch));
        }
    });
    Ok(addr)
}

fn serve_connection(mut stream: TcpStream, epoch: Instant) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(wanted) = read(&mut reader)? {
        stream_answer(&mut stream, &wanted, epoch)?;
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
    let [pieces, size, every, phase] = numbers[..] else {
        return Err(std::io::Error::other("a request that says not what it wants"));
    };
    let (every, phase) = (Duration::from_micros(every), Duration::from_micros(phase));
    Ok(Some(RequestedAnswer { pieces: pieces as usize, size: size as usize, every, phase }))
}

fn stream_answer(stream: &mut TcpStream, wanted: &RequestedAnswer, epoch: Instant) -> std::io::Result<()> {
    stream.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    )?;
    let begin = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
                 {\"type\":\"text_delta\",\"text\":\"@";
    let end = "\"}}\n\n";
    let filled = "x".repeat(wanted.size.saturating_sub(begin.len() + DIGITS + end.len()));
    let mut piece = encode_chunk(&format!("{begin}{:0DIGITS$}{filled}{end}", 0));
    // The mark is the only one of its kind.
    let stamp = piece.iter().position(|byte| *byte == MARK).map_or(0, |at| at + 1);
    let first = Instant::now() + wanted.phase;
    stream.write_all(&encode_chunk(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg\",\"type\":\"message\",\
         \"role\":\"assistant\",\"model\":\"bench\",\"content\":[],\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n\
         event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":\
         {\"type\":\"text\",\"text\":\"\"}}\n\n",
    ))?;
    for number in 0..wanted.pieces {
        if !wanted.every.is_zero() {
            let due = first + wanted.every * u32::try_from(number).unwrap_or(u32::MAX);
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let moment = format!("{:0DIGITS$}", epoch.elapsed().as_micros());
        piece[stamp..stamp + DIGITS].copy_from_slice(&moment.as_bytes()[..DIGITS]);
        stream.write_all(&piece)?;
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
