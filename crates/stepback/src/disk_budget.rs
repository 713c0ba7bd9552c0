//! How this program keeps a store within its disk budget: a commit measures the store now and then, and one that finds it too
//! large starts a detached process, which prunes.
//!
//! Hooks commit too, and an agent waits for them. So a commit reads one small file, and only if that says that it is time,
//! it adds up the sizes of the store's files; the database is not asked. The process is not waited for.

pub mod setting;

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use stepback_engine::Engine;
use stepback_engine::budget::{BudgetReport, starts_at};
use stepback_model::time::Timestamp;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::new_file::{Durability, replace_file};

use crate::context;
use crate::mirroring;
use crate::settings::Settings;
use crate::store_location::StoreLocation;
use crate::system;

/// The argument that makes this program run as the process that prunes.
const WORD: &str = "budget-process";
/// The directory in the store for the files of this module.
const DIRECTORY: &str = "budget";
/// Locked by the process that prunes.
const LOCK: &str = "lock";
/// Says when the store has to be measured again.
const NEXT: &str = "next";
/// The result of the last pruning.
const LAST: &str = "last.json";
/// A store does not grow by more than so many bytes in a second, for long: so it need not be measured all the time.
const FASTEST_GROWTH: u64 = 20_000_000;
/// The longest time without a measurement.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// After a pruning that could not reach the budget, and after one that failed, the next one begins after this time.
const RETRY: Duration = Duration::from_secs(3600);

/// The result of the last pruning.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LastPruning {
    /// When it ended.
    pub at: Timestamp,
    /// What it did; `None` if it failed.
    pub report: Option<BudgetReport>,
    /// Why it failed.
    pub failure: Option<String>,
}

impl LastPruning {
    /// Reads the result; `None` if there was no pruning.
    pub fn load(store: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(store.join(DIRECTORY).join(LAST)).ok()?).ok()
    }

    fn save(&self, store: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        replace_file(&directory(store)?.join(LAST), &text, 0o600, Durability::Unsynced)
    }

    /// The size at which the next pruning begins, and whether it also waits for some time.
    fn next_start(&self, budget: u64) -> (u64, bool) {
        match &self.report {
            // With another budget, nothing is known.
            Some(report) if report.budget == budget => (report.next_at.max(starts_at(budget)), !report.fits),
            Some(_) => (starts_at(budget), false),
            None => (starts_at(budget), true),
        }
    }
}

/// What a process that commits does for the budget of a store.
pub struct BudgetObserver {
    store: PathBuf,
    /// The process that was started last, to be reaped.
    child: Mutex<Option<Child>>,
}

impl BudgetObserver {
    /// An observer of the store in a directory; `None` in a rerun, which sees only a part of the file system.
    pub fn new(store: &Path) -> Option<Self> {
        let is_rerun = context::path_variable(stepback_agents::policy::VARIABLE).is_some();
        (!is_rerun).then(|| Self { store: store.to_path_buf(), child: Mutex::new(None) })
    }

    /// Called after each commit. A failure is ignored: the next commit tries again.
    pub fn committed(&self) {
        if let Ok(true) = is_due(&self.store) {
            self.start();
        }
    }

    fn start(&self) {
        let Ok(program) = std::env::current_exe() else { return };
        let mut command = Command::new(program);
        command.env_clear().envs(mirroring::client_environment()).arg(WORD).arg(&self.store);
        let started =
            command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut before) = child.take() {
            let _ = before.try_wait();
        }
        *child = started.ok();
    }
}

/// Whether the store has to be pruned now. Notes when it has to be measured again.
fn is_due(store: &Path) -> io::Result<bool> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    let next = store.join(DIRECTORY).join(NEXT);
    let noted = fs::read_to_string(&next).ok().and_then(|text| text.trim().parse::<u128>().ok());
    // A time that is far away is from a clock that was set back.
    if noted.is_some_and(|noted| now < noted && noted - now <= MAX_PAUSE.as_millis()) {
        return Ok(false);
    }
    let Some(budget) = budget_of(store) else { return Ok(false) };
    let size = stepback_store::embedded::bytes_below(store);
    let last = LastPruning::load(store);
    let (start, waits) = last.as_ref().map_or((starts_at(budget), false), |last| last.next_start(budget));
    let waited = |last: &LastPruning| {
        let since = system::environment().now().as_micros().saturating_sub(last.at.as_micros());
        !(0..RETRY.as_micros() as i64).contains(&since)
    };
    let is_large = size >= starts_at(budget);
    let is_due = is_large && (size >= start && !waits || waits && last.as_ref().is_some_and(waited));
    let pause = Duration::from_millis(start.saturating_sub(size) * 1000 / FASTEST_GROWTH).min(MAX_PAUSE);
    // While a pruning runs, this is not asked all the time.
    let pause = pause.max(Duration::from_millis(if is_large { 200 } else { 0 }));
    // Lost or torn, it only means to measure again.
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(directory(store)?.join(NEXT))?;
    write!(file, "{}", now + pause.as_millis())?;
    Ok(is_due && open_lock(store)?.try_lock().is_ok())
}

