//! An agent that reads its answer piece by piece and sees whether it came to a proper end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::PATIENCE;

pub struct Agent {
    reader: BufReader<TcpStream>,
    pub stream: TcpStream,
    left: Left,
}

/// How much of the body is still to come.
enum Left {
    Bytes(usize),
    Chunks,
    UntilClosed,
}

#[derive(Debug)]
pub struct Head {
    pub status: u16,
    /// As written.
    pub text: String,
}

impl Head {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.text.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl Agent {
    pub fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { reader: BufReader::new(stream.try_clone().unwrap()), stream, left: Left::Bytes(0) }
    }

    /// Writes bytes as they are.
    pub fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends a request with a body of a known length.
    pub fn send(&mut self, first: &str, headers: &str, body: impl AsRef<[u8]>) {
        let body = body.as_ref();
        self.write(format!(
            "{first} HTTP/1.1\r\nhost: proxy\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        ));
        self.write(body);
    }

    /// The head of the answer; an error if the connection ended instead.
    pub fn head(&mut self) -> io::Result<Head> {
        let mut text = String::new();
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if line == "\r\n" {
                break;
            }
            text.push_str(&line);
        }
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        let head = Head { status, text };
        self.left = match head.header("content-length") {
            Some(length) => Left::Bytes(length.parse().unwrap()),
            None if head.header("transfer-encoding").is_some() => Left::Chunks,
            None if matches!(status, 101 | 204 | 304) => Left::Bytes(0),
            None => Left::UntilClosed,
        };
        Ok(head)
    }

    /// The next piece of the body, `None` at its proper end, an error if it broke off.
    pub fn piece(&mut self) -> io::Result<Option<Vec<u8>>> {
        match &mut self.left {
            Left::Bytes(0) => Ok(None),
            Left::Bytes(left) => {
                let mut piece = vec![0; (*left).min(1 << 16)];
                let read = self.reader.read(&mut piece)?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                *left -= read;
                piece.truncate(read);
                Ok(Some(piece))
            }
            Left::UntilClosed => {
                let mut piece = Vec::new();
                self.reader.read_to_end(&mut piece)?;
                self.left = Left::Bytes(0);
                Ok(Some(piece))
            }
            Left::Chunks => {
                let mut size = String::new();
                self.reader.read_line(&mut size)?;
                let size =
                    usize::from_str_radix(size.trim(), 16).map_err(|_| io::ErrorKind::UnexpectedEof)?;
                let mut piece = vec![0; size + 2];
                self.reader.read_exact(&mut piece)?;
                piece.truncate(size);
                if size == 0 {
                    self.left = Left::Bytes(0);
                    return Ok(None);
                }
                Ok(Some(piece))
            }
        }
    }

    /// So many bytes as they are.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.reader.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// All of the body that comes, and whether it came to its end.
    pub fn rest(&mut self) -> (Vec<u8>, io::Result<()>) {
        let mut all = Vec::new();
        loop {
            match self.piece() {
                Ok(Some(piece)) => all.extend(piece),
                Ok(None) => return (all, Ok(())),
                Err(error) => return (all, Err(error)),
            }
        }
    }

    /// The answer to the request that was sent.
    pub fn answer(&mut self) -> (Head, Vec<u8>) {
        let head = self.head().unwrap();
        let (body, end) = self.rest();
        end.unwrap();
        (head, body)
    }
}

/// One request on a connection of its own.
pub fn ask(addr: SocketAddr, first: &str, headers: &str, body: impl AsRef<[u8]>) -> (Head, Vec<u8>) {
    let mut agent = Agent::connect(addr);
    agent.send(first, headers, body);
    agent.answer()
}
