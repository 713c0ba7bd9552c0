//! How this program keeps mirrors up to date: a commit starts a detached process if none runs, and a server has a thread.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use stepback_mirror::MirrorError;
use stepback_mirror::launch::{MirrorLauncher, WORD};
use stepback_mirror::service::{self, MirrorService, ServiceEnd, open_mirror};
use stepback_mirror::settings::MirrorSettings;
use stepback_mirror::storage::StorageAccess;
use stepback_mirror::storage::bucket::BucketAccess;
use stepback_mirror::storage::signature::BucketCredentials;
use stepback_mirror::sync::MirrorSync;
use stepback_store::embedded::EmbeddedStore;

use crate::context;
use crate::system;

/// If it is set and not empty, commits of this process start no process that syncs mirrors.
const VARIABLE: &str = "STEPBACK_NO_MIRROR";
/// A process that syncs exits after this long without a commit.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long `mirror add` waits for a process without credentials to end.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a server checks whether it has mirrors, and whether another process syncs them.
const SERVER_INTERVAL: Duration = Duration::from_millis(500);

/// Returns what starts the process that syncs the mirrors of a store, if this process may start one.
pub fn commit_launcher(dir: &Path) -> Option<MirrorLauncher> {
    context::path_variable(VARIABLE).is_none().then(|| create_launcher(dir))
}

/// Brings all mirrors of a store up to date. Fails at the first one that cannot be.
pub fn sync_all(dir: &Path) -> Result<(), String> {
    let settings = MirrorSettings::load(dir).map_err(|error| error.to_string())?;
    let Some(settings) = settings else { return Ok(()) };
    let env = system::environment();
    for mirror in &settings.mirrors {
        let address = &mirror.address;
        EmbeddedStore::open_existing(dir)
            .map_err(MirrorError::from)
            .and_then(|store| {
                let archive = open_mirror(address, &settings.id, &storage_access())?;
                MirrorSync::new(&store, archive, &*env).sync()
            })
            .map_err(|error| format!("nothing is freed before it is in {address}: {error}"))?;
    }
    Ok(())
}

fn create_launcher(dir: &Path) -> MirrorLauncher {
    MirrorLauncher::new(dir.to_path_buf(), || {
        let mut command = Command::new(std::env::current_exe().ok()?);
        command.env_clear().envs(client_environment());
        Some(command)
    })
}

/// Starts a process that syncs with the credentials of this one. One that has none ends when it sees that a bucket was added;
/// one that has some goes on.
pub fn hand_over_credentials(dir: &Path) {
    if context::path_variable(VARIABLE).is_some() {
        return;
    }
    let started = Instant::now();
    while service::is_running(dir) && started.elapsed() < HAND_OVER_TIMEOUT {
        thread::sleep(Duration::from_millis(20));
    }
    create_launcher(dir).wake();
}

/// Returns how places other than directories are reached, according to the variables that AWS tools use.
pub fn storage_access() -> StorageAccess {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let credentials = variable("AWS_ACCESS_KEY_ID").zip(variable("AWS_SECRET_ACCESS_KEY"));
    let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
    let endpoint = variable("AWS_ENDPOINT_URL_S3").or_else(|| variable("AWS_ENDPOINT_URL"));
    let bucket = credentials.map(|(access_key, secret_key)| BucketAccess {
        credentials: BucketCredentials {
            access_key,
            secret_key,
            session_token: variable("AWS_SESSION_TOKEN"),
        },
        region: region.unwrap_or_else(|| "us-east-1".to_owned()),
        endpoint,
    });
    StorageAccess { bucket }
}

/// Returns the environment variables that a client of an object store needs.
pub fn client_environment() -> Vec<(OsString, OsString)> {
    let is_needed = |name: &str| {
        name.starts_with("AWS_") || matches!(name, "HOME" | "SSL_CERT_FILE" | "SSL_CERT_DIR" | "NO_PROXY")
    };
    std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_needed)).collect()
}

/// Runs as the process that syncs, if the arguments ask for it: the store's directory, and optionally after how many seconds
/// without a commit it exits. Returns the exit code.
pub fn run_if_asked(arguments: &[OsString]) -> Option<u8> {
    let (dir, idle) = match arguments {
        [_, word, dir] if word == WORD => (dir, IDLE_TIMEOUT),
        [_, word, dir, idle] if word == WORD => (dir, Duration::from_secs(idle.to_str()?.parse().ok()?)),
        _ => return None,
    };
    stepback_watcher::process::detach();
    let stop = AtomicBool::new(false);
    let service = MirrorService {
        dir: Path::new(dir),
        env: system::environment(),
        stop: &stop,
        idle: Some(idle),
        mirrors: None,
        access: storage_access(),
        observer: None,
    };
    // What failed is in the states of the mirrors; this process has no other output.
    Some(u8::from(service.run().is_err()))
}

/// The thread of a server that syncs the mirrors of its store.
#[derive(Debug)]
pub struct MirrorThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MirrorThread {
    /// Starts it. Mirrors may be added and removed while it runs.
    pub fn start(dir: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stop_flag = stop.clone();
        let thread = thread::Builder::new().name("mirrors".into()).spawn(move || {
            while !stop_flag.load(Ordering::Relaxed) {
                if MirrorSettings::exist(&dir) {
                    let service = MirrorService {
                        dir: &dir,
                        env: system::environment(),
                        stop: &stop_flag,
                        idle: None,
                        mirrors: None,
                        access: storage_access(),
                        observer: None,
                    };
                    // Another process may sync already; it exits when it is idle, and this thread takes over.
                    let _: Result<ServiceEnd, _> = service.run();
                }
                thread::park_timeout(SERVER_INTERVAL);
            }
        });
        Self { stop, thread: thread.ok() }
    }
}

impl Drop for MirrorThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
