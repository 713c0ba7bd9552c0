//! Commands that the user named in the settings: `wip` for `checkpoint create wip`.
//!
//! They are looked up only for a first word that no command has, so that nothing is read for the others, and so that an alias
//! cannot replace a command, not even in a script.

use std::ffi::OsString;

use clap::{Command, CommandFactory};
use serde_json::{Map, Value, json};
use stepback_model::shell::split_words;

use super::{Arguments, aliases};
use crate::failure::{CommandFailure, FailureKind};
use crate::settings::Settings;
use crate::store_location::StoreLocation;

/// The key of the aliases in the settings.
pub const ALIASES: &str = "alias";

/// Returns the command line with an alias of the user in place of its command.
pub fn expand(words: &[OsString], commands: &Command) -> Vec<OsString> {
    expand_known(words, commands).unwrap_or_else(|| words.to_vec())
}

fn expand_known(words: &[OsString], commands: &Command) -> Option<Vec<OsString>> {
    let at = aliases::find_command(words)?;
    let name = words[at].to_str()?;
    if is_command(commands, name) {
        return None;
    }
    let named = words.iter().position(|word| word == "--store").and_then(|at| words.get(at + 1));
    let place = StoreLocation::find(named.map(std::path::Path::new)).ok()?;
    let settings = Settings::load(place.local_dir()).ok()?;
    let (_, expansion) = of_settings(&settings).into_iter().find(|(alias, _)| alias == name)?;
    let expansion = expansion.into_iter().map(OsString::from);
    Some(words[..at].iter().cloned().chain(expansion).chain(words[at + 1..].iter().cloned()).collect())
}

/// Whether a first word means something without an alias of the user.
fn is_command(commands: &Command, name: &str) -> bool {
    commands.find_subcommand(name).is_some() || aliases::is_translated(name) || name == "help"
}

/// Returns the aliases in the settings with their words. What is not right is ignored.
pub fn of_settings(settings: &Settings) -> Vec<(String, Vec<String>)> {
    let aliases = settings.value(ALIASES).and_then(Value::as_object);
    let words = |value: &Value| value.as_str().and_then(split_words);
    let known = aliases.into_iter().flatten();
    known.filter_map(|(name, value)| Some((name.clone(), words(value)?))).collect()
}

/// Checks edited aliases, and returns them as they are in the settings.
pub fn check(edited: toml::Table) -> Result<Value, CommandFailure> {
    let commands = Arguments::command();
    let mut aliases = Map::new();
    for (name, value) in edited {
        let wrong = |what: &str| CommandFailure::new(FailureKind::Usage, format!("{ALIASES}.{name}: {what}"));
        let text = value.as_str().ok_or_else(|| wrong("not a text in quotes"))?;
        let words = split_words(text).filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| wrong("not the words of a command"))?;
        if is_command(&commands, &name) {
            return Err(wrong("it is the name of a command, which an alias cannot replace"));
        }
        if !is_command(&commands, &words[0]) {
            return Err(wrong(&format!("\"{}\" is not a command", words[0])));
        }
        aliases.insert(name, json!(text));
    }
    Ok(Value::Object(aliases))
}
