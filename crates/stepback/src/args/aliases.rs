//! Other words for what stepback does, as other debuggers and rewind tools write it: `switch main`, `rewind last 2`,
//! `branch POINT NAME`, `checkpoint diff A B`.
//!
//! They are rewritten here, before the command line is parsed, so that nothing else knows them: not the parser, not the
//! help, not the completions. Only words that would be an error otherwise are rewritten, with two exceptions that
//! `docs/guide/points.md` names: `rewind all` and `rewind last N`, which could be labels (`label:all` is one).
//! Hooks do not get here: `main` asks whether it runs one first.

use std::ffi::OsString;

use stepback_model::nearest::edit_distance;
use stepback_model::time_expr::TimeExpr;

/// Options of all commands that have a value in the next word.
const GLOBAL_VALUES: [&str; 4] = ["-C", "--workspace", "--store", "--color"];
/// Options of all commands that are one word.
const GLOBAL_FLAGS: [&str; 3] = ["--json", "--allow-broad", "--no-pager"];
/// Further options with a value, of the commands whose other words are counted here.
const LOCAL_VALUES: [&str; 10] =
    ["--from", "--name", "--worktree", "--resume", "--path", "--session", "-m", "--tag", "--find", "--label"];
/// What `branch` and `checkpoint` do under these names; another first word of `branch` is a point.
const BRANCH_COMMANDS: [&str; 11] = [
    "create", "list", "switch", "rename", "abandon", "archive", "activate", "delete", "compare", "merge",
    "help",
];
/// Kinds of steps under the names that other recorders give them.
const KINDS: [(&str, &str); 5] = [
    ("tool-call-start", "tool-start"),
    ("tool-call-end", "tool-end"),
    ("llm-call-start", "model-start"),
    ("llm-call-end", "model-end"),
    ("decision-point", "decision"),
];

/// Returns the command line in stepback's own words.
pub fn translate(words: &[OsString]) -> Vec<OsString> {
    let Some(at) = find_command(words) else { return words.to_vec() };
    let (before, rest) = (&words[..at], &words[at + 1..]);
    let command = words[at].to_str().unwrap_or_default();
    let translated = match command {
        "switch" => prepend(&["branch", "switch"], rest),
        "save" => prepend(&["checkpoint", "create"], rest),
        "st" => prepend(&["status"], rest),
        "config" => prepend(&["settings"], rest),
        "version" => vec!["--version".into()],
        "history" => prepend(&["changes", "--all"], &name_paths(rest)),
        "log" if rest.iter().any(|word| word == "--graph") => translate_graph(rest),
        "show" | "at" | "restore" => prepend(&[command], &join_time(rest)),
        "branch" => prepend(&["branch"], &translate_branch(rest)),
        "checkpoint" => translate_checkpoint(rest),
        "rewind" => translate_rewind(rest),
        "breakpoint" => prepend(&["breakpoint"], &translate_breakpoint(rest)),
        "replay" | "watch" | "log" => prepend(&[command], &translate_kinds(rest)),
        _ => return words.to_vec(),
    };
    [before, &translated].concat()
}

/// Whether a first word is one of those that are rewritten, and of no command.
pub(super) fn is_translated(word: &str) -> bool {
    ["switch", "save", "st", "config", "version", "history"].contains(&word)
}

/// Returns where the name of the command is.
pub(super) fn find_command(words: &[OsString]) -> Option<usize> {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        match word.to_str() {
            Some(word) if GLOBAL_VALUES.contains(&word) => at += 2,
            Some(word) if GLOBAL_FLAGS.contains(&word) => at += 1,
            Some(word) if GLOBAL_VALUES[1..].iter().any(|name| is_option_with_value(word, name)) => at += 1,
            Some(word) if word.starts_with('-') => return None,
            Some(_) => return Some(at),
            None => return None,
        }
    }
    None
}

fn is_option_with_value(word: &str, name: &str) -> bool {
    word.strip_prefix(name).is_some_and(|rest| rest.starts_with('='))
}

fn prepend(first: &[&str], rest: &[OsString]) -> Vec<OsString> {
    first.iter().map(OsString::from).chain(rest.iter().cloned()).collect()
}

/// Where the words are that are neither options nor their values. What follows `--` is not among them.
fn positional_indexes(words: &[OsString]) -> Vec<usize> {
    let mut indexes = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        match word.to_str() {
            Some("--") => break,
            Some(word) if GLOBAL_VALUES.contains(&word) || LOCAL_VALUES.contains(&word) => at += 1,
            Some(word) if word.starts_with('-') && word.len() > 1 => {}
            _ => indexes.push(at),
        }
        at += 1;
    }
    indexes
}

