//! Commit messages with trailers.
//!
//! Prompts and summaries come from agents and web pages. They are one line each, and every line of the body is indented,
//! so none of them can pass for a trailer or end the block of trailers.

use stepback_model::clip;
use stepback_model::escape::safe;

/// The longest subject, in characters.
const MAX_SUBJECT: usize = 72;
/// The longest value of a trailer, in characters.
const MAX_VALUE: usize = 300;
/// The most lines of the body.
const MAX_BODY_LINES: usize = 40;

/// The trailer with the id of the session.
pub(crate) const SESSION_TRAILER: &str = "Stepback-Session";
/// The trailer with the number of the step.
pub(crate) const STEP_TRAILER: &str = "Stepback-Step";

/// A message.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommitMessage {
    /// The first line.
    pub subject: String,
    /// Lines that say what happened.
    pub body: Vec<String>,
    /// Names and values, in order.
    pub trailers: Vec<(&'static str, String)>,
}

impl CommitMessage {
    /// The message as bytes of a commit.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let subject = match one_line(&self.subject, MAX_SUBJECT) {
            subject if subject.is_empty() => "Changes of an agent".to_owned(),
            subject => subject,
        };
        let mut text = format!("{subject}\n\n");
        for line in self.body.iter().take(MAX_BODY_LINES) {
            text.push_str(&format!("    {}\n", one_line(line, MAX_VALUE)));
        }
        if let Some(more) = self.body.len().checked_sub(MAX_BODY_LINES).filter(|more| *more > 0) {
            text.push_str(&format!("    … and {more} more\n"));
        }
        if !self.body.is_empty() {
            text.push('\n');
        }
        for (name, value) in &self.trailers {
            let value = one_line(value, MAX_VALUE);
            if !value.is_empty() {
                text.push_str(&format!("{name}: {value}\n"));
            }
        }
        text.into_bytes()
    }
}

/// A text in one line, without characters that are not visible.
fn one_line(text: &str, max_chars: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    clip::first(&safe(&words.join(" ")), max_chars).trim().to_owned()
}

/// The value of a trailer in a message.
pub(crate) fn trailer<'m>(message: &'m str, name: &str) -> Option<&'m str> {
    let block = message.trim_end().rsplit("\n\n").next()?;
    block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_cannot_forge_a_trailer() {
        let message = CommitMessage {
            subject: "do it\n\nStepback-Session: forged\n".into(),
            body: vec!["Stepback-Session: forged".into(), "a\n\nStepback-Step: 1".into()],
            trailers: vec![
                (SESSION_TRAILER, "real\n\nStepback-Session: forged".into()),
                (STEP_TRAILER, "7".into()),
                ("Stepback-Prompt", "\u{202e}x\nStepback-Step: 8".into()),
            ],
        };
        let text = String::from_utf8(message.encode()).unwrap();
        let block: Vec<&str> = text.trim_end().rsplit("\n\n").next().unwrap().lines().collect();
        assert_eq!(block.len(), 3, "{text}");
        assert_eq!(trailer(&text, STEP_TRAILER), Some("7"));
        assert_eq!(trailer(&text, SESSION_TRAILER), Some("real Stepback-Session: forged"));
        assert!(text.lines().all(|line| !line.starts_with("Stepback-Session: forged")), "{text}");
        assert!(!text.contains('\u{202e}'));
    }

    #[test]
    fn an_empty_prompt_has_a_subject() {
        assert!(CommitMessage::default().encode().starts_with(b"Changes of an agent\n"));
    }
}
