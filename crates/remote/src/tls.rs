//! Encryption for stores on other machines.

use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::stream::ByteStream;

/// An encrypted connection.
pub(crate) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

impl ByteStream for TlsStream {
    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.sock.set_read_timeout(timeout)
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.sock.set_write_timeout(timeout)
    }
}

/// Reads the certificates to trust: those in `ca`, or the system's.
pub(crate) fn load_config(ca: Option<&Path>) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            let wrong = |why: String| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("the certificates in {} cannot be read: {why}", path.display()),
                )
            };
            for certificate in
                CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?
            {
                let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
                roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
            }
        }
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    if roots.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "there are no certificates to trust; name a file with ?ca=FILE",
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // An upgrade exists only in HTTP/1.1.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Encrypts a connection to `host`, whose certificate must be for that name.
pub(crate) fn connect(config: Arc<ClientConfig>, host: &str, stream: TcpStream) -> io::Result<TlsStream> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(connection, stream))
}
