//! The inbox: where a hook leaves what it saw when there is no time to open the database.
//!
//! Reporting that a file was read must not cost more than starting the process. So the report is appended to a file, and
//! whoever opens the workspace next takes it in: the next hook that makes a checkpoint, or any command. What could not be
//! recorded at all leaves a gap here, so that nobody believes a record to be complete that is not.
//!
//! Each line is one JSON document. A line that does not parse (a process was killed while writing, a disk was full) is a gap
//! too. Steps have ids that follow from what they record, so that taking the same line in twice does no harm.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepback_model::time::Timestamp;

const FILE: &str = "inbox.jsonl";
const TAKEN: &str = "inbox-taken.jsonl";

/// One line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Note {
    /// When.
    pub at: Timestamp,
    /// Which agent.
    pub agent: String,
    /// What its hook was given, redacted; nothing if it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// How long the conversation's file was then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcript_len: Option<u64>,
    /// Why it could not be recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<String>,
    /// The file that holds what a proxy carried; see [`crate::model_call_inbox`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<String>,
}

impl Note {
    /// A note that says nothing yet.
    pub fn new(at: Timestamp, agent: &str) -> Self {
        Self { at, agent: agent.to_owned(), payload: None, transcript_len: None, gap: None, carried: None }
    }
}

/// Appends a note to the inbox of a workspace.
pub fn leave(workspace_dir: &Path, note: &Note) -> io::Result<()> {
    let mut line = serde_json::to_vec(note).map_err(io::Error::other)?;
    line.push(b'\n');
    let path = workspace_dir.join(FILE);
    for _ in 0..100 {
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        file.lock()?;
        // Whoever takes the notes renames the file first; what is written to the old one afterwards would be lost.
        let same =
            fs::metadata(&path).is_ok_and(|now| file.metadata().is_ok_and(|own| own.ino() == now.ino()));
        if same {
            stepback_faults::point()?;
            return file.write_all(&line);
        }
    }
    Err(io::Error::other("the inbox keeps being taken away"))
}

/// Notes taken out of an inbox. They come back unless [`Taken::done`] is called.
#[derive(Debug)]
pub struct Taken {
    path: PathBuf,
    /// Oldest first; what is not a note stands as a gap.
    pub notes: Vec<Note>,
}

/// Whether anything waits.
pub fn is_empty(workspace_dir: &Path) -> bool {
    let has = |name: &str| fs::metadata(workspace_dir.join(name)).is_ok_and(|file| file.len() > 0);
    !has(FILE) && !has(TAKEN)
}

/// Takes all notes. The caller must hold the workspace's record lock. `now` is the time of what cannot be read.
pub fn take(workspace_dir: &Path, now: Timestamp) -> io::Result<Option<Taken>> {
    let (path, taken) = (workspace_dir.join(FILE), workspace_dir.join(TAKEN));
    // Somebody who took notes and died before recording them comes first.
    if !taken.exists() {
        match File::open(&path) {
            Ok(file) => {
                file.lock()?;
                fs::rename(&path, &taken)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let mut bytes = Vec::new();
    File::open(&taken)?.read_to_end(&mut bytes)?;
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let notes = lines.map(|line| {
        serde_json::from_slice(line).unwrap_or_else(|error| Note {
            gap: Some(format!("a note of {} bytes could not be read: {error}", line.len())),
            ..Note::new(now, "unknown")
        })
    });
    Ok(Some(Taken { notes: notes.collect(), path: taken }))
}

impl Taken {
    /// The notes are recorded; they will not come back. Returns them.
    pub fn done(self) -> io::Result<Vec<Note>> {
        fs::remove_file(self.path)?;
        Ok(self.notes)
    }
}
