//! The user's own patterns of text that must not be stored, besides the secrets that `redact` finds.
//!
//! A pattern is applied to texts, never to the names and ids in a document: a conversation in which these were replaced
//! could not be continued.

use std::borrow::Cow;

use regex::{Regex, RegexBuilder};
use serde_json::Value;
use stepback_model::event::AgentEvent;

use super::RecorderSettingError;

/// What a match is replaced by.
const REPLACEMENT: &str = "[redacted:own-pattern]";
/// Most bytes of a compiled pattern.
const MAX_COMPILED_BYTES: usize = 1 << 20;
/// How deep documents are searched.
const MAX_DEPTH: usize = 200;

/// Patterns of text that is redacted.
#[derive(Clone, Debug, Default)]
pub struct RedactionPatterns(Vec<Regex>);

impl RedactionPatterns {
    /// Compiles patterns; the words `none` alone, or no word, are none.
    pub fn compile(words: &[String]) -> Result<Self, RecorderSettingError> {
        match words {
            [word] if word == "none" => Ok(Self::default()),
            words => words.iter().map(|word| compile(word)).collect::<Result<_, _>>().map(Self),
        }
    }

    /// Compiles the patterns that are valid, and returns the errors of the others.
    pub(super) fn compile_valid(words: &[String]) -> (Self, Vec<RecorderSettingError>) {
        let (mut valid, mut errors) = (Vec::new(), Vec::new());
        for word in words.iter().filter(|word| *word != "none") {
            match compile(word) {
                Ok(pattern) => valid.push(pattern),
                Err(error) => errors.push(error),
            }
        }
        (Self(valid), errors)
    }

    /// Whether there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The patterns, as the user wrote them.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Regex::as_str)
    }

    /// Replaces every match in a text. What was replaced before stays as it is, so that doing it twice changes nothing.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        for pattern in &self.0 {
            if !pattern.is_match(&text) {
                continue;
            }
            let parts: Vec<Cow<'_, str>> =
                text.split(REPLACEMENT).map(|part| pattern.replace_all(part, REPLACEMENT)).collect();
            let replaced = parts.join(REPLACEMENT);
            text = Cow::Owned(replaced);
        }
        text
    }

    /// Replaces every match in a text of its own.
    pub fn redact_string(&self, text: &mut String) {
        if let Cow::Owned(redacted) = self.redact(text) {
            *text = redacted;
        }
    }

    /// Replaces every match in the texts of a document. Names of fields and ids stay.
    pub fn redact_value(&self, value: &mut Value) {
        if !self.is_empty() {
            self.redact_nested(value, 0);
        }
    }

    fn redact_nested(&self, value: &mut Value, depth: usize) {
        match value {
            Value::String(text) => self.redact_string(text),
            Value::Array(items) if depth < MAX_DEPTH => {
                items.iter_mut().for_each(|item| self.redact_nested(item, depth + 1));
            }
            Value::Object(fields) if depth < MAX_DEPTH => {
                let is_typed = fields.contains_key("type");
                for (name, field) in fields.iter_mut() {
                    let is_structure =
                        field.is_string() && (is_structural(name) || (is_typed && name == "name"));
                    if !is_structure {
                        self.redact_nested(field, depth + 1);
                    }
                }
            }
            _ => {}
        }
    }

    /// Replaces every match in a line of a conversation, which is JSON for most agents.
    pub fn redact_line<'t>(&self, line: &'t str) -> Cow<'t, str> {
        if self.is_empty() {
            return Cow::Borrowed(line);
        }
        match serde_json::from_str::<Value>(line) {
            Ok(mut document) => {
                let original = document.clone();
                self.redact_value(&mut document);
                if document == original { Cow::Borrowed(line) } else { Cow::Owned(document.to_string()) }
            }
            Err(_) => self.redact(line),
        }
    }

    /// Replaces every match in the texts of an event.
    pub fn redact_event(&self, event: &mut AgentEvent) {
        if self.is_empty() {
            return;
        }
        let message = event.message.as_mut().map(|message| &mut message.content);
        let values = [&mut event.input, &mut event.output, &mut event.metadata, &mut event.raw];
        for value in values.into_iter().filter_map(Option::as_mut).chain(message) {
            self.redact_value(value);
        }
        self.redact_string(&mut event.summary);
        if let Some(error) = &mut event.error {
            let texts = [Some(&mut error.message), error.stack.as_mut(), error.cause.as_mut()];
            texts.into_iter().flatten().for_each(|text| self.redact_string(text));
        }
    }
}

