//! A server that writes exactly the bytes a test wants, or none at all.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One request as it arrived.
pub struct Asked {
    /// The first line and the headers, as written.
    pub head: String,
    pub body: Vec<u8>,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// One connection.
pub struct Connection {
    reader: BufReader<TcpStream>,
    pub stream: TcpStream,
}

impl Connection {
    /// The next request without its body; `None` if there is none.
    pub fn head(&mut self) -> Option<Asked> {
        let mut head = String::new();
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line == "\r\n" {
                return Some(Asked { head, body: Vec::new() });
            }
            head.push_str(&line);
        }
    }

    /// The next request.
    pub fn request(&mut self) -> Option<Asked> {
        let mut asked = self.head()?;
        if let Some(length) = asked.header("content-length") {
            asked.body = vec![0; length.parse().unwrap()];
            self.reader.read_exact(&mut asked.body).ok()?;
        } else if asked.header("transfer-encoding").is_some() {
            loop {
                let mut size = String::new();
                self.reader.read_line(&mut size).ok()?;
                let size = usize::from_str_radix(size.trim(), 16).unwrap();
                let mut piece = vec![0; size + 2];
                self.reader.read_exact(&mut piece).ok()?;
                if size == 0 {
                    break;
                }
                asked.body.extend_from_slice(&piece[..size]);
            }
        }
        Some(asked)
    }

    /// So many bytes as they are.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.reader.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn write(&mut self, bytes: impl AsRef<[u8]>) {
        // The other side may be gone; a test sees that elsewhere.
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Writes one chunk.
    pub fn chunk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.write(chunk);
    }

    /// Writes a whole answer.
    pub fn answer(&mut self, headers: &str, body: &[u8]) {
        self.write(format!("HTTP/1.1 200 OK\r\n{headers}content-length: {}\r\n\r\n", body.len()));
        self.write(body);
    }

    /// Begins a streamed answer.
    pub fn stream(&mut self) {
        self.write(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        );
    }

    /// Waits until the other side closes.
    pub fn until_closed(&mut self) {
        let mut rest = Vec::new();
        let _ = self.reader.read_to_end(&mut rest);
    }
}

/// A server; each connection is a thread that does what the test says.
pub struct Server {
    pub addr: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Server {
    pub fn start(serve: impl Fn(Connection) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (serve, counted) = (Arc::new(serve), Arc::clone(&connections));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || {
                    let reader = BufReader::new(stream.try_clone().unwrap());
                    serve(Connection { reader, stream });
                });
            }
        });
        Self { addr, connections }
    }

    /// One that gives every request the same answer.
    pub fn answering(headers: &'static str, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Self::start(move |mut connection| {
            while connection.request().is_some() {
                connection.answer(headers, &body);
            }
        })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// How many connections there were.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}
