//! A remote server, over HTTP.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::{ResponseFuture, Transport};

/// The time limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for the beginning of an answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// A server at an address.
pub struct RemoteServer {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    scheme: Scheme,
    authority: Authority,
    prefix: String,
    token: HeaderValue,
    display_address: String,
}

/// Why a server cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RemoteServerError {
    /// The address is invalid.
    #[error("\"{0}\" is not the address of a server")]
    Address(String),
    /// The token is invalid.
    #[error("the token is malformed")]
    Token,
    /// A file of certificates cannot be used.
    #[error("the certificates in {0} cannot be read: {1}")]
    Certificates(String, String),
}

impl RemoteServer {
    /// Creates a client for the server at `url` with a token. `certificates` are trusted in addition to those of the
    /// system.
    pub fn new(url: &str, token: &str, certificates: Option<&Path>) -> Result<Self, RemoteServerError> {
        let invalid_address = || RemoteServerError::Address(url.to_owned());
        let address: Uri = url.parse().map_err(|_| invalid_address())?;
        let scheme = address.scheme().filter(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
        let (Some(scheme), Some(authority)) = (scheme.cloned(), address.authority().cloned()) else {
            return Err(invalid_address());
        };
        let mut token = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .map_err(|_| RemoteServerError::Token)?;
        token.set_sensitive(true);
        // Reading the system's certificates takes tens of milliseconds, and an unencrypted connection does not need them.
        let roots = if scheme == Scheme::HTTPS {
            load_root_certificates(certificates)?
        } else {
            rustls::RootCertStore::empty()
        };
        let tls =
            rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
                .with_safe_default_protocol_versions()
                .map_err(|error| RemoteServerError::Certificates("the system".into(), error.to_string()))?
                .with_root_certificates(roots)
                .with_no_client_auth();
        let mut http_connector = HttpConnector::new();
        http_connector.enforce_http(false);
        http_connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        http_connector.set_nodelay(true);
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http_connector);
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            prefix: address.path().trim_end_matches('/').to_owned(),
            display_address: format!("{scheme}://{authority}"),
            scheme,
            authority,
            token,
        })
    }

    /// Returns the address for display.
    pub fn display_address(&self) -> &str {
        &self.display_address
    }

    fn build_uri(&self, path: &str) -> Result<Uri, http::Error> {
        let path = PathAndQuery::try_from(format!("{}{path}", self.prefix))?;
        let builder = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        builder.path_and_query(path).build()
    }
}

/// Loads the system's root certificates, plus those in `file`.
fn load_root_certificates(file: Option<&Path>) -> Result<rustls::RootCertStore, RemoteServerError> {
    let mut roots = rustls::RootCertStore::empty();
    // A system certificate that cannot be read only matters if the server's chain needs it; then the handshake fails.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = file {
        let certificate_error = |error: &dyn std::fmt::Display| {
            RemoteServerError::Certificates(file.display().to_string(), error.to_string())
        };
        for certificate in CertificateDer::pem_file_iter(file).map_err(|error| certificate_error(&error))? {
            let certificate = certificate.map_err(|error| certificate_error(&error))?;
            roots.add(certificate).map_err(|error| certificate_error(&error))?;
        }
    }
    Ok(roots)
}

impl Transport for RemoteServer {
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        Box::pin(async move {
            let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
            let uri = self.build_uri(path).map_err(|error| format!("invalid request for {path}: {error}"))?;
            let (mut parts, body) = request.into_parts();
            parts.uri = uri;
            parts.headers.insert(header::AUTHORIZATION, self.token.clone());
            let request = Request::from_parts(parts, Full::new(body));
            match tokio::time::timeout(RESPONSE_TIMEOUT, self.client.request(request)).await {
                Ok(Ok(response)) => Ok(response.map(|body| body.map_err(Into::into).boxed_unsync())),
                Ok(Err(error)) => {
                    Err(format!("cannot reach {}: {}", self.display_address, root_cause(&error)))
                }
                Err(_) => Err(format!(
                    "{} did not respond within {} s",
                    self.display_address,
                    RESPONSE_TIMEOUT.as_secs()
                )),
            }
        })
    }
}

/// Returns the innermost cause of an error; the outer ones only say that something failed.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_mistakes_named() {
        let at = |url: &str| {
            RemoteServer::new(url, "0123", None).map(|server| server.build_uri("/x?y=z").unwrap().to_string())
        };
        assert_eq!(at("http://127.0.0.1:7171"), Ok("http://127.0.0.1:7171/x?y=z".into()));
        assert_eq!(at("http://[::1]:7171/behind/"), Ok("http://[::1]:7171/behind/x?y=z".into()));
        for wrong in ["", "here", "127.0.0.1:7171", "ftp://here", "http://"] {
            assert_eq!(at(wrong), Err(RemoteServerError::Address(wrong.into())), "{wrong}");
        }
        assert_eq!(RemoteServer::new("http://here", "a\nb", None).err(), Some(RemoteServerError::Token));
    }
}