/// Takes an option and its value out of the words: `--name VALUE` or `--name=VALUE`.
fn take_option(words: &mut Vec<OsString>, name: &str) -> Option<OsString> {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let at = words[..end].iter().position(|word| {
        word == name || word.to_str().is_some_and(|word| is_option_with_value(word, name))
    })?;
    if words[at] == name {
        return (at + 1 < end).then(|| words.drain(at..at + 2).nth(1)).flatten();
    }
    let word = words.remove(at);
    word.to_str().and_then(|word| word.split_once('=')).map(|(_, value)| value.into())
}

/// `branch POINT NAME` and `branch --from POINT --name NAME` are `branch create NAME --from POINT`.
fn translate_branch(rest: &[OsString]) -> Vec<OsString> {
    let positional = positional_indexes(rest);
    let mut words = rest.to_vec();
    match positional.as_slice() {
        [] => {
            let Some(name) = take_option(&mut words, "--name") else { return rest.to_vec() };
            words.insert(0, name);
        }
        [first, second] if !is_branch_command(&rest[*first]) => {
            let (point, name) = (rest[*first].clone(), rest[*second].clone());
            words.remove(*second);
            words.remove(*first);
            words.splice(0..0, [name, "--from".into(), point]);
        }
        _ => return rest.to_vec(),
    }
    prepend(&["create"], &words)
}

fn is_branch_command(word: &OsString) -> bool {
    BRANCH_COMMANDS.iter().any(|name| word == name)
}

/// Comparing, restoring, looking at and pruning checkpoints are commands of their own; `--tags A,B` is one tag after another.
fn translate_checkpoint(rest: &[OsString]) -> Vec<OsString> {
    let first = positional_indexes(rest).first().copied();
    let name = first.and_then(|at| rest[at].to_str()).unwrap_or_default();
    let without_name = || {
        let mut words = rest.to_vec();
        first.map(|at| words.remove(at));
        words
    };
    match name {
        "diff" | "at" | "timeline" | "prune" => prepend(&[name], &without_name()),
        "restore" => prepend(&["rewind", "--with-board"], &without_name()),
        "create" | "annotate" => {
            let mut words = rest.to_vec();
            while let Some(tags) = take_option(&mut words, "--tags") {
                let tags = tags.to_string_lossy().into_owned();
                let tags = tags.split(',').flat_map(|tag| ["--tag".to_owned(), tag.trim().to_owned()]);
                words.extend(tags.map(OsString::from));
            }
            prepend(&["checkpoint"], &words)
        }
        _ if is_label(name) => prepend(&["checkpoint", "create"], rest),
        _ => prepend(&["checkpoint"], rest),
    }
}

/// What `checkpoint` does under these names.
const CHECKPOINT_COMMANDS: [&str; 6] = ["create", "list", "show", "annotate", "delete", "help"];

/// Whether the word after `checkpoint` is the label of a new one, and not the misspelled name of a command.
fn is_label(word: &str) -> bool {
    let is_near = |name: &str| word == name || (word.len() > 2 && edit_distance(word, name) <= 2);
    !word.is_empty() && !CHECKPOINT_COMMANDS.into_iter().any(is_near)
}

/// `history FILE` names files with an option.
fn name_paths(rest: &[OsString]) -> Vec<OsString> {
    let positional = positional_indexes(rest);
    let name = |(at, word): (usize, &OsString)| match positional.contains(&at) {
        true => vec!["--path".into(), word.clone()],
        false => vec![word.clone()],
    };
    rest.iter().enumerate().flat_map(name).collect()
}

/// `log --graph` is the timeline.
fn translate_graph(rest: &[OsString]) -> Vec<OsString> {
    let words: Vec<OsString> = rest.iter().filter(|word| *word != "--graph").cloned().collect();
    prepend(&["timeline"], &words)
}

/// A time in several words, such as `10 minutes ago`, is one point.
fn join_time(rest: &[OsString]) -> Vec<OsString> {
    let positional = positional_indexes(rest);
    let (Some(first), Some(last)) = (positional.first(), positional.last()) else { return rest.to_vec() };
    let is_run = positional.len() > 1 && last - first + 1 == positional.len();
    let text = rest[*first..=*last].join(&OsString::from(" "));
    let is_time = text.to_str().is_some_and(|text| TimeExpr::parse(text).is_ok());
    if !is_run || !is_time {
        return rest.to_vec();
    }
    [&rest[..*first], &[text], &rest[last + 1..]].concat()
}

