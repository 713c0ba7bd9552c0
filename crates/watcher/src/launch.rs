//! Starts a watcher as a detached process, only once, and with growing pauses after failures.
//!
//! Hooks start it, and an agent waits for them. So nothing here waits, and the new process inherits nothing from the agent:
//! no input or output, no environment variables, no working directory. The number of attempts is kept in a small file,
//! which concurrent hooks lock; a watcher that keeps running resets the count.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use stepback_worktree::scan::watch_scope::Territory;

use crate::process;
use crate::server::DIRECTORY;

/// Name of the file in the watcher's directory that counts attempts.
const FILE: &str = "starts";
/// The pause after the first failed attempt, in seconds; it doubles with each further one.
const FIRST_RETRY_SECONDS: u64 = 5;
/// The longest pause, in seconds.
const MAX_RETRY_SECONDS: u64 = 3600;

/// Starts watchers for one store.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The path of our own program.
    pub program: PathBuf,
    /// The store's directory on this machine.
    pub dir: PathBuf,
}

/// The result of an attempt to start a watcher.
#[derive(Debug)]
pub enum LaunchOutcome {
    /// A process was started.
    Started(Child),
    /// Skipped because an earlier attempt failed recently, or another hook is starting one.
    NotNow,
    /// The file system of the workspace does not report every change.
    Unsupported,
}

/// Attempts to start a watcher since the last one that kept running.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LaunchRecord {
    /// The number of attempts.
    pub tries: u32,
    /// The time of the last attempt, in seconds since 1970.
    pub last: u64,
    /// Why it ended, if it could report that.
    pub failure: Option<String>,
}

impl LaunchRecord {
    /// Reads the record of a store.
    pub fn load(dir: &Path) -> Self {
        fs::read_to_string(dir.join(DIRECTORY).join(FILE))
            .map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut lines = text.splitn(3, '\n');
        let mut number = || lines.next().and_then(|line| line.trim().parse::<u64>().ok()).unwrap_or(0);
        let (tries, last) = (u32::try_from(number()).unwrap_or(u32::MAX), number());
        let failure = lines.next().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        Self { tries, last, failure }
    }

    fn write(&self, file: &mut File) -> io::Result<()> {
        stepback_faults::point()?;
        file.set_len(0)?;
        file.rewind()?;
        let failure = self.failure.as_deref().unwrap_or_default();
        write!(file, "{}\n{}\n{failure}\n", self.tries, self.last)
    }

    /// The time of the next allowed attempt, in seconds since 1970.
    fn next_try(&self) -> u64 {
        let doublings = self.tries.saturating_sub(1).min(16);
        let pause =
            if self.tries == 0 { 0 } else { (FIRST_RETRY_SECONDS << doublings).min(MAX_RETRY_SECONDS) };
        self.last.saturating_add(pause)
    }

    /// How long from now no attempt is made.
    pub fn pause(&self) -> Duration {
        let now = seconds_now();
        if self.can_launch(now) { Duration::ZERO } else { Duration::from_secs(self.next_try() - now) }
    }

    fn can_launch(&self, now: u64) -> bool {
        // If the clock was set back, do not wait for ever.
        now >= self.next_try() || now < self.last
    }
}

impl Launcher {
    /// Starts a watcher that begins with the workspace at `root`, unless an attempt was made recently.
    pub fn launch(&self, root: &Path) -> io::Result<LaunchOutcome> {
        if Territory::open(root, None)?.is_none() {
            return Ok(LaunchOutcome::Unsupported);
        }
        let Some(mut file) = open_record(&self.dir, false)? else { return Ok(LaunchOutcome::NotNow) };
        let mut record = read_record(&mut file)?;
        let now = seconds_now();
        if !record.can_launch(now) {
            return Ok(LaunchOutcome::NotNow);
        }
        record.tries = record.tries.saturating_add(1);
        record.last = now;
        record.write(&mut file)?;
        let started = Command::new(&self.program)
            .arg(process::WORD)
            .args([&*self.dir, root])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        if let Err(error) = &started {
            record.failure = Some(format!("cannot start {}: {error}", self.program.display()));
            record.write(&mut file)?;
        }
        started.map(LaunchOutcome::Started)
    }
}

/// Records why a watcher could not start or keep running.
pub(crate) fn note_failure(dir: &Path, failure: &str) {
    change_record(dir, |record| record.failure = Some(failure.replace('\n', " ")));
}

