//! Settings of a store, each with a default that most users never change: numbers and switches, which this file lists, and
//! those of the recorder, which the engine reads (`stepback_engine::recorder::settings`). All are in one file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use stepback_engine::engine::MAX_MANUAL;
use stepback_engine::recorder::CheckpointSchedule;
use stepback_engine::recorder::settings::{RecorderSetting, RecorderSettings};
use stepback_model::anomaly::{AnomalyKind, AnomalyLimits};
use stepback_model::nearest::nearest_word;
use stepback_store::new_file::{Durability, replace_file};

use crate::args::user_aliases;
use crate::disk_budget::setting::{self, BudgetSetting};
use crate::failure::{CommandFailure, FailureKind};

const SETTINGS_FILE: &str = "settings.json";
/// A settings file of this size or more is not one that a user wrote.
const MAX_FILE_BYTES: u64 = 4 << 20;

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
pub const SETTINGS: [SettingSpec; 18] = [
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
        description: "create a checkpoint after this many iterations (model turns) without one, also inside of a turn of the user; 0 turns this off",
    },
    SettingSpec {
        key: "checkpoint.turn-minutes",
        default: 5,
        description: "create a checkpoint at the next prompt, call or end of a prompt after this many minutes without one; 0 turns this off",
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
    SettingSpec {
        key: "anomalies.loop",
        default: AnomalyKind::Loop.default_limit() as i64,
        description: "report the same calls with the same results from so many times on; 0 turns this off",
    },
    SettingSpec {
        key: "anomalies.alternating-edits",
        default: AnomalyKind::AlternatingEdits.default_limit() as i64,
        description: "report edits that go back and forth between two versions from so many edits on; 0 turns this off",
    },
    SettingSpec {
        key: "anomalies.growing-retries",
        default: AnomalyKind::GrowingRetries.default_limit() as i64,
        description: "report failed attempts that grow from so many attempts on; 0 turns this off",
    },
    SettingSpec {
        key: "anomalies.error-burst",
        default: AnomalyKind::ErrorBurst.default_limit() as i64,
        description: "report failures that follow each other from so many on; 0 turns this off",
    },
    SettingSpec {
        key: "anomalies.no-progress",
        default: AnomalyKind::NoProgress.default_limit() as i64,
        description: "report a check that fails in the same way from so many runs on; 0 turns this off",
    },
    SettingSpec {
        key: "anomalies.undone-edits",
        default: AnomalyKind::UndoneEdits.default_limit() as i64,
        description: "report edits that are taken back from so many edits on; 0 turns this off",
    },
    SettingSpec {
        key: "anomalies.slow-call",
        default: AnomalyKind::SlowCall.default_limit() as i64,
        description: "report calls that took so many times the median of their tool or model; 0 turns this off",
    },
    SettingSpec {
        key: "anomalies.costly-call",
        default: AnomalyKind::CostlyCall.default_limit() as i64,
        description: "report model calls that cost so many times the median of their model; 0 turns this off",
    },
    SettingSpec {
        key: "anomalies.context-growth",
        default: AnomalyKind::ContextGrowth.default_limit() as i64,
        description: "report so many KiB of results that were in the context already, or that nothing used; 0 turns this off",
    },
];

/// Returns the description of a setting of the recorder.
pub fn describe_recorder_setting(setting: RecorderSetting) -> &'static str {
    match setting {
        RecorderSetting::Capture => {
            "what is recorded of events: all, none, or some of inputs, outputs, commands, conversation, memory, tasks, reasoning, model-bodies, environment (no-NAME leaves one out); files are always in checkpoints"
        }
        RecorderSetting::Kinds => {
            "kinds of steps that are recorded: all, none, or a list such as tool-start,tool-end; calls that can change something, gaps and stepback's own steps always are"
        }
        RecorderSetting::Sample => {
            "record one in so many calls that change nothing and other frequent events: 10, or 10,model-start=5 with another rate for a kind; the next step says how many were skipped"
        }
        RecorderSetting::InputBytes => {
            "cut inputs of tools to so many bytes (64KiB, 1MB); full keeps everything; prompts and model calls are never cut"
        }
        RecorderSetting::OutputBytes => {
            "cut outputs of tools to so many bytes (64KiB, 1MB); full keeps everything; the conversation and model calls are never cut"
        }
        RecorderSetting::Redact => {
            "regular expressions of text that is replaced before anything is stored, besides secrets; each is a word of its own"
        }
    }
}

