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
use stepback_engine::{Engine, EngineError};
use stepback_remote::{AccessRole, ServiceConfig, StoreService, UnixStoreListener};
use stepback_server::{AppState, AuthToken, DiskBudgetReader, HttpServer, ServerConfig, ServerHost, Tls};
use stepback_store::StoreError;
use stepback_watcher::server::Watcher;

use super::agents::current_exe_path;
use super::studio::ServerFile;
use super::{CommandResult, DONE};
use crate::args::proxy::ServeArgs;
use crate::context::{self, Context};
use crate::disk_budget;
use crate::failure::{CommandFailure, FailureKind};
use crate::mirroring::MirrorThread;
use crate::output::{self, Paint};
use crate::store_location::StoreLocation;

/// The default limit of requests per second from one remote address.
const DEFAULT_REMOTE_RATE: u32 = 100;

/// The socket of a guarded store, if this process may create it; its directory belongs to the service.
const SYSTEM_SOCKET: &str = "/run/stepback/store.sock";
/// The socket in the store's own directory.
const OWN_SOCKET: &str = "guard.sock";
/// The file with the token for clients on other machines, which can append and read.
const GUARD_TOKEN: &str = "guard.token";
/// The file with the id of the store, by which clients notice that another store has taken its place.
pub const GUARD_ID: &str = "guard.id";

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
    let location = context.store_location().clone();
    let budget = move || Some((disk_budget::of_location(&location)?, super::budget::last_pruning(&location)));
    let stage = ServerHost {
        program: current_exe_path()?,
        store: context.store_location().argument().into(),
        home: context::home_dir().unwrap_or_default(),
        agent_home: context::agents_home(),
        environment: std::env::vars_os().collect(),
        prices: context.load_prices()?,
        certificates: context::path_variable("NODE_EXTRA_CA_CERTS"),
        budget: DiskBudgetReader(Arc::new(budget)),
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
    /// The socket of a guarded store.
    guard: Option<UnixStoreListener>,
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
    drop(listening.guard);
    listening.server.stop();
}

/// Returns the service that guards the store.
fn create_store_service(context: &Context, token_file: &Path) -> Result<StoreService, CommandFailure> {
    let local = context.store_location().local_dir();
    let own = AuthToken::load_or_create(token_file)?;
    let guard = AuthToken::load_or_create(&local.join(GUARD_TOKEN))?;
    let id = AuthToken::load_or_create(&local.join(GUARD_ID))?;
    let engine = Engine { progress: None, watcher: None, ..context.engine().clone() };
    let store = engine.store.clone();
    let update_index = move || match engine.update_index() {
        Ok(_) => Ok(()),
        Err(EngineError::Store(error)) => Err(error),
        Err(error) => {
            Err(StoreError::Database { what: format!("the search index was not updated: {error}") })
        }
    };
    Ok(StoreService::new(ServiceConfig {
        store,
        store_id: id.as_str()[..16].to_owned(),
        tokens: vec![
            (own.as_str().to_owned(), AccessRole::Full),
            (guard.as_str().to_owned(), AccessRole::Append),
        ],
        update_index: Some(Box::new(update_index)),
    })?)
}

/// Serves a guarded store on its socket.
fn listen_on_socket(
    context: &Context,
    wanted: Option<&Path>,
    service: StoreService,
) -> Result<UnixStoreListener, CommandFailure> {
    let system = Path::new(SYSTEM_SOCKET);
    let is_service = || {
        let dir = system.parent().filter(|dir| dir.is_dir());
        dir.is_some_and(|dir| rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok())
    };
    let path = match wanted {
        Some(path) => std::path::absolute(path)?,
        None if is_service() => system.to_path_buf(),
        None => context.store_location().local_dir().join(OWN_SOCKET),
    };
    UnixStoreListener::start(&path, service).map_err(|error| {
        CommandFailure::new(FailureKind::System, format!("cannot serve at {}: {error}", path.display()))
            .with_hint("choose another socket with --socket")
    })
}

/// Starts to listen.
pub(super) fn listen(context: &Context, arguments: &ServeArgs) -> Result<RunningServer, CommandFailure> {
    let listen: SocketAddr = arguments.listen.parse().map_err(|_| {
        CommandFailure::new(FailureKind::Usage, format!("\"{}\" is not a valid address", arguments.listen))
            .with_hint("use ADDR:PORT, such as 127.0.0.1:7171; port 0 picks a free one")
    })?;
    let token_file = context.store_location().local_dir().join("server.token");
    let work = create_app_state(context)?;
    let service = arguments.guard.then(|| create_store_service(context, &token_file)).transpose()?;
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
        store_service: service.clone(),
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
    let guard =
        service.map(|service| listen_on_socket(context, arguments.socket.as_deref(), service)).transpose()?;
    let _notice = ServerFile::create(context.store_location().local_dir(), &server.url());
    let _mirrors = match context.store_location() {
        StoreLocation::Directory(dir) => Some(MirrorThread::start(dir.clone())),
        StoreLocation::Server { .. } | StoreLocation::Guarded { .. } => None,
    };
    Ok(RunningServer { server, token_file, _notice, _watcher: watcher, _mirrors, guard })
}

/// Runs `stepback serve`.
pub fn serve(context: &Context, arguments: &ServeArgs) -> CommandResult {
    let ended = register_stop_flag()?;
    let listening = listen(context, arguments)?;
    let server = &listening.server;
    let (url, token_file) = (server.url(), &listening.token_file);
    if context.json {
        let mut document = json!({ "url": url, "token_file": token_file });
        if let (Some(guard), Some(fields)) = (&listening.guard, document.as_object_mut()) {
            fields.insert("store".into(), format!("unix:{}", guard.path().display()).into());
        }
        output::print_document(&document);
        let _ = std::io::stdout().flush();
    } else {
        output::print_line(format!("Serving at {}", Paint::stdout().strong(&url)));
        // What a service prints goes into a log that others may read, and the link opens everything.
        if listening.guard.is_none() {
            output::print_line(format!("Studio (one-time link): {}", server.sign_in_url()?));
        }
        output::print_line(format!("API token: {}", token_file.display()));
        if let Some(guard) = &listening.guard {
            let guard_token = token_file.with_file_name(GUARD_TOKEN);
            output::print_line(format!("Guarded store: --store unix:{}", guard.path().display()));
            output::print_line(format!(
                "Token for other machines (append and read): {}",
                guard_token.display()
            ));
        }
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
