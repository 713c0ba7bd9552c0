//! The process that a hook starts to watch large workspaces of one store: `stepback watcher-process DIR ROOT`.
//!
//! It takes no part in recording. It exits after half an hour without a question, when its store is removed, moved or
//! replaced, when its program is replaced, and when it is asked to; killing it at any moment loses nothing.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use rustix::process::{Pid, Signal, kill_process};

use crate::launch;
use crate::server::{EndReason, Watcher, WatcherConfig, lock_holder};

/// The argument that makes our program run as this process.
pub const WORD: &str = "watcher-process";
/// It exits after this long without a question.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// How often it checks whether it has to exit.
const EXIT_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// After running for this long it counts as started successfully.
const SUCCESSFUL_START_AGE: Duration = Duration::from_secs(60);

/// Runs as this process if the arguments ask for it: the store's directory, the workspace to begin with, and optionally
/// after how many seconds without a question it exits. Returns the exit code.
pub fn run_if_asked(arguments: &[OsString]) -> Option<u8> {
    let (dir, root, idle) = match arguments {
        [_, word, dir, root] if word == WORD => (dir, root, None),
        [_, word, dir, root, idle] if word == WORD => (dir, root, idle.to_str()?.parse().ok()),
        _ => return None,
    };
    detach();
    let idle = idle.map_or(IDLE_TIMEOUT, Duration::from_secs);
    Some(run(Path::new(dir), PathBuf::from(root), idle))
}

fn run(dir: &Path, root: PathBuf, idle: Duration) -> u8 {
    let config = WatcherConfig { recent: vec![root], automatic: true, idle, ..WatcherConfig::new(dir) };
    let watcher = match Watcher::start(config) {
        Ok(Some(watcher)) => watcher,
        // A server or another hook's watcher was faster.
        Ok(None) => return 0,
        Err(error) => {
            launch::note_failure(dir, &format!("cannot listen in {}: {error}", dir.display()));
            return 1;
        }
    };
    let started = Instant::now();
    let mut has_stayed = false;
    let reason = loop {
        if let Some(reason) = watcher.wait_for_end(EXIT_CHECK_INTERVAL.min(idle)) {
            break reason;
        }
        if !has_stayed && started.elapsed() >= SUCCESSFUL_START_AGE {
            has_stayed = true;
            launch::note_success(dir);
        }
    };
    match reason {
        EndReason::Asked | EndReason::Idle => launch::note_success(dir),
        // Otherwise two versions in use by turns would keep replacing each other's watcher.
        EndReason::OtherVersion if !has_stayed => {
            launch::note_failure(dir, "the program was updated, or another version is in use");
        }
        EndReason::OtherVersion | EndReason::StoreGone => {}
    }
    watcher.stop();
    0
}

/// Detaches from everything that belongs to the process that started this one. Its input and output are empty already.
/// Call it before any other thread runs or a file is opened.
pub fn detach() {
    close_inherited_files();
    // Signals for the agent's terminal or process group must not reach us. Fails only for the leader of a group.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    rustix::process::umask(Mode::from_raw_mode(0o077));
    // The first process to be killed when memory is short: nothing depends on it.
    let _ = fs::write("/proc/self/oom_score_adj", "800");
}

/// Closes files that an agent left open for its hooks: with an open pipe the agent would wait for the end of our output.
fn close_inherited_files() {
    // SAFETY: this process has opened no file yet that any value stands for, and no other thread runs.
    unsafe {
        if libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) == 0 {
            return;
        }
    }
    let Ok(open) = fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<i32> =
        open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // SAFETY: as above; the one that listed them is closed already, and closing it again fails.
        unsafe { libc::close(number) };
    }
}

/// Kills the watcher of a store that does not answer, if a hook started it. Returns its process id.
pub fn kill_silent(dir: &Path) -> Option<u32> {
    let pid = lock_holder(dir)?;
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let is_watcher = words.split(|byte| *byte == 0).nth(1) == Some(WORD.as_bytes());
    let process = Pid::from_raw(i32::try_from(pid).ok()?)?;
    (is_watcher && kill_process(process, Signal::KILL).is_ok()).then_some(pid)
}
