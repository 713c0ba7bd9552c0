//! A server over a store of its own, and somebody who asks it.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use stepback_engine::Engine;
use stepback_engine::control::Stop;
use stepback_engine::recorder::{NewMessages, ReportedEvent, ScanPolicy};
use stepback_model::env::FrozenEnv;
use stepback_model::event::{AgentEvent, ReportedError};
use stepback_model::ids::SessionId;
use stepback_model::record::{Annotation, StepKind, Trigger};
use stepback_model::time::Timestamp;
use stepback_server::{AppState, HttpServer, ServerConfig, serve};
use stepback_store::Store;
use stepback_store::embedded::EmbeddedStore;

/// When the clocks of these tests start: 2023-11-14T22:13:20Z.
const START: i64 = 1_700_000_000_000_000;

/// A directory with a workspace, a store and a server.
pub struct TestServer {
    pub server: HttpServer,
    pub root: PathBuf,
    store: Arc<dyn Store>,
    env: Arc<FrozenEnv>,
    dir: Arc<tempfile::TempDir>,
}

/// What came back.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// A header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}:")))?;
        Some(line.split_once(':')?.1.trim())
    }

    /// The document of a reply with this status.
    #[track_caller]
    pub fn with(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// A problem with this status, which is nobody's bug.
    #[track_caller]
    pub fn problem(&self, status: u16) -> Value {
        let problem = self.with(status);
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(problem["status"], status);
        assert!(!problem["detail"].as_str().unwrap().is_empty());
        problem
    }
}

impl TestServer {
    pub fn new() -> Self {
        Self::with(|config| config)
    }

    /// With other settings of the server.
    pub fn with(change: impl FnOnce(ServerConfig) -> ServerConfig) -> Self {
        Self::try_with(change).unwrap()
    }

    pub fn try_with(change: impl FnOnce(ServerConfig) -> ServerConfig) -> std::io::Result<Self> {
        Self::made(START, change)
    }

    /// Whose clients may take so long to go on reading.
    pub fn with_patience(patience: Duration) -> Self {
        Self::with(|config| ServerConfig { write_timeout: patience, ..config })
    }

    /// One whose clocks start at that moment, in microseconds.
    pub fn at(start: i64) -> Self {
        Self::made(start, |config| config).unwrap()
    }

