//! The process, or thread of a server, that keeps the mirrors of a store up to date: one for each store.
//!
//! Each mirror has a thread of its own, so that one that cannot be reached does not delay the others. A thread looks at the
//! store's record of commits many times a second, which costs one `stat`, and syncs when it has grown. After a failure it
//! tries again, with growing pauses; recording goes on meanwhile.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stepback_model::env::Env;
use stepback_store::embedded::EmbeddedStore;

use crate::address::{CreateDirectory, MirrorAddress};
use crate::archive::MirrorArchive;
use crate::error::MirrorError;
use crate::settings::{self, ConfiguredMirror, MirrorSettings, MirrorState};
use crate::storage::StorageAccess;
use crate::sync::{MirrorSync, SyncReport};

/// How often the record of commits is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often the list of mirrors is looked at.
const SETTINGS_INTERVAL: Duration = Duration::from_millis(500);
/// The pause after the first failed sync; it doubles with each further one.
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// The longest pause.
const MAX_RETRY: Duration = Duration::from_secs(60);
/// A process with a mirror that cannot be synced exits only after this long without a commit.
const FAILING_IDLE: Duration = Duration::from_secs(600);
/// How long a process waits for the lock, which a hook may hold for a moment.
const LOCK_TIMEOUT: Duration = Duration::from_millis(200);

/// Keeps the mirrors of one store up to date.
pub struct MirrorService<'a> {
    /// The directory of the store.
    pub dir: &'a Path,
    /// The clock.
    pub env: Arc<dyn Env>,
    /// Ends the service when it becomes true.
    pub stop: &'a AtomicBool,
    /// After this long without a commit it ends by itself; `None`: never.
    pub idle: Option<Duration>,
    /// These mirrors, instead of those in the store's list: then nothing is written into the store's directory, and there may
    /// be any number of services. For a user other than the store's owner.
    pub mirrors: Option<MirrorSettings>,
    /// How places other than directories are reached.
    pub access: StorageAccess,
    /// Called after every sync that did something or failed, with the address of the mirror.
    pub observer: Option<&'a SyncObserver<'a>>,
}

/// Gets the address of a mirror, and the outcome of a sync.
pub type SyncObserver<'a> = dyn Fn(&str, &Result<SyncReport, MirrorError>) + Sync + 'a;

/// Why the service ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceEnd {
    /// Another process has the lock and does the same.
    AlreadyRunning,
    /// There was no commit for a while, there are no mirrors any more, the store was removed, or it was asked to.
    Finished,
}

/// The state of the record of commits, as the system reports it.
type RecordState = Option<(u64, u64, u64)>;

/// Returns the state of the record of commits; it changes with every commit.
fn record_state(dir: &Path) -> RecordState {
    let found = fs::metadata(dir.join("commits.log")).ok()?;
    Some((found.dev(), found.ino(), found.len()))
}

/// What the threads of a service share.
struct SharedState {
    /// Ends the threads: the list of mirrors changed, or the service ends.
    stop: AtomicBool,
    /// Number of mirrors whose last sync failed.
    failing: AtomicU64,
}

impl MirrorService<'_> {
    /// Runs until it ends.
    pub fn run(&self) -> Result<ServiceEnd, MirrorError> {
        if self.mirrors.is_some() {
            return self.run_locked().map(|_| ServiceEnd::Finished);
        }
        loop {
            let Some(lock) = self.lock()? else { return Ok(ServiceEnd::AlreadyRunning) };
            let seen = self.run_locked()?;
            drop(lock);
            // A process that committed just before the lock was released relied on this one.
            let is_finished = self.stop.load(Ordering::Relaxed) || !MirrorSettings::exist(self.dir);
            if is_finished || record_state(self.dir) == seen {
                return Ok(ServiceEnd::Finished);
            }
        }
    }

    fn lock(&self) -> Result<Option<File>, MirrorError> {
        let failed = |error| MirrorError::io("lock the mirrors of", self.dir.display())(error);
        let path = settings::prepare_directory(self.dir).map_err(failed)?;
        let started = Instant::now();
        loop {
            let file = open_lock(&path).map_err(failed)?;
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::WouldBlock) if started.elapsed() < LOCK_TIMEOUT => {
                    thread::sleep(Duration::from_millis(2));
                }
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
    }

    /// Returns the state of the record that was seen last.
    fn run_locked(&self) -> Result<RecordState, MirrorError> {
        let mut last_change = (record_state(self.dir), Instant::now());
        loop {
            let settings = match &self.mirrors {
                Some(mirrors) => Some(mirrors.clone()),
                None => MirrorSettings::load(self.dir)?,
            };
            let Some(settings) = settings else { return Ok(last_change.0) };
            let store = EmbeddedStore::open_existing(self.dir)?;
            let database = database_id(self.dir);
            let shared = SharedState { stop: AtomicBool::new(false), failing: AtomicU64::new(0) };
            let is_over = thread::scope(|scope| {
                for mirror in &settings.mirrors {
                    let worker = MirrorWorker {
                        service: self,
                        store: &store,
                        id: &settings.id,
                        mirror,
                        shared: &shared,
                    };
                    scope.spawn(move || worker.run());
                }
                let is_over = self.wait_for_change(&settings, database, &shared, &mut last_change);
                shared.stop.store(true, Ordering::Relaxed);
                is_over
            });
            if is_over {
                return Ok(last_change.0);
            }
        }
    }

    /// Waits until the list of mirrors changes, which returns `false`, or until the service has to end.
    fn wait_for_change(
        &self,
        settings: &MirrorSettings,
        database: Option<(u64, u64)>,
        shared: &SharedState,
        last_change: &mut (RecordState, Instant),
    ) -> bool {
        let mut settings_read = Instant::now();
        loop {
            thread::sleep(POLL_INTERVAL);
            let state = record_state(self.dir);
            if state != last_change.0 {
                *last_change = (state, Instant::now());
            }
            if self.stop.load(Ordering::Relaxed) || database_id(self.dir) != database {
                return true;
            }
            let is_failing = shared.failing.load(Ordering::Relaxed) > 0;
            let idle = self.idle.map(|idle| if is_failing { idle.max(FAILING_IDLE) } else { idle });
            if idle.is_some_and(|idle| last_change.1.elapsed() >= idle) {
                return true;
            }
            if self.mirrors.is_none() && settings_read.elapsed() >= SETTINGS_INTERVAL {
                settings_read = Instant::now();
                match MirrorSettings::load(self.dir) {
                    Ok(Some(now)) if now != *settings => return self.lacks_access_to_new(settings, &now),
                    Ok(None) => return true,
                    // A list that cannot be read now may be readable later.
                    Ok(Some(_)) | Err(_) => {}
                }
            }
        }
    }
}