/// Compiles one pattern.
fn compile(word: &str) -> Result<Regex, RecorderSettingError> {
    if word.is_empty() {
        return Err(RecorderSettingError::Empty);
    }
    let pattern = RegexBuilder::new(word).size_limit(MAX_COMPILED_BYTES).build().map_err(|error| {
        // The last line says what is wrong; the lines before show the pattern again.
        let text = error.to_string();
        let reason = text.lines().next_back().unwrap_or_default();
        RecorderSettingError::InvalidPattern {
            pattern: word.to_owned(),
            reason: reason.trim_start_matches("error: ").to_owned(),
        }
    })?;
    match pattern.is_match("") {
        true => Err(RecorderSettingError::MatchesNothing(word.to_owned())),
        false => Ok(pattern),
    }
}

/// Whether a field is part of the form of a document, not of what is said in it.
fn is_structural(name: &str) -> bool {
    const NAMES: [&str; 18] = [
        "type",
        "role",
        "id",
        "uuid",
        "kind",
        "op",
        "status",
        "timestamp",
        "model",
        "signature",
        "thoughtSignature",
        "thought_signature",
        "encrypted_content",
        "hook_event_name",
        "tool_name",
        "transcript_path",
        "cwd",
        "version",
    ];
    NAMES.contains(&name) || ["_id", "Id", "Uuid", "ID"].iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patterns(words: &[&str]) -> RedactionPatterns {
        RedactionPatterns::compile(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn texts_are_redacted_and_the_form_of_a_document_stays() {
        let own = patterns(&["[A-Za-z]+"]);
        let mut message =
            json!({ "type": "tool_use", "id": "toolu", "name": "Bash", "input": { "name": "acme" } });
        own.redact_value(&mut message);
        assert_eq!(
            message,
            json!({ "type": "tool_use", "id": "toolu", "name": "Bash", "input": { "name": REPLACEMENT } })
        );
        let once = message.clone();
        own.redact_value(&mut message);
        assert_eq!(message, once, "a second time changes nothing");
    }

    #[test]
    fn a_line_that_is_not_touched_keeps_its_bytes() {
        let own = patterns(&["ACME-[0-9]+"]);
        let line = r#"{ "b" : 1,"a":"x" }"#;
        assert_eq!(own.redact_line(line), line);
        let redacted = own.redact_line(r#"{"a":"\"ACME-7\""}"#).into_owned();
        assert_eq!(redacted, format!(r#"{{"a":"\"{REPLACEMENT}\""}}"#));
        assert_eq!(own.redact_line("no JSON: ACME-7"), format!("no JSON: {REPLACEMENT}"));
    }

    #[test]
    fn patterns_that_cannot_work_are_named() {
        let error = |word: &str| RedactionPatterns::compile(&[word.to_owned()]).unwrap_err().to_string();
        assert!(error("(").contains("the pattern \"(\" is not a valid regular expression: unclosed group"));
        assert!(error("x*").contains("matches the empty text"));
        assert!(error("(a{1000}){1000}").contains("not a valid regular expression"));
        assert_eq!(error(""), RecorderSettingError::Empty.to_string());
        let (valid, errors) = RedactionPatterns::compile_valid(&["(".to_owned(), "ok".to_owned()]);
        assert_eq!((valid.sources().collect::<Vec<_>>(), errors.len()), (vec!["ok"], 1));
    }
}
