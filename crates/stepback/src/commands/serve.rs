//! `stepback serve`

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use stepback_server::{Config, Work};

use super::{Answer, DONE};
use crate::args::carry::Serve;
use crate::context::{self, Context};
use crate::failure::{Failure, Kind};
use crate::output::{self, Paint};

/// How long a client may take to go on reading what it asked for.
const PATIENCE: Duration = Duration::from_secs(30);

/// `serve`
pub fn serve(context: &Context, arguments: &Serve) -> Answer {
    let listen: SocketAddr = arguments.listen.parse().map_err(|_| {
        Failure::new(Kind::Usage, format!("\"{}\" is no address", arguments.listen))
            .hint("write ADDR:PORT, such as 127.0.0.1:7171; port 0 takes a free one")
    })?;
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, ended.clone())?;
        signal_hook::flag::register(signal, ended.clone())?;
    }
    let token_file = context.place().local().join("server.token");
    let work = Work::new(context.store(), crate::system::environment(), context::threads());
    let config = Config {
        listen,
        token_file: token_file.clone(),
        hosts: arguments.hosts.clone(),
        origins: arguments.origins.clone(),
        patience: PATIENCE,
    };
    let server = stepback_server::serve(work, config).map_err(|error| {
        Failure::new(Kind::System, format!("cannot serve at {listen}: {error}"))
            .hint("name another address with --listen, or port 0 for a free one")
    })?;
    let url = format!("http://{}", server.address());
    if context.json {
        output::document(&json!({ "url": url, "token_file": token_file }));
        let _ = std::io::stdout().flush();
    } else {
        output::line(format!("Serving at {}", Paint::stdout().strong(&url)));
        output::line(format!("The token is in {}.", token_file.display()));
        if !listen.ip().is_loopback() {
            output::say(
                "Warning: this address can be reached from elsewhere, and what is sent is not encrypted.",
            );
        }
        output::say(Paint::stderr().dim("Ctrl-C ends it."));
    }
    while !ended.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
    server.stop();
    DONE
}
