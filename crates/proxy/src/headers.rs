//! Which headers are passed on, and which of them may be recorded.

use http::HeaderMap;
use http::header::{self, HeaderName};
use percent_encoding::percent_decode_str;

/// The replacement for a secret.
pub(crate) const REDACTED: &str = "[redacted]";

/// Headers about one connection rather than the message.
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// Names of headers with credentials, and parts of such names.
const SECRET_NAMES: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "set-cookie"];
const SECRET_PARTS: [&str; 8] =
    ["token", "secret", "api-key", "apikey", "api_key", "password", "credential", "authorization"];

/// Query parameters with credentials.
const SECRET_PARAMETERS: [&str; 7] =
    ["key", "api_key", "api-key", "apikey", "access_token", "token", "client_secret"];

/// Removes headers about the connection, including those that `Connection` names.
pub(crate) fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let connection_headers: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in connection_headers {
        // A message needs these headers, whatever `Connection` says.
        if name != header::CONTENT_LENGTH && name != header::HOST && name != header::CONTENT_TYPE {
            headers.remove(name);
        }
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Whether a header holds credentials and must not be recorded.
fn is_secret(name: &str, value: &str) -> bool {
    SECRET_NAMES.contains(&name)
        || SECRET_PARTS.iter().any(|part| name.contains(part))
        // Credentials are written like this in any header.
        || ["bearer ", "basic "].iter().any(|scheme| {
            value.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        })
}

/// Returns all headers that may be recorded.
pub(crate) fn recordable_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .filter_map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes());
            (!is_secret(name.as_str(), value.trim_start()))
                .then(|| (name.as_str().to_owned(), without_secret_parameters(&value)))
        })
        .collect()
}

/// Returns the headers about the message, without those about its transfer. `decoded`: the body is recorded decompressed.
pub(crate) fn about_the_message(headers: &[(String, String)], decoded: bool) -> Vec<(String, String)> {
    headers
        .iter()
        .filter(|(name, _)| {
            let carried = HOP_BY_HOP.contains(&name.as_str())
                || ["host", "content-length", "accept-encoding", "trailer", "expect"]
                    .contains(&name.as_str());
            !(carried || decoded && name == "content-encoding")
        })
        .cloned()
        .collect()
}

/// Returns an address or a path with the values of secret parameters replaced.
pub(crate) fn without_secret_parameters(text: &str) -> String {
    map_query_values(text, &mut |name, value| {
        let name = percent_decode_str(name).decode_utf8_lossy().to_ascii_lowercase();
        if SECRET_PARAMETERS.contains(&name.as_str()) && !value.is_empty() {
            REDACTED.into()
        } else {
            value.into()
        }
    })
}

/// Returns the same path with replaced values restored from `original`.
pub(crate) fn with_secret_parameters(path: &str, original: &str) -> String {
    let mut secrets: Vec<(String, String)> = Vec::new();
    map_query_values(original, &mut |name, value| {
        secrets.push((name.to_owned(), value.to_owned()));
        value.to_owned()
    });
    map_query_values(path, &mut |name, value| {
        if value != REDACTED {
            return value.to_owned();
        }
        match secrets.iter().position(|(name_in_original, _)| name_in_original == name) {
            Some(index) => secrets.remove(index).1,
            None => value.to_owned(),
        }
    })
}

/// Replaces the value of every query parameter by what `value` returns; everything else is unchanged.
fn map_query_values(text: &str, value: &mut dyn FnMut(&str, &str) -> String) -> String {
    let Some((path, query)) = text.split_once('?') else { return text.to_owned() };
    let pairs: Vec<String> = query
        .split('&')
        .map(|pair| match pair.split_once('=') {
            Some((name, old)) => format!("{name}={}", value(name, old)),
            None => pair.to_owned(),
        })
        .collect();
    format!("{path}?{}", pairs.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorising_parameters_are_replaced_and_come_back() {
        let path = "/v1beta/models/m:generateContent?alt=sse&key=AIza123&k%65y=x&api_key=";
        let shown = without_secret_parameters(path);
        assert_eq!(
            shown,
            "/v1beta/models/m:generateContent?alt=sse&key=[redacted]&k%65y=[redacted]&api_key="
        );
        assert_eq!(with_secret_parameters(&shown, path), path);
        let other_model = shown.replace("models/m:", "models/n:");
        assert_eq!(with_secret_parameters(&other_model, path), path.replace("models/m:", "models/n:"));
        assert_eq!(without_secret_parameters("/v1/messages?beta=true"), "/v1/messages?beta=true");
    }

    #[test]
    fn what_authorises_is_not_recordable() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer s1"),
            ("x-api-key", "s2"),
            ("x-goog-api-key", "s3"),
            ("cookie", "s4"),
            ("x-session-token", "s5"),
            ("x-custom", "Bearer s6"),
            ("referer", "http://h/p?token=s7"),
            ("user-agent", "agent/1"),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        let kept = recordable_headers(&headers);
        let names: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["referer", "user-agent"]);
        assert_eq!(kept[0].1, "http://h/p?token=[redacted]");
    }

    #[test]
    fn what_connection_names_is_dropped() {
        let mut headers = HeaderMap::new();
        headers.insert("connection", "close, x-once, content-length".parse().unwrap());
        headers.insert("x-once", "1".parse().unwrap());
        headers.insert("x-kept", "1".parse().unwrap());
        headers.insert("content-length", "3".parse().unwrap());
        drop_hop_by_hop(&mut headers);
        let names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["x-kept", "content-length"]);
    }
}
