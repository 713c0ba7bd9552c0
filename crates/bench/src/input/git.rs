//! How the benchmark calls git: without the machine's configuration and without background work.
//!
//! A user's configuration (signing, hooks, file system monitor) would make runs incomparable. Automatic
//! maintenance is off, which favours the git-based peers: in daily use it costs them time now and then.

use std::process::Command;

/// A git command with a fixed identity and no outside configuration.
pub fn command() -> Command {
    let mut command = Command::new("git");
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"] {
        command.env_remove(variable);
    }
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_OPTIONAL_LOCKS", "1")
        .env("GIT_AUTHOR_NAME", "bench")
        .env("GIT_AUTHOR_EMAIL", "bench@example.invalid")
        .env("GIT_COMMITTER_NAME", "bench")
        .env("GIT_COMMITTER_EMAIL", "bench@example.invalid")
        .env("LC_ALL", "C")
        .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"]);
    command
}

/// The object id or other single line that git printed.
pub fn parse_line(stdout: &[u8]) -> String {
    String::from_utf8_lossy(stdout).trim().to_owned()
}

/// The parts of git's NUL-separated output that are valid UTF-8.
pub fn split_nul(stdout: &[u8]) -> Vec<String> {
    stdout
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty())
        .filter_map(|part| String::from_utf8(part.to_vec()).ok())
        .collect()
}
