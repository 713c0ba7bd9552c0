//! Everything reaches the other side as it is.

use std::io::Write;
use std::sync::mpsc;

use stepback_proxy::{Listen, Upstreams, start};

use crate::agent::{Agent, ask};
use crate::server::Server;
use crate::{config, noise, proxy};

/// A server that shows what it was asked, and answers with the same bytes.
fn echo(chunked: bool) -> (Server, mpsc::Receiver<(String, Vec<u8>)>) {
    let (seen, see) = mpsc::channel();
    let server = Server::start(move |mut connection| {
        while let Some(asked) = connection.request() {
            if chunked {
                connection
                    .write("HTTP/1.1 200 Fine\r\nX-Odd-Case: Yes\r\ntransfer-encoding: chunked\r\n\r\n");
                for piece in asked.body.chunks(1000.max(asked.body.len() / 1000)) {
                    connection.chunk(piece);
                }
                connection.chunk("");
            } else {
                connection.answer("X-Odd-Case: Yes\r\n", &asked.body);
            }
            seen.send((asked.head, asked.body)).unwrap();
        }
    });
    (server, see)
}

#[test]
fn bodies_are_the_same_to_the_byte_in_both_directions() {
    for chunked in [false, true] {
        let (server, see) = echo(chunked);
        let (proxy, told) = proxy(&server);
        for length in [0, 1, 999, 64 << 10, 300_000] {
            let body = noise(length);
            let (head, answer) = ask(proxy.addr(), "POST /v1/messages?beta=true", "", &body);
            assert_eq!(head.status, 200);
            assert!(answer == body, "{length} bytes came back different");
            assert!(head.text.contains("X-Odd-Case: Yes\r\n"), "{}", head.text);
            assert!(see.recv().unwrap().1 == body);
        }
        assert_eq!(told.ended(5)[4].response.chunks.0.iter().map(|chunk| chunk.bytes).sum::<u64>(), {
            told.ended(5)[4].response.body.len() as u64
        });
    }
}

#[test]
fn a_chunked_request_stays_chunked() {
    let (server, see) = echo(false);
    let (proxy, told) = proxy(&server);
    let mut agent = Agent::connect(proxy.addr());
    agent.write("POST /v1/responses HTTP/1.1\r\nhost: proxy\r\ntransfer-encoding: chunked\r\n\r\n");
    agent.write("5\r\n{\"a\":\r\n");
    agent.write("2\r\n1}\r\n0\r\n\r\n");
    assert_eq!(agent.answer().1, b"{\"a\":1}");
    let (head, body) = see.recv().unwrap();
    assert_eq!(body, b"{\"a\":1}");
    assert!(head.contains("transfer-encoding: chunked"), "{head}");
    assert!(!head.contains("content-length"), "{head}");
    assert_eq!(told.only().request.body, serde_json::json!({ "a": 1 }));
}

#[test]
fn headers_are_passed_on_save_those_of_the_connection() {
    let (server, see) = echo(false);
    let (proxy, _) = proxy(&server);
    let headers = "X-Api-Key: secret\r\nX-Stainless-Lang: js\r\nConnection: keep-alive, x-hop\r\nx-hop: 1\r\n\
                   x-twice: 1\r\nx-twice: 2\r\nAccept-Encoding: gzip, br\r\n";
    ask(proxy.addr(), "POST /v1/messages", headers, "{}");
    let (head, _) = see.recv().unwrap();
    assert!(head.starts_with("POST /v1/messages HTTP/1.1\r\n"), "{head}");
    for kept in [
        "X-Api-Key: secret\r\n",
        "X-Stainless-Lang: js\r\n",
        "x-twice: 1\r\n",
        "x-twice: 2\r\n",
        "gzip, br\r\n",
    ] {
        assert!(head.contains(kept), "{kept} is not in {head}");
    }
    assert!(!head.contains("x-hop"), "{head}");
    assert!(head.to_lowercase().contains(&format!("host: {}\r\n", server.addr)), "{head}");
    for added in ["user-agent", "via", "forwarded", "accept:"] {
        assert!(!head.to_lowercase().contains(added), "{added} was added: {head}");
    }
}

#[test]
fn a_base_path_is_kept() {
    let (server, see) = echo(false);
    let told = crate::sink::Told::default();
    let proxy = start(config(&format!("{}/base/", server.url()), std::sync::Arc::new(told))).unwrap();
    ask(proxy.addr(), "POST /v1/messages?a=b%20c", "", "{}");
    assert!(see.recv().unwrap().0.starts_with("POST /base/v1/messages?a=b%20c HTTP/1.1\r\n"));
}

