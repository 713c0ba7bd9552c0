//! The inbox: a file to which hooks append events when opening the database would take too long.
//!
//! Reporting that a file was read must not cost more than starting the process. So the report is appended to a file, and the
//! next process that opens the workspace records it: a hook that makes a checkpoint, or any command. An event that could not
//! be recorded at all leaves a gap here, so that an incomplete record does not look complete.
//!
//! Each line is one JSON document. A line that does not parse (a process was killed while writing, a disk was full) is a gap
//! too. The ids of steps are derived from their content, so that recording the same line twice does no harm.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepback_engine::recorder::settings::LeftOut;
use stepback_model::time::Timestamp;

const FILE: &str = "inbox.jsonl";
const TAKEN_INBOX_FILE: &str = "inbox-taken.jsonl";

/// One line of the inbox.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct InboxNote {
    /// When the event happened.
    pub at: Timestamp,
    /// Name of the agent.
    pub agent: String,
    /// The redacted payload of the hook; `None` if it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// Length of the transcript file at that time, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcript_len: Option<u64>,
    /// Why the event could not be recorded; `None` if nothing failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<String>,
    /// What was cut from the event.
    #[serde(default, skip_serializing_if = "LeftOut::is_empty")]
    pub left_out: LeftOut,
    /// Name of the file with a model call that a proxy forwarded; see [`crate::model_call_inbox`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<String>,
}

impl InboxNote {
    /// Returns a note without content.
    pub fn new(at: Timestamp, agent: &str) -> Self {
        Self {
            at,
            agent: agent.to_owned(),
            payload: None,
            transcript_len: None,
            gap: None,
            left_out: LeftOut::default(),
            carried: None,
        }
    }
}

/// Appends a note to the inbox of a workspace.
pub fn append_note(workspace_dir: &Path, note: &InboxNote) -> io::Result<()> {
    let mut line = serde_json::to_vec(note).map_err(io::Error::other)?;
    line.push(b'\n');
    let path = workspace_dir.join(FILE);
    for _ in 0..100 {
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        file.lock()?;
        // `take` renames the file before it reads it; a line written to the renamed file afterwards would be lost.
        let same =
            fs::metadata(&path).is_ok_and(|now| file.metadata().is_ok_and(|own| own.ino() == now.ino()));
        if same {
            stepback_faults::point()?;
            return file.write_all(&line);
        }
    }
    Err(io::Error::other("the inbox is removed repeatedly"))
}

/// Notes taken out of an inbox. They are taken again later unless [`TakenNotes::delete_recorded`] is called.
#[derive(Debug)]
pub struct TakenNotes {
    path: PathBuf,
    /// Oldest first; a line that does not parse is a gap.
    pub notes: Vec<InboxNote>,
}

/// Whether the inbox has no notes.
pub fn is_empty(workspace_dir: &Path) -> bool {
    let has = |name: &str| fs::metadata(workspace_dir.join(name)).is_ok_and(|file| file.len() > 0);
    !has(FILE) && !has(TAKEN_INBOX_FILE)
}

/// What waits in an inbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InboxSummary {
    /// How many notes there are.
    pub notes: u64,
    /// How many of them say that an event could not be recorded, or cannot be read.
    pub gaps: u64,
    /// When the oldest note that can be read was left.
    pub oldest: Option<Timestamp>,
}

/// Counts the notes of a workspace without taking them.
pub fn summarize(workspace_dir: &Path) -> io::Result<InboxSummary> {
    let mut summary = InboxSummary::default();
    for name in [TAKEN_INBOX_FILE, FILE] {
        let file = match File::open(workspace_dir.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in BufReader::new(file).split(b'\n') {
            let line = line?;
            if line.is_empty() {
                continue;
            }
            let note = serde_json::from_slice::<InboxNote>(&line).ok();
            summary.notes += 1;
            summary.gaps += u64::from(note.as_ref().is_none_or(|note| note.gap.is_some()));
            let at = note.map(|note| note.at);
            summary.oldest = match (summary.oldest, at) {
                (Some(oldest), Some(at)) => Some(oldest.min(at)),
                (oldest, at) => oldest.or(at),
            };
        }
    }
    Ok(summary)
}

/// Takes all notes. The caller must hold the workspace's record lock. `now` is the time given to lines that do not parse.
pub fn take_notes(workspace_dir: &Path, now: Timestamp) -> io::Result<Option<TakenNotes>> {
    let (path, taken) = (workspace_dir.join(FILE), workspace_dir.join(TAKEN_INBOX_FILE));
    // Notes of a process that died before it recorded them come first.
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
        serde_json::from_slice(line).unwrap_or_else(|error| InboxNote {
            gap: Some(format!("a note of {} bytes could not be read: {error}", line.len())),
            ..InboxNote::new(now, "unknown")
        })
    });
    Ok(Some(TakenNotes { notes: notes.collect(), path: taken }))
}

impl TakenNotes {
    /// Removes the notes after they were recorded, and returns them.
    pub fn delete_recorded(self) -> io::Result<Vec<InboxNote>> {
        fs::remove_file(self.path)?;
        Ok(self.notes)
    }
}
