//! One run of an agent: its namespace, its model, and an end that leaves no process behind.
//!
//! A shell in a new network namespace enables loopback, starts the model, waits until it listens and starts the agent.
//! All processes that either of them starts are in that namespace, even if they detach themselves, so that all of them
//! can be killed at the end of the run.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::{PORT, RealAgent, config};
use crate::model::server::{self, ServerParts};
use crate::model::{ItemRole, ReceivedRequest, ScriptedAgent, history};
use crate::tree::scratch_place;

/// The variable with the directory of the run for which a process is to be the model.
const MODEL_DIR_VARIABLE: &str = "STEPBACK_TEST_MODEL";

/// `$0` is the directory of the run, `$1` the test binary, `$2` the limit in seconds, the rest the agent.
const SHELL: &str = r#"
set -eu
run=$0 model=$1 limit=$2
shift 2
ip link set lo up
readlink /proc/self/ns/net > "$run/namespace"
if [ "$model" != none ]; then
    STEPBACK_TEST_MODEL=$run "$model" --exact scripted_model --nocapture > "$run/model" 2>&1 &
    while [ ! -e "$run/port" ]; do
        kill -0 $! 2> "$run/gone" || { echo "the model did not start:"; cat "$run/model"; exit 125; } >&2
        sleep 0.01
    done
fi
code=0
timeout --foreground --signal=KILL "$limit" "$@" || code=$?
exit "$code"
"#;

/// Runs the model if this process was started for it. Called by [`scripted_model!`](crate::scripted_model).
pub fn play_if_asked() {
    if let Some(run) = std::env::var_os(MODEL_DIR_VARIABLE) {
        server::play(Path::new(&run), PORT).unwrap();
    }
}

/// Starts a command in a namespace with its model.
pub(super) fn start(agent: &RealAgent, command: Vec<OsString>) -> Running {
    let installed = config::installed();
    let run = TempDir::with_prefix_in("stepback-run-", scratch_place()).unwrap();
    let workspace = agent.workspace.canonicalize().unwrap();
    let part = ServerParts { agent: agent.agent, workspace: workspace.clone(), script: agent.script.clone() };
    fs::write(run.path().join("part.json"), serde_json::to_vec(&part).unwrap()).unwrap();

    let unshare = if geteuid().is_root() { "-n" } else { "-rn" };
    let create_file = |name: &str| File::create(run.path().join(name)).unwrap();
    let mut process = Command::new("unshare");
    process
        .args([unshare, "--", "sh", "-c", SHELL])
        .arg(run.path())
        .arg(if agent.silent { "none".into() } else { std::env::current_exe().unwrap() })
        .arg(agent.limit.as_secs().max(1).to_string())
        .args(command)
        .current_dir(workspace)
        .env_clear()
        .envs(config::environment(agent.agent, &agent.home, &search_path(agent, &installed)))
        .envs(agent.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(create_file("stdout"))
        .stderr(create_file("stderr"))
        .process_group(0);
    let child = process.spawn().unwrap();
    Running { agent: agent.agent, child, run, started: Instant::now(), limit: agent.limit, status: None }
}

fn search_path(agent: &RealAgent, installed: &Path) -> OsString {
    let own_path = std::env::var_os("PATH").unwrap_or_default();
    let node = std::env::split_paths(&own_path).find(|directory| directory.join("node").exists());
    let system = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let search_path = agent.path.iter().cloned().chain([installed.join("bin")]).chain(node).chain(system);
    std::env::join_paths(search_path).unwrap()
}

/// A running agent. When this is dropped, it and all processes that it started are killed.
#[derive(Debug)]
pub struct Running {
    agent: ScriptedAgent,
    child: Child,
    run: TempDir,
    started: Instant,
    limit: Duration,
    status: Option<ExitStatus>,
}

impl Running {
    /// The requests that reached the model so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        server::logged(&self.run.path().join("requests.jsonl"))
    }

    /// What it wrote to stdout so far.
    pub fn stdout(&self) -> String {
        self.written("stdout")
    }

    /// What it wrote to stderr so far.
    pub fn stderr(&self) -> String {
        self.written("stderr")
    }

    /// Whether it is still at work.
    pub fn is_running(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().unwrap();
        }
        self.status.is_none()
    }

    /// Waits until a condition holds; fails the test if the agent ends first, or at its time limit.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        while !condition(self) {
            assert!(self.is_running(), "the agent ended before {what}:\n{}", self.output_for_message());
            assert!(self.started.elapsed() < self.limit, "no sign of {what}:\n{}", self.output_for_message());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end of the run; fails the test at the time limit.
    #[track_caller]
    pub fn wait(mut self) -> AgentRunOutcome {
        while self.is_running() {
            if self.started.elapsed() > self.limit {
                self.end();
                panic!("the agent was not done after {:?}:\n{}", self.limit, self.output_for_message());
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.outcome()
    }

    /// Kills the agent and all processes that it started, as in a crash.
    pub fn kill(mut self) -> AgentRunOutcome {
        self.end();
        self.outcome()
    }

    fn outcome(mut self) -> AgentRunOutcome {
        let duration = self.started.elapsed();
        self.end();
        AgentRunOutcome {
            agent: self.agent,
            code: self.status.and_then(|status| status.code()),
            stdout: self.stdout(),
            stderr: self.stderr(),
            requests: self.requests(),
            duration,
        }
    }

    fn end(&mut self) {
        let namespace = self.written("namespace");
        let own_namespace = fs::read_link("/proc/self/ns/net").unwrap();
        // Without a namespace of its own there is only the shell so far.
        if namespace.trim().is_empty() || own_namespace == Path::new(namespace.trim()) {
            let _ = self.child.kill();
        } else {
            // A process that is started meanwhile is found in the next round.
            while end_all_in(Path::new(namespace.trim())) > 0 {
                thread::sleep(Duration::from_millis(2));
                if self.started.elapsed() > self.limit + Duration::from_secs(30) {
                    break;
                }
            }
        }
        if self.status.is_none() {
            self.status = Some(self.child.wait().unwrap());
        }
    }

    fn written(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.run.path().join(name)).unwrap_or_default()).into_owned()
    }

    fn output_for_message(&self) -> String {
        format_run(&self.stdout(), &self.stderr(), &self.requests())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Kills every process in a network namespace and returns how many there were. Processes that have ended have no
/// namespace.
fn end_all_in(namespace: &Path) -> usize {
    let mut killed = 0;
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        if fs::read_link(entry.path().join("ns/net"))
            .is_ok_and(|other_namespace| other_namespace == namespace)
        {
            // It may have ended since.
            let _ = kill_process(id, Signal::KILL);
            killed += 1;
        }
    }
    killed
}

