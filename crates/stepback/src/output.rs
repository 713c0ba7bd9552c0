//! Output for users and programs: data on stdout, narration on stderr, colours only on terminals that want them.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use stepback_model::change::{ChangeKind, PathChange};
pub use stepback_model::quantity::{bytes, count, duration, grouped};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub use self::pager::{OutputPager, is_stdout_terminal};
pub use self::progress::Progress;
use self::progress::hide_progress;
use crate::args::ColorChoice;

mod pager;
mod progress;

/// Whether the user chose that output has colours or not; `None` for what suits the terminal.
static CHOSEN_COLOR: OnceLock<bool> = OnceLock::new();

/// Sets what the user chose about colours, before anything is printed.
pub fn choose_color(choice: Option<ColorChoice>) {
    if let Some(choice) = choice.filter(|choice| *choice != ColorChoice::Auto) {
        // Set once, by `main`.
        let _ = CHOSEN_COLOR.set(choice == ColorChoice::Always);
    }
}

/// Colours with meanings, or none.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// Returns the colours for stdout.
    pub fn stdout() -> Self {
        Self { on: is_color_enabled(is_stdout_terminal()) }
    }

    /// Returns the colours for stderr.
    pub fn stderr() -> Self {
        Self { on: is_color_enabled(io::stderr().is_terminal()) }
    }

    /// Returns no colours.
    pub fn off() -> Self {
        Self { on: false }
    }

    /// Whether colours are on.
    pub fn is_on(self) -> bool {
        self.on
    }

    fn wrap(self, code: &str, text: impl std::fmt::Display) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    /// Paints text about something that succeeded or was created.
    pub fn good(self, text: impl std::fmt::Display) -> String {
        self.wrap("32", text)
    }

    /// Paints text about something that failed or was removed.
    pub fn bad(self, text: impl std::fmt::Display) -> String {
        self.wrap("31", text)
    }

    /// Paints text that deserves attention.
    pub fn note(self, text: impl std::fmt::Display) -> String {
        self.wrap("33", text)
    }

    /// Paints a name that the user can type.
    pub fn name(self, text: impl std::fmt::Display) -> String {
        self.wrap("36", text)
    }

    /// Paints text that is less important.
    pub fn dim(self, text: impl std::fmt::Display) -> String {
        self.wrap("2", text)
    }

    /// Paints text that is more important.
    pub fn strong(self, text: impl std::fmt::Display) -> String {
        self.wrap("1", text)
    }

    /// Returns a kind of change, in its colour.
    pub fn change_kind(self, change: &PathChange) -> String {
        let word = change.kind().as_str();
        match change.kind() {
            ChangeKind::Created => self.good(word),
            ChangeKind::Deleted => self.bad(word),
            _ => self.note(word),
        }
    }
}

fn is_color_enabled(terminal: bool) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if let Some(chosen) = CHOSEN_COLOR.get() {
        return *chosen;
    }
    if set("NO_COLOR") {
        return false;
    }
    set("CLICOLOR_FORCE") || (terminal && std::env::var_os("TERM").is_none_or(|term| term != "dumb"))
}

