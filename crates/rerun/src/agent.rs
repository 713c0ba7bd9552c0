//! Running a recorded agent again: its own program, in a directory and a home of its own, behind a fence, with a model that is
//! a recording.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use stepback_agents::again::Again;
use stepback_agents::carried::{self, Carrier};
use stepback_agents::install::{self, Place, Run};
use stepback_agents::policy::{self, Policy, Tools};
use stepback_agents::{Agent, home, record};
use stepback_engine::Workspace;
use stepback_exchange::prices::Prices;
use stepback_model::record::{Session, Started, StepKind};
use stepback_proxy::{Config, Limits, Listen, Proxy, Timing, Upstreams};
use stepback_store::port::Query;

use crate::RerunError;
use crate::answers::{Directories, OnDifference, Replayer, Tally};
use crate::change::Change;
use crate::fence::{Fence, Inside, Openings, Strength};
use crate::sink::Recorder;
use crate::tape::Tape;

/// How often a running agent is looked at.
const GLANCE: Duration = Duration::from_millis(20);
/// How long an agent that was told that it is over may take to end by itself.
const GRACE: Duration = Duration::from_secs(3);

/// What is to be done again, and how.
pub struct Wish<'a> {
    /// The recorded session.
    pub tape: &'a Tape,
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
pub struct Stage<'a> {
    /// A directory that is the rerun's alone, with the files in `work`.
    pub dir: &'a Path,
    /// The workspace over those files.
    pub scratch: &'a Workspace<'a>,
    /// The root that the files had when they were recorded.
    pub original_root: &'a Path,
    /// Our own program.
    pub program: &'a Path,
    /// The store.
    pub store: &'a Path,
    /// The person's home.
    pub home: &'a Path,
    /// The person's environment.
    pub environment: &'a [(OsString, OsString)],
    /// Set when the person wants it to end.
    pub interrupted: &'a AtomicBool,
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
pub struct Ran {
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

/// Variables that lead an agent out of the home it is given, or that are ours.
const LEFT_OUT: [&str; 12] = [
    "HOME",
    "PWD",
    "OLDPWD",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    "XDG_STATE_HOME",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "GEMINI_CLI_HOME",
    "OPENCODE_CONFIG",
];

/// Keys that agents want to have before they start; with a recording, any will do.
const KEYS: [&str; 3] = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"];

/// Runs it.
pub fn run(agent: Agent, wish: &Wish<'_>, stage: &Stage<'_>) -> Result<Ran, RerunError> {
    let io = |what: &'static str| move |source: io::Error| RerunError::Io { what, source };
    let (work, own_home, temp) = (stage.scratch.root.clone(), stage.dir.join("home"), stage.dir.join("tmp"));
    let aside = stage.dir.join("run");
    for dir in [&own_home, &temp, &aside] {
        fs::create_dir_all(dir).map_err(io("make a directory for the rerun"))?;
    }
    home::furnish(agent, stage.home, &own_home).map_err(io("copy the agent's settings"))?;

    let started = wish.tape.session.info.started.clone().unwrap_or_default();
    let directories = directories(stage, &started, &work, &own_home, &temp);
    let below = Path::new(&started.directory).strip_prefix(stage.original_root).unwrap_or(Path::new(""));
    let directory = work.join(below);
    let argv: Vec<OsString> = command(agent, wish, &started).into_iter().map(OsString::from).collect();
    if which(&argv, stage.environment).is_none() {
        let program = argv.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        return Err(RerunError::NoAgent { agent, program });
    }
    let environment = environment(agent, stage, wish, &own_home, &temp, &aside);
    let place = Place::usual(&own_home, &work);
    let run = Run {
        argv: &argv,
        cwd: &directory,
        environment: &environment,
        place: &place,
        binary: stage.program,
        strict: false,
        temp_dir: &aside,
    };
    let mut plan = install::run_command(agent, &run)?;
    let routes = install::routes(agent, &run);
    if routes.is_empty() {
        return Err(RerunError::NoRoute(agent));
    }

    let openings = Openings {
        writable: vec![stage.dir.to_path_buf(), stage.store.to_path_buf()],
        sockets: routes.len(),
    };
    let printed = aside.join("output");
    let mut fence = Fence::raise(stage.program, &openings, &File::create(&printed).map_err(io("write"))?)
        .map_err(io("start a process behind a fence"))?;
    let policy = Policy {
        tools: wish.tools,
        root: work.clone(),
        fenced: matches!(fence.strength, Strength::Namespaces),
    };
    let text = serde_json::to_vec(&policy).unwrap_or_default();
    fs::write(aside.join("policy.json"), text).map_err(io("write the policy"))?;

    let replayer =
        Arc::new(Replayer::new(wish.tape, wish.changes, &directories, wish.on_difference, wish.timing));
    let carrier = Carrier {
        dir: stage.scratch.cache_dir()?.unwrap_or_default(),
        agent: Some(agent.name().to_owned()),
        session: None,
        started: None,
        since: stage.scratch.engine.env.now(),
        prices: Prices::built_in(),
    };
    let (recorder, taken) = Recorder::new(carrier);
    let recorder = Arc::new(recorder);
    let mut proxies: Vec<Proxy> = Vec::new();
    let mut told = Vec::new();
    for (route, socket) in routes.into_iter().zip(std::mem::take(&mut fence.sockets)) {
        let address = socket.local_addr().map_err(io("open a socket"))?;
        let listen = match fence.strength {
            Strength::Policy { .. } => Listen::Socket(socket),
            _ => Listen::Elsewhere(socket),
        };
        let proxy = stepback_proxy::start(Config {
            listen,
            upstreams: Upstreams { default: Some(route.upstream.clone()), ..Upstreams::default() },
            sink: recorder.clone(),
            answers: Some(replayer.clone()),
            limits: Limits::default(),
            certificates: None,
        })
        .map_err(io("start the proxy"))?;
        proxies.push(proxy);
        told.push((route, format!("http://{address}")));
    }
    install::through(agent, &run, &told, &mut plan)?;
    for (path, bytes) in &plan.files {
        fs::write(path, bytes).map_err(io("write the agent's settings"))?;
    }
    for edit in &plan.edits {
        install::carry_out(edit)?;
    }
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    let mut env: Vec<(String, String)> =
        environment.iter().map(|(name, value)| (text(name), text(value))).collect();
    env.retain(|(name, _)| !plan.env.iter().any(|(set, _)| set == name));
    env.extend(plan.env.iter().cloned());
    let inside = Inside { argv: plan.argv.iter().map(text).collect(), env, directory };

    let strength = fence.strength.clone();
    let namespace = fence.namespace();
    let mut child = fence.run(&inside).map_err(io("start the agent"))?;
    let ended = watch(&mut child, wish, stage, &replayer, &taken);
    end_all(&child, namespace.as_deref());
    let _ = child.wait();
    drop(proxies);
    record::take_in_quietly(stage.scratch)?;
    let ended = ended?;
    let session = stage.scratch.agent_sessions()?.into_iter().find(|session| session.agent == agent.name());
    Ok(Ran { ended, tally: replayer.tally(), strength, session, output: last_lines(&printed) })
}

/// What the directories of then are now.
fn directories(stage: &Stage<'_>, started: &Started, work: &Path, home: &Path, temp: &Path) -> Directories {
    let mut all = vec![("{workspace}", stage.original_root.to_path_buf(), work.to_path_buf())];
    let then = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
    let own = then(&started.home).unwrap_or_else(|| stage.home.to_path_buf());
    all.push(("{home}", own, home.to_path_buf()));
    if let Some(then) = then(&started.temp) {
        all.push(("{temp}", then, temp.to_path_buf()));
    }
    Directories { all }
}

fn command(agent: Agent, wish: &Wish<'_>, started: &Started) -> Vec<String> {
    let said = wish.tape.prompts.get(wish.prompt).map(|prompt| prompt.text.as_str()).unwrap_or_default();
    let changed = wish.changes.iter().find_map(|change| match change {
        Change::Prompt { nth, new, .. } if *nth == wish.prompt => Some(new.as_str()),
        _ => None,
    });
    let mut tools: Vec<String> = wish.tape.calls.iter().map(|call| call.tool.clone()).collect();
    tools.sort();
    tools.dedup();
    Again {
        agent,
        argv: &started.argv,
        said,
        prompt: changed.unwrap_or(said),
        resume: None,
        tools: &tools,
        model: None,
    }
    .command()
}

fn environment(
    agent: Agent,
    stage: &Stage<'_>,
    wish: &Wish<'_>,
    home: &Path,
    temp: &Path,
    aside: &Path,
) -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> = stage.environment.to_vec();
    all.retain(|(name, _)| !LEFT_OUT.iter().any(|left| name == left));
    let mut set = |name: &str, value: OsString| {
        all.retain(|(known, _)| known != name);
        all.push((name.into(), value));
    };
    set("HOME", home.into());
    set("TMPDIR", temp.into());
    set("STEPBACK_HOME", stage.store.into());
    set(policy::VARIABLE, aside.join("policy.json").into());
    set(carried::VARIABLE, "1".into());
    if wish.on_difference != OnDifference::Live {
        let missing = |key: &&&str| !stage.environment.iter().any(|(name, _)| name == **key);
        let keys: Vec<&str> = KEYS.iter().filter(missing).copied().collect();
        for key in keys.into_iter().filter(|_| matches!(agent, Agent::Claude | Agent::Gemini)) {
            set(key, "a-recording-needs-no-key".into());
        }
    }
    all
}

