//! Runs an agent once in the sandbox, with model calls answered from the recording, and ends every process it started.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use stepback_agents::install::Route;
use stepback_agents::model_call_inbox::ModelCallWriter;
use stepback_agents::model_call_sink::ModelCallSink;
use stepback_agents::policy::{Policy, ToolHandling};
use stepback_agents::record;
use stepback_engine::{EngineError, Workspace};
use stepback_model::record::{Session, StepKind};
use stepback_proxy::{Listen, Proxy, ProxyAccess, ProxyConfig, ProxyLimits, Sink, Timing, Upstreams};
use stepback_store::port::StepQuery;

use crate::change::RerunChange;
use crate::recorded_session::RecordedSession;
use crate::replay_responder::{Directories, OnDifference, ReplayCounts, Replayer};
use crate::sandbox::{self, Isolation, SandboxAllow, SandboxProcess, SandboxedCommand};
use crate::store_access::StoreAccess;
use crate::{RerunError, RerunHost};

/// How often a running agent is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long an agent may take to exit by itself after the rerun diverged.
const GRACE: Duration = Duration::from_secs(3);

/// What to rerun, and how.
pub struct RerunRequest<'a> {
    /// The recorded session.
    pub recorded: &'a RecordedSession,
    /// Index of the prompt to begin with.
    pub prompt: usize,
    /// The changes to make.
    pub changes: &'a [RerunChange],
    /// What happens to tool calls.
    pub tools: ToolHandling,
    /// What to do where the rerun diverges from the recording.
    pub on_difference: OnDifference,
    /// When recorded answers are sent.
    pub timing: Timing,
    /// Stop after the first step of this kind.
    pub until: Option<StepKind>,
    /// Stop after this many steps.
    pub max_steps: Option<u64>,
    /// Stop after this time.
    pub timeout: Option<Duration>,
}

/// The environment of one run.
pub struct RunEnv<'a> {
    /// The host of the rerun; the files are in `work` below its directory.
    pub host: &'a RerunHost<'a>,
    /// The workspace over those files.
    pub scratch: &'a Workspace,
    /// The root of the workspace when it was recorded.
    pub original_root: &'a Path,
    /// The store, as the agent reaches it.
    pub(crate) store: &'a StoreAccess,
}

/// Why a run ended.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunEnd {
    /// The agent exited with this code.
    Exited(i32),
    /// The agent made a request that was not recorded.
    Parted,
    /// The run reached its last requested step.
    Reached,
    /// The run timed out.
    TimedOut,
    /// The user ended it.
    Interrupted,
}

/// The result of a run.
#[derive(Debug)]
pub struct RunResult {
    /// Why it ended.
    pub ended: RunEnd,
    /// How its model calls were answered.
    pub counts: ReplayCounts,
    /// What kept it from having effects elsewhere.
    pub isolation: Isolation,
    /// Its session in the scratch workspace, if it recorded one.
    pub session: Option<Session>,
    /// The last lines it printed.
    pub output: String,
}

/// Returns the command and environment of an agent, given the addresses of its model calls.
pub(crate) type CommandBuilder<'a> =
    dyn FnOnce(&[(Route, String)], &Isolation) -> Result<SandboxedCommand, RerunError> + 'a;

/// An agent that is ready to run.
pub(crate) struct PreparedAgent<'a> {
    /// Its name in the record.
    pub agent: &'a str,
    /// The addresses that its model calls would go to.
    pub routes: Vec<Route>,
    /// Its command and environment, once the addresses of the proxies are known.
    pub build_command: Box<CommandBuilder<'a>>,
    /// Directories of the recording and those that replace them in the rerun.
    pub directories: Directories,
    /// Whether the proxy records its model calls; otherwise the agent does that itself.
    pub proxy_records: bool,
}

/// Returns the directory of a rerun for files that belong neither to the workspace nor to the home.
pub(crate) fn run_dir(run_env: &RunEnv<'_>) -> PathBuf {
    run_env.host.dir.join("run")
}

