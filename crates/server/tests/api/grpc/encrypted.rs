//! gRPC over TLS, where the protocol is agreed on in the handshake.

use std::sync::Arc;

use axum::http::StatusCode;
use rustls::pki_types::ServerName;
use stepback_server::{ServerConfig, Tls};
use tokio_rustls::TlsConnector;

use super::raw::{GRPC, LIST, RawConnection, frame};
use crate::support::TestServer;

#[test]
fn grpc_is_answered_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let tls = Tls { certificate: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
    std::fs::write(&tls.certificate, made.cert.pem()).unwrap();
    std::fs::write(&tls.key, made.signing_key.serialize_pem()).unwrap();
    let server = TestServer::with(|config| ServerConfig { tls: Some(tls), ..config });
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let mut client = rustls::ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![b"h2".to_vec()];
    let address = server.server().0;
    let raw = RawConnection::over(&server, 1 << 16, async move {
        let socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(client)).connect(name, socket).await.unwrap()
    });
    assert_eq!(raw.call(LIST, GRPC, frame(0, 0, b"")), (StatusCode::OK, Some(0)));
}