    fn made(start: i64, change: impl FnOnce(ServerConfig) -> ServerConfig) -> std::io::Result<Self> {
        let dir = tempfile::tempdir_in(stepback_testkit::tree::scratch_place()).unwrap();
        let top = dir.path().canonicalize().unwrap();
        let root = top.join("work");
        fs::create_dir(&root).unwrap();
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&top.join("store")).unwrap());
        let env = |seed| FrozenEnv::new(Timestamp::from_micros(start), seed);
        let config = ServerConfig {
            origins: vec!["https://studio.example".to_owned()],
            ..ServerConfig::new("127.0.0.1:0".parse().unwrap(), top.join("token"))
        };
        let server = serve(AppState::new(Engine::new(store.clone(), Arc::new(env(1)))), change(config))?;
        Ok(Self { server, root, store, env: Arc::new(env(2)), dir: Arc::new(dir) })
    }

    /// Another server that opens the same store; `seed` makes its ids different.
    pub fn another(&self, seed: u64) -> Self {
        let top = self.dir.path().canonicalize().unwrap();
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&top.join("store")).unwrap());
        let env = |seed| FrozenEnv::new(Timestamp::from_micros(START), seed);
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), top.join("token"));
        let server = serve(AppState::new(Engine::new(store.clone(), Arc::new(env(seed)))), config).unwrap();
        Self {
            server,
            root: self.root.clone(),
            store,
            env: Arc::new(env(seed + 1)),
            dir: Arc::clone(&self.dir),
        }
    }

    pub fn engine(&self) -> Engine {
        Engine::new(self.store.clone(), self.env.clone())
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.root.join(name)).ok()
    }

    /// Makes a checkpoint beside the server and returns its number.
    pub fn checkpoint(&self, label: &str) -> u64 {
        let engine = self.engine();
        let workspace = engine.open_workspace_root(&self.root).unwrap();
        let annotation = Annotation::labelled(label);
        workspace.create_checkpoint(annotation, Trigger::Manual).unwrap().stored.step.number
    }

    /// Records a call of a session that changes a file, from its start to its end.
    pub fn call(&self, session: &str, call: &str, file: &str, text: &str, failed: bool) {
        let engine = self.engine();
        let workspace = engine.open_workspace_root(&self.root).unwrap();
        let record = |kind, effect| {
            let lock = workspace.lock_recording().unwrap();
            workspace.record(&lock, &self.report(session, kind, call, effect, failed)).unwrap();
        };
        record(StepKind::ToolStart, ScanPolicy::Before);
        self.write(file, text);
        record(StepKind::ToolEnd, ScanPolicy::After);
    }

    /// Records that something was said in a session of `agent`: these are the lines of its conversation so far.
    pub fn said(&self, agent: &str, session: &str, lines: &[&str]) {
        let engine = self.engine();
        let workspace = engine.open_workspace_root(&self.root).unwrap();
        let key = format!("said {}", lines.len());
        let keep = ScanPolicy::Checkpoint(Trigger::Automatic);
        let mut report = self.report(session, StepKind::UserInput, &key, keep, false);
        report.event.agent = agent.into();
        report.event.call = None;
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        report.messages = Some(NewMessages { keep: Some(0), lines, ..NewMessages::default() });
        let lock = workspace.lock_recording().unwrap();
        workspace.record(&lock, &report).unwrap();
    }

    /// Records what a session remembers and plans now.
    pub fn remember(&self, session: &str, memory: serde_json::Value, tasks: serde_json::Value) {
        let engine = self.engine();
        let workspace = engine.open_workspace_root(&self.root).unwrap();
        let key = format!("remembers {memory} {tasks}");
        let mut report = self.report(session, StepKind::AgentStep, &key, ScanPolicy::None, false);
        (report.update.memory, report.update.tasks) = (Some(memory), Some(tasks));
        let lock = workspace.lock_recording().unwrap();
        workspace.record(&lock, &report).unwrap();
    }

    fn report(
        &self,
        session: &str,
        kind: StepKind,
        call: &str,
        effect: ScanPolicy,
        failed: bool,
    ) -> ReportedEvent {
        let failed = failed && kind == StepKind::ToolEnd;
        let event = AgentEvent {
            key: Some(call.into()),
            call: Some(call.into()),
            tool: Some("Edit".into()),
            input: Some(serde_json::json!({ "call": call })),
            error: failed
                .then(|| ReportedError { message: "it went wrong".into(), ..ReportedError::default() }),
            ..AgentEvent::new("test", session, kind, format!("{} {call}", kind.as_str()))
        };
        let at = stepback_model::env::Env::now(&*self.env);
        ReportedEvent { scan_policy: effect, ..ReportedEvent::new(event, at) }
    }

    /// An agent of a session waits from now on.
    pub fn stop_agent(&self, session: &str, id: &str) {
        let engine = self.engine();
        let workspace = engine.open_workspace_root(&self.root).unwrap();
        let session = workspace.find_session(session).unwrap().id;
        workspace.control().unwrap().publish_stop(&stop(session, id)).unwrap();
    }

    /// It heard its answer and goes on.
    pub fn forget_stop(&self, session: &str, id: &str) {
        let engine = self.engine();
        let workspace = engine.open_workspace_root(&self.root).unwrap();
        let session = workspace.find_session(session).unwrap().id;
        let heard = workspace
            .control()
            .unwrap()
            .wait_for_answer(&stop(session, id), Duration::from_secs(30))
            .unwrap();
        assert!(heard.is_some());
    }

    /// The id of the workspace.
    pub fn workspace(&self) -> String {
        self.engine().open_workspace_root(&self.root).unwrap().record.id.to_string()
    }

    /// Asks below `/api/v1`.
    pub fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, None)
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.ask("POST", path, Some(body))
    }

    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        let body = body.map(Value::to_string).unwrap_or_default();
        self.send(method, &format!("/api/v1{path}"), "content-type: application/json\r\n", body.as_bytes())
    }

    /// Sends a request with the token and more headers.
    pub fn send(&self, method: &str, target: &str, headers: &str, body: &[u8]) -> Reply {
        let token = self.server.token().as_str();
        let headers = format!("authorization: Bearer {token}\r\n{headers}");
        self.send_bare(method, target, &headers, body)
    }

    /// A connection on which a request with the token was sent, without a body.
    pub fn open(&self, method: &str, target: &str, headers: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let token = self.server.token().as_str();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    /// Where the server listens, and its token.
    pub fn server(&self) -> (SocketAddr, &str) {
        (self.server.address(), self.server.token().as_str())
    }

    /// Ends the server.
    pub fn stop(self) {
        self.server.stop();
    }

    pub fn send_bare(&self, method: &str, target: &str, headers: &str, body: &[u8]) -> Reply {
        self.exchange(method, target, &format!("content-length: {}\r\n{headers}", body.len()), body)
    }

    /// Signs a browser in; returns its cookie and the key of its page.
    pub fn sign_in(&self) -> (String, String) {
        let url = self.server.sign_in_url().unwrap();
        let reply = self.send_bare("GET", url.strip_prefix(&self.server.url()).unwrap(), "", b"");
        let cookie = reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let key = reply.header("location").unwrap().strip_prefix("/#page=").unwrap().to_owned();
        (cookie, key)
    }

    /// Sends only the head of a request with the token, which says itself how long the body is.
    pub fn send_head(&self, method: &str, target: &str, headers: &str) -> Reply {
        let token = self.server.token().as_str();
        self.exchange(method, target, &format!("authorization: Bearer {token}\r\n{headers}"), b"")
    }

    fn exchange(&self, method: &str, target: &str, headers: &str, body: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let head =
            format!("{method} {target} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses a body need not read it.
        let _ = stream.write_all(body);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a reply has a head");
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head, body: bytes[end + 4..].to_vec() }
    }
}

/// An agent that waits before a call.
pub fn stop(session: SessionId, id: &str) -> Stop {
    Stop {
        id: id.into(),
        session,
        agent: "test".into(),
        call: Some("c9".into()),
        tool: "Bash".into(),
        input: serde_json::json!({ "command": "rm" }),
        output: None,
        reason: "paused".into(),
        breakpoint: None,
        step: 2,
        iteration: 1,
        at: Timestamp::from_micros(1),
        until: Timestamp::from_micros(2),
        process: std::process::id(),
    }
}
