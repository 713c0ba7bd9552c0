//! A workspace, a store and a home of their own for every test, and the program run in them.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use stepback_testkit::tree::{self, Copy};
use tempfile::TempDir;

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_stepback");

/// A world for one test.
pub struct Sandbox {
    dir: TempDir,
    /// The workspace.
    pub work: PathBuf,
    /// The store.
    pub store: PathBuf,
    /// `$HOME`.
    pub home: PathBuf,
    /// Commands run so far, if clock and ids are frozen.
    frozen: Option<AtomicU64>,
    /// How commands use the watcher: only the tests of that start one.
    pub watcher: &'static str,
    /// Copies made of past states.
    restored: AtomicU64,
}

/// What a command did.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to stdout.
    pub out: String,
    /// What it wrote to stderr.
    pub err: String,
}

impl Ran {
    /// Fails the test unless the command exited with `code`.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    /// The one JSON document on stdout.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|error| panic!("{error} in:\n{}\nstderr:\n{}", self.out, self.err))
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

impl Sandbox {
    /// A world in memory where the system has such a place.
    pub fn new() -> Self {
        Self::at(&tree::scratch_place())
    }

    /// A world in which clock and ids are the same in every run.
    pub fn frozen() -> Self {
        Self { frozen: Some(AtomicU64::new(0)), ..Self::new() }
    }

    /// A world below `place`.
    pub fn at(place: &Path) -> Self {
        let dir = TempDir::with_prefix_in("stepback-test-", place).unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (work, store, home) = (root.join("work"), root.join("store"), root.join("home"));
        for made in [&work, &home] {
            fs::create_dir(made).unwrap();
            fs::set_permissions(made, Permissions::from_mode(0o755)).unwrap();
        }
        Self { dir, work, store, home, frozen: None, watcher: "ask", restored: AtomicU64::new(0) }
    }

    /// The directory that holds everything of this world.
    pub fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    /// A command that runs the program in the workspace with a clean environment.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        self.clean(PROGRAM, arguments)
    }

    fn clean<A: AsRef<OsStr>>(&self, program: &str, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(&self.work)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin")))
            .env("HOME", &self.home)
            .env("STEPBACK_HOME", &self.store)
            .env("STEPBACK_WATCHER", self.watcher)
            .env("TZ", "UTC")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null());
        if let Some(count) = &self.frozen {
            let count_now = count.fetch_add(1, Ordering::Relaxed);
            let (hours, minutes) = (3 + count_now / 60, count_now % 60);
            command.env("STEPBACK_TEST_CLOCK", format!("2026-01-02T{hours:02}:{minutes:02}:00Z/{count_now}"));
        }
        command
    }

    /// Runs the program to its end.
    pub fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Ran {
        self.command(arguments).output().unwrap().into()
    }

    /// Runs the program and fails the test unless it succeeds.
    #[track_caller]
    pub fn ok<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Ran {
        self.run(arguments).exits(0)
    }

    /// Runs the program with `--json`, fails the test unless it succeeds, and gives the document.
    #[track_caller]
    pub fn json<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Value {
        let mut command = self.command(arguments);
        let ran: Ran = command.arg("--json").output().unwrap().into();
        ran.exits(0).json()
    }

    /// Runs the program with a fault armed.
    pub fn faulty(&self, arguments: &[&str], fault: &str) -> Ran {
        self.command(arguments).env("STEPBACK_FAULT", fault).output().unwrap().into()
    }

    /// Starts the program and does not wait.
    pub fn spawn(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// A command that runs git in the workspace.
    pub fn command_git(&self, arguments: &[&str]) -> Command {
        let mut command = self.clean("git", arguments);
        for (name, value) in [("NAME", "A"), ("EMAIL", "a@example.org"), ("DATE", "2026-01-01T00:00:00Z")] {
            command.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
        }
        command.env("GIT_CONFIG_NOSYSTEM", "1");
        command
    }

    /// Runs git in the workspace and fails the test unless it succeeds.
    #[track_caller]
    pub fn git(&self, arguments: &[&str]) -> String {
        let ran: Ran = self.command_git(arguments).output().unwrap().into();
        ran.exits(0).out
    }

    /// A small git repository in the workspace with one commit on `main`.
    pub fn init_git(&self) {
        self.git(&["init", "--quiet", "--initial-branch=main", "--template="]);
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "-m", "first"]);
    }

    /// A path in the workspace.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.work.join(name)
    }

    /// Writes a file with permissions 0644 and makes the directories above it.
    pub fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        let mut missing: Vec<&Path> = path.ancestors().skip(1).take_while(|dir| !dir.exists()).collect();
        while let Some(dir) = missing.pop() {
            fs::create_dir(dir).unwrap();
            fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    }

    /// Sets the permission bits of a path in the workspace.
    pub fn chmod(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
    }

    /// Makes a link in the workspace.
    pub fn link(&self, to: impl AsRef<Path>, name: &str) {
        symlink(to, self.path(name)).unwrap();
    }

    /// Everything in the workspace but git directories.
    pub fn files(&self) -> Copy {
        tree::copy_of(&self.work, |path| path == b".git" || path.ends_with(b"/.git"))
    }

    /// Everything in the workspace.
    pub fn everything(&self) -> Copy {
        tree::copy_of(&self.work, |_| false)
    }

    /// Fails the test unless the workspace (without git directories) is `expected`.
    #[track_caller]
    pub fn expect_files(&self, expected: &Copy, when: &str) {
        let differences = tree::differences(expected, &self.files());
        assert!(differences.is_empty(), "{when}: the workspace differs:\n{differences}");
    }

    /// Fails the test unless `point` restores into a new directory as `expected`.
    #[track_caller]
    pub fn expect_restores(&self, point: &str, expected: &Copy, when: &str) {
        let number = self.restored.fetch_add(1, Ordering::Relaxed);
        let into = self.root().join(format!("restored-{number}"));
        let ran =
            self.run([OsStr::new("restore"), OsStr::new(point), OsStr::new("--into"), into.as_os_str()]);
        assert_eq!(ran.code, Some(0), "{when}: restoring {point}: {}", ran.err);
        let differences = tree::differences(expected, &tree::copy_of(&into, |_| false));
        assert!(differences.is_empty(), "{when}: {point} restores differently:\n{differences}");
        fs::remove_dir_all(&into).unwrap();
    }

    /// Fails the test unless every byte of the store is sound.
    #[track_caller]
    pub fn expect_sound(&self, when: &str) {
        let ran = self.run(["fsck"]);
        assert_eq!(ran.code, Some(0), "{when}: fsck says:\n{}{}", ran.out, ran.err);
    }

    /// Fails the test if a temporary file of stepback or a lock in a git directory is left in the workspace.
    #[track_caller]
    pub fn expect_no_leftovers(&self, when: &str) {
        let left: Vec<String> = self
            .everything()
            .into_keys()
            .map(|path| String::from_utf8_lossy(&path).into_owned())
            .filter(|path| {
                let name = path.rsplit('/').next().unwrap_or_default();
                name.contains(".stepback-tmp-") || name.starts_with(".copy-") || name.ends_with(".lock")
            })
            .collect();
        assert!(left.is_empty(), "{when}: left behind: {left:?}");
    }
}