/// `rewind` lists the changes, `rewind all`, `rewind last N` and `rewind --iteration N` name what goes back.
fn translate_rewind(rest: &[OsString]) -> Vec<OsString> {
    let mut words: Vec<OsString> =
        rest.iter().map(|word| if word == "-s" { "--session".into() } else { word.clone() }).collect();
    let is_global = |word: &OsString| GLOBAL_FLAGS.iter().any(|flag| word == flag);
    if words.iter().all(is_global) {
        return prepend(&["changes"], &words);
    }
    if let Some(number) = take_option(&mut words, "--iteration") {
        let mut point = OsString::from("iteration:");
        point.push(number);
        words.insert(0, point);
        return prepend(&["rewind"], &words);
    }
    match positional_indexes(&words).as_slice() {
        [at] if words[*at] == "all" => words[*at] = "--all".into(),
        [at, number] if words[*at] == "last" && *number == at + 1 => words[*at] = "--last".into(),
        _ => words = join_time(&words),
    }
    prepend(&["rewind"], &words)
}

/// `bp-2` and `bp_2` are breakpoint 2.
fn translate_breakpoint(rest: &[OsString]) -> Vec<OsString> {
    let mut words = rest.to_vec();
    if let [command, id] = positional_indexes(rest).as_slice()
        && ["remove", "enable", "disable"].iter().any(|name| words[*command] == *name)
        && let Some(word) = words[*id].to_str()
        && let Some(number) = word.strip_prefix("bp-").or_else(|| word.strip_prefix("bp_"))
    {
        words[*id] = number.into();
    }
    words
}

/// The kinds after `--filter`, `-f` and `--kind` are ours.
fn translate_kinds(rest: &[OsString]) -> Vec<OsString> {
    let mut words = rest.to_vec();
    for at in 0..words.len() {
        if words[at] == "-f" {
            words[at] = "--filter".into();
        }
        let is_value = at > 0 && (words[at - 1] == "--filter" || words[at - 1] == "--kind");
        let Some(word) = words[at].to_str() else { continue };
        match word.split_once('=') {
            Some((name @ ("--filter" | "--kind"), kinds)) => {
                words[at] = format!("{name}={}", translate_kind_list(kinds)).into();
            }
            _ if is_value => words[at] = translate_kind_list(word).into(),
            _ => {}
        }
    }
    words
}

