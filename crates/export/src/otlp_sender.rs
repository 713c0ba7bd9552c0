//! Sends spans to an OpenTelemetry receiver: OTLP over HTTP, as JSON.
//!
//! The address is contacted because the user gave it. TLS is rustls with the certificates of the system; redirects are not
//! followed, because headers can have credentials.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use stepback_model::escape::excerpt;

use crate::error::ExportError;

/// The most spans of one request, as SDKs send them.
pub const MAX_SPANS: usize = 512;
/// About the most bytes of one request: what receivers accept without a change of their settings.
pub const MAX_BYTES: usize = 4 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The most bytes that are read of an answer.
const MAX_ANSWER: usize = 64 << 10;
/// The most characters that an error repeats of an answer.
const MAX_REASON: usize = 300;

/// A receiver of spans.
pub struct OtlpEndpoint {
    uri: Uri,
    shown: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl OtlpEndpoint {
    /// Whether a text is an address and not the name of a file.
    pub fn is_address(text: &str) -> bool {
        let lower = text.trim().to_ascii_lowercase();
        lower.starts_with("http://") || lower.starts_with("https://")
    }

    /// Parses an address; `/v1/traces` is added if it has no path. `headers` are in the form of OTEL_EXPORTER_OTLP_HEADERS:
    /// `NAME=VALUE,NAME=VALUE`, with values in percent-encoding.
    pub fn parse(url: &str, headers: &str) -> Result<Self, ExportError> {
        let url = url.trim();
        // A password must not be repeated in an error.
        let shown =
            match url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
                Some((scheme, rest)) => format!("{scheme}://…@{rest}"),
                None => url.to_owned(),
            };
        let shown = excerpt(shown.split('?').next().unwrap_or_default(), 200);
        let fail = |reason| ExportError::Address { url: shown.clone(), reason };
        let uri: Uri = url.parse().map_err(|_| fail("it is not a URL"))?;
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(fail("a password in it would be sent as part of the host; put it into a header"));
        }
        let mut parts = uri.into_parts();
        let has_no_path = parts.path_and_query.as_ref().is_none_or(|path| path.as_str() == "/");
        if has_no_path {
            parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/v1/traces"));
        }
        let uri = Uri::from_parts(parts).map_err(|_| fail("it has no host"))?;
        let headers = headers.split(',').map(str::trim).filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let name = HeaderName::try_from(name.trim()).ok()?;
            let mut value = HeaderValue::try_from(decode_percent(value.trim())?).ok()?;
            value.set_sensitive(true);
            Some((name, value))
        });
        let headers: Option<Vec<_>> = headers.collect();
        let headers =
            headers.ok_or_else(|| fail("OTEL_EXPORTER_OTLP_HEADERS is not a list of NAME=VALUE"))?;
        Ok(Self { uri, shown, headers })
    }

    /// Sends requests one after the other. Returns how many spans the receiver rejected, with its reason.
    pub fn send(&self, requests: Vec<Vec<u8>>) -> Result<(u64, Option<String>), ExportError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| self.failed(&error))?;
        let client =
            new_client(self.uri.scheme_str() == Some("https")).map_err(|error| self.failed(&error))?;
        let (mut rejected, mut reason) = (0u64, None);
        for body in requests {
            let answer = runtime.block_on(self.send_one(&client, body))?;
            let partial = &answer["partialSuccess"];
            let count = &partial["rejectedSpans"];
            let count = count.as_u64().or_else(|| count.as_str()?.parse().ok()).unwrap_or(0);
            rejected = rejected.saturating_add(count);
            let message = partial["errorMessage"].as_str().filter(|message| !message.is_empty());
            reason = reason.or_else(|| message.map(|message| excerpt(message, MAX_REASON)));
        }
        Ok((rejected, reason))
    }

    async fn send_one(
        &self,
        client: &Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
        body: Vec<u8>,
    ) -> Result<Value, ExportError> {
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static("stepback"));
        headers.extend(self.headers.iter().cloned());
        let exchange = async {
            let answer = client.request(request).await.map_err(|error| self.failed(&error))?;
            let (head, body) = answer.into_parts();
            let bytes = Limited::new(body, MAX_ANSWER).collect().await;
            Ok::<_, ExportError>((head.status, bytes.map(|body| body.to_bytes()).unwrap_or_default()))
        };
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, exchange).await;
        let (status, bytes) = answered.map_err(|_| ExportError::Send {
            url: self.shown.clone(),
            reason: format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()),
        })??;
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if status.is_success() {
            return Ok(answer);
        }
        let said = answer["message"].as_str().map(str::to_owned);
        let said = said.unwrap_or_else(|| String::from_utf8_lossy(&bytes).into_owned());
        let said = excerpt(said.trim(), MAX_REASON);
        let reason = if said.is_empty() { said } else { format!(": {said}") };
        Err(ExportError::Refused { url: self.shown.clone(), status: status.as_u16(), reason })
    }

    /// An error of the connection, with its causes.
    fn failed(&self, error: &dyn std::error::Error) -> ExportError {
        let mut reason = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !reason.contains(&text) {
                reason = format!("{reason}: {text}");
            }
            source = cause.source();
        }
        ExportError::Send { url: self.shown.clone(), reason }
    }
}

fn decode_percent(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

fn new_client(with_tls: bool) -> std::io::Result<Client<HttpsConnector<HttpConnector>, Full<Bytes>>> {
    let mut roots = RootCertStore::empty();
    if with_tls {
        // Some of a system's certificates may be unusable; the others still work.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(std::io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_completed_or_refused() {
        let uri = |url: &str| OtlpEndpoint::parse(url, "").map(|receiver| receiver.uri.to_string());
        assert_eq!(uri("http://127.0.0.1:4318").unwrap(), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(uri("https://otel.example/").unwrap(), "https://otel.example/v1/traces");
        assert_eq!(uri("https://otel.example/api/x").unwrap(), "https://otel.example/api/x");
        for bad in ["http://", "http://a b", concat!("https://user:", "hunter2@otel.example")] {
            let error = uri(bad).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert!(OtlpEndpoint::is_address("HTTPS://x") && !OtlpEndpoint::is_address("http.json"));
        assert!(OtlpEndpoint::parse("http://a", "authorization=Bearer%20x, a=b").is_ok());
        assert!(OtlpEndpoint::parse("http://a", "nonsense").is_err());
    }
}