/// Prints one line of narration. On a terminal that is too narrow, it is wrapped between words.
pub fn print_status(text: impl std::fmt::Display) {
    let text = text.to_string();
    let lines = if io::stderr().is_terminal() { wrap_text(&text, terminal_width()) } else { vec![text] };
    let _hidden = hide_progress();
    for line in lines {
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// A space at which lines are not wrapped.
pub const NO_BREAK_SPACE: char = '\u{a0}';

/// Prints a sentence as data. On a terminal that is too narrow, it is wrapped between words, but not at [`NO_BREAK_SPACE`].
pub fn print_wrapped(text: &str) {
    let width = if is_stdout_terminal() { terminal_width() } else { usize::MAX };
    wrap_text(text, width).iter().for_each(|part| print_line(part.replace(NO_BREAK_SPACE, " ")));
}

/// Prints one line of data. A closed output is not an error.
pub fn print_line(text: impl std::fmt::Display) {
    let _hidden = hide_progress();
    if writeln!(io::stdout(), "{text}").is_err() {
        std::process::exit(0);
    }
}

/// Prints one line, as data or as narration.
pub fn print_data_or_status(is_data: bool, text: &str) {
    if is_data { print_line(text) } else { print_status(text) }
}

/// Returns a text with its first letter capitalized.
pub fn capitalize(text: &str) -> String {
    let mut text = text.to_owned();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text
}

/// Writes bytes unchanged. A closed output is not an error.
pub fn write_raw(bytes: &[u8]) {
    let _ = std::io::stdout().write_all(bytes);
}

/// Prints narration, unless the output is JSON.
pub fn print_unless_json(json: bool, text: &str) {
    if !json {
        print_status(Paint::stderr().dim(text));
    }
}

/// Prints the single JSON document.
pub fn print_document(value: &serde_json::Value) {
    print_line(value);
}

/// Returns the columns of the terminal, or a default if there is no terminal.
pub fn terminal_width() -> usize {
    // In a pager, stdout is a pipe.
    let size = rustix::termios::tcgetwinsize(io::stdout());
    let size = if is_stdout_terminal() {
        size.or_else(|_| rustix::termios::tcgetwinsize(io::stderr()))
    } else {
        size
    };
    size.map_or(100, |size| match size.ws_col {
        0 => 100,
        columns => usize::from(columns),
    })
}

/// Returns the beginning of a text that fits into `columns`, with a mark where it was cut.
pub fn truncate_to_width(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_string();
    }
    let mut used = 1;
    let kept = text.chars().take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= columns
    });
    let mut kept: String = kept.collect();
    kept.push('…');
    kept
}

/// Wraps a text into lines of at most `columns`, as far as its words allow. Lines that fit are unchanged; continuation
/// lines keep the indentation of the line they belong to.
pub fn wrap_text(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for whole in text.split('\n') {
        if visible_width(whole) <= columns {
            lines.push(whole.to_string());
            continue;
        }
        let indent = &whole[..whole.len() - whole.trim_start_matches(' ').len()];
        let mut line = String::new();
        for word in whole[indent.len()..].split(' ') {
            if line.is_empty() {
                line = format!("{indent}{word}");
            } else if visible_width(&line) + 1 + visible_width(word) <= columns {
                line.push(' ');
                line.push_str(word);
            } else {
                lines.push(std::mem::replace(&mut line, format!("{indent}{word}")));
            }
        }
        lines.push(line);
    }
    lines
}

/// Returns the columns of a text that may contain colours.
fn visible_width(text: &str) -> usize {
    let mut parts = text.split("\x1b[");
    let first = parts.next().map_or(0, UnicodeWidthStr::width);
    first + parts.map(|part| part.split_once('m').map_or(part, |(_, rest)| rest).width()).sum::<usize>()
}

/// Whether there is a terminal to ask the user on.
pub fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a yes-or-no question on the terminal. Returns `None` if there is no terminal to ask on.
pub fn confirm(question: &str) -> Option<bool> {
    if !can_ask() {
        return None;
    }
    let _hidden = hide_progress();
    eprint!("{question} [y/N] ");
    let _ = io::stderr().flush();
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).ok()?;
    Some(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_whole_and_colours_take_no_room() {
        assert_eq!(wrap_text("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap_text("  one two three", 7), ["  one", "  two", "  three"]);
        assert_eq!(wrap_text("a  b", 10), ["a  b"]);
        assert_eq!(wrap_text("\x1b[31mone\x1b[0m two", 7), ["\x1b[31mone\x1b[0m two"]);
        assert_eq!(wrap_text("first\n\nlonger than that", 11), ["first", "", "longer than", "that"]);
        assert_eq!(wrap_text("https://example.com", 4), ["https://example.com"]);
    }
}