/// Returns a function that wraps an I/O error of the operation `what`.
pub(crate) fn io_error(what: &'static str) -> impl FnOnce(io::Error) -> RerunError {
    move |source| RerunError::Io { what, source }
}

/// Runs a prepared agent.
pub(crate) fn run_agent(
    ready: PreparedAgent<'_>,
    request: &RerunRequest<'_>,
    run_env: &RunEnv<'_>,
) -> Result<RunResult, RerunError> {
    let PreparedAgent { agent, routes, build_command: inside, directories, proxy_records: records } = ready;
    let openings = SandboxAllow {
        writable: [Some(run_env.host.dir.to_path_buf()), run_env.store.writable.clone()]
            .into_iter()
            .flatten()
            .collect(),
        sockets: routes.len(),
    };
    let printed = run_dir(run_env).join("output");
    let output = File::create(&printed).map_err(io_error("write into the rerun's directory"))?;
    let mut fence = SandboxProcess::start(run_env.host.program, &openings, &output)
        .map_err(io_error("start a sandboxed process"))?;
    let policy = Policy {
        tools: request.tools,
        root: run_env.scratch.root.clone(),
        fenced: matches!(fence.isolation, Isolation::Namespaces),
        original: (request.tools == ToolHandling::Recorded).then(|| run_env.original_root.to_path_buf()),
        session: request.recorded.session.id,
        decided: directories.decided_calls(request.recorded),
        told_with_prompt: request
            .recorded
            .prompts
            .get(request.prompt)
            .map_or_else(Vec::new, |prompt_messages| prompt_messages.messages.clone()),
    };
    let text = serde_json::to_vec(&policy).unwrap_or_default();
    fs::write(run_dir(run_env).join("policy.json"), text).map_err(io_error("write the policy"))?;

    let replayer = Arc::new(
        Replayer::new(request.recorded, request.changes, &directories, request.on_difference, request.timing)
            .with_recorded_results(request.tools == ToolHandling::Recorded),
    );
    let writer = ModelCallWriter {
        dir: run_env.scratch.cache_dir()?.unwrap_or_default(),
        agent: Some(agent.to_owned()),
        session: None,
        started: None,
        since: run_env.scratch.engine.env.now(),
        prices: run_env.host.prices.clone(),
        recorder: run_env.scratch.engine.recorder.clone(),
    };
    let (recorder, notes) = ModelCallSink::new(writer);
    let sink: Arc<dyn Sink> = if records { Arc::new(recorder) } else { Arc::new(DiscardingSink) };
    let (proxies, addresses) = start_proxies(routes, &mut fence, &sink, &replayer, run_env)?;
    let inside = inside(&addresses, &fence.isolation)?;

    let strength = fence.isolation.clone();
    let namespace = fence.namespace();
    let (mut child, outside) = fence.run(&inside).map_err(io_error("start the agent"))?;
    let ended = wait_for_end(&mut child, request, run_env, &replayer, &notes);
    kill_all(&child, namespace.as_deref());
    let _ = child.wait();
    drop((proxies, outside));
    record::record_inbox(run_env.scratch)?;
    let ended = ended?;
    let session = run_env.scratch.agent_sessions()?.into_iter().find(|session| session.agent == agent);
    Ok(RunResult {
        ended,
        counts: replayer.counts(),
        isolation: strength,
        session,
        output: read_last_lines(&printed),
    })
}

/// A sink that records nothing.
struct DiscardingSink;

impl Sink for DiscardingSink {
    fn begun(
        &self,
        _: &str,
        _: std::time::SystemTime,
        _: &stepback_llm_wire::ModelRequest,
        _: &[(String, String)],
    ) {
    }

    fn ended(&self, _: &str, _: &stepback_llm_wire::Exchange) {}
}

type RouteAddresses = Vec<(Route, String)>;

