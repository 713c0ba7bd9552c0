//! One run behind the fence: the model is a recording, and everything that was started ends with it.

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
use stepback_agents::policy::{Policy, Tools};
use stepback_agents::record;
use stepback_engine::{EngineError, Workspace};
use stepback_model::record::{Session, StepKind};
use stepback_proxy::{Config, Limits, Listen, Proxy, Sink, Timing, Upstreams};
use stepback_store::port::Query;

use crate::change::Change;
use crate::recorded_session::RecordedSession;
use crate::replay_responder::{Directories, OnDifference, Replayer, Tally};
use crate::sandbox::{self, Fence, Inside, SandboxAllow, Strength};
use crate::sink::ModelCallSink;
use crate::{RerunError, RerunHost};

/// How often a running agent is looked at.
const GLANCE: Duration = Duration::from_millis(20);
/// How long an agent that was told that it is over may take to end by itself.
const GRACE: Duration = Duration::from_secs(3);

/// What is to be done again, and how.
pub struct RerunRequest<'a> {
    /// The recorded session.
    pub tape: &'a RecordedSession,
    /// Which prompt to begin with.
    pub prompt: usize,
    /// What is changed.
    pub changes: &'a [Change],
    /// What becomes of tool calls.
    pub tools: Tools,
    /// What to do where it parts from the recording.
    pub on_difference: OnDifference,
    /// When recorded answers come.
    pub timing: Timing,
    /// Stop after the first step of this kind.
    pub until: Option<StepKind>,
    /// Stop after so many steps.
    pub max_steps: Option<u64>,
    /// Stop after so long.
    pub timeout: Option<Duration>,
}

/// Where and with what.
pub struct RunEnv<'a> {
    /// What the rerun is given; its files are in `work` of the directory.
    pub around: &'a RerunHost<'a>,
    /// The workspace over those files.
    pub scratch: &'a Workspace<'a>,
    /// The root that the files had when they were recorded.
    pub original_root: &'a Path,
}

/// Why a run ended.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// By itself, with this exit code.
    Exited(i32),
    /// It asked for something that was never recorded.
    Parted,
    /// It reached the step that it was to run to.
    Reached,
    /// It took too long.
    TimedOut,
    /// The person ended it.
    Interrupted,
}

/// What a run came to.
#[derive(Debug)]
pub struct RunResult {
    /// Why it ended.
    pub ended: Ended,
    /// What became of its model calls.
    pub tally: Tally,
    /// What kept it from doing harm.
    pub strength: Strength,
    /// Its session in the scratch workspace.
    pub session: Option<Session>,
    /// The last lines it printed.
    pub output: String,
}

/// Says what an agent is run with, from where its model calls go.
pub(crate) type Prepare<'a> = dyn FnOnce(&[(Route, String)], &Strength) -> Result<Inside, RerunError> + 'a;

/// An agent that is ready to be run.
pub(crate) struct Ready<'a> {
    /// Its name in the record.
    pub agent: &'a str,
    /// Where its model calls would go.
    pub routes: Vec<Route>,
    /// What it is run with, once it is known where its model calls go instead.
    pub inside: Box<Prepare<'a>>,
    /// What the directories of then are now.
    pub directories: Directories,
    /// Whether its model calls are recorded by us; otherwise it does that itself.
    pub records: bool,
}

/// The directory of a rerun for what is neither its files nor its home.
pub(crate) fn aside(stage: &RunEnv<'_>) -> PathBuf {
    stage.around.dir.join("run")
}

/// What the machine said no to.
pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> RerunError {
    move |source| RerunError::Io { what, source }
}

/// Runs it.
pub(crate) fn run(
    ready: Ready<'_>,
    wish: &RerunRequest<'_>,
    stage: &RunEnv<'_>,
) -> Result<RunResult, RerunError> {
    let Ready { agent, routes, inside, directories, records } = ready;
    let openings = SandboxAllow {
        writable: vec![stage.around.dir.to_path_buf(), stage.around.store.to_path_buf()],
        sockets: routes.len(),
    };
    let printed = aside(stage).join("output");
    let output = File::create(&printed).map_err(io("write into the rerun's directory"))?;
    let mut fence = Fence::raise(stage.around.program, &openings, &output)
        .map_err(io("start a process behind a fence"))?;
    let policy = Policy {
        tools: wish.tools,
        root: stage.scratch.root.clone(),
        fenced: matches!(fence.strength, Strength::Namespaces),
        original: (wish.tools == Tools::Recorded).then(|| stage.original_root.to_path_buf()),
        session: wish.tape.session.id,
        decided: directories.decided(wish.tape),
        told_with_prompt: wish.tape.prompts.get(wish.prompt).map_or_else(Vec::new, |said| said.told.clone()),
    };
    let text = serde_json::to_vec(&policy).unwrap_or_default();
    fs::write(aside(stage).join("policy.json"), text).map_err(io("write the policy"))?;

    let replayer = Arc::new(
        Replayer::new(wish.tape, wish.changes, &directories, wish.on_difference, wish.timing)
            .with_recorded_results(wish.tools == Tools::Recorded),
    );
    let carrier = ModelCallWriter {
        dir: stage.scratch.cache_dir()?.unwrap_or_default(),
        agent: Some(agent.to_owned()),
        session: None,
        started: None,
        since: stage.scratch.engine.env.now(),
        prices: stage.around.prices.clone(),
    };
    let (recorder, taken) = ModelCallSink::new(carrier);
    let sink: Arc<dyn Sink> = if records { Arc::new(recorder) } else { Arc::new(Nobody) };
    let (proxies, told) = proxies(routes, &mut fence, &sink, &replayer, stage)?;
    let inside = inside(&told, &fence.strength)?;

    let strength = fence.strength.clone();
    let namespace = fence.namespace();
    let (mut child, outside) = fence.run(&inside).map_err(io("start the agent"))?;
    let ended = watch(&mut child, wish, stage, &replayer, &taken);
    end_all(&child, namespace.as_deref());
    let _ = child.wait();
    drop((proxies, outside));
    record::take_in_quietly(stage.scratch)?;
    let ended = ended?;
    let session = stage.scratch.agent_sessions()?.into_iter().find(|session| session.agent == agent);
    Ok(RunResult { ended, tally: replayer.tally(), strength, session, output: last_lines(&printed) })
}