fn translate_kind_list(kinds: &str) -> String {
    let own = |kind: &str| {
        let kind = kind.replace('_', "-");
        let known = KINDS.iter().find(|(other, _)| *other == kind);
        known.map_or(kind, |(_, own)| (*own).to_owned())
    };
    kinds.split(',').map(own).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::Arguments;

    /// Splits a line at spaces outside of double quotes.
    fn split_line(line: &str) -> Vec<OsString> {
        let mut quoted = false;
        let mut words = vec![String::new()];
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                c => words.last_mut().unwrap().push(c),
            }
        }
        words.into_iter().map(OsString::from).collect()
    }

    #[track_caller]
    fn expect(line: &str, own: &str) {
        let translated = translate(&split_line(&format!("stepback {line}")));
        assert_eq!(translated, split_line(&format!("stepback {own}")), "{line}");
        Arguments::try_parse_from(&translated).unwrap_or_else(|error| panic!("{line}: {error}"));
    }

    #[test]
    fn other_words_become_own_words() {
        expect("switch main", "branch switch main");
        expect("--json -C dir switch \"a b\" -y", "--json -C dir branch switch \"a b\" -y");
        expect("branch p \"a b\"", "branch create \"a b\" --from p");
        expect("branch --json p --worktree w n", "branch create n --from p --json --worktree w");
        expect("branch --from p --name \"a b\"", "branch create \"a b\" --from p");
        expect("branch --name=n", "branch create n");
        expect("branch create n --from p", "branch create n --from p");
        expect("branch list", "branch list");
        expect("branch compare a b", "branch compare a b");
        expect("checkpoint diff a b --stat", "diff a b --stat");
        expect("checkpoint --json at now", "at --json now");
        expect("checkpoint timeline", "timeline");
        expect("checkpoint prune --keep-last 9", "prune --keep-last 9");
        expect("checkpoint restore 4f2a --yes", "rewind --with-board 4f2a --yes");
        expect("checkpoint create \"a b\" --tags x,y", "checkpoint create \"a b\" --tag x --tag y");
        expect("checkpoint create --tags=x --tag z", "checkpoint create --tag z --tag x");
        expect("checkpoint list --tag x", "checkpoint list --tag x");
        expect("checkpoint \"a b\"", "checkpoint create \"a b\"");
        expect("checkpoint done -m note", "checkpoint create done -m note");
        expect("save \"a b\" --tag x", "checkpoint create \"a b\" --tag x");
        expect("save", "checkpoint create");
        expect("st --excluded", "status --excluded");
        expect("config notes 2", "settings notes 2");
        expect("history a.rs b.rs --json", "changes --all --path a.rs --path b.rs --json");
        expect("log --graph --session 4f2a", "timeline --session 4f2a");
        expect("rewind 10 minutes ago --yes", "rewind \"10 minutes ago\" --yes");
        expect("show yesterday 14:00", "show \"yesterday 14:00\"");
        expect("rewind", "changes");
        expect("rewind --json", "changes --json");
        expect("rewind all -y", "rewind --all -y");
        expect("rewind last 2", "rewind --last 2");
        expect("rewind last", "rewind last");
        expect("rewind all --path x", "rewind --all --path x");
        expect("rewind --iteration 5 --force", "rewind iteration:5 --force");
        expect("rewind --iteration=5", "rewind iteration:5");
        expect("rewind label -s 4f2a", "rewind label --session 4f2a");
        expect("rewind 1", "rewind 1");
        expect("rewind --path all x", "rewind --path all x");
        expect("breakpoint remove bp-12", "breakpoint remove 12");
        expect("breakpoint enable bp_3", "breakpoint enable 3");
        expect("breakpoint add tool bp-1", "breakpoint add tool bp-1");
        expect("replay -f tool_call_start,tool_call_end x", "replay --filter tool-start,tool-end x");
        expect("replay --filter=llm_call_end", "replay --filter=model-end");
        expect("log --kind user_input,decision_point", "log --kind user-input,decision");
        expect("watch --filter error", "watch --filter error");
    }

    #[test]
    fn other_lines_stay_as_they_are() {
        for line in [
            "stepback",
            "stepback --help",
            "stepback branch",
            "stepback branch x",
            "stepback branch --name",
            "stepback branch a b c",
            "stepback diff -- switch",
            "stepback --unknown switch main",
            "stepback --store=x status",
            "stepback rewind -- all",
            "stepback checkpoint lst",
            "stepback checkpoint",
            "stepback rewind one two",
            "stepback run -- switch main",
            "stepback rewind --iteration",
        ] {
            let words = split_line(line);
            assert_eq!(translate(&words), words, "{line}");
        }
    }

    /// An alias must never hide a command of stepback's own.
    #[test]
    fn no_alias_is_the_name_of_a_command() {
        let command = Arguments::command();
        for name in ["switch", "save", "st", "config", "version", "history"] {
            assert!(is_translated(name));
            assert!(command.find_subcommand(name).is_none(), "{name}");
        }
        let mut checkpoint = command.find_subcommand("checkpoint").unwrap().clone();
        checkpoint.build();
        for name in ["diff", "at", "timeline", "prune", "restore"] {
            assert!(checkpoint.find_subcommand(name).is_none(), "{name}");
        }
        let mut branch = command.find_subcommand("branch").unwrap().clone();
        branch.build();
        for own in branch.get_subcommands() {
            assert!(BRANCH_COMMANDS.contains(&own.get_name()), "{}", own.get_name());
        }
    }

    /// The words in the examples of every command keep their meaning.
    #[test]
    fn examples_stay_as_they_are() {
        fn collect(command: &clap::Command, lines: &mut Vec<String>) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = help.lines().map(str::trim).filter(|line| line.starts_with("stepback "));
            lines.extend(examples.map(|line| line.split("   ").next().unwrap_or(line).to_owned()));
            command.get_subcommands().for_each(|inner| collect(inner, lines));
        }
        let mut whole = Arguments::command();
        whole.build();
        let mut lines = Vec::new();
        collect(&whole, &mut lines);
        assert!(lines.len() > 150, "only {} examples were found", lines.len());
        for line in lines {
            let words = split_line(&line);
            assert_eq!(translate(&words), words, "{line}");
        }
    }
}