#[test]
fn what_asks_no_model_passes_silently() {
    let (server, see) = echo(false);
    let (proxy, told) = proxy(&server);
    for first in
        ["GET /v1/models", "OPTIONS /v1/messages", "POST /unknown/path", "PUT /x?y#z", "DELETE /v1/files/1"]
    {
        assert_eq!(ask(proxy.addr(), first, "", "some body").1, b"some body", "{first}");
        assert!(see.recv().unwrap().0.starts_with(first.split('#').next().unwrap()));
    }
    let stats = proxy.shutdown(crate::PATIENCE);
    assert_eq!((stats.requests, stats.exchanges), (5, 0));
    assert_eq!(told.ended_now(), 0);
}

#[test]
fn a_head_request_has_an_answer_without_a_body() {
    let server = Server::start(|mut connection| {
        while connection.head().is_some() {
            connection.write("HTTP/1.1 200 OK\r\ncontent-length: 1234\r\nx-seen: 1\r\n\r\n");
        }
    });
    let (proxy, _) = proxy(&server);
    let mut agent = Agent::connect(proxy.addr());
    for _ in 0..2 {
        agent.write("HEAD / HTTP/1.1\r\nhost: proxy\r\n\r\n");
        let head = agent.head().unwrap();
        assert_eq!(
            (head.status, head.header("x-seen"), head.header("content-length")),
            (200, Some("1"), Some("1234"))
        );
    }
}

#[test]
fn an_answer_without_a_body_is_recorded() {
    let server = Server::start(|mut connection| {
        while connection.request().is_some() {
            connection.write("HTTP/1.1 204 No Content\r\n\r\n");
        }
    });
    let (proxy, told) = proxy(&server);
    assert_eq!(ask(proxy.addr(), "POST /v1/messages", "", "{}").0.status, 204);
    // The sink was told before the answer went out.
    assert_eq!(told.ended_now(), 1);
    assert_eq!(told.only().response.ended, stepback_llm_wire::AnswerEnd::Complete);
}

#[test]
fn connections_are_used_again_on_both_sides() {
    let (server, _see) = echo(false);
    let (proxy, told) = proxy(&server);
    let mut agent = Agent::connect(proxy.addr());
    for n in 0..20 {
        agent.send("POST /v1/messages", "", format!("{{\"n\":{n}}}"));
        assert_eq!(agent.answer().1, format!("{{\"n\":{n}}}").into_bytes());
    }
    assert_eq!(told.ended(20).len(), 20);
    assert_eq!(server.connections(), 1);
    assert_eq!(proxy.stats().connections, 1);
}

#[test]
fn each_wire_has_its_own_model() {
    let messages = Server::answering("", "messages");
    let other = Server::answering("", "other");
    let mut config = config(&other.url(), std::sync::Arc::new(crate::sink::Told::default()));
    config.upstreams.messages = Some(messages.url());
    let proxy = start(config).unwrap();
    assert_eq!(ask(proxy.addr(), "POST /v1/messages", "", "{}").1, b"messages");
    assert_eq!(ask(proxy.addr(), "POST /v1/messages/count_tokens", "", "{}").1, b"messages");
    assert_eq!(ask(proxy.addr(), "POST /v1/chat/completions", "", "{}").1, b"other");
}

#[test]
fn a_hundred_megabytes_go_both_ways_and_the_record_is_bounded() {
    let (server, see) = echo(true);
    let (proxy, told) = proxy(&server);
    let text: Vec<u8> = noise(1 << 20).into_iter().map(|byte| b'a' + byte % 26).collect();
    let body = text.repeat(100);
    let mut agent = Agent::connect(proxy.addr());
    let mut writer = agent.stream.try_clone().unwrap();
    let sent = body.clone();
    let sending = std::thread::spawn(move || {
        writer
            .write_all(
                format!(
                    "POST /v1/messages HTTP/1.1\r\nhost: proxy\r\ncontent-length: {}\r\n\r\n",
                    sent.len()
                )
                .as_bytes(),
            )
            .unwrap();
        writer.write_all(&sent).unwrap();
    });
    let (_, answer) = agent.answer();
    sending.join().unwrap();
    assert!(answer == body);
    assert!(see.recv().unwrap().1 == body);
    let exchange = told.only();
    assert_eq!(exchange.request.bytes, 100 << 20);
    assert_eq!(exchange.response.left_out, 36 << 20);
}

#[test]
fn a_websocket_that_is_not_about_a_model_is_joined() {
    let server = Server::start(|mut connection| {
        let asked = connection.head().unwrap();
        assert_eq!(asked.header("upgrade"), Some("websocket"));
        assert_eq!(asked.header("sec-websocket-key"), Some("abc"));
        connection
            .write("HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n");
        connection.write("from the server");
        assert_eq!(connection.bytes(14), b"from the agent");
    });
    let (proxy, _) = proxy(&server);
    let mut agent = Agent::connect(proxy.addr());
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: abc\r\n\r\n";
    agent.write(format!("GET /live HTTP/1.1\r\nhost: proxy\r\n{upgrade}"));
    assert_eq!(agent.head().unwrap().status, 101);
    assert_eq!(agent.bytes(15), b"from the server");
    agent.write("from the agent");

    // Where a model would be asked, the agent has to use HTTP, or nothing could be recorded.
    let mut agent = Agent::connect(proxy.addr());
    agent.write(format!("GET /v1/responses HTTP/1.1\r\nhost: proxy\r\n{upgrade}"));
    assert_eq!(agent.answer().0.status, 426);
}

