//! A minimal HTTP client for posting batches: one reused connection, and bounded answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Longest answer that is read, in bytes.
const MAX_RESPONSE_BYTES: u64 = 4 << 20;

/// The address of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// Host and port, as sent in the `Host` header.
    pub host: String,
    /// The prefix of the path of every request.
    pub prefix: String,
}

impl Address {
    /// Parses `http://HOST:PORT`, optionally with a path prefix.
    pub fn parse(url: &str) -> Result<Self, String> {
        let rest = url.strip_prefix("http://").ok_or_else(|| match url.starts_with("https://") {
            true => {
                "this client speaks plain HTTP only; reach the server over loopback or a tunnel".to_owned()
            }
            false => format!("\"{url}\" does not begin with http://"),
        })?;
        let (host, prefix) = rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
        let has_port = host.rsplit_once(':').is_some_and(|(name, port)| {
            !name.is_empty() && (!name.contains(':') || name.ends_with(']')) && port.parse::<u16>().is_ok()
        });
        if host.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'@') || host.is_empty() {
            return Err(format!("\"{url}\" names no host"));
        }
        let host = if has_port { host.to_owned() } else { format!("{host}:80") };
        let prefix = prefix.trim_end_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        Ok(Self { host, prefix })
    }
}

/// An HTTP response.
#[derive(Debug)]
pub struct HttpResponse {
    /// The HTTP status.
    pub status: u16,
    /// The value of the `Retry-After` header, if there is one.
    pub retry_after: Option<Duration>,
    /// The body.
    pub body: Vec<u8>,
}

/// A connection to a server, opened on first use.
pub struct Connection {
    address: Address,
    token: String,
    timeout: Duration,
    stream: Option<BufReader<TcpStream>>,
}

impl Connection {
    /// Creates a connection to the server at `address`, without opening it.
    pub fn new(address: Address, token: String, timeout: Duration) -> Self {
        Self { address, token, timeout, stream: None }
    }

    /// Posts JSON. If the reused connection was closed meanwhile, it is reopened once.
    pub fn post(&mut self, path: &str, body: &[u8]) -> io::Result<HttpResponse> {
        let again = self.stream.is_some();
        match self.try_post(path, body) {
            Err(_) if again => {
                self.stream = None;
                self.try_post(path, body)
            }
            other => other,
        }
        .inspect_err(|_| self.stream = None)
    }

    fn try_post(&mut self, path: &str, body: &[u8]) -> io::Result<HttpResponse> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => self.stream.insert(BufReader::new(connect(&self.address.host, self.timeout)?)),
        };
        let (Address { host, prefix }, token, length) = (&self.address, &self.token, body.len());
        let head = format!(
            "POST {prefix}{path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        let mut whole = head.into_bytes();
        whole.extend_from_slice(body);
        stream.get_mut().write_all(&whole)?;
        let (reply, stays) = read(stream)?;
        if !stays {
            self.stream = None;
        }
        Ok(reply)
    }
}

fn connect(host: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
    for address in host.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Reads an answer. Returns also whether the connection can be reused.
fn read(stream: &mut BufReader<TcpStream>) -> io::Result<(HttpResponse, bool)> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut head = stream.take(64 << 10);
    let mut line = String::new();
    head.read_line(&mut line)?;
    let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.ok_or_else(|| wrong("the answer is not HTTP/1.1"))?;
    let (mut length, mut retry_after, mut stays, mut chunked) = (None, None, true, false);
    loop {
        line.clear();
        if head.read_line(&mut line)? == 0 {
            return Err(wrong("the answer ends in its headers"));
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse::<u64>().ok(),
            "retry-after" => retry_after = value.parse().ok().map(Duration::from_secs),
            "connection" => stays = !value.eq_ignore_ascii_case("close"),
            "transfer-encoding" => chunked = true,
            _ => {}
        }
    }
    let stream = head.into_inner();
    let mut body = Vec::new();
    match length {
        Some(length) if length <= MAX_RESPONSE_BYTES && !chunked => {
            stream.take(length).read_to_end(&mut body)?;
            if body.len() as u64 != length {
                return Err(wrong("the answer ends early"));
            }
        }
        // Not an answer of a stepback server; the end of the body is unknown, so the connection is not reused.
        _ => stays = false,
    }
    Ok((HttpResponse { status, retry_after, body }, stays))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_mistakes_named() {
        let host = |url: &str| Address::parse(url).map(|address| (address.host, address.prefix));
        assert_eq!(host("http://127.0.0.1:7171"), Ok(("127.0.0.1:7171".into(), String::new())));
        assert_eq!(host("http://[::1]:7171/"), Ok(("[::1]:7171".into(), String::new())));
        assert_eq!(host("http://studio/behind/"), Ok(("studio:80".into(), "/behind".into())));
        assert!(host("https://studio").unwrap_err().contains("plain HTTP"));
        for wrong in ["", "studio:80", "http://", "http:///x", "http://me@there:80", "http://a b"] {
            assert!(host(wrong).is_err(), "{wrong}");
        }
    }
}
