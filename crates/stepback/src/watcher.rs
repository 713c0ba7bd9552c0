//! How a process uses the watcher: whether it queries one, and whether it starts one if scans are slow.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use stepback_watcher::client::{SLOW_SCAN, Starter, WatcherClient};
use stepback_watcher::launch::Launcher;

use crate::context;
use crate::settings::Settings;
use crate::store_location::StoreLocation;

/// The environment variable that says how this process uses the watcher.
pub const VARIABLE: &str = stepback_rerun::sandbox::WATCHER_VARIABLE;
/// The setting that prevents watchers from being started.
pub const SETTING: &str = "watcher";

/// How a process uses the watcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatcherMode {
    /// It neither queries nor starts one; holds what turned it off.
    Off(&'static str),
    /// It queries a running one; holds what prevents it from starting one.
    QueryOnly(&'static str),
    /// It also starts one after a slow scan.
    Start,
    /// It also starts one after a fast scan, in a workspace that is worth watching.
    StartAlways,
}

impl WatcherMode {
    /// Returns the mode that the environment and the settings ask for.
    pub fn detect(settings: &Settings) -> Self {
        if context::path_variable("STEPBACK_NO_WATCHER").is_some() {
            return Self::Off("STEPBACK_NO_WATCHER is set");
        }
        // A rerun's own directory is removed before watching it would pay off.
        if context::path_variable(stepback_agents::policy::VARIABLE).is_some() {
            return Self::Off("this is a rerun");
        }
        match context::path_variable(VARIABLE).as_deref().and_then(Path::to_str) {
            Some("off") => Self::Off("STEPBACK_WATCHER is \"off\""),
            Some("ask") => Self::QueryOnly("STEPBACK_WATCHER is \"ask\""),
            Some("always") => Self::StartAlways,
            _ if settings.get(SETTING) == 0 => Self::QueryOnly("the setting \"watcher\" is 0"),
            _ => Self::Start,
        }
    }

    /// Returns the minimum duration of a scan before a watcher is started; `None` if none is started.
    fn slow_scan_threshold(self) -> Option<Duration> {
        match self {
            Self::Off(_) | Self::QueryOnly(_) => None,
            Self::Start => Some(SLOW_SCAN),
            Self::StartAlways => Some(Duration::ZERO),
        }
    }
}

/// Returns the client for a store's watcher; `None` if that is turned off. No request is made yet. With `deferred`, a
/// watcher is started only when the caller asks the client to.
pub fn create_client(place: &StoreLocation, settings: &Settings, deferred: bool) -> Option<WatcherClient> {
    let mode = WatcherMode::detect(settings);
    if matches!(mode, WatcherMode::Off(_)) {
        return None;
    }
    let dir = place.local_dir();
    let starter = mode.slow_scan_threshold().and_then(|slow_scan| {
        let launcher = Launcher { program: std::env::current_exe().ok()?, dir: dir.to_path_buf() };
        Some(Starter { launcher, slow_scan, deferred, requested_root: Mutex::new(None) })
    });
    Some(match starter {
        Some(starter) => WatcherClient::starting(dir, starter),
        None => WatcherClient::new(dir),
    })
}
