//! Addresses of stores that another process holds: a Unix socket, or a server over HTTP.

use std::fmt;
use std::path::{Path, PathBuf};

use stepback_model::hash::{Hash, ObjectKind};
use stepback_store::StoreError;

/// How to reach a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteAddress {
    /// A socket on this machine.
    Unix(PathBuf),
    /// A server that speaks HTTP.
    Http {
        /// Whether the connection is encrypted.
        is_tls: bool,
        /// Host name or IP address, without brackets.
        host: String,
        /// Port.
        port: u16,
        /// A file with the certificates to trust, instead of the system's.
        ca: Option<PathBuf>,
    },
}

/// Whether `text` is the address of a store that another process holds, rather than a directory or a database.
pub fn is_address(text: &str) -> bool {
    ["unix:", "https://", "http://"].iter().any(|scheme| text.starts_with(scheme))
}

impl RemoteAddress {
    /// Parses an address: `unix:/PATH`, `https://HOST[:PORT][?ca=FILE]`, or `http://` for this machine.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let wrong = |why: &str, remedy| {
            Err(StoreError::Server {
                what: "cannot read the address of the store".into(),
                why: why.into(),
                remedy,
            })
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.strip_prefix("//").unwrap_or(path) {
                path if path.starts_with('/') => Ok(Self::Unix(PathBuf::from(path))),
                _ => wrong("the path of a socket must be absolute", "use unix:/run/stepback/store.sock"),
            };
        }
        let (is_tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return wrong("its scheme is unknown", "use unix:/PATH or https://HOST:PORT"),
        };
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let ca = match query.map(|query| query.split_once('=')) {
            None => None,
            Some(Some(("ca", file))) if is_tls && !file.is_empty() => {
                let decoded = percent_encoding::percent_decode_str(file).decode_utf8();
                match decoded {
                    Ok(file) => Some(PathBuf::from(file.as_ref())),
                    Err(_) => return wrong("the name after ca= is not UTF-8", "use ?ca=FILE"),
                }
            }
            Some(_) => {
                return wrong("what follows \"?\" is unknown", "only ?ca=FILE is possible, with https://");
            }
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains('@') {
            return wrong(
                "it contains a user or a token",
                "put the token into STEPBACK_TOKEN or the file that \"stepback doctor\" shows",
            );
        }
        if authority.contains('/') {
            return wrong("it contains a path", "use https://HOST:PORT");
        }
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = match port.map(str::parse::<u16>) {
            None if is_tls => 443,
            None => 80,
            Some(Ok(port)) if port > 0 => port,
            Some(_) => return wrong("its port is not a number from 1 to 65535", "use https://HOST:PORT"),
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return wrong("the host is missing", "use https://HOST:PORT");
        }
        let is_local = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        if !is_tls && !is_local {
            return wrong(
                "a connection to another machine would not be encrypted",
                "use https://, and --tls-cert and --tls-key for the server",
            );
        }
        Ok(Self::Http { is_tls, host: host.to_owned(), port, ca })
    }

    /// The name of the local directory for this store. All spellings of one address give the same name.
    pub fn local_name(&self) -> String {
        let (stem, place) = match self {
            Self::Unix(path) => {
                (path.file_stem().map(|stem| stem.to_string_lossy().into_owned()), path.display().to_string())
            }
            Self::Http { host, port, .. } => (Some(host.clone()), format!("{host}:{port}")),
        };
        let stem: String = stem
            .unwrap_or_default()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .take(40)
            .collect();
        let digest = Hash::of(ObjectKind::Blob, place.as_bytes()).to_string();
        format!("{stem}-{}", &digest[..12])
    }

    /// Whether the store may be on another machine. Workspaces of several machines can then have the same path.
    pub fn may_be_remote(&self) -> bool {
        matches!(self, Self::Http { .. })
    }

    /// The kind of address, for display: `unix`, `https` or `http`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unix(_) => "unix",
            Self::Http { is_tls: true, .. } => "https",
            Self::Http { is_tls: false, .. } => "http",
        }
    }

    /// The socket, if it is one.
    pub fn socket(&self) -> Option<&Path> {
        match self {
            Self::Unix(path) => Some(path),
            Self::Http { .. } => None,
        }
    }
}

impl fmt::Display for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Http { is_tls, host, port, .. } => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                write!(f, "http{}://{host}:{port}", if *is_tls { "s" } else { "" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_or_refused_with_a_reason() {
        let socket = RemoteAddress::parse("unix:/run/stepback/store.sock").unwrap();
        assert_eq!(socket, RemoteAddress::Unix("/run/stepback/store.sock".into()));
        assert_eq!(RemoteAddress::parse("unix:///run/stepback/store.sock").unwrap(), socket);
        assert_eq!(socket.to_string(), "unix:/run/stepback/store.sock");
        let server = RemoteAddress::parse("https://guard.example?ca=%2Fetc%2Fmy%20ca.pem").unwrap();
        assert_eq!(server.to_string(), "https://guard.example:443");
        assert!(
            matches!(&server, RemoteAddress::Http { ca: Some(ca), .. } if ca == Path::new("/etc/my ca.pem"))
        );
        assert_eq!(RemoteAddress::parse("http://[::1]:7171/").unwrap().to_string(), "http://[::1]:7171");
        assert_eq!(
            server.local_name(),
            RemoteAddress::parse("https://guard.example:443/").unwrap().local_name()
        );
        for (text, why) in [
            ("unix:relative.sock", "absolute"),
            ("http://guard.example:7171", "not be encrypted"),
            ("https://guard.example:0", "port"),
            ("https://:7171", "host"),
            ("https://guard.example/store", "path"),
            ("https://guard.example?token=x", "?"),
            ("https://x:y@guard.example", "token"),
        ] {
            let error = RemoteAddress::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