/// Returns the keys of all settings.
pub fn setting_keys() -> impl Iterator<Item = &'static str> {
    let recorder = RecorderSetting::ALL.into_iter().map(RecorderSetting::key);
    SETTINGS.iter().map(|known| known.key).chain([setting::KEY]).chain(recorder)
}

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
        check_file(&path)?;
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
        let set = self.values.get(key).and_then(Value::as_i64).filter(|number| *number >= 0);
        let default = || SETTINGS.iter().find(|known| known.key == key).map_or(0, |known| known.default);
        set.unwrap_or_else(default)
    }

    /// Whether the user has set it.
    pub fn is_set(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Returns the recorder's settings, and what is wrong with those that are not used.
    pub fn recorder(&self) -> (RecorderSettings, Vec<String>) {
        RecorderSettings::read(&self.values)
    }

    /// Returns what is wrong with the values in the file, and what counts in place of each.
    pub fn problems(&self) -> Vec<String> {
        let number = |known: &SettingSpec| {
            let value =
                self.values.get(known.key).filter(|value| value.as_i64().is_none_or(|set| set < 0))?;
            Some(format!("{}: {value} is not a number of 0 or more; the default is used", known.key))
        };
        let unknown = |key: &String| {
            if key.starts_with("record.")
                || key == setting::KEY
                || key == user_aliases::ALIASES
                || SETTINGS.iter().any(|known| known.key == key)
            {
                return None;
            }
            let nearest = nearest_word(key, setting_keys());
            let hint = nearest.map_or_else(String::new, |nearest| format!("; did you mean \"{nearest}\"?"));
            Some(format!("unknown setting {key} is ignored{hint}"))
        };
        let unknown = self.values.keys().filter_map(unknown);
        let budget = BudgetSetting::check(self.values.get(setting::KEY)).err();
        let budget =
            budget.map(|problem| format!("{}: {problem}; nothing is pruned by itself", setting::KEY));
        let recorder = self.recorder().1.into_iter().map(|problem| {
            let pattern = format!("{}: the pattern", RecorderSetting::Redact.key());
            match problem {
                // It is used for nothing, and has no default.
                unknown if unknown.starts_with("unknown setting") => unknown,
                pattern_problem if pattern_problem.starts_with(&pattern) => {
                    format!("{pattern_problem}; valid patterns are used")
                }
                other => format!("{other}; the default is used"),
            }
        });
        SETTINGS.iter().filter_map(number).chain(budget).chain(unknown).chain(recorder).collect()
    }

    /// Returns the value that the user has set, as it is in the file.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Sets a value, or resets it to the default.
    pub fn set(&mut self, key: &str, value: Option<Value>) -> Result<(), CommandFailure> {
        match value {
            Some(value) => self.values.insert(key.to_string(), value),
            None => self.values.remove(key),
        };
        self.write()
    }

    /// Replaces all values.
    pub fn replace_all(&mut self, values: BTreeMap<String, Value>) -> Result<(), CommandFailure> {
        self.values = values;
        self.write()
    }

    /// Returns the file with the settings.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&self) -> Result<(), CommandFailure> {
        let text = serde_json::to_string_pretty(&self.values)
            .map_err(|error| CommandFailure::new(FailureKind::Internal, error.to_string()))?;
        Ok(replace_file(&self.path, text.as_bytes(), 0o600, Durability::Synced)?)
    }

    /// Returns how long a stopped agent waits.
    pub fn breakpoint_timeout(&self) -> Duration {
        Duration::from_secs(self.get("breakpoint.seconds").unsigned_abs())
    }

    /// Returns how many manual checkpoints a session may have; `None` for any number.
    pub fn max_manual_checkpoints(&self) -> Option<usize> {
        self.get_positive("checkpoint.max-manual").map(|most| usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// Returns from where on calls are unusual.
    pub fn anomaly_limits(&self) -> AnomalyLimits {
        let mut limits = AnomalyLimits::default();
        for kind in AnomalyKind::ALL {
            limits.set(kind, self.get(&format!("anomalies.{kind}")).unsigned_abs());
        }
        limits
    }

    /// Returns how large the store may become.
    pub fn disk_budget(&self) -> BudgetSetting {
        BudgetSetting::from_value(self.values.get(setting::KEY))
    }

    /// Returns when checkpoints are made by themselves.
    pub fn checkpoint_schedule(&self) -> CheckpointSchedule {
        CheckpointSchedule {
            iterations: self.get_positive("checkpoint.iterations"),
            minutes: self.get_positive("checkpoint.minutes"),
            turn_minutes: self.get_positive("checkpoint.turn-minutes"),
        }
    }

    /// Returns a setting for which 0 means "never".
    pub fn get_positive(&self, key: &str) -> Option<u64> {
        u64::try_from(self.get(key)).ok().filter(|number| *number > 0)
    }
}

/// Refuses what a hook could not read in a moment: a pipe, on which it would wait, or a huge file.
fn check_file(path: &Path) -> Result<(), CommandFailure> {
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    let problem = match metadata.len() {
        _ if !metadata.is_file() => "is not a regular file",
        MAX_FILE_BYTES.. => "is too large for a settings file",
        _ => return Ok(()),
    };
    let what = format!("{} {problem}", path.display());
    Err(CommandFailure::new(FailureKind::Store, what)
        .with_hint("correct or remove the file; every setting has a default"))
}

/// Returns a setting of the recorder as a value of a settings file.
pub fn recorder_value(settings: &RecorderSettings, setting: RecorderSetting) -> Value {
    match setting {
        RecorderSetting::InputBytes => settings.max_input.map_or_else(|| "full".into(), |bytes| json!(bytes)),
        RecorderSetting::OutputBytes => {
            settings.max_output.map_or_else(|| "full".into(), |bytes| json!(bytes))
        }
        RecorderSetting::Sample if settings.sample.is_empty() => json!(settings.sample_frequent),
        RecorderSetting::Redact => settings.redact.sources().collect(),
        _ => settings.text(setting).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_says_what_counts_instead() {
        let values = [
            ("notes", json!(-1), "the default is used"),
            ("disk.budget", json!("-1"), "nothing is pruned by itself"),
            ("record.redact", json!(["(", "ok"]), "valid patterns are used"),
            ("record.sample", json!("x"), "the default is used"),
            ("checkpoint.call", json!(1), "is ignored; did you mean \"checkpoint.calls\"?"),
        ];
        for (key, value, expected) in values {
            let values = BTreeMap::from([(key.to_owned(), value)]);
            let problems = Settings { path: PathBuf::new(), values }.problems();
            let [problem] = problems.as_slice() else { panic!("{key}: {problems:?}") };
            assert!(problem.ends_with(expected), "{problem}");
            assert_eq!(problem.matches("used").count(), usize::from(expected.contains("used")), "{problem}");
        }
    }
}
