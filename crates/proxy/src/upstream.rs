//! The addresses of the models, and the routing of requests to them.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Uri};
use stepback_llm_wire::Wire;

/// Addresses of models, `http://` or `https://`, with a path that is prepended to every request's path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upstreams {
    /// For requests without an address of their own here.
    pub default: Option<String>,
    /// For Anthropic Messages.
    pub messages: Option<String>,
    /// For OpenAI Chat Completions.
    pub chat: Option<String>,
    /// For OpenAI Responses.
    pub responses: Option<String>,
    /// For Gemini.
    pub gemini: Option<String>,
}

/// A parsed address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    scheme: Scheme,
    authority: Authority,
    base: String,
    /// The address as shown in messages.
    pub(crate) shown: String,
}

impl Target {
    pub(crate) fn parse(url: &str) -> io::Result<Self> {
        let invalid = |reason: &str| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{reason}; use the form https://HOST/PATH"))
        };
        let uri: Uri = url.trim().parse().map_err(|_| invalid("the address of the model is not a URL"))?;
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(invalid("the address of the model is not complete"));
        };
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err(invalid("the address of the model begins with neither http:// nor https://"));
        }
        if authority.as_str().contains('@') {
            return Err(invalid(
                "the address of the model contains a password, which belongs in the agent's settings",
            ));
        }
        let path = parts.path_and_query.as_ref().map_or("", PathAndQuery::path);
        let base = path.trim_end_matches('/').to_owned();
        let display_url = format!("{scheme}://{authority}");
        Ok(Self { scheme, authority, base, shown: display_url })
    }

    pub(crate) fn is_https(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.is_https() { 443 } else { 80 })
    }

    /// Returns the full address for a path and query.
    pub(crate) fn uri(&self, path: &str) -> Result<Uri, http::Error> {
        let path = if path == "*" || self.base.is_empty() {
            path.to_owned()
        } else {
            format!("{}{path}", self.base)
        };
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(PathAndQuery::try_from(path)?)
            .build()
    }

    /// Whether this is the address that the proxy itself listens on.
    fn is_at(&self, addr: SocketAddr) -> bool {
        if self.port() != addr.port() {
            return false;
        }
        let host = self.authority.host().trim_matches(['[', ']']);
        let addresses = (host, self.port()).to_socket_addrs();
        addresses.into_iter().flatten().any(|address| {
            address.ip() == addr.ip()
                || (address.ip().is_unspecified() && is_local(addr.ip()))
                || (addr.ip().is_unspecified() && is_local(address.ip()))
        })
    }
}

fn is_local(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
}

/// All parsed addresses.
#[derive(Debug)]
pub(crate) struct Routes {
    default: Option<Target>,
    by_wire: Vec<(Wire, Target)>,
}

impl Routes {
    pub(crate) fn parse(upstreams: &Upstreams) -> io::Result<Self> {
        let parse = |url: &Option<String>| url.as_deref().map(Target::parse).transpose();
        let mut by_wire = Vec::new();
        for wire in Wire::ALL {
            let url = match wire {
                Wire::Messages => &upstreams.messages,
                Wire::Chat => &upstreams.chat,
                Wire::Responses => &upstreams.responses,
                Wire::Gemini => &upstreams.gemini,
            };
            if let Some(target) = parse(url)? {
                by_wire.push((wire, target));
            }
        }
        Ok(Self { default: parse(&upstreams.default)?, by_wire })
    }

    fn all_targets(&self) -> impl Iterator<Item = &Target> {
        self.default.iter().chain(self.by_wire.iter().map(|(_, target)| target))
    }

    pub(crate) fn any_https(&self) -> bool {
        self.all_targets().any(Target::is_https)
    }

