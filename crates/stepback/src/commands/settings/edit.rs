//! `stepback settings --edit`: all settings in the user's editor, each with its meaning and its default.
//!
//! The text is made for one edit and is not kept: what it says is checked as a whole, and written to the settings of the store
//! only if all of it is right.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use stepback_model::shell::quote_words;
use stepback_store::new_file::{Durability, replace_file};

use super::{NamedSetting, value_words};
use crate::args::user_aliases::{self, ALIASES};
use crate::commands::{CommandResult, DONE};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};
use crate::settings::Settings;

/// What the text begins with.
const HEAD: &str = "\
# The settings of stepback. Lines that begin with # are comments; take the # away to set a value.
# Save and leave the editor to use them. An empty file changes nothing.
";

/// What is said of aliases.
const ALIAS_HEAD: &str = "
# Your own commands: the first word, and what it stands for. They cannot replace a command.
[alias]
#wip = \"checkpoint create wip\"
#last = \"log -n 5\"
";

/// Runs `stepback settings --edit`.
pub fn edit(settings: &mut Settings) -> CommandResult {
    let previous = std::fs::read(settings.path()).ok();
    if !edit_settings(settings)? {
        output::print_status("No setting was changed.");
        return DONE;
    }
    output::print_line(format!("Changed {}", settings.path().display()));
    super::print_problems(settings);
    if let Some(previous) = previous {
        let kept = settings.path().with_extension("json.previous");
        replace_file(&kept, &previous, 0o600, Durability::Synced)?;
        let text =
            format!("The previous settings are in {}; to go back, move that file here.", kept.display());
        output::print_status(Paint::stderr().dim(text));
    }
    DONE
}

/// Opens the settings in the user's editor until they are right or the user gives up. Returns whether any changed.
fn edit_settings(settings: &mut Settings) -> Result<bool, CommandFailure> {
    let editor = find_editor()?;
    let before = settings_text(settings);
    let file = EditedFile::create(settings.path(), &before)?;
    loop {
        run_editor(&editor, &file.0)?;
        let text = std::fs::read_to_string(&file.0).map_err(|error| {
            CommandFailure::new(FailureKind::Usage, format!("the edited settings cannot be read: {error}"))
        })?;
        if text.trim().is_empty() || text == before {
            return Ok(false);
        }
        match parse_settings(&text) {
            Ok(values) => {
                settings.replace_all(values)?;
                return Ok(true);
            }
            Err(failure) => {
                output::print_status(failure.message());
                if output::confirm("Edit again?") != Some(true) {
                    return Err(
                        failure.with_hint("nothing was changed; \"stepback settings KEY VALUE\" sets one")
                    );
                }
            }
        }
    }
}

/// The text that is edited, beside the settings. It is removed when the edit ends.
struct EditedFile(PathBuf);

impl EditedFile {
    fn create(settings: &Path, text: &str) -> Result<Self, CommandFailure> {
        let path = settings.with_file_name(format!("settings-edit-{}.toml", std::process::id()));
        replace_file(&path, text.as_bytes(), 0o600, Durability::Unsynced)?;
        Ok(Self(path))
    }
}

impl Drop for EditedFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns all settings as a text to edit: those that are set, and the others as comments with their defaults.
fn settings_text(settings: &Settings) -> String {
    let mut text = HEAD.to_owned();
    for known in NamedSetting::all() {
        let default = known.default();
        // A string cannot fail to be written to.
        let _ = write!(text, "\n# {}\n# default: {}\n", known.description(), value_words(&default));
        let _ = match settings.value(known.key()) {
            Some(value) => writeln!(text, "{} = {value}", known.key()),
            None => writeln!(text, "#{} = {default}", known.key()),
        };
    }
    text.push_str(ALIAS_HEAD);
    for (name, words) in user_aliases::of_settings(settings) {
        let _ = writeln!(text, "{} = {}", Value::from(name), Value::from(quote_words(&words)));
    }
    text
}

/// Reads an edited text as the values of a settings file.
fn parse_settings(text: &str) -> Result<BTreeMap<String, Value>, CommandFailure> {
    let usage = |what: String| CommandFailure::new(FailureKind::Usage, what);
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| usage(error.to_string()))?;
    let mut flat = Vec::new();
    let mut values = BTreeMap::new();
    for (key, value) in table {
        match (key.as_str(), value) {
            (ALIASES, toml::Value::Table(aliases)) => {
                values.insert(ALIASES.to_owned(), user_aliases::check(aliases)?);
            }
            (key, value) => flatten(key.to_owned(), value, &mut flat),
        }
    }
    for (key, value) in flat {
        let words = setting_words(&value)
            .ok_or_else(|| usage(format!("{key} takes a number, a text in quotes, or a list of them")))?;
        // The default is what a setting has without a value.
        if let Some(value) = NamedSetting::find(&key)?.parse(&words)? {
            values.insert(key, value);
        }
    }
    Ok(values)
}

/// Settings have dots in their names, which are tables to TOML.
fn flatten(key: String, value: toml::Value, flat: &mut Vec<(String, toml::Value)>) {
    match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                flatten(format!("{key}.{name}"), value, flat);
            }
        }
        value => flat.push((key, value)),
    }
}

/// The words that would be typed for a value.
fn setting_words(value: &toml::Value) -> Option<Vec<String>> {
    match value {
        toml::Value::String(text) => Some(vec![text.clone()]),
        toml::Value::Integer(number) => Some(vec![number.to_string()]),
        toml::Value::Array(items) if items.is_empty() => Some(vec!["none".to_owned()]),
        toml::Value::Array(items) => {
            let words: Option<Vec<Vec<String>>> = items.iter().map(setting_words).collect();
            words.map(|words| words.concat())
        }
        _ => None,
    }
}

/// Returns the user's editor, a command line of a shell.
fn find_editor() -> Result<String, CommandFailure> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let installed =
        || ["editor", "nano", "vi"].into_iter().find(|name| crate::context::find_on_path(name).is_some());
    set("VISUAL").or_else(|| set("EDITOR")).or_else(|| installed().map(str::to_owned)).ok_or_else(|| {
        CommandFailure::new(FailureKind::System, "no editor was found")
            .with_hint("set EDITOR to one, or use \"stepback settings KEY VALUE\"")
    })
}

fn run_editor(editor: &str, file: &Path) -> Result<(), CommandFailure> {
    let mut shell = Command::new("sh");
    // The editor can have options; the file is a word of its own, whatever its name.
    let status = shell.arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(file).status()?;
    if status.success() {
        return Ok(());
    }
    let what = format!("the editor \"{editor}\" failed ({status})");
    Err(CommandFailure::new(FailureKind::System, what)
        .with_hint("nothing was changed; VISUAL or EDITOR names another editor"))
}