/// What a run did.
#[derive(Debug)]
pub struct AgentRunOutcome {
    agent: ScriptedAgent,
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
    /// All requests that reached the model.
    pub requests: Vec<ReceivedRequest>,
    /// How long it took.
    pub duration: Duration,
}

impl AgentRunOutcome {
    /// Fails the test unless the run ended with exit code 0.
    #[track_caller]
    pub fn succeeds(self) -> Self {
        assert_eq!(self.code, Some(0), "{}", format_run(&self.stdout, &self.stderr, &self.requests));
        self
    }

    /// The requests that turns of the script answered.
    pub fn turns(&self) -> Vec<&ReceivedRequest> {
        self.requests.iter().filter(|request| request.is_turn()).collect()
    }

    /// The conversation in the request of turn `n` of this run.
    #[track_caller]
    pub fn history(&self, n: usize) -> Vec<(ItemRole, String)> {
        history(self.agent, self.turns()[n])
    }

    /// The id of the session, from what the agent printed.
    #[track_caller]
    pub fn session(&self) -> String {
        let key = match self.agent {
            ScriptedAgent::Claude | ScriptedAgent::Gemini => "session_id",
            ScriptedAgent::Codex => "thread_id",
            ScriptedAgent::Opencode => "sessionID",
        };
        let whole = serde_json::from_str::<Value>(&self.stdout).ok();
        let mut documents =
            whole.into_iter().chain(self.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()));
        let session = documents.find_map(|document| document[key].as_str().map(str::to_owned));
        session.unwrap_or_else(|| panic!("no `{key}` in:\n{}", self.stdout))
    }
}

fn format_run(stdout: &str, stderr: &str, requests: &[ReceivedRequest]) -> String {
    let request_lines: Vec<String> = requests
        .iter()
        .map(|request| format!("{} {} -> {:?}", request.method, request.path, request.answer))
        .collect();
    format!("stdout:\n{stdout}\nstderr:\n{stderr}\nrequests:\n{}", request_lines.join("\n"))
}