impl MirrorService<'_> {
    /// Whether a bucket was added that this process has no credentials for. It ends then: the process that added the bucket
    /// has them, and starts another one.
    fn lacks_access_to_new(&self, before: &MirrorSettings, now: &MirrorSettings) -> bool {
        let is_new_bucket = |mirror: &ConfiguredMirror| {
            mirror.address.starts_with("s3://") && !before.mirrors.contains(mirror)
        };
        self.access.bucket.is_none() && now.mirrors.iter().any(is_new_bucket)
    }
}

/// Opens the lock file of the mirrors of a store.
fn open_lock(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Whether a process keeps the mirrors of the store in `dir` up to date.
pub fn is_running(dir: &Path) -> bool {
    let Ok(path) = settings::prepare_directory(dir) else { return false };
    open_lock(&path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Identifies the database of a store, to notice that it was removed or replaced.
fn database_id(dir: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(dir.join("log.sqlite")).ok()?;
    Some((found.dev(), found.ino()))
}

/// The thread of one mirror.
struct MirrorWorker<'a> {
    service: &'a MirrorService<'a>,
    store: &'a EmbeddedStore,
    id: &'a str,
    mirror: &'a ConfiguredMirror,
    shared: &'a SharedState,
}

impl MirrorWorker<'_> {
    fn run(&self) {
        let mut retry = FIRST_RETRY;
        let mut connection: Option<MirrorSync<'_>> = None;
        let mut was_failing = false;
        while !self.is_stopped() {
            let before = record_state(self.service.dir);
            let outcome = self.sync(&mut connection);
            let is_eventful = outcome.as_ref().map_or(true, |report| *report != SyncReport::default());
            if let Some(observer) = self.service.observer.filter(|_| is_eventful) {
                observer(&self.mirror.address, &outcome);
            }
            self.save(&outcome, connection.as_ref());
            let is_failing = outcome.is_err();
            match (was_failing, is_failing) {
                (false, true) => drop(self.shared.failing.fetch_add(1, Ordering::Relaxed)),
                (true, false) => drop(self.shared.failing.fetch_sub(1, Ordering::Relaxed)),
                _ => {}
            }
            was_failing = is_failing;
            if is_failing {
                // Whatever was known about the mirror may be wrong now.
                connection = None;
                self.wait(&|| false, Some(retry));
                retry = (retry * 2).min(MAX_RETRY);
            } else {
                retry = FIRST_RETRY;
                self.wait(&|| record_state(self.service.dir) != before, None);
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    fn wait(&self, until: &dyn Fn() -> bool, timeout: Option<Duration>) {
        let started = Instant::now();
        while !self.is_stopped() && !until() && timeout.is_none_or(|timeout| started.elapsed() < timeout) {
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn sync<'s>(&'s self, connection: &mut Option<MirrorSync<'s>>) -> Result<SyncReport, MirrorError> {
        if let Some(connected) = connection {
            return connected.sync();
        }
        let archive = open_mirror(&self.mirror.address, self.id, &self.service.access)?;
        let connected = connection.insert(MirrorSync::new(self.store, archive, &*self.service.env));
        // Once for each process: it reads all steps of the store.
        let contradiction = connected.compare()?;
        let mut report = connected.sync()?;
        report.contradiction = report.contradiction.or(contradiction);
        Ok(report)
    }

    fn save(&self, outcome: &Result<SyncReport, MirrorError>, connection: Option<&MirrorSync<'_>>) {
        let (dir, address) = (self.service.dir, &self.mirror.address);
        // A store that was removed must not be created again.
        if self.service.mirrors.is_some() || database_id(dir).is_none() {
            return;
        }
        let archive = connection.map(MirrorSync::archive);
        MirrorState::load(dir, address).after(outcome, archive, self.service.env.now()).save(dir, address);
        // Without it, the record keeps less, and the mirror reads the whole log when it is far behind.
        let _ = settings::note_progress(dir);
    }
}

/// Opens a configured mirror, which must be there and be that of the store. An empty `id` is that of any.
pub fn open_mirror(address: &str, id: &str, access: &StorageAccess) -> Result<MirrorArchive, MirrorError> {
    let address = MirrorAddress::parse(address, Path::new("/"))?;
    let storage = address.open(CreateDirectory::No, access)?;
    let place = storage.place();
    let Some(archive) = MirrorArchive::open(storage)? else {
        let reason = "it was removed, or its disk is not mounted".to_owned();
        return Err(MirrorError::NotAMirror { place, reason });
    };
    if !id.is_empty() && archive.id != id {
        let reason = "its id is not that of this store's mirrors".to_owned();
        return Err(MirrorError::OtherStore { place, reason });
    }
    Ok(archive)
}