/// Whom nobody needs to tell anything.
struct Nobody;

impl Sink for Nobody {
    fn begun(
        &self,
        _: &str,
        _: std::time::SystemTime,
        _: &stepback_exchange::Request,
        _: &[(String, String)],
    ) {
    }

    fn ended(&self, _: &str, _: &stepback_exchange::Exchange) {}
}

type Told = Vec<(Route, String)>;

/// A proxy for each route, listening inside the fence.
fn proxies(
    routes: Vec<Route>,
    fence: &mut Fence,
    sink: &Arc<dyn Sink>,
    replayer: &Arc<Replayer>,
    stage: &RunEnv<'_>,
) -> Result<(Vec<Proxy>, Told), RerunError> {
    let (mut proxies, mut told) = (Vec::new(), Vec::new());
    for (route, socket) in routes.into_iter().zip(std::mem::take(&mut fence.sockets)) {
        let address = socket.local_addr().map_err(io("open a socket"))?;
        let listen = match fence.strength {
            Strength::Policy { .. } => Listen::Socket(socket),
            _ => Listen::Elsewhere(socket),
        };
        let proxy = stepback_proxy::start(Config {
            listen,
            upstreams: Upstreams { default: Some(route.upstream.clone()), ..Upstreams::default() },
            sink: sink.clone(),
            answers: Some(replayer.clone()),
            limits: Limits::default(),
            certificates: stage.around.certificates.map(Path::to_path_buf),
        })
        .map_err(io("start the proxy"))?;
        proxies.push(proxy);
        told.push((route, format!("http://{address}")));
    }
    Ok((proxies, told))
}

fn watch(
    child: &mut Child,
    wish: &RerunRequest<'_>,
    stage: &RunEnv<'_>,
    replayer: &Replayer,
    taken: &Receiver<()>,
) -> Result<Ended, RerunError> {
    let begun = Instant::now();
    let limited = wish.until.is_some() || wish.max_steps.is_some();
    let mut parted_at: Option<Instant> = None;
    loop {
        let exited = child.try_wait().map_err(io("wait for the agent"))?;
        // What the agent does is recorded by its hooks; what it asks, by us.
        if taken.recv_timeout(GLANCE).is_ok() {
            while taken.try_recv().is_ok() {}
            record::take_in_quietly(stage.scratch)?;
        }
        let parted = wish.on_difference == OnDifference::Stop && replayer.tally().parted.is_some();
        if let Some(status) = exited {
            let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
            return Ok(match parted {
                true => Ended::Parted,
                // Our own agent knows itself how far it is to go.
                false if limited && has_reached(wish, stage)? => Ended::Reached,
                false => Ended::Exited(code),
            });
        }
        if stage.around.interrupted.load(Ordering::Relaxed) {
            return Ok(Ended::Interrupted);
        }
        if wish.timeout.is_some_and(|limit| begun.elapsed() > limit) {
            return Ok(Ended::TimedOut);
        }
        if parted && parted_at.get_or_insert_with(Instant::now).elapsed() > GRACE {
            return Ok(Ended::Parted);
        }
        if limited && has_reached(wish, stage)? {
            return Ok(Ended::Reached);
        }
    }
}

fn has_reached(wish: &RerunRequest<'_>, stage: &RunEnv<'_>) -> Result<bool, RerunError> {
    let sessions = stage.scratch.agent_sessions()?;
    let Some(session) = sessions.first() else { return Ok(false) };
    let query = Query { session: Some(session.id), ..Query::default() };
    let steps = stage.scratch.store().steps(stage.scratch.record.id, &query).map_err(EngineError::from)?;
    let kind = wish.until.is_some_and(|kind| steps.iter().any(|stored| stored.checkpoint.step.kind == kind));
    Ok(kind || wish.max_steps.is_some_and(|most| steps.len() as u64 >= most))
}

/// Ends everything that was started: the group of the agent, and whoever left it but not the namespace.
fn end_all(child: &Child, namespace: Option<&Path>) {
    let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    let _ = kill_process_group(group, Signal::KILL);
    let own = fs::read_link("/proc/self/ns/net").ok();
    let Some(namespace) = namespace.filter(|theirs| own.as_deref() != Some(theirs)) else { return };
    sandbox::end_everything_in(namespace, rustix::process::getpid());
}

fn last_lines(printed: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(printed).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
