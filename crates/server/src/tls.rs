//! TLS with a certificate that the user provides.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// The certificate and key files, in PEM format.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificate, followed by its chain of intermediate certificates.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

impl Tls {
    /// Loads both files.
    pub(crate) fn load_acceptor(&self) -> io::Result<TlsAcceptor> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(Iterator::collect)
            .map_err(|error| tls_error("the certificate", &self.certificate, &error))?;
        if chain.is_empty() {
            return Err(tls_error("the certificate", &self.certificate, &"it contains none"));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| tls_error("the private key", &self.key, &error))?;
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| tls_error("the certificate", &self.certificate, &error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn tls_error(what: &str, path: &Path, why: &dyn std::fmt::Display) -> io::Error {
    let text = format!("{what} in {} cannot be used: {why}", path.display());
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
