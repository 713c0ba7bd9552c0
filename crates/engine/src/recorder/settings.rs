//! The recorder's settings: what of an event is recorded, which events are, and how much of them.
//!
//! They are parsed here from words, whether the user typed them or a settings file has them, and applied where every event
//! becomes a step: an agent's hooks, a proxy, the built-in agent, OpenTelemetry, a server's clients and imports all pass
//! through it. Nothing here decides whether files are scanned: a call that can change something has its checkpoints
//! whatever the settings say.
//!
//! `content` leaves parts of an event out, cuts what is too large and redacts; `sampling` skips events.

mod content;
mod error;
mod patterns;
pub(super) mod sampling;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use stepback_model::nearest::nearest_word;
use stepback_model::record::StepKind;

pub use self::content::LeftOut;
pub use self::error::RecorderSettingError;
pub use self::patterns::RedactionPatterns;
use self::words::{parse_bytes, parse_capture, parse_kinds, parse_sample};

/// The default of the most bytes of an input or output: 64 KB.
pub const DEFAULT_MAX_BYTES: u64 = 64 << 10;
/// The least limit that can be set: the mark where something was cut must fit.
pub const MIN_LIMIT_BYTES: u64 = stepback_model::clip::LEAST as u64;
/// The largest limit that can be set: no larger event is read.
pub const MAX_LIMIT_BYTES: u64 = 64 << 20;

/// A part of what agents report, that can be left out of the record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CapturedPart {
    /// The inputs of tool calls.
    Inputs,
    /// The outputs of tool calls.
    Outputs,
    /// The command lines of shell commands, and what they printed.
    Commands,
    /// Prompts, answers and messages, and the conversation as a part of the state.
    Conversation,
    /// The agent's memory.
    Memory,
    /// The task list.
    Tasks,
    /// The reasoning board.
    Reasoning,
    /// The requests to models, and their answers.
    ModelBodies,
    /// The names of tools and variables.
    Environment,
}

impl CapturedPart {
    /// Every part.
    pub const ALL: [Self; 9] = [
        Self::Inputs,
        Self::Outputs,
        Self::Commands,
        Self::Conversation,
        Self::Memory,
        Self::Tasks,
        Self::Reasoning,
        Self::ModelBodies,
        Self::Environment,
    ];

    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inputs => "inputs",
            Self::Outputs => "outputs",
            Self::Commands => "commands",
            Self::Conversation => "conversation",
            Self::Memory => "memory",
            Self::Tasks => "tasks",
            Self::Reasoning => "reasoning",
            Self::ModelBodies => "model-bodies",
            Self::Environment => "environment",
        }
    }

    /// Parses the stable name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.as_str() == text)
    }
}

/// A setting of the recorder.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RecorderSetting {
    /// The parts that are recorded.
    Capture,
    /// The kinds of events that are recorded.
    Kinds,
    /// One in how many frequent events is recorded.
    Sample,
    /// The most bytes of an input.
    InputBytes,
    /// The most bytes of an output.
    OutputBytes,
    /// Patterns of text that is redacted.
    Redact,
}

impl RecorderSetting {
    /// Every setting.
    pub const ALL: [Self; 6] =
        [Self::Capture, Self::Kinds, Self::Sample, Self::InputBytes, Self::OutputBytes, Self::Redact];

    /// Its key in a settings file.
    pub fn key(self) -> &'static str {
        match self {
            Self::Capture => "record.capture",
            Self::Kinds => "record.kinds",
            Self::Sample => "record.sample",
            Self::InputBytes => "record.input-bytes",
            Self::OutputBytes => "record.output-bytes",
            Self::Redact => "record.redact",
        }
    }

    /// The setting with this key.
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| setting.key() == key)
    }

    /// Its default, as a user writes it.
    pub fn default_text(self) -> &'static str {
        match self {
            Self::Capture | Self::Kinds => "all",
            Self::Sample => "1",
            Self::InputBytes | Self::OutputBytes => "65536",
            Self::Redact => "none",
        }
    }

    /// Splits a value as a user writes it into words. Patterns may contain commas, so each is one word.
    pub fn split(self, text: &str) -> Vec<String> {
        match self {
            Self::Redact => vec![text.to_owned()],
            _ => text.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect(),
        }
    }

    /// Returns the words of a value in a settings file; `None` if it is not one that a setting can have.
    fn words(self, value: &Value) -> Option<Vec<String>> {
        let word = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        match value {
            Value::String(text) => Some(self.split(text)),
            Value::Array(items) => items.iter().map(word).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| Some(format!("{name}={}", word(value)?))).collect()
            }
            _ => Some(vec![word(value)?]),
        }
    }
}

/// What is recorded of what agents report.
#[derive(Clone, Debug)]
pub struct RecorderSettings {
    /// The parts that are recorded.
    pub capture: BTreeSet<CapturedPart>,
    /// The kinds of events that are recorded; `None` for all.
    pub kinds: Option<BTreeSet<StepKind>>,
    /// One in how many events of a kind is recorded.
    pub sample: BTreeMap<StepKind, u64>,
    /// One in how many events of the other frequent kinds is recorded.
    pub sample_frequent: u64,
    /// The most bytes of an input; `None` for no limit.
    pub max_input: Option<u64>,
    /// The most bytes of an output; `None` for no limit.
    pub max_output: Option<u64>,
    /// Patterns of text that is redacted, besides secrets.
    pub redact: RedactionPatterns,
}

