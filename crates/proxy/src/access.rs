//! Which requests are for this proxy and come from an agent, not from a web page.
//!
//! Every page in the user's browser can reach a proxy on loopback, and a page whose host name is pointed at this address later
//! (DNS rebinding) could read its answers. So the `Host` of a request must be an address, `localhost` or a name that was
//! allowed, and a request that a browser marks as that of a page is refused unless its origin was allowed.

use std::net::IpAddr;

use http::{HeaderMap, Uri, header};

/// Names and origins that are accepted in addition.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ProxyAccess {
    /// Host names that agents use for the proxy.
    pub hosts: Vec<String>,
    /// Origins of pages that may use it.
    pub origins: Vec<String>,
}

impl ProxyAccess {
    /// Returns why a request is refused, as status and message; `None` if it is accepted.
    pub(crate) fn refusal(&self, uri: &Uri, headers: &HeaderMap) -> Option<(u16, String)> {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let host_names = [uri.host(), text(header::HOST.as_str()).map(without_port)];
        if let Some(name) = host_names.into_iter().flatten().find(|name| !self.is_own_name(name)) {
            let name = name.escape_default();
            return Some((
                421,
                format!(
                    "stepback proxy: unknown host name {name}. Start it with --allow-host {name} to accept it."
                ),
            ));
        }
        let origin = text(header::ORIGIN.as_str());
        let is_of_page =
            origin.is_some() || matches!(text("sec-fetch-site"), Some("cross-site" | "same-site"));
        if is_of_page && !origin.is_some_and(|origin| self.origins.iter().any(|allowed| allowed == origin)) {
            let message = "stepback proxy: requests of web pages are refused. Start it with --allow-origin ORIGIN to \
                           accept those of one origin.";
            return Some((403, message.to_owned()));
        }
        None
    }

    fn is_own_name(&self, name: &str) -> bool {
        let name = name.trim_matches(['[', ']']);
        // A name that is an address cannot be pointed elsewhere.
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
    }
}

/// The name in a `Host` header.
fn without_port(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(uri: &str, pairs: &[(&str, &str)]) -> Option<u16> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap());
        }
        let access =
            ProxyAccess { hosts: vec!["models.lan".into()], origins: vec!["https://ui.example".into()] };
        access.refusal(&uri.parse().unwrap(), &headers).map(|(status, _)| status)
    }

    #[test]
    fn only_addresses_and_known_names_are_accepted() {
        for host in
            ["127.0.0.1:4000", "localhost", "LOCALHOST:1", "[::1]:4000", "192.168.0.7", "models.lan:80"]
        {
            assert_eq!(refused("/v1/messages", &[("host", host)]), None, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:4000",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "",
            "[x]",
        ] {
            assert_eq!(refused("/v1/messages", &[("host", host)]), Some(421), "{host}");
        }
        assert_eq!(refused("http://evil.example/v1", &[("host", "127.0.0.1")]), Some(421));
        assert_eq!(refused("/v1/messages", &[]), None, "no browser leaves the host out");
    }

    #[test]
    fn pages_are_refused() {
        let host = ("host", "127.0.0.1:4000");
        for origin in ["http://127.0.0.1:4000", "https://evil.example", "null", "http://localhost:3000"] {
            assert_eq!(refused("/v1/models", &[host, ("origin", origin)]), Some(403), "{origin}");
        }
        assert_eq!(refused("/v1/models", &[host, ("origin", "https://ui.example")]), None);
        assert_eq!(refused("/v1/models", &[host, ("sec-fetch-site", "cross-site")]), Some(403));
        assert_eq!(refused("/v1/models", &[host, ("sec-fetch-mode", "cors")]), None, "Node sends this");
    }
}