/// The budget of a store in bytes; `None` if it has none. One that a database or a server holds has none: it is not for this
/// machine to free what others recorded.
pub fn of_location(location: &StoreLocation) -> Option<u64> {
    match location {
        StoreLocation::Directory(dir) => budget_of(dir),
        StoreLocation::Server { .. } | StoreLocation::Guarded { .. } => None,
    }
}

/// The budget of a store in bytes. There is none if the settings cannot be read: they may turn it off.
fn budget_of(store: &Path) -> Option<u64> {
    Settings::load(store).ok()?.disk_budget().bytes(store)
}

/// The directory for the files of this module; it is created if it does not exist.
fn directory(store: &Path) -> io::Result<PathBuf> {
    let dir = store.join(DIRECTORY);
    if !dir.is_dir() && store.is_dir() {
        DirBuilder::new().mode(0o700).create(&dir)?;
    }
    Ok(dir)
}

fn open_lock(store: &Path) -> io::Result<File> {
    let path = directory(store)?.join(LOCK);
    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Measures the store at the next commit, for a budget that has changed.
pub fn measure_soon(store: &Path) {
    let _ = fs::remove_file(store.join(DIRECTORY).join(NEXT));
}

/// Runs as the process that prunes, if the arguments ask for it: the store's directory. Returns the exit code.
pub fn run_if_asked(arguments: &[OsString]) -> Option<u8> {
    let [_, word, dir] = arguments else { return None };
    if word != WORD {
        return None;
    }
    stepback_watcher::process::detach();
    let store = Path::new(dir);
    // Less important than what the user and the agents do.
    let _ = rustix::process::nice(10);
    let done = budget_of(store).map_or(Ok(None), |budget| prune_now(store, budget));
    Some(u8::from(done.is_err()))
}

/// Prunes for the budget and notes the result; returns `None` if another process does that already.
pub fn prune_now(store: &Path, budget: u64) -> io::Result<Option<LastPruning>> {
    let lock = open_lock(store)?;
    if lock.try_lock().is_err() {
        return Ok(None);
    }
    let (report, failure) = match enforce(store, budget) {
        Ok(report) => (Some(report), None),
        Err(failure) => (None, Some(failure)),
    };
    let last = LastPruning { at: system::environment().now(), report, failure };
    last.save(store)?;
    Ok(Some(last))
}

/// Prunes for the budget. What is not in every mirror yet is not freed.
fn enforce(store: &Path, budget: u64) -> Result<BudgetReport, String> {
    let opened = EmbeddedStore::open_existing(store).map_err(|error| error.to_string())?;
    mirroring::sync_all(store)?;
    let engine = Engine::new(Arc::new(opened), system::environment());
    engine.enforce_budget(budget).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(report: Option<BudgetReport>) -> LastPruning {
        LastPruning { at: Timestamp::from_micros(0), report, failure: None }
    }

    #[test]
    fn the_next_pruning_waits_for_growth_and_after_a_failure_for_time() {
        let report = BudgetReport { budget: 1000, fits: true, next_at: 900, ..BudgetReport::default() };
        assert_eq!(last(Some(report.clone())).next_start(1000), (900, false));
        assert_eq!(last(Some(report.clone())).next_start(500), (400, false), "another budget");
        let too_small = BudgetReport { fits: false, next_at: 2000, ..report };
        assert_eq!(last(Some(too_small)).next_start(1000), (2000, true));
        assert_eq!(last(None).next_start(1000), (800, true));
    }

    #[test]
    fn a_small_store_is_not_measured_again_soon_and_a_large_one_is_pruned() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path();
        fs::write(store.join("settings.json"), r#"{"disk.budget": "1MB"}"#).unwrap();
        assert!(!is_due(store).unwrap());
        measure_soon(store);
        fs::write(store.join("large"), vec![0; 900_000]).unwrap();
        assert!(is_due(store).unwrap());
        assert!(!is_due(store).unwrap(), "not again at once");
        measure_soon(store);
        let pruning = open_lock(store).unwrap();
        pruning.lock().unwrap();
        assert!(!is_due(store).unwrap(), "a process prunes already");
        drop(pruning);
        for setting in [r#"{"disk.budget": "off"}"#, r#"{"disk.budget": "1TB"}"#] {
            measure_soon(store);
            fs::write(store.join("settings.json"), setting).unwrap();
            assert!(!is_due(store).unwrap(), "{setting}");
        }
    }
}
