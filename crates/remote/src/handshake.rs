//! The beginning of a connection: an HTTP request that is upgraded to the store protocol.
//!
//! It is the same on a Unix socket and over TLS, so a server that speaks HTTP anyway can serve the store at its own address.
//! The version of the protocol is the name that the client asks to upgrade to.

use std::io::{self, Read, Write};

use crate::access::AccessRole;
use crate::frame::invalid;

/// The name and version of the protocol, as in the header `Upgrade`.
pub const PROTOCOL: &str = "stepback-store/1";
/// The path of the endpoint.
pub const STORE_PATH: &str = "/store";

/// Largest head of a request or answer, in bytes.
const MAX_HEAD_BYTES: usize = 8 << 10;

/// What a server says about itself when a connection begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// What the client may do.
    pub role: AccessRole,
    /// The id of the store; caches about another store are worthless.
    pub store_id: String,
    /// A number that a server process draws when it starts.
    pub instance: String,
}

/// The head of an HTTP request or answer: its first line, and its headers.
#[derive(Debug, Default)]
pub(crate) struct HttpHead {
    pub first_line: String,
    headers: Vec<(String, String)>,
}

impl HttpHead {
    /// Reads a head, and not a byte more. `None` if the stream ended before it.
    pub fn read(stream: &mut impl Read) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        let mut next = [0];
        while !bytes.ends_with(b"\r\n\r\n") {
            match stream.read(&mut next) {
                Ok(0) if bytes.is_empty() => return Ok(None),
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                Ok(_) => bytes.push(next[0]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if bytes.len() > MAX_HEAD_BYTES {
                return Err(invalid("the head of the request is too long".into()));
            }
        }
        let text =
            String::from_utf8(bytes).map_err(|_| invalid("the head of the request is not text".into()))?;
        let mut lines = text.trim_end().split("\r\n");
        let first_line = lines.next().unwrap_or_default().to_owned();
        let headers = lines.filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        });
        Ok(Some(Self { first_line, headers: headers.collect() }))
    }

    /// The value of a header, whose name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The token in the header `Authorization`; empty if the header has none.
    pub fn token(&self) -> Option<&str> {
        let value = self.header("authorization")?;
        Some(value.strip_prefix("Bearer ").unwrap_or_default().trim())
    }
}

/// Whether these headers ask for an upgrade to this version of the protocol.
pub fn is_upgrade_request(connection: Option<&str>, upgrade: Option<&str>) -> bool {
    let asks = connection
        .is_some_and(|value| value.split(',').any(|option| option.trim().eq_ignore_ascii_case("upgrade")));
    asks && upgrade.is_some_and(|value| value.split(',').any(|name| name.trim() == PROTOCOL))
}

/// Why a server refuses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeRefusal {
    NotFound,
    WrongVersion,
    WrongToken,
    TooMany,
}

impl HandshakeRefusal {
    fn status(self) -> &'static str {
        match self {
            Self::NotFound => "404 Not Found",
            Self::WrongVersion => "426 Upgrade Required",
            Self::WrongToken => "401 Unauthorized",
            Self::TooMany => "503 Service Unavailable",
        }
    }
}

/// Checks that a request asks for the store and for this version of the protocol.
pub(crate) fn check_request(head: &HttpHead) -> Result<(), HandshakeRefusal> {
    let mut words = head.first_line.split(' ');
    if (words.next(), words.next()) != (Some("GET"), Some(STORE_PATH)) {
        return Err(HandshakeRefusal::NotFound);
    }
    match is_upgrade_request(head.header("connection"), head.header("upgrade")) {
        true => Ok(()),
        false => Err(HandshakeRefusal::WrongVersion),
    }
}

/// Refuses a connection.
pub(crate) fn refuse(stream: &mut impl Write, refusal: HandshakeRefusal) -> io::Result<()> {
    let text = format!(
        "HTTP/1.1 {}\r\nUpgrade: {PROTOCOL}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        refusal.status()
    );
    stream.write_all(text.as_bytes())?;
    stream.flush()
}

impl Welcome {
    /// The headers of the answer, besides those of the upgrade itself.
    pub fn headers(&self) -> [(&'static str, &str); 3] {
        [
            ("stepback-role", self.role.name()),
            ("stepback-store-id", &self.store_id),
            ("stepback-instance", &self.instance),
        ]
    }

    /// Writes the answer that begins the protocol.
    pub(crate) fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        let mut text =
            format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {PROTOCOL}\r\n");
        for (name, value) in self.headers() {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        stream.write_all(text.as_bytes())?;
        stream.flush()
    }
}

/// Why a client cannot use a server.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// The connection failed.
    Io(io::Error),
    /// The server refused: why, and what to do.
    Refused(String, &'static str),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Asks a server for the store.
pub(crate) fn request(
    stream: &mut (impl Read + Write),
    host: &str,
    token: Option<&str>,
) -> Result<Welcome, HandshakeError> {
    let mut text = format!(
        "GET {STORE_PATH} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: {PROTOCOL}\r\n"
    );
    if let Some(token) = token {
        text.push_str(&format!("Authorization: Bearer {token}\r\n"));
    }
    text.push_str("\r\n");
    stream.write_all(text.as_bytes())?;
    stream.flush()?;
    let head = HttpHead::read(stream)?.ok_or(io::Error::from(io::ErrorKind::UnexpectedEof))?;
    let status = head.first_line.split(' ').nth(1).unwrap_or_default();
    let refused = |why: &str, remedy| Err(HandshakeError::Refused(why.to_owned(), remedy));
    match status {
        "101" => {}
        "401" | "403" => {
            return refused(
                "the server refused the token",
                "set STEPBACK_TOKEN to the token in guard.token of the server's store, or write it into the file \"token\" that \"stepback doctor\" names",
            );
        }
        "404" | "405" => {
            return refused(
                "the server does not offer its store",
                "start it with \"stepback serve --guard\"",
            );
        }
        "426" => {
            let offered = head.header("upgrade").unwrap_or("another protocol");
            return refused(
                &format!("the server speaks {offered}, and this program {PROTOCOL}"),
                "use the same version of stepback on both sides",
            );
        }
        "503" => return refused("the server has too many connections", "retry"),
        _ => {
            return refused(
                &format!(
                    "the answer is not that of a store: {}",
                    head.first_line.chars().take(80).collect::<String>()
                ),
                "check the address",
            );
        }
    }
    let role = head.header("stepback-role").and_then(AccessRole::parse);
    let text = |name| head.header(name).map(str::to_owned);
    match (role, text("stepback-store-id"), text("stepback-instance")) {
        (Some(role), Some(store_id), Some(instance)) => Ok(Welcome { role, store_id, instance }),
        _ => refused(
            "the server does not say what the connection may do",
            "use the same version of stepback on both sides",
        ),
    }
}
