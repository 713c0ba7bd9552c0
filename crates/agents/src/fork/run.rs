//! Carries out a fork: writes its files, and runs the command that must run before it can continue.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::{FileWrite, Fork, ForkError, PrepareCommand};
use crate::transcript::{TranscriptCursor, read};

/// Timeout of an agent's own command, in tenths of a second.
const PATIENCE: u32 = 1200;

/// A fork that is ready to continue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadyFork {
    /// The id of the new session.
    pub session: String,
    /// The command that continues it.
    pub command: Vec<String>,
    /// The directory to run it in.
    pub cwd: PathBuf,
}

/// Carries out a fork. No existing file is overwritten; if anything fails, the files written so far are removed.
pub fn execute_fork(fork: &Fork) -> Result<ReadyFork, ForkError> {
    let mut written = Vec::new();
    let done = write_files(&fork.writes, &mut written).and_then(|()| match &fork.prepare {
        Some(prepare) => run_prepare_command(prepare, fork),
        None => Ok(()),
    });
    if done.is_err() {
        // No other process uses these files, and the session they belong to does not exist.
        for path in written {
            let _ = fs::remove_file(path);
        }
    }
    done.map(|()| ReadyFork {
        session: fork.session.clone(),
        command: fork.command.clone(),
        cwd: fork.cwd.clone(),
    })
}

fn write_files<'a>(writes: &'a [FileWrite], written: &mut Vec<&'a Path>) -> Result<(), ForkError> {
    for FileWrite { path, bytes } in writes {
        let failed = |source| ForkError::Write { path: path.clone(), source };
        if let Some(folder) = path.parent() {
            stepback_faults::point().map_err(failed)?;
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        }
        stepback_faults::point().map_err(failed)?;
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        written.push(path);
        stepback_faults::point().map_err(failed)?;
        file.write_all(bytes).map_err(failed)?;
    }
    Ok(())
}

fn run_prepare_command(prepare: &PrepareCommand, fork: &Fork) -> Result<(), ForkError> {
    let failed = |why: String| ForkError::Prepare { command: prepare.command.join(" "), why };
    let outcome = wait_for_command(prepare, fork);
    let made = read(&prepare.location, &TranscriptCursor::default()).map(|fresh| fresh.lines.len());
    let _ = fs::remove_file(&prepare.file);
    match (outcome, made) {
        (Err(error), _) => Err(failed(error.to_string())),
        (Ok(()), Ok(lines)) if lines == fork.kept_lines => Ok(()),
        (Ok(()), Ok(lines)) => Err(failed(format!("{lines} of {} messages arrived", fork.kept_lines))),
        (Ok(()), Err(error)) => Err(failed(error.to_string())),
    }
}

fn wait_for_command(prepare: &PrepareCommand, fork: &Fork) -> io::Result<()> {
    let (program, arguments) = prepare.command.split_first().ok_or_else(|| io::Error::other("no command"))?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&fork.cwd);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    for _ in 0..PATIENCE {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) };
        }
        thread::sleep(Duration::from_millis(100));
    }
    child.kill()?;
    child.wait()?;
    Err(io::Error::other("it did not exit"))
}
