//! The list of commands in the help, grouped by task: one list of fifty is hard to read.

use std::fmt::Write;

use clap::Command;

use crate::output;

/// What commands are for, in the order in which people meet them.
const GROUPS: [(&str, &[&str]); 10] = [
    (
        "Show",
        &[
            "status", "log", "timeline", "changes", "diff", "show", "ls", "cat", "sessions", "search",
            "query", "commands",
        ],
    ),
    ("Ask", &["blame", "why", "cost", "profile", "anomalies"]),
    ("Go back", &["checkpoint", "rewind", "undo", "redo", "restore", "branch", "op"]),
    ("Record agents", &["init", "run", "agent", "proxy", "hook", "import", "export", "notes"]),
    (
        "Control live agents",
        &["watch", "breakpoint", "pause", "resume", "step", "inspect", "inject", "deny", "edit-input"],
    ),
    ("Run again", &["replay", "rerun", "compare", "bisect"]),
    ("Reason", &["board"]),
    ("Open", &["tui", "studio", "serve", "mcp"]),
    (
        "Maintain",
        &[
            "settings",
            "doctor",
            "watcher",
            "stats",
            "prune",
            "fsck",
            "seal",
            "guard",
            "mirror",
            "store",
            "workspace",
        ],
    ),
    ("Learn", &["demo", "points", "completions", "man", "help"]),
];

/// Columns of the names, and those of all: at most as many as clap takes for the rest of the help.
const NAME_COLUMNS: usize = 13;
const WIDTH: (usize, usize) = (50, 100);

/// The same command line, with its commands in groups in the help.
pub fn with_grouped_help(command: Command) -> Command {
    let room = output::terminal_width().clamp(WIDTH.0, WIDTH.1) - NAME_COLUMNS - 2;
    let mut template = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (group, names) in GROUPS {
        // As clap shows headings and names; where there are no colours, they are taken out again.
        let _ = write!(template, "\n\x1b[1m\x1b[4m{group}:\x1b[0m\n");
        for name in names {
            let about = subcommand_about(&command, name);
            let indent = format!("\n{:1$}", "", NAME_COLUMNS + 2);
            let _ = writeln!(
                template,
                "  \x1b[1m{name}\x1b[0m{:1$}{2}",
                "",
                NAME_COLUMNS - name.len(),
                fold_text(&about, room).join(&indent)
            );
        }
    }
    template.push_str("\n\x1b[1m\x1b[4mGlobal options:\x1b[0m\n{options}{after-help}");
    command.help_template(template)
}

fn subcommand_about(command: &Command, name: &str) -> String {
    if name == "help" {
        return "Print this message, or the help of a command".to_owned();
    }
    let about = command.find_subcommand(name).and_then(Command::get_about);
    about.map(ToString::to_string).unwrap_or_default()
}

/// A text in lines of so many columns.
fn fold_text(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let full = lines
            .last()
            .is_some_and(|line| !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room);
        if full {
            lines.push(String::new());
        }
        // There is always one.
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let command = crate::args::Arguments::command();
        let shown: HashSet<&str> = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(Command::get_name)
            .chain(["help"])
            .collect();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(grouped.len(), shown.len());
        assert_eq!(grouped.into_iter().collect::<HashSet<_>>(), shown);
    }

    #[test]
    fn long_texts_are_folded() {
        let text = "word ".repeat(40);
        let lines = fold_text(text.trim_end(), 30);
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= 30), "{lines:?}");
        assert_eq!(lines.join(" "), text.trim_end());
    }
}
