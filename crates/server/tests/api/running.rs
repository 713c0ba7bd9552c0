//! What those rely on who run a server: signing in, origins, numbers, logs, limits, encryption, its end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::ServerName;
use serde_json::Value;
use stepback_server::{ServerConfig, Tls};

use crate::support::TestServer;

/// A log that a test can read.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_browser_is_let_in_once_and_stays() {
    let place = TestServer::new();
    let address = place.server.sign_in_url().unwrap();
    let target = address.strip_prefix(&place.server.url()).unwrap();
    assert!(!address.contains(place.server.token().as_str()), "the token is in no address");
    let first = place.send_bare("GET", target, "", b"");
    assert_eq!(first.status, 303);
    let key = first.header("location").unwrap().strip_prefix("/#page=").unwrap().to_owned();
    let cookie = first.header("set-cookie").unwrap().to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let pair = cookie.split(';').next().unwrap();
    assert!(!first.head.contains(place.server.token().as_str()), "nor in a cookie");
    let ask = |headers: &str| place.send_bare("GET", "/api/v1/workspaces", headers, b"").status;
    assert_eq!(ask(&format!("cookie: {pair}\r\nx-stepback-page: {key}\r\n")), 200);
    assert_eq!(ask(&format!("cookie: {pair}\r\n")), 401, "another port of this host gets the cookie");
    assert_eq!(ask(&format!("x-stepback-page: {key}\r\n")), 401);
    let value = pair.split_once('=').unwrap().1;
    assert_eq!(ask(&format!("authorization: Bearer {value}\r\n")), 401, "it is not the token");
    let other = TestServer::new();
    let both = format!("cookie: {pair}\r\nx-stepback-page: {key}\r\n");
    assert_eq!(other.send_bare("GET", "/api/v1/workspaces", &both, b"").status, 401);
    let again = place.send_bare("GET", target, "", b"");
    assert!(again.problem(403)["hints"][0].as_str().unwrap().contains("stepback studio"));
    assert_eq!(again.header("set-cookie"), None);
    place.send_bare("GET", "/sign-in", "", b"").problem(403);
    assert_eq!(place.send_bare("GET", "/", "", b"").status, 200, "there is something at the top");
}

#[test]
fn pages_of_a_named_origin_may_ask_and_no_others() {
    let place = TestServer::new();
    let first = "access-control-request-method: POST\r\n";
    let asks = |origin: &str| {
        place.send_bare("OPTIONS", "/api/v1/workspaces", &format!("origin: {origin}\r\n{first}"), b"")
    };
    let allowed = asks("https://studio.example");
    assert_eq!(allowed.status, 204);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://studio.example"));
    assert!(allowed.header("access-control-allow-headers").unwrap().contains("authorization"));
    for origin in ["https://studio.example.evil.example", "null", "http://studio.example"] {
        let refused = asks(origin);
        assert_eq!((refused.status, refused.header("access-control-allow-origin")), (403, None), "{origin}");
    }
    let origin = "origin: https://studio.example\r\n";
    let read = place.send("GET", "/api/v1/workspaces", origin, b"");
    assert_eq!(read.status, 200);
    assert_eq!(read.header("access-control-allow-origin"), Some("https://studio.example"));
    // Asking first is all that goes without the token.
    place.send_bare("GET", "/api/v1/workspaces", origin, b"").problem(401);
    place.send_bare("OPTIONS", "/api/v1/workspaces", origin, b"").problem(401);
}

#[test]
fn every_answer_and_its_line_in_the_log_have_one_id() {
    let lines = Lines::default();
    let log = lines.clone();
    let place = TestServer::with(|config| ServerConfig { log: Some(Box::new(log)), ..config });
    let kept = place.send("GET", "/api/v1/workspaces", "x-request-id: order-66\r\n", b"");
    assert_eq!(kept.header("x-request-id"), Some("order-66"));
    let issued = place.send("GET", "/api/v1/nothing", "", b"");
    let issued = issued.header("x-request-id").unwrap().to_owned();
    let other = place.send("GET", "/api/v1/workspaces", "x-request-id: a \"b\"\r\n", b"");
    let other = other.header("x-request-id").unwrap().to_owned();
    assert!(issued != other && other != "a \"b\"", "{issued} {other}");
    let refused = place.send_bare("GET", "/api/v1/workspaces", "", b"");
    let refused = refused.header("x-request-id").unwrap().to_owned();
    place.stop();
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let logged: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(logged, ["order-66".to_owned(), issued, other, refused]);
}

