//! How many model turns a session may have begun since its last checkpoint, as far as hooks know without the database.
//!
//! A hook that only leaves a note in the inbox cannot see how many turns there were: that is decided when the note is
//! recorded. But every turn with a call begins with one, so the calls since are an upper bound, and as long as it is below
//! the user's limit no checkpoint is due. The count is the length of a file, one byte for each call: appending a byte needs
//! no lock, and a hook that opens the store sets the length to the number of turns that really began.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use stepback_model::hash::{Hash, ObjectKind};

const DIR: &str = "turns";
/// How many hexadecimal digits of the hash of a session's id are the name of its file.
const NAME_DIGITS: usize = 16;
/// Age after which the file of a session is removed that has not ended: its agent was killed.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

/// The counter of one session.
#[derive(Debug)]
pub(crate) struct TurnCounter {
    path: PathBuf,
}

impl TurnCounter {
    /// Returns the counter of the session that its agent calls `session`. `dir` is the workspace's directory in the store.
    pub fn new(dir: &Path, session: &str) -> Self {
        let name = Hash::of(ObjectKind::Blob, session.as_bytes()).to_string();
        Self { path: dir.join(DIR).join(&name[..NAME_DIGITS]) }
    }

    /// The most turns that may have begun since the last checkpoint.
    pub fn most(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |file| file.len())
    }

    /// Counts a call.
    pub fn add(&self) -> io::Result<()> {
        let open = || OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path);
        stepback_faults::point()?;
        let mut file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.create_dir()?;
                open()?
            }
            other => other?,
        };
        file.write_all(b"\n")
    }

    /// Sets the number of turns that have begun.
    pub fn set(&self, turns: u64) -> io::Result<()> {
        if self.most() == turns {
            return Ok(());
        }
        self.create_dir()?;
        stepback_faults::point()?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600).open(&self.path)?.set_len(turns)
    }

    fn create_dir(&self) -> io::Result<()> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(dir)
    }

    /// Removes the counter of a session that has ended, and those of sessions that were killed long ago.
    pub fn remove(&self) {
        let _ = fs::remove_file(&self.path);
        let entries = self.path.parent().and_then(|dir| fs::read_dir(dir).ok());
        for entry in entries.into_iter().flatten().flatten() {
            let modified = entry.metadata().and_then(|file| file.modified()).ok();
            let age = modified.and_then(|modified| SystemTime::now().duration_since(modified).ok());
            if age.is_some_and(|age| age > MAX_AGE) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_for_each_session_until_the_number_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (TurnCounter::new(dir.path(), "one"), TurnCounter::new(dir.path(), "../other"));
        assert_eq!(one.most(), 0);
        one.set(0).unwrap();
        assert!(!dir.path().join(DIR).exists(), "nothing to count, nothing to write");
        (0..3).for_each(|_| one.add().unwrap());
        other.add().unwrap();
        assert_eq!((one.most(), other.most()), (3, 1));
        one.set(1).unwrap();
        one.add().unwrap();
        assert_eq!(one.most(), 2);
        one.remove();
        assert_eq!((one.most(), other.most()), (0, 1));
    }
}