impl Default for RecorderSettings {
    fn default() -> Self {
        Self {
            capture: CapturedPart::ALL.into(),
            kinds: None,
            sample: BTreeMap::new(),
            sample_frequent: 1,
            max_input: Some(DEFAULT_MAX_BYTES),
            max_output: Some(DEFAULT_MAX_BYTES),
            redact: RedactionPatterns::default(),
        }
    }
}

impl RecorderSettings {
    /// Reads the settings of a file. A value that cannot be used counts as the default, and is described in the second
    /// result: recording must go on.
    pub fn read(values: &BTreeMap<String, Value>) -> (Self, Vec<String>) {
        let mut settings = Self::default();
        let mut problems = Vec::new();
        for (key, value) in values.iter().filter(|(key, _)| key.starts_with("record.")) {
            let Some(setting) = RecorderSetting::from_key(key) else {
                let keys = RecorderSetting::ALL.map(RecorderSetting::key);
                let nearest = nearest_word(key, keys).unwrap_or("stepback settings");
                problems.push(format!("unknown setting {key}; did you mean \"{nearest}\"?"));
                continue;
            };
            let set = match setting.words(value) {
                Some(words) if setting == RecorderSetting::Redact => {
                    // One pattern that is invalid must not turn the others off.
                    let (patterns, invalid) = RedactionPatterns::compile_valid(&words);
                    settings.redact = patterns;
                    problems.extend(invalid.iter().map(|error| format!("{key}: {error}")));
                    continue;
                }
                Some(words) => settings.set(setting, &words),
                None => Err(RecorderSettingError::NotAValue { value: value.to_string() }),
            };
            if let Err(error) = set {
                problems.push(format!("{key}: {error}"));
            }
        }
        (settings, problems)
    }

    /// Sets one setting from the words of its value.
    pub fn set(&mut self, setting: RecorderSetting, words: &[String]) -> Result<(), RecorderSettingError> {
        match setting {
            RecorderSetting::Capture => self.capture = parse_capture(words)?,
            RecorderSetting::Kinds => self.kinds = parse_kinds(words)?,
            RecorderSetting::Sample => (self.sample_frequent, self.sample) = parse_sample(words)?,
            RecorderSetting::InputBytes => self.max_input = parse_bytes(words)?,
            RecorderSetting::OutputBytes => self.max_output = parse_bytes(words)?,
            RecorderSetting::Redact => self.redact = RedactionPatterns::compile(words)?,
        }
        Ok(())
    }

    /// Returns a setting as a user writes it.
    pub fn text(&self, setting: RecorderSetting) -> String {
        let bytes = |limit: Option<u64>| limit.map_or_else(|| "full".to_owned(), |bytes| bytes.to_string());
        match setting {
            RecorderSetting::Capture if self.capture.len() == CapturedPart::ALL.len() => "all".to_owned(),
            RecorderSetting::Capture if self.capture.is_empty() => "none".to_owned(),
            RecorderSetting::Capture => join(self.capture.iter().map(|part| part.as_str().to_owned())),
            RecorderSetting::Kinds => match &self.kinds {
                None => "all".to_owned(),
                Some(kinds) if kinds.is_empty() => "none".to_owned(),
                Some(kinds) => join(kinds.iter().map(|kind| kind.as_str().to_owned())),
            },
            RecorderSetting::Sample => {
                let each = self.sample.iter().map(|(kind, rate)| format!("{}={rate}", kind.as_str()));
                let frequent = (self.sample_frequent != 1 || self.sample.is_empty())
                    .then(|| self.sample_frequent.to_string());
                join(frequent.into_iter().chain(each))
            }
            RecorderSetting::InputBytes => bytes(self.max_input),
            RecorderSetting::OutputBytes => bytes(self.max_output),
            RecorderSetting::Redact if self.redact.is_empty() => "none".to_owned(),
            RecorderSetting::Redact => self.redact.sources().collect::<Vec<_>>().join(" "),
        }
    }

    /// Whether a part is recorded.
    pub fn captures(&self, part: CapturedPart) -> bool {
        self.capture.contains(&part)
    }
}

fn join(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_of_a_setting_is_read_as_the_same() {
        for setting in RecorderSetting::ALL {
            let values: &[&str] = match setting {
                RecorderSetting::Capture => &["none", "all", "inputs,outputs", "no-memory"],
                RecorderSetting::Kinds => &["none", "all", "tool-start,tool-end"],
                RecorderSetting::Sample => &["1", "10,model-start=5", "tool-start=3"],
                RecorderSetting::InputBytes | RecorderSetting::OutputBytes => &["full", "64KiB", "1000"],
                RecorderSetting::Redact => &["none", "a+"],
            };
            for value in values {
                let mut set = RecorderSettings::default();
                set.set(setting, &setting.split(value)).unwrap();
                let text = set.text(setting);
                let file = BTreeMap::from([(setting.key().to_owned(), Value::String(text.clone()))]);
                let (read, problems) = RecorderSettings::read(&file);
                assert_eq!(problems, Vec::<String>::new(), "{} {value}: {text:?}", setting.key());
                assert_eq!(read.text(setting), text, "{} {value}", setting.key());
                assert_eq!((read.kinds, read.capture), (set.kinds, set.capture), "{value}: {text:?}");
            }
        }
    }
}