/// Starts a proxy for each route, listening inside the sandbox.
fn start_proxies(
    routes: Vec<Route>,
    sandbox: &mut SandboxProcess,
    sink: &Arc<dyn Sink>,
    replayer: &Arc<Replayer>,
    run_env: &RunEnv<'_>,
) -> Result<(Vec<Proxy>, RouteAddresses), RerunError> {
    let (mut proxies, mut addresses) = (Vec::new(), Vec::new());
    for (route, socket) in routes.into_iter().zip(std::mem::take(&mut sandbox.sockets)) {
        let address = socket.local_addr().map_err(io_error("open a socket"))?;
        let listen = match sandbox.isolation {
            Isolation::Policy { .. } => Listen::Socket(socket),
            _ => Listen::Elsewhere(socket),
        };
        let proxy = stepback_proxy::start(ProxyConfig {
            listen,
            upstreams: Upstreams { default: Some(route.upstream.clone()), ..Upstreams::default() },
            sink: sink.clone(),
            responder: Some(replayer.clone()),
            limits: ProxyLimits::default(),
            certificates: run_env.host.certificates.map(Path::to_path_buf),
            access: ProxyAccess::default(),
        })
        .map_err(io_error("start the proxy"))?;
        proxies.push(proxy);
        addresses.push((route, format!("http://{address}")));
    }
    Ok((proxies, addresses))
}

fn wait_for_end(
    child: &mut Child,
    request: &RerunRequest<'_>,
    run_env: &RunEnv<'_>,
    replayer: &Replayer,
    notes: &Receiver<()>,
) -> Result<RunEnd, RerunError> {
    let started = Instant::now();
    let limited = request.until.is_some() || request.max_steps.is_some();
    let mut parted_at: Option<Instant> = None;
    loop {
        let exited = child.try_wait().map_err(io_error("wait for the agent"))?;
        // The agent's hooks record what it does; the proxy records its model calls.
        if notes.recv_timeout(POLL_INTERVAL).is_ok() {
            while notes.try_recv().is_ok() {}
            record::record_inbox(run_env.scratch)?;
        }
        let parted = request.on_difference == OnDifference::Stop && replayer.counts().parted.is_some();
        if let Some(status) = exited {
            let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
            return Ok(match parted {
                true => RunEnd::Parted,
                // The built-in agent checks its limits itself.
                false if limited && has_reached_limit(request, run_env)? => RunEnd::Reached,
                false => RunEnd::Exited(code),
            });
        }
        if run_env.host.interrupted.load(Ordering::Relaxed) {
            return Ok(RunEnd::Interrupted);
        }
        if request.timeout.is_some_and(|limit| started.elapsed() > limit) {
            return Ok(RunEnd::TimedOut);
        }
        if parted && parted_at.get_or_insert_with(Instant::now).elapsed() > GRACE {
            return Ok(RunEnd::Parted);
        }
        if limited && has_reached_limit(request, run_env)? {
            return Ok(RunEnd::Reached);
        }
    }
}

fn has_reached_limit(request: &RerunRequest<'_>, run_env: &RunEnv<'_>) -> Result<bool, RerunError> {
    let sessions = run_env.scratch.agent_sessions()?;
    let Some(session) = sessions.first() else { return Ok(false) };
    let query = StepQuery { session: Some(session.id), ..StepQuery::default() };
    let steps =
        run_env.scratch.store().steps(run_env.scratch.record.id, &query).map_err(EngineError::from)?;
    let kind = request.until.is_some_and(|kind| steps.iter().any(|stored| stored.step.kind == kind));
    Ok(kind || request.max_steps.is_some_and(|max_steps| steps.len() as u64 >= max_steps))
}

/// Kills everything that was started: the agent's process group, and processes that left it but not the namespace.
fn kill_all(child: &Child, namespace: Option<&Path>) {
    let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    let _ = kill_process_group(group, Signal::KILL);
    let own_namespace = fs::read_link("/proc/self/ns/net").ok();
    let Some(namespace) =
        namespace.filter(|other_namespace| own_namespace.as_deref() != Some(other_namespace))
    else {
        return;
    };
    sandbox::kill_namespace(namespace, rustix::process::getpid());
}

fn read_last_lines(printed: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(printed).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