/// Where the program of a command is.
fn which(argv: &[OsString], environment: &[(OsString, OsString)]) -> Option<PathBuf> {
    let program = Path::new(argv.first()?);
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_path_buf());
    }
    let (_, path) = environment.iter().find(|(name, _)| name == "PATH")?;
    std::env::split_paths(path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

fn watch(
    child: &mut Child,
    wish: &Wish<'_>,
    stage: &Stage<'_>,
    replayer: &Replayer,
    taken: &std::sync::mpsc::Receiver<()>,
) -> Result<Ended, RerunError> {
    let begun = Instant::now();
    let mut parted_at: Option<Instant> = None;
    loop {
        let exited =
            child.try_wait().map_err(|source| RerunError::Io { what: "wait for the agent", source })?;
        // What the agent does is recorded by its hooks; what it asks, by us.
        if taken.recv_timeout(GLANCE).is_ok() {
            while taken.try_recv().is_ok() {}
            record::take_in_quietly(stage.scratch)?;
        }
        let parted = wish.on_difference == OnDifference::Stop && replayer.tally().parted.is_some();
        if let Some(status) = exited {
            let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
            return Ok(if parted { Ended::Parted } else { Ended::Exited(code) });
        }
        if stage.interrupted.load(Ordering::Relaxed) {
            return Ok(Ended::Interrupted);
        }
        if wish.timeout.is_some_and(|limit| begun.elapsed() > limit) {
            return Ok(Ended::TimedOut);
        }
        if parted && parted_at.get_or_insert_with(Instant::now).elapsed() > GRACE {
            return Ok(Ended::Parted);
        }
        if (wish.until.is_some() || wish.max_steps.is_some()) && has_reached(wish, stage)? {
            return Ok(Ended::Reached);
        }
    }
}

fn has_reached(wish: &Wish<'_>, stage: &Stage<'_>) -> Result<bool, RerunError> {
    let sessions = stage.scratch.agent_sessions()?;
    let Some(session) = sessions.first() else { return Ok(false) };
    let query = Query { session: Some(session.id), ..Query::default() };
    let steps = stage
        .scratch
        .store()
        .steps(stage.scratch.record.id, &query)
        .map_err(stepback_engine::EngineError::from)?;
    let kind = wish.until.is_some_and(|kind| steps.iter().any(|stored| stored.checkpoint.step.kind == kind));
    Ok(kind || wish.max_steps.is_some_and(|most| steps.len() as u64 >= most))
}

/// Ends everything that was started: the group of the agent, and whoever left it but not the namespace.
fn end_all(child: &Child, namespace: Option<&Path>) {
    let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    let _ = kill_process_group(group, Signal::KILL);
    let own = fs::read_link("/proc/self/ns/net").ok();
    let Some(namespace) = namespace.filter(|theirs| own.as_deref() != Some(theirs)) else { return };
    // Whoever starts a process while this looks is found in the next round.
    for _ in 0..100 {
        let mut found = false;
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            let theirs = fs::read_link(entry.path().join("ns/net"));
            if let (Some(id), true) = (id, theirs.is_ok_and(|theirs| theirs == namespace)) {
                found |= kill_process(id, Signal::KILL).is_ok();
            }
        }
        if !found {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn last_lines(printed: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(printed).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
