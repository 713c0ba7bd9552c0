//! A model that answers with whatever bytes a test wants, the real proxy in front of it, and a client that looks at every
//! byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::sandbox::{Ran, Sandbox};

/// Nothing here takes longer than this unless it never ends.
const LONGEST: Duration = Duration::from_secs(60);

/// A server that reads a request and lets a test answer it, one connection after the other in threads of their own.
pub struct Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Upstream {
    /// Starts it.
    pub fn start(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (answer, kept) = (Arc::new(answer), asked.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let (answer, kept) = (answer.clone(), kept.clone());
                thread::spawn(move || {
                    stream.set_read_timeout(Some(LONGEST)).unwrap();
                    let Some(request) = read_request(&mut stream) else { return };
                    kept.lock().unwrap().push(request.clone());
                    answer(&request, &mut stream);
                });
            }
        });
        Self { address, asked }
    }

    /// One that always answers with these bytes.
    pub fn saying(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::start(move |_, stream| {
            // Whoever asked may have gone away.
            let _ = stream.write_all(&bytes);
        })
    }

    /// Its address as agents write it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far: head and body.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// A head and as much of a body as it announces.
fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length, mut chunked) = (String::new(), 0, false);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        chunked |= lower.starts_with("transfer-encoding: chunked");
        head.push_str(&line);
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    while chunked {
        let mut size = String::new();
        reader.read_line(&mut size).ok()?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        let mut piece = vec![0; size + 2];
        reader.read_exact(&mut piece).ok()?;
        body.extend(&piece[..size]);
        chunked = size > 0;
    }
    Some(head + &String::from_utf8_lossy(&body))
}

/// An answer with a body.
pub fn answer(status: u16, kind: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// An answer in JSON.
pub fn document(status: u16, body: &Value) -> Vec<u8> {
    answer(status, "application/json", body.to_string())
}

/// An answer as a stream of events, each with the name that its type says.
pub fn events(documents: &[Value]) -> Vec<u8> {
    let one = |document: &Value| match document["type"].as_str() {
        Some(name) => format!("event: {name}\ndata: {document}\n\n"),
        None => format!("data: {document}\n\n"),
    };
    answer(200, "text/event-stream", documents.iter().map(one).collect::<String>())
}

/// Asks and reads until the other side has nothing more to say.
pub fn post(url: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut stream = ask(url, path, headers, body);
    let mut all = Vec::new();
    // A connection that breaks is something to look at, too.
    let _ = stream.read_to_end(&mut all);
    String::from_utf8_lossy(&all).into_owned()
}

/// Asks, and leaves it to the test what to do with the answer.
pub fn ask(url: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(LONGEST)).unwrap();
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n{more}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    stream
}

/// What follows the head of an answer.
pub fn body_of(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// A proxy or a server at work.
pub struct Carrying {
    child: Child,
    rest: BufReader<ChildStdout>,
    /// Where it listens.
    pub url: String,
    /// All it said then.
    pub said: Value,
}

impl Carrying {
    /// Starts the real program and waits until it listens.
    #[track_caller]
    pub fn start(world: &Sandbox, words: &[&str]) -> Self {
        Self::with(world, words, &[]).unwrap_or_else(|ran| panic!("it does not listen: {ran:?}"))
    }

    /// The same with variables set; what it said if it does not come to listen.
    pub fn with(world: &Sandbox, words: &[&str], variables: &[(&str, &str)]) -> Result<Self, Ran> {
        Self::program(world, &[&["proxy", "--json"], words].concat(), variables)
    }

    /// Starts whatever prints an address once it listens.
    pub fn program(world: &Sandbox, words: &[&str], variables: &[(&str, &str)]) -> Result<Self, Ran> {
        let mut command = world.command(words);
        command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut rest = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        rest.read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_default();
        let Some(url) = said["url"].as_str().map(str::to_string) else {
            let ran: Ran = child.wait_with_output().unwrap().into();
            return Err(Ran { out: line, ..ran });
        };
        Ok(Self { child, rest, url, said })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as a person does, and gives what it said.
    #[track_caller]
    pub fn end(self) -> Ran {
        self.end_with(Signal::TERM)
    }

    /// Ends it by a signal.
    #[track_caller]
    pub fn end_with(mut self, signal: Signal) -> Ran {
        send(&self.child, signal);
        let mut out = String::new();
        self.rest.read_to_string(&mut out).unwrap();
        let ran: Ran = self.child.wait_with_output().unwrap().into();
        Ran { out, ..ran }
    }
}

/// Sends a signal to a process of the test.
pub fn send(child: &Child, signal: Signal) {
    let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(id, signal).unwrap();
}

/// Waits until something is so.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONGEST, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// All steps of a session, or of the last one, oldest first, with everything that is known about them.
#[track_caller]
pub fn steps(world: &Sandbox, session: Option<&str>) -> Vec<Value> {
    let words = ["replay", "--json"].into_iter().chain(session);
    world.ok(words).out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
