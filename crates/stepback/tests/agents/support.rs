//! A home and a git repository for every test, and agents that live and work there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use stepback_testkit::agent::RealAgent;
use stepback_testkit::model::Agent;
use stepback_testkit::tree;
use tempfile::TempDir;

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_stepback");

/// A world for one test.
pub struct World {
    _dir: TempDir,
    /// `$HOME` of the agent.
    pub home: PathBuf,
    /// The repository it works in.
    pub work: PathBuf,
    /// The store of stepback.
    pub store: PathBuf,
}

impl World {
    /// A world whose repository holds these files, committed.
    pub fn new(files: &[(&str, &str)]) -> Self {
        let dir = TempDir::with_prefix_in("stepback-agents-", tree::scratch_place()).unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (home, work, store) = (root.join("home"), root.join("work"), root.join("store"));
        for made in [&home, &work] {
            fs::create_dir(made).unwrap();
        }
        let world = Self { _dir: dir, home, work, store };
        for (name, content) in files {
            world.write(name, content);
        }
        world.git(&["init", "--quiet", "--initial-branch=main", "--template="]);
        world.git(&["add", "--all"]);
        world.git(&["commit", "--quiet", "--allow-empty", "-m", "first"]);
        world
    }

    /// An agent that lives and works here and finds `stepback` on its path.
    pub fn agent(&self, agent: Agent) -> RealAgent {
        RealAgent::new(agent, &self.home, &self.work)
            .path(Path::new(PROGRAM).parent().unwrap())
            .env("STEPBACK_HOME", &self.store)
    }

    /// Writes a file into the repository.
    pub fn write(&self, name: &str, content: &str) {
        let path = self.work.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Reads a file of the repository; `None` if there is none.
    pub fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.work.join(name)).ok()
    }

    /// Runs git in the repository.
    #[track_caller]
    pub fn git(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("git");
        command
            .args(arguments)
            .current_dir(&self.work)
            .env("HOME", &self.home)
            .env("GIT_CONFIG_NOSYSTEM", "1");
        for (name, value) in [("NAME", "A"), ("EMAIL", "a@example.org"), ("DATE", "2026-01-01T00:00:00Z")] {
            command.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
