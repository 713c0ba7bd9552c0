//! A client of the server that uses as little CPU as possible, because it shares the machine with the server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::BATCH_SIZE;
use super::process::ServerProcess;

/// A connection that stays.
pub struct HttpConnection {
    stream: BufReader<TcpStream>,
    token: String,
}

impl HttpConnection {
    /// To a server.
    pub fn open(server: &ServerProcess) -> Result<Self> {
        let stream = TcpStream::connect(server.address).context("cannot reach the server")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        Ok(Self { stream: BufReader::with_capacity(64 << 10, stream), token: server.token.clone() })
    }

    /// Asks for a document.
    pub fn get(&mut self, path: &str) -> Result<Value> {
        let head = format!(
            "GET /api/v1{path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {}\r\n\r\n",
            self.token
        );
        match self.send_request(head.as_bytes(), &[])? {
            (200, response) => Ok(response),
            (status, response) => bail!("{path}: {status} {response}"),
        }
    }

    /// Posts a batch, and again when the server is too busy.
    pub fn post_until_taken(&mut self, body: &[u8]) -> Result<Value> {
        let head = format!(
            "POST /api/v1/ingest HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.token,
            body.len()
        );
        loop {
            match self.send_request(head.as_bytes(), body)? {
                (200, response) => return Ok(response),
                (429, _) => std::thread::sleep(Duration::from_millis(20)),
                (status, response) => bail!("{status} {response}"),
            }
        }
    }

    fn send_request(&mut self, head: &[u8], body: &[u8]) -> Result<(u16, Value)> {
        self.stream.get_mut().write_all(&[head, body].concat())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.get(9..12).and_then(|status| status.parse().ok()).context("this is no answer")?;
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                bail!("the answer is cut off");
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut response = vec![0; length];
        self.stream.read_exact(&mut response)?;
        Ok((status, serde_json::from_slice(&response).unwrap_or_default()))
    }
}

/// A batch of steps that differ from all others; it is made by overwriting the numbers in the previous batch.
pub struct Batch {
    body: Vec<u8>,
    round: u64,
    client: u64,
    /// The offsets at which numbers are written, and the step that each belongs to.
    numbers: Vec<(usize, u64)>,
    /// Where the session is written.
    sessions: Vec<usize>,
}

/// Stands where a number is written.
const NUMBER: &str = "0000000000000000";
/// Stands where the session is written.
const SESSION: &str = "sssssssssssssssss";

impl Batch {
    /// Of a client, in a round.
    pub fn new(round: u64, client: u64) -> Self {
        let words = "refactor the parser so that errors carry a position and tests still pass; ";
        let event = json!({
            "session": SESSION, "kind": "tool-end", "id": NUMBER, "call": NUMBER, "tool": "bash",
            "at": "2026-01-02T03:04:05Z", "summary": format!("bash: make test {NUMBER}"),
            "input": { "command": format!("make test N={NUMBER}"), "timeout": 30 },
            "output": format!("{NUMBER} {}", words.repeat(9)), "duration_us": 1234,
            "metadata": { "trace_id": NUMBER, "tokens": { "input": 812, "output": 64 } },
        })
        .to_string();
        let (in_event, session) = (find_offsets(&event, NUMBER), find_offsets(&event, SESSION));
        let mut batch = Self { body: Vec::new(), round, client, numbers: Vec::new(), sessions: Vec::new() };
        batch.body.extend_from_slice(br#"{"workspace":"bench","agent":"bench","events":["#);
        for number in 0..BATCH_SIZE as u64 {
            if number > 0 {
                batch.body.push(b',');
            }
            let start = batch.body.len();
            batch.numbers.extend(in_event.iter().map(|offset| (start + offset, number)));
            batch.sessions.extend(session.iter().map(|offset| start + offset));
            batch.body.extend_from_slice(event.as_bytes());
        }
        batch.body.extend_from_slice(b"]}");
        batch
    }

    /// Its size, in bytes.
    pub fn bytes(&self) -> usize {
        self.body.len()
    }

    /// It, as JSON.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Turns it into the batch with this number, for this session of the client.
    pub fn renumber(&mut self, number: u64, session: u64) {
        let name = format!("s{:04x}{:04x}{session:08x}", self.round, self.client);
        for offset in &self.sessions {
            self.body[*offset..offset + name.len()].copy_from_slice(name.as_bytes());
        }
        for (offset, step) in &self.numbers {
            let text = format!("{:016x}", (self.round << 56) | (number << 16) | step);
            self.body[*offset..offset + text.len()].copy_from_slice(text.as_bytes());
        }
    }
}

fn find_offsets(text: &str, marker: &str) -> Vec<usize> {
    text.match_indices(marker).map(|(offset, _)| offset).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_step_of_every_batch_is_another_one() {
        let mut batch = Batch::new(1, 2);
        let mut seen = HashSet::new();
        for number in 0..3 {
            batch.renumber(number, 7);
            let body: Value = serde_json::from_slice(batch.body()).unwrap();
            for event in body["events"].as_array().unwrap() {
                assert_eq!(event["session"], "s0001000200000007");
                assert!((1000..1100).contains(&event.to_string().len()), "{}", event.to_string().len());
                let outputs = event["output"].as_str().unwrap().starts_with(event["id"].as_str().unwrap());
                assert!(outputs && seen.insert(event["id"].to_string()));
            }
        }
        assert_eq!(seen.len(), 300);
    }
}
