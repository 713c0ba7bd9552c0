//! A PostgreSQL server for one test: with its own socket and port, and its data in a temporary directory.
//!
//! The programs are the system's. PostgreSQL refuses to run as root, so tests that run as root start it as the user that
//! the package created for it. It is killed when the thread that started it ends.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The time limit for starting or stopping a server; generous, for a busy machine.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);
/// The user that a server runs as when the test is run by root.
const USER: &str = "postgres";

/// A running server.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    dir: TempDir,
    port: u16,
    settings: Vec<String>,
    child: Child,
    databases: AtomicU32,
}

/// The directory of the newest installed server's programs.
///
/// # Panics
/// If there is none: `cargo xtask test` installs one.
pub fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions_found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, path)| path.join("initdb").exists())
        .collect();
    versions_found.sort();
    let newest =
        versions_found.pop().expect("PostgreSQL is not installed: `cargo xtask postgres install` does it");
    newest.1
}

impl PostgresServer {
    /// Starts an empty server with minimal resources.
    pub fn start() -> Self {
        Self::start_with(&["max_connections=60", "shared_buffers=32MB"])
    }

    /// Starts an empty server with these settings (`NAME=VALUE`).
    pub fn start_with(settings: &[&str]) -> Self {
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let programs = programs();
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        if let Some(user) = other_user() {
            chown(dir.path(), Some(user), None).unwrap();
        }
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let output = as_user(&programs.join("initdb"))
            .args(["--username=test", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(&data)
            .current_dir("/")
            .output()
            .unwrap();
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
        let port = free_port();
        let child = launch(&programs, dir.path(), port, &settings);
        let server = Self { programs, dir, port, settings, child, databases: AtomicU32::new(0) };
        server.wait_until_ready();
        server
    }

    /// The address of a database that no other test uses.
    pub fn database(&self) -> String {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.address(&name)
    }

    /// The address of an empty schema in a shared database, which is created much faster than a database.
    pub fn schema(&self) -> String {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE SCHEMA {name}"));
        format!("{}?options=-csearch_path%3D{name}", self.address("postgres"))
    }

    /// The address of a database by its name.
    pub fn address(&self, database: &str) -> String {
        format!("postgres://test@127.0.0.1:{}/{database}", self.port)
    }

    /// The port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs SQL and returns what it prints, without headings.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let output = Command::new(self.programs.join("psql"))
            .args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-U", "test", "-d", database, "-c", sql, "-h"])
            .arg(self.dir.path())
            .args(["-p", &self.port.to_string()])
            .output()
            .unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// From now on, every user except `test` needs a password over the network.
    pub fn require_passwords(&self) {
        let rules = "local all all trust\nhost all test 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
        fs::write(self.dir.path().join("data/pg_hba.conf"), rules).unwrap();
        self.sql("postgres", "SELECT pg_reload_conf()");
        // The server reads the file asynchronously.
        let deadline = Instant::now() + SERVER_TIMEOUT;
        let loaded = "SELECT count(*) FROM pg_hba_file_rules WHERE auth_method = 'scram-sha-256'";
        while self.sql("postgres", loaded).trim() != "1" {
            assert!(Instant::now() < deadline, "the server does not read its rules");
        }
        std::thread::sleep(Duration::from_millis(300));
    }

    /// From now on, the server has this certificate and its key, in PEM form, and offers TLS to clients.
    pub fn use_tls(&self, certificate: &str, key: &str) {
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let path = self.dir.path().join("data").join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            if let Some(user) = other_user() {
                chown(&path, Some(user), None).unwrap();
            }
        }
        self.sql("postgres", "ALTER SYSTEM SET ssl = on");
        self.sql("postgres", "SELECT pg_reload_conf()");
        let deadline = Instant::now() + SERVER_TIMEOUT;
        while self.sql("postgres", "SHOW ssl").trim() != "on" {
            assert!(Instant::now() < deadline, "the server does not read its settings: {}", self.log());
        }
    }

    /// Limits the size of the server's files, as if the disk were full; `None` removes the limit. Applies to new
    /// connections.
    pub fn limit_files(&self, max_bytes: Option<u64>) {
        let max_bytes = max_bytes.map_or("unlimited".into(), |max_bytes| max_bytes.to_string());
        // Only the user that the server runs as may do that.
        let status = as_user(Path::new("prlimit"))
            .args([format!("--pid={}", self.child.id()), format!("--fsize={max_bytes}:")])
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// Runs `sql` in a transaction that stays open until the guard is dropped.
    pub fn hold(&self, database: &str, sql: &str) -> Holding {
        let mut child = Command::new(self.programs.join("psql"))
            .args(["-XqAt", "-U", "test", "-d", database, "-h"])
            .arg(self.dir.path())
            .args(["-p", &self.port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "BEGIN;\n{sql};\n\\echo held").unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        assert!(output.lines().any(|line| line.unwrap() == "held"));
        Holding { child, input: Some(input) }
    }

    /// Kills the server without a shutdown, like a power failure, and starts it again.
    pub fn crash_and_restart(&mut self) {
        self.crash();
        self.restart();
    }

    /// Kills the server and all its processes.
    pub fn crash(&mut self) {
        let pid = self.postmaster();
        // Its children notice that and exit by themselves; until then they use the data directory.
        kill_process(pid, Signal::KILL).unwrap();
        let _ = self.child.wait();
    }

    /// Starts the server again after a crash.
    pub fn restart(&mut self) {
        let deadline = Instant::now() + SERVER_TIMEOUT;
        loop {
            self.child = launch(&self.programs, self.dir.path(), self.port, &self.settings);
            // As long as a process of the old server exists, a new one refuses to start.
            while self.child.try_wait().unwrap().is_none() {
                if self.is_ready() {
                    return;
                }
                assert!(Instant::now() < deadline, "the server does not start again: {}", self.log());
                std::thread::sleep(Duration::from_millis(20));
            }
            assert!(Instant::now() < deadline, "the server does not start again: {}", self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What the server has written about itself.
    pub fn log(&self) -> String {
        let mut text = String::new();
        let file = fs::File::open(self.dir.path().join("log"));
        let _ = file.and_then(|mut file| file.read_to_string(&mut text));
        text
    }

    fn postmaster(&self) -> Pid {
        // The command changes the user and starts the server in one process, so the server is the child itself.
        Pid::from_child(&self.child)
    }

    fn is_ready(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.port)).is_ok()
            && Command::new(self.programs.join("pg_isready"))
                .args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()])
                .status()
                .is_ok_and(|status| status.success())
    }

    fn wait_until_ready(&self) {
        let deadline = Instant::now() + SERVER_TIMEOUT;
        while !self.is_ready() {
            assert!(Instant::now() < deadline, "the server does not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A transaction that stays open.
#[derive(Debug)]
pub struct Holding {
    child: Child,
    input: Option<ChildStdin>,
}

impl Drop for Holding {
    fn drop(&mut self) {
        // Closing its input ends the program, and with it the transaction.
        self.input = None;
        let _ = self.child.wait();
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // "Fast": ends connections instead of waiting for them.
        let _ = kill_process(self.postmaster(), Signal::INT);
        let deadline = Instant::now() + SERVER_TIMEOUT;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn launch(programs: &Path, dir: &Path, port: u16, settings: &[String]) -> Child {
    let log = fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
    as_user(&programs.join("postgres"))
        .arg("-D")
        .arg(dir.join("data"))
        .args(["-p", &port.to_string(), "-h", "127.0.0.1", "-k"])
        .arg(dir)
        .args(["-c", "fsync=on"])
        .args(settings.iter().flat_map(|setting| ["-c", setting.as_str()]))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// A command that runs as a user that the server accepts, and that is killed when this thread ends.
fn as_user(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    if other_user().is_some() {
        command.args(["--reuid", USER, "--regid", USER, "--init-groups"]);
    }
    command.args(["--pdeathsig", "INT", "--"]).arg(program);
    command
}

/// The user to run as, if it is not the present one.
fn other_user() -> Option<u32> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let line = users.lines().find(|line| line.starts_with(&format!("{USER}:")));
    let id = line.and_then(|line| line.split(':').nth(2)?.parse().ok());
    Some(id.expect("the package has made a user for the server"))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
