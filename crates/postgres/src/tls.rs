//! TLS connections: the mode an address asks for, and which certificates are trusted.
//!
//! The modes are those of PostgreSQL's own programs. `prefer` and `require` prevent eavesdropping, but not another server
//! answering in the server's place; only the `verify` modes do.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{self, CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

/// How a connection is protected; the values of `sslmode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Mode {
    /// Not encrypted.
    Disable,
    /// Encrypted if the server supports it.
    #[default]
    Prefer,
    /// Encrypted.
    Require,
    /// Encrypted, and the server's certificate was issued by a trusted authority.
    VerifyCa,
    /// In addition, the certificate was issued for the host that we connect to.
    VerifyFull,
}

impl Mode {
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "disable" => Self::Disable,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => return None,
        })
    }

    /// The part of the mode that the client library handles.
    pub fn to_ssl_mode(self) -> SslMode {
        match self {
            Self::Disable => SslMode::Disable,
            Self::Prefer => SslMode::Prefer,
            Self::Require | Self::VerifyCa | Self::VerifyFull => SslMode::Require,
        }
    }
}

/// The TLS options of an address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TlsOptions {
    pub mode: Mode,
    /// A file with the certificates to trust, instead of the system's.
    pub roots: Option<PathBuf>,
}

/// Makes connections use TLS.
#[derive(Clone)]
pub(crate) struct Tls(TlsConnector);

impl Tls {
    /// Reads the certificates that are needed, if any.
    pub fn new(options: &TlsOptions) -> Result<Self, String> {
        let provider = Arc::new(crypto::ring::default_provider());
        // With a list of trusted certificates, `require` means `verify-ca`, as in PostgreSQL's own programs.
        let verify = match options.mode {
            Mode::VerifyCa | Mode::VerifyFull => true,
            Mode::Require => options.roots.is_some(),
            Mode::Disable | Mode::Prefer => false,
        };
        let chain = if verify { Some(chain_verifier(options.roots.as_deref(), &provider)?) } else { None };
        let verifier = Verifier {
            chain,
            host: options.mode == Mode::VerifyFull,
            algorithms: provider.signature_verification_algorithms,
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }
}

/// The verifier of certificate chains.
fn chain_verifier(
    roots: Option<&Path>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, String> {
    let mut store = RootCertStore::empty();
    match roots {
        // As in PostgreSQL's own programs.
        Some(path) if path.as_os_str() != "system" => {
            let certificate_error = |why: &dyn std::fmt::Display| {
                format!("the certificates in {} cannot be read: {why}", path.display())
            };
            for certificate in
                CertificateDer::pem_file_iter(path).map_err(|error| certificate_error(&error))?
            {
                let certificate = certificate.map_err(|error| certificate_error(&error))?;
                store.add(certificate).map_err(|error| certificate_error(&error))?;
            }
            if store.is_empty() {
                return Err(certificate_error(&"there are none in it"));
            }
        }
        _ => drop(store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    if store.is_empty() {
        return Err("the system has no certificates to trust; name some with sslrootcert=FILE".into());
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone())
        .build()
        .map_err(|error| error.to_string())
}

/// Checks as much of a server's certificate as the mode asks for.
#[derive(Debug)]
struct Verifier {
    chain: Option<Arc<WebPkiServerVerifier>>,
    host: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        let checked = chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match checked {
            // The name is checked last, so everything else is valid.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.host => Ok(ServerCertVerified::assertion()),
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Protected<S>;
    type TlsConnect = ToHost;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<ToHost, io::Error> {
        Ok(ToHost { connector: self.0.clone(), host: host.to_string() })
    }
}

/// Makes one connection use TLS.
pub(crate) struct ToHost {
    connector: TlsConnector,
    host: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for ToHost {
    type Stream = Protected<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Protected<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            Ok(Protected(Box::new(self.connector.connect(name, stream).await?)))
        })
    }
}

/// A TLS connection.
pub(crate) struct Protected<S>(Box<tokio_rustls::client::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Protected<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Protected<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Protected<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
