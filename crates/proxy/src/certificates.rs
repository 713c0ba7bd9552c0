//! The certificates that TLS connections trust: the system's, and those that the user adds.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Returns the TLS configuration. `needed` is false if no TLS connection will be made: reading the system's certificates
/// takes some milliseconds.
pub(crate) fn client_config(needed: bool, added: Option<&Path>) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    if needed {
        // Some of a system's certificates may be unusable; the others still work. With none at all, connecting fails with
        // a message.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = added {
            let certificate_error = |reason: &dyn std::fmt::Display| {
                let text = format!("the certificates in {} cannot be read: {reason}", path.display());
                io::Error::new(io::ErrorKind::InvalidInput, text)
            };
            for certificate in
                CertificateDer::pem_file_iter(path).map_err(|error| certificate_error(&error))?
            {
                let certificate = certificate.map_err(|error| certificate_error(&error))?;
                roots.add(certificate).map_err(|error| certificate_error(&error))?;
            }
        }
    }
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}
