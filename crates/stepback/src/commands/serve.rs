//! The command `stepback serve`: runs the HTTP server.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use stepback_engine::Engine;
use stepback_server::{AppState, HttpServer, ServerConfig, ServerHost, Tls};
use stepback_watcher::server::Watcher;

use super::agents::current_exe_path;
use super::studio::ServerFile;
use super::{CommandResult, DONE};
use crate::args::proxy::ServeArgs;
use crate::context::{self, Context};
use crate::failure::{CommandFailure, FailureKind};
use crate::mirroring::MirrorThread;
use crate::output::{self, Paint};
use crate::settings::Settings;
use crate::store_location::StoreLocation;

/// The default limit of requests per second from one remote address.
const DEFAULT_REMOTE_RATE: u32 = 100;

/// Opens the file that requests are logged to.
fn open_log(to: &Path) -> Result<Box<dyn Write + Send>, CommandFailure> {
    if to == Path::new("-") {
        return Ok(Box::new(std::io::stderr()));
    }
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(to);
    opened.map(|file| Box::new(file) as Box<dyn Write + Send>).map_err(|error| {
        CommandFailure::new(FailureKind::System, format!("cannot write the log {}: {error}", to.display()))
            .with_hint("choose another file with --log, or \"-\" for standard error")
    })
}

/// Returns the engine as requests use it, on a machine where sessions can be rerun.
pub fn create_app_state(context: &Context) -> Result<AppState, CommandFailure> {
    let stage = ServerHost {
        program: current_exe_path()?,
        store: context.store_location().argument().into(),
        home: context::home_dir().unwrap_or_default(),
        agent_home: context::agents_home(),
        environment: std::env::vars_os().collect(),
        prices: context.load_prices()?,
        certificates: context::path_variable("NODE_EXTRA_CA_CERTS"),
        budget: Settings::load_or_default(context.store_location().local_dir()).disk_budget(),
    };
    let engine = Engine { progress: None, watcher: None, ..context.engine().clone() };
    Ok(AppState::with_rerun_host(engine, stage))
}

/// A running server and what belongs to it.
pub(super) struct RunningServer {
    /// The server itself.
    pub(super) server: HttpServer,
    /// The file that holds the server's token.
    pub(super) token_file: PathBuf,
    /// Publishes the server's address for as long as it runs.
    _notice: ServerFile,
    _watcher: Option<Watcher>,
    /// Syncs the mirrors of a store in a directory.
    _mirrors: Option<MirrorThread>,
}

/// Returns a flag that becomes true on the first terminating signal; the second one ends the process at once.
pub(super) fn register_stop_flag() -> Result<Arc<AtomicBool>, CommandFailure> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, ended.clone())?;
        signal_hook::flag::register(signal, ended.clone())?;
    }
    Ok(ended)
}

/// Waits for a terminating signal, then shuts the server down in an orderly way.
pub(super) fn run_until_stopped(listening: RunningServer, ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
    listening.server.stop();
}

/// Starts to listen.
pub(super) fn listen(context: &Context, arguments: &ServeArgs) -> Result<RunningServer, CommandFailure> {
    let listen: SocketAddr = arguments.listen.parse().map_err(|_| {
        CommandFailure::new(FailureKind::Usage, format!("\"{}\" is not a valid address", arguments.listen))
            .with_hint("use ADDR:PORT, such as 127.0.0.1:7171; port 0 picks a free one")
    })?;
    let token_file = context.store_location().local_dir().join("server.token");
    let work = create_app_state(context)?;
    let tls = arguments.certificate.clone().zip(arguments.key.clone());
    let tls = tls.map(|(certificate, key)| Tls { certificate, key });
    let is_local = listen.ip().is_loopback();
    let config = ServerConfig {
        hosts: arguments.hosts.clone(),
        origins: arguments.origins.clone(),
        tls,
        allow_commands: arguments.allow_commands,
        log: arguments.log.as_deref().map(open_log).transpose()?,
        rate: arguments.rate.or((!is_local).then_some(DEFAULT_REMOTE_RATE)).filter(|rate| *rate > 0),
        ..ServerConfig::new(listen, token_file.clone())
    };
    let wanted = !arguments.no_watcher && context.has_watcher();
    let watcher =
        match wanted.then(|| stepback_server::start_watcher(&work, context.store_location().local_dir())) {
            Some(Ok(watcher)) => watcher,
            Some(Err(error)) => {
                output::print_status(format!(
                    "Warning: workspaces are not watched: {error}. Hooks scan every file."
                ));
                None
            }
            None => None,
        };
    let server = stepback_server::serve(work, config).map_err(|error| {
        let failure = CommandFailure::new(FailureKind::System, format!("cannot serve at {listen}: {error}"));
        match error.kind() {
            // The message already says what to do.
            ErrorKind::InvalidInput | ErrorKind::InvalidData => failure,
            _ => failure.with_hint("choose another address with --listen, or port 0 for a free one"),
        }
    })?;
    let _notice = ServerFile::create(context.store_location().local_dir(), &server.url());
    let _mirrors = match context.store_location() {
        StoreLocation::Directory(dir) => Some(MirrorThread::start(dir.clone())),
        StoreLocation::Server { .. } => None,
    };
    Ok(RunningServer { server, token_file, _notice, _watcher: watcher, _mirrors })
}

/// Runs `stepback serve`.
pub fn serve(context: &Context, arguments: &ServeArgs) -> CommandResult {
    let ended = register_stop_flag()?;
    let listening = listen(context, arguments)?;
    let server = &listening.server;
    let (url, token_file) = (server.url(), &listening.token_file);
    if context.json {
        output::print_document(&json!({ "url": url, "token_file": token_file }));
        let _ = std::io::stdout().flush();
    } else {
        output::print_line(format!("Serving at {}", Paint::stdout().strong(&url)));
        output::print_line(format!("Studio (one-time link): {}", server.sign_in_url()?));
        output::print_line(format!("API token: {}", token_file.display()));
        if !server.address().ip().is_loopback() && arguments.certificate.is_none() {
            output::print_status(
                "Warning: this address is reachable from other machines, and connections are not encrypted; use --tls-cert and --tls-key.",
            );
        }
        output::print_status(Paint::stderr().dim("Press Ctrl-C to stop."));
    }
    run_until_stopped(listening, &ended);
    DONE
}
