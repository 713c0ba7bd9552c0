//! A prompt for one line of input: the typed text and its purpose.

use crossterm::event::KeyCode;
use stepback_api::control::StopDocument;

/// The purpose of a prompt.
#[derive(Clone, PartialEq, Debug)]
pub enum PromptPurpose {
    /// A point to go to.
    Jump,
    /// Words to search for.
    Search,
    /// The name of a new branch.
    Branch,
    /// The label of a new checkpoint.
    Checkpoint,
    /// The changes for a rerun of the session.
    Rerun,
    /// The reason to deny a call.
    Deny(Box<StopDocument>),
    /// A different input for a call.
    EditInput(Box<StopDocument>),
    /// A message for the session with this id.
    Message(String),
    /// A new breakpoint.
    Breakpoint,
}

impl PromptPurpose {
    /// Returns the question of the prompt.
    pub fn question(&self) -> &'static str {
        match self {
            Self::Jump => "go to",
            Self::Search => "search",
            Self::Branch => "name of the branch",
            Self::Checkpoint => "label of the checkpoint",
            Self::Rerun => "rerun with",
            Self::Deny(_) => "refuse, because",
            Self::EditInput(_) => "run it with",
            Self::Message(_) => "tell the agent",
            Self::Breakpoint => "stop at",
        }
    }

    /// Returns a description of possible answers.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Jump => "12, first, last, error:last, tool:bash:1, 10 minutes ago, a label",
            Self::Search => "words, \"a phrase\", begin*, -not",
            Self::Branch => "letters, digits and -_./+",
            Self::Checkpoint => "may be empty",
            Self::Rerun => "PATH=VALUE, such as prompt=…, model=…, #14.output=…; empty changes nothing",
            Self::Deny(_) => "the model gets this reason",
            Self::EditInput(_) => "the whole input, as a JSON object",
            Self::Message(_) => "sent with its next call",
            Self::Breakpoint => {
                "tool NAME, path GLOB, pattern REGEX, iteration N, cost USD, anomaly [KIND], error"
            }
        }
    }
}

/// The result of a key press in a prompt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PromptResult {
    /// Typing continues.
    Pending,
    /// The line is complete.
    Submitted,
    /// The prompt was cancelled.
    Cancelled,
}

/// A line being typed.
#[derive(Clone, PartialEq, Debug)]
pub struct InputLine {
    /// The purpose of the prompt.
    pub purpose: PromptPurpose,
    chars: Vec<char>,
    cursor: usize,
}

/// The longest line, in characters: an edited input may be large, but not more than a user can read.
const MAX_LINE_CHARS: usize = 64 << 10;

impl InputLine {
    /// Creates a prompt with an initial text.
    pub fn new(purpose: PromptPurpose, text: &str) -> Self {
        let chars: Vec<char> = text.chars().take(MAX_LINE_CHARS).collect();
        Self { purpose, cursor: chars.len(), chars }
    }

    /// Returns the typed text.
    pub fn text(&self) -> String {
        self.chars.iter().collect()
    }

    /// Returns the text before and after the cursor.
    pub fn split_at_cursor(&self) -> (String, String) {
        let (before_cursor, after_cursor) = self.chars.split_at(self.cursor);
        (before_cursor.iter().collect(), after_cursor.iter().collect())
    }

    /// Inserts pasted text. It stays a single line.
    pub fn paste(&mut self, text: &str) {
        for c in text.chars().map(|c| if c == '\n' { ' ' } else { c }).filter(|c| !c.is_control()) {
            self.insert(c);
        }
    }

    fn insert(&mut self, c: char) {
        if self.chars.len() < MAX_LINE_CHARS {
            self.chars.insert(self.cursor, c);
            self.cursor += 1;
        }
    }

    /// Handles a key.
    pub fn handle_key(&mut self, key: KeyCode, control: bool) -> PromptResult {
        match key {
            KeyCode::Enter => return PromptResult::Submitted,
            KeyCode::Esc => return PromptResult::Cancelled,
            KeyCode::Char('c' | 'g') if control => return PromptResult::Cancelled,
            KeyCode::Char('u') if control => {
                self.chars.drain(..self.cursor);
                self.cursor = 0;
            }
            KeyCode::Char('a') if control => self.cursor = 0,
            KeyCode::Char('e') if control => self.cursor = self.chars.len(),
            KeyCode::Char(c) if !control && !c.is_control() => self.insert(c),
            KeyCode::Backspace if self.cursor > 0 => {
                self.cursor -= 1;
                self.chars.remove(self.cursor);
            }
            KeyCode::Delete if self.cursor < self.chars.len() => {
                self.chars.remove(self.cursor);
            }
            KeyCode::Left => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Right => self.cursor = (self.cursor + 1).min(self.chars.len()),
            KeyCode::Home => self.cursor = 0,
            KeyCode::End => self.cursor = self.chars.len(),
            _ => {}
        }
        PromptResult::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_edited_where_the_cursor_is() {
        let mut prompt = InputLine::new(PromptPurpose::Branch, "tr");
        for key in [KeyCode::Char('y'), KeyCode::Home, KeyCode::Char('a'), KeyCode::Right, KeyCode::Delete] {
            assert_eq!(prompt.handle_key(key, false), PromptResult::Pending);
        }
        assert_eq!(prompt.text(), "aty");
        prompt.handle_key(KeyCode::Backspace, false);
        assert_eq!(prompt.split_at_cursor(), ("a".into(), "y".into()));
        prompt.paste("x\ny\x1b");
        assert_eq!(prompt.text(), "ax yy");
        prompt.handle_key(KeyCode::Char('u'), true);
        assert_eq!(prompt.text(), "y");
        assert_eq!(prompt.handle_key(KeyCode::Enter, false), PromptResult::Submitted);
        assert_eq!(prompt.handle_key(KeyCode::Esc, false), PromptResult::Cancelled);
    }
}