/// Records that a watcher kept running, or ended normally: the next one may be started at once.
pub(crate) fn note_success(dir: &Path) {
    change_record(dir, |record| *record = LaunchRecord { last: record.last, ..LaunchRecord::default() });
}

fn change_record(dir: &Path, change: impl FnOnce(&mut LaunchRecord)) {
    // A store that was removed must not be created again.
    if !dir.join(DIRECTORY).is_dir() {
        return;
    }
    let changed = open_record(dir, true).and_then(|file| {
        let Some(mut file) = file else { return Ok(()) };
        let mut record = read_record(&mut file)?;
        change(&mut record);
        record.write(&mut file)
    });
    // On failure only a count is lost.
    drop(changed);
}

/// Opens and locks the record; `None` if another process holds the lock and `waits` is false.
fn open_record(dir: &Path, waits: bool) -> io::Result<Option<File>> {
    let dir = dir.join(DIRECTORY);
    if !dir.is_dir() {
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    }
    let mut options = File::options();
    let file =
        options.read(true).write(true).create(true).truncate(false).mode(0o600).open(dir.join(FILE))?;
    if waits {
        file.lock()?;
        return Ok(Some(file));
    }
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

fn read_record(file: &mut File) -> io::Result<LaunchRecord> {
    let mut text = String::new();
    // A damaged record counts as none.
    match Read::take(&mut *file, 4096).read_to_string(&mut text) {
        Err(error) if error.kind() != io::ErrorKind::InvalidData => Err(error),
        _ => Ok(LaunchRecord::parse(&text)),
    }
}

/// The present time, in seconds since 1970.
fn seconds_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// The executable of a process, to detect when it is replaced.
#[derive(Debug)]
pub(crate) struct ProgramFile {
    path: PathBuf,
    id: (u64, u64),
}

impl ProgramFile {
    /// The executable of this process; `None` where the system does not report it.
    pub fn of_this_process() -> Option<Self> {
        let path = std::env::current_exe().ok()?;
        let metadata = fs::metadata("/proc/self/exe").ok()?;
        Some(Self { path, id: (metadata.dev(), metadata.ino()) })
    }

    /// Whether its path still leads to the same file.
    pub fn is_in_place(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let record = |tries| LaunchRecord { tries, last: 1000, failure: None };
        assert!(record(0).can_launch(1000));
        assert!(!record(1).can_launch(1004) && record(1).can_launch(1005));
        assert!(!record(3).can_launch(1019) && record(3).can_launch(1020));
        assert!(
            !record(40).can_launch(1000 + MAX_RETRY_SECONDS - 1)
                && record(40).can_launch(1000 + MAX_RETRY_SECONDS)
        );
        assert!(record(40).can_launch(10), "the clock was set back");
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_damage_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = open_record(dir.path(), true).unwrap().unwrap();
        let record = LaunchRecord { tries: 3, last: 77, failure: Some("no more watches".into()) };
        record.write(&mut file).unwrap();
        assert!(open_record(dir.path(), false).unwrap().is_none(), "another hook has it");
        drop(file);
        assert_eq!(LaunchRecord::load(dir.path()), record);
        note_success(dir.path());
        assert_eq!(LaunchRecord::load(dir.path()), LaunchRecord { last: 77, ..LaunchRecord::default() });
        fs::write(dir.path().join(DIRECTORY).join(FILE), b"\xff\xfe nonsense").unwrap();
        assert_eq!(LaunchRecord::load(dir.path()), LaunchRecord::default());
        note_failure(dir.path(), "two\nlines");
        assert_eq!(LaunchRecord::load(dir.path()).failure.as_deref(), Some("two lines"));
    }

    #[test]
    fn a_store_that_is_gone_is_not_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("gone");
        note_success(&store);
        note_failure(&store, "no");
        assert!(!store.exists());
    }

    #[test]
    fn a_program_that_cannot_be_started_is_not_tried_at_once_again() {
        let dir = tempfile::tempdir_in(stepback_testkit::tree::scratch_place()).unwrap();
        let launcher = Launcher { program: "/nowhere/stepback".into(), dir: dir.path().join("store") };
        assert!(launcher.launch(dir.path()).is_err());
        let record = LaunchRecord::load(&launcher.dir);
        assert_eq!(record.tries, 1);
        assert!(record.failure.unwrap().contains("/nowhere/stepback"));
        assert!(matches!(launcher.launch(dir.path()).unwrap(), LaunchOutcome::NotNow));
    }
}
