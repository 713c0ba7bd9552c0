//! The proxy against servers that do exactly what a test says, down to the byte, and agents that look at every byte.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod agent;
mod ending;
mod failing;
mod passing;
mod recording;
mod replaying;
mod secure;
mod server;
mod sink;
mod streaming;

use std::sync::Arc;
use std::time::Duration;

use stepback_proxy::{Listen, Proxy, ProxyAccess, ProxyConfig, ProxyLimits, Sink, Upstreams, start};

use crate::server::Server;
use crate::sink::Told;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// The end of a streamed answer of the Messages wire.
const STOP: &str = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

fn config(upstream: &str, sink: Arc<dyn Sink>) -> ProxyConfig {
    ProxyConfig {
        listen: Listen::Addr("127.0.0.1:0".parse().unwrap()),
        upstreams: Upstreams { default: Some(upstream.to_owned()), ..Upstreams::default() },
        sink,
        responder: None,
        limits: ProxyLimits { hold: Duration::from_secs(20), ..ProxyLimits::default() },
        certificates: None,
        access: ProxyAccess { hosts: vec!["proxy".to_owned()], origins: Vec::new() },
    }
}

/// A proxy in front of a server, and its sink. The last chunk waits for the sink as long as a test does.
fn proxy(server: &Server) -> (Proxy, Arc<Told>) {
    let told = Arc::new(Told::default());
    (start(config(&server.url(), told.clone())).unwrap(), told)
}

/// Bytes that no encoding likes and that are the same every time.
fn noise(length: usize) -> Vec<u8> {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    (0..length)
        .map(|_| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed.to_le_bytes()[3]
        })
        .collect()
}