    /// Fails if one of them is the proxy itself.
    pub(crate) fn refuse_loop(&self, addr: SocketAddr) -> io::Result<()> {
        match self.all_targets().find(|target| target.is_at(addr)) {
            None => Ok(()),
            Some(target) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "the proxy would call itself: it listens at {addr}, and its model URL is {}",
                    target.shown
                ),
            )),
        }
    }

    /// Returns the target of a request.
    pub(crate) fn find(&self, wire: Option<Wire>, path: &str, headers: &HeaderMap) -> Option<&Target> {
        let wire = wire.or_else(|| auxiliary_wire(path, headers));
        let upstream_of_wire =
            wire.and_then(|wire| self.by_wire.iter().find(|(candidate, _)| *candidate == wire));
        let only = || if self.by_wire.len() == 1 { self.by_wire.first() } else { None };
        upstream_of_wire
            .map(|(_, target)| target)
            .or(self.default.as_ref())
            .or_else(|| only().map(|(_, target)| target))
    }
}

/// Returns the wire of a request that asks no model: a count of tokens, a list of models.
fn auxiliary_wire(path: &str, headers: &HeaderMap) -> Option<Wire> {
    let mut path = path.split('?').next().unwrap_or_default();
    while let Some((parent, _)) = path.rsplit_once('/') {
        if let Some(wire) = Wire::of("POST", parent) {
            return Some(wire);
        }
        path = parent;
    }
    if headers.contains_key("anthropic-version") {
        Some(Wire::Messages)
    } else if headers.contains_key("x-goog-api-key") {
        Some(Wire::Gemini)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_put_behind_the_base() {
        let uri = |base: &str, path: &str| Target::parse(base).unwrap().uri(path).unwrap().to_string();
        assert_eq!(uri("http://h:1/base", "/v1/messages?beta=true"), "http://h:1/base/v1/messages?beta=true");
        assert_eq!(uri("http://h:1/base/", "/v1"), "http://h:1/base/v1");
        assert_eq!(uri("https://h", "/"), "https://h/");
        assert_eq!(uri("https://h", "//odd//path"), "https://h//odd//path");
    }

    #[test]
    fn wrong_addresses_are_refused_with_the_form_they_should_have() {
        for wrong in ["", "h", "/path", "ftp://h/", concat!("http://user:", "pw@h/"), "http://"] {
            let error = Target::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("https://HOST/PATH"), "{wrong}: {error}");
            assert!(!error.contains("pw"));
        }
    }

    #[test]
    fn requests_go_to_the_model_of_their_wire() {
        let routes = Routes::parse(&Upstreams {
            default: Some("http://default".into()),
            messages: Some("http://messages".into()),
            responses: Some("http://responses".into()),
            ..Upstreams::default()
        })
        .unwrap();
        let find = |wire, path: &str| routes.find(wire, path, &HeaderMap::new()).unwrap().shown.clone();
        assert_eq!(find(Some(Wire::Messages), "/v1/messages"), "http://messages");
        assert_eq!(find(None, "/v1/messages/count_tokens?beta=true"), "http://messages");
        assert_eq!(find(None, "/v1/responses/r1/cancel"), "http://responses");
        assert_eq!(find(None, "/v1/models"), "http://default");
        assert_eq!(find(Some(Wire::Gemini), "/v1beta/models/m:generateContent"), "http://default");
        let mut headers = HeaderMap::new();
        headers.insert("anthropic-version", "1".parse().unwrap());
        assert_eq!(routes.find(None, "/v1/models", &headers).unwrap().shown, "http://messages");
    }

    #[test]
    fn the_proxy_does_not_ask_itself() {
        let at = |url: &str, addr: &str| Target::parse(url).unwrap().is_at(addr.parse().unwrap());
        assert!(at("http://127.0.0.1:4000", "127.0.0.1:4000"));
        assert!(at("http://localhost:4000/x", "127.0.0.1:4000"));
        assert!(at("http://0.0.0.0:4000", "127.0.0.1:4000"));
        assert!(at("http://127.0.0.1:4000", "0.0.0.0:4000"));
        assert!(!at("http://127.0.0.1:4001", "127.0.0.1:4000"));
        assert!(!at("http://127.0.0.2:4000", "127.0.0.1:4000"));
    }
}
