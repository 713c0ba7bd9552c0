//! The command `stepback settings`: lists, explains and changes the settings of a store.

mod edit;

use serde_json::{Value, json};
use stepback_engine::recorder::settings::{RecorderSetting, RecorderSettings};
use stepback_model::nearest::nearest_word;
use stepback_model::shell::quote_word;

use super::{CommandResult, DONE};
use crate::context::Context;
use crate::disk_budget::setting::{self as disk_budget, BudgetSetting};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};
use crate::settings::{
    SETTINGS, SettingSpec, Settings, describe_recorder_setting, recorder_value, setting_keys,
};

/// A setting, whatever the form of its value.
#[derive(Clone, Copy)]
enum NamedSetting {
    Number(&'static SettingSpec),
    DiskBudget,
    Recorder(RecorderSetting),
}

impl NamedSetting {
    fn all() -> impl Iterator<Item = Self> {
        let recorder = RecorderSetting::ALL.into_iter().map(Self::Recorder);
        SETTINGS.iter().map(Self::Number).chain([Self::DiskBudget]).chain(recorder)
    }

    fn find(key: &str) -> Result<Self, CommandFailure> {
        Self::all().find(|known| known.key() == key).ok_or_else(|| {
            let hint = match nearest_word(key, setting_keys()) {
                Some(nearest) => format!("did you mean \"{nearest}\"? \"stepback settings\" lists all"),
                None => format!("known settings are {}", setting_keys().collect::<Vec<_>>().join(", ")),
            };
            CommandFailure::new(FailureKind::Usage, format!("unknown setting {key}")).with_hint(hint)
        })
    }

    fn key(self) -> &'static str {
        match self {
            Self::Number(spec) => spec.key,
            Self::DiskBudget => disk_budget::KEY,
            Self::Recorder(setting) => setting.key(),
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Number(spec) => spec.description,
            Self::DiskBudget => disk_budget::DESCRIPTION,
            Self::Recorder(setting) => describe_recorder_setting(setting),
        }
    }

    fn value(self, settings: &Settings, recorder: &RecorderSettings) -> Value {
        match self {
            Self::Number(spec) => settings.get(spec.key).into(),
            Self::DiskBudget => settings.disk_budget().to_string().into(),
            Self::Recorder(setting) => recorder_value(recorder, setting),
        }
    }

    fn default(self) -> Value {
        match self {
            Self::Number(spec) => spec.default.into(),
            Self::DiskBudget => BudgetSetting::Default.to_string().into(),
            Self::Recorder(setting) => recorder_value(&RecorderSettings::default(), setting),
        }
    }

    /// Returns the value for the settings file; `None` to reset it.
    fn parse(self, words: &[String]) -> Result<Option<Value>, CommandFailure> {
        let usage = |what: String| CommandFailure::new(FailureKind::Usage, what);
        if let [word] = words
            && word == "default"
        {
            return Ok(None);
        }
        match (self, words) {
            (Self::Number(_), [word]) => {
                let number = word.parse::<i64>().ok().filter(|number| *number >= 0);
                let number = number.ok_or_else(|| {
                    usage(format!("\"{word}\" is not a number"))
                        .with_hint("use a non-negative number, or \"default\"")
                })?;
                Ok(Some(number.into()))
            }
            (Self::Number(spec), _) => Err(usage(format!("{} takes one number", spec.key))
                .with_hint("use a non-negative number, or \"default\"")),
            (Self::DiskBudget, [word]) => {
                BudgetSetting::parse(word).map_err(|reason| {
                    usage(format!("\"{word}\" is not a budget: {reason}"))
                        .with_hint("use a size (2GB), a share of the file system (10%), off, or default")
                })?;
                Ok(Some(word.trim().to_ascii_lowercase().into()))
            }
            (Self::DiskBudget, _) => Err(usage(format!("{} takes one value", disk_budget::KEY))
                .with_hint("use a size (2GB), a share of the file system (10%), off, or default")),
            (Self::Recorder(setting), words) => {
                let words: Vec<String> = words.iter().flat_map(|word| setting.split(word)).collect();
                let mut parsed = RecorderSettings::default();
                parsed.set(setting, &words).map_err(|error| usage(format!("{}: {error}", setting.key())))?;
                Ok(Some(recorder_value(&parsed, setting)))
            }
        }
    }
}

/// Writes a value as a word or words of a command line.
fn value_words(value: &Value) -> String {
    match value {
        Value::String(text) => quote_word(text),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(value_words).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// Runs `stepback settings`.
pub fn settings(context: &Context, key: Option<&str>, words: &[String], edits: bool) -> CommandResult {
    let mut settings = Settings::load(context.store_location().local_dir())?;
    if edits {
        return edit::edit(&mut settings);
    }
    let wanted = key.map(NamedSetting::find).transpose()?;
    let mut undo = None;
    if let (Some(wanted), false) = (wanted, words.is_empty()) {
        let value = wanted.parse(words)?;
        let before = settings.value(wanted.key()).map_or_else(|| "default".to_owned(), value_words);
        undo = Some(format!("stepback settings {} {before}", wanted.key()));
        let is_zero = value == Some(0.into());
        settings.set(wanted.key(), value)?;
        if wanted.key() == crate::watcher::SETTING && is_zero {
            // A running watcher ends too; if it cannot be reached, it ends when it gets no more requests.
            let _ = super::watcher::stop_watcher(context.store_location().local_dir());
        }
    }
    let (recorder, _) = settings.recorder();
    let shown = NamedSetting::all().filter(|known| wanted.is_none_or(|wanted| wanted.key() == known.key()));
    if context.json {
        let items: Vec<_> = shown
            .map(|known| {
                json!({
                    "id": known.key(),
                    "value": known.value(&settings, &recorder),
                    "default": known.default(),
                    "set": settings.is_set(known.key()),
                    "meaning": known.description(),
                })
            })
            .collect();
        output::print_document(&json!({ "items": items, "problems": settings.problems(), "undo": undo }));
        return DONE;
    }
    let paint = Paint::stdout();
    for known in shown {
        let mark = if settings.is_set(known.key()) { "" } else { " (default)" };
        output::print_line(format!(
            "{:<22} {:>6}{}  {}",
            paint.strong(known.key()),
            value_words(&known.value(&settings, &recorder)),
            paint.dim(mark),
            paint.dim(known.description())
        ));
    }
    print_problems(&settings);
    if let Some(undo) = undo {
        if matches!(wanted, Some(NamedSetting::DiskBudget)) {
            super::budget::print_effect(context)?;
        }
        if matches!(wanted, Some(NamedSetting::Recorder(_))) {
            output::print_status(
                "It applies to what is recorded from now on; a server, a proxy or the built-in agent that is running uses it after a restart.",
            );
        }
        output::print_status(Paint::stderr().dim(format!("\"{undo}\" takes this back.")));
    }
    DONE
}

fn print_problems(settings: &Settings) {
    for problem in settings.problems() {
        let end = if problem.ends_with('?') { "" } else { "." };
        output::print_status(format!("{} {problem}{end}", Paint::stderr().note("Warning:")));
    }
}