#[test]
fn numbers_and_lines_tell_what_happened_and_no_secret() {
    let lines = Lines::default();
    let log = lines.clone();
    let place = TestServer::with(|config| ServerConfig { log: Some(Box::new(log)), ..config });
    let token = place.server.token().as_str().to_owned();
    place.get("/workspaces").with(200);
    place.get(&format!("/sessions/{token}")).problem(404);
    place.get(&format!("/sessions?agent={token}")).with(200);
    place.get(&format!("/workspaces?{token}={token}")).problem(400);
    place.send_bare("GET", "/api/v1/workspaces", "authorization: Bearer wrong\r\n", b"").problem(401);
    place.send("BREW", "/api/v1/workspaces", "", b"");
    place.send("GET", &format!("/nobody/{token}"), "", b"").problem(404);
    place.send_bare("GET", "/metrics", "", b"").problem(401);
    let metrics = place.send("GET", "/metrics", "", b"");
    let text = String::from_utf8(metrics.body.clone()).unwrap();
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    for line in [
        "stepback_requests_total{method=\"GET\",route=\"/api/v1/workspaces\",status=\"200\"} 1",
        "stepback_requests_total{method=\"GET\",route=\"/api/v1/workspaces\",status=\"401\"} 1",
        "stepback_requests_total{method=\"GET\",route=\"/api/v1/sessions/{session}\",status=\"404\"} 1",
        "stepback_requests_total{method=\"GET\",route=\"none\",status=\"404\"} 1",
        "stepback_request_seconds_bucket{method=\"GET\",route=\"/api/v1/workspaces\",status=\"200\",le=\"+Inf\"} 1",
        "stepback_requests_in_flight 1",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\n{text}");
    }
    // Every sample belongs to a family that was announced.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let name = name.split('{').next().unwrap();
        let family =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let announced = |name: &str| text.contains(&format!("# TYPE {name} "));
        assert!(announced(name) || announced(family), "{line}");
    }
    let log = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(!log.contains(&token) && !text.contains(&token));
    let first: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!(first["route"], "/api/v1/workspaces");
    assert_eq!(
        (&first["method"], &first["status"], &first["peer"]),
        (&"GET".into(), &200.into(), &"127.0.0.1".into())
    );
    assert_eq!(log.lines().count(), 9);
}

#[test]
fn who_asks_too_fast_is_told_to_wait() {
    let place = TestServer::with(|config| ServerConfig { rate: Some(1), ..config });
    let replies: Vec<_> = (0..40).map(|_| place.get("/workspaces")).collect();
    let refused: Vec<_> = replies.iter().filter(|reply| reply.status == 429).collect();
    assert!(replies[0].status == 200 && refused.len() > 20, "{}", refused.len());
    assert_eq!(refused[0].header("retry-after"), Some("1"));
    assert_eq!(refused[0].problem(429)["code"], "busy");
}

#[test]
fn what_is_sent_can_be_encrypted() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let tls = Tls { certificate: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
    std::fs::write(&tls.certificate, made.cert.pem()).unwrap();
    std::fs::write(&tls.key, made.signing_key.serialize_pem()).unwrap();
    let place = TestServer::with(|config| ServerConfig { tls: Some(tls.clone()), ..config });
    assert!(place.server.url().starts_with("https://"));

    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let session = rustls::ClientConnection::new(Arc::new(client), name).unwrap();
    let socket = TcpStream::connect(place.server.address()).unwrap();
    let mut stream = rustls::StreamOwned::new(session, socket);
    let token = place.server.token().as_str();
    write!(
        stream,
        "GET /api/v1/workspaces HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    let target = place.server.sign_in_url().unwrap();
    assert!(target.starts_with("https://"));

    // Without encryption there is no answer, and the server goes on.
    let mut plain = TcpStream::connect(place.server.address()).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    let _ = plain.read_to_end(&mut bytes);
    assert!(!bytes.starts_with(b"HTTP/"));

    // What is no certificate is said at the start.
    std::fs::write(&tls.key, "no key").unwrap();
    let error =
        TestServer::try_with(|config| ServerConfig { tls: Some(tls.clone()), ..config }).err().unwrap();
    assert!(error.to_string().contains("the private key in "), "{error}");
    let tls = Tls { certificate: dir.path().join("none.pem"), ..tls };
    let error = TestServer::try_with(|config| ServerConfig { tls: Some(tls), ..config }).err().unwrap();
    assert!(error.to_string().contains("none.pem cannot be used"), "{error}");
}

#[test]
fn a_silent_client_does_not_hold_up_the_end() {
    let place = TestServer::new();
    let mut silent = TcpStream::connect(place.server.address()).unwrap();
    silent.write_all(b"GET /api/v1/workspaces HTTP/1.1\r\nhost: local").unwrap();
    place.get("/workspaces").with(200);
    let address = place.server.address();
    drop(place);
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}

#[test]
fn silent_clients_are_disconnected_and_keep_others_in() {
    let limits = stepback_proxy::ConnectionLimits {
        count: 20,
        first_request: Duration::from_secs(2),
        between_requests: Duration::from_secs(60),
    };
    let place = TestServer::with(|config| ServerConfig { connections: limits, ..config });
    let half = ["", "P", "PRI * HTTP/2", "GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx-half: "];
    let mut silent: Vec<TcpStream> = (0..60)
        .map(|at| {
            let mut stream = TcpStream::connect(place.server.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            // The server may have closed it already, for one that came later.
            let _ = stream.write_all(half[at % half.len()].as_bytes());
            stream
        })
        .collect();
    assert_eq!(place.send_bare("GET", "/healthz", "", b"").status, 200, "there is room for others");
    for stream in &mut silent {
        // An end or a reset; a timeout is neither.
        let mut bytes = Vec::new();
        let ended = stream.read_to_end(&mut bytes);
        assert!(!matches!(&ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock), "{ended:?}");
    }
    place.get("/workspaces").with(200);
}
