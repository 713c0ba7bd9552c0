//! The command `stepback proxy`: runs the recording proxy for model calls.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use stepback_agents::model_call_inbox::{ModelCallWriter, VARIABLE};
use stepback_agents::model_call_sink::ModelCallSink;
use stepback_engine::Workspace;
use stepback_proxy::{Listen, ProxyAccess, ProxyConfig, ProxyLimits, Responder, Timing, Upstreams};
use stepback_rerun::recorded_session::RecordedSession;
use stepback_rerun::replay_responder::{Directories, OnDifference, Replayer};

use super::{CommandResult, DONE, run, sessions};
use crate::args::proxy::{ProxyArgs, RecordingArgs, UnrecordedCall};
use crate::context::{self, Context};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// How long calls may continue after the user asked to stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs `stepback proxy`.
pub fn proxy(context: &Context, arguments: &ProxyArgs) -> CommandResult {
    let listen: SocketAddr = arguments.listen.parse().map_err(|_| {
        CommandFailure::new(FailureKind::Usage, format!("\"{}\" is not a valid address", arguments.listen))
            .with_hint("use ADDR:PORT, such as 127.0.0.1:7070; port 0 picks a free one")
    })?;
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, ended.clone())?;
        signal_hook::flag::register(signal, ended.clone())?;
    }
    let workspace = context.open_or_create_workspace()?;
    let replayer = match &arguments.replay {
        Some(session) => Some(Arc::new(build_replayer(&workspace, session, &arguments.recorded)?)),
        None => None,
    };
    let writer = ModelCallWriter {
        dir: workspace.cache_dir()?.unwrap_or_default(),
        agent: arguments.agent.clone(),
        session: arguments.session.clone(),
        started: None,
        since: context.now(),
        prices: context.load_prices()?,
        recorder: workspace.engine.recorder.clone(),
    };
    let (recorder, taken) = ModelCallSink::new(writer);
    let recorder = Arc::new(recorder);
    let started = stepback_proxy::start(ProxyConfig {
        listen: if listen.ip().is_loopback() { Listen::Addr(listen) } else { Listen::Anywhere(listen) },
        upstreams: resolve_upstreams(arguments),
        sink: recorder.clone(),
        responder: replayer.clone().map(|replayer| replayer as Arc<dyn Responder>),
        limits: ProxyLimits::default(),
        certificates: context::path_variable("NODE_EXTRA_CA_CERTS"),
        access: ProxyAccess { hosts: arguments.hosts.clone(), origins: arguments.origins.clone() },
    });
    let proxy = started.map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => CommandFailure::new(FailureKind::Usage, error.to_string()).with_hint(
            "it comes from --upstream, --anthropic, --openai or --gemini, else from ANTHROPIC_BASE_URL or \
             GOOGLE_GEMINI_BASE_URL",
        ),
        _ => CommandFailure::new(FailureKind::System, format!("cannot listen at {listen}: {error}"))
            .with_hint("choose another address with --listen, or port 0 for a free one"),
    })?;
    announce(context, &proxy.url(), replayer.is_some(), listen);
    std::thread::scope(|scope| {
        scope.spawn(|| run::record_until_closed(&workspace, taken));
        while !ended.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let stats = proxy.shutdown(SHUTDOWN_TIMEOUT);
        output::print_unless_json(
            context.json,
            &format!("Forwarded {}.", output::count(stats.exchanges, "model call")),
        );
        if let Some(why) = recorder.first_error() {
            output::print_status(format!("Warning: some of them could not be recorded: {why}"));
        }
        drop(recorder);
    });
    let _ = stepback_agents::record::record_inbox(&workspace);
    let tally = replayer.map(|replayer| replayer.counts());
    match tally {
        Some(tally) if context.json => output::print_document(&json!({ "model_calls": tally })),
        Some(tally) => tally.parted.iter().for_each(super::rerun::print_divergence),
        None => {}
    }
    DONE
}

fn announce(context: &Context, url: &str, replays: bool, listen: SocketAddr) {
    if context.json {
        output::print_document(&json!({ "url": url, "replay": replays }));
        let _ = std::io::stdout().flush();
        return;
    }
    let paint = Paint::stdout();
    output::print_line(format!("Listening at {}", paint.strong(url)));
    output::print_line(format!(
        "  export ANTHROPIC_BASE_URL={url} OPENAI_BASE_URL={url}/v1 GOOGLE_GEMINI_BASE_URL={url}"
    ));
    output::print_line(format!("  export {VARIABLE}=1"));
    if !listen.ip().is_loopback() {
        output::print_status(
            "Warning: this address is reachable from other machines; every client that reaches it can use the proxy.",
        );
    }
    output::print_status(Paint::stderr().dim("Press Ctrl-C to stop."));
}

fn resolve_upstreams(arguments: &ProxyArgs) -> Upstreams {
    let of = |given: &Option<String>, variable: &str, usual: &str| {
        let set = std::env::var(variable).ok().filter(|url| !url.is_empty());
        let every = arguments.upstream.clone();
        given.clone().or(every).or(set).unwrap_or_else(|| usual.to_owned())
    };
    let openai = Some(of(&arguments.openai, "", "https://api.openai.com"));
    Upstreams {
        default: arguments.upstream.clone(),
        messages: Some(of(&arguments.anthropic, "ANTHROPIC_BASE_URL", "https://api.anthropic.com")),
        chat: openai.clone(),
        responses: openai,
        gemini: Some(of(
            &arguments.gemini,
            "GOOGLE_GEMINI_BASE_URL",
            "https://generativelanguage.googleapis.com",
        )),
    }
}

fn build_replayer(
    workspace: &Workspace,
    session: &str,
    how: &RecordingArgs,
) -> Result<Replayer, CommandFailure> {
    let session = sessions::pick(workspace, Some(session))?;
    let tape = RecordedSession::load(workspace, session)?;
    if tape.exchanges.is_empty() {
        return Err(super::rerun::rerun_failure(stepback_rerun::RerunError::NoCalls));
    }
    let here = workspace.root.clone();
    let directories = Directories { all: vec![("{workspace}", here.clone(), here)] };
    Ok(Replayer::new(&tape, &[], &directories, on_difference(how), timing(how)))
}

/// Returns what to do with a call that was never recorded.
pub fn on_difference(how: &RecordingArgs) -> OnDifference {
    match how.on_difference {
        UnrecordedCall::Stop => OnDifference::Stop,
        UnrecordedCall::Live => OnDifference::Live,
        UnrecordedCall::Nearest => OnDifference::Nearest,
    }
}

/// Returns when recorded answers are sent.
pub fn timing(how: &RecordingArgs) -> Timing {
    if how.timed { Timing::Real } else { Timing::Instant }
}
