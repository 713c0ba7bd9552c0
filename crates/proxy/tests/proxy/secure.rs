//! Secure connections, and the client that has no proxy in between.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::sync::Arc;

use stepback_llm_wire::AnswerEnd;
use stepback_proxy::client::{Error, UpstreamClient};
use stepback_proxy::{ProxyLimits, start};

use crate::agent::ask;
use crate::server::Server;
use crate::sink::Told;
use crate::{STOP, config};

/// A server with a certificate that only the file knows. It gives every connection one answer.
fn secure_server() -> (String, tempfile::NamedTempFile) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(made.cert.pem().as_bytes()).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let tls = Arc::new(tls);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let session = rustls::ServerConnection::new(Arc::clone(&tls)).unwrap();
            let mut stream = rustls::StreamOwned::new(session, stream.unwrap());
            let mut seen = Vec::new();
            let mut buffer = [0; 1000];
            while !seen.ends_with(b"{}") {
                match stream.read(&mut buffer) {
                    Ok(0) | Err(_) => break,
                    Ok(read) => seen.extend_from_slice(&buffer[..read]),
                }
            }
            // A client that does not trust us is gone.
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nsecure");
            let _ = stream.flush();
        }
    });
    (url, file)
}

#[test]
fn a_certificate_must_be_trusted() {
    let (url, certificate) = secure_server();
    let told = Arc::new(Told::default());
    let proxy = start(config(&url, told.clone())).unwrap();
    let (head, body) = ask(proxy.addr(), "POST /v1/messages", "", "{}");
    let message = String::from_utf8(body).unwrap();
    assert_eq!(head.status, 502);
    assert!(message.contains("no secure connection") && message.contains("certificate"), "{message}");

    let mut config = config(&url, told.clone());
    config.certificates = Some(certificate.path().to_owned());
    let proxy = start(config).unwrap();
    assert_eq!(ask(proxy.addr(), "POST /v1/messages", "", "{}").1, b"secure");
    assert_eq!(told.ended(2)[1].response.body, "secure");

    let client = UpstreamClient::new(ProxyLimits::default(), Some(certificate.path())).unwrap();
    let response =
        client.post(&format!("{url}/x"), &[], b"{}".to_vec(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(response.body, "secure");
}

#[test]
fn a_file_without_certificates_is_an_error_at_the_start() {
    let mut config = config("https://localhost:1", Arc::new(Told::default()));
    config.certificates = Some("/nonexistent/certificates.pem".into());
    let error = start(config).err().unwrap().to_string();
    assert!(error.contains("/nonexistent/certificates.pem"), "{error}");
}

#[test]
fn the_client_sees_pieces_as_they_come_and_may_break_off() {
    let server = Server::start(|mut connection| {
        while let Some(asked) = connection.request() {
            assert_eq!(asked.header("x-key"), Some("v"));
            connection.stream();
            connection.chunk("data: 1\n\n");
            if asked.body == b"all" {
                connection.chunk(STOP);
                connection.chunk("");
            } else {
                connection.until_closed();
            }
        }
    });
    let client = UpstreamClient::new(ProxyLimits::default(), None).unwrap();
    let url = format!("{}/v1/messages", server.url());
    for _ in 0..2 {
        let mut seen = Vec::new();
        let response = client
            .post(&url, &[("x-key", "v")], b"all".to_vec(), &mut |piece| {
                seen.extend_from_slice(piece);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(response.body.as_bytes(), seen);
        assert_eq!((response.body, response.ended), (format!("data: 1\n\n{STOP}"), AnswerEnd::Complete));
    }
    assert_eq!(server.connections(), 1);
    let response =
        client.post(&url, &[("x-key", "v")], b"some".to_vec(), &mut |_| ControlFlow::Break(())).unwrap();
    assert_eq!((response.body.as_str(), response.ended), ("data: 1\n\n", AnswerEnd::Cancelled));

    let refused = client.post("http://127.0.0.1:9/", &[], Vec::new(), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(refused, Err(Error::Failed(why)) if why.contains("refused")));
    let nowhere = client.post("nowhere", &[], Vec::new(), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(nowhere, Err(Error::Request(_))));
}