#[test]
fn only_the_loopback_is_listened_on_unless_told() {
    let sink = std::sync::Arc::new(crate::sink::Told::default());
    let with =
        |listen| start(stepback_proxy::ProxyConfig { listen, ..config("http://127.0.0.1:9", sink.clone()) });
    let error = with(Listen::Addr("0.0.0.0:0".parse().unwrap())).err().unwrap();
    assert!(error.to_string().contains("loopback"), "{error}");
    assert!(with(Listen::Anywhere("0.0.0.0:0".parse().unwrap())).is_ok());
}

#[test]
fn a_proxy_does_not_ask_itself() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = format!("http://localhost:{}", socket.local_addr().unwrap().port());
    let sink = std::sync::Arc::new(crate::sink::Told::default());
    let mut config = config(&upstream, sink);
    config.listen = Listen::Socket(socket.try_clone().unwrap());
    assert!(start(config).err().unwrap().to_string().contains("itself"));
    // In another network namespace the same address is another place.
    let mut config = crate::config(&upstream, std::sync::Arc::new(crate::sink::Told::default()));
    config.listen = Listen::Elsewhere(socket);
    config.upstreams = Upstreams { default: Some(upstream), ..Upstreams::default() };
    assert!(start(config).is_ok());
}

#[test]
fn requests_of_web_pages_and_for_other_names_are_refused() {
    let server = Server::answering("", "hi");
    let (proxy, told) = crate::proxy(&server);
    let status = |headers: &str| {
        let mut agent = Agent::connect(proxy.addr());
        agent.write(format!("GET /v1/models HTTP/1.1\r\n{headers}\r\n"));
        agent.answer().0.status
    };
    assert_eq!(status(&format!("host: {}\r\n", proxy.addr())), 200);
    for (headers, refused) in [
        ("host: evil.example\r\n", 421),
        ("host: evil.example:4000\r\n", 421),
        ("host: 127.0.0.1\r\norigin: http://evil.example\r\n", 403),
        ("host: 127.0.0.1\r\norigin: null\r\n", 403),
        ("host: 127.0.0.1\r\nsec-fetch-site: cross-site\r\n", 403),
    ] {
        assert_eq!(status(headers), refused, "{headers}");
    }
    assert_eq!(proxy.stats().exchanges, 0);
    drop(told);
}

#[test]
fn silent_clients_are_disconnected_and_do_not_block_others() {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::time::Duration;

    let server = Server::answering("", "hi");
    let mut config = config(&server.url(), std::sync::Arc::new(crate::sink::Told::default()));
    config.limits.connections = stepback_proxy::ConnectionLimits {
        count: 20,
        first_request: Duration::from_secs(2),
        between_requests: Duration::from_secs(60),
    };
    config.limits.request_silence = Duration::from_secs(2);
    let proxy = start(config).unwrap();
    let half = ["", "G", "POST /v1/messages HT", "POST /v1/messages HTTP/1.1\r\nhost: proxy\r\nx: "];
    let mut silent: Vec<TcpStream> = (0..60)
        .map(|at| {
            let mut stream = TcpStream::connect(proxy.addr()).unwrap();
            stream.set_read_timeout(Some(crate::PATIENCE)).unwrap();
            // The proxy may have closed it already, for one that came later.
            let _ = stream.write_all(half[at % half.len()].as_bytes());
            stream
        })
        .collect();
    let mut agent = Agent::connect(proxy.addr());
    agent.write("GET /v1/models HTTP/1.1\r\nhost: proxy\r\n\r\n");
    assert_eq!(agent.answer().0.status, 200);
    for stream in &mut silent {
        // An end or a reset; a timeout is neither.
        let ended = stream.read(&mut [0; 64]);
        assert!(!matches!(&ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock), "{ended:?}");
    }
    // A request that stops in the middle of its body ends as well.
    let mut stopped = TcpStream::connect(proxy.addr()).unwrap();
    stopped.set_read_timeout(Some(crate::PATIENCE)).unwrap();
    let head = "POST /v1/other HTTP/1.1\r\nhost: proxy\r\ncontent-length: 100\r\n\r\nhalf";
    stopped.write_all(head.as_bytes()).unwrap();
    let ended = stopped.read(&mut [0; 64]);
    assert!(!matches!(&ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock), "{ended:?}");
}
