//! Settings of a store: a few numbers and switches, each with a default that most users never change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use stepback_engine::engine::MAX_MANUAL;
use stepback_store::new_file::{Durability, replace_file};

use crate::failure::{CommandFailure, FailureKind};

const SETTINGS_FILE: &str = "settings.json";

/// A setting with its default and description.
pub struct SettingSpec {
    /// The name of the setting.
    pub key: &'static str,
    /// The value if the user did not set one.
    pub default: i64,
    /// A description for the user.
    pub description: &'static str,
}

/// All settings.
pub const SETTINGS: [SettingSpec; 9] = [
    SettingSpec {
        key: "checkpoint.calls",
        default: 1,
        description: "create a checkpoint before every call that can change something; 0 only records the calls",
    },
    SettingSpec {
        key: "checkpoint.minutes",
        default: 10,
        description: "create a checkpoint at the next event after this many minutes without one; 0 turns this off",
    },
    SettingSpec {
        key: "checkpoint.iterations",
        default: 5,
        description: "create a checkpoint when the agent finishes, after this many model turns without one; 0 turns this off",
    },
    SettingSpec {
        key: "checkpoint.max-manual",
        default: MAX_MANUAL as i64,
        description: "refuse a manual checkpoint if its session has this many; 0 means no limit",
    },
    SettingSpec {
        key: "breakpoint.seconds",
        default: 3540,
        description: "refuse a call at a breakpoint after this long without an answer",
    },
    SettingSpec {
        key: "disk.megabytes",
        default: 0,
        description: "target size of the store, shown on the Studio's dashboard; 0 means no limit",
    },
    SettingSpec {
        key: "notes",
        default: 1,
        description: "print in the agent's output how to undo the changes of a prompt; 2 also prints it after each change, 0 turns this off",
    },
    SettingSpec {
        key: "changes.clear-on-commit",
        default: 0,
        description: "start a new list of changes when an agent has committed to git; 1 turns this on",
    },
    SettingSpec {
        key: "watcher",
        default: 1,
        description: "start a process that watches a workspace if a scan takes more than 15 ms; 0 turns this off",
    },
];

/// The values that the user has set.
#[derive(Debug, Default)]
pub struct Settings {
    path: PathBuf,
    values: BTreeMap<String, Value>,
}

impl Settings {
    /// Reads the settings of a store. A file that cannot be read counts as empty, for callers that must not fail.
    pub fn load_or_default(store: &Path) -> Self {
        Self::load(store).unwrap_or_default()
    }

    /// Reads the settings of a store.
    pub fn load(store: &Path) -> Result<Self, CommandFailure> {
        let path = store.join(SETTINGS_FILE);
        let values = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                CommandFailure::new(FailureKind::Store, format!("{} is not valid: {error}", path.display()))
                    .with_hint("correct or remove the file; every setting has a default")
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error.into()),
        };
        Ok(Self { path, values })
    }

    /// Returns the value of a setting, or its default.
    pub fn get(&self, key: &str) -> i64 {
        let set = self.values.get(key).and_then(Value::as_i64);
        let default = || SETTINGS.iter().find(|known| known.key == key).map_or(0, |known| known.default);
        set.unwrap_or_else(default)
    }

    /// Whether the user has set it.
    pub fn is_set(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Sets a value, or resets it to the default.
    pub fn set(&mut self, key: &str, value: Option<i64>) -> Result<(), CommandFailure> {
        match value {
            Some(value) => self.values.insert(key.to_string(), value.into()),
            None => self.values.remove(key),
        };
        let text = serde_json::to_string_pretty(&self.values)
            .map_err(|error| CommandFailure::new(FailureKind::Internal, error.to_string()))?;
        Ok(replace_file(&self.path, text.as_bytes(), 0o600, Durability::Synced)?)
    }

    /// Returns how long a stopped agent waits.
    pub fn breakpoint_timeout(&self) -> Duration {
        Duration::from_secs(self.get("breakpoint.seconds").max(0) as u64)
    }

    /// Returns how many manual checkpoints a session may have; `None` for any number.
    pub fn max_manual_checkpoints(&self) -> Option<usize> {
        self.get_positive("checkpoint.max-manual").map(|most| usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// Returns the size in bytes that the store should stay within.
    pub fn disk_budget(&self) -> Option<u64> {
        self.get_positive("disk.megabytes").map(|megabytes| megabytes.saturating_mul(1_000_000))
    }

    /// Returns a setting for which 0 means "never".
    pub fn get_positive(&self, key: &str) -> Option<u64> {
        u64::try_from(self.get(key)).ok().filter(|number| *number > 0)
    }
}
