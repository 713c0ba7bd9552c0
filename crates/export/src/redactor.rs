//! Redaction of everything that leaves the store.
//!
//! What agents said was redacted before it was stored, perhaps by an older version that knew fewer secrets; files in
//! checkpoints are kept as they are. So every text of an export is redacted again, with the user's own patterns too.

use std::borrow::Cow;

use serde_json::Value;
use stepback_engine::Engine;
use stepback_engine::recorder::settings::RedactionPatterns;

/// Removes secrets, and what the user's patterns match.
#[derive(Clone, Copy, Debug)]
pub struct Redactor<'a> {
    patterns: &'a RedactionPatterns,
}

impl<'a> Redactor<'a> {
    /// The redactor with the patterns of an engine's settings.
    pub fn new(engine: &'a Engine) -> Self {
        Self { patterns: &engine.recorder.redact }
    }

    /// Redacts a text.
    pub fn text(&self, text: &str) -> String {
        let without_secrets = stepback_redact::redact(text);
        match self.patterns.is_empty() {
            true => without_secrets.into_owned(),
            false => self.patterns.redact(&without_secrets).into_owned(),
        }
    }

    /// Redacts all texts in a value.
    pub fn value(&self, mut value: Value) -> Value {
        stepback_redact::redact_value(&mut value);
        if !self.patterns.is_empty() {
            self.patterns.redact_value(&mut value);
        }
        value
    }

    /// Redacts the content of a file; `None` if it is not text.
    pub fn file(&self, bytes: &[u8]) -> Option<String> {
        if bytes.contains(&0) {
            return None;
        }
        let text: Cow<'_, str> = std::str::from_utf8(bytes).ok()?.into();
        Some(self.text(&text))
    }
}
