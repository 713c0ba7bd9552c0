//! A minimal HTTP/1.1 implementation for the model: requests with a body, keep-alive connections, chunked responses.

use std::io::{self, BufRead, Read, Write};

/// A request as it came over the wire.
#[derive(Debug, Default)]
pub struct HttpRequest {
    /// `POST`, `HEAD` …
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body's bytes.
    pub body: Vec<u8>,
}

impl HttpRequest {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether the client closes the connection after this request.
    pub fn closes(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// Reads the next request; `None` if the client closed the connection.
pub fn read(
    stream: &mut (impl BufRead + ?Sized),
    replies: &mut impl Write,
) -> io::Result<Option<HttpRequest>> {
    let Some(first) = line(stream)? else { return Ok(None) };
    let mut words = first.split(' ');
    let mut message = HttpRequest {
        method: words.next().unwrap_or_default().to_owned(),
        path: words.next().unwrap_or_default().to_owned(),
        ..HttpRequest::default()
    };
    loop {
        let header = line(stream)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if header.is_empty() {
            break;
        }
        let (name, value) = header.split_once(':').ok_or(io::ErrorKind::InvalidData)?;
        message.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    if message.header("expect").is_some() {
        replies.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    if message.header("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
        loop {
            let size = line(stream)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let size = size.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| io::ErrorKind::InvalidData)?;
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk)?;
            if size == 0 {
                break;
            }
            message.body.extend_from_slice(&chunk[..size]);
        }
    } else if let Some(length) = message.header("content-length") {
        let length: usize = length.parse().map_err(|_| io::ErrorKind::InvalidData)?;
        message.body = vec![0; length];
        stream.read_exact(&mut message.body)?;
    }
    Ok(Some(message))
}

fn line(stream: &mut (impl BufRead + ?Sized)) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    if stream.take(64 << 10).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let line = String::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned()))
}

/// An answer.
#[derive(Debug)]
pub enum HttpReply {
    /// One JSON document.
    Json(u16, serde_json::Value),
    /// A stream of server-sent events, each a name (if the wire names them) and its data.
    Events(Vec<(Option<String>, String)>),
    /// Only a status.
    Empty(u16),
}

/// Writes an answer; each event is a chunk of its own.
pub fn write(stream: &mut impl Write, reply: &HttpReply) -> io::Result<()> {
    match reply {
        HttpReply::Empty(status) => write!(stream, "HTTP/1.1 {status} Status\r\ncontent-length: 0\r\n\r\n")?,
        HttpReply::Json(status, value) => {
            let body = value.to_string();
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            )?;
        }
        HttpReply::Events(events) => {
            stream.write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n",
            )?;
            for (name, data) in events {
                let name = name.as_ref().map_or_else(String::new, |name| format!("event: {name}\n"));
                let event = format!("{name}data: {data}\n\n");
                write!(stream, "{:x}\r\n{event}\r\n", event.len())?;
                stream.flush()?;
            }
            stream.write_all(b"0\r\n\r\n")?;
        }
    }
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_requests_on_one_connection_in_both_encodings() {
        let mut sent: &[u8] = b"POST /a?b HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}\
            POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        let first = read(&mut sent, &mut Vec::new()).unwrap().unwrap();
        assert_eq!((first.path.as_str(), first.body.as_slice()), ("/a?b", b"{}".as_slice()));
        let second = read(&mut sent, &mut Vec::new()).unwrap().unwrap();
        assert_eq!((second.method.as_str(), second.body.as_slice()), ("POST", b"abcde".as_slice()));
        assert!(read(&mut sent, &mut Vec::new()).unwrap().is_none());
    }

    #[test]
    fn events_come_in_chunks() {
        let mut written = Vec::new();
        write(&mut written, &HttpReply::Events(vec![(Some("a".to_owned()), "{}".to_owned())])).unwrap();
        let written = String::from_utf8(written).unwrap();
        assert!(written.ends_with("\r\n\r\n13\r\nevent: a\ndata: {}\n\n\r\n0\r\n\r\n"), "{written:?}");
    }
}
