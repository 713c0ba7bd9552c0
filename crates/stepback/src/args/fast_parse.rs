//! Parsing the usual command line without the definitions of fifty commands.
//!
//! Every command takes the options that all have, and the parser copies them into each before it reads the first word. Here it
//! is given the one command that is meant. Whatever is wrong or asks for help is left to the whole definition, which knows
//! what else there is.

use std::ffi::OsString;

use clap::{ArgMatches, Command};

/// What `words` say, if they are right and `all` has the command they name.
pub fn try_parse(all: &Command, words: &[OsString]) -> Option<ArgMatches> {
    let name = find_command_name(all, words)?;
    let meant = all.find_subcommand(name)?.clone();
    let mut alone = Command::new(all.get_name().to_owned())
        .subcommand_required(true)
        .args(all.get_arguments().cloned())
        .subcommand(meant);
    alone.try_get_matches_from_mut(words).ok()
}

/// The first word that is neither an option nor the value of one.
fn find_command_name<'w>(all: &Command, words: &'w [OsString]) -> Option<&'w str> {
    let mut words = words.iter().skip(1).map(|word| word.to_str());
    while let Some(word) = words.next() {
        let word = word?;
        let Some(option) = word.strip_prefix('-') else { return Some(word) };
        let takes = |argument: &&clap::Arg| {
            argument.get_long().is_some_and(|long| option.strip_prefix('-') == Some(long))
                || argument.get_short().is_some_and(|short| option.strip_prefix(short) == Some(""))
        };
        let known = all.get_arguments().find(takes)?;
        if known.get_action().takes_values() {
            words.next();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches, Parser};

    use super::*;
    use crate::args::Arguments;

    fn command_name(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        find_command_name(&Arguments::command(), &words).map(str::to_owned)
    }

    #[test]
    fn the_command_is_found_behind_options() {
        assert_eq!(command_name("stepback log").as_deref(), Some("log"));
        assert_eq!(command_name("stepback -C log --json --store undo status log").as_deref(), Some("status"));
        assert_eq!(command_name("stepback --workspace 4f2a --allow-broad diff @").as_deref(), Some("diff"));
        // Left to the whole definition.
        assert_eq!(command_name("stepback --store=x log"), None);
        assert_eq!(command_name("stepback --help"), None);
        assert_eq!(command_name("stepback"), None);
    }

    /// The examples in the help of every command mean the same to both.
    #[test]
    fn both_ways_understand_the_same() {
        let mut lines = Vec::new();
        let mut whole = Arguments::command();
        whole.build();
        collect(&whole, &mut lines);
        assert!(lines.len() > 150, "only {} examples were found", lines.len());
        let mut quick = 0;
        for words in lines {
            let full = Arguments::try_parse_from(&words);
            let alone = try_parse(&Arguments::command(), &words);
            let alone = alone.map(|matches| Arguments::from_arg_matches(&matches));
            quick += usize::from(alone.is_some());
            if let Some(alone) = alone {
                assert_eq!(format!("{:?}", full.unwrap()), format!("{:?}", alone.unwrap()), "{words:?}");
            }
        }
        assert!(quick > 100, "only {quick} were understood");
    }

    /// What could be on a command line: the examples, with their remarks as further words.
    fn collect(command: &Command, lines: &mut Vec<Vec<OsString>>) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines().map(str::trim).filter(|line| line.starts_with("stepback ")) {
            let example = line.split("   ").next().unwrap_or(line);
            lines.push(example.split_whitespace().map(|word| word.trim_matches('"').into()).collect());
        }
        command.get_subcommands().for_each(|inner| collect(inner, lines));
    }
}
