//! Control of live agents: breakpoints, pauses, stops and answers, shared between processes through files.
//!
//! The process that stops is an agent's hook; the one that answers is a command of the user. Neither is a server, and neither
//! may depend on the other running. So all state is in small files in the store, each written to a temporary name and
//! renamed:
//!
//! | file | what it is |
//! |---|---|
//! | `breakpoints.json` | the breakpoints of the workspace and how often each was hit |
//! | `pause-SESSION`, `pause-all` | stop at the next call |
//! | `say-SESSION-N` | a message for the agent, delivered with the next answer |
//! | `stop-ID.json` | an agent is waiting here; its hook process is named in it |
//! | `answer-ID.json` | the user's answer |
//!
//! If the directory does not exist, nothing is to be stopped, and a hook needs one `stat` to know that.

mod breakpoint;
mod hit_condition;
mod log_message;
mod stop;

pub use breakpoint::{
    BreakContext, BreakSide, Breakpoint, Breakpoints, BudgetScope, BudgetSpending, Condition,
};
pub use hit_condition::{HitCondition, HitConditionError};
pub use log_message::render_message;
pub use stop::{Stop, StopAnswer, is_process_running};

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use stepback_model::ids::SessionId;
use stepback_store::new_file::{Durability, replace_file};

use crate::error::EngineError;
use crate::workspace::Workspace;

/// The control files of one workspace.
#[derive(Debug)]
pub struct Control {
    dir: PathBuf,
}

impl Workspace {
    /// Returns the control files of this workspace. Fails for a store without a local directory.
    pub fn control(&self) -> Result<Control, EngineError> {
        match self.local_dir()? {
            Some(dir) => Ok(Control::new(&dir)),
            None => Err(EngineError::NoLocalDirectory),
        }
    }
}

impl Control {
    /// The control files in the directory of a workspace.
    pub fn new(workspace_dir: &Path) -> Self {
        Self { dir: workspace_dir.join("control") }
    }

    /// Whether there may be breakpoints, pauses or messages. `false` means there are none.
    pub fn is_armed(&self) -> bool {
        self.dir.is_dir()
    }

    /// Stops `session`, or every session, at its next call.
    pub fn pause(&self, session: Option<SessionId>) -> io::Result<()> {
        self.write_file(&pause_file_name(session), b"")
    }

    /// Whether `session` is to stop at its next call.
    pub fn is_paused(&self, session: SessionId) -> bool {
        self.dir.join(pause_file_name(Some(session))).exists()
            || self.dir.join(pause_file_name(None)).exists()
    }

    /// Lets `session`, or every session, run again. Returns whether anything was paused.
    pub fn unpause(&self, session: Option<SessionId>) -> io::Result<bool> {
        let mut was_paused = false;
        for name in self.list_files("pause-")? {
            if session.is_none() || name == pause_file_name(session) || name == pause_file_name(None) {
                was_paused |= self.remove_file(&name)?;
            }
        }
        Ok(was_paused)
    }

    /// Queues a message for `session`.
    pub fn queue_message(&self, session: SessionId, text: &str) -> io::Result<()> {
        for number in 0..10_000 {
            let name = format!("say-{session}-{number:04}");
            if !self.dir.join(&name).exists() {
                return self.write_file(&name, text.as_bytes());
            }
        }
        Err(io::Error::other("too many messages are waiting"))
    }

    /// Removes and returns the messages for `session`, oldest first. Each is delivered once.
    pub fn take_messages(&self, session: SessionId) -> io::Result<Vec<String>> {
        let mut names = self.list_files(&format!("say-{session}-"))?;
        names.sort();
        let mut texts = Vec::new();
        for name in names {
            let text = fs::read_to_string(self.dir.join(&name));
            if self.remove_file(&name)? {
                texts.extend(text);
            }
        }
        Ok(texts)
    }

    /// Removes the directory if it is empty, so that hooks need not look any further.
    pub fn disarm_if_empty(&self) {
        // Removing fails while other files exist, as intended; the lock file does not count.
        if let Ok(names) = self.list_files("")
            && names.iter().all(|name| name == LOCK)
        {
            // The process that holds the lock is about to write a file here.
            let lock = File::open(self.dir.join(LOCK));
            if lock.as_ref().is_ok_and(|lock| lock.try_lock().is_err()) {
                return;
            }
            let _ = self.remove_file(LOCK);
            let _ = fs::remove_dir(&self.dir);
        }
    }

    fn lock(&self) -> io::Result<File> {
        let path = self.dir.join(LOCK);
        self.retry_if_removed(|| {
            let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            file.lock()?;
            // The previous holder may have removed the lock file with the directory: then this lock excludes no other
            // process.
            match fs::metadata(&path)?.ino() == file.metadata()?.ino() {
                true => Ok(file),
                false => Err(io::ErrorKind::NotFound.into()),
            }
        })
    }

    /// Retries while another process removes the directory because it was empty.
    fn retry_if_removed<T>(&self, mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        for _ in 0..100 {
            self.create_dir()?;
            match work() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => return other,
            }
        }
        Err(io::Error::other("the control files are removed repeatedly"))
    }

    fn create_dir(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)
    }

    /// Writes a file atomically: a reader sees all of it or nothing.
    fn write_file(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.dir.join(name);
        self.retry_if_removed(|| replace_file(&path, bytes, 0o600, Durability::Unsynced))
    }

    fn remove_file(&self, name: &str) -> io::Result<bool> {
        match fs::remove_file(self.dir.join(name)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn list_files(&self, prefix: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            if let Ok(name) = entry?.file_name().into_string()
                && name.starts_with(prefix)
            {
                names.push(name);
            }
        }
        Ok(names)
    }
}

const LOCK: &str = "lock";

fn pause_file_name(session: Option<SessionId>) -> String {
    session.map_or_else(|| "pause-all".into(), |session| format!("pause-{session}"))
}
